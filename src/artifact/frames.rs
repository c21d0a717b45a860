//! Pixels as bytes.

use candle_core::{DType, Device, Tensor};

use crate::error::{Code, Error, Result};

/// A still: three bytes a pixel, red first, row by row from the top.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    width: u32,
    height: u32,
    rgb: Vec<u8>,
}

impl Picture {
    /// Takes `rgb`, which must have `3 · width · height` bytes.
    ///
    /// # Errors
    /// `internal` if it has not, or if a side is nought.
    pub fn new(width: u32, height: u32, rgb: Vec<u8>) -> Result<Self> {
        let expected = u64::from(width) * u64::from(height) * 3;
        if expected == 0 || rgb.len() as u64 != expected {
            let message = format!("a picture of {width}×{height} cannot have {} bytes", rgb.len());
            return Err(Error::internal(message));
        }
        Ok(Self { width, height, rgb })
    }

    /// Columns.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Rows.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// The bytes.
    pub fn rgb(&self) -> &[u8] {
        &self.rgb
    }

    /// The numbers that a codec reads.
    ///
    /// # Shapes
    /// `[1, 3, 1, H, W]` in [-1, 1].
    ///
    /// # Errors
    /// What the tensor says.
    pub fn pixels(&self) -> Result<Tensor> {
        let numbers = self.rgb.iter().map(|&byte| f32::from(byte) / 255.0 * 2.0 - 1.0).collect();
        let shape = (1, 1, self.height as usize, self.width as usize, 3);
        let pixels = Tensor::from_vec::<_, f32>(numbers, shape, &Device::Cpu)?; // [1, 1, H, W, 3]
        Ok(pixels.permute((0, 4, 1, 2, 3))?.contiguous()?)
    }
}

impl From<Picture> for Frames {
    fn from(picture: Picture) -> Self {
        Self(vec![picture])
    }
}

/// What a job made: pictures of one size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frames(Vec<Picture>);

impl Frames {
    /// Rounds pixels to bytes: `round(255 · clamp(x/2 + 1/2, 0, 1))`, halves to even, as numpy does.
    ///
    /// A number that is none is an error: a black picture must never pass for success.
    ///
    /// # Shapes
    /// `pixels` `[B, 3, H, W]` in [-1, 1] → B pictures.
    ///
    /// # Errors
    /// `non_finite_output`, naming the picture.
    ///
    /// # Source
    /// `huggingface/diffusers@v0.42.1 src/diffusers/image_processor.py`, `denormalize` and `numpy_to_pil`, Apache-2.0.
    pub fn from_pixels(pixels: &Tensor) -> Result<Self> {
        let (batch, channels, height, width) = pixels.dims4()?;
        if channels != 3 {
            return Err(Error::internal(format!("a picture has 3 channels, not {channels}")));
        }
        let numbers = pixels.to_device(&Device::Cpu)?.to_dtype(DType::F32)?.permute((0, 2, 3, 1))?; // [B, H, W, 3]
        let numbers = numbers.flatten_all()?.to_vec1::<f32>()?;
        let (width, height) = (side(width)?, side(height)?);
        let chunk = numbers.len().checked_div(batch).unwrap_or(0).max(1);
        let picture = |(number, numbers): (usize, &[f32])| {
            let wrong = numbers.iter().filter(|number| !number.is_finite()).count();
            if wrong > 0 {
                let message =
                    format!("{wrong} of the {} numbers of picture {number} are not finite", numbers.len());
                return Err(Error::new(Code::NonFiniteOutput, message).hint("try --dtype f32"));
            }
            Picture::new(width, height, numbers.iter().map(|&number| byte(number)).collect())
        };
        numbers.chunks(chunk).enumerate().map(picture).collect::<Result<_>>().map(Self)
    }

    /// The pictures in order.
    pub fn pictures(&self) -> &[Picture] {
        &self.0
    }
}

impl IntoIterator for Frames {
    type Item = Picture;
    type IntoIter = std::vec::IntoIter<Picture>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

fn side(size: usize) -> Result<u32> {
    u32::try_from(size).map_err(|error| Error::internal("a picture is too large").because(error))
}

#[expect(clippy::cast_sign_loss, reason = "clamped to 0..=255")]
fn byte(number: f32) -> u8 {
    ((number / 2.0 + 0.5).clamp(0.0, 1.0) * 255.0).round_ties_even() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_rounded_as_numpy_rounds() {
        for (number, expected) in
            [(-1.0, 0), (1.0, 255), (-7.0, 0), (9.0, 255), (0.0, 128), (-0.5, 64), (0.5, 191)]
        {
            assert_eq!(byte(number), expected, "{number}");
        }
    }

    #[test]
    fn channels_become_bytes_of_a_pixel() {
        let red = [1.0_f32, -1.0]; // two pixels: the left one red, the right one blue
        let (green, blue) = ([-1.0_f32; 2], [-1.0_f32, 1.0]);
        let pixels = [red, green, blue, blue, green, red].concat();
        let pixels = Tensor::from_vec(pixels, (2, 3, 1, 2), &Device::Cpu).expect("a tensor");
        let frames = Frames::from_pixels(&pixels).expect("finite");
        assert_eq!(frames.pictures()[0].rgb(), [255, 0, 0, 0, 0, 255]);
        assert_eq!(frames.pictures()[1].rgb(), [0, 0, 255, 255, 0, 0]);
        assert_eq!((frames.pictures()[0].width(), frames.pictures()[0].height()), (2, 1));
        assert!(Picture::new(1, 1, vec![0; 4]).is_err());
    }

    #[test]
    fn a_number_that_is_none_is_no_picture() {
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut pixels = vec![0.0_f32; 24];
            pixels[13] = wrong;
            let pixels = Tensor::from_vec(pixels, (2, 3, 2, 2), &Device::Cpu).expect("a tensor");
            let error = Frames::from_pixels(&pixels).expect_err("must be refused");
            assert_eq!(error.code, Code::NonFiniteOutput);
            assert!(error.message.contains("picture 1"), "{error}");
        }
    }
}
