//! The arguments for pictures that steer.

use std::path::PathBuf;

use clap::Args;

use crate::error::{Error, Result};
use crate::studio::{CONTROL_KINDS, ControlPicture, Given};

/// Pictures that steer, each through a control network.
#[derive(Debug, Args)]
#[command(next_help_heading = "Control networks")]
pub(super) struct ControlArgs {
    #[arg(
        long = "control",
        value_name = "KIND=PICTURE[:SCALE]",
        value_parser = read_control,
        help = format!("A picture to draw along, and how strongly, 0 to 2; may be repeated. Of canny the edges are found \
            first; else the picture is the map: {}", CONTROL_KINDS.join(", "))
    )]
    controls: Vec<Asked>,
    /// The control network of a picture: a folder, a .safetensors file, or the name of an installed one; one a --control.
    #[arg(long = "control-model", value_name = "MODEL", requires = "controls")]
    models: Vec<String>,
    /// Follows the pictures even where the prompt says nothing.
    #[arg(long = "control-guess", requires = "controls", conflicts_with = "from")]
    pub(super) guess: bool,
    /// The part of the steps in which the pictures steer, as shares of all. [default: 0,1]
    #[arg(long = "control-window", value_name = "FROM,TO", value_parser = read_window, requires = "controls",
        conflicts_with = "from", allow_hyphen_values = true)]
    pub(super) window: Option<[f64; 2]>,
}

/// One picture that steers, as it is typed.
#[derive(Debug, Clone, PartialEq)]
struct Asked {
    kind: String,
    picture: PathBuf,
    scale: f64,
}

impl ControlArgs {
    /// The pictures with their networks.
    ///
    /// # Errors
    /// `invalid_argument` unless there is a network a picture; what reading the pictures says.
    pub(super) fn pictures(&self) -> Result<Vec<ControlPicture>> {
        let (controls, models) = (self.controls.len(), self.models.len());
        if controls != models {
            let message = format!("{controls} control pictures and {models} control networks");
            return Err(Error::argument("control_model", message)
                .hint("name one with --control-model for each --control, in the same order"));
        }
        let picture = |(asked, model): (&Asked, &String)| {
            let image = Given::open(&asked.picture)
                .map_err(|error| Error { param: Some("control".into()), ..error })?;
            Ok(ControlPicture { kind: asked.kind.clone(), image, scale: asked.scale, model: model.clone() })
        };
        self.controls.iter().zip(&self.models).map(picture).collect()
    }
}

/// `canny=photo.png` or `canny=photo.png:0.8`; what stands behind the last colon is a scale if it is a number.
fn read_control(text: &str) -> std::result::Result<Asked, String> {
    let wrong = || format!("{text:?} is not KIND=PICTURE or KIND=PICTURE:SCALE");
    let (kind, rest) = text.split_once('=').ok_or_else(wrong)?;
    let split = rest.rsplit_once(':').and_then(|(file, scale)| Some((file, scale.parse::<f64>().ok()?)));
    let (picture, scale) = split.unwrap_or((rest, 1.0));
    if kind.is_empty() || picture.is_empty() {
        return Err(wrong());
    }
    Ok(Asked { kind: kind.into(), picture: picture.into(), scale })
}

/// `0.2,0.7`.
fn read_window(text: &str) -> std::result::Result<[f64; 2], String> {
    let share = |text: &str| text.trim().parse::<f64>().ok();
    let shares = text.split_once(',').and_then(|(from, to)| Some([share(from)?, share(to)?]));
    shares.ok_or_else(|| format!("{text:?} is not FROM,TO, such as 0,0.7"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_are_read_as_people_write_them() {
        let asked = |picture: &str, scale| Asked { kind: "canny".into(), picture: picture.into(), scale };
        assert_eq!(read_control("canny=a.png"), Ok(asked("a.png", 1.0)));
        assert_eq!(read_control("canny=a.png:0.5"), Ok(asked("a.png", 0.5)));
        assert_eq!(read_control("canny=C:a.png"), Ok(asked("C:a.png", 1.0)));
        for wrong in ["a.png", "=a.png", "canny=", "canny=:1"] {
            assert!(read_control(wrong).is_err(), "{wrong}");
        }
        assert_eq!(read_window("0.2, 0.7"), Ok([0.2, 0.7]));
        assert!(read_window("0.2").is_err());
    }
}
