//! The one operation that every sampler is made of: a weighted sum of tensors.

use candle_core::Tensor;

use crate::error::{Code, Error, Result};

/// Σ wᵢ·xᵢ; terms of weight zero are not looked at, so an undefined tensor cannot spoil a step that ignores it.
///
/// # Errors
/// `non_finite_output` if a weight is not finite: the schedule has no such step, and the picture would be lost in silence.
pub(crate) fn mix(terms: &[(f64, &Tensor)]) -> Result<Tensor> {
    let mut sum: Option<Tensor> = None;
    for &(weight, tensor) in terms {
        if !weight.is_finite() {
            return Err(Error::new(
                Code::NonFiniteOutput,
                "the noise schedule divides by zero at this step: its signal or its noise is gone",
            )
            .hint("use v-prediction with a zero-terminal-SNR schedule, or other spacing or final sigmas"));
        }
        if weight == 0.0 {
            continue;
        }
        let term = if (weight - 1.0).abs() < f64::EPSILON { tensor.clone() } else { (tensor * weight)? };
        sum = Some(match sum {
            None => term,
            Some(sum) => (sum + term)?,
        });
    }
    match (sum, terms.first()) {
        (Some(sum), _) => Ok(sum),
        (None, Some((_, tensor))) => Ok(tensor.zeros_like()?),
        (None, None) => Err(Error::internal("a weighted sum of nothing")),
    }
}

/// `x / by`, truly divided: a product with the reciprocal differs in the last bit, and where `by` is in the thousands the
/// last bit of what a network sees is a visible share of the picture.
pub(crate) fn divided(x: &Tensor, by: f64) -> Result<Tensor> {
    Ok(x.broadcast_div(&Tensor::new(by, x.device())?.to_dtype(x.dtype())?)?)
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn weights_of_zero_are_not_looked_at_and_wild_ones_are_refused() {
        let a = Tensor::new(&[1.0f32, f32::NAN], &Device::Cpu).unwrap();
        let b = Tensor::new(&[3.0f32, 4.0], &Device::Cpu).unwrap();
        assert_eq!(mix(&[(0.0, &a), (2.0, &b)]).unwrap().to_vec1::<f32>().unwrap(), [6.0, 8.0]);
        assert_eq!(mix(&[(0.0, &a)]).unwrap().to_vec1::<f32>().unwrap(), [0.0, 0.0]);
        assert_eq!(mix(&[(f64::INFINITY, &b)]).unwrap_err().code, Code::NonFiniteOutput);
    }
}
