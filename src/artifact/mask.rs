//! Where a picture may change.

use super::photo::Photo;
use super::resample::{Region, resample};

/// The lightness from which a pixel of a mask is open.
const OPEN: u8 = 128;

/// One answer a pixel: whether it may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mask {
    width: usize,
    height: usize,
    open: Vec<bool>,
}

impl Mask {
    /// Reads a mask: where a picture has transparent pixels, those are open; else the white ones.
    ///
    /// # Source
    /// White repaints in diffusers and web UIs, alpha 0 in `OpenAI`'s image edits.
    pub fn of(photo: &Photo) -> Self {
        let (width, height) = photo.picture.size();
        let open = match &photo.alpha {
            Some(alpha) => alpha.iter().map(|&alpha| alpha < OPEN).collect(),
            None => photo.picture.rgb().chunks_exact(3).map(|pixel| lightness(pixel) >= OPEN).collect(),
        };
        Self { width, height, open }
    }

    /// A mask that is shut everywhere but outside of `kept`.
    pub fn around(width: usize, height: usize, kept: Region) -> Self {
        let inside = |at: usize| {
            let (x, y) = (at % width, at / width);
            (kept.x..kept.x + kept.width).contains(&x) && (kept.y..kept.y + kept.height).contains(&y)
        };
        Self { width, height, open: (0..width * height).map(|at| !inside(at)).collect() }
    }

    /// Columns and rows.
    pub fn size(&self) -> (usize, usize) {
        (self.width, self.height)
    }

    /// Whether a pixel may change, row by row.
    pub fn open(&self) -> &[bool] {
        &self.open
    }

    /// Opens what `other`, laid with its corner at `x`, `y`, opens.
    #[must_use]
    pub fn with(mut self, other: &Self, x: usize, y: usize) -> Self {
        for (row, line) in other.open.chunks_exact(other.width).enumerate() {
            let start = (y + row) * self.width + x;
            for (own, open) in self.open[start..start + other.width].iter_mut().zip(line) {
                *own |= open;
            }
        }
        self
    }

    /// Opens every pixel that is at most so many pixels from an open one.
    #[must_use]
    pub fn grown(mut self, pixels: usize) -> Self {
        if pixels > 0 {
            let reach = pixels as f32;
            let away = self.distance(true);
            self.open.iter_mut().zip(away).for_each(|(open, away)| *open |= away <= reach);
        }
        self
    }

    /// How much of each pixel is new: 0 outside; inside, a ramp of `pixels` from the edge, then 1.
    ///
    /// The ramp lies inside the mask, so that what is outside keeps its bytes.
    pub fn feathered(&self, pixels: usize) -> Vec<f32> {
        if pixels == 0 {
            return self.open.iter().map(|&open| f32::from(u8::from(open))).collect();
        }
        let ramp = pixels as f32 + 1.0;
        self.distance(false).into_iter().map(|inside| (inside / ramp).min(1.0)).collect()
    }

    /// The smallest region with every open pixel.
    pub fn bounds(&self) -> Option<Region> {
        let rows: Vec<bool> = self.open.chunks_exact(self.width).map(|row| row.contains(&true)).collect();
        let first = |row: &[bool]| row.iter().position(|&open| open);
        let last = |row: &[bool]| row.iter().rposition(|&open| open);
        let (top, bottom) = (first(&rows)?, last(&rows)?);
        let lines = || self.open[top * self.width..(bottom + 1) * self.width].chunks_exact(self.width);
        let (left, right) = (lines().filter_map(first).min()?, lines().filter_map(last).max()?);
        Some(Region { x: left, y: top, width: right + 1 - left, height: bottom + 1 - top })
    }

    /// A part of the mask at another size, as a mask again.
    #[must_use]
    pub fn cut(&self, region: Region, width: usize, height: usize) -> Self {
        let row = |row: usize| &self.open[row * self.width + region.x..][..region.width];
        let bytes: Vec<u8> = (region.y..region.y + region.height)
            .flat_map(row)
            .map(|&open| if open { 255 } else { 0 })
            .collect();
        let bytes = resample(&bytes, [region.width, region.height], [width, height], 1);
        Self { width, height, open: bytes.into_iter().map(|byte| byte >= OPEN).collect() }
    }

