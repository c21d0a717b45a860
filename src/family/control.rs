//! The files of a network that steers another by a picture.

use std::ops::Range;
use std::path::Path;

use candle_core::Tensor;

use crate::error::{Code, Error, Result};
use crate::weights::{Block, Config, Weights, control, lone_component};

/// A control network as it lies on disk: its weights, and its config if there is one.
#[derive(Debug, Clone)]
pub struct Control {
    name: String,
    config: Option<Config>,
    weights: Weights,
}

impl Control {
    /// Opens a folder with `config.json` and weights, as diffusers saves one component, or a file of weights; a config
    /// beside the file is read if it is that of a control network. A file may have the names of diffusers or those of the
    /// authors. Only headers are read.
    ///
    /// # Errors
    /// `file_not_found`, `model_not_downloaded`, and what is wrong with the files; they name the argument.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let named = |error: Error| Error { param: Some("control_model".into()), ..error };
        let (config, weights) = lone_component(path, "ControlNet").map_err(named)?;
        let weights = control(weights).map_err(named)?;
        Ok(Self { name, config, weights })
    }

    /// Its name without the path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its config, if one lies with it.
    pub fn config(&self) -> Option<&Config> {
        self.config.as_ref()
    }

    /// Its weights.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// The same with its large matrices in blocks of this type.
    ///
    /// # Errors
    /// What [`Weights::quantised`] says.
    pub(super) fn quantised(&self, to: Option<Block>) -> Result<Self> {
        let Some(block) = to else { return Ok(self.clone()) };
        Ok(Self { weights: self.weights.quantised(block)?, ..self.clone() })
    }
}

/// What a control network is shown, and how strongly it steers.
#[derive(Debug, Clone)]
pub struct Hint {
    /// The picture `[1, 3, H, W]` in [0, 1], at the size that is drawn.
    pub picture: Tensor,
    /// What is added to the network is multiplied by this.
    pub scale: f64,
    /// Whether fine layers count less than coarse ones, so that the picture is followed even without a prompt.
    pub guess: bool,
    /// The calls of the walk in which it steers, counted as [`crate::diffusion::Level::step`].
    pub calls: Range<usize>,
}

/// The refusal of a model that has no control networks.
pub(super) fn refused(variant: &str) -> Error {
    let message = format!("this model ({variant}) cannot be steered by control networks");
    Error { param: Some("control_model".into()), ..Error::new(Code::ModelUnsupported, message) }
        .hint("Stable Diffusion 1, 2 and XL can")
}
