//! A convolution of 3x3 in f32 with 16 multiplications for four pixels instead of 36.
//!
//! Four neighbouring output pixels are a tile, seen through a window of 4x4. The window is transformed by additions
//! alone, the filter once at load; then every one of their 16 places is a product of its own over the channels, on the same engines and
//! panels as every other product; then the sums are transformed back to four pixels. What a task keeps between the three
//! lies in the second cache.
//!
//! # Source
//! Lavin & Gray 2015 (arXiv 1509.09308) section 4.1, F(2x2, 3x3).

use std::cell::RefCell;
use std::ops::Range;

use rayon::prelude::*;

use super::super::simd::vectorised;
use super::band::{Picture, cut};
use super::cpu::{Engine, Piece, Strip, WIDTH};
use super::finish::{Finisher, Sums, finish};
use super::job::Pass;
use super::weight::{Panels, Row};

/// Places of a transformed window.
pub(super) const PLACES: usize = 16;
/// Channels that are transformed together: one register of each place.
pub(super) const LANES: usize = 16;
/// Bytes of a task's transformed windows, about.
const BYTES: usize = 1 << 20;

/// What a thread keeps from task to task.
#[derive(Default)]
struct Scratch {
    windows: Vec<f32>,    // [16][T][I]
    strips: Vec<Strip>,   // of one place
    sums: Vec<Row<f32>>,  // [16][T] of one panel
    tiles: Vec<Row<f32>>, // [2][T][2] of one panel: pixels of the upper line, then of the lower
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// The filter `[3, 3]` of one channel and one column at its 16 places.
pub(super) fn transform_filter(filter: [f32; 9]) -> [f32; PLACES] {
    let spread = |[a, b, c]: [f64; 3]| [a, 0.5 * (a + b + c), 0.5 * (a - b + c), c];
    let filter = filter.map(f64::from);
    let columns: [_; 3] = std::array::from_fn(|x| spread([filter[x], filter[3 + x], filter[6 + x]]));
    let rows: [_; 4] = std::array::from_fn(|y| spread([columns[0][y], columns[1][y], columns[2][y]]));
    std::array::from_fn(|place| rows[place / 4][place % 4] as f32)
}

/// The convolution, with panels of `[16][I]` rows.
pub(super) fn product(
    engine: Engine,
    picture: &Picture<'_>,
    images: usize,
    panels: &Panels<f32>,
    finisher: &Finisher<'_>,
) {
    let input = picture.input;
    let part = input.div_ceil(input.div_ceil(engine.depth()));
    let pieces: Vec<_> = (0..input)
        .step_by(part)
        .map(|from| Piece { left: from, line: from, depth: part.min(input - from) })
        .collect();
    let pass = Pass { engine, step: input, pieces: &pieces, finisher };
    let count = images * tiles(picture.out[0]) * tiles(picture.out[1]);
    let most = BYTES / (PLACES * input * size_of::<f32>()) / engine.rows() * engine.rows();
    let task = most.max(engine.rows()).min(count.div_ceil(2 * rayon::current_num_threads()).max(1));
    (0..count.div_ceil(task)).into_par_iter().for_each(|index| {
        let band = index * task..count.min((index + 1) * task);
        SCRATCH.with_borrow_mut(|scratch| convolve(&pass, picture, panels, band, scratch));
    });
}

/// How many tiles cover a side.
fn tiles(pixels: usize) -> usize {
    pixels.div_ceil(2)
}

/// Some tiles with all panels.
fn convolve(
    pass: &Pass<'_>,
    picture: &Picture<'_>,
    panels: &Panels<f32>,
    band: Range<usize>,
    scratch: &mut Scratch,
) {
    let Scratch { windows, strips, sums, tiles: pixels } = scratch;
    let (count, input) = (band.len(), picture.input);
    windows.resize(windows.len().max(PLACES * count * input), 0.0);
    for (index, tile) in band.clone().enumerate() {
        transform_window(&Seen::of(picture, tile), &mut windows[index * input..], count * input, input);
    }
    strips.clear();
    cut(strips, pass.engine.rows(), Strip { left: 0, pixel: 0, rows: count, scale: 1.0 }, input);
    let pitch = strips.len() * pass.engine.rows();
    let blank = Row([0.0; WIDTH]);
    sums.resize(sums.len().max(PLACES * pitch), blank);
    pixels.resize(pixels.len().max(4 * count), blank);
    let runs = runs(picture, band);
    for panel in 0..panels.count() {
        let places = panels.panel(panel).chunks_exact(input).zip(sums.chunks_exact_mut(pitch));
        for ((place, sums), windows) in places.zip(windows.chunks_exact(count * input)) {
            pass.sums(windows, strips, place, sums);
        }
        for (index, strip) in strips.iter().enumerate() {
            for row in 0..strip.rows {
                let at = index * pass.engine.rows() + row;
                transform_sums(&sums[at..], pitch, &mut pixels[2 * (strip.pixel + row)..], 2 * count);
            }
        }
        for (first, strip) in &runs {
            finish(pass.finisher, *strip, panel..panel + 1, Sums { rows: &pixels[*first..], pitch: 0 });
        }
    }
}

/// Where a band's pixels begin among its tiles, and the strip of the output they are: a line of a row of tiles each.
fn runs(picture: &Picture<'_>, band: Range<usize>) -> Vec<(usize, Strip)> {
    let [height, width] = picture.out;
    let (down, across) = (tiles(height), tiles(width));
    let mut runs = Vec::new();
    let mut tile = band.start;
    while tile < band.end {
        let (line, column) = (tile / across, tile % across);
        let length = (across - column).min(band.end - tile);
        for low in 0..2 {
            let y = line % down * 2 + low;
            if y < height {
                let pixel = (line / down * height + y) * width + 2 * column;
                let rows = (2 * length).min(width - 2 * column);
                runs.push((
                    2 * (low * band.len() + tile - band.start),
                    Strip { left: 0, pixel, rows, scale: 1.0 },
                ));
            }
        }
        tile += length;
    }
    runs
}

/// The 4x4 pixels that a tile sees; `None` outside the picture.
pub(in crate::kernel) struct Seen<'a>([Option<&'a [f32]>; PLACES]);

