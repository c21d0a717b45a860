//! The U-shaped denoiser of Stable Diffusion (`UNet2DConditionModel`).

use candle_core::{DType, Result, Tensor};

use super::config::UnetConfig;
use super::trunk::{Heard, Layer, Reader, Trunk};
use crate::error;
use crate::event::Watch;
use crate::nn::{Conv2d, GroupNorm, Upsample, Window};
use crate::weights::VarBuilder;

/// The network.
pub struct Unet {
    trunk: Trunk,
    up: Vec<(Vec<Layer>, Option<Upsample>)>,
    norm: GroupNorm,
    output: Conv2d,
}

/// What is added to what the way down and the middle leave for the way up.
///
/// # Shapes
/// `[B, h, w, C]`, each as what it is added to.
#[derive(Debug, Clone)]
pub struct Residuals {
    /// One for the way in and each layer and halving of the way down.
    pub down: Vec<Tensor>,
    /// That of the middle.
    pub middle: Tensor,
}

impl Residuals {
    /// The sum with those of another network.
    pub(super) fn plus(&self, other: &Self) -> Result<Self> {
        let down = self.down.iter().zip(&other.down).map(|(a, b)| a + b).collect::<Result<_>>()?;
        Ok(Self { down, middle: (&self.middle + &other.middle)? })
    }

    /// The same of every tensor.
    pub(super) fn map(&self, change: impl Fn(&Tensor) -> error::Result<Tensor>) -> error::Result<Self> {
        let down = self.down.iter().map(&change).collect::<error::Result<_>>()?;
        Ok(Self { down, middle: change(&self.middle)? })
    }
}

impl Unet {
    /// Reads diffusers' names.
    ///
    /// # Errors
    /// The tensor that is missing or has another shape.
    pub fn new(config: &UnetConfig, vb: &VarBuilder) -> Result<Self> {
        let mut reader = Reader::new(config);
        let mut trunk = Trunk::new(&mut reader, vb)?;
        let (first, count) = (config.levels[0].channels, config.levels.len());
        let mut skips = config.skips();
        let mut width = config.levels[count - 1].channels;
        let mut up = Vec::with_capacity(count);
        for (i, level) in config.levels.iter().rev().enumerate() {
            let vb = vb.pp(format!("up_blocks.{i}"));
            let mut inputs = Vec::with_capacity(level.layers + 1);
            for _ in 0..=level.layers {
                inputs.push(width + skips.pop().unwrap_or(0));
                width = level.channels;
            }
            let layers = reader.layers(level, level.up_depth, &inputs, &vb)?;
            let twice =
                if i + 1 < count { Some(Upsample::new(width, &vb.pp("upsamplers.0"))?) } else { None };
            up.push((layers, twice));
        }
        trunk.listeners = reader.into_listeners();
        Ok(Self {
            trunk,
            up,
            norm: GroupNorm::new(config.groups, first, config.eps, &vb.pp("conv_norm_out"))?,
            output: Conv2d::new(first, config.output, Window::same(3), &vb.pp("conv_out"))?,
        })
    }

    /// The way in, the way down and the middle.
    pub fn trunk(&self) -> &Trunk {
        &self.trunk
    }

    /// One call of the network, with what control networks add.
    ///
    /// # Shapes
    /// `x` `[B, C, H, W]` → `[B, C', H, W]` f32.
    ///
    /// # Errors
    /// `cancelled` between blocks; `internal` for residuals of another network.
    pub fn forward(
        &self,
        x: &Tensor,
        time: f64,
        (heard, residuals): (&Heard, Option<&Residuals>),
        watch: &mut Watch<'_>,
    ) -> error::Result<Tensor> {
        let time = self.trunk.time(time, x.dim(0)?, heard)?;
        let told = &heard.text;
        let (mut x, mut skips) = self.trunk.descend(self.trunk.enter(x)?, &time, told, watch)?;
        if let Some(residuals) = residuals {
            if residuals.down.len() != skips.len() {
                let message =
                    format!("{} residuals for {} layers of the way down", residuals.down.len(), skips.len());
                return Err(error::Error::internal(message));
            }
            for (skip, residual) in skips.iter_mut().zip(&residuals.down) {
                *skip = (&*skip + residual)?;
            }
            x = (x + &residuals.middle)?;
        }
        for (layers, twice) in &self.up {
            for layer in layers {
                watch.check()?;
                let skip = skips
                    .pop()
                    .ok_or_else(|| error::Error::internal("the way up is longer than the way down"))?;
                x = layer.forward(&Tensor::cat(&[&x, &skip], 3)?, &time, told)?;
            }
            if let (Some(twice), Some(skip)) = (twice, skips.last()) {
                x = twice.forward(&x, (skip.dim(1)?, skip.dim(2)?))?;
            }
        }
        let x = self.output.forward(&self.norm.forward_silu(&x)?)?;
        Ok(x.permute((0, 3, 1, 2))?.contiguous()?.to_dtype(DType::F32)?)
    }
}
