//! From bytes on disk to a tensor in memory.
//!
//! The common case by far, half precision on disk and single precision on the CPU, is done in one pass on all cores,
//! without the intermediate tensor that candle's own conversion would need. Everything else becomes a tensor as it
//! lies on disk and is converted where it will live.

use std::ops::Deref;

use candle_core::{DType, Device, Tensor, WithDType};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use rayon::prelude::*;

use super::inventory::{Scalar, TensorInfo};
use super::packing::{FourBit, Packing, Scale, numbers as scales};
use crate::error::{Code, Error, Result};

/// Numbers that one thread converts at a time.
const CHUNK: usize = 1 << 16;

/// Reads a tensor that the preflight found as `info` says, from the files of its set.
///
/// # Errors
/// `model_incompatible` for a type that is not read, `insufficient_memory` if there is no room.
pub(super) fn tensor<F: Deref<Target = [u8]>>(
    files: &[F],
    info: &TensorInfo,
    dtype: DType,
    device: &Device,
) -> Result<Tensor> {
    let shape = info.shape.as_slice();
    let bytes = &files[info.file][info.range.clone()];
    if info.is_quantised() {
        return match dtype {
            DType::F16 => unpacked(files, info, device, f16::from_f32),
            DType::BF16 => unpacked(files, info, device, bf16::from_f32),
            _ => Ok(unpacked(files, info, device, |number| number)?.to_dtype(dtype)?),
        };
    }
    let tensor = match (info.scalar, dtype, device) {
        (Scalar::F16, DType::F32, Device::Cpu) => whole(halves::<f16>(bytes)?, shape, device),
        (Scalar::Bf16, DType::F32, Device::Cpu) => whole(halves::<bf16>(bytes)?, shape, device),
        (Scalar::F32, ..) => whole(numbers(bytes, f32::from_le_bytes)?, shape, device),
        (Scalar::F16, ..) => whole(numbers(bytes, f16::from_le_bytes)?, shape, device),
        (Scalar::Bf16, ..) => whole(numbers(bytes, bf16::from_le_bytes)?, shape, device),
        (Scalar::Other { name: "F64", .. }, ..) => whole(numbers(bytes, f64::from_le_bytes)?, shape, device),
        (scalar, ..) => return Err(unread(scalar.name())),
    };
    Ok(tensor?.to_dtype(dtype)?)
}

fn unread(what: &str) -> Error {
    let message =
        format!("is stored as {what}; networks read F32, F16, BF16, fp8, nf4 and most types of GGUF");
    Error::new(Code::ModelIncompatible, message).hint("use a file of the same model in one of these")
}

/// A tensor of quantised numbers, decoded once, into the type that was asked for.
fn unpacked<F: Deref<Target = [u8]>, T: WithDType + Send>(
    files: &[F],
    info: &TensorInfo,
    device: &Device,
    cast: fn(f32) -> T,
) -> Result<Tensor> {
    let bytes = &files[info.file][info.range.clone()];
    let length = info.shape.iter().product();
    let mut to = room(length)?;
    to.resize(length, T::zero());
    let done = match (&info.packing, info.scalar) {
        (Some(Packing::Unread(scheme)), _) => {
            return Err(unread(&format!("{scheme}, which is known and not readable yet")));
        }
        (Some(Packing::FourBit(packed)), _) => four_bit(bytes, packed, files, &mut to, cast),
        (Some(Packing::Scaled(scale)), scalar) => scaled(bytes, scalar, Some(scale), files, &mut to, cast),
        (None, Scalar::Block(block)) => block.decode(bytes, &mut to, cast).then_some(()),
        (None, scalar) => scaled(bytes, scalar, None, files, &mut to, cast),
    };
    done.ok_or_else(|| unread(info.scalar.name()))?;
    Ok(whole(to, &info.shape, device)?)
}

/// What each byte stands for in a type of one byte.
fn table(scalar: Scalar) -> Option<[f32; 256]> {
    let read: fn(u8) -> f32 = match scalar {
        Scalar::F8E4m3 => e4m3,
        Scalar::F8E5m2 => |byte| f16::from_bits(u16::from(byte) << 8).to_f32(),
        Scalar::Other { name: "I8", .. } => |byte| f32::from(byte.cast_signed()),
        _ => return None,
    };
    Some(std::array::from_fn(|byte| read(byte as u8)))
}

/// Four bits of exponent with bias 7, three of mantissa; all ones is no number, and nothing is infinite.
///
/// # Source
/// Micikevicius et al. 2022 (arXiv 2209.05433), table 1, `E4M3`.
fn e4m3(byte: u8) -> f32 {
    let (exponent, mantissa) = (i32::from((byte >> 3) & 15), f32::from(byte & 7));
    let size = match (exponent, byte & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa / 512.0,
        _ => (1.0 + mantissa / 8.0) * 2.0_f32.powi(exponent - 7),
    };
    if byte & 0x80 == 0 { size } else { -size }
}

