//! Half-precision weights to f32, just before they are used.
//!
//! The conversion is exact, so weights kept in half precision give the same picture as their f32 copies.

use candle_core::{CpuStorage, CustomOp1, DType, Layout, Result, Shape, Tensor};
use half::slice::HalfFloatSliceExt;
use rayon::prelude::*;
use rayon::slice::ChunksMut;

/// Elements of one task.
const CHUNK: usize = 1 << 16;

/// The tensor in `dtype`; fast from f16 and bf16 to f32 on the CPU, candle's own way elsewhere.
pub fn widen(x: &Tensor, dtype: DType) -> Result<Tensor> {
    let half = matches!(x.dtype(), DType::F16 | DType::BF16);
    if half && dtype == DType::F32 && x.device().is_cpu() && x.is_contiguous() {
        return x.apply_op1_no_bwd(&Widen);
    }
    reference(x, dtype)
}

/// The same in candle's own operator.
pub fn reference(x: &Tensor, dtype: DType) -> Result<Tensor> {
    x.to_dtype(dtype)
}

struct Widen;

impl CustomOp1 for Widen {
    fn name(&self) -> &'static str {
        "widen"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let Some((from, to)) = layout.contiguous_offsets() else {
            candle_core::bail!("widen was given a strided tensor: {:?}", layout.shape())
        };
        let mut wide = vec![0f32; to - from];
        let chunks = wide.par_chunks_mut(CHUNK);
        match storage {
            CpuStorage::F16(x) => spread(chunks, &x[from..to]),
            CpuStorage::BF16(x) => spread(chunks, &x[from..to]),
            _ => candle_core::bail!("widen takes f16 and bf16"),
        }
        Ok((CpuStorage::F32(wide), layout.shape().clone()))
    }
}

/// Every chunk by a task of its own.
fn spread<T: Sync>(wide: ChunksMut<'_, f32>, x: &[T])
where
    [T]: HalfFloatSliceExt,
{
    wide.zip(x.par_chunks(CHUNK)).for_each(|(wide, x)| x.convert_to_f32_slice(wide));
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn ours_equals_the_reference_exactly() -> Result<()> {
        let x = Tensor::arange(0f32, 70_000.0, &Device::Cpu)?.affine(0.37, -900.0)?;
        for half in [DType::F16, DType::BF16] {
            let x = x.to_dtype(half)?;
            let (ours, oracle) = (widen(&x, DType::F32)?, reference(&x, DType::F32)?);
            assert_eq!(ours.to_vec1::<f32>()?, oracle.to_vec1::<f32>()?);
        }
        Ok(())
    }
}
