//! Larger pictures of pictures.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::drawing::{Order, any_seed, draw, read_size};
use super::input::Given;
use super::{About, Answer, Desk, Gives, Tool};
use crate::error::{Error, Result};
use crate::event::Watch;
use crate::family::Task;
use crate::studio::Edit;

/// Makes a picture larger.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ImageUpscale {
    /// The picture: a ref to an artifact.
    #[serde(default)]
    image_artifact: Option<Map<String, Value>>,
    /// The picture in base64, in place of a ref.
    #[serde(default)]
    image_b64: Option<String>,
    /// How many times larger a side becomes.
    #[serde(default)]
    scale: Option<f64>,
    /// The size to reach, such as 2048 for the shorter side, 2048x1536, or 2x, in place of a scale.
    #[serde(default)]
    resolution: Option<String>,
    /// How soft the result is.
    #[serde(default)]
    softness: Option<f64>,
    /// The same seed gives the same picture.
    #[serde(default)]
    seed: Option<u64>,
    /// Bits that weights are kept in.
    #[serde(default)]
    quantize: Option<u32>,
    /// Whether the autoencoder works in tiles, which takes less memory.
    #[serde(default)]
    vae_tiling: Option<bool>,
    /// The model, by name.
    #[serde(default)]
    model: Option<String>,
}

impl ImageUpscale {
    /// The size that is asked for, of a picture of `size`; none if it is what the model makes.
    ///
    /// # Errors
    /// `invalid_argument` naming the argument.
    fn size(&self, size: (u32, u32)) -> Result<Option<[usize; 2]>> {
        let sides = [f64::from(size.0), f64::from(size.1)];
        let times = |scale: f64, name: &str| {
            if !(scale > 0.0 && scale <= 64.0) {
                return Err(Error::argument(name, format!("{name} {scale} is not above 0 and at most 64")));
            }
            Ok(Some(sides.map(|side| (side * scale).round() as usize)))
        };
        match (self.scale, self.resolution.as_deref().map(str::trim)) {
            (Some(_), Some(_)) => {
                Err(Error::argument("resolution", "scale is given, and resolution too; give one of them"))
            }
            (Some(scale), None) => times(scale, "scale"),
            (None, None) => Ok(None),
            (None, Some(text)) => {
                let factor = text.strip_suffix(['x', 'X']).and_then(|number| number.parse().ok());
                let shorter = text.parse::<u32>().ok().map(|side| f64::from(side) / sides[0].min(sides[1]));
                if let Some(scale) = factor.or(shorter) {
                    return times(scale, "resolution");
                }
                let named = |error| Error { param: Some("resolution".into()), ..error };
                read_size(text).map(Some).map_err(named)
            }
        }
    }

    /// Refuses what no model here heeds.
    fn refuse_unheeded(&self) -> Result<()> {
        let unheeded = [
            ("softness", self.softness.is_some()),
            ("quantize", self.quantize.is_some()),
            ("vae_tiling", self.vae_tiling.is_some()),
        ];
        match unheeded.iter().find(|(_, given)| *given) {
            Some((name, _)) => {
                Err(Error::argument(name, format!("no model here heeds {name} when it upscales")))
            }
            None => Ok(()),
        }
    }
}

impl Tool for ImageUpscale {
    const ABOUT: About = About {
        name: "vision_image_upscale",
        description: "Makes a picture larger and sharper, and returns a ref to the new one.",
        when_to_use: "When a picture is too small for its use.",
        tags: &["vision", "upscale", "image"],
        task: Some(Task::ImageUpscale),
        gives: Gives::Ref,
    };

    fn run(self, desk: &Desk, watch: &mut Watch<'_>) -> Result<Answer> {
        self.refuse_unheeded()?;
        let given =
            Given { artifact: self.image_artifact.as_ref(), b64: self.image_b64.as_deref(), path: None };
        let image = given.needed(desk, "image")?;
        let photo = image.given("image_b64")?;
        // A photo may lie on its side until its note is heeded.
        let (width, height) = photo.photo.picture.size();
        let mut order = Order::new(String::new());
        order.request.size = self.size((width as u32, height as u32))?;
        order.request.edit = Some(Edit::upscale(photo));
        order.task = Task::ImageUpscale;
        order.model.clone_from(&self.model);
        order.sources = image.source("image").into_iter().collect();
        let mut answer = draw(desk, &order, &[self.seed.unwrap_or_else(any_seed)], watch)?;
        answer.value = answer.refs().pop().unwrap_or_default();
        Ok(answer)
    }
}
