//! Control networks (`ControlNetModel`): a second way down that sees a picture and adds to what the U-net hands up.

use candle_core::{Result, Tensor};

use super::config::UnetConfig;
use super::trunk::{Heard, Reader, Trunk};
use super::unet::Residuals;
use crate::error::{self, Code, Error};
use crate::event::Watch;
use crate::nn::{Activation, Conv2d, Linear, Window};
use crate::weights::{Config, Inventory, VarBuilder};

/// Sizes of a control network.
#[derive(Debug, Clone, PartialEq)]
pub struct ControlConfig {
    /// The way down, as the U-net has it.
    pub trunk: UnetConfig,
    /// Widths of what looks at the picture, each at half the size of the one before.
    pub eye: Vec<usize>,
    /// Whether it was trained with blue before red.
    pub is_bgr: bool,
}

impl ControlConfig {
    /// Reads diffusers' `config.json`.
    ///
    /// # Errors
    /// `config_invalid` naming the key; `model_unsupported` for a setting that would change the numbers and that this
    /// network does not have.
    pub fn read(config: &Config) -> error::Result<Self> {
        let class = config.opt_text("_class_name")?.unwrap_or(CLASS);
        config.supported("_class_name", class == CLASS, CLASS)?;
        // There is no way up: the config is read as that of the U-net whose way up mirrors the way down.
        let up = config.texts("down_block_types", 1..=16)?;
        let up: Vec<_> = up.iter().rev().map(|block| block.replace("Down", "Up")).collect();
        let mut whole = config.clone();
        whole.value["up_block_types"] = up.into();
        whole.value["out_channels"] = config.value["in_channels"].clone();
        let order = config.opt_text("controlnet_conditioning_channel_order")?.unwrap_or("rgb");
        config.must(
            "controlnet_conditioning_channel_order",
            ["rgb", "bgr"].contains(&order),
            "rgb or bgr",
        )?;
        let pools = config.opt_bool("global_pool_conditions")?.unwrap_or(false);
        config.supported("global_pool_conditions", !pools, "false")?;
        let colours = config.opt_usize("conditioning_channels", 1..=64)?.unwrap_or(3);
        config.supported("conditioning_channels", colours == 3, "3")?;
        let key = "conditioning_embedding_out_channels";
        let eye = match config.field(key) {
            Some(_) => config.usizes(key, 2..=8, 1..=1 << 12)?,
            None => vec![16, 32, 96, 256],
        };
        Ok(Self { trunk: UnetConfig::read(&whole)?, eye, is_bgr: order == "bgr" })
    }

    /// Reads the network off its tensors (diffusers' names).
    ///
    /// # Errors
    /// `model_incompatible` if the tensors are no such network; `model_unsupported` for one network of several kinds.
    pub fn from_shapes(inventory: &Inventory) -> error::Result<Self> {
        if inventory.has("task_embedding") || inventory.has_prefix("control_add_embedding.") {
            let message = "a control network of several kinds in one (union) is not read yet";
            return Err(Error::new(Code::ModelUnsupported, message));
        }
        let width = |name: String| {
            inventory.shape(&name).and_then(|shape| shape.first()).copied().ok_or_else(|| {
                let message = format!("this is no control network: there is no tensor `{name}`");
                Error::new(Code::ModelIncompatible, message)
            })
        };
        let mut eye = vec![width(format!("{EYE}.conv_in.weight"))?];
        for pair in 0..inventory.blocks(&format!("{EYE}.blocks")) / 2 {
            eye.push(width(format!("{EYE}.blocks.{}.weight", 2 * pair + 1))?);
        }
        Ok(Self { trunk: UnetConfig::trunk_from_shapes(inventory)?, eye, is_bgr: false })
    }

    /// Refuses a network whose residuals do not fit the U-net, or that hears something else.
    ///
    /// # Errors
    /// `model_incompatible`, saying what was expected and found.
    pub fn must_fit(&self, unet: &UnetConfig, (latent, factor): (usize, usize)) -> error::Result<()> {
        let context =
            |config: &UnetConfig| config.levels.iter().map(|level| level.context).max().unwrap_or(0);
        let added = |config: &UnetConfig| config.added.map_or(0, |added| added.width);
        let facts = [
            ("listens to text of", [context(unet), context(&self.trunk)], "channels"),
            ("has levels of", [unet.levels[0].channels, self.trunk.levels[0].channels], "channels at first"),
            ("has", [unet.levels.len(), self.trunk.levels.len()], "levels"),
            ("sees latents of", [latent, self.trunk.input], "channels"),
            ("sees the picture at", [factor, 1 << (self.eye.len() - 1)], "pixels to a latent"),
            ("hears", [added(unet), added(&self.trunk)], "numbers beside the time"),
        ];
        let differs = facts.iter().find(|(_, [wanted, found], _)| wanted != found);
        let message = match differs {
            Some((what, [wanted, found], unit)) => {
                format!("the control network {what} {found} {unit}, the model {wanted}")
            }
            None if unet.skips() != self.trunk.skips() => format!(
                "the control network hands over widths {:?}, the model takes {:?}",
                self.trunk.skips(),
                unet.skips()
            ),
            None => return Ok(()),
        };
        Err(Error { param: Some("control_model".into()), ..Error::new(Code::ModelIncompatible, message) }
            .hint("take a control network that was trained for this kind of model"))
    }
}

