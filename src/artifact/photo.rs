//! Pictures that come in: PNG, JPEG, WebP and the first frame of a GIF, whatever the file is called.

use std::io::Cursor;

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};

use super::frames::Picture;
use crate::error::{Code, Error, Result};

/// Bytes of a file.
pub const FILE_BYTES: usize = 20 << 20;
/// Columns or rows.
const SIDE_PX: u32 = 8192;
/// Bytes that decoding may take.
const DECODED_BYTES: u64 = 256 << 20;

/// A picture as it was given: upright, eight bits a channel, and how much of each pixel is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Photo {
    /// The colours; what is transparent lies on white.
    pub picture: Picture,
    /// 0 where a pixel is transparent, 255 where it is not; `None` if all are opaque.
    pub alpha: Option<Vec<u8>>,
}

/// The formats that are read, by their first bytes.
const FORMATS: &[(&[u8], ImageFormat)] = &[
    (b"\x89PNG\r\n\x1a\n", ImageFormat::Png),
    (b"\xff\xd8", ImageFormat::Jpeg),
    (b"RIFF", ImageFormat::WebP),
    (b"GIF8", ImageFormat::Gif),
];

impl Photo {
    /// Reads a file's bytes: palettes, greys and sixteen bits become eight-bit colours, and a camera's note of how it
    /// was held is heeded.
    ///
    /// # Errors
    /// `unsupported_media_type` for anything but the four formats, `payload_too_large` and `image_too_large` above the
    /// limits, `image_corrupt` otherwise.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > FILE_BYTES {
            let message = format!("the picture's file has {} bytes; {FILE_BYTES} are read", bytes.len());
            return Err(Error::new(Code::PayloadTooLarge, message));
        }
        let Some(&(_, format)) = FORMATS.iter().find(|(magic, _)| bytes.starts_with(magic)) else {
            let message = "the file is not a PNG, JPEG, WebP or GIF";
            return Err(Error::new(Code::UnsupportedMediaType, message).hint("convert it to PNG"));
        };
        let reader = || {
            let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
            let mut limits = Limits::default();
            limits.max_image_width = Some(SIDE_PX);
            limits.max_image_height = Some(SIDE_PX);
            limits.max_alloc = Some(DECODED_BYTES);
            reader.limits(limits);
            reader
        };
        let (width, height) = reader().into_dimensions().map_err(refused)?;
        if width > SIDE_PX || height > SIDE_PX {
            let message = format!("the picture has {width}x{height} pixels; {SIDE_PX} a side are read");
            return Err(Error::new(Code::ImageTooLarge, message).hint("scale it down first"));
        }
        // A note that cannot be read turns nothing.
        let held = reader().into_decoder().and_then(|mut decoder| decoder.orientation());
        let mut image = reader().decode().map_err(refused)?;
        image.apply_orientation(held.unwrap_or(Orientation::NoTransforms));
        Self::of(&image)
    }

    fn of(image: &DynamicImage) -> Result<Self> {
        let (width, height) = (image.width(), image.height());
        if !image.color().has_alpha() {
            let picture = Picture::new(width, height, image.to_rgb8().into_raw())?;
            return Ok(Self { picture, alpha: None });
        }
        let pixels = image.to_rgba8();
        let alpha: Vec<u8> = pixels.pixels().map(|pixel| pixel.0[3]).collect();
        let on_white = |colour: u8, alpha: u8| {
            let (colour, alpha) = (u32::from(colour), u32::from(alpha));
            ((colour * alpha + 255 * (255 - alpha) + 127) / 255) as u8
        };
        let colours = pixels.pixels().flat_map(|pixel| {
            let [red, green, blue, alpha] = pixel.0;
            [red, green, blue].map(|colour| on_white(colour, alpha))
        });
        let picture = Picture::new(width, height, colours.collect())?;
        Ok(Self { picture, alpha: alpha.iter().any(|&alpha| alpha < 255).then_some(alpha) })
    }
}

/// The code of what a decoder says.
fn refused(error: ImageError) -> Error {
    match error {
        ImageError::Limits(_) => Error::new(Code::ImageTooLarge, "the picture needs more memory than it may")
            .hint("scale it down first"),
        ImageError::Unsupported(_) => {
            Error::new(Code::UnsupportedMediaType, "the picture's file is of a kind that is not read")
        }
        _ => Error::new(Code::ImageCorrupt, "the picture's file is damaged or cut off"),
    }
    .because(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::{ImageBuffer, Luma, Rgba};

    fn png(image: impl Into<DynamicImage>) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        image.into().write_to(&mut bytes, ImageFormat::Png).expect("encoded");
        bytes.into_inner()
    }

    #[test]
    fn what_is_transparent_lies_on_white_and_is_remembered() {
        let pixels = ImageBuffer::from_fn(2, 1, |x, _| Rgba([10_u8, 20, 30, if x == 0 { 0 } else { 255 }]));
        let photo = Photo::read(&png(pixels)).expect("read");
        assert_eq!(photo.picture.rgb(), [255, 255, 255, 10, 20, 30]);
        assert_eq!(photo.alpha, Some(vec![0, 255]));
        let opaque = ImageBuffer::from_pixel(2, 1, Rgba([1_u8, 2, 3, 255]));
        assert_eq!(Photo::read(&png(opaque)).expect("read").alpha, None);
    }

    #[test]
    fn sixteen_bits_of_grey_become_eight_of_each_colour() {
        let pixels = ImageBuffer::from_fn(3, 1, |x, _| Luma([[0_u16, 0x8080, 0xffff][x as usize]]));
        let photo = Photo::read(&png(pixels)).expect("read");
        assert_eq!(photo.picture.rgb(), [0, 0, 0, 128, 128, 128, 255, 255, 255]);
    }

    #[test]
    fn a_picture_held_sideways_is_set_upright() {
        let pixels = ImageBuffer::from_fn(16, 8, |x, _| image::Rgb([if x < 8 { 255_u8 } else { 0 }, 0, 0]));
        let mut jpeg = Cursor::new(Vec::new());
        DynamicImage::from(pixels).write_to(&mut jpeg, ImageFormat::Jpeg).expect("encoded");
        let jpeg = jpeg.into_inner();
        // Exif with one entry, orientation 6: the camera's right is the top.
        let exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
        let length = u16::try_from(exif.len() + 2).expect("short").to_be_bytes();
        let bytes = [&jpeg[..2], b"\xff\xe1", &length, exif, &jpeg[2..]].concat();
        let photo = Photo::read(&bytes).expect("read");
        assert_eq!((photo.picture.width(), photo.picture.height()), (8, 16));
        let red = |row: usize| photo.picture.rgb()[row * 8 * 3];
        assert!(red(0) > 200 && red(15) < 50);
    }
}
