//! One product on all threads.
//!
//! A task takes a band of output pixels and a group of panels. Panel by panel, a part of the panel that fits the cache
//! stays there while the band passes by. Every sum is made in the same order whatever the tasks, so the bytes do not
//! depend on the number of threads.

use std::cell::RefCell;
use std::ops::Range;

use half::bf16;
use rayon::prelude::*;

use super::super::simd::vectorised;
use super::band::{Band, Picture, cut};
use super::cpu::{Block, Engine, Number, Piece, Strip, WIDTH};
use super::finish::{Finisher, Sums, finish};
use super::weight::{BLOCK, Panels, Row, Sizes};

/// Output pixels of one band, about.
const PIXELS: usize = 512;
/// Bytes of one band, about: it shares the second cache with a panel.
const BYTES: usize = 640 << 10;
/// Panels whose sums are kept until they are written together.
const PANELS: usize = 8;
/// Tasks for each thread, where there are enough bands and panels.
const TASKS: usize = 4;

/// What a thread keeps from task to task.
#[derive(Default)]
struct Scratch {
    narrow: Band<bf16>,
    wide: Band<f32>,
    panel: Vec<Row<f32>>,
    sums: Vec<Row<f32>>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// How a product is cut into tasks.
struct Split {
    /// Units of all bands.
    units: usize,
    band: usize,
    bands: usize,
    panels: usize,
    group: usize,
    groups: usize,
}

impl Split {
    fn of(picture: &Picture<'_>, images: usize, panels: usize, element: usize) -> Self {
        let pixels = images * picture.out[0] * picture.out[1];
        let units = pixels / picture.unit();
        let most = (BYTES / (picture.unit_elements() * element).max(1)).min(PIXELS / picture.unit()).max(1);
        let bands = units.div_ceil(most);
        let wanted = TASKS * rayon::current_num_threads();
        let group = panels.div_ceil(wanted.div_ceil(bands).min(panels));
        Self { units, band: units.div_ceil(bands), bands, panels, group, groups: panels.div_ceil(group) }
    }

