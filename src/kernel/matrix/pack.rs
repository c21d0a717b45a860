//! From a weight as it lies in memory, `[O, I, K, K]`, to panels.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};

use candle_core::{CpuStorage, DType, Result, Storage, Tensor};
use half::{bf16, f16};
use rayon::prelude::*;

use super::cpu::WIDTH;
use super::half::{Half, widen};
use super::weight::{Panels, Precision, Row, Sizes, Store};
use super::winograd::{self, PLACES};

/// Channels whose taps are packed together, so that the rows of the weight they lie in are read once.
const CHANNELS: usize = 32;

/// Where the filter of each column of a panel begins, if there is one.
pub(super) type Sources = [Option<usize>; WIDTH];

/// Packs a weight on the CPU.
pub(super) fn pack(weight: &Tensor, bias: Option<&Tensor>, sizes: Sizes) -> Result<Store> {
    let bias = columns(bias, sizes)?;
    let (storage, layout) = weight.storage_and_layout();
    let Some((from, to)) = layout.contiguous_offsets() else {
        candle_core::bail!("a weight is not contiguous")
    };
    let Storage::Cpu(storage) = &*storage else { candle_core::bail!("a weight is not on the CPU") };
    Ok(match storage {
        CpuStorage::F32(values) => panels(&values[from..to], bias, sizes),
        CpuStorage::F16(values) => panels(&values[from..to], bias, sizes),
        CpuStorage::BF16(values) => panels(&values[from..to], bias, sizes),
        _ => candle_core::bail!("a weight of {:?} cannot be packed", weight.dtype()),
    })
}

/// The bias of every column of the panels.
pub(super) fn columns(bias: Option<&Tensor>, sizes: Sizes) -> Result<Vec<f32>> {
    let mut columns = vec![0f32; sizes.panels() * WIDTH];
    if let Some(bias) = bias {
        let bias = bias.to_dtype(DType::F32)?.to_vec1::<f32>()?;
        for (column, value) in columns.iter_mut().enumerate() {
            *value = sizes.source(column).map_or(0.0, |row| bias[row]);
        }
    }
    Ok(columns)
}

/// A type that weights come in. What is asked for in its own type is not converted.
pub(super) trait Stored: Copy + Sync {
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
    let rows = fill(sizes, sizes.side * sizes.stretch(), |rows, sources| {
        exact_panel(values, sizes, sources, |line, row| _ = rows[line].write(row));
    });
    Store::F32(Panels { rows, bias, largest: f32::NAN })
}

/// One panel's lines, in any order.
pub(super) fn exact_panel<T: Stored>(
    values: &[T],
    sizes: Sizes,
    sources: &Sources,
    mut put: impl FnMut(usize, Row<f32>),
) {
    let stretch = sizes.stretch();
    for_each_tap(sizes, |ky, d, at| {
        let mut row = Row([0.0; WIDTH]);
        for (value, source) in row.0.iter_mut().zip(sources) {
            *value = source.map_or(0.0, |source| values[source + at].wide());
        }
        put(ky * stretch + d, row);
    });
}

fn halves<T: Stored, H: Half>(
    values: &[T],
    bias: Vec<f32>,
    sizes: Sizes,
    convert: impl Fn(T) -> H + Sync,
) -> Panels<[H; 2]> {
    let largest = AtomicU32::new(0);
    let rows = fill(sizes, sizes.side * sizes.padded_stretch() / 2, |rows, sources| {
        let mut magnitude = 0;
        halves_panel(values, sizes, sources, &convert, |line, row| {
            magnitude = row.0.as_flattened().iter().fold(magnitude, |most, half| most.max(half.magnitude()));
            rows[line].write(row);
        });
        largest.fetch_max(H::of_magnitude(magnitude).to_bits(), Ordering::Relaxed);
    });
    Panels { rows, bias, largest: f32::from_bits(largest.into_inner()) }
}

/// One panel's lines, in any order.
pub(super) fn halves_panel<T: Stored, H: Half>(
    values: &[T],
    sizes: Sizes,
    sources: &Sources,
    convert: impl Fn(T) -> H,
    mut put: impl FnMut(usize, Row<[H; 2]>),
) {
    let lines = sizes.padded_stretch() / 2;
    let whole = sources.iter().all(Option::is_some).then(|| sources.map(Option::unwrap_or_default));
    for_each_pair(sizes, |ky, line, [even, odd]| {
        let mut row = Row([[H::ZERO; 2]; WIDTH]);
        if let (Some(sources), Some(even), Some(odd)) = (whole, even, odd) {
            // The common case without a question for each number.
            for (pair, source) in row.0.iter_mut().zip(sources) {
                *pair = [convert(values[source + even]), convert(values[source + odd])];
            }
            put(ky * lines + line, row);
            return;
        }
        for (pair, source) in row.0.iter_mut().zip(sources) {
            let Some(source) = source else { continue };
            let at = |at: Option<usize>| at.map_or(H::ZERO, |at| convert(values[source + at]));
            *pair = [at(even), at(odd)];
        }
        put(ky * lines + line, row);
    });
}

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
    pack: impl Fn(&mut [MaybeUninit<Row<T>>], &Sources) + Sync,
) -> Vec<Row<T>> {
    let count = sizes.panels() * lines;
    let filter = sizes.input * sizes.side * sizes.side;
    let mut rows = Vec::with_capacity(count);
    let spare = &mut rows.spare_capacity_mut()[..count];
    spare.par_chunks_exact_mut(lines.max(1)).enumerate().for_each(|(panel, rows)| {
        pack(rows, &sizes.sources(panel, filter));
    });
    #[expect(unsafe_code, reason = "gigabytes are written once, not twice")]
    // SAFETY: the panels are all of `count`, and `pack` writes every row of its panel: places are written for
    // each channel, in f32 a stretch has as many elements as lines, pairs are visited up to the padded stretch.
    unsafe {
        rows.set_len(count);
    }
    rows
}
