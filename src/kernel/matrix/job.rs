//! One product on all threads.
//!
//! A task takes a band of output pixels and a group of panels. Panel by panel, a part of the panel that fits the cache
//! stays there while the band passes by. Every sum is made in the same order whatever the tasks, so the bytes do not
//! depend on the number of threads.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use half::{bf16, f16};
use rayon::prelude::*;

use super::super::simd::vectorised;
use super::band::{Band, Picture, cut};
use super::cpu::{Block, Engine, Number, Piece, Strip, WIDTH};
use super::finish::{Finisher, Sums, finish};
use super::half::Half;
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
pub(super) struct Scratch {
    bf16: Halves<bf16>,
    f16: Halves<f16>,
    wide: Band<f32>,
    panel: Vec<Row<f32>>,
    sums: Vec<Row<f32>>,
}

/// A band of halves, and the panel that it meets, where that is made when asked.
pub(super) struct Halves<T> {
    band: Band<T>,
    panel: Vec<Row<[T; 2]>>,
}

impl<T> Default for Halves<T> {
    fn default() -> Self {
        Self { band: Band::default(), panel: Vec::new() }
    }
}

/// What of it serves numbers of this type, and the sums.
pub(super) trait Bands<T> {
    fn halves(&mut self) -> (&mut Halves<T>, &mut Vec<Row<f32>>);
}

impl Bands<bf16> for Scratch {
    fn halves(&mut self) -> (&mut Halves<bf16>, &mut Vec<Row<f32>>) {
        (&mut self.bf16, &mut self.sums)
    }
}

impl Bands<f16> for Scratch {
    fn halves(&mut self) -> (&mut Halves<f16>, &mut Vec<Row<f32>>) {
        (&mut self.f16, &mut self.sums)
    }
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
    fn of(picture: &Picture<'_>, images: usize, panels: usize, element: usize, patience: usize) -> Self {
        let pixels = images * picture.out[0] * picture.out[1];
        let units = pixels / picture.unit();
        let (bytes, pixels) = (patience * BYTES, patience * PIXELS);
        let most = (bytes / (picture.unit_elements() * element).max(1)).min(pixels / picture.unit()).max(1);
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

/// Panels as tasks ask for their lines, one at a time.
pub(super) trait Lines<T>: Sync {
    /// How many panels there are.
    fn count(&self) -> usize;

    /// The largest magnitude in all of them; asked of halves alone.
    fn largest(&self) -> f32;

    /// How many bands of the usual size pass by a panel before the next is asked for.
    fn patience(&self) -> usize {
        1
    }

    /// One panel's lines for this engine; `scratch` is room for those that are made when asked.
    fn lines<'a>(&'a self, engine: Engine, panel: usize, scratch: &'a mut Vec<Row<T>>) -> &'a [Row<T>];
}

impl<T: Sync> Lines<T> for Panels<T> {
    fn count(&self) -> usize {
        self.count()
    }

    fn largest(&self) -> f32 {
        self.largest
    }

    fn lines<'a>(&'a self, _: Engine, panel: usize, _: &'a mut Vec<Row<T>>) -> &'a [Row<T>] {
        self.panel(panel)
    }
}

/// Halves, widened by each task for an engine that takes none, so that they stay small in memory.
pub(super) struct Widened<'a, T>(pub(super) &'a Panels<[T; 2]>);

impl<T: Half> Lines<f32> for Widened<'_, T> {
    fn count(&self) -> usize {
        self.0.count()
    }

    fn largest(&self) -> f32 {
        self.0.largest
    }

    fn lines<'a>(&'a self, _: Engine, panel: usize, scratch: &'a mut Vec<Row<f32>>) -> &'a [Row<f32>] {
        let pairs = self.0.panel(panel);
        scratch.resize(2 * pairs.len(), Row([0.0; WIDTH]));
        T::split(pairs, scratch);
        scratch
    }
}

