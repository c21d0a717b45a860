//! What bytes are, when nobody says: their kind, and how large a picture is.

/// What the first bytes tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Media {
    /// Such as `image/png`.
    pub(super) content_type: String,
    /// Columns and rows of a picture.
    pub(super) size: Option<(u32, u32)>,
}

/// Looks at the first bytes; what is not known is a stream of bytes.
pub(super) fn look(bytes: &[u8]) -> Media {
    let content_type = infer::get(bytes).map_or("application/octet-stream", |kind| kind.mime_type());
    let size = content_type.starts_with("image/").then(|| imagesize::blob_size(bytes).ok()).flatten();
    let side = |pixels: usize| u32::try_from(pixels).ok().filter(|&pixels| pixels > 0);
    let size = size.and_then(|size| Some((side(size.width)?, side(size.height)?)));
    Media { content_type: content_type.to_owned(), size }
}

/// Endings of names by kind, as AbstractVision's store has them; all else is `.bin`.
const ENDINGS: &[(&str, &str)] = &[
    ("image/png", "png"),
    ("image/jpeg", "jpg"),
    ("image/webp", "webp"),
    ("image/gif", "gif"),
    ("video/mp4", "mp4"),
    ("video/webm", "webm"),
];

/// The ending of a name for this kind of content.
pub(super) fn ending(content_type: &str) -> &'static str {
    let kind = content_type.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    ENDINGS.iter().find(|(name, _)| *name == kind).map_or("bin", |(_, ending)| ending)
}

/// Every ending.
pub(super) fn endings() -> impl Iterator<Item = &'static str> {
    ENDINGS.iter().map(|(_, ending)| *ending).chain(["bin"])
}

/// A name as one harmless component: no folders, no marks that a header, a shell or a reader's eye trips over.
///
/// `None` if nothing is left.
pub fn safe_name(name: &str) -> Option<String> {
    const BYTES: usize = 120;
    let last = name.rsplit(['/', '\\']).next().unwrap_or("");
    let harmless = |c: &char| {
        let invisible = matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}');
        !c.is_control() && !invisible && !r#"<>:"|?*;"#.contains(*c)
    };
    let kept: String = last.chars().filter(harmless).collect();
    let kept = kept.trim_matches(['.', ' ', '-', '~']);
    // The ending is worth more than the middle.
    let (stem, ending) = kept.rsplit_once('.').filter(|(_, ending)| ending.len() <= 8).unwrap_or((kept, ""));
    let mut safe = stem.trim_end().to_owned();
    while safe.len() + ending.len() > BYTES {
        safe.pop();
    }
    if !ending.is_empty() && !safe.is_empty() {
        safe = format!("{safe}.{ending}");
    }
    (!safe.is_empty()).then_some(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_follow_the_table() {
        for (kind, expected) in [
            ("image/png", "png"),
            ("IMAGE/JPEG; q=1", "jpg"),
            ("text/html", "bin"),
            ("", "bin"),
            ("video/mp4", "mp4"),
        ] {
            assert_eq!(ending(kind), expected, "{kind}");
        }
    }

    #[test]
    fn a_name_is_one_harmless_component() {
        for (name, safe) in [
            ("fox.png", Some("fox.png")),
            ("../../x\r\nSet-Cookie: a=b\"; .png", Some("xSet-Cookie a=b.png")),
            ("..\\..\\boot.ini", Some("boot.ini")),
            ("pic\u{202e}gnp.exe", Some("picgnp.exe")),
            ("...", None),
            ("a/b/", None),
            ("猫.webp", Some("猫.webp")),
        ] {
            assert_eq!(safe_name(name).as_deref(), safe, "{name:?}");
        }
        let long = safe_name(&format!("{}.png", "ü".repeat(500))).expect("a name");
        assert!(long.len() <= 124 && long.contains("ü.png"), "{long}");
    }

    #[test]
    fn bytes_without_a_record_are_sniffed() {
        let gif = b"GIF89a\x03\x00\x05\x00\x00\x00\x00;";
        assert_eq!(look(gif), Media { content_type: "image/gif".into(), size: Some((3, 5)) });
        assert_eq!(look(b"").content_type, "application/octet-stream");
    }
}
