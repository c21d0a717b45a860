//! The operators whose speed decides, one file or folder each.
//!
//! Each holds the operator, and `reference()`: the same mathematics in plain candle operations. The reference is
//! what other devices run, the oracle of the tests and the baseline of the benches. Only `nn` calls these.
//!
//! Activations are channels-last: pictures are `[B, H, W, C]`, tokens `[B, L, C]`, so that a picture becomes tokens by a
//! reshape that moves nothing.

pub mod attention;
pub mod block;
pub mod layer_norm;
pub mod matrix;
pub mod norm;
mod simd;

pub use attention::attention;
pub use layer_norm::layer_norm;
pub use norm::group_norm;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use candle_core::{CpuStorage, Layout, Result, Tensor};

/// Whether everything takes the reference path.
static REFERENCE: AtomicBool = AtomicBool::new(false);

/// Makes every operator of this process take its reference path, on the CPU too.
///
/// Only a program's face calls this, once, before it opens a model: weights are packed for one path or the other. A
/// switch of the process and not a field that travels with models, since it is for finding faults, not for use.
pub fn use_reference(yes: bool) {
    REFERENCE.store(yes, Ordering::Relaxed);
}

/// Multiplications and additions of all products, convolutions and attentions of this process so far.
static WORK: AtomicU64 = AtomicU64::new(0);

/// Multiplications and additions that this process's products, convolutions and attentions stand for so far, as their
/// definitions count them: what a bench divides by seconds. A way of computing that needs fewer counts no fewer.
pub fn work() -> u64 {
    WORK.load(Ordering::Relaxed)
}

/// Counts a product of this many multiplications.
fn count(multiplications: usize) {
    WORK.fetch_add(2 * multiplications as u64, Ordering::Relaxed);
}

fn is_reference() -> bool {
    REFERENCE.load(Ordering::Relaxed)
}

/// Whether an operator of ours can run: f32 on the CPU. Everything else takes the reference path.
fn is_ours(x: &Tensor) -> bool {
    x.device().is_cpu() && x.dtype() == candle_core::DType::F32 && !is_reference()
}

/// The contiguous f32 values behind a layout.
fn slice<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let values = storage.as_slice::<f32>()?;
    let Some((from, to)) = layout.contiguous_offsets() else {
        candle_core::bail!("a kernel was given a strided tensor: {:?}", layout.shape())
    };
    Ok(&values[from..to])
}

/// A pointer that tasks of one operator share, each writing its own rows.
#[derive(Clone, Copy)]
struct Shared(*mut f32);

#[expect(unsafe_code, reason = "rows of one output are written by several threads")]
// SAFETY: every task writes a range of rows that no other task touches.
unsafe impl Send for Shared {}
#[expect(unsafe_code, reason = "rows of one output are written by several threads")]
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// The address `offset` elements in.
    #[expect(unsafe_code, reason = "pointer arithmetic of the operators")]
    fn at(self, offset: usize) -> *mut f32 {
        // SAFETY: callers stay inside the output they allocated.
        unsafe { self.0.add(offset) }
    }
}
