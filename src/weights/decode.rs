//! From bytes on disk to a tensor in memory.
//!
//! The common case by far, half precision on disk and single precision on the CPU, is done in one pass on all cores,
//! without the intermediate tensor that candle's own conversion would need. Everything else becomes a tensor as it
//! lies on disk and is converted where it will live.

use candle_core::{DType, Device, Tensor, WithDType};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use rayon::prelude::*;

use super::inventory::{Scalar, TensorInfo};
use crate::error::{Code, Error, Result};

/// Numbers that one thread converts at a time.
const CHUNK: usize = 1 << 16;

/// Reads `bytes`, which the preflight found as long as `info` says.
pub(super) fn tensor(bytes: &[u8], info: &TensorInfo, dtype: DType, device: &Device) -> Result<Tensor> {
    let shape = info.shape.as_slice();
    let tensor = match (info.scalar, dtype, device) {
        (Scalar::F16, DType::F32, Device::Cpu) => whole(halves::<f16>(bytes)?, shape, device),
        (Scalar::Bf16, DType::F32, Device::Cpu) => whole(halves::<bf16>(bytes)?, shape, device),
        (Scalar::F32, ..) => whole(numbers(bytes, f32::from_le_bytes)?, shape, device),
        (Scalar::F16, ..) => whole(numbers(bytes, f16::from_le_bytes)?, shape, device),
        (Scalar::Bf16, ..) => whole(numbers(bytes, bf16::from_le_bytes)?, shape, device),
        (Scalar::Other { name, .. }, ..) => {
            let message = format!("is stored as {name}; networks read F32, F16 and BF16");
            return Err(Error::new(Code::ModelIncompatible, message));
        }
    };
    Ok(tensor?.to_dtype(dtype)?)
}

fn whole<T: WithDType>(numbers: Vec<T>, shape: &[usize], device: &Device) -> candle_core::Result<Tensor> {
    Tensor::from_vec(numbers, shape, device)
}

/// An empty vector with room for `length` numbers.
pub(super) fn room<T>(length: usize) -> Result<Vec<T>> {
    let mut numbers = Vec::new();
    match numbers.try_reserve_exact(length) {
        Ok(()) => Ok(numbers),
        Err(error) => {
            let bytes = length.saturating_mul(size_of::<T>());
            let message = format!("there is no memory for a tensor of {bytes} bytes");
            Err(Error::new(Code::InsufficientMemory, message).because(error))
        }
    }
}

/// The numbers as they lie there, one after the other, however the first is aligned.
fn numbers<T, const N: usize>(bytes: &[u8], read: fn([u8; N]) -> T) -> Result<Vec<T>> {
    let (words, _) = bytes.as_chunks::<N>();
    let mut numbers = room(words.len())?;
    numbers.extend(words.iter().map(|&word| read(word)));
    Ok(numbers)
}

/// A number of two bytes that becomes an `f32`, many at once.
trait Half: Copy + Send {
    const ZERO: Self;
    fn read(bytes: [u8; 2]) -> Self;
    fn widen(from: &[Self], to: &mut [f32]);
}

impl Half for f16 {
    const ZERO: Self = Self::ZERO;

    fn read(bytes: [u8; 2]) -> Self {
        Self::from_le_bytes(bytes)
    }

    fn widen(from: &[Self], to: &mut [f32]) {
        from.convert_to_f32_slice(to);
    }
}

impl Half for bf16 {
    const ZERO: Self = Self::ZERO;

    fn read(bytes: [u8; 2]) -> Self {
        Self::from_le_bytes(bytes)
    }

    fn widen(from: &[Self], to: &mut [f32]) {
        from.convert_to_f32_slice(to);
    }
}

fn halves<T: Half>(bytes: &[u8]) -> Result<Vec<f32>> {
    let (words, _) = bytes.as_chunks::<2>();
    let mut numbers = room(words.len())?;
    numbers.resize(words.len(), 0.0_f32);
    numbers.par_chunks_mut(CHUNK).zip(words.par_chunks(CHUNK)).for_each(|(numbers, words)| {
        let mut narrow = [T::ZERO; 512];
        for (numbers, words) in numbers.chunks_mut(512).zip(words.chunks(512)) {
            let narrow = &mut narrow[..words.len()];
            narrow.iter_mut().zip(words).for_each(|(narrow, &word)| *narrow = T::read(word));
            T::widen(narrow, numbers);
        }
    });
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], scalar: Scalar, dtype: DType) -> Vec<f32> {
        let length = bytes.len() * 8 / scalar.bits();
        let info = TensorInfo { scalar, shape: vec![length], file: 0, range: 0..bytes.len() };
        let tensor = tensor(bytes, &info, dtype, &Device::Cpu).expect("decodes");
        assert_eq!(tensor.dtype(), dtype);
        tensor.to_dtype(DType::F32).and_then(|tensor| tensor.to_vec1()).expect("a vector")
    }

    #[test]
    fn all_ways_of_reading_halves_agree() {
        let values: Vec<f32> = (0..1500).map(|n| (n as f32 - 700.0) / 64.0).collect();
        // One byte in front: nothing may count on alignment.
        let mut bytes = vec![0_u8];
        bytes.extend(values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()));
        let bytes = &bytes[1..];
        assert_eq!(read(bytes, Scalar::F16, DType::F32), values);
        assert_eq!(read(bytes, Scalar::F16, DType::F16), values);
        let bytes: Vec<u8> = values.iter().flat_map(|&value| bf16::from_f32(value).to_le_bytes()).collect();
        let rounded: Vec<f32> = values.iter().map(|&value| bf16::from_f32(value).to_f32()).collect();
        assert_eq!(read(&bytes, Scalar::Bf16, DType::F32), rounded);
        assert_eq!(read(&bytes, Scalar::Bf16, DType::BF16), rounded);
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!(read(&bytes, Scalar::F32, DType::F32), values);
    }

    #[test]
    fn too_large_a_tensor_is_an_error_and_no_abort() {
        assert_eq!(room::<f32>(usize::MAX / 8).expect_err("no room").code, Code::InsufficientMemory);
    }
}
