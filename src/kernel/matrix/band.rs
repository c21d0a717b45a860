//! A band of the picture, as the engines read it.
//!
//! The rows a band needs lie padded under each other, converted once. An output pixel's taps then begin at a constant
//! step from its neighbour's, and the inner dimension walks one stretch a kernel row: the picture is never unfolded.

use std::ops::Range;

use super::cpu::{Number, Piece, Strip};
use super::window::Window;

/// The picture that is convolved, channels-last, and what of it is wanted.
#[derive(Clone, Copy)]
pub(super) struct Picture<'a> {
    /// [B, H, W, I].
    pub(super) x: &'a [f32],
    /// Rows and columns in memory.
    pub(super) stored: [usize; 2],
    /// Rows and columns the window sees: the same, or up to twice as many when every pixel is seen four times.
    pub(super) seen: [usize; 2],
    pub(super) input: usize,
    pub(super) window: Window,
    /// Rows and columns that come out.
    pub(super) out: [usize; 2],
}

/// The band's elements and where its output pixels begin.
pub(super) struct Band<T> {
    values: Vec<T>,
    /// How many of the values this band fills; the slack behind it is zero.
    filled: usize,
    pub(super) strips: Vec<Strip>,
}

impl<T> Default for Band<T> {
    fn default() -> Self {
        Self { values: Vec::new(), filled: 0, strips: Vec::new() }
    }
}

impl Picture<'_> {
    /// Whether every output pixel is a function of one input pixel in the same place.
    pub(super) fn is_pointwise(&self) -> bool {
        self.window == Window::same(1) && self.stored == self.seen
    }

    /// Output pixels that a band takes or leaves together: a line, or one where lines do not matter.
    pub(super) fn unit(&self) -> usize {
        if self.is_pointwise() { 1 } else { self.out[1] }
    }

    /// Elements that one unit adds to a band, about.
    pub(super) fn unit_elements(&self) -> usize {
        if self.is_pointwise() { self.input } else { self.line() * self.window.stride }
    }

    /// Elements from one output pixel to the next.
    pub(super) fn step(&self) -> usize {
        self.input * self.window.stride
    }

    /// Elements of one padded row.
    pub(super) fn line(&self) -> usize {
        let Window { before, after, .. } = self.window;
        if self.is_pointwise() { 0 } else { (before + self.seen[1] + after) * self.input }
    }

    /// The inner dimension in parts of at most `depth`, each within one stretch of the panel's `lines`.
    ///
    /// `per_line` is how many inner elements a line of the panel holds.
    pub(super) fn pieces(&self, depth: usize, lines: usize, per_line: usize) -> Vec<Piece> {
        let stretch = self.window.size * self.input;
        let parts = stretch.div_ceil(depth);
        let part = stretch.div_ceil(parts).next_multiple_of(super::weight::BLOCK).min(stretch);
        let mut pieces = Vec::with_capacity(self.window.size * parts);
        for ky in 0..self.window.size {
            for from in (0..stretch).step_by(part) {
                pieces.push(Piece {
                    left: ky * self.line() + from,
                    line: ky * lines + from / per_line,
                    depth: part.min(stretch - from),
                });
            }
        }
        pieces
    }
}

impl<T: Number> Band<T> {
    /// The values with the slack behind them.
    pub(super) fn values(&self) -> &[T] {
        &self.values[..]
    }

    /// Fills the band with what the output units in `units` need, and cuts their pixels into strips of `rows`.
    ///
    /// `slack` elements behind the last are zero, for engines that read whole tiles.
    pub(super) fn gather(
        &mut self,
        picture: &Picture<'_>,
        units: Range<usize>,
        rows: usize,
        slack: usize,
        convert: &dyn Fn(&[f32], &mut [T]),
    ) {
        self.filled = 0;
        self.strips.clear();
        if picture.is_pointwise() {
            let run = &picture.x[units.start * picture.input..units.end * picture.input];
            convert(run, self.grow(run.len()));
            cut(
                &mut self.strips,
                rows,
                Strip { left: 0, pixel: units.start, rows: units.len(), scale: 1.0 },
                picture.step(),
            );
        } else {
            self.gather_lines(picture, units, rows, convert);
        }
        self.grow(slack).fill(T::default());
    }

    fn gather_lines(
        &mut self,
        picture: &Picture<'_>,
        lines: Range<usize>,
        rows: usize,
        convert: &dyn Fn(&[f32], &mut [T]),
    ) {
        let [height, width] = picture.out;
        let Window { size, stride, .. } = picture.window;
        let (mut held_image, mut next) = (usize::MAX, 0); // the padded row that would come next
        for line in lines {
            let (image, row) = (line / height, line % height);
            let top = row * stride;
            if held_image != image || next < top {
                (held_image, next) = (image, top);
            }
            let left = self.filled - (next - top) * picture.line();
            while next < top + size {
                self.append(picture, image, next, convert);
                next += 1;
            }
            let run = Strip { left, pixel: line * width, rows: width, scale: 1.0 };
            cut(&mut self.strips, rows, run, picture.step());
        }
    }

    /// One padded row of an image.
    fn append(
        &mut self,
        picture: &Picture<'_>,
        image: usize,
        padded: usize,
        convert: &dyn Fn(&[f32], &mut [T]),
    ) {
        let Picture { x, stored, seen, input, window, .. } = *picture;
        let row = self.grow(picture.line());
        if padded < window.before || padded >= window.before + seen[0] {
            row.fill(T::default());
            return;
        }
        let (zeros, rest) = row.split_at_mut(window.before * input);
        let (pixels, more_zeros) = rest.split_at_mut(seen[1] * input);
        zeros.fill(T::default());
        more_zeros.fill(T::default());
        let doubled = stored != seen;
        let y = (padded - window.before) >> usize::from(doubled);
        let line = &x[(image * stored[0] + y) * stored[1] * input..][..stored[1] * input];
        if !doubled {
            convert(line, pixels);
            return;
        }
        for (pixel, twice) in line.chunks_exact(input).zip(pixels.chunks_mut(2 * input)) {
            let (first, second) = twice.split_at_mut(input);
            convert(pixel, first);
            if !second.is_empty() {
                second.copy_from_slice(first);
            }
        }
    }

    /// The next `count` elements; what they held is still there.
    fn grow(&mut self, count: usize) -> &mut [T] {
        let from = self.filled;
        self.filled += count;
        if self.values.len() < self.filled {
            self.values.resize(self.filled, T::default());
        }
        &mut self.values[from..self.filled]
    }
}

/// Cuts a run of pixels into strips of at most `rows`, none much shorter than the others.
pub(super) fn cut(strips: &mut Vec<Strip>, rows: usize, mut run: Strip, step: usize) {
    while run.rows > 0 {
        let take = if run.rows <= rows {
            run.rows
        } else if run.rows < 2 * rows {
            run.rows.div_ceil(2)
        } else {
            rows
        };
        strips.push(Strip { rows: take, ..run });
        run = Strip { left: run.left + take * step, pixel: run.pixel + take, rows: run.rows - take, ..run };
    }
}
