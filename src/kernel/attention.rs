//! Scaled dot-product attention, heads side by side in the last dimension.
//!
//! A task takes one head and a block of queries: its scores are one small matrix that is soft-maxed and multiplied
//! with the values while it is still in the cache. The full score matrix never exists.

use candle_core::{CpuStorage, CustomOp3, D, Layout, Result, Shape, Tensor};
use rayon::prelude::*;

use super::simd::{exp, vectorised};
use super::{Product, Shared, slice};

/// Queries of one task. Fixed, so that the result does not depend on the number of threads.
const BLOCK: usize = 64;

/// How the tokens attend.
#[derive(Debug, Clone, Copy)]
pub struct Heads {
    /// How many heads lie side by side.
    pub count: usize,
    /// Whether a token sees only itself and those before it.
    pub causal: bool,
}

/// softmax(q·kᵀ/√d)·v for every head.
///
/// # Shapes
/// `q` `[B, L, N·K]`, `k` and `v` `[B, M, N·K]` → `[B, L, N·K]`.
///
/// # Source
/// Vaswani et al. 2017 (arXiv 1706.03762) eq. 1.
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, heads: Heads) -> Result<Tensor> {
    if !super::is_ours(q) {
        return reference(q, k, v, heads);
    }
    q.contiguous()?.apply_op3_no_bwd(&k.contiguous()?, &v.contiguous()?, &heads)
}

/// The same in candle's own operators, with blocks of queries so that scores stay bounded.
pub fn reference(q: &Tensor, k: &Tensor, v: &Tensor, heads: Heads) -> Result<Tensor> {
    let (batch, length, width) = q.dims3()?;
    let split =
        |x: &Tensor| x.reshape((batch, (), heads.count, width / heads.count))?.transpose(1, 2)?.contiguous();
    let (q, k, v) = (split(q)?, split(k)?, split(v)?);
    let q = (q * (1.0 / ((width / heads.count) as f64).sqrt()))?;
    let k = k.t()?; // [B, N, K, M]
    let block = 1024;
    let mut parts = Vec::with_capacity(length.div_ceil(block));
    for from in (0..length).step_by(block) {
        let rows = block.min(length - from);
        let mut scores = q.narrow(2, from, rows)?.contiguous()?.matmul(&k)?; // [B, N, rows, M]
        if heads.causal {
            let seen = scores.dim(3)?;
            let mask: Vec<f32> = (0..rows * seen)
                .map(|i| if i % seen > from + i / seen { f32::NEG_INFINITY } else { 0.0 })
                .collect();
            let mask = Tensor::from_vec(mask, (1, 1, rows, seen), q.device())?.to_dtype(q.dtype())?;
            scores = scores.broadcast_add(&mask)?;
        }
        let weights = candle_nn::ops::softmax(&scores, D::Minus1)?;
        parts.push(weights.matmul(&v)?);
    }
    let joined = if parts.len() == 1 { parts.remove(0) } else { Tensor::cat(&parts, 2)? };
    joined.transpose(1, 2)?.reshape((batch, length, width))
}

impl CustomOp3 for Heads {
    fn name(&self) -> &'static str {
        "attention"
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
        let (q, k, v) = (slice(s1, l1)?, slice(s2, l2)?, slice(s3, l3)?);
        let (batch, length, width) = l1.shape().dims3()?;
        let (key_batch, seen, key_width) = l2.shape().dims3()?;
        if l3.shape() != l2.shape() || key_batch != batch || key_width != width || width % self.count != 0 {
            candle_core::bail!(
                "attention: q {:?}, k {:?}, v {:?}, {} heads",
                l1.shape(),
                l2.shape(),
                l3.shape(),
                self.count
            )
        }
        let mut y = vec![0f32; q.len()];
        let job = Job { q, k, v, y: Shared(y.as_mut_ptr()), length, seen, width, heads: *self };
        let blocks = length.div_ceil(BLOCK);
        (0..batch * self.count * blocks).into_par_iter().for_each_init(Vec::new, |scores, task| {
            let (pair, block) = (task / blocks, task % blocks);
            job.block(pair / self.count, pair % self.count, block * BLOCK, scores);
        });
        Ok((CpuStorage::F32(y), l1.shape().clone()))
    }
}

