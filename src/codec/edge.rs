//! The picture's edge, where layouts change.

use candle_core::{DType, Result, Tensor};

/// `[B, C, T, H, W]` or `[B, C, H, W]` → `[B·T, H, W, C]` in the network's dtype.
pub(super) fn enter(x: &Tensor, dtype: DType) -> Result<Tensor> {
    let x = match *x.dims() {
        [b, c, t, h, w] => x.permute((0, 2, 3, 4, 1))?.contiguous()?.reshape((b * t, h, w, c))?,
        _ => x.permute((0, 2, 3, 1))?.contiguous()?,
    };
    x.to_dtype(dtype)
}

/// `[B, H, W, C]` → `[B, C, H, W]` f32.
pub(super) fn leave(x: &Tensor) -> Result<Tensor> {
    x.permute((0, 3, 1, 2))?.contiguous()?.to_dtype(DType::F32)
}
