//! The first types of ggml: 32 numbers, one scale `d`, sometimes one offset `m`.
//!
//! Nibbles are split: the low halves of the bytes are the first 16 numbers, the high halves the last 16.

use super::half;

/// The low and the high halves of 16 bytes, by place in the block.
fn nibbles(bytes: &[u8]) -> impl Iterator<Item = u8> {
    bytes.iter().map(|byte| byte & 15).chain(bytes.iter().map(|byte| byte >> 4))
}

/// The same with a fifth bit for each, from 32 bits.
fn fives<'a>(high: &[u8], low: &'a [u8]) -> impl Iterator<Item = u8> + use<'a> {
    let high = u32::from_le_bytes([high[0], high[1], high[2], high[3]]);
    nibbles(low).enumerate().map(move |(at, low)| low | (((high >> at) & 1) as u8) << 4)
}

/// `d (q − 8)`: `d` f16, 16 bytes of nibbles.
pub(super) fn q4_0(block: &[u8], to: &mut [f32]) {
    let d = half(block, 0);
    to.iter_mut().zip(nibbles(&block[2..18])).for_each(|(to, q)| *to = d * (f32::from(q) - 8.0));
}

/// `d q + m`: `d`, `m` f16, 16 bytes of nibbles.
pub(super) fn q4_1(block: &[u8], to: &mut [f32]) {
    let (d, m) = (half(block, 0), half(block, 2));
    to.iter_mut().zip(nibbles(&block[4..20])).for_each(|(to, q)| *to = d * f32::from(q) + m);
}

/// `d (q − 16)`: `d` f16, 32 fifth bits, 16 bytes of nibbles.
pub(super) fn q5_0(block: &[u8], to: &mut [f32]) {
    let d = half(block, 0);
    let numbers = fives(&block[2..6], &block[6..22]);
    to.iter_mut().zip(numbers).for_each(|(to, q)| *to = d * (f32::from(q) - 16.0));
}

/// `d q + m`: `d`, `m` f16, 32 fifth bits, 16 bytes of nibbles.
pub(super) fn q5_1(block: &[u8], to: &mut [f32]) {
    let (d, m) = (half(block, 0), half(block, 2));
    let numbers = fives(&block[4..8], &block[8..24]);
    to.iter_mut().zip(numbers).for_each(|(to, q)| *to = d * f32::from(q) + m);
}

/// `d q`: `d` f16, 32 signed bytes.
pub(super) fn q8_0(block: &[u8], to: &mut [f32]) {
    let d = half(block, 0);
    to.iter_mut().zip(&block[2..34]).for_each(|(to, &q)| *to = d * f32::from(q.cast_signed()));
}
