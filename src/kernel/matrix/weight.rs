//! A weight in the layout its kernels read: packed once at load, kept once.
//!
//! Columns of the output stand in panels of 32. A panel holds, for each kernel row, one line of 32 columns per inner
//! element (f32), or per pair of inner elements (bf16 and f16: what VDPBF16PS, TDPBF16PS and our use of VFMADDPH take). A
//! kernel row of a convolution is one stretch, since the taps beside each other are neighbours in a channels-last
//! picture too.

use std::sync::{Arc, Weak};

use candle_core::{DType, Result, Tensor};
use half::{bf16, f16};

use super::super::block::Block;
use super::blocks::Blocks;
use super::cpu::WIDTH;
use super::pack::{Sources, pack};
use super::window::Window;
use super::winograd;

/// Inner elements that one AMX tile takes; a stretch of halves is padded with zeros to a multiple.
pub(in crate::kernel) const BLOCK: usize = 32;

/// Channels in times channels out up to which 3x3 filters are kept at 16 places: beyond, the
/// 16 numbers for 9 would cost gigabytes, for layers whose pictures are small. Chosen by that, not tuned.
const PLACED: usize = 960 * 640;

/// How a product is computed on the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
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

impl Precision {
    /// What products with weights of this type are computed in.
    pub fn of(dtype: DType) -> Self {
        match dtype {
            DType::BF16 => Self::Bf16,
            DType::F16 => Self::F16,
            _ => Self::Exact,
        }
    }
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

/// A weight that lasts as long as somebody else has it.
#[derive(Debug, Clone)]
pub struct Kept {
    store: Weak<Store>,
    sizes: Sizes,
}

impl Kept {
    /// The weight, if somebody still has it.
    pub fn get(&self) -> Option<Weight> {
        Some(Weight { store: self.store.upgrade()?, sizes: self.sizes })
    }
}

/// Bytes that a weight of this shape takes once it is packed, `[O, I]` or `[O, I, K, K]`; `None` for other shapes.
///
/// Filters of 3x3 count as those of a window of stride 1.
pub fn packed_bytes(shape: &[usize], precision: Precision) -> Option<u64> {
    let sizes = Sizes::of(shape, None, precision, false).ok()?;
    let rows = sizes.panels().checked_mul(sizes.lines())?;
    Some((rows as u64).saturating_mul(size_of::<Row<f32>>() as u64))
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
    /// Small integers that share scales, as they lie in a file.
    Blocks(Blocks),
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
    /// Those of a weight of this shape, its filters not at their places.
    fn of(shape: &[usize], bias: Option<&Tensor>, precision: Precision, gated: bool) -> Result<Self> {
        let (output, input, side) = match *shape {
            [output, input] => (output, input, 1),
            [output, input, rows, columns] if rows == columns => (output, input, rows),
            _ => candle_core::bail!("a weight of {shape:?} is neither a matrix nor square filters"),
        };
        if gated && !output.is_multiple_of(2) || bias.is_some_and(|bias| bias.dims() != [output]) {
            candle_core::bail!("a weight of {shape:?} with a bias of {:?}", bias.map(Tensor::dims))
        }
        Ok(Self { input, output, side, gated, precision, places: false })
    }

    /// Whether filters of this many channels are kept at 16 places.
    fn can_be_placed(&self) -> bool {
        self.precision == Precision::Exact
            && self.input.is_multiple_of(winograd::LANES)
            && self.output >= WIDTH
            && self.input * self.output <= PLACED
    }

    /// Lines of one panel.
    fn lines(&self) -> usize {
        match self.precision {
            Precision::Exact if self.side == 3 && self.can_be_placed() => winograd::PLACES * self.input,
            Precision::Exact => self.side * self.stretch(),
            Precision::Bf16 | Precision::F16 => self.side * self.padded_stretch() / 2,
        }
    }

    /// Inner elements of one kernel row, K·I.
    pub(super) fn stretch(&self) -> usize {
        self.side * self.input
    }

    /// The same in panels of halves.
    pub(super) fn padded_stretch(&self) -> usize {
        self.stretch().next_multiple_of(BLOCK)
    }

    /// The row of the weight that stands in this column of the panels, if one does.
    pub(super) fn source(&self, column: usize) -> Option<usize> {
        if !self.gated {
            return (column < self.output).then_some(column);
        }
        let (half, inner) = (WIDTH / 2, self.output / 2);
        let (panel, within) = (column / WIDTH, column % WIDTH);
        let value = panel * half + within % half;
        (value < inner).then_some(if within < half { value } else { inner + value })
    }

    /// The same for all columns of a panel, each times `step`.
    pub(super) fn sources(&self, panel: usize, step: usize) -> Sources {
        std::array::from_fn(|column| self.source(panel * WIDTH + column).map(|row| row * step))
    }

    /// How many panels the columns fill.
    pub(super) fn panels(&self) -> usize {
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

    /// A weight of this shape whose rows are whole blocks of a quantised type, in `bytes`: kept so, and decoded by each
    /// task for the product it makes, in `precision`. Only for the CPU.
    pub fn in_blocks(
        shape: &[usize],
        (block, bytes): (Block, Vec<u8>),
        bias: Option<&Tensor>,
        precision: Precision,
        gated: bool,
    ) -> Result<Self> {
        let sizes = Sizes::of(shape, bias, precision, gated)?;
        let store = if super::super::is_reference() {
            let mut numbers = vec![0f32; shape.iter().product()];
            block.decode(&bytes, &mut numbers, |number| number);
            plain(&Tensor::from_vec(numbers, shape, &candle_core::Device::Cpu)?, bias, sizes)?
        } else {
            let blocks = Blocks::new(block, bytes, bias, sizes)?;
            if precision == Precision::F16 && !blocks.fits_f16() {
                let sizes = Sizes { precision: Precision::Exact, ..sizes };
                return Ok(Self { store: Arc::new(Store::Blocks(blocks)), sizes });
            }
            Store::Blocks(blocks)
        };
        Ok(Self { store: Arc::new(store), sizes })
    }

    /// The same for those who do not keep it.
    pub fn kept(&self) -> Kept {
        Kept { store: Arc::downgrade(&self.store), sizes: self.sizes }
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
        let sizes = Sizes::of(weight.dims(), bias, precision, gated)?;
        let sizes = Sizes { places: window == Some(Window::same(3)) && sizes.can_be_placed(), ..sizes };
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
