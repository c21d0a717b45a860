//! A weight in the layout its kernels read: packed once at load, kept once.
//!
//! Columns of the output stand in panels of 32. A panel holds, for each kernel row, one line of 32 columns per inner
//! element (f32), or per pair of inner elements (bf16 and f16: what VDPBF16PS, TDPBF16PS and our use of VFMADDPH take). A
//! kernel row of a convolution is one stretch, since the taps beside each other are neighbours in a channels-last
//! picture too.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use candle_core::{CpuStorage, DType, Result, Storage, Tensor};
use half::{bf16, f16};
use rayon::prelude::*;

use super::cpu::WIDTH;
use super::half::{Half, widen};
use super::window::Window;
use super::winograd::{self, PLACES};

/// Inner elements that one AMX tile takes; a stretch of halves is padded with zeros to a multiple.
pub(in crate::kernel) const BLOCK: usize = 32;

/// Channels in times channels out up to which 3x3 filters are kept at 16 places: beyond, the
/// 16 numbers for 9 would cost gigabytes, for layers whose pictures are small. Chosen by that, not tuned.
const PLACED: usize = 960 * 640;

/// How a product is computed on the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// Products and sums in f32.
    #[default]
    Exact,
    /// Both operands rounded to bf16, sums in f32.
    Bf16,
    /// Weights rounded to f16. What they meet is rounded too, and short sums, where the processor multiplies f16 faster
    /// than f32; elsewhere as [`Self::Exact`].
    F16,
}

/// One line of a panel: 32 columns in two cache lines. A pair of halves counts as one.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(in crate::kernel) struct Row<T>(pub(in crate::kernel) [T; WIDTH]);

/// A matrix or a bank of filters, and its bias. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Weight {
    pub(super) store: Arc<Store>,
    pub(super) sizes: Sizes,
}

/// Sizes of a weight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// Channels in, I.
    pub(super) input: usize,
    /// Channels of the product, O; of which a gated one keeps half.
    pub(super) output: usize,
    /// Side of the filters, K; 1 for a matrix.
    pub(super) side: usize,
    /// Whether the columns are values and their gates.
    pub(super) gated: bool,
    pub(super) precision: Precision,
    /// Whether 3x3 filters stand at their 16 places.
    pub(super) places: bool,
}

#[derive(Debug)]
pub(super) enum Store {
    F32(Panels<f32>),
    Bf16(Panels<[bf16; 2]>),
    F16(Panels<[f16; 2]>),
    /// Filters of 3x3 at their 16 places ([`winograd`]), `[P][16][I]` rows.
    Places(Panels<f32>),
    /// For other devices and for the oracle.
    Plain {
        weight: Tensor, /* [O, I, K, K] */
        bias: Tensor,   /* [O] */
    },
}

/// The packed columns.
#[derive(Debug)]
pub(super) struct Panels<T> {
    /// `[P][K][D]` rows, where D is the length of a stretch in rows.
    pub(super) rows: Vec<Row<T>>,
    /// Zero in the columns that are not there, [P·32].
    pub(super) bias: Vec<f32>,
    /// The largest magnitude; known of halves alone.
    pub(super) largest: f32,
}

impl<T> Panels<T> {
    /// How many panels there are.
    pub(super) fn count(&self) -> usize {
        self.bias.len() / WIDTH
    }

    /// The lines of one panel.
    pub(super) fn panel(&self, index: usize) -> &[Row<T>] {
        let rows = self.rows.len() / self.count();
        &self.rows[index * rows..][..rows]
    }
}

impl Sizes {
    /// Inner elements of one kernel row, K·I.
    pub(super) fn stretch(&self) -> usize {
        self.side * self.input
    }

    /// The same in panels of halves.
    pub(super) fn padded_stretch(&self) -> usize {
        self.stretch().next_multiple_of(BLOCK)
    }

