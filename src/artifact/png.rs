//! PNG files with words in them.
//!
//! The words are what makes a picture repeatable, so they are written where every reader looks: a `tEXt` chunk where
//! Latin-1 suffices, an `iTXt` chunk where it does not, both before the pixels.

use std::io::{Cursor, ErrorKind};

use png::{ColorType, Compression, Decoder, DecodingError, Encoder, Limits};

use super::frames::Picture;
use crate::error::{Code, Error, Result};

/// The keyword of the text that AUTOMATIC1111 and its heirs read; see [`super::infotext`].
pub const PARAMETERS: &str = "parameters";

/// Bytes of a file that is read.
const FILE_BYTES: usize = 20 << 20;
/// Columns or rows of a picture that is read.
const SIDE_PX: u32 = 8192;
/// Bytes that a reader may allocate for all there is besides pixels.
const METADATA_BYTES: usize = 16 << 20;
/// Bytes of one text, unpacked.
const TEXT_BYTES: usize = 2 << 20;

/// The file of a picture, with pairs of keyword and text.
///
/// The same picture and texts give the same bytes. A NUL, which the format cannot hold, is written as U+FFFD.
///
/// # Errors
/// `internal` for a keyword that is not 1 to 79 Latin-1 characters.
pub fn encode(picture: &Picture, texts: &[(&str, &str)]) -> Result<Vec<u8>> {
    let failed = |error| Error::internal("the picture could not be encoded").because(error);
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, picture.width(), picture.height());
    encoder.set_color(ColorType::Rgb);
    encoder.set_compression(Compression::Balanced);
    for (keyword, text) in texts {
        let (keyword, text) = ((*keyword).to_owned(), text.replace('\0', "\u{fffd}"));
        if text.chars().all(|c| u8::try_from(c).is_ok()) {
            encoder.add_text_chunk(keyword, text).map_err(failed)?;
        } else {
            encoder.add_itxt_chunk(keyword, text).map_err(failed)?;
        }
    }
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(picture.rgb()).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(bytes)
}

/// All pairs of keyword and text of a file, wherever they stand in it.
///
/// # Errors
/// `unsupported_media_type` if it is no PNG, `image_too_large` above the limits, `image_corrupt` otherwise.
pub fn texts(bytes: &[u8]) -> Result<Vec<(String, String)>> {
    if !bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        return Err(Error::new(Code::UnsupportedMediaType, "the file is not a PNG"));
    }
    if bytes.len() > FILE_BYTES {
        return Err(too_large(format!("the file has {} bytes; {FILE_BYTES} are read", bytes.len())));
    }
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), Limits { bytes: METADATA_BYTES });
    let header = decoder.read_header_info().map_err(corrupt)?;
    let (width, height) = (header.width, header.height);
    if width > SIDE_PX || height > SIDE_PX {
        return Err(too_large(format!("the picture has {width}×{height} pixels; {SIDE_PX} a side are read")));
    }
    let mut reader = decoder.read_info().map_err(corrupt)?;
    reader.finish().map_err(corrupt)?;
    let info = reader.info();
    let mut texts: Vec<(String, String)> = Vec::new();
    texts.extend(
        info.uncompressed_latin1_text.iter().map(|chunk| (chunk.keyword.clone(), chunk.text.clone())),
    );
    for chunk in &info.compressed_latin1_text {
        let mut chunk = chunk.clone();
        chunk.decompress_text_with_limit(TEXT_BYTES).map_err(corrupt)?;
        texts.push((chunk.keyword.clone(), chunk.get_text().map_err(corrupt)?));
    }
    for chunk in &info.utf8_text {
        let mut chunk = chunk.clone();
        chunk.decompress_text_with_limit(TEXT_BYTES).map_err(corrupt)?;
        texts.push((chunk.keyword.clone(), chunk.get_text().map_err(corrupt)?));
    }
    Ok(texts)
}

fn too_large(message: String) -> Error {
    Error::new(Code::ImageTooLarge, message)
}

fn corrupt(error: DecodingError) -> Error {
    match error {
        DecodingError::LimitsExceeded => too_large("the file wants more memory than it may have".into()),
        DecodingError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => {
            Error::new(Code::ImageCorrupt, "the picture's file is cut off")
        }
        other => Error::new(Code::ImageCorrupt, "the picture's file is damaged").because(other),
    }
}