/// From the picture's numbers to a band's.
type Convert = fn(&[f32], &mut [f32]);

/// The product in f32. `stretch` is how many lines a panel has for one kernel row; `convert` takes the picture's numbers
/// into a band, `None` where they are multiplied as they are.
pub(super) fn exact(
    engine: Engine,
    picture: &Picture<'_>,
    images: usize,
    (panels, stretch): (&impl Lines<f32>, usize),
    convert: Option<Convert>,
    finisher: &Finisher<'_>,
) {
    let pieces = picture.pieces(engine.depth(), stretch, 1);
    let pass = Pass { engine, step: picture.step(), pieces: &pieces, finisher };
    Split::of(picture, images, panels.count(), size_of::<f32>(), panels.patience()).run(
        |scratch, units, group| {
            let Scratch { wide, panel: room, sums, .. } = scratch;
            let in_place = picture.is_pointwise() && convert.is_none();
            if in_place {
                wide.strips.clear();
                let run = Strip {
                    left: units.start * picture.input,
                    pixel: units.start,
                    rows: units.len(),
                    scale: 1.0,
                };
                cut(&mut wide.strips, engine.rows(), run, picture.step());
            } else {
                let convert = convert.unwrap_or(|from, to| to.copy_from_slice(from));
                wide.gather(picture, units, engine.rows(), 0, &convert);
            }
            let values = if in_place { picture.x } else { wide.values() };
            pass.blocks(&wide.strips, group, sums, |panel, sums| {
                pass.sums(values, &wide.strips, panels.lines(engine, panel, room), sums);
            });
        },
    );
}

/// The product of halves, on an engine that takes them.
pub(super) fn halved<T: Half>(
    engine: Engine,
    picture: &Picture<'_>,
    images: usize,
    panels: &impl Lines<[T; 2]>,
    sizes: Sizes,
    finisher: &Finisher<'_>,
) where
    Scratch: Bands<T>,
{
    let padded = sizes.padded_stretch();
    let step = picture.step();
    let pieces = picture.pieces(engine.depth(), padded / 2, 2);
    let slack = engine.rows() * step + padded;
    let pass = Pass { engine, step, pieces: &pieces, finisher };
    Split::of(picture, images, panels.count(), size_of::<T>(), panels.patience()).run(
        |scratch, units, group| {
            let (Halves { band, panel: room }, sums) = scratch.halves();
            let _session = engine.session();
            let most = Cell::new(0f32);
            band.gather(picture, units.clone(), engine.rows(), slack, &|from, to| {
                most.set(most.get().max(T::narrow(engine, from, 1.0, to)));
            });
            let scale = T::scale(most.get(), panels.largest());
            if scale.to_bits() != 1f32.to_bits() {
                band.gather(picture, units, engine.rows(), slack, &|from, to| {
                    T::narrow(engine, from, scale, to);
                });
                band.strips.iter_mut().for_each(|strip| strip.scale = 1.0 / scale);
            }
            pass.blocks(&band.strips, group, sums, |panel, sums| {
                pass.sums(band.values(), &band.strips, panels.lines(engine, panel, room), sums);
            });
        },
    );
}

vectorised! {
    /// Rounds to the nearest bf16, ties to even; what is not a number stays so.
    fn round_to_bf16(from: &[f32], to: &mut [f32]) {
        for (to, from) in to.iter_mut().zip(from) {
            let bits = from.to_bits();
            let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000;
            *to = if from.is_nan() { *from } else { f32::from_bits(rounded) };
        }
    }
}

/// What is the same for all tasks.
pub(super) struct Pass<'a> {
    pub(super) engine: Engine,
    pub(super) step: usize,
    pub(super) pieces: &'a [Piece],
    pub(super) finisher: &'a Finisher<'a>,
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
    pub(super) fn sums<T: Number>(
        &self,
        left: &[T],
        strips: &[Strip],
        panel: &[Row<T::Line>],
        sums: &mut [Row<f32>],
    ) {
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
