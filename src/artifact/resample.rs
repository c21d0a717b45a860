//! Pictures in another size, and parts of them.

use super::frames::Picture;
use crate::error::{Error, Result};

/// Bits behind the point of a weight.
const BITS: u32 = 22;
/// Half-width of the window in source pixels.
const LOBES: f64 = 3.0;

/// A part of a picture, in pixels from its upper left corner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The first column.
    pub x: usize,
    /// The first row.
    pub y: usize,
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

impl Picture {
    /// The picture at another size: Lanczos windows of three lobes, weights of 22 bits, as Pillow has them,
    /// so that a network sees the bytes that it sees in diffusers.
    ///
    /// # Errors
    /// `internal` if a side is nought.
    ///
    /// # Source
    /// The arithmetic of `python-pillow/Pillow src/libImaging/Resample.c`, described in its documentation of filters.
    pub fn resized(&self, width: usize, height: usize) -> Result<Self> {
        let (from_width, from_height) = self.size();
        let bytes = resample(self.rgb(), [from_width, from_height], [width, height], 3);
        Self::sized(width, height, bytes)
    }

    /// A part of the picture.
    ///
    /// # Errors
    /// `internal` if the part is not in the picture.
    pub fn cropped(&self, region: Region) -> Result<Self> {
        let (width, height) = self.size();
        let Region { x, y, width: columns, height: rows } = region;
        if x + columns > width || y + rows > height {
            return Err(Error::internal(format!("{region:?} is not in a picture of {width}x{height}")));
        }
        let row = |row: usize| &self.rgb()[3 * (row * width + x)..3 * (row * width + x + columns)];
        Self::sized(columns, rows, (y..y + rows).flat_map(row).copied().collect())
    }

    /// Columns and rows.
    pub fn size(&self) -> (usize, usize) {
        (self.width() as usize, self.height() as usize)
    }

    /// A picture of bytes, red first.
    ///
    /// # Errors
    /// `internal` if there are not three a pixel.
    pub fn sized(width: usize, height: usize, rgb: Vec<u8>) -> Result<Self> {
        let side = |side| u32::try_from(side).map_err(|e| Error::internal("a huge picture").because(e));
        Self::new(side(width)?, side(height)?, rgb)
    }
}

/// Rows of bytes at another size; a side that stays is not touched.
///
/// Each pass rounds to bytes, so their order shows. Pillow 13 was seen to take columns first where that saves more than
/// three times the work; older ones always begin with rows.
pub(super) fn resample(bytes: &[u8], from: [usize; 2], to: [usize; 2], channels: usize) -> Vec<u8> {
    let ([width, height], [new_width, new_height]) = (from, to);
    let signed = |size: usize| size as i64;
    let spared = signed(new_width) * (signed(height) - signed(new_height));
    let spent = signed(new_height) * (signed(width) - signed(new_width));
    if new_height < height && 3 * spent < spared {
        return across(&down(bytes, from, new_height, channels), [width, new_height], new_width, channels);
    }
    down(&across(bytes, from, new_width, channels), [new_width, height], new_height, channels)
}

/// Rows of another length.
fn across(bytes: &[u8], [width, height]: [usize; 2], to: usize, channels: usize) -> Vec<u8> {
    if to == width {
        return bytes.to_vec();
    }
    let windows = windows(width, to);
    let mut wide = Vec::with_capacity(to * height * channels);
    for row in bytes.chunks_exact(width * channels) {
        for window in &windows {
            wide.extend((0..channels).map(|channel| window.sum(|at| row[at * channels + channel])));
        }
    }
    wide
}

/// Columns of another length.
fn down(bytes: &[u8], [width, height]: [usize; 2], to: usize, channels: usize) -> Vec<u8> {
    if to == height {
        return bytes.to_vec();
    }
    let stride = width * channels;
    let mut tall = Vec::with_capacity(stride * to);
    for window in &windows(height, to) {
        tall.extend((0..stride).map(|column| window.sum(|at| bytes[at * stride + column])));
    }
    tall
}

/// Which source pixels make one pixel, and how much of each.
struct Window {
    first: usize,
    weights: Vec<i64>,
}

impl Window {
    fn sum(&self, byte: impl Fn(usize) -> u8) -> u8 {
        let terms = self.weights.iter().enumerate();
        let sum: i64 = terms.map(|(i, weight)| weight * i64::from(byte(self.first + i))).sum();
        ((sum + (1 << (BITS - 1))) >> BITS).clamp(0, 255) as u8
    }
}

fn windows(from: usize, to: usize) -> Vec<Window> {
    let scale = from as f64 / to as f64;
    let stretch = scale.max(1.0);
    let reach = LOBES * stretch;
    let window = |pixel: usize| {
        let centre = (pixel as f64 + 0.5) * scale;
        let first = (centre - reach + 0.5).max(0.0) as usize;
        let end = ((centre + reach + 0.5) as usize).min(from);
        let weights: Vec<f64> =
            (first..end).map(|at| lanczos((at as f64 - centre + 0.5) / stretch)).collect();
        let whole: f64 = weights.iter().sum();
        let fixed = |weight: f64| (weight / whole * f64::from(1 << BITS)).round() as i64;
        Window { first, weights: weights.into_iter().map(fixed).collect() }
    };
    (0..to).map(window).collect()
}

fn lanczos(x: f64) -> f64 {
    let sinc = |x: f64| {
        let x = x * std::f64::consts::PI;
        if x == 0.0 { 1.0 } else { x.sin() / x }
    };
    if (-LOBES..LOBES).contains(&x) { sinc(x) * sinc(x / LOBES) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flat_picture_stays_flat_and_an_equal_size_changes_nothing() {
        let grey = Picture::new(5, 4, vec![77; 60]).expect("a picture");
        assert!(grey.resized(13, 9).expect("larger").rgb().iter().all(|&byte| byte == 77));
        let bytes: Vec<u8> = (0..60).collect();
        let ramp = Picture::new(5, 4, bytes.clone()).expect("a picture");
        assert_eq!(ramp.resized(5, 4).expect("the same").rgb(), bytes);
    }

    #[test]
    fn bytes_are_those_of_pillow() {
        // Image.frombytes("RGB", (5, 4), bytes(i * 37 % 256 for i in range(60))).resize(size, Image.LANCZOS)
        let bytes = (0..60_u32).map(|i| (i * 37 % 256) as u8).collect();
        let picture = Picture::new(5, 4, bytes).expect("a picture");
        let bytes = |width, height| picture.resized(width, height).expect("resized").rgb().to_vec();
        assert_eq!(bytes(3, 2), PILLOW_3X2);
        assert_eq!(bytes(7, 5)[..21], PILLOW_7X5_FIRST_ROW);
    }

    const PILLOW_3X2: [u8; 18] =
        [72, 115, 132, 113, 94, 134, 151, 117, 95, 151, 132, 123, 131, 148, 118, 105, 129, 129];
    const PILLOW_7X5_FIRST_ROW: [u8; 21] =
        [0, 22, 60, 40, 112, 146, 170, 118, 149, 235, 1, 38, 109, 54, 131, 105, 186, 97, 195, 245, 0];

    #[test]
    fn a_part_is_cut_out() {
        let picture = Picture::new(3, 2, (0..18).collect()).expect("a picture");
        let part = picture.cropped(Region { x: 1, y: 1, width: 2, height: 1 }).expect("inside");
        assert_eq!(part.rgb(), [12, 13, 14, 15, 16, 17]);
        assert!(picture.cropped(Region { x: 2, y: 0, width: 2, height: 1 }).is_err());
    }
}