    /// The row of the weight that stands in this column of the panels, if one does.
    fn source(&self, column: usize) -> Option<usize> {
        if !self.gated {
            return (column < self.output).then_some(column);
        }
        let (half, inner) = (WIDTH / 2, self.output / 2);
        let (panel, within) = (column / WIDTH, column % WIDTH);
        let value = panel * half + within % half;
        (value < inner).then_some(if within < half { value } else { inner + value })
    }

    /// How many panels the columns fill.
    fn panels(&self) -> usize {
        if self.gated { self.output.div_ceil(2).div_ceil(WIDTH / 2) } else { self.output.div_ceil(WIDTH) }
    }
}

impl Weight {
    /// Packs a weight `[O, I]` or `[O, I, K, K]` in f32, f16 or bf16; a bias of `None` is zero.
    ///
    /// On a device other than the CPU, or after [`use_reference`](super::super::use_reference), the tensors are kept.
    pub fn new(weight: &Tensor, bias: Option<&Tensor>, precision: Precision) -> Result<Self> {
        Self::of(weight, bias, precision, false, None)
    }

    /// Filters that only this window will ask: those of 3x3 are packed for fewer multiplications where that is faster.
    pub fn filters(
        weight: &Tensor,
        bias: Option<&Tensor>,
        precision: Precision,
        window: Window,
    ) -> Result<Self> {
        Self::of(weight, bias, precision, false, Some(window))
    }

    /// The same as [`Self::new`] for `Finish::Geglu`: the first half of the rows are values, the second their gates.
    pub fn gated(weight: &Tensor, bias: Option<&Tensor>, precision: Precision) -> Result<Self> {
        Self::of(weight, bias, precision, true, None)
    }

    /// Channels of the result.
    pub fn width(&self) -> usize {
        if self.sizes.gated { self.sizes.output / 2 } else { self.sizes.output }
    }

    fn of(
        weight: &Tensor,
        bias: Option<&Tensor>,
        precision: Precision,
        gated: bool,
        window: Option<Window>,
    ) -> Result<Self> {
        let (output, input, side) = match *weight.dims() {
            [output, input] => (output, input, 1),
            [output, input, rows, columns] if rows == columns => (output, input, rows),
            _ => candle_core::bail!("a weight of {:?} is neither a matrix nor square filters", weight.dims()),
        };
        if gated && !output.is_multiple_of(2) || bias.is_some_and(|bias| bias.dims() != [output]) {
            candle_core::bail!("a weight of {:?} with a bias of {:?}", weight.dims(), bias.map(Tensor::dims))
        }
        let places = window == Some(Window::same(3))
            && precision == Precision::Exact
            && input.is_multiple_of(winograd::LANES)
            && output >= WIDTH
            && input * output <= PLACED;
        let sizes = Sizes { input, output, side, gated, precision, places };
        let store = if weight.device().is_cpu() && !super::super::is_reference() {
            pack(&weight.contiguous()?, bias, sizes)?
        } else {
            plain(weight, bias, sizes)?
        };
        Ok(Self { store: Arc::new(store), sizes })
    }

    /// Keeps the tensors whatever the switch says, for the tests' oracle.
    #[cfg(test)]
    pub(super) fn oracle(weight: &Tensor, bias: Option<&Tensor>, sizes: Sizes) -> Result<Self> {
        Ok(Self { store: Arc::new(plain(weight, bias, sizes)?), sizes })
    }
}

fn plain(weight: &Tensor, bias: Option<&Tensor>, sizes: Sizes) -> Result<Store> {
    let Sizes { input, output, side, precision, .. } = sizes;
    let mut weight = weight.reshape((output, input, side, side))?.contiguous()?;
    if weight.device().is_cpu() {
        match precision {
            Precision::Exact => {}
            Precision::Bf16 => weight = weight.to_dtype(DType::BF16)?,
            Precision::F16 => weight = weight.to_dtype(DType::F16)?,
        }
        weight = weight.to_dtype(DType::F32)?;
    }
    let bias = match bias {
        Some(bias) => bias.to_dtype(weight.dtype())?,
        None => Tensor::zeros(output, weight.dtype(), weight.device())?,
    };
    Ok(Store::Plain { weight, bias })
}

