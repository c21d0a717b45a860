//! `AutoencoderKL`: the codec of Stable Diffusion.

use candle_core::{D, DType, Tensor};

use super::edge::{enter, leave};
use super::{Codec, Posterior};
use crate::error::{Code, Error, Result};
use crate::event::Watch;
use crate::nn::{
    Attention, AttentionShape, Conv2d, Downsample, GroupNorm, Resnet, ResnetShape, Upsample, Window,
    activation_dtype,
};
use crate::weights::Inventory;
use crate::weights::{Config, VarBuilder};

/// Epsilon of every norm of the autoencoder (`huggingface/diffusers`, `autoencoders/vae.py`).
const EPS: f64 = 1e-6;

/// Sizes of the autoencoder.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is one setting of the config")]
pub struct KlConfig {
    /// Channels of a picture.
    pub pixels: usize,
    /// Channels of a latent.
    pub latent: usize,
    /// Channels of each level, finest first.
    pub channels: Vec<usize>,
    /// Residual blocks a level.
    pub layers: usize,
    /// Groups of the norms.
    pub groups: usize,
    /// Whether the coarsest level attends to itself.
    pub attention: bool,
    /// Whether a 1×1 convolution follows the encoder.
    pub quant: bool,
    /// Whether a 1×1 convolution precedes the decoder.
    pub post_quant: bool,
    /// Normalised latent = (latent − shift)·scale.
    pub scale: f64,
    /// See `scale`.
    pub shift: f64,
    /// Whether its numbers leave the range of f16.
    pub upcast: bool,
}

impl KlConfig {
    /// Reads diffusers' `config.json`.
    ///
    /// # Errors
    /// `config_invalid` naming the key; `model_unsupported` for blocks that are not Stable Diffusion's.
    pub fn read(config: &Config) -> Result<Self> {
        let channels = config.usizes("block_out_channels", 1..=16, 1..=1 << 14)?;
        for (key, block) in
            [("down_block_types", "DownEncoderBlock2D"), ("up_block_types", "UpDecoderBlock2D")]
        {
            let blocks = config.texts(key, 1..=16)?;
            config.must(key, blocks.len() == channels.len(), "one block a level")?;
            config.supported(key, blocks.iter().all(|name| *name == block), block)?;
        }
        config.supported("act_fn", config.opt_text("act_fn")?.unwrap_or("silu") == "silu", "silu")?;
        for key in ["latents_mean", "latents_std"] {
            config.supported(key, config.field(key).is_none(), "null")?;
        }
        let groups = config.opt_usize("norm_num_groups", 1..=1 << 10)?.unwrap_or(32);
        config.must(
            "norm_num_groups",
            channels.iter().all(|c| c % groups == 0),
            "a divisor of every level's channels",
        )?;
        let scale = config.opt_number("scaling_factor", f64::MIN..=f64::MAX)?.unwrap_or(0.18215);
        config.must("scaling_factor", scale != 0.0, "a number other than 0")?;
        Ok(Self {
            pixels: config.usize("in_channels", 1..=64)?,
            latent: config.usize("latent_channels", 1..=1024)?,
            channels,
            layers: config.opt_usize("layers_per_block", 1..=64)?.unwrap_or(1),
            groups,
            attention: config.opt_bool("mid_block_add_attention")?.unwrap_or(true),
            quant: config.opt_bool("use_quant_conv")?.unwrap_or(true),
            post_quant: config.opt_bool("use_post_quant_conv")?.unwrap_or(true),
            scale,
            shift: config.opt_number("shift_factor", f64::MIN..=f64::MAX)?.unwrap_or(0.0),
            upcast: config.opt_bool("force_upcast")?.unwrap_or(true),
        })
    }

    /// Reads the codec off its tensors (diffusers' names), as Stable Diffusion 1 and 2 have it: 32 groups, 0.18215.
    ///
    /// # Errors
    /// `model_incompatible` if the tensors are no such codec, with the remedy of giving its config.
    ///
    /// # Source
    /// `models.md` 2.1: the published config of SD 1.5's codec.
    pub fn from_shapes(inventory: &Inventory) -> Result<Self> {
        let unlike = |what: &str| {
            Error::new(Code::ModelIncompatible, format!("the codec's shapes cannot tell its config: {what}"))
                .hint("give the folder of its configs with --config")
        };
        let shape = |name: &str| inventory.shape(name).ok_or_else(|| unlike(&format!("no tensor `{name}`")));
        let levels = inventory.blocks("encoder.down_blocks");
        let channels = (0..levels)
            .map(|i| Ok(shape(&format!("encoder.down_blocks.{i}.resnets.0.conv1.weight"))?[0]))
            .collect::<Result<Vec<_>>>()?;
        if channels.is_empty() || channels.iter().any(|width| width % 32 != 0) {
            return Err(unlike(&format!("{channels:?} are not channels of Stable Diffusion")));
        }
        Ok(Self {
            pixels: shape("encoder.conv_in.weight")?.get(1).copied().unwrap_or(0),
            latent: shape("decoder.conv_in.weight")?.get(1).copied().unwrap_or(0),
            channels,
            layers: inventory.blocks("encoder.down_blocks.0.resnets"),
            groups: 32,
            attention: inventory.has_prefix("encoder.mid_block.attentions.0"),
            quant: inventory.has("quant_conv.weight"),
            post_quant: inventory.has("post_quant_conv.weight"),
            scale: 0.18215,
            shift: 0.0,
            upcast: true,
        })
    }