impl<'a> Seen<'a> {
    fn of(picture: &Picture<'a>, tile: usize) -> Self {
        let Picture { x, stored, seen, input, .. } = *picture;
        let (down, across) = (tiles(seen[0]), tiles(seen[1]));
        let (image, top, left) = (tile / across / down, tile / across % down * 2, tile % across * 2);
        let doubled = usize::from(stored != seen);
        Self(std::array::from_fn(|place| {
            // The window begins one pixel before the tile.
            let y = (top + place / 4).checked_sub(1).filter(|&y| y < seen[0])? >> doubled;
            let column = (left + place % 4).checked_sub(1).filter(|&column| column < seen[1])? >> doubled;
            Some(&x[((image * stored[0] + y) * stored[1] + column) * input..][..input])
        }))
    }
}

type Lanes = [f32; LANES];

vectorised! {
    /// The window's channels at its 16 places, `stride` numbers from one place to the next.
    fn transform_window(window: &Seen<'_>, to: &mut [f32], stride: usize, channels: usize) {
        for from in (0..channels).step_by(LANES) {
            let mut held = [[0f32; LANES]; PLACES];
            for (held, pixel) in held.iter_mut().zip(&window.0) {
                if let Some(lanes) = pixel.and_then(|pixel| pixel[from..].first_chunk::<LANES>()) {
                    *held = *lanes;
                }
            }
            for y in 0..4 {
                spread(&mut held, [4 * y, 4 * y + 1, 4 * y + 2, 4 * y + 3]);
            }
            for x in 0..4 {
                spread(&mut held, [x, 4 + x, 8 + x, 12 + x]);
            }
            for (place, held) in held.iter().enumerate() {
                to[place * stride + from..][..LANES].copy_from_slice(held);
            }
        }
    }
}

/// Four numbers to their places: a − c, b + c, c − b, b − d.
#[inline(always)]
#[expect(clippy::inline_always, reason = "a call that is not inlined is compiled for the baseline alone")]
fn spread(held: &mut [Lanes; PLACES], [a, b, c, d]: [usize; 4]) {
    let (first, second, third, last) = (held[a], held[b], held[c], held[d]);
    held[a] = each(first, third, |first, third| first - third);
    held[b] = each(second, third, |second, third| second + third);
    held[c] = each(third, second, |third, second| third - second);
    held[d] = each(second, last, |second, last| second - last);
}

/// A function of two numbers, lane by lane.
#[inline(always)]
#[expect(clippy::inline_always, reason = "a call that is not inlined is compiled for the baseline alone")]
fn each(mut left: Lanes, right: Lanes, compute: impl Fn(f32, f32) -> f32) -> Lanes {
    left.iter_mut().zip(right).for_each(|(left, right)| *left = compute(*left, right));
    left
}

vectorised! {
    /// The sums of a tile at its 16 places, `pitch` rows apart, to two pixels of a line and two of the next.
    fn transform_sums(sums: &[Row<f32>], pitch: usize, pixels: &mut [Row<f32>], next: usize) {
        for half in [0, LANES] {
            let mut held = [[0f32; LANES]; PLACES];
            for (place, held) in held.iter_mut().enumerate() {
                held.copy_from_slice(&sums[place * pitch].0[half..][..LANES]);
            }
            let lines = [0, 1, 2, 3].map(|x| gather([&held[x], &held[4 + x], &held[8 + x], &held[12 + x]]));
            for (low, at) in [0, next].into_iter().enumerate() {
                let line = gather([&lines[0][low], &lines[1][low], &lines[2][low], &lines[3][low]]);
                pixels[at].0[half..][..LANES].copy_from_slice(&line[0]);
                pixels[at + 1].0[half..][..LANES].copy_from_slice(&line[1]);
            }
        }
    }
}

/// Four places to two pixels: a + b + c, b − c − d.
#[inline(always)]
#[expect(clippy::inline_always, reason = "a call that is not inlined is compiled for the baseline alone")]
fn gather([a, b, c, d]: [&Lanes; 4]) -> [Lanes; 2] {
    let (add, take) = (|x: f32, y: f32| x + y, |x: f32, y: f32| x - y);
    [each(each(*a, *b, add), *c, add), each(each(*b, *c, take), *d, take)]
}
