//! A model with its parts in slots: opened when a phase begins, gone when it ends.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use candle_core::{DType, Device};
use serde::{Deserialize, Serialize};

use super::Slot;
use super::plan::Engine;
use super::taught::Taught;
use crate::codec::Codec;
use crate::error::{Code, Error, Result};
use crate::event::Watch;
use crate::family::{Card, Conditioner, Control, Denoiser, Needs, Parts, Place, Variant, recognise};
use crate::registry::kept_on_cpu;
use crate::weights::{Application, Block, Embedding, Lora};

/// A recognised model, nothing of it loaded yet.
pub struct Model {
    /// What reads the prompt.
    pub text: Slot<dyn Conditioner>,
    /// What takes noise away.
    pub network: Slot<dyn Denoiser>,
    /// What makes pixels of latents.
    pub codec: Slot<dyn Codec>,
    /// Another model that ends what this one begins.
    pub refiner: Option<Box<Model>>,
    variant: Arc<dyn Variant>,
    parts: Arc<Parts>,
    /// The same with the changes that it wears.
    changed: Arc<Parts>,
    place: Place,
    engine: Engine,
    digests: Digests,
    worn: Vec<Worn>,
    applied: Application,
    learned: Vec<Taught>,
    /// Whether its parts stay when a job is done.
    pub(super) keeps: bool,
    /// The sha256 of the control networks that steer it.
    steered: Vec<String>,
}

/// A file of changes that a model wears.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Worn {
    /// The file's name.
    pub name: String,
    /// Its sha256.
    pub sha256: String,
    /// In which strength.
    pub scale: f64,
}

/// The parts of a model once more, computed in f32.
pub struct Exact {
    /// As [`Model::text`].
    pub text: Slot<dyn Conditioner>,
    /// As [`Model::network`].
    pub network: Slot<dyn Denoiser>,
    /// As [`Model::codec`].
    pub codec: Slot<dyn Codec>,
}

/// The two parts that files of changes may change.
fn heard(
    parts: &Arc<Parts>,
    variant: &Arc<dyn Variant>,
    at: &Place,
) -> (Slot<dyn Conditioner>, Slot<dyn Denoiser>) {
    let part = || (Arc::clone(parts), Arc::clone(variant), at.clone());
    let (text, network) = (part(), part());
    let conditioner = Slot::new(move || text.1.conditioner(&text.0, &text.2));
    (conditioner, Slot::new(move || network.1.denoiser(&network.0, &network.2)))
}

/// The part that they may not.
fn seen(parts: &Arc<Parts>, variant: &Arc<dyn Variant>, at: &Place) -> Slot<dyn Codec> {
    let codec = (Arc::clone(parts), Arc::clone(variant), at.clone());
    Slot::new(move || codec.1.codec(&codec.0, &codec.2))
}

/// The weights' digests, computed while the network works.
enum Digests {
    Unasked,
    Running(JoinHandle<Result<BTreeMap<String, String>>>),
    Known(BTreeMap<String, String>),
}

/// The devices a model can be asked to run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceClass {
    /// The processor.
    #[default]
    Cpu,
    /// The first NVIDIA device.
    Cuda,
    /// Apple's device.
    Metal,
}

impl DeviceClass {
    /// Its name on the command line and in recipes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::Metal => "metal",
        }
    }

    fn open(self) -> Result<Device> {
        let device = match self {
            Self::Cpu => Ok(Device::Cpu),
            Self::Cuda => Device::new_cuda(0),
            Self::Metal => Device::new_metal(0),
        };
        device.map_err(|error| {
            Error::new(Code::DeviceUnavailable, format!("the device {} cannot be used", self.name()))
                .because(error)
                .hint(format!(
                    "take --device cpu, or a build with --features {} on a machine that has one",
                    self.name()
                ))
        })
    }
}

/// How weights are kept in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// The fastest that no eye tells from f32: f16 or bf16 for large networks on processors that gain by it, else f32;
    /// on other devices the half precision of the file.
    #[default]
    Auto,
    /// Four bytes.
    F32,
    /// Two bytes, IEEE.
    F16,
    /// Two bytes, the range of f32.
    Bf16,
    /// Encoders and denoiser in blocks of small integers, decoded as they are multiplied; the rest as in `Auto`.
    Quantised(Block),
}

impl Precision {
    /// What a recipe calls it; `None` for a name of another engine.
    pub fn named(name: &str) -> Option<Self> {
        [(DType::F32, Self::F32), (DType::F16, Self::F16), (DType::BF16, Self::Bf16)]
            .into_iter()
            .find_map(|(dtype, precision)| (dtype.as_str() == name).then_some(precision))
            .or_else(|| {
                Block::made().find(|block| block.name().eq_ignore_ascii_case(name)).map(Self::Quantised)
            })
    }