fn pack(weight: &Tensor, bias: Option<&Tensor>, sizes: Sizes) -> Result<Store> {
    let mut columns = vec![0f32; sizes.panels() * WIDTH];
    if let Some(bias) = bias {
        let bias = bias.to_dtype(DType::F32)?.to_vec1::<f32>()?;
        for (column, value) in columns.iter_mut().enumerate() {
            *value = sizes.source(column).map_or(0.0, |row| bias[row]);
        }
    }
    let (storage, layout) = weight.storage_and_layout();
    let Some((from, to)) = layout.contiguous_offsets() else {
        candle_core::bail!("a weight is not contiguous")
    };
    let Storage::Cpu(storage) = &*storage else { candle_core::bail!("a weight is not on the CPU") };
    Ok(match storage {
        CpuStorage::F32(values) => panels(&values[from..to], columns, sizes),
        CpuStorage::F16(values) => panels(&values[from..to], columns, sizes),
        CpuStorage::BF16(values) => panels(&values[from..to], columns, sizes),
        _ => candle_core::bail!("a weight of {:?} cannot be packed", weight.dtype()),
    })
}

/// A type that weights come in. What is asked for in its own type is not converted.
trait Stored: Copy + Sync {
    fn wide(self) -> f32;

    fn f16(self) -> f16 {
        f16::from_f32(self.wide())
    }

    fn bf16(self) -> bf16 {
        bf16::from_f32(self.wide())
    }
}

impl Stored for f32 {
    fn wide(self) -> f32 {
        self
    }
}

impl Stored for f16 {
    fn wide(self) -> f32 {
        widen(self.to_bits())
    }

    fn f16(self) -> f16 {
        self
    }
}

impl Stored for bf16 {
    fn wide(self) -> f32 {
        self.to_f32()
    }

    fn bf16(self) -> bf16 {
        self
    }
}

fn panels<T: Stored>(values: &[T], bias: Vec<f32>, sizes: Sizes) -> Store {
    match sizes.precision {
        Precision::Exact if sizes.places => {
            let input = sizes.input;
            let rows = fill(sizes, PLACES * input, |rows, sources| {
                for channel in 0..input {
                    let mut lines = [Row([0.0; WIDTH]); PLACES];
                    for (column, source) in sources.iter().enumerate() {
                        let Some(source) = source else { continue };
                        let filter = &values[source + channel * 9..][..9];
                        let places =
                            winograd::transform_filter(std::array::from_fn(|tap| filter[tap].wide()));
                        lines.iter_mut().zip(places).for_each(|(line, place)| line.0[column] = place);
                    }
                    lines
                        .into_iter()
                        .enumerate()
                        .for_each(|(place, line)| _ = rows[place * input + channel].write(line));
                }
            });
            Store::Places(Panels { rows, bias, largest: f32::NAN })
        }
        Precision::Exact => exact(values, bias, sizes),
        Precision::Bf16 => Store::Bf16(halves(values, bias, sizes, T::bf16)),
        Precision::F16 => {
            let rounded = halves(values, bias, sizes, T::f16);
            if rounded.largest.is_finite() {
                return Store::F16(rounded);
            }
            exact(values, rounded.bias, sizes) // numbers beyond f16's 65504
        }
    }
}

fn exact<T: Stored>(values: &[T], bias: Vec<f32>, sizes: Sizes) -> Store {
    let stretch = sizes.stretch();
    let rows = fill(sizes, sizes.side * stretch, |rows, sources| {
        for_each_tap(sizes, |ky, d, at| {
            let row = rows[ky * stretch + d].write(Row([0.0; WIDTH]));
            for (value, source) in row.0.iter_mut().zip(sources) {
                *value = source.map_or(0.0, |source| values[source + at].wide());
            }
        });
    });
    Store::F32(Panels { rows, bias, largest: f32::NAN })
}

