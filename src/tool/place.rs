//! Files that a tool writes besides the store: where, under which name, in which format.

use super::drawing::{Order, Target};
use super::gate::PictureFormat;
use super::{Desk, picture};
use crate::artifact::Existing;
use crate::error::{Code, Error, Result};
use crate::studio::Picture;

/// Names that are tried where the place is ours to choose.
const TRIES: usize = 1000;

/// Where the pictures of one order go.
pub(super) struct Place {
    path: Option<String>,
    format: PictureFormat,
    count: usize,
}

impl Place {
    /// The place that an order names, if it does; refused before any work if nothing could be written there.
    ///
    /// # Errors
    /// `path_denied`, `already_exists`, `file_not_found`.
    pub(super) fn read(desk: &Desk, order: &Order, count: usize) -> Result<Option<Self>> {
        let Target::File { path, format } = &order.target else { return Ok(None) };
        if !desk.rules().images.generated_image_writes_allowed {
            let error = Error::new(Code::PathDenied, "no picture may be saved as a file here");
            return Err(Error { param: Some("output_path".into()), ..error });
        }
        let place = Self { path: path.clone(), format: *format, count };
        if let Some(path) = path {
            for number in 0..count {
                desk.paths().check_output("output_path", &place.numbered(path, number), Existing::Keep)?;
            }
        }
        Ok(Some(place))
    }

    /// `fox.png` → `fox-2.png`, where there are several.
    fn numbered(&self, path: &str, number: usize) -> String {
        if self.count == 1 {
            return path.to_owned();
        }
        let at = path.rfind('.').filter(|at| !path[*at..].contains('/')).unwrap_or(path.len());
        format!("{}-{}{}", &path[..at], number + 1, &path[at..])
    }

    /// Writes one picture, and says where.
    ///
    /// # Errors
    /// What the policy and the disk say.
    pub(super) fn write(&self, desk: &Desk, number: usize, picture: &Picture) -> Result<String> {
        let bytes = match (self.format, picture.frames.pictures().first()) {
            (PictureFormat::Png, _) => picture.png(!desk.rules().private)?,
            (format, Some(pixels)) => picture::other(pixels, format)?,
            (_, None) => return Err(Error::internal("a picture without pixels")),
        };
        let write = |path: &str| desk.paths().write("output_path", path, &bytes, Existing::Keep);
        if let Some(path) = &self.path {
            return write(&self.numbered(path, number)).map(|path| path.to_string_lossy().into_owned());
        }
        let ending = match self.format {
            PictureFormat::Png => "png",
            PictureFormat::Webp => "webp",
            PictureFormat::Jpeg => "jpg",
        };
        let seed = picture.plan.seed;
        for number in 1..=TRIES {
            let name =
                if number == 1 { format!("{seed}.{ending}") } else { format!("{seed}-{number}.{ending}") };
            match write(&desk.rules().generated.join(name).to_string_lossy()) {
                Ok(path) => return Ok(path.to_string_lossy().into_owned()),
                Err(error) if error.code == Code::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(Code::AlreadyExists, format!("{TRIES} pictures have the seed {seed}"))
            .hint("give output_path"))
    }
}