    /// Pixels to a latent's side.
    pub fn factor(&self) -> usize {
        1 << (self.channels.len() - 1)
    }
}

/// The codec: both halves, opened together because they are small.
pub struct AutoencoderKl {
    encoder: Encoder,
    decoder: Decoder,
    quant: Option<Conv2d>,
    post_quant: Option<Conv2d>,
    scale: f64,
    shift: f64,
    dtype: DType,
}

impl AutoencoderKl {
    /// Reads diffusers' names: `encoder`, `decoder`, `quant_conv`, `post_quant_conv`.
    ///
    /// # Errors
    /// `model_incompatible` naming the tensor that is missing or has another shape.
    pub fn new(config: &KlConfig, vb: &VarBuilder) -> Result<Self> {
        let optional = |there: bool, name: &str, width: usize| {
            there.then(|| Conv2d::new(width, width, Window::same(1), &vb.pp(name))).transpose()
        };
        Ok(Self {
            encoder: Encoder::new(config, &vb.pp("encoder"))?,
            decoder: Decoder::new(config, &vb.pp("decoder"))?,
            quant: optional(config.quant, "quant_conv", 2 * config.latent)?,
            post_quant: optional(config.post_quant, "post_quant_conv", config.latent)?,
            scale: config.scale,
            shift: config.shift,
            dtype: activation_dtype(vb),
        })
    }
}

impl Codec for AutoencoderKl {
    fn encode(&self, pixels: &Tensor, watch: &mut Watch<'_>) -> Result<Posterior> {
        let mut moments = self.encoder.forward(&enter(pixels, self.dtype)?, watch)?; // [B, h, w, 2C]
        if let Some(quant) = &self.quant {
            moments = quant.forward(&moments)?;
        }
        let halves = moments.chunk(2, D::Minus1)?;
        let deviation = (halves[1].clamp(-30.0, 20.0)? * 0.5)?.exp()?;
        Ok(Posterior {
            mean: leave(&((&halves[0] - self.shift)? * self.scale)?)?,
            deviation: Some(leave(&(deviation * self.scale.abs())?)?),
            scale: self.scale,
            shift: self.shift,
        })
    }

    fn decode(&self, latent: &Tensor, watch: &mut Watch<'_>) -> Result<Tensor> {
        let mut z = ((enter(latent, self.dtype)? / self.scale)? + self.shift)?;
        if let Some(post_quant) = &self.post_quant {
            z = post_quant.forward(&z)?;
        }
        Ok(leave(&self.decoder.forward(&z, watch)?)?.unsqueeze(2)?)
    }
}

/// Attention of every pixel to every pixel, one head.
struct PixelAttention {
    norm: GroupNorm,
    attention: Attention,
}

