//! Group normalisation, channels-last, with SiLU fused where it follows.

use std::mem::MaybeUninit;

use candle_core::{CpuStorage, CustomOp3, D, Layout, Result, Shape, Tensor};
use rayon::prelude::*;

use super::simd::{silu, vectorised};
use super::slice;

/// Pixels of one task. Fixed, so that sums do not depend on the number of threads.
const CHUNK: usize = 512;

/// Normalises each group of channels over the whole picture, scales and shifts, then applies SiLU if asked.
///
/// # Shapes
/// `x` `[B, …, C]`, `weight` and `bias` `[C]` → as `x`; `groups` divides C.
///
/// # Source
/// Wu & He 2018 (arXiv 1803.08494) eq. 1-7.
pub fn group_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, norm: GroupNorm) -> Result<Tensor> {
    if !super::is_ours(x) {
        return reference(x, weight, bias, norm);
    }
    x.contiguous()?.apply_op3_no_bwd(weight, bias, &norm)
}

/// What the operator is told beside its tensors.
#[derive(Debug, Clone, Copy)]
pub struct GroupNorm {
    /// How many groups the channels are cut into.
    pub groups: usize,
    /// Added to the variance.
    pub eps: f64,
    /// Whether SiLU follows.
    pub silu: bool,
}

/// The same in candle's own operators.
pub fn reference(x: &Tensor, weight: &Tensor, bias: &Tensor, norm: GroupNorm) -> Result<Tensor> {
    let shape = x.shape();
    let (batch, channels) = (shape.dims()[0], shape.dims()[shape.rank() - 1]);
    let grouped = x.reshape((batch, (), norm.groups, channels / norm.groups))?;
    let mean = grouped.mean_keepdim(D::Minus1)?.mean_keepdim(1)?;
    let centred = grouped.broadcast_sub(&mean)?;
    let variance = centred.sqr()?.mean_keepdim(D::Minus1)?.mean_keepdim(1)?;
    let normal = centred.broadcast_div(&(variance + norm.eps)?.sqrt()?)?.reshape(shape)?;
    let y = normal.broadcast_mul(weight)?.broadcast_add(bias)?;
    if norm.silu { y.silu() } else { Ok(y) }
}

impl CustomOp3 for GroupNorm {
    fn name(&self) -> &'static str {
        "group-norm-channels-last"
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
        let dims = l1.shape().dims();
        let (batch, channels) = (dims[0], dims[dims.len() - 1]);
        if channels % self.groups != 0 || weight.len() != channels || bias.len() != channels {
            candle_core::bail!("group_norm: {channels} channels, {} groups", self.groups)
        }
        let image = x.len() / batch;
        let mut y = Vec::with_capacity(x.len());
        let spare = &mut y.spare_capacity_mut()[..x.len()];
        for (y, picture) in spare.chunks_exact_mut(image).zip(x.chunks_exact(image)) {
            let (factors, summands) = self.affine(picture, weight, bias);
            let run = if self.silu { scale_silu } else { scale };
            y.par_chunks_mut(CHUNK * channels)
                .zip(picture.par_chunks(CHUNK * channels))
                .for_each(|(y, pixels)| run(y, pixels, &factors, &summands));
        }
        #[expect(unsafe_code, reason = "the output is written before it has a length")]
        // SAFETY: the chunks of the pictures cover every element, and each is written.
        unsafe {
            y.set_len(x.len());
        }
        Ok((CpuStorage::F32(y), l1.shape().clone()))
    }
}

impl GroupNorm {
    /// Factor and summand of every channel for one picture.
    fn affine(&self, picture: &[f32], weight: &[f32], bias: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let channels = weight.len();
        let sums =
            picture.par_chunks(CHUNK * channels).map(|pixels| sums(pixels, channels)).collect::<Vec<_>>();
        let width = channels / self.groups;
        let count = (picture.len() / channels * width) as f64;
        let (mut factors, mut summands) = (Vec::with_capacity(channels), Vec::with_capacity(channels));
        for group in 0..self.groups {
            let range = group * width..(group + 1) * width;
            let [sum, squares] = sums
                .iter()
                .flat_map(|chunk| &chunk[range.clone()])
                .fold([0.0; 2], |[sum, squares], [more, more_squares]| [sum + more, squares + more_squares]);
            let mean = sum / count;
            let spread = 1.0 / ((squares / count - mean * mean).max(0.0) + self.eps).sqrt();
            for channel in range {
                let factor = f64::from(weight[channel]) * spread;
                factors.push(factor as f32);
                summands.push((f64::from(bias[channel]) - mean * factor) as f32);
            }
        }
        (factors, summands)
    }
}

/// Pixels that are summed in f32 before they join the f64 sums: so few that nothing is lost.
const RUN: usize = 16;

vectorised! {
    /// Sum and sum of squares of every channel, in f64.
    fn sums(pixels: &[f32], channels: usize) -> Vec<[f64; 2]> {
        let mut sums = vec![[0f64; 2]; channels];
        let (mut sum, mut squares) = (vec![0f32; channels], vec![0f32; channels]);
        for run in pixels.chunks(RUN * channels) {
            sum.fill(0.0);
            squares.fill(0.0);
            for pixel in run.chunks_exact(channels) {
                for ((value, sum), squares) in pixel.iter().zip(&mut sum).zip(&mut squares) {
                    *sum += value;
                    *squares += value * value;
                }
            }
            for ((total, sum), squares) in sums.iter_mut().zip(&sum).zip(&squares) {
                total[0] += f64::from(*sum);
                total[1] += f64::from(*squares);
            }
        }
        sums
    }
}

vectorised! {
    /// y = x·factor + summand for every channel of every pixel.
    fn scale(y: &mut [MaybeUninit<f32>], pixels: &[f32], factors: &[f32], summands: &[f32]) {
        let channels = factors.len();
        for (y, pixel) in y.chunks_exact_mut(channels).zip(pixels.chunks_exact(channels)) {
            for (((y, x), factor), summand) in y.iter_mut().zip(pixel).zip(factors).zip(summands) {
                y.write(x * factor + summand);
            }
        }
    }
}

vectorised! {
    /// The same, through SiLU.
    fn scale_silu(y: &mut [MaybeUninit<f32>], pixels: &[f32], factors: &[f32], summands: &[f32]) {
        let channels = factors.len();
        for (y, pixel) in y.chunks_exact_mut(channels).zip(pixels.chunks_exact(channels)) {
            for (((y, x), factor), summand) in y.iter_mut().zip(pixel).zip(factors).zip(summands) {
                y.write(silu(x * factor + summand));
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
        for (height, width, channels, groups, silu) in
            [(5, 9, 12, 3, false), (40, 33, 16, 16, true), (1, 1, 8, 2, true)]
        {
            let count = 2 * height * width * channels;
            let values: Vec<f32> =
                (0..count).map(|i| ((i * 31 % 997) as f32 * 0.13).sin() * 3.0 + 1.0).collect();
            let x = Tensor::from_vec(values, (2, height, width, channels), &Device::Cpu)?;
            let weight = Tensor::arange(0f32, channels as f32, &Device::Cpu)?.affine(0.1, 0.5)?;
            let bias = weight.neg()?;
            let norm = GroupNorm { groups, eps: 1e-5, silu };
            let ours = group_norm(&x, &weight, &bias, norm)?;
            let oracle = reference(&x, &weight, &bias, norm)?;
            let error = (ours - oracle)?.abs()?.max_all()?.to_scalar::<f32>()?;
            assert!(error < 2e-5, "{channels} channels: {error}");
        }
        Ok(())
    }
}
