//! How a network hears the time.

use candle_core::{DType, Device, Result, Tensor};

use super::{Activation, Linear, activation_dtype};
use crate::weights::VarBuilder;

/// The sinusoidal embedding of one number per row.
///
/// Angles are rounded to f32 where the reference rounds, since at t = 981 one bit of the angle is 6e-5; sine and
/// cosine are taken in f64 and cast once, so that half-precision networks hear the same time.
///
/// # Shapes
/// `times` of length B → `[B, width]` f32.
///
/// # Source
/// Vaswani et al. 2017 §3.5; layout of `huggingface/diffusers src/diffusers/models/embeddings.py`
/// `get_timestep_embedding` with `scale`, `flip_sin_to_cos` and `downscale_freq_shift`, Apache-2.0.
pub fn sinusoid(times: &[f64], width: usize, cosine_first: bool, shift: f64) -> Result<Tensor> {
    let half = width / 2;
    let rate = -(10_000f64.ln()) as f32;
    let mut values = Vec::with_capacity(times.len() * width);
    for &time in times {
        let angles = (0..half).map(|i| {
            let exponent = rate * i as f32 / (half as f64 - shift) as f32;
            f64::from(time as f32 * f64::from(exponent).exp() as f32)
        });
        let (sines, cosines): (Vec<f32>, Vec<f32>) =
            angles.map(|angle| (angle.sin() as f32, angle.cos() as f32)).unzip();
        let (first, second) = if cosine_first { (cosines, sines) } else { (sines, cosines) };
        values.extend(first);
        values.extend(second);
        values.extend((width % 2 == 1).then_some(0.0));
    }
    Tensor::from_vec(values, (times.len(), width), &Device::Cpu)
}

/// Two linear maps with SiLU between them, from the sinusoid to the width of the network's time signal.
#[derive(Debug, Clone)]
pub struct TimeEmbedding {
    first: Linear,
    second: Linear,
    condition: Option<Linear>,
    dtype: DType,
    device: Device,
}

impl TimeEmbedding {
    /// Reads `linear_1` `[D, I]`, `linear_2` `[D, D]` and, if `condition` is given, `cond_proj` `[I, condition]`.
    pub fn new(input: usize, width: usize, condition: Option<usize>, vb: &VarBuilder) -> Result<Self> {
        let condition = match condition {
            Some(size) => Some(Linear::without_bias(size, input, &vb.pp("cond_proj"))?),
            None => None,
        };
        Ok(Self {
            first: Linear::exact(input, width, &vb.pp("linear_1"))?,
            second: Linear::exact(width, width, &vb.pp("linear_2"))?,
            condition,
            dtype: activation_dtype(vb),
            device: vb.device().clone(),
        })
    }

    /// # Shapes
    /// `sinusoid` `[B, I]`, `condition` `[B, C]` → `[B, D]`.
    pub fn forward(&self, sinusoid: &Tensor, condition: Option<&Tensor>) -> Result<Tensor> {
        let mut x = sinusoid.to_device(&self.device)?.to_dtype(self.dtype)?;
        if let (Some(project), Some(condition)) = (&self.condition, condition) {
            let condition = condition.to_device(&self.device)?.to_dtype(self.dtype)?;
            x = (x + project.forward(&condition)?)?;
        }
        self.second.forward(&self.first.forward_activated(&x, Activation::Silu)?)
    }
}
