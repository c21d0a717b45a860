//! Layer normalisation over the last dimension.

use candle_core::{CpuStorage, CustomOp3, D, Layout, Result, Shape, Tensor};
use rayon::prelude::*;

use super::simd::vectorised;
use super::slice;

/// Rows of one task.
const ROWS: usize = 64;

/// Normalises every row, scales and shifts.
///
/// # Shapes
/// `x` `[…, D]`, `weight` and `bias` `[D]` → as `x`.
///
/// # Source
/// Ba et al. 2016 (arXiv 1607.06450) eq. 3-4.
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
    if !super::is_ours(x) {
        return reference(x, weight, bias, eps);
    }
    x.contiguous()?.apply_op3_no_bwd(weight, bias, &LayerNorm { eps })
}

/// The same in candle's own operators.
pub fn reference(x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
    let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
    let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
    centred.broadcast_div(&(variance + eps)?.sqrt()?)?.broadcast_mul(weight)?.broadcast_add(bias)
}

struct LayerNorm {
    eps: f64,
}

impl CustomOp3 for LayerNorm {
    fn name(&self) -> &'static str {
        "layer-norm"
    }

    fn cpu_fwd(
        &self,
        s1: &CpuStorage,
        l1: &Layout,
        s2: &CpuStorage,
        l2: &Layout,
        s3: &CpuStorage,
        l3: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (x, weight, bias) = (slice(s1, l1)?, slice(s2, l2)?, slice(s3, l3)?);
        let width = weight.len();
        if l1.shape().dims().last() != Some(&width) || bias.len() != width {
            candle_core::bail!("layer_norm: rows {:?}, weight {width}, bias {}", l1.shape(), bias.len())
        }
        let mut y = vec![0f32; x.len()];
        y.par_chunks_mut(ROWS * width)
            .zip(x.par_chunks(ROWS * width))
            .for_each(|(y, x)| normalise(y, x, weight, bias, self.eps as f32));
        Ok((CpuStorage::F32(y), l1.shape().clone()))
    }
}

/// Partial sums side by side, as many as the widest vector unit keeps in two registers.
const LANES: usize = 32;

vectorised! {
    /// Mean first, then the variance around it, so that nothing cancels.
    fn normalise(y: &mut [f32], x: &[f32], weight: &[f32], bias: &[f32], eps: f32) {
        let width = weight.len();
        for (y, x) in y.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
            let mut lanes = [0f32; LANES];
            for values in x.chunks(LANES) {
                for (lane, value) in lanes.iter_mut().zip(values) {
                    *lane += value;
                }
            }
            let mean = lanes.iter().sum::<f32>() / width as f32;
            let mut lanes = [0f32; LANES];
            for values in x.chunks(LANES) {
                for (lane, value) in lanes.iter_mut().zip(values) {
                    *lane += (value - mean) * (value - mean);
                }
            }
            let spread = 1.0 / (lanes.iter().sum::<f32>() / width as f32 + eps).sqrt();
            for (((y, x), weight), bias) in y.iter_mut().zip(x).zip(weight).zip(bias) {
                *y = (x - mean) * spread * weight + bias;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn ours_equals_the_reference() -> Result<()> {
        for (rows, width) in [(1, 1), (3, 40), (130, 321)] {
            let values: Vec<f32> =
                (0..rows * width).map(|i| ((i * 31 % 997) as f32 * 0.13).sin() + 9.0).collect();
            let x = Tensor::from_vec(values, (rows, width), &Device::Cpu)?;
            let weight = Tensor::arange(0f32, width as f32, &Device::Cpu)?.affine(0.01, 0.5)?;
            let bias = weight.neg()?;
            let ours = layer_norm(&x, &weight, &bias, 1e-5)?;
            let oracle = reference(&x, &weight, &bias, 1e-5)?;
            let error = (ours - oracle)?.abs()?.max_all()?.to_scalar::<f32>()?;
            assert!(error < 5e-5, "{rows} rows of {width}: {error}");
        }
        Ok(())
    }
}
