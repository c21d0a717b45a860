//! The matrix product in candle's own operators: oracle, baseline, and the path of other devices.

use candle_core::{D, DType, Result, Tensor};

use super::finish::Activation;
use super::weight::{Precision, Sizes};
use super::{Finish, Window};

/// The convolution and its finish. The weight is `[O, I, K, K]`, the bias `[O]`.
pub(super) fn conv2d(
    x: &Tensor,
    seen: [usize; 2],
    (weight, bias): (&Tensor, &Tensor),
    sizes: Sizes,
    window: Window,
    finish: Finish<'_>,
) -> Result<Tensor> {
    let (batch, height, width, channels) = x.dims4()?;
    let mut x = x.clone();
    if seen != [height, width] {
        let twice = (batch, height, 2, width, 2, channels);
        x = x.reshape((batch, height, 1, width, 1, channels))?.broadcast_as(twice)?;
        x = x.reshape((batch, 2 * height, 2 * width, channels))?;
        x = x.narrow(1, 0, seen[0])?.narrow(2, 0, seen[1])?;
    }
    if sizes.precision == Precision::Bf16 && x.device().is_cpu() {
        x = x.to_dtype(DType::BF16)?.to_dtype(DType::F32)?;
    }
    let y = if window == Window::same(1) {
        let rows = x.contiguous()?.reshape((batch * seen[0] * seen[1], channels))?;
        rows.matmul(&weight.reshape((sizes.output, channels))?.t()?)?.reshape((
            batch,
            seen[0],
            seen[1],
            (),
        ))?
    } else {
        let Window { stride, before, after, .. } = window;
        let planes = x.permute((0, 3, 1, 2))?.contiguous()?;
        let y = if before == after {
            planes.conv2d(weight, before, stride, 1, 1)?
        } else {
            let padded = planes.pad_with_zeros(2, before, after)?.pad_with_zeros(3, before, after)?;
            padded.conv2d(weight, 0, stride, 1, 1)?
        };
        y.permute((0, 2, 3, 1))?.contiguous()?
    };
    let y = y.broadcast_add(bias)?;
    match finish {
        Finish::Plain => Ok(y),
        Finish::Add(more) => &y + more.reshape(y.shape())?,
        Finish::PerImage(signal) => y.broadcast_add(&signal.unsqueeze(1)?.unsqueeze(1)?),
        Finish::Apply(activation) => activation.forward(&y),
        Finish::Geglu => {
            let halves = y.chunk(2, D::Minus1)?;
            &halves[0] * halves[1].contiguous()?.gelu_erf()?
        }
    }
}

impl Activation {
    /// Applies it to every number of a tensor, where no product stands before it.
    pub fn forward(self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Silu => x.silu(),
            Self::Gelu => x.gelu_erf(),
            Self::QuickGelu => x * candle_nn::ops::sigmoid(&(x * 1.702)?)?,
            Self::Relu => x.relu(),
        }
    }
}