/// The tensors of one call.
struct Job<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    y: Shared,
    length: usize,
    seen: usize,
    width: usize,
    heads: Heads,
}

impl Job<'_> {
    /// One block of queries of one head of one picture.
    #[expect(unsafe_code, reason = "strided products on raw pointers")]
    fn block(&self, image: usize, head: usize, from: usize, scores: &mut Vec<f32>) {
        let (width, seen) = (self.width, self.seen);
        let depth = width / self.heads.count;
        let rows = BLOCK.min(self.length - from);
        let query = (image * self.length + from) * width + head * depth;
        let key = image * seen * width + head * depth;
        scores.resize(rows * seen, 0.0);
        let scale = 1.0 / (depth as f32).sqrt();
        let similarity = Product {
            size: [rows, seen, depth],
            dst_row: seen,
            keep: false,
            lhs_row: width,
            rhs: [width, 1],
            scale,
            wide: false,
        };
        // SAFETY: rows and columns stay inside q, k and the scores by the sizes checked in `cpu_fwd`.
        unsafe { similarity.run(scores.as_mut_ptr(), self.q[query..].as_ptr(), self.k[key..].as_ptr()) };
        for (row, weights) in scores.chunks_exact_mut(seen).enumerate() {
            let visible = if self.heads.causal { (from + row + 1).min(seen) } else { seen };
            let (past, future) = weights.split_at_mut(visible);
            softmax(past);
            future.fill(0.0);
        }
        let mixture = Product {
            size: [rows, depth, seen],
            dst_row: width,
            keep: false,
            lhs_row: seen,
            rhs: [1, width],
            scale: 1.0,
            wide: false,
        };
        // SAFETY: this head's columns of these rows of y belong to this task alone.
        unsafe { mixture.run(self.y.at(query), scores.as_ptr(), self.v[key..].as_ptr()) };
    }
}

/// Lanes that hold partial maxima and sums, as many as the widest vector unit keeps in four registers.
const LANES: usize = 64;

vectorised! {
    /// In place, shifted by the largest value so that nothing overflows.
    fn softmax(row: &mut [f32]) {
        let mut lanes = [f32::NEG_INFINITY; LANES];
        for values in row.chunks(LANES) {
            for (lane, value) in lanes.iter_mut().zip(values) {
                *lane = if *value > *lane { *value } else { *lane };
            }
        }
        let largest = lanes.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut sums = [0f32; LANES];
        for values in row.chunks_mut(LANES) {
            for (sum, value) in sums.iter_mut().zip(values) {
                *value = exp(*value - largest);
                *sum += *value;
            }
        }
        let share = 1.0 / sums.iter().sum::<f32>();
        for value in row {
            *value *= share;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    fn wave(shape: (usize, usize, usize), phase: usize) -> Result<Tensor> {
        let count = shape.0 * shape.1 * shape.2;
        let values: Vec<f32> = (0..count).map(|i| (((i + phase) * 29 % 211) as f32 * 0.17).sin()).collect();
        Tensor::from_vec(values, shape, &Device::Cpu)
    }

    #[test]
    fn ours_equals_the_reference_for_self_cross_and_causal() -> Result<()> {
        for (length, seen, causal) in [(150, 150, false), (70, 7, false), (77, 77, true), (1, 1, true)] {
            let (q, k, v) = (wave((2, length, 24), 0)?, wave((2, seen, 24), 5)?, wave((2, seen, 24), 9)?);
            let heads = Heads { count: 3, causal };
            let ours = attention(&q, &k, &v, heads)?;
            let oracle = reference(&q, &k, &v, heads)?;
            let error = (ours - oracle)?.abs()?.max_all()?.to_scalar::<f32>()?;
            assert!(error < 1e-5, "{length} over {seen}, causal {causal}: {error}");
        }
        Ok(())
    }
}
