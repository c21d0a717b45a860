//! A model's files as families see them: components by name, whatever the layout on disk.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use candle_core::Tensor;

use super::contract::{Evidence, Fact};
use super::control::Control;
use crate::error::{Code, Error, Result};
use crate::weights::{
    Application, Block, Config, Embedded, Embedding, Fit, Folder, Held, Lora, Patch, Single, Weights,
};

/// The components of one model.
#[derive(Debug, Clone)]
pub struct Parts {
    layout: Layout,
    /// Files whose parts stand in place of the model's own, or where it has none; the last wins.
    others: Vec<Single>,
    told: Told,
    /// What encoders and denoisers keep their matrices in, other than the numbers of their files.
    blocks: Option<Block>,
    /// Changes to the weights, by component.
    patches: BTreeMap<&'static str, Patch>,
    /// Words that its encoders were taught.
    taught: Vec<(String, Embedding)>,
    /// Networks that steer the denoiser.
    controls: Vec<Control>,
    /// What of it is in memory.
    held: Held,
}

/// How the files lie.
#[derive(Debug, Clone)]
enum Layout {
    /// A folder in diffusers' layout, on disk or in the binary.
    Folder(Folder),
    /// One file in the layout of its authors, with a folder of configs where shapes cannot tell; weights there are
    /// not read.
    Single(Box<Single>, Option<Folder>),
    /// Configs alone, with weights that follow from a seed: benches and tests at any size.
    Synthetic(Folder, u64),
}

/// What is known of a model beyond its tensors and configs: the user's word, or a note that came with the file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Told {
    /// Which family it is; only the user says that against the files.
    pub family: Option<Fact<String>>,
    /// Which of the family it is; only the user says that against the files.
    pub variant: Option<Fact<String>>,
    /// What the network's output means: `epsilon`, `v` or `sample`.
    pub prediction: Option<Fact<String>>,
    /// Width and height when none is asked for.
    pub size: Option<Fact<[usize; 2]>>,
}

impl Told {
    /// The prediction, if it is the user's word or that of the makers' own config: no tensor is asked then.
    pub fn sure_prediction(&self) -> Option<&Fact<String>> {
        let is_sure = |fact: &&Fact<String>| matches!(fact.because, Evidence::User(_) | Evidence::Config(_));
        self.prediction.as_ref().filter(is_sure)
    }
}

impl From<Folder> for Parts {
    fn from(folder: Folder) -> Self {
        Self::of(Layout::Folder(folder))
    }
}