    /// Runs `work` with the units and the panels of every task.
    fn run(&self, work: impl Fn(&mut Scratch, Range<usize>, Range<usize>) + Sync) {
        (0..self.bands * self.groups).into_par_iter().for_each(|task| {
            let (band, group) = (task / self.groups * self.band, task % self.groups * self.group);
            let units = band.min(self.units)..(band + self.band).min(self.units);
            let panels = group..(group + self.group).min(self.panels);
            if !units.is_empty() {
                SCRATCH.with_borrow_mut(|scratch| work(scratch, units, panels));
            }
        });
    }
}

/// The product with f32 panels.
pub(super) fn exact(
    engine: Engine,
    picture: &Picture<'_>,
    images: usize,
    panels: &Panels<f32>,
    finisher: &Finisher<'_>,
) {
    let stretch = picture.window.size * picture.input;
    let pieces = picture.pieces(engine.depth(), stretch, 1);
    let pass = Pass { engine, step: picture.step(), pieces: &pieces, finisher };
    Split::of(picture, images, panels.count(), size_of::<f32>()).run(|scratch, units, group| {
        let Scratch { wide, sums, .. } = scratch;
        if picture.is_pointwise() {
            let mut strips = std::mem::take(&mut wide.strips);
            strips.clear();
            let run = Strip { left: units.start * picture.input, pixel: units.start, rows: units.len() };
            cut(&mut strips, engine.rows(), run, picture.step());
            pass.blocks(&strips, group, sums, |panel, sums| {
                pass.sums(picture.x, &strips, panels.panel(panel), sums);
            });
            wide.strips = strips;
        } else {
            wide.gather(picture, units, engine.rows(), 0, &|from, to| to.copy_from_slice(from));
            pass.blocks(&wide.strips, group, sums, |panel, sums| {
                pass.sums(wide.values(), &wide.strips, panels.panel(panel), sums);
            });
        }
    });
}

/// The product with bf16 panels; on an engine without bf16 each task widens its panels, so that they stay small.
pub(super) fn rounded(
    engine: Engine,
    picture: &Picture<'_>,
    images: usize,
    panels: &Panels<[bf16; 2]>,
    sizes: Sizes,
    finisher: &Finisher<'_>,
) {
    let padded = sizes.padded_stretch();
    let step = picture.step();
    if engine.takes_bf16() {
        let pieces = picture.pieces(engine.depth(), padded / 2, 2);
        let slack = engine.rows() * step + padded;
        let pass = Pass { engine, step, pieces: &pieces, finisher };
        Split::of(picture, images, panels.count(), size_of::<bf16>()).run(|scratch, units, group| {
            let Scratch { narrow, sums, .. } = scratch;
            let _session = engine.session();
            narrow.gather(picture, units, engine.rows(), slack, &|from, to| engine.narrow(from, to));
            pass.blocks(&narrow.strips, group, sums, |panel, sums| {
                pass.sums(narrow.values(), &narrow.strips, panels.panel(panel), sums);
            });
        });
        return;
    }
    let pieces = picture.pieces(engine.depth(), padded, 1);
    let pass = Pass { engine, step, pieces: &pieces, finisher };
    Split::of(picture, images, panels.count(), size_of::<f32>()).run(|scratch, units, group| {
        let Scratch { wide, panel: widened, sums, .. } = scratch;
        wide.gather(picture, units, engine.rows(), 0, &round);
        pass.blocks(&wide.strips, group, sums, |panel, sums| {
            widen(panels.panel(panel), widened);
            pass.sums(wide.values(), &wide.strips, widened, sums);
        });
    });
}

vectorised! {
    /// Rounds to the nearest bf16, ties to even; what is not a number stays so.
    fn round(from: &[f32], to: &mut [f32]) {
        for (to, from) in to.iter_mut().zip(from) {
            let bits = from.to_bits();
            let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000;
            *to = if from.is_nan() { *from } else { f32::from_bits(rounded) };
        }
    }
}

/// Pairs of bf16 to lines of f32.
fn widen(panel: &[Row<[bf16; 2]>], lines: &mut Vec<Row<f32>>) {
    lines.resize(2 * panel.len(), Row([0.0; WIDTH]));
    split(panel, &mut lines[..]);
}

vectorised! {
    /// The firsts of all pairs into one line, the seconds into the next.
    fn split(panel: &[Row<[bf16; 2]>], lines: &mut [Row<f32>]) {
        for (pair, lines) in panel.iter().zip(lines.chunks_exact_mut(2)) {
            let [even, odd] = lines else { continue };
            for ((pair, even), odd) in pair.0.iter().zip(&mut even.0).zip(&mut odd.0) {
                (*even, *odd) = (pair[0].to_f32(), pair[1].to_f32());
            }
        }
    }
}

/// What is the same for all tasks.
struct Pass<'a> {
    engine: Engine,
    step: usize,
    pieces: &'a [Piece],
    finisher: &'a Finisher<'a>,
}

impl Pass<'_> {
    /// Sums of a few panels at a time by `fill`, then their finish, so that a row is written in long runs.
    fn blocks(
        &self,
        strips: &[Strip],
        panels: Range<usize>,
        sums: &mut Vec<Row<f32>>,
        mut fill: impl FnMut(usize, &mut [Row<f32>]),
    ) {
        let rows = self.engine.rows();
        let pitch = strips.len() * rows;
        if sums.len() < PANELS * pitch {
            sums.resize(PANELS * pitch, Row([0.0; WIDTH]));
        }
        for first in panels.clone().step_by(PANELS) {
            let block = first..panels.end.min(first + PANELS);
            for (panel, sums) in block.clone().zip(sums.chunks_mut(pitch)) {
                fill(panel, sums);
            }
            for (index, strip) in strips.iter().enumerate() {
                finish(self.finisher, *strip, block.clone(), Sums { rows: &sums[index * rows..], pitch });
            }
        }
    }

    /// The sums of all strips of a band with one panel, part by part of the inner dimension.
    fn sums<T: Number>(&self, left: &[T], strips: &[Strip], panel: &[Row<T::Line>], sums: &mut [Row<f32>]) {
        let Self { engine, step, pieces, .. } = *self;
        let mut from = 0;
        while from < pieces.len() {
            let mut to = from + 1;
            let mut depth = pieces[from].depth;
            while to < pieces.len() && depth + pieces[to].depth <= engine.depth() {
                depth += pieces[to].depth;
                to += 1;
            }
            let strips = strips.chunks(engine.strips());
            for (strips, sums) in strips.zip(sums.chunks_mut(engine.strips() * engine.rows())) {
                let block = Block { left, step, strips, panel, pieces: &pieces[from..to], keep: from > 0 };
                T::sums(engine, block, sums);
            }
            from = to;
        }
    }
}

/// A stretch padded for tiles is a whole number of blocks.
const _: () = assert!(BLOCK.is_multiple_of(2));
