//! Numbers that come in blocks: the quantised types of ggml, and how each block becomes `f32`.
//!
//! A block is a fixed count of numbers in a fixed count of bytes: small integers that share a scale. A row of a tensor
//! is whole blocks, so rows can be cut and blocks decoded in any order, on all cores.
//!
//! # Source
//! Layouts: `ggml-org/ggml src/ggml-common.h`, block structures; ids: `ggml/include/ggml.h`, `enum ggml_type`; the
//! order of operations: `ggml-org/llama.cpp gguf-py/gguf/quants.py`, both MIT. The code is ours.

mod codebook;
mod kquant;
mod lattice;
mod plain;
mod points;

use rayon::prelude::*;

use super::matrix::widen;

/// Decodes one block: its bytes, and room for exactly its numbers.
type Decode = fn(&[u8], &mut [f32]);

/// The most numbers that one block has.
const LARGEST: usize = 256;

macro_rules! blocks {
    ($($name:ident $text:literal $id:literal $numbers:literal $bytes:literal $decode:expr;)*) => {
        /// A type whose numbers come in blocks.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Block {
            $(#[doc = concat!("`", $text, "`: ", $numbers, " numbers in ", $bytes, " bytes.")] $name,)*
        }

        impl Block {
            /// Every type, by its number in files.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its number in a GGUF file.
            pub fn id(self) -> u32 {
                match self { $(Self::$name => $id,)* }
            }

            /// Its name, as ggml spells it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// How many numbers a block holds.
            pub fn numbers(self) -> usize {
                match self { $(Self::$name => $numbers,)* }
            }

            /// How many bytes a block has.
            pub fn bytes(self) -> usize {
                match self { $(Self::$name => $bytes,)* }
            }

            fn decoder(self) -> Option<Decode> {
                match self { $(Self::$name => $decode,)* }
            }
        }
    };
}

// Those without a decoder are listed, so that a file that has one can be shown, and refused when read.
blocks! {
    Q4_0 "Q4_0" 2 32 18 Some(plain::q4_0);
    Q4_1 "Q4_1" 3 32 20 Some(plain::q4_1);
    Q5_0 "Q5_0" 6 32 22 Some(plain::q5_0);
    Q5_1 "Q5_1" 7 32 24 Some(plain::q5_1);
    Q8_0 "Q8_0" 8 32 34 Some(plain::q8_0);
    Q2K "Q2_K" 10 256 84 Some(kquant::q2_k);
    Q3K "Q3_K" 11 256 110 Some(kquant::q3_k);
    Q4K "Q4_K" 12 256 144 Some(kquant::q4_k);
    Q5K "Q5_K" 13 256 176 Some(kquant::q5_k);
    Q6K "Q6_K" 14 256 210 Some(kquant::q6_k);
    Iq2Xxs "IQ2_XXS" 16 256 66 Some(lattice::iq2_xxs);
    Iq2Xs "IQ2_XS" 17 256 74 Some(lattice::iq2_xs);
    Iq3Xxs "IQ3_XXS" 18 256 98 Some(lattice::iq3_xxs);
    Iq1S "IQ1_S" 19 256 50 Some(lattice::iq1_s);
    Iq4Nl "IQ4_NL" 20 32 18 Some(codebook::iq4_nl);
    Iq3S "IQ3_S" 21 256 110 Some(lattice::iq3_s);
    Iq2S "IQ2_S" 22 256 82 Some(lattice::iq2_s);
    Iq4Xs "IQ4_XS" 23 256 136 Some(codebook::iq4_xs);
    Iq1M "IQ1_M" 29 256 56 Some(lattice::iq1_m);
    Tq1_0 "TQ1_0" 34 256 54 Some(codebook::tq1_0);
    Tq2_0 "TQ2_0" 35 256 66 Some(codebook::tq2_0);
    Mxfp4 "MXFP4" 39 32 17 Some(codebook::mxfp4);
    Nvfp4 "NVFP4" 40 64 36 None;
    Q1_0 "Q1_0" 41 128 18 None;
}

impl Block {
    /// The type of this number in a GGUF file.
    pub fn of(id: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|block| block.id() == id)
    }

    /// Whether we can decode it.
    pub fn is_readable(self) -> bool {
        self.decoder().is_some()
    }

    /// Decodes a few blocks one after the other on this thread; none if we cannot decode this type.
    pub(in crate::kernel) fn read(self, bytes: &[u8], to: &mut [f32]) {
        let Some(decode) = self.decoder() else { return };
        for (to, bytes) in to.chunks_exact_mut(self.numbers()).zip(bytes.chunks_exact(self.bytes())) {
            decode(bytes, to);
        }
    }

    /// Decodes blocks one after the other into `to`, through `cast`; false if we cannot decode this type.
    ///
    /// `to` has room for all numbers of `bytes`; what is left over on either side is left alone.
    pub(crate) fn decode<T: Send>(self, bytes: &[u8], to: &mut [T], cast: fn(f32) -> T) -> bool {
        /// Blocks that one thread decodes at a time.
        const AT_ONCE: usize = 256;
        let Some(decode) = self.decoder() else { return false };
        let (numbers, width) = (self.numbers(), self.bytes());
        let pieces = to.par_chunks_mut(AT_ONCE * numbers).zip(bytes.par_chunks(AT_ONCE * width));
        pieces.for_each(|(to, bytes)| {
            let mut buffer = [0.0_f32; LARGEST];
            let buffer = &mut buffer[..numbers];
            for (to, bytes) in to.chunks_exact_mut(numbers).zip(bytes.chunks_exact(width)) {
                decode(bytes, buffer);
                to.iter_mut().zip(&*buffer).for_each(|(to, &number)| *to = cast(number));
            }
        });
        true
    }
}

/// A half-precision number at this place of a block.
fn half(bytes: &[u8], at: usize) -> f32 {
    widen(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bytes_panic_in_any_type() {
        for &block in Block::ALL {
            for fill in [0x00, 0x5a, 0x7f, 0x80, 0xff] {
                let bytes = vec![fill; 3 * block.bytes() + 1];
                let mut to = vec![9.0_f32; 3 * block.numbers() + 1];
                assert_eq!(block.decode(&bytes, &mut to, |number| number), block.is_readable());
                assert!((to[3 * block.numbers()] - 9.0).abs() < f32::EPSILON, "wrote past the end");
            }
            assert!(block.numbers() <= LARGEST);
            assert_eq!(Block::of(block.id()), Some(block));
        }
    }
}
