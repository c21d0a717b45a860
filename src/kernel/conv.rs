//! Two-dimensional convolution, channels-last.
//!
//! The picture is cut into bands of output pixels; each band gathers its patches into one matrix that fits the cache
//! and multiplies it with the packed weight. Nothing the size of the whole unfolded picture ever exists.

use candle_core::{CpuStorage, CustomOp3, DType, Layout, Result, Shape, Tensor};
use rayon::prelude::*;

use super::{Product, Shared, slice};

/// Output pixels of one band. Fixed, so that the result does not depend on the number of threads.
const BAND: usize = 384;

/// Where the kernel looks: its size, its stride and the zeros around the picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Side of the square kernel in pixels.
    pub size: usize,
    /// Pixels from one output to the next.
    pub stride: usize,
    /// Zeros before the first row and column.
    pub before: usize,
    /// Zeros after the last row and column.
    pub after: usize,
}

impl Window {
    /// A kernel of this side that keeps the picture's size at stride 1.
    pub fn same(size: usize) -> Self {
        Self { size, stride: 1, before: size / 2, after: size / 2 }
    }

    /// Length of one side after the convolution, `None` if the kernel does not fit.
    pub fn output(&self, side: usize) -> Option<usize> {
        Some((side + self.before + self.after).checked_sub(self.size)? / self.stride + 1)
    }
}

/// Convolution plus bias.
///
/// # Shapes
/// `x` `[B, H, W, I]`, `weight` `[K·K·I, O]` (rows ordered kernel row, kernel column, channel), `bias` `[O]`
/// → `[B, H', W', O]`.
pub fn conv2d(x: &Tensor, weight: &Tensor, bias: &Tensor, window: Window) -> Result<Tensor> {
    if !super::is_ours(x) || weight.dtype() != DType::F32 {
        return reference(x, weight, bias, window);
    }
    x.contiguous()?.apply_op3_no_bwd(weight, bias, &Conv(window))
}

/// The same in candle's own operators: oracle, baseline, and the path of other devices.
pub fn reference(x: &Tensor, weight: &Tensor, bias: &Tensor, window: Window) -> Result<Tensor> {
    let (_, _, _, input) = x.dims4()?;
    let Window { size, stride, before, after } = window;
    let output = weight.dim(1)?;
    let kernel = weight.reshape((size, size, input, output))?.permute((3, 2, 0, 1))?.contiguous()?;
    let planes = x.permute((0, 3, 1, 2))?.contiguous()?;
    let y = if before == after {
        planes.conv2d(&kernel, before, stride, 1, 1)?
    } else {
        let padded = planes.pad_with_zeros(2, before, after)?.pad_with_zeros(3, before, after)?;
        padded.conv2d(&kernel, 0, stride, 1, 1)?
    };
    y.permute((0, 2, 3, 1))?.contiguous()?.broadcast_add(bias)
}

struct Conv(Window);

impl CustomOp3 for Conv {
    fn name(&self) -> &'static str {
        "conv2d-channels-last"
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
        let (batch, height, width, input) = l1.shape().dims4()?;
        let (inner, output) = l2.shape().dims2()?;
        let window = self.0;
        let (Some(rows), Some(columns)) = (window.output(height), window.output(width)) else {
            candle_core::bail!("a {0}x{0} kernel does not fit {height}x{width} pixels", window.size)
        };
        if inner != window.size * window.size * input || bias.len() != output {
            candle_core::bail!("conv2d: {input} channels do not fit a weight of {inner}x{output}")
        }
        let picture = Picture { x, height, width, input, rows, columns, window };
        let pixels = batch * rows * columns;
        let mut y = vec![0f32; pixels * output];
        let shared = Shared(y.as_mut_ptr());
        let bands = pixels.div_ceil(BAND);
        (0..bands).into_par_iter().for_each_init(Vec::new, |patches: &mut Vec<f32>, band| {
            let from = band * BAND;
            let count = BAND.min(pixels - from);
            let left = if window == Window::same(1) {
                &x[from * input..][..count * input]
            } else {
                patches.resize(count * inner, 0.0);
                picture.gather(from, patches);
                patches.as_slice()
            };
            multiply(left, weight, bias, shared.at(from * output), [count, output, inner], bands == 1);
        });
        Ok((CpuStorage::F32(y), (batch, rows, columns, output).into()))
    }
}

