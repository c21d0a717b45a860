//! Pictures to look at: pixels for a model's eyes, facts for its mind.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::answer::Shown;
use super::{About, Answer, Desk, Gives, Tool, input, picture};
use crate::error::{Code, Error, Result};
use crate::event::Watch;
use crate::weights::sha256;

/// Bytes of a picture that is shown as it is, or described.
const BYTES: usize = 5 << 20;

/// How closely a picture is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Detail {
    #[default]
    Auto,
    High,
    Original,
}

/// Shows a picture to the model.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ViewImage {
    /// The picture: an absolute path, a path in the workspace, or `latentia://artifacts/ID`.
    path: String,
    /// How closely: auto 768 pixels a side, high 1568, original as it is.
    #[serde(default)]
    detail: Detail,
}

impl Tool for ViewImage {
    const ABOUT: About = About {
        name: "view_image",
        description: "Opens a local picture so that the model sees its pixels.",
        when_to_use: "When the pixels of a local picture matter: screenshots, charts, text, comparisons.",
        tags: &["image", "view"],
        task: None,
        gives: Gives::Facts,
    };

    fn run(self, desk: &Desk, _: &mut Watch<'_>) -> Result<Answer> {
        let image = input::at_path(desk, "path", &self.path)?;
        let side = match self.detail {
            Detail::Auto => Some(768),
            Detail::High => Some(1568),
            Detail::Original => None,
        };
        let small = side.map(|side| picture::shrunk(&image.bytes, side)).transpose()?.flatten();
        let is_smaller = small.is_some();
        let shown = if let Some(bytes) = small {
            Shown { bytes, content_type: "image/jpeg".into() }
        } else {
            // What goes to a model must be a picture to its last byte.
            picture::decode(&image.bytes)?;
            Shown { bytes: image.bytes, content_type: image.content_type.into() }
        };
        if shown.bytes.len() > BYTES {
            let message =
                format!("the picture has {} bytes; at most {BYTES} are shown as they are", shown.bytes.len());
            return Err(Error::new(Code::PayloadTooLarge, message).hint("take detail=high"));
        }
        let (width, height) = picture::size(&shown.bytes)?;
        let delivered = json!({
            "sha256": sha256(&shown.bytes),
            "content_type": shown.content_type,
            "size_bytes": shown.bytes.len(),
            "width": width,
            "height": height,
            "source_width": image.size.0,
            "source_height": image.size.1,
            "downscaled": is_smaller,
        });
        let said = format!("a picture of {width}x{height} pixels");
        Ok(Answer { shown: Some(shown), ..Answer::facts(json!({ "delivered": delivered }), said) })
    }
}

/// Says what a picture's file is.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ImageInfo {
    /// The picture: an absolute path, a path in the workspace, or `latentia://artifacts/ID`.
    path: String,
    /// Whether the file comes along as a data URL.
    #[serde(default)]
    include_base64: bool,
}

impl Tool for ImageInfo {
    const ABOUT: About = About {
        name: "image_info",
        description: "Says format, bytes and pixels of a local picture, without showing it.",
        when_to_use: "When the size or the format of a picture matters, and its pixels do not.",
        tags: &["image", "view"],
        task: None,
        gives: Gives::Facts,
    };

    fn run(self, desk: &Desk, _: &mut Watch<'_>) -> Result<Answer> {
        let image = input::at_path(desk, "path", &self.path)?;
        if image.bytes.len() > BYTES {
            let message =
                format!("the picture has {} bytes; at most {BYTES} are described", image.bytes.len());
            return Err(Error::new(Code::PayloadTooLarge, message));
        }
        let format = image.content_type.trim_start_matches("image/");
        let name = self.path.rsplit(['/', '\\']).next().unwrap_or_default();
        let (width, height) = image.size;
        let mut lines = vec![
            format!("File: {name}"),
            format!("Format: {format}"),
            format!("Size: {} bytes", image.bytes.len()),
            format!("Dimensions: {width}x{height}"),
        ];
        if self.include_base64 {
            lines.push(format!("data:{};base64,{}", image.content_type, STANDARD.encode(&image.bytes)));
        }
        let facts = json!({
            "file": name,
            "format": format,
            "size_bytes": image.bytes.len(),
            "width": width,
            "height": height,
            "sha256": sha256(&image.bytes),
        });
        Ok(Answer::facts(facts, lines.join("\n")))
    }
}
