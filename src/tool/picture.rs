//! Pictures in other forms: the format that a file asks for, and small copies for a model's eyes.

use std::io::Cursor;

use image::codecs::jpeg::JpegEncoder;
use image::codecs::webp::WebPEncoder;
use image::imageops::FilterType;
use image::{DynamicImage, ExtendedColorType, ImageReader, Limits, RgbImage};

use super::gate::PictureFormat;
use crate::artifact;
use crate::error::{Code, Error, Result};

/// Columns or rows of a picture that is read.
const SIDE: u32 = 8192;
/// Bytes that decoding may allocate.
const MEMORY: u64 = 256 << 20;
/// Bytes of a file that is read.
pub(super) const FILE_BYTES: usize = 20 << 20;

/// The kinds of picture that are read.
const KINDS: &[(&[u8], &str)] = &[
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
];

/// What bytes are, by the first of them.
///
/// # Errors
/// `unsupported_media_type` if they are no picture that is read here; `payload_too_large`.
pub(super) fn kind(bytes: &[u8]) -> Result<&'static str> {
    if bytes.len() > FILE_BYTES {
        let message = format!("the picture's file has {} bytes, at most {FILE_BYTES} are read", bytes.len());
        return Err(Error::new(Code::PayloadTooLarge, message));
    }
    if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        return Ok("image/webp");
    }
    KINDS.iter().find(|(magic, _)| bytes.starts_with(magic)).map(|(_, kind)| *kind).ok_or_else(|| {
        Error::new(Code::UnsupportedMediaType, "this is no PNG, JPEG, WebP or GIF").hint("convert it to PNG")
    })
}

/// Columns and rows, from the header alone.
///
/// # Errors
/// As [`kind`]; `image_corrupt`.
pub(super) fn size(bytes: &[u8]) -> Result<(u32, u32)> {
    kind(bytes)?;
    let reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(unreadable)?;
    reader.into_dimensions().map_err(corrupt)
}

/// The pixels of a file, within limits of size and memory.
///
/// # Errors
/// As [`kind`]; `image_too_large`, `image_corrupt`.
pub(super) fn decode(bytes: &[u8]) -> Result<DynamicImage> {
    let (width, height) = size(bytes)?;
    if width > SIDE || height > SIDE {
        let message = format!("the picture has {width}x{height} pixels; {SIDE} a side are read");
        return Err(Error::new(Code::ImageTooLarge, message));
    }
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(unreadable)?;
    let mut limits = Limits::default();
    limits.max_image_width = Some(SIDE);
    limits.max_image_height = Some(SIDE);
    limits.max_alloc = Some(MEMORY);
    reader.limits(limits);
    reader.decode().map_err(corrupt)
}

fn unreadable(error: std::io::Error) -> Error {
    Error::new(Code::ImageCorrupt, "the picture cannot be read").because(error)
}

fn corrupt(error: image::ImageError) -> Error {
    let code = match error {
        image::ImageError::Limits(_) => Code::ImageTooLarge,
        _ => Code::ImageCorrupt,
    };
    Error::new(code, "the picture cannot be read").because(error)
}

/// A copy whose longer side has at most so many pixels, as JPEG; `None` if the picture is small enough already.
///
/// # Errors
/// As [`decode`].
pub(super) fn shrunk(bytes: &[u8], side: u32) -> Result<Option<Vec<u8>>> {
    let (width, height) = size(bytes)?;
    if width <= side && height <= side {
        return Ok(None);
    }
    jpeg(&decode(bytes)?.resize(side, side, FilterType::CatmullRom), 85).map(Some)
}

/// A small copy to look at: at most 768 pixels a side and 200 kB.
///
/// # Errors
/// `unsupported_media_type`, `image_too_large`, `image_corrupt`.
pub fn preview(bytes: &[u8]) -> Result<Vec<u8>> {
    let picture = decode(bytes)?;
    let picture = if picture.width().max(picture.height()) > 768 {
        picture.resize(768, 768, FilterType::CatmullRom)
    } else {
        picture
    };
    let mut small = Vec::new();
    for quality in [85, 60, 30] {
        small = jpeg(&picture, quality)?;
        if small.len() <= 200_000 {
            break;
        }
    }
    Ok(small)
}

fn jpeg(picture: &DynamicImage, quality: u8) -> Result<Vec<u8>> {
    let rgb = picture.to_rgb8();
    let mut bytes = Vec::new();
    JpegEncoder::new_with_quality(&mut bytes, quality)
        .encode(&rgb, rgb.width(), rgb.height(), ExtendedColorType::Rgb8)
        .map_err(|error| Error::internal("a picture could not be encoded").because(error))?;
    Ok(bytes)
}

/// A drawn picture in another format than PNG.
///
/// # Errors
/// `internal` if it cannot be encoded.
pub(super) fn other(picture: &artifact::Picture, format: PictureFormat) -> Result<Vec<u8>> {
    let failed = |error| Error::internal("a picture could not be encoded").because(error);
    let (width, height) = (picture.width(), picture.height());
    match format {
        PictureFormat::Webp => {
            let mut bytes = Vec::new();
            WebPEncoder::new_lossless(&mut bytes)
                .encode(picture.rgb(), width, height, ExtendedColorType::Rgb8)
                .map_err(failed)?;
            Ok(bytes)
        }
        PictureFormat::Jpeg => {
            let whole = RgbImage::from_raw(width, height, picture.rgb().to_vec());
            let whole = whole.ok_or_else(|| Error::internal("a picture has not the bytes of its size"))?;
            jpeg(&whole.into(), 95)
        }
        PictureFormat::Png => artifact::png::encode(picture, &[]),
    }
}