/// One band: the bias in every row, then the product added to it.
#[expect(unsafe_code, reason = "raw rows of the shared output")]
fn multiply(left: &[f32], weight: &[f32], bias: &[f32], dst: *mut f32, size: [usize; 3], wide: bool) {
    let [count, output, inner] = size;
    // SAFETY: `dst` starts this band's rows, which only this task writes.
    let rows = unsafe { std::slice::from_raw_parts_mut(dst, count * output) };
    rows.chunks_exact_mut(output).for_each(|row| row.copy_from_slice(bias));
    let product =
        Product { size, dst_row: output, keep: true, lhs_row: inner, rhs: [1, output], scale: 1.0, wide };
    // SAFETY: `left` has count·inner, `weight` inner·output, `rows` count·output elements.
    unsafe { product.run(rows.as_mut_ptr(), left.as_ptr(), weight.as_ptr()) };
}

/// What a band needs to know to gather its patches.
struct Picture<'a> {
    x: &'a [f32],
    height: usize,
    width: usize,
    input: usize,
    rows: usize,
    columns: usize,
    window: Window,
}

impl Picture<'_> {
    /// Writes the patches of the output pixels from `from` on, one after the other.
    fn gather(&self, from: usize, patches: &mut [f32]) {
        let Window { size, stride, before, .. } = self.window;
        let inner = size * size * self.input;
        for (offset, patch) in patches.chunks_exact_mut(inner).enumerate() {
            let pixel = from + offset;
            let (line, column) = (pixel / self.columns, pixel % self.columns);
            let (image, row) = (line / self.rows, line % self.rows);
            let left = column * stride;
            // Columns of the kernel that fall on the picture.
            let first = before.saturating_sub(left).min(size);
            let last = (self.width + before).saturating_sub(left).clamp(first, size);
            for (ky, taps) in patch.chunks_exact_mut(size * self.input).enumerate() {
                let y = row * stride + ky;
                if y < before || y >= self.height + before {
                    taps.fill(0.0);
                    continue;
                }
                taps[..first * self.input].fill(0.0);
                taps[last * self.input..].fill(0.0);
                if first < last {
                    let line = (image * self.height + y - before) * self.width + left + first - before;
                    let run = (last - first) * self.input;
                    taps[first * self.input..][..run].copy_from_slice(&self.x[line * self.input..][..run]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    /// Seeded by formula, so that the case is the same everywhere.
    fn wave(shape: impl Into<Shape>) -> Result<Tensor> {
        let shape = shape.into();
        let values: Vec<f32> = (0..shape.elem_count()).map(|i| ((i * 37 % 101) as f32 * 0.7).sin()).collect();
        Tensor::from_vec(values, shape, &Device::Cpu)
    }

    #[test]
    fn bands_equal_the_reference_for_every_window() -> Result<()> {
        let windows = [
            Window::same(1),
            Window::same(3),
            Window { size: 3, stride: 2, before: 1, after: 1 },
            Window { size: 3, stride: 2, before: 0, after: 1 },
            Window { size: 1, stride: 2, before: 0, after: 0 },
        ];
        for window in windows {
            for (height, width) in [(9, 7), (2, 5), (23, 40)] {
                let x = wave((2, height, width, 6))?;
                let weight = wave((window.size * window.size * 6, 10))?;
                let bias = wave(10)?;
                let ours = conv2d(&x, &weight, &bias, window)?;
                let oracle = reference(&x, &weight, &bias, window)?;
                assert_eq!(ours.dims(), oracle.dims(), "{window:?} {height}x{width}");
                let error = (ours - oracle)?.abs()?.max_all()?.to_scalar::<f32>()?;
                assert!(error < 1e-4, "{window:?} {height}x{width}: {error}");
            }
        }
        Ok(())
    }

    #[test]
    fn a_weight_of_another_width_is_an_error() -> Result<()> {
        let (x, weight, bias) = (wave((1, 4, 4, 3))?, wave((18, 2))?, wave(2)?);
        assert!(conv2d(&x, &weight, &bias, Window::same(3)).is_err());
        Ok(())
    }
}
