//! The "k" types: 256 numbers in groups of 16 or 32, whose scales are small integers that share a scale themselves.

use super::half;

/// `(d s) q − (dmin m)`: 16 bytes with a scale and an offset of 4 bits for 16 numbers each, 64 bytes of 2-bit numbers,
/// `d`, `dmin` f16.
pub(super) fn q2_k(block: &[u8], to: &mut [f32]) {
    let (scales, quants) = (&block[..16], &block[16..80]);
    let (d, dmin) = (half(block, 80), half(block, 82));
    for (group, to) in to.chunks_mut(16).enumerate() {
        let scale = d * f32::from(scales[group] & 15);
        let offset = dmin * f32::from(scales[group] >> 4);
        // Each half of the block has 32 bytes; a pair of groups takes the same two bits of all of them.
        let bytes = &quants[group / 8 * 32 + group % 2 * 16..][..16];
        let shift = group % 8 / 2 * 2;
        to.iter_mut().zip(bytes).for_each(|(to, byte)| *to = scale * f32::from((byte >> shift) & 3) - offset);
    }
}

/// `(d (s − 32)) (q − 4 [high bit unset])`: 32 bytes of high bits, 64 bytes of 2-bit numbers, 12 bytes with 16 scales of
/// 6 bits, `d` f16.
pub(super) fn q3_k(block: &[u8], to: &mut [f32]) {
    let (high, quants, packed) = (&block[..32], &block[32..96], &block[96..108]);
    let d = half(block, 108);
    for (group, to) in to.chunks_mut(16).enumerate() {
        // Low four bits: nibbles of the first 8 bytes; upper two: pairs of bits of the last 4.
        let low = (packed[group % 8] >> (group / 8 * 4)) & 15;
        let upper = (packed[8 + group % 4] >> (group / 4 * 2)) & 3;
        let scale = d * (f32::from(low | (upper << 4)) - 32.0);
        let bytes = &quants[group / 8 * 32 + group % 2 * 16..][..16];
        let high = &high[group % 2 * 16..][..16];
        let shift = group % 8 / 2 * 2;
        for ((to, byte), high) in to.iter_mut().zip(bytes).zip(high) {
            let unset = if (high >> (group / 2)) & 1 == 0 { 4.0 } else { 0.0 };
            *to = scale * (f32::from((byte >> shift) & 3) - unset);
        }
    }
}

/// Scale and offset number `group` of eight, 6 bits each, packed in 12 bytes.
fn scale_and_offset(packed: &[u8], group: usize) -> (f32, f32) {
    let (scale, offset) = if group < 4 {
        (packed[group] & 63, packed[group + 4] & 63)
    } else {
        let low = packed[group + 4];
        ((low & 15) | (packed[group - 4] >> 6 << 4), (low >> 4) | (packed[group] >> 6 << 4))
    };
    (f32::from(scale), f32::from(offset))
}

/// `(d s) q − (dmin m)`: `d`, `dmin` f16, 12 bytes of scales, 128 bytes of nibbles, 32 numbers to a group.
pub(super) fn q4_k(block: &[u8], to: &mut [f32]) {
    let (d, dmin, packed) = (half(block, 0), half(block, 2), &block[4..16]);
    for (group, to) in to.chunks_mut(32).enumerate() {
        let (scale, offset) = scale_and_offset(packed, group);
        let (scale, offset) = (d * scale, dmin * offset);
        let bytes = &block[16 + group / 2 * 32..][..32];
        let shift = group % 2 * 4;
        to.iter_mut()
            .zip(bytes)
            .for_each(|(to, byte)| *to = scale * f32::from((byte >> shift) & 15) - offset);
    }
}

/// As [`q4_k`], with 32 bytes of fifth bits, a bit of each for a group, before the nibbles.
pub(super) fn q5_k(block: &[u8], to: &mut [f32]) {
    let (d, dmin, packed) = (half(block, 0), half(block, 2), &block[4..16]);
    let high = &block[16..48];
    for (group, to) in to.chunks_mut(32).enumerate() {
        let (scale, offset) = scale_and_offset(packed, group);
        let (scale, offset) = (d * scale, dmin * offset);
        let bytes = &block[48 + group / 2 * 32..][..32];
        let shift = group % 2 * 4;
        for ((to, byte), high) in to.iter_mut().zip(bytes).zip(high) {
            let q = ((byte >> shift) & 15) | (((high >> group) & 1) << 4);
            *to = scale * f32::from(q) - offset;
        }
    }
}

/// `(d s) (q − 32)`: 128 bytes of nibbles, 64 bytes of upper pairs of bits, 16 signed scales, `d` f16.
pub(super) fn q6_k(block: &[u8], to: &mut [f32]) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let d = half(block, 208);
    for (group, to) in to.chunks_mut(16).enumerate() {
        let scale = d * f32::from(scales[group].cast_signed());
        // Of a half block of 128 numbers: 64 bytes of nibbles, low halves first, and 32 bytes of pairs.
        let (part, within) = (group / 8, group % 8);
        let low = &low[part * 64 + within % 4 * 16..][..16];
        let high = &high[part * 32 + within % 2 * 16..][..16];
        let (low_shift, high_shift) = (within / 4 * 4, within / 2 * 2);
        for ((to, low), high) in to.iter_mut().zip(low).zip(high) {
            let q = ((low >> low_shift) & 15) | (((high >> high_shift) & 3) << 4);
            *to = scale * (f32::from(q) - 32.0);
        }
    }
}
