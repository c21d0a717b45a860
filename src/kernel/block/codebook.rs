//! Types whose small integers are places in a table, or digits of base three.

use super::half;

/// What the nibbles of the `IQ4` types stand for: a table that is dense where weights are.
///
/// # Source
/// `ggml-org/ggml src/ggml-common.h`, `kvalues_iq4nl`, MIT.
const IQ4: [f32; 16] = [
    -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0,
];

/// The sixteen numbers of two exponent bits and one bit of mantissa, doubled.
///
/// # Source
/// OCP Microscaling Formats 1.0, section 5.3.3.
const E2M1: [f32; 16] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0];

/// `scale × table[nibble]`: the low halves of the bytes first, then the high ones.
fn look_up(table: &[f32; 16], scale: f32, bytes: &[u8], to: &mut [f32]) {
    let (first, last) = to.split_at_mut(bytes.len());
    for ((byte, first), last) in bytes.iter().zip(first).zip(last) {
        *first = scale * table[usize::from(byte & 15)];
        *last = scale * table[usize::from(byte >> 4)];
    }
}

/// `d` f16, 16 bytes of nibbles.
pub(super) fn iq4_nl(block: &[u8], to: &mut [f32]) {
    look_up(&IQ4, half(block, 0), &block[2..18], to);
}

/// `d` f16; scales of eight groups of 32: two bytes of upper pairs of bits, four of nibbles; 128 bytes of nibbles.
pub(super) fn iq4_xs(block: &[u8], to: &mut [f32]) {
    let d = half(block, 0);
    let upper = u16::from_le_bytes([block[2], block[3]]);
    for (group, to) in to.chunks_mut(32).enumerate() {
        let low = (block[4 + group / 2] >> (group % 2 * 4)) & 15;
        let high = ((upper >> (group * 2)) & 3) as u8;
        let scale = d * (f32::from(low | (high << 4)) - 32.0);
        look_up(&IQ4, scale, &block[8 + group * 16..][..16], to);
    }
}

/// `2^(e − 128)` for one byte of exponent, half of what it says: the table is doubled.
fn half_power(e: u8) -> f32 {
    let bits = if e < 2 { 0x0020_0000 << e } else { (u32::from(e) - 1) << 23 };
    f32::from_bits(bits)
}

/// One byte of exponent, 16 bytes of nibbles.
pub(super) fn mxfp4(block: &[u8], to: &mut [f32]) {
    look_up(&E2M1, half_power(block[0]), &block[1..17], to);
}

/// Digits of base three, five to a byte: 48 bytes, then 4 bytes of four digits, `d` f16.
///
/// A byte is `⌈256 × 0.digits / 1⌉`: times three, the digit is what overflows. The first 32 bytes give their first
/// digits, then their second …; so do the next 16 and the last 4.
pub(super) fn tq1_0(block: &[u8], to: &mut [f32]) {
    let d = half(block, 52);
    let mut to = to.iter_mut();
    for (bytes, digits) in [(&block[..32], 5), (&block[32..48], 5), (&block[48..52], 4)] {
        for power in [1_u8, 3, 9, 27, 81].into_iter().take(digits) {
            for (byte, to) in bytes.iter().zip(to.by_ref()) {
                let digit = (u16::from(byte.wrapping_mul(power)) * 3) >> 8;
                *to = d * (f32::from(digit) - 1.0);
            }
        }
    }
}

/// Two bits a digit: 64 bytes in two halves, of each half first all lowest pairs, and so on; `d` f16.
pub(super) fn tq2_0(block: &[u8], to: &mut [f32]) {
    let d = half(block, 64);
    for (group, to) in to.chunks_mut(32).enumerate() {
        let bytes = &block[group / 4 * 32..][..32];
        let shift = group % 4 * 2;
        to.iter_mut().zip(bytes).for_each(|(to, byte)| *to = d * (f32::from((byte >> shift) & 3) - 1.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_bit_floats_are_what_the_standard_says() {
        // Exponent byte 127 is one; patterns 0 to 15 low, 15 to 0 high.
        let mut block = [127_u8; 17];
        (0..16).for_each(|at| block[at + 1] = at as u8 | (15 - at as u8) << 4);
        let mut to = [9.0; 32];
        mxfp4(&block, &mut to);
        assert_eq!(to[..8], [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
        assert_eq!(to[8..11], [0.0, -0.5, -1.0]);
        assert_eq!(to[16..18], [-6.0, -4.0]);
        // 2⁻¹²⁸ and 2⁻¹²⁷ are below the smallest normal number.
        assert_eq!(
            [0, 1, 2, 127].map(|e| half_power(e).to_bits()),
            [0x0020_0000, 0x0040_0000, 0x0080_0000, 0x3f00_0000]
        );
    }
}