/// What diffusers calls it.
const CLASS: &str = "ControlNetModel";
/// What looks at the picture.
const EYE: &str = "controlnet_cond_embedding";

/// The picture as the network sees it: convolutions that halve it to a latent's size.
struct Eye {
    first: Conv2d,
    layers: Vec<Conv2d>,
    last: Conv2d,
}

impl Eye {
    fn new(config: &ControlConfig, vb: &VarBuilder) -> Result<Self> {
        let halving = Window { stride: 2, ..Window::same(3) };
        let mut layers = Vec::with_capacity(2 * config.eye.len());
        for pair in config.eye.windows(2) {
            for (output, window) in [(pair[0], Window::same(3)), (pair[1], halving)] {
                let vb = vb.pp(format!("blocks.{}", layers.len()));
                layers.push(Conv2d::new(pair[0], output, window, &vb)?);
            }
        }
        let (first, last) = (config.eye[0], config.eye[config.eye.len() - 1]);
        let width = config.trunk.levels[0].channels;
        Ok(Self {
            first: Conv2d::new(3, first, Window::same(3), &vb.pp("conv_in"))?,
            layers,
            last: Conv2d::new(last, width, Window::same(3), &vb.pp("conv_out"))?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = self.first.forward_activated(x, Activation::Silu)?;
        for layer in &self.layers {
            x = layer.forward_activated(&x, Activation::Silu)?;
        }
        self.last.forward(&x)
    }
}

/// The network.
///
/// # Source
/// Zhang et al. 2023 (arXiv 2302.05543) sec. 3.1 and 3.2; names and guess mode as in
/// `huggingface/diffusers@v0.42.1 src/diffusers/models/controlnets/controlnet.py`, Apache-2.0.
pub struct ControlNet {
    trunk: Trunk,
    eye: Eye,
    leave: Vec<Linear>,
    middle: Linear,
    is_bgr: bool,
}

/// What a control network is told for a whole walk.
#[derive(Debug, Clone)]
pub struct Steering {
    /// As the U-net hears it.
    pub heard: Heard,
    /// From [`ControlNet::see`].
    pub seen: Tensor,
    /// What the residuals are multiplied by.
    pub scale: f64,
    /// Whether fine layers count less than coarse ones: the picture is followed even where the prompt says nothing.
    pub guess: bool,
}

impl ControlNet {
    /// Reads diffusers' names.
    ///
    /// # Errors
    /// The tensor that is missing or has another shape.
    pub fn new(config: &ControlConfig, vb: &VarBuilder) -> Result<Self> {
        let mut reader = Reader::new(&config.trunk);
        let mut trunk = Trunk::new(&mut reader, vb)?;
        trunk.listeners = reader.into_listeners();
        let leave = |(i, width): (usize, usize)| {
            Linear::pointwise(width, width, &vb.pp(format!("controlnet_down_blocks.{i}")))
        };
        let coarsest = config.trunk.levels[config.trunk.levels.len() - 1].channels;
        Ok(Self {
            trunk,
            eye: Eye::new(config, &vb.pp(EYE))?,
            leave: config.trunk.skips().into_iter().enumerate().map(leave).collect::<Result<_>>()?,
            middle: Linear::pointwise(coarsest, coarsest, &vb.pp("controlnet_mid_block"))?,
            is_bgr: config.is_bgr,
        })
    }

    /// The way in, the way down and the middle.
    pub fn trunk(&self) -> &Trunk {
        &self.trunk
    }

    /// The sizes of its way down.
    pub fn config(&self) -> &UnetConfig {
        self.trunk.config()
    }

    /// What it makes of the picture, once for a whole walk.
    ///
    /// # Shapes
    /// `picture` `[1, 3, H, W]` in [0, 1] → `[1, h, w, C]`.
    pub fn see(&self, picture: &Tensor) -> Result<Tensor> {
        let mut x = picture.permute((0, 2, 3, 1))?.contiguous()?; // [1, H, W, 3]
        if self.is_bgr {
            let turned = [2, 1, 0].map(|channel| x.narrow(3, channel, 1));
            let [b, g, r] = turned;
            x = Tensor::cat(&[b?, g?, r?], 3)?;
        }
        self.eye.forward(&x.to_dtype(self.trunk.dtype())?)
    }

    /// One call: what is added to the U-net's way down and middle.
    ///
    /// # Shapes
    /// `x` `[B, C, H, W]`.
    ///
    /// # Errors
    /// `cancelled` between blocks.
    pub fn forward(
        &self,
        x: &Tensor,
        time: f64,
        told: &Steering,
        watch: &mut Watch<'_>,
    ) -> error::Result<Residuals> {
        let time = self.trunk.time(time, x.dim(0)?, &told.heard)?;
        let x = self.trunk.enter(x)?.broadcast_add(&told.seen)?;
        let (x, skips) = self.trunk.descend(x, &time, &told.heard.text, watch)?;
        let last = skips.len();
        // In guess mode the layers count from a tenth to one, evenly in the exponent.
        let weight = |i: usize| {
            if told.guess { told.scale * 10f64.powf(i as f64 / last as f64 - 1.0) } else { told.scale }
        };
        let leave = |(i, (skip, leave)): (usize, (&Tensor, &Linear))| leave.forward(skip)? * weight(i);
        Ok(Residuals {
            down: skips.iter().zip(&self.leave).enumerate().map(leave).collect::<Result<_>>()?,
            middle: (self.middle.forward(&x)? * weight(last))?,
        })
    }
}