    fn of(self, parts: &Parts, device: DeviceClass) -> Result<DType> {
        Ok(match self {
            Self::F32 => DType::F32,
            Self::F16 => DType::F16,
            Self::Bf16 => DType::BF16,
            Self::Quantised(_) | Self::Auto => {
                let network = parts.weights("unet")?;
                match device {
                    DeviceClass::Cpu => kept_on_cpu(network.inventory().parameters()),
                    _ => network.half_precision().unwrap_or(DType::F32),
                }
            }
        })
    }
}

/// Where a model comes from.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// The model in the binary.
    Embedded,
    /// A folder or a file, and a folder of configs for a file whose shapes cannot tell.
    Path(&'a Path, Option<&'a Path>),
}

impl Model {
    /// Opens headers and configs and recognises the family; weights come later.
    ///
    /// # Errors
    /// What is wrong with the files; `device_unavailable`.
    pub fn open(source: Source<'_>, device: DeviceClass, precision: Precision) -> Result<Self> {
        let (parts, name) = match source {
            Source::Embedded => (super::embedded::parts()?, super::embedded::NAME.to_owned()),
            Source::Path(path, config) => {
                let name = path
                    .canonicalize()
                    .ok()
                    .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
                (Parts::open(path, config)?, name.unwrap_or_else(|| "model".into()))
            }
        };
        Self::from_parts(parts, &name, device, precision)
    }