    /// Every `factor`-th pixel of every `factor`-th row, as torch's nearest interpolation takes them: 1 where open.
    pub fn coarse(&self, factor: usize) -> Vec<f32> {
        let rows = self.open.chunks_exact(self.width).step_by(factor);
        rows.flat_map(|row| row.iter().step_by(factor)).map(|&open| f32::from(u8::from(open))).collect()
    }

    /// How far each pixel is from the nearest that is open, or shut: steps of 1 and √2, in two sweeps.
    ///
    /// # Source
    /// Borgefors 1986, "Distance transformations in digital images".
    fn distance(&self, to_open: bool) -> Vec<f32> {
        const DIAGONAL: f32 = std::f32::consts::SQRT_2;
        let (width, height) = (self.width as isize, self.height as isize);
        let mut far: Vec<f32> =
            self.open.iter().map(|&open| if open == to_open { 0.0 } else { f32::INFINITY }).collect();
        let forward = [(-1, 0, 1.0), (-1, -1, DIAGONAL), (0, -1, 1.0), (1, -1, DIAGONAL)];
        let mut sweep = |at: isize, sign: isize| {
            let (x, y) = (at % width, at / width);
            let mut best = far[at as usize];
            for (dx, dy, step) in forward {
                let (x, y) = (x + sign * dx, y + sign * dy);
                if (0..width).contains(&x) && (0..height).contains(&y) {
                    best = best.min(far[(y * width + x) as usize] + step);
                }
            }
            far[at as usize] = best;
        };
        (0..width * height).for_each(|at| sweep(at, 1));
        (0..width * height).rev().for_each(|at| sweep(at, -1));
        far
    }
}

/// The lightness of a pixel, with the weights of ITU-R BT.601 as Pillow rounds them.
fn lightness(pixel: &[u8]) -> u8 {
    let [red, green, blue] = [pixel[0], pixel[1], pixel[2]].map(u32::from);
    ((red * 19_595 + green * 38_470 + blue * 7_471 + 0x8000) >> 16) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifact::Picture;

    fn mask(rows: &[&str]) -> Mask {
        let (width, height) = (rows[0].len(), rows.len());
        Mask { width, height, open: rows.concat().bytes().map(|byte| byte == b'#').collect() }
    }

    #[test]
    fn both_conventions_open_the_same_pixels() {
        let white = Photo {
            picture: Picture::new(2, 1, vec![255, 255, 255, 0, 0, 0]).expect("a picture"),
            alpha: None,
        };
        let clear = Photo {
            picture: Picture::new(2, 1, vec![255, 255, 255, 9, 9, 9]).expect("a picture"),
            alpha: Some(vec![0, 255]),
        };
        assert_eq!(Mask::of(&white).open(), [true, false]);
        assert_eq!(Mask::of(&white), Mask::of(&clear));
    }

    #[test]
    fn a_mask_grows_to_all_sides_and_no_further() {
        let grown = mask(&[".....", ".....", "..#..", ".....", "....."]).grown(1);
        assert_eq!(grown, mask(&[".....", "..#..", ".###.", "..#..", "....."]));
    }

    #[test]
    fn a_feather_lies_inside() {
        let weights = mask(&[".####."]).feathered(1);
        assert_eq!(weights, [0.0, 0.5, 1.0, 1.0, 0.5, 0.0]);
        assert_eq!(mask(&["##"]).feathered(3), [1.0, 1.0]);
        assert_eq!(mask(&["#."]).feathered(0), [1.0, 0.0]);
    }

    #[test]
    fn bounds_are_tight_and_absent_where_nothing_is_open() {
        let found = mask(&["....", ".#..", "..#."]).bounds();
        assert_eq!(found, Some(Region { x: 1, y: 1, width: 2, height: 2 }));
        assert_eq!(mask(&["..", ".."]).bounds(), None);
    }

    #[test]
    fn margins_are_open_and_masks_add_up() {
        let kept = Region { x: 1, y: 0, width: 2, height: 1 };
        let around = Mask::around(4, 1, kept);
        assert_eq!(around, mask(&["#..#"]));
        assert_eq!(around.with(&mask(&[".#"]), 1, 0), mask(&["#.##"]));
    }
}