fn halves<T: Stored, H: Half>(
    values: &[T],
    bias: Vec<f32>,
    sizes: Sizes,
    convert: impl Fn(T) -> H + Sync,
) -> Panels<[H; 2]> {
    let lines = sizes.padded_stretch() / 2;
    let largest = AtomicU32::new(0);
    let rows = fill(sizes, sizes.side * lines, |rows, sources| {
        let mut magnitude = 0;
        for_each_pair(sizes, |ky, line, [even, odd]| {
            let row = rows[ky * lines + line].write(Row([[H::ZERO; 2]; WIDTH]));
            for (pair, source) in row.0.iter_mut().zip(sources) {
                let Some(source) = source else { continue };
                let at = |at: Option<usize>| at.map_or(H::ZERO, |at| convert(values[source + at]));
                *pair = [at(even), at(odd)];
                magnitude = pair.iter().fold(magnitude, |most, half| most.max(half.magnitude()));
            }
        });
        largest.fetch_max(H::of_magnitude(magnitude).to_bits(), Ordering::Relaxed);
    });
    Panels { rows, bias, largest: f32::from_bits(largest.into_inner()) }
}

/// Channels whose taps are packed together, so that the rows of the weight they lie in are read once.
const CHANNELS: usize = 32;

/// Every element of a filter: its kernel row, its place in that row's stretch (kernel columns outside, channels
/// inside), and where `[I, K, K]` holds it.
fn for_each_tap(sizes: Sizes, mut visit: impl FnMut(usize, usize, usize)) {
    let Sizes { input, side, .. } = sizes;
    for first in (0..input).step_by(CHANNELS) {
        for tap in 0..side * side {
            for channel in first..input.min(first + CHANNELS) {
                visit(tap / side, tap % side * input + channel, channel * side * side + tap);
            }
        }
    }
}

/// Every pair of elements of a kernel row's padded stretch: the row, the pair's line, and where `[I, K, K]` holds the
/// two, if it does.
fn for_each_pair(sizes: Sizes, mut visit: impl FnMut(usize, usize, [Option<usize>; 2])) {
    let Sizes { input, side, .. } = sizes;
    let stretch = sizes.stretch();
    let at = |ky: usize, d: usize| (d < stretch).then(|| d % input * side * side + ky * side + d / input);
    let mut pair = |ky: usize, d: usize| visit(ky, d / 2, [at(ky, d), at(ky, d + 1)]);
    for ky in 0..side {
        (stretch.next_multiple_of(2)..sizes.padded_stretch()).step_by(2).for_each(|d| pair(ky, d));
    }
    if !input.is_multiple_of(2) {
        (0..side).for_each(|ky| (0..stretch).step_by(2).for_each(|d| pair(ky, d)));
        return;
    }
    for first in (0..input).step_by(CHANNELS) {
        for tap in 0..side * side {
            for channel in (first..input.min(first + CHANNELS)).step_by(2) {
                pair(tap / side, tap % side * input + channel);
            }
        }
    }
}

/// Packs every panel by a task of its own, each into memory that nobody has touched before.
///
/// `pack` is given the panel's rows, `lines` of them, and where the filter of each column begins.
fn fill<T: Copy + Send>(
    sizes: Sizes,
    lines: usize,
    pack: impl Fn(&mut [MaybeUninit<Row<T>>], &[Option<usize>; WIDTH]) + Sync,
) -> Vec<Row<T>> {
    let count = sizes.panels() * lines;
    let filter = sizes.input * sizes.side * sizes.side;
    let mut rows = Vec::with_capacity(count);
    let spare = &mut rows.spare_capacity_mut()[..count];
    spare.par_chunks_exact_mut(lines.max(1)).enumerate().for_each(|(panel, rows)| {
        let source = |column| sizes.source(panel * WIDTH + column).map(|row| row * filter);
        pack(rows, &std::array::from_fn(source));
    });
    #[expect(unsafe_code, reason = "gigabytes are written once, not twice")]
    // SAFETY: the panels are all of `count`, and `pack` writes every row of its panel: places are written for
    // each channel, in f32 a stretch has as many elements as lines, pairs are visited up to the padded stretch.
    unsafe {
        rows.set_len(count);
    }
    rows
}
