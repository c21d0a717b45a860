//! The edges of a picture, after Canny.

use super::frames::Picture;
use crate::error::Result;

/// A slope below this is no edge.
const LOW: i32 = 100;
/// A slope above this is one.
const HIGH: i32 = 200;

/// White edges on black: slopes by Sobel's kernels in the steepest colour, kept where they are the largest across the
/// edge, and where they are steep or hang together with steep ones.
///
/// The numbers are those with which control networks were trained: no blur, slopes as |x| + |y|, thresholds of 100 and
/// 200.
///
/// # Errors
/// `internal` if the pixels do not make a picture.
///
/// # Source
/// Canny 1986, "A Computational Approach to Edge Detection"; ties, borders and the three sectors of direction as
/// `OpenCV`'s documentation of `Canny` has them, checked against its output.
pub fn canny(picture: &Picture) -> Result<Picture> {
    let (width, height) = picture.size();
    let slopes = slopes(picture);
    let mut edge = vec![Kind::None; width * height];
    let mut steep = Vec::new();
    for y in 0..height {
        for x in 0..width {
            let at = y * width + x;
            if slopes.is_ridge(x, y) {
                edge[at] = Kind::Weak;
                if slopes.of(x, y).size > HIGH {
                    edge[at] = Kind::Strong;
                    steep.push((x, y));
                }
            }
        }
    }
    while let Some((x, y)) = steep.pop() {
        for near_y in y.saturating_sub(1)..=(y + 1).min(height - 1) {
            for near_x in x.saturating_sub(1)..=(x + 1).min(width - 1) {
                let near = &mut edge[near_y * width + near_x];
                if *near == Kind::Weak {
                    *near = Kind::Strong;
                    steep.push((near_x, near_y));
                }
            }
        }
    }
    let white = |kind: &Kind| [if *kind == Kind::Strong { 255 } else { 0 }; 3];
    Picture::sized(width, height, edge.iter().flat_map(white).collect())
}

/// What a pixel is found to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    None,
    Weak,
    Strong,
}

/// The slope at a pixel.
#[derive(Clone, Copy, Default)]
struct Slope {
    x: i32,
    y: i32,
    size: i32,
}

/// The slopes of a picture.
struct Slopes {
    width: usize,
    height: usize,
    all: Vec<Slope>,
}

impl Slopes {
    fn of(&self, x: usize, y: usize) -> Slope {
        self.all[y * self.width + x]
    }

    /// The size at a neighbour; beyond the border there is no slope.
    fn near(&self, x: usize, y: usize, [right, down]: [isize; 2]) -> i32 {
        let x = x.checked_add_signed(right).filter(|x| *x < self.width);
        let y = y.checked_add_signed(down).filter(|y| *y < self.height);
        x.zip(y).map_or(0, |(x, y)| self.of(x, y).size)
    }

    /// Whether a slope above the lower threshold is the largest across the edge, one of two equal ones being enough where
    /// the edge is upright or level.
    fn is_ridge(&self, x: usize, y: usize) -> bool {
        /// tan 22.5° in units of 2⁻¹⁵.
        const TANGENT: i64 = 13_573;
        let slope = self.of(x, y);
        if slope.size <= LOW {
            return false;
        }
        let (across, down) = (i64::from(slope.x.abs()), i64::from(slope.y.abs()) << 15);
        let flat = across * TANGENT; // tan 22.5°
        let near = |step| self.near(x, y, step);
        if down < flat {
            slope.size > near([-1, 0]) && slope.size >= near([1, 0])
        } else if down > flat + (across << 16) {
            // tan 67.5° = tan 22.5° + 2
            slope.size > near([0, -1]) && slope.size >= near([0, 1])
        } else {
            let side = if (slope.x ^ slope.y) < 0 { -1 } else { 1 };
            slope.size > near([-side, -1]) && slope.size > near([side, 1])
        }
    }
}

/// Sobel's slopes, of the colour in which they are steepest; pixels at the border are repeated beyond it.
fn slopes(picture: &Picture) -> Slopes {
    let (width, height) = picture.size();
    let rgb = picture.rgb();
    let mut all = vec![Slope::default(); width * height];
    for y in 0..height {
        let rows = [y.saturating_sub(1), y, (y + 1).min(height - 1)];
        for x in 0..width {
            let columns = [x.saturating_sub(1), x, (x + 1).min(width - 1)];
            let mut steepest = Slope::default();
            for colour in 0..3 {
                let at = |row: usize, column: usize| {
                    i32::from(rgb[3 * (rows[row] * width + columns[column]) + colour])
                };
                let across = |row: usize| at(row, 2) - at(row, 0);
                let down = |column: usize| at(2, column) - at(0, column);
                let (x, y) = (across(0) + 2 * across(1) + across(2), down(0) + 2 * down(1) + down(2));
                let size = x.abs() + y.abs();
                if size > steepest.size {
                    steepest = Slope { x, y, size };
                }
            }
            all[y * width + x] = steepest;
        }
    }
    Slopes { width, height, all }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_square_has_an_outline_and_grey_has_none() {
        let side = 12;
        let inside = |x: usize, y: usize| (4..8).contains(&x) && (4..8).contains(&y);
        let rgb = (0..side * side).flat_map(|at| [if inside(at % side, at / side) { 255 } else { 0 }; 3]);
        let square = Picture::sized(side, side, rgb.collect()).expect("a picture");
        let edges = canny(&square).expect("edges");
        let white = |x: usize, y: usize| edges.rgb()[3 * (y * side + x)] == 255;
        assert!(white(4, 5) || white(3, 5), "the left side");
        assert!(!white(1, 1) && !white(6, 6) && !white(10, 6), "neither outside nor inside");
        let grey = Picture::sized(side, side, vec![90; 3 * side * side]).expect("a picture");
        assert!(canny(&grey).expect("edges").rgb().iter().all(|&byte| byte == 0));
    }
}
