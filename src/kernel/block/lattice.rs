//! The smallest types: groups of numbers are points of a table, with signs and a scale for a few points.
//!
//! # Source
//! Layouts: `ggml-org/ggml src/ggml-common.h`, `block_iq1_s` to `block_iq3_s`; the order of operations:
//! `ggml-org/llama.cpp gguf-py/gguf/quants.py`, both MIT. The code is ours.

use super::half;
use super::points::{IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS};

/// What the coordinates of a point in two bits, and in three, stand for.
const TWO: [f32; 4] = [8.0, 25.0, 43.0, 0.0];
const THREE: [f32; 8] = [4.0, 12.0, 20.0, 28.0, 36.0, 44.0, 52.0, 62.0];
/// The steps of `IQ1` are moved by this much, up or down.
const DELTA: f32 = 0.125;

/// Eight signs from seven bits: the eighth makes their number even.
fn eight_signs(seven: u32) -> u8 {
    let seven = (seven & 127) as u8;
    seven | (u8::from(seven.count_ones() % 2 == 1) << 7)
}

/// `scale × coordinate × sign` for the coordinates of a point, `bits` each.
fn put(to: &mut [f32], point: u16, bits: u32, value: impl Fn(usize) -> f32, (scale, signs): (f32, u8)) {
    for (at, to) in to.iter_mut().enumerate() {
        let coordinate = usize::from(point) >> (bits * at as u32) & ((1 << bits) - 1);
        let sign = if signs >> at & 1 == 1 { -1.0 } else { 1.0 };
        *to = scale * value(coordinate) * sign;
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn pair(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// The nibble of this number, the low half of a byte first.
fn nibble(bytes: &[u8], number: usize) -> f32 {
    f32::from(bytes[number / 2] >> (number % 2 * 4) & 15)
}

/// `d` f16; of each 32 numbers four bytes that choose points, and four of four times seven signs and a scale.
pub(super) fn iq2_xxs(block: &[u8], to: &mut [f32]) {
    let d = half(block, 0);
    for (group, to) in to.chunks_mut(32).enumerate() {
        let bytes = &block[2 + group * 8..][..8];
        let rest = word(bytes, 4);
        let scale = d * (0.5 + (rest >> 28) as f32) * 0.25;
        for (at, to) in to.chunks_mut(8).enumerate() {
            let point = IQ2_XXS[usize::from(bytes[at])];
            put(to, point, 2, |place| TWO[place], (scale, eight_signs(rest >> (7 * at))));
        }
    }
}

/// `d` f16; 32 words of nine bits of a point and seven signs; scales of 16 numbers as nibbles.
pub(super) fn iq2_xs(block: &[u8], to: &mut [f32]) {
    let d = half(block, 0);
    for (at, to) in to.chunks_mut(8).enumerate() {
        let chosen = pair(block, 2 + at * 2);
        let scale = d * (0.5 + nibble(&block[66..], at / 2)) * 0.25;
        let signs = eight_signs(u32::from(chosen >> 9));
        put(to, IQ2_XS[usize::from(chosen & 511)], 2, |place| TWO[place], (scale, signs));
    }
}

/// `d` f16; 32 bytes of points, 32 of signs, 8 of the points' upper pairs of bits; scales of 16 numbers as nibbles.
pub(super) fn iq2_s(block: &[u8], to: &mut [f32]) {
    let d = half(block, 0);
    for (at, to) in to.chunks_mut(8).enumerate() {
        let upper = usize::from(block[66 + at / 4] >> (at % 4 * 2) & 3);
        let point = IQ2_S[usize::from(block[2 + at]) | upper << 8];
        let scale = d * (0.5 + nibble(&block[74..], at / 2)) * 0.25;
        put(to, point, 2, |place| TWO[place], (scale, block[34 + at]));
    }
}

/// `d` f16; 64 bytes of points of four; of each 32 numbers four bytes of four times seven signs and a scale.
pub(super) fn iq3_xxs(block: &[u8], to: &mut [f32]) {
    let d = half(block, 0);
    for (at, to) in to.chunks_mut(4).enumerate() {
        let rest = word(block, 66 + at / 8 * 4);
        let scale = d * (0.5 + (rest >> 28) as f32) * 0.5;
        let signs = eight_signs(rest >> (7 * (at / 2 % 4))) >> (at % 2 * 4);
        put(to, IQ3_XXS[usize::from(block[2 + at])], 3, |place| THREE[place], (scale, signs));
    }
}

/// `d` f16; 64 bytes of points of four, 8 of their ninth bits, 32 of signs; scales of 32 numbers as nibbles.
pub(super) fn iq3_s(block: &[u8], to: &mut [f32]) {
    let d = half(block, 0);
    for (at, to) in to.chunks_mut(4).enumerate() {
        let upper = usize::from(block[66 + at / 8] >> (at % 8) & 1);
        let point = IQ3_S[usize::from(block[2 + at]) | upper << 8];
        let scale = d * (1.0 + 2.0 * nibble(&block[106..], at / 8));
        let signs = block[74 + at / 2] >> (at % 2 * 4);
        put(to, point, 3, |place| 2.0 * place as f32 + 1.0, (scale, signs));
    }
}

/// Eight numbers of `IQ1`: steps down, none and up, all moved by a little.
fn steps(to: &mut [f32], point: usize, scale: f32, is_down: bool) {
    let delta = if is_down { -DELTA } else { DELTA };
    put(to, IQ1_S[point], 2, |place| (place as f32 - 1.0) + delta, (scale, 0));
}

/// `d` f16; 32 bytes of points; of each 32 numbers a word of four times three upper bits, a scale and a direction.
pub(super) fn iq1_s(block: &[u8], to: &mut [f32]) {
    let d = half(block, 0);
    for (at, to) in to.chunks_mut(8).enumerate() {
        let rest = pair(block, 34 + at / 4 * 2);
        let scale = d * (2.0 * f32::from(rest >> 12 & 7) + 1.0);
        let upper = usize::from(rest >> (at % 4 * 3) & 7);
        steps(to, usize::from(block[2 + at]) | upper << 8, scale, rest & 0x8000 != 0);
    }
}

/// 32 bytes of points; 16 of nibbles of three upper bits and a direction; four words of four scales of 16 numbers, whose
/// upper nibbles together are `d`.
pub(super) fn iq1_m(block: &[u8], to: &mut [f32]) {
    let words = [48, 50, 52, 54].map(|at| pair(block, at));
    let bits = words.iter().enumerate().fold(0, |bits, (at, word)| bits | (word >> 12) << (at * 4));
    let d = ::half::f16::from_bits(bits).to_f32();
    for (at, to) in to.chunks_mut(8).enumerate() {
        let group = at / 2;
        let scale = d * (2.0 * f32::from(words[group / 4] >> (group % 4 * 3) & 7) + 1.0);
        let rest = block[32 + at / 2] >> (at % 2 * 4);
        steps(to, usize::from(block[at]) | usize::from(rest & 7) << 8, scale, rest & 8 != 0);
    }
}