impl Parts {
    fn of(layout: Layout) -> Self {
        Self {
            layout,
            others: Vec::new(),
            told: Told::default(),
            blocks: None,
            patches: BTreeMap::new(),
            taught: Vec::new(),
            controls: Vec::new(),
            held: Held::default(),
        }
    }

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
            return Ok(Folder::open(path)?.into());
        }
        let file = Box::new(Single::open(path)?);
        let beside = path.with_extension("");
        let configs = match config {
            Some(folder) => Some(Folder::open(folder)?),
            None if beside.join("model_index.json").is_file() => Some(Folder::open(&beside)?),
            None => None,
        };
        Ok(Self::of(Layout::Single(file, configs)))
    }

    /// Opens the files that are part of the binary.
    ///
    /// # Errors
    /// What [`Folder::embedded`] says.
    pub fn embedded(files: Embedded) -> Result<Self> {
        Ok(Folder::embedded(files)?.into())
    }

    /// Configs whose weights are made by a formula.
    pub fn synthetic(configs: Folder, seed: u64) -> Self {
        Self::of(Layout::Synthetic(configs, seed))
    }

    /// The same with the parts of another file in place of its own, or where it has none.
    ///
    /// # Errors
    /// What [`Single::open`] says.
    pub fn with(mut self, file: &Path) -> Result<Self> {
        self.others.push(Single::open(file)?);
        Ok(self)
    }

    /// The same with what was said of it.
    #[must_use]
    pub fn told(self, told: Told) -> Self {
        Self { told, ..self }
    }

    /// What was said of it.
    pub fn what_is_told(&self) -> &Told {
        &self.told
    }

    /// The folder where configs stand, if there is one.
    pub fn configs(&self) -> Option<&Folder> {
        match &self.layout {
            Layout::Folder(folder) | Layout::Synthetic(folder, _) => Some(folder),
            Layout::Single(_, configs) => configs.as_ref(),
        }
    }

    /// A component's weights, under diffusers' and transformers' names.
    ///
    /// # Errors
    /// `model_not_downloaded` if the component is not there.
    pub fn weights(&self, component: &str) -> Result<Weights> {
        let mut weights = self.as_stored(component)?;
        if let Some(patch) = self.patches.get(component) {
            weights = weights.patched(patch.clone());
        }
        // An autoencoder weighs little, and every pixel shows what it loses.
        if let Some(block) = self.blocks.filter(|_| component != "vae") {
            weights = weights.quantised(block)?;
        }
        Ok(weights.held(&self.held, component))
    }

    /// The same model with changes of files like LoRA, one after the other, each in its strength; those that it had are
    /// gone. What each file changed and what it could not comes with it.
    ///
    /// # Errors
    /// `lora_incompatible` naming the file that does not fit.
    pub fn changed(&self, loras: &[(Lora, f64)], how: Application) -> Result<(Self, Vec<Fit>)> {
        let components = self.components();
        let texts_and_network = components.into_iter().filter(|name| *name != "vae");
        let model =
            texts_and_network.map(|name| Ok((name, self.as_stored(name)?))).collect::<Result<Vec<_>>>()?;
        let mut patches: BTreeMap<&'static str, Patch> = BTreeMap::new();
        let mut fits = Vec::with_capacity(loras.len());
        for (lora, strength) in loras {
            let fit = lora.fit(&model)?;
            for (component, _) in &model {
                patches.entry(component).or_insert_with(|| Patch::new(how)).add(component, &fit, *strength);
            }
            fits.push(fit);
        }
        Ok((Self { patches, ..self.clone() }, fits))
    }

    /// Whether files of changes change a component.
    pub fn is_changed(&self, component: &str) -> bool {
        self.patches.get(component).is_some_and(|patch| !patch.is_empty())
    }

    /// The same model where these words stand for vectors; those that it had learned are forgotten.
    ///
    /// # Errors
    /// `model_incompatible` naming the file that does not fit.
    pub fn taught(&self, words: &[(String, Embedding)]) -> Result<Self> {
        let encoders = self.components().into_iter().filter(|name| name.starts_with("text_encoder"));
        let encoders = encoders.map(|name| Ok((name, self.as_stored(name)?))).collect::<Result<Vec<_>>>()?;
        words.iter().try_for_each(|(_, embedding)| embedding.fit(&encoders))?;
        Ok(Self { taught: words.to_vec(), ..self.clone() })
    }

    /// The words that an encoder was taught, with their vectors, `[N, D]` each.
    pub fn taught_to(&self, encoder: &str) -> impl Iterator<Item = (&str, &Tensor)> {
        self.taught
            .iter()
            .filter_map(move |(word, embedding)| Some((word.as_str(), embedding.vectors(encoder)?)))
    }

    /// The same model steered by these networks and no others.
    #[must_use]
    pub fn controlled(self, controls: Vec<Control>) -> Self {
        Self { controls, ..self }
    }

    /// The networks that steer it, their matrices kept as those of the model are.
    ///
    /// # Errors
    /// What quantising says.
    pub fn controls(&self) -> Result<Vec<Control>> {
        self.controls.iter().map(|control| control.quantised(self.blocks)).collect()
    }

    fn as_stored(&self, component: &str) -> Result<Weights> {
        // Whole models are named for their encoders and autoencoders too; their denoiser is not meant.
        let others = self.others.iter().rev().filter(|_| component != "unet");
        if let Some(weights) = others.into_iter().find_map(|file| file.component(component)) {
            return Ok(weights.clone());
        }
        match &self.layout {
            Layout::Folder(folder) => folder.weights(component),
            Layout::Synthetic(_, seed) => Ok(Weights::synthetic(*seed, [])),
            Layout::Single(file, _) => file.part(component),
        }
    }

    /// The same, where encoders and denoisers keep their large matrices in blocks of this type.
    #[must_use]
    pub fn quantised(self, to: Block) -> Self {
        Self { blocks: Some(to), held: Held::default(), ..self }
    }

    /// Which of the components that decide a picture this model has.
    pub fn components(&self) -> Vec<&'static str> {
        const ALL: &[&str] = &["text_encoder", "text_encoder_2", "unet", "vae"];
        let there = |name: &&&str| match &self.layout {
            Layout::Folder(folder) | Layout::Synthetic(folder, _) => folder.component(name).is_some(),
            Layout::Single(file, _) => {
                file.component(name).is_some()
                    || self.others.iter().any(|other| other.component(name).is_some())
            }
        };
        ALL.iter().filter(there).copied().collect()
    }

    /// Whether a single file has a tensor of this name outside its parts.
    pub fn is_marked(&self, name: &str) -> bool {
        matches!(&self.layout, Layout::Single(file, _) if file.weights().inventory().has(name))
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
        match &self.layout {
            Layout::Folder(folder) | Layout::Synthetic(folder, _) => {
                format!("a folder of class `{}`", folder.class())
            }
            Layout::Single(file, _) => format!("`{}`", file.weights().label()),
        }
    }

    /// The sha256 of the weights of every component, joined where they are several files.
    ///
    /// # Errors
    /// What [`Self::weights`] says.
    pub fn digests(&self) -> Result<Vec<(String, String)>> {
        if let (Layout::Single(file, _), []) = (&self.layout, self.others.as_slice()) {
            return Ok(vec![("model".into(), file.weights().digest().into())]);
        }
        let digest = |name: &str| Ok((name.to_owned(), self.weights(name)?.digest().to_owned()));
        self.components().into_iter().map(digest).collect()
    }
}
