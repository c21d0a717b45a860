//! Pictures that steer what is drawn, as tools take them.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Desk;
use super::input::Given;
use crate::artifact::store::SourceRef;
use crate::error::{Error, Result};
use crate::studio::ControlPicture;

/// What every drawing tool takes of control networks.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[expect(clippy::struct_field_names, reason = "the names are those of the arguments")]
pub(super) struct Control {
    /// A picture to draw along, of edges, depth or a pose: a ref to an artifact.
    pub(super) control_image_artifact: Option<Map<String, Value>>,
    /// The picture to draw along in base64, in place of a ref.
    pub(super) control_image_b64: Option<String>,
    /// The picture to draw along: a path in the workspace, in place of a ref.
    pub(super) control_image_path: Option<String>,
    /// How strongly it steers; 1 without.
    #[schemars(range(min = 0.0, max = 2.0))]
    pub(super) control_strength: Option<f64>,
    /// What it shows: `canny` finds the edges of a photo first; without, it is the map that the network reads.
    pub(super) control_kind: Option<String>,
    /// The control network that reads it, by name; the only one that is installed without.
    pub(super) control_model: Option<String>,
}

impl Control {
    /// The picture that steers and where it is stored, if one is given.
    ///
    /// # Errors
    /// `invalid_argument` for what has no picture; `model_not_found` for a network that is not here; what the picture
    /// says.
    pub(super) fn read(&self, desk: &Desk) -> Result<Option<(ControlPicture, Option<SourceRef>)>> {
        let given = Given {
            artifact: self.control_image_artifact.as_ref(),
            b64: self.control_image_b64.as_deref(),
            path: self.control_image_path.as_deref(),
        };
        let Some(image) = given.image(desk, "control_image")? else {
            let alone = [
                ("control_strength", self.control_strength.is_some()),
                ("control_kind", self.control_kind.is_some()),
                ("control_model", self.control_model.is_some()),
            ];
            return match alone.iter().find(|(_, is_given)| *is_given) {
                Some((name, _)) => Err(Error::argument(name, "there is no control picture")
                    .hint("give one as control_image_artifact, control_image_b64 or control_image_path")),
                None => Ok(None),
            };
        };
        let picture = ControlPicture {
            kind: self.control_kind.clone().unwrap_or_else(|| "map".into()),
            image: image.given("control_image_b64")?,
            scale: self.control_strength.unwrap_or(1.0),
            model: desk.control_network(self.control_model.as_deref())?,
        };
        Ok(Some((picture, image.source("control"))))
    }
}