    /// Recognises a model whose files are open.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn from_parts(parts: Parts, name: &str, device: DeviceClass, precision: Precision) -> Result<Self> {
        let dtype = precision.of(&parts, device)?;
        let (parts, kept) = match precision {
            Precision::Quantised(block) if device == DeviceClass::Cpu => {
                (parts.quantised(block), block.name().to_ascii_lowercase())
            }
            Precision::Quantised(block) => {
                let message =
                    format!("{} is multiplied on the CPU alone, not on {}", block.name(), device.name());
                return Err(Error::argument("quantize", message).hint("take --device cpu, or --dtype f16"));
            }
            _ => (parts, dtype.as_str().to_owned()),
        };
        let variant: Arc<dyn Variant> = recognise(&parts)?.into();
        let engine = Engine { model: name.into(), dtype: kept, device: device.name().into() };
        Ok(Self::assemble(Arc::new(parts), variant, &Place { device: device.open()?, dtype }, engine))
    }

    fn assemble(parts: Arc<Parts>, variant: Arc<dyn Variant>, at: &Place, engine: Engine) -> Self {
        let (text, network) = heard(&parts, &variant, at);
        Self {
            text,
            network,
            codec: seen(&parts, &variant, at),
            refiner: None,
            changed: Arc::clone(&parts),
            digests: Digests::Unasked,
            variant,
            parts,
            place: at.clone(),
            engine,
            worn: Vec::new(),
            applied: Application::default(),
            learned: Vec::new(),
            keeps: false,
            steered: Vec::new(),
        }
    }

    /// Puts on these files of changes, and takes off all others. The model's own weights stay as they are; of text
    /// encoder and network, what is changed or was is read again when it is next needed, except for weights that are in
    /// memory and that no file changes, or only [beside](Application::Runtime) them.
    ///
    /// # Errors
    /// `lora_incompatible` naming the file that does not fit; the model then wears what it wore.
    pub fn wear(&mut self, loras: &[(Lora, f64)], how: Application, watch: &mut Watch<'_>) -> Result<()> {
        let worn: Vec<Worn> = loras
            .iter()
            .map(|(lora, scale)| Worn {
                name: lora.label().into(),
                sha256: lora.digest().into(),
                scale: *scale,
            })
            .collect();
        if worn == self.worn && (how == self.applied || worn.is_empty()) {
            return Ok(());
        }
        let (parts, fits) = self.changed.changed(loras, how)?;
        for ((lora, _), fit) in loras.iter().zip(&fits) {
            let name = lora.label();
            watch.note(match fit.ignored.as_slice() {
                [] => format!("`{name}` changes {} modules", fit.applied),
                [first, ..] => format!(
                    "`{name}` changes {} modules; {} of its names mean nothing here, such as {first}",
                    fit.applied,
                    fit.ignored.len()
                ),
            });
        }
        // What neither has changes for stays open.
        let is_changed = |component| parts.is_changed(component) || self.changed.is_changed(component);
        let (has_text, has_network) =
            (is_changed("text_encoder") || is_changed("text_encoder_2"), is_changed("unet"));
        self.changed = Arc::new(parts);
        let (text, network) = heard(&self.changed, &self.variant, &self.place);
        if has_text {
            self.text.succeed_by(text);
        }
        if has_network {
            self.network.succeed_by(network);
        }
        (self.worn, self.applied) = (worn, how);
        Ok(())
    }

    /// Lets these control networks steer it, and no others; the network is read again unless they do already.
    ///
    /// # Errors
    /// `model_unsupported` if no such network can steer this model; `model_incompatible` for one of another model, saying
    /// what was expected and found; what is wrong with its config. The model is then steered as it was.
    pub fn steer(&mut self, controls: Vec<Control>) -> Result<()> {
        for control in &controls {
            let named = |error: Error| {
                let param = error.param.clone().or_else(|| Some("control_model".into()));
                Error { param, ..error.within(format_args!("`{}`", control.name())) }
            };
            self.variant.check_control(control).map_err(named)?;
        }
        let steered: Vec<_> = controls.iter().map(|control| control.weights().digest().to_owned()).collect();
        if steered != self.steered {
            self.changed = Arc::new((*self.changed).clone().controlled(controls));
            let (_, network) = heard(&self.changed, &self.variant, &self.place);
            self.network.succeed_by(network);
            self.steered = steered;
        }
        Ok(())
    }

    /// Learns these words, and forgets all others; text encoders are read again when they are next needed.
    ///
    /// # Errors
    /// `model_incompatible` naming the file that does not fit; the model then knows what it knew.
    pub fn learn(&mut self, words: &[(String, Embedding)]) -> Result<()> {
        let learned: Vec<Taught> = words.iter().map(Taught::of).collect();
        if learned == self.learned {
            return Ok(());
        }
        self.changed = Arc::new(self.changed.taught(words)?);
        let (text, _) = heard(&self.changed, &self.variant, &self.place);
        self.text.succeed_by(text);
        self.learned = learned;
        Ok(())
    }

    /// The words that it was taught.
    pub fn learned(&self) -> &[Taught] {
        &self.learned
    }

    /// The files of changes that it wears.
    pub fn worn(&self) -> &[Worn] {
        &self.worn
    }

    /// The same with a model that ends what this one begins.
    ///
    /// # Errors
    /// `model_incompatible` if their latents differ.
    pub fn with_refiner(mut self, refiner: Self) -> Result<Self> {
        let (own, other) = (self.card(), refiner.card());
        if (own.latent_channels, own.factor) != (other.latent_channels, other.factor) {
            let message = format!(
                "latents of `{}` have {} channels, those of the refiner `{}` {}",
                self.engine.model, own.latent_channels, refiner.engine.model, other.latent_channels
            );
            return Err(Error::new(Code::ModelIncompatible, message));
        }
        self.refiner = Some(Box::new(refiner));
        Ok(self)
    }

    /// Lets all parts go, the refiner's too.
    pub fn close(&mut self) {
        self.text.close();
        self.network.close();
        self.codec.close();
        if let Some(refiner) = &mut self.refiner {
            refiner.close();
        }
    }

    /// The parts once more in f32, for numbers that another precision could not hold; `None` where they are f32 already.
    /// What is open of this model is let go, so that both are never in memory at once.
    pub fn exact(&mut self) -> Option<Exact> {
        if self.place.dtype == DType::F32 {
            return None;
        }
        self.close();
        let at = Place { dtype: DType::F32, ..self.place.clone() };
        let (text, network) = heard(&self.changed, &self.variant, &at);
        Some(Exact { text, network, codec: seen(&self.parts, &self.variant, &at) })
    }

    /// What each phase takes in memory for a batch of `rows` latents of this height and width.
    ///
    /// # Errors
    /// `model_not_downloaded` if a part is not there.
    pub fn needs(&self, rows: usize, latent: [usize; 2]) -> Result<Needs> {
        self.variant.needs(&self.changed, &self.place, rows, latent)
    }

    /// Whether it runs on the processor.
    pub fn is_on_cpu(&self) -> bool {
        self.place.device.is_cpu()
    }

    /// All facts about it.
    pub fn card(&self) -> &Card {
        self.variant.card()
    }

    /// Its name, dtype and device, as a plan says them.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Begins to read the weights once for their digests, beside the network's work.
    pub fn begin_digests(&mut self) {
        if matches!(self.digests, Digests::Unasked) {
            let parts = Arc::clone(&self.parts);
            let work = move || Ok(parts.digests()?.into_iter().collect());
            self.digests = Digests::Running(std::thread::spawn(work));
        }
    }

    /// sha256 of each component's weights; waits for what [`Self::begin_digests`] began.
    ///
    /// # Errors
    /// What reading says.
    pub fn digests(&mut self) -> Result<&BTreeMap<String, String>> {
        self.begin_digests();
        self.digests = match std::mem::replace(&mut self.digests, Digests::Unasked) {
            Digests::Running(work) => {
                let died = |_| Error::internal("the thread that reads the weights' digests died");
                Digests::Known(work.join().map_err(died)??)
            }
            other => other,
        };
        match &self.digests {
            Digests::Known(known) => Ok(known),
            _ => Err(Error::internal("the digests are not known")),
        }
    }
}