/// Numbers of one byte, each times the scale of its tensor or row.
fn scaled<F: Deref<Target = [u8]>, T: Send>(
    bytes: &[u8],
    scalar: Scalar,
    scale: Option<&Scale>,
    files: &[F],
    to: &mut [T],
    cast: fn(f32) -> T,
) -> Option<()> {
    let table = table(scalar)?;
    let scales = match scale {
        Some(scale) => {
            let read = scales(&scale.place, files)?;
            read.into_iter().map(|number| number * scale.factor).collect()
        }
        None => vec![1.0],
    };
    let row = (to.len() / scales.len().max(1)).max(1);
    to.par_chunks_mut(row).zip(bytes.par_chunks(row)).zip(&scales).for_each(|((to, bytes), &scale)| {
        to.par_chunks_mut(CHUNK).zip(bytes.par_chunks(CHUNK)).for_each(|(to, bytes)| {
            to.iter_mut().zip(bytes).for_each(|(to, &byte)| *to = cast(table[usize::from(byte)] * scale));
        });
    });
    Some(())
}

/// Four bits a number: `table[pattern] × scale of its block`.
///
/// # Source
/// Dettmers et al. 2023 (arXiv 2305.14314) section 3, with double quantisation of the scales.
fn four_bit<F: Deref<Target = [u8]>, T: Send>(
    bytes: &[u8],
    packed: &FourBit,
    files: &[F],
    to: &mut [T],
    cast: fn(f32) -> T,
) -> Option<()> {
    let wanted = packed.first..packed.first + to.len().div_ceil(packed.block);
    let scales = block_scales(packed, files)?;
    let scales = scales.get(wanted)?;
    let pieces = to.par_chunks_mut(packed.block).zip(bytes.par_chunks(packed.block / 2)).zip(scales);
    pieces.with_min_len(256).for_each(|((to, bytes), &scale)| {
        for (pair, byte) in to.chunks_mut(2).zip(bytes) {
            let patterns = [byte >> 4, byte & 15];
            let numbers = patterns.map(|pattern| packed.table[usize::from(pattern)] * scale);
            pair.iter_mut().zip(numbers).for_each(|(to, number)| *to = cast(number));
        }
    });
    Some(())
}

/// The scale of every block.
fn block_scales<F: Deref<Target = [u8]>>(packed: &FourBit, files: &[F]) -> Option<Vec<f32>> {
    let Some(nested) = &packed.nested else { return scales(&packed.scales, files) };
    let bytes = files.get(packed.scales.file)?.get(packed.scales.range.clone())?;
    let (table, outer) = (scales(&nested.table, files)?, scales(&nested.scales, files)?);
    let scale = |(at, &byte): (usize, &u8)| {
        Some(table.get(usize::from(byte))? * outer.get(at / nested.block)? + nested.offset)
    };
    bytes.iter().enumerate().map(scale).collect()
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
    let spare = &mut numbers.spare_capacity_mut()[..words.len()];
    spare.par_chunks_mut(CHUNK).zip(words.par_chunks(CHUNK)).for_each(|(numbers, words)| {
        let (mut narrow, mut wide) = ([T::ZERO; 512], [0f32; 512]);
        for (numbers, words) in numbers.chunks_mut(512).zip(words.chunks(512)) {
            let (narrow, wide) = (&mut narrow[..words.len()], &mut wide[..words.len()]);
            narrow.iter_mut().zip(words).for_each(|(narrow, &word)| *narrow = T::read(word));
            T::widen(narrow, wide);
            numbers.iter_mut().zip(wide).for_each(|(number, wide)| _ = number.write(*wide));
        }
    });
    #[expect(unsafe_code, reason = "gigabytes are written once, not twice")]
    // SAFETY: the chunks cover all words, and every number of a chunk is written.
    unsafe {
        numbers.set_len(words.len());
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], scalar: Scalar, dtype: DType) -> Vec<f32> {
        let length = bytes.len() / scalar.bytes(1).expect("whole bytes");
        let info = TensorInfo::new(scalar, vec![length], 0, 0..bytes.len());
        let tensor = tensor(&[bytes], &info, dtype, &Device::Cpu).expect("decodes");
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
    fn eight_bit_floats_are_what_their_bits_say() {
        let all: Vec<u8> = (0..=255).collect();
        let e4m3 = read(&all, Scalar::F8E4m3, DType::F32);
        let expected = [
            (0x00, 0.0),
            (0x01, 0.001_953_125),
            (0x08, 0.015_625),
            (0x38, 1.0),
            (0x7e, 448.0),
            (0xfe, -448.0),
        ];
        for (byte, number) in expected {
            assert_eq!(e4m3[byte].to_bits(), f32::to_bits(number), "{byte:02x}");
        }
        assert!(e4m3[0x7f].is_nan() && e4m3[0xff].is_nan());
        let e5m2 = read(&all, Scalar::F8E5m2, DType::F32);
        assert_eq!((e5m2[0x3c], e5m2[0x7b], e5m2[0x01]), (1.0, 57344.0, 1.525_878_9e-5));
        assert!(e5m2[0x7c].is_infinite() && e5m2[0xfd].is_nan());
    }

    #[test]
    fn too_large_a_tensor_is_an_error_and_no_abort() {
        assert_eq!(room::<f32>(usize::MAX / 8).expect_err("no room").code, Code::InsufficientMemory);
    }
}
