//! A model's files as families see them: components by name, whatever the layout on disk.

use std::borrow::Cow;
use std::path::Path;

use crate::error::{Code, Error, Result};
use crate::weights::{Config, Embedded, Folder, Single, Weights};

/// The components of one model.
#[derive(Debug, Clone)]
pub enum Parts {
    /// A folder in diffusers' layout, on disk or in the binary.
    Folder(Folder),
    /// One file in the layout of CompVis and Stability, with a folder of configs where shapes cannot tell.
    Single {
        /// The file.
        file: Box<Single>,
        /// `model_index.json` and the components' configs; weights there are not read.
        configs: Option<Folder>,
    },
    /// Configs alone, with weights made by a formula: benches and tests at any size.
    Synthetic {
        /// `model_index.json` and the components' configs.
        configs: Folder,
        /// What the weights follow from.
        seed: u64,
    },
}

impl Parts {
    /// Opens a folder or a file, headers and configs only.
    ///
    /// For a file, `config` is a folder of configs; without it, a folder beside the file that has its name without
    /// the ending is taken.
    ///
    /// # Errors
    /// What [`Folder::open`] and [`Single::open`] say; `invalid_argument` for `config` with a folder.
    pub fn open(path: &Path, config: Option<&Path>) -> Result<Self> {
        if path.is_dir() {
            if config.is_some() {
                return Err(Error::argument("config", "a model folder brings its own configs")
                    .hint("give --config with a single file only"));
            }
            return Ok(Self::Folder(Folder::open(path)?));
        }
        let file = Box::new(Single::open(path)?);
        let beside = path.with_extension("");
        let configs = match config {
            Some(folder) => Some(Folder::open(folder)?),
            None if beside.join("model_index.json").is_file() => Some(Folder::open(&beside)?),
            None => None,
        };
        Ok(Self::Single { file, configs })
    }

    /// Opens the files that are part of the binary.
    ///
    /// # Errors
    /// What [`Folder::embedded`] says.
    pub fn embedded(files: Embedded) -> Result<Self> {
        Ok(Self::Folder(Folder::embedded(files)?))
    }

    /// Configs whose weights are made by a formula.
    pub fn synthetic(configs: Folder, seed: u64) -> Self {
        Self::Synthetic { configs, seed }
    }

    /// The folder where configs stand, if there is one.
    pub fn configs(&self) -> Option<&Folder> {
        match self {
            Self::Folder(folder) => Some(folder),
            Self::Single { configs, .. } => configs.as_ref(),
            Self::Synthetic { configs, .. } => Some(configs),
        }
    }

    /// A component's weights, under diffusers' and transformers' names.
    ///
    /// # Errors
    /// `model_not_downloaded` if the component is not there.
    pub fn weights(&self, component: &str) -> Result<Weights> {
        match self {
            Self::Folder(folder) => folder.weights(component),
            Self::Synthetic { seed, .. } => Ok(Weights::synthetic(*seed, [])),
            Self::Single { file, .. } => match component {
                "unet" => file.unet(),
                "vae" => file.vae(),
                "text_encoder" => file.text_encoder(),
                _ => Err(Error::new(
                    Code::ModelNotDownloaded,
                    format!("`{}` has no component `{component}`", file.weights().label()),
                )),
            },
        }
    }

    /// A small file of a component, if it is there.
    ///
    /// # Errors
    /// What [`Folder::file`] says, except that it is not there.
    pub fn file(&self, component: &str, name: &str) -> Result<Option<Cow<'static, [u8]>>> {
        let Some(folder) = self.configs() else { return Ok(None) };
        match folder.file(component, name) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.code == Code::FileNotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A component's config, if there are configs.
    ///
    /// # Errors
    /// What [`Folder::config`] says.
    pub fn config(&self, component: &str) -> Result<Option<Config>> {
        self.configs().map(|folder| folder.config(component)).transpose()
    }

    /// What to call the files in a message.
    pub fn describe(&self) -> String {
        match self {
            Self::Folder(folder) | Self::Synthetic { configs: folder, .. } => {
                format!("a folder of class `{}`", folder.class())
            }
            Self::Single { file, .. } => format!("`{}`", file.weights().label()),
        }
    }

    /// The sha256 of the weights of these components, joined where they are several files.
    ///
    /// # Errors
    /// What [`Self::weights`] says.
    pub fn digests(&self, components: &[&str]) -> Result<Vec<(String, String)>> {
        if let Self::Single { file, .. } = self {
            return Ok(vec![("model".into(), file.weights().digest().into())]);
        }
        let digest = |name: &&str| Ok((String::from(*name), self.weights(name)?.digest().to_owned()));
        components.iter().map(digest).collect()
    }
}
