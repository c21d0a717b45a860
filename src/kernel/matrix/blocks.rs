//! Weights that stay as small integers with shared scales: every task decodes the panel it needs.
//!
//! A band of such a product is longer than others, so that a panel once decoded meets more pixels.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};

use candle_core::{Result, Tensor};
use half::{bf16, f16};
use rayon::prelude::*;

use super::super::block::Block;
use super::cpu::{Engine, WIDTH};
use super::half::{Half, largest};
use super::job::Lines;
use super::pack::{Sources, Stored, columns, exact_panel, halves_panel};
use super::weight::{Row, Sizes};

/// Rows `[O]` of `[I, K, K]` numbers, each in whole blocks.
#[derive(Debug)]
pub(super) struct Blocks {
    block: Block,
    bytes: Vec<u8>,
    sizes: Sizes,
    /// Zero in the columns that are not there, [P·32].
    pub(super) bias: Vec<f32>,
    largest: f32,
}

impl Blocks {
    /// Checks that the bytes are all rows of such a weight.
    pub(super) fn new(block: Block, bytes: Vec<u8>, bias: Option<&Tensor>, sizes: Sizes) -> Result<Self> {
        let row = sizes.side * sizes.stretch();
        let expected = sizes.output * row / block.numbers() * block.bytes();
        if !row.is_multiple_of(block.numbers()) || bytes.len() != expected || !block.is_readable() {
            candle_core::bail!("{} bytes of {} for a weight of {sizes:?}", bytes.len(), block.name())
        }
        let mut this = Self { block, bytes, sizes, bias: columns(bias, sizes)?, largest: 0.0 };
        let most = AtomicU32::new(0);
        (0..sizes.panels()).into_par_iter().for_each(|panel| {
            this.decoded(panel, |values, _| _ = most.fetch_max(largest(values).to_bits(), Ordering::Relaxed));
        });
        this.largest = f32::from_bits(most.into_inner());
        Ok(this)
    }

    /// Whether all numbers are in f16's range.
    pub(super) fn fits_f16(&self) -> bool {
        self.largest <= f16::MAX.to_f32()
    }

    /// Bytes of one row.
    fn pitch(&self) -> usize {
        self.bytes.len() / self.sizes.output
    }

    /// Hands on the rows of one panel's columns as numbers, and where each begins.
    fn decoded(&self, panel: usize, work: impl FnOnce(&[f32], &Sources)) {
        thread_local!(static NUMBERS: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) });
        let row = self.sizes.side * self.sizes.stretch();
        NUMBERS.with_borrow_mut(|numbers| {
            numbers.resize(numbers.len().max(WIDTH * row), 0.0);
            let mut sources = self.sizes.sources(panel, self.pitch());
            for ((column, source), numbers) in
                sources.iter_mut().enumerate().zip(numbers.chunks_exact_mut(row))
            {
                if let Some(source) = source {
                    self.block.read(&self.bytes[*source..][..self.pitch()], numbers);
                    *source = column * row;
                } else {
                    numbers.fill(0.0);
                }
            }
            work(&numbers[..WIDTH * row], &sources);
        });
    }

    /// One panel as pairs of halves, for the engine that multiplies them.
    fn halves<'a, H: Half + Stored>(
        &self,
        engine: Engine,
        panel: usize,
        (rounded, scratch): (&mut Vec<H>, &'a mut Vec<Row<[H; 2]>>),
    ) -> &'a [Row<[H; 2]>] {
        scratch.resize(self.sizes.side * self.sizes.padded_stretch() / 2, Row([[H::ZERO; 2]; WIDTH]));
        self.decoded(panel, |values, sources| {
            rounded.resize(values.len(), H::ZERO);
            H::narrow(engine, values, 1.0, rounded);
            halves_panel(rounded, self.sizes, sources, |half| half, |line, row| scratch[line] = row);
        });
        scratch
    }
}

/// How many bands pass by a panel that was decoded.
const PATIENCE: usize = 4;

impl Lines<f32> for Blocks {
    fn count(&self) -> usize {
        self.sizes.panels()
    }

    fn largest(&self) -> f32 {
        self.largest
    }

    fn patience(&self) -> usize {
        PATIENCE
    }

    fn lines<'a>(&'a self, _: Engine, panel: usize, scratch: &'a mut Vec<Row<f32>>) -> &'a [Row<f32>] {
        scratch.resize(self.sizes.side * self.sizes.stretch(), Row([0.0; WIDTH]));
        self.decoded(panel, |values, sources| {
            exact_panel(values, self.sizes, sources, |line, row| scratch[line] = row);
        });
        scratch
    }
}

macro_rules! lines_of_halves {
    ($($half:ident)*) => {$(
        impl Lines<[$half; 2]> for Blocks {
            fn count(&self) -> usize {
                self.sizes.panels()
            }

            fn largest(&self) -> f32 {
                self.largest
            }

            fn patience(&self) -> usize {
                PATIENCE
            }

            fn lines<'a>(
                &'a self,
                engine: Engine,
                panel: usize,
                scratch: &'a mut Vec<Row<[$half; 2]>>,
            ) -> &'a [Row<[$half; 2]>] {
                thread_local!(static ROUNDED: RefCell<Vec<$half>> = const { RefCell::new(Vec::new()) });
                ROUNDED.with_borrow_mut(|rounded| self.halves(engine, panel, (rounded, scratch)))
            }
        }
    )*};
}
lines_of_halves!(bf16 f16);
