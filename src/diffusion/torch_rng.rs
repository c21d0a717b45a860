//! The generator of `torch` on the CPU, number for number, so that a seed means the same picture here and there.

use half::{bf16, f16};

/// Words of the Mersenne Twister's state, and the distance of its recurrence.
const WORDS: usize = 624;
const DISTANCE: usize = 397;

/// The Mersenne Twister of `torch.Generator("cpu")`, with its ways of making numbers.
///
/// # Source
/// Matsumoto & Nishimura 1998; `pytorch/pytorch aten/src/ATen/core/MT19937RNGEngine.h`, `DistributionsHelper.h` and
/// `native/cpu/DistributionTemplates.h`, BSD-3-Clause.
#[derive(Debug, Clone)]
pub struct TorchRng {
    state: [u32; WORDS],
    next: usize,
    spare: Option<f64>,
}

impl TorchRng {
    /// As `torch.manual_seed`; like there, only the low 32 bits matter.
    pub fn new(seed: u64) -> Self {
        let mut state = [0; WORDS];
        state[0] = seed as u32;
        for i in 1..WORDS {
            let before = state[i - 1];
            state[i] = 1_812_433_253u32.wrapping_mul(before ^ (before >> 30)).wrapping_add(i as u32);
        }
        Self { state, next: WORDS, spare: None }
    }

    fn word(&mut self) -> u32 {
        if self.next == WORDS {
            self.refill();
        }
        let mut y = self.state[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    fn refill(&mut self) {
        for i in 0..WORDS {
            let joined = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % WORDS] & 0x7fff_ffff);
            let odd = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[i] = self.state[(i + DISTANCE) % WORDS] ^ (joined >> 1) ^ odd;
        }
        self.next = 0;
    }

    fn double_word(&mut self) -> u64 {
        let high = u64::from(self.word());
        (high << 32) | u64::from(self.word())
    }

    /// As `torch.rand` in single precision: 24 random bits each.
    pub fn rand(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.uniform(24) as f32).collect()
    }

    fn uniform(&mut self, bits: u32) -> f64 {
        f64::from(self.word() & ((1 << bits) - 1)) / f64::from(1u32 << bits)
    }

    fn uniform_double(&mut self) -> f64 {
        (self.double_word() & ((1 << 53) - 1)) as f64 / (1u64 << 53) as f64
    }

    /// As `torch.randint(0, below)`.
    pub fn randint(&mut self, below: u64, count: usize) -> Vec<u64> {
        let small = u32::try_from(below).is_ok();
        let mut draw = || if small { u64::from(self.word()) } else { self.double_word() };
        (0..count).map(|_| draw() % below.max(1)).collect()
    }

    /// One normal number in double precision; every second one was made with the first.
    fn single_normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let (u1, u2) = (self.uniform_double(), self.uniform_double());
        let radius = (-2.0 * (-u2).ln_1p()).sqrt();
        let angle = 2.0 * std::f64::consts::PI * u1;
        self.spare = Some(radius * angle.sin());
        radius * angle.cos()
    }

    /// As `torch.randn` in single precision.
    pub fn randn(&mut self, count: usize) -> Vec<f32> {
        self.normals(
            count,
            |rng| rng.uniform(24) as f32,
            |x| x as f32,
            |u1, u2| {
                let radius = (-2.0 * (1.0 - u1).ln()).sqrt();
                let angle = 2.0 * std::f32::consts::PI * u2;
                (radius * angle.cos(), radius * angle.sin())
            },
        )
    }

    /// As `torch.randn` in double precision.
    pub fn randn_f64(&mut self, count: usize) -> Vec<f64> {
        self.normals(
            count,
            Self::uniform_double,
            |x| x,
            |u1, u2| {
                let radius = (-2.0 * (1.0 - u1).ln()).sqrt();
                let angle = 2.0 * std::f64::consts::PI * u2;
                (radius * angle.cos(), radius * angle.sin())
            },
        )
    }

    /// As `torch.randn` in half precision: drawn block by block in single precision, then rounded.
    pub fn randn_f16(&mut self, count: usize) -> Vec<f16> {
        self.narrow_normals(count).into_iter().map(f16::from_f32).collect()
    }

    /// As `torch.randn` in `bfloat16`: drawn block by block in single precision, then rounded.
    pub fn randn_bf16(&mut self, count: usize) -> Vec<bf16> {
        self.narrow_normals(count).into_iter().map(bf16::from_f32).collect()
    }

    /// Half-precision types draw the numbers of a block when its turn comes, where single precision draws all first;
    /// so a ragged tail continues after the last whole block.
    fn narrow_normals(&mut self, count: usize) -> Vec<f32> {
        if count < 16 {
            return self.randn(count);
        }
        let mut values: Vec<f32> = (0..count / 16).flat_map(|_| self.randn(16)).collect();
        if !count.is_multiple_of(16) {
            values.resize(count, 0.0);
            let tail = self.randn(16);
            values[count - 16..].copy_from_slice(&tail);
        }
        values
    }

    /// Fewer than 16 numbers are made one by one in double precision; more in blocks of 16, the last of which overlaps
    /// the one before if the count is ragged, and is drawn anew.
    fn normals<T: Copy>(
        &mut self,
        count: usize,
        mut uniform: impl FnMut(&mut Self) -> T,
        narrow: impl Fn(f64) -> T,
        pair: impl Fn(T, T) -> (T, T),
    ) -> Vec<T> {
        if count < 16 {
            return (0..count).map(|_| narrow(self.single_normal())).collect();
        }
        let mut values: Vec<T> = (0..count).map(|_| uniform(self)).collect();
        let turn = |block: &mut [T]| {
            for i in 0..8 {
                (block[i], block[i + 8]) = pair(block[i], block[i + 8]);
            }
        };
        values.chunks_exact_mut(16).for_each(turn);
        if !count.is_multiple_of(16) {
            let last = &mut values[count - 16..];
            last.iter_mut().for_each(|value| *value = uniform(self));
            turn(last);
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_twister_of_the_paper() {
        // The 10,000th number of seed 5489, ISO C++ [rand.predef].
        let mut rng = TorchRng::new(5489);
        let last = (0..10_000).map(|_| rng.word()).last();
        assert_eq!(last, Some(4_123_659_995));
    }

    #[test]
    fn only_the_low_bits_of_a_seed_matter() {
        assert_eq!(TorchRng::new(5).randn(20), TorchRng::new((1 << 32) + 5).randn(20));
        assert_ne!(TorchRng::new(5).randn(20), TorchRng::new(6).randn(20));
    }

    #[test]
    fn a_spare_number_outlives_a_block() {
        let mut rng = TorchRng::new(0);
        let one = rng.randn(1);
        let block = rng.randn(16);
        let mut same = TorchRng::new(0);
        let two = same.randn(2);
        assert_eq!(one[0].to_bits(), two[0].to_bits());
        assert_eq!(same.randn(16), block);
        assert_eq!(rng.randn(1)[0].to_bits(), two[1].to_bits());
    }
}
