//! The seeds that `numpy` derives from a seed and a place, for the Brownian tree.

/// Words of the pool; `torchsde` asks for 24.
const POOL: usize = 24;

/// `numpy.random.SeedSequence` of 24 words: seeds that are independent though their places are neighbours.
///
/// # Source
/// O'Neill 2015, *C++ Seeding Surprises*; `numpy/numpy numpy/random/bit_generator.pyx`, BSD-3-Clause.
pub(crate) struct SeedSequence {
    pool: [u32; POOL],
}

impl SeedSequence {
    /// The sequence of a seed at a place in a tree; without a place, that of the whole tree.
    pub(crate) fn new(seed: u64, place: &[u64]) -> Self {
        let mut entropy = words(seed);
        if !place.is_empty() {
            entropy.resize(entropy.len().max(POOL), 0);
            entropy.extend(place.iter().flat_map(|&word| words(word)));
        }
        let mut constant = 0x43b0_d7e5u32;
        let mut hashed = |value: u32| {
            let value = value ^ constant;
            constant = constant.wrapping_mul(0x931e_8875);
            let value = value.wrapping_mul(constant);
            value ^ (value >> 16)
        };
        let mut pool = [0; POOL];
        for (i, word) in pool.iter_mut().enumerate() {
            *word = hashed(entropy.get(i).copied().unwrap_or(0));
        }
        for from in 0..POOL {
            for to in (0..POOL).filter(|&to| to != from) {
                pool[to] = mixed(pool[to], hashed(pool[from]));
            }
        }
        for &word in entropy.iter().skip(POOL) {
            for slot in &mut pool {
                *slot = mixed(*slot, hashed(word));
            }
        }
        Self { pool }
    }

    /// The first word of the generated state.
    pub(crate) fn first(&self) -> u32 {
        let constant = 0x8b51_f9ddu32;
        let value = (self.pool[0] ^ constant).wrapping_mul(constant.wrapping_mul(0x58f3_8ded));
        value ^ (value >> 16)
    }
}

/// A number in words of 32 bits, lowest first, at least one.
fn words(number: u64) -> Vec<u32> {
    let (low, high) = (number as u32, (number >> 32) as u32);
    if high == 0 { vec![low] } else { vec![low, high] }
}

fn mixed(x: u32, y: u32) -> u32 {
    let value = x.wrapping_mul(0xca01_f9dd).wrapping_sub(y.wrapping_mul(0x4973_f715));
    value ^ (value >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_those_of_numpy() {
        // numpy 2.4.6: SeedSequence(5, pool_size=24).generate_state(1), and with spawn_key=(3, 2).
        assert_eq!(SeedSequence::new(5, &[]).first(), 3_154_616_629);
        assert_eq!(SeedSequence::new(5, &[3, 2]).first(), 432_122_160);
        assert_eq!(SeedSequence::new((7 << 32) + 5, &[3, 2]).first(), 1_678_812_998);
    }
}