impl PixelAttention {
    fn new(channels: usize, groups: usize, vb: &VarBuilder) -> Result<Self> {
        let shape = AttentionShape { width: channels, context: channels, heads: 1 };
        Ok(Self {
            norm: GroupNorm::new(groups, channels, EPS, &vb.pp("group_norm"))?,
            attention: Attention::new(shape, true, vb)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (b, h, w, c) = x.dims4()?;
        let tokens = self.norm.forward(x)?.reshape((b, h * w, c))?;
        Ok(self.attention.forward(&tokens, x)?.reshape((b, h, w, c))?)
    }
}

/// Residual block, attention, residual block on the coarsest level.
struct Middle {
    first: Resnet,
    attention: Option<PixelAttention>,
    second: Resnet,
}

impl Middle {
    fn new(config: &KlConfig, vb: &VarBuilder) -> Result<Self> {
        let width = *config.channels.last().unwrap_or(&1);
        let attention = config
            .attention
            .then(|| PixelAttention::new(width, config.groups, &vb.pp("attentions.0")))
            .transpose()?;
        Ok(Self {
            first: Resnet::new(shape(config, width, width), &vb.pp("resnets.0"))?,
            attention,
            second: Resnet::new(shape(config, width, width), &vb.pp("resnets.1"))?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = self.first.forward(x, None)?;
        if let Some(attention) = &self.attention {
            x = attention.forward(&x)?;
        }
        Ok(self.second.forward(&x, None)?)
    }
}

/// The residual block of this autoencoder between two widths.
fn shape(config: &KlConfig, input: usize, output: usize) -> ResnetShape {
    ResnetShape { input, output, time: None, groups: config.groups, eps: EPS }
}

/// A row of residual blocks, the first of which changes the width.
fn resnets(
    config: &KlConfig,
    count: usize,
    input: usize,
    output: usize,
    vb: &VarBuilder,
) -> Result<Vec<Resnet>> {
    (0..count)
        .map(|i| {
            let input = if i == 0 { input } else { output };
            Ok(Resnet::new(shape(config, input, output), &vb.pp(format!("resnets.{i}")))?)
        })
        .collect()
}

struct Encoder {
    input: Conv2d,
    levels: Vec<(Vec<Resnet>, Option<Downsample>)>,
    middle: Middle,
    norm: GroupNorm,
    output: Conv2d,
}

impl Encoder {
    fn new(config: &KlConfig, vb: &VarBuilder) -> Result<Self> {
        let channels = &config.channels;
        let mut levels = Vec::with_capacity(channels.len());
        for (level, &width) in channels.iter().enumerate() {
            let vb = vb.pp(format!("down_blocks.{level}"));
            let before = channels[level.saturating_sub(1)];
            let down = (level + 1 < channels.len())
                .then(|| Downsample::new(width, 0, &vb.pp("downsamplers.0")))
                .transpose()?;
            levels.push((resnets(config, config.layers, before, width, &vb)?, down));
        }
        let last = *channels.last().unwrap_or(&1);
        Ok(Self {
            input: Conv2d::new(config.pixels, channels[0], Window::same(3), &vb.pp("conv_in"))?,
            levels,
            middle: Middle::new(config, &vb.pp("mid_block"))?,
            norm: GroupNorm::new(config.groups, last, EPS, &vb.pp("conv_norm_out"))?,
            output: Conv2d::new(last, 2 * config.latent, Window::same(3), &vb.pp("conv_out"))?,
        })
    }

    fn forward(&self, pixels: &Tensor, watch: &mut Watch<'_>) -> Result<Tensor> {
        let mut x = self.input.forward(pixels)?;
        for (resnets, down) in &self.levels {
            for resnet in resnets {
                watch.check()?;
                x = resnet.forward(&x, None)?;
            }
            if let Some(down) = down {
                x = down.forward(&x)?;
            }
        }
        let x = self.middle.forward(&x)?;
        Ok(self.output.forward(&self.norm.forward_silu(&x)?)?)
    }
}

struct Decoder {
    input: Conv2d,
    middle: Middle,
    levels: Vec<(Vec<Resnet>, Option<Upsample>)>,
    norm: GroupNorm,
    output: Conv2d,
}

impl Decoder {
    fn new(config: &KlConfig, vb: &VarBuilder) -> Result<Self> {
        let channels: Vec<usize> = config.channels.iter().rev().copied().collect();
        let mut levels = Vec::with_capacity(channels.len());
        for (level, &width) in channels.iter().enumerate() {
            let vb = vb.pp(format!("up_blocks.{level}"));
            let before = channels[level.saturating_sub(1)];
            let up = (level + 1 < channels.len())
                .then(|| Upsample::new(width, &vb.pp("upsamplers.0")))
                .transpose()?;
            levels.push((resnets(config, config.layers + 1, before, width, &vb)?, up));
        }
        let last = config.channels[0];
        Ok(Self {
            input: Conv2d::new(config.latent, channels[0], Window::same(3), &vb.pp("conv_in"))?,
            middle: Middle::new(config, &vb.pp("mid_block"))?,
            levels,
            norm: GroupNorm::new(config.groups, last, EPS, &vb.pp("conv_norm_out"))?,
            output: Conv2d::new(last, config.pixels, Window::same(3), &vb.pp("conv_out"))?,
        })
    }

    fn forward(&self, z: &Tensor, watch: &mut Watch<'_>) -> Result<Tensor> {
        let mut x = self.middle.forward(&self.input.forward(z)?)?;
        for (resnets, up) in &self.levels {
            for resnet in resnets {
                watch.check()?;
                x = resnet.forward(&x, None)?;
            }
            if let Some(up) = up {
                let (_, h, w, _) = x.dims4()?;
                x = up.forward(&x, (2 * h, 2 * w))?;
            }
        }
        Ok(self.output.forward(&self.norm.forward_silu(&x)?)?)
    }
}
