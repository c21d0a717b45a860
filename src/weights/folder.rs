//! A model as diffusers saves it: `model_index.json`, and a folder for each component.
//!
//! The index is written by strangers and its names become paths, so they are checked to be names. Nothing in it is
//! ever executed: a folder that needs code of its own is refused, not half understood.
//!
//! # Source
//! Layout: `huggingface/diffusers@v0.42.1 src/diffusers/pipelines/pipeline_utils.py`, Apache-2.0.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::config::Config;
use super::dialect;
use super::limits;
use super::source::{Blob, Weights, file_label, is_plain, read_file};
use crate::error::{Code, Error, Result};

/// Files of the binary: the path within the folder, with `/`, and the bytes.
pub type Embedded = &'static [(&'static str, &'static [u8])];

/// Libraries whose classes we know; anything else is code that is not ours to run.
const LIBRARIES: &[&str] = &["diffusers", "transformers", "stable_diffusion"];

/// What the weights of a component are called, before `.safetensors`.
const STEMS: &[&str] = &["diffusion_pytorch_model", "model"];

/// What a component's configuration may be called.
const CONFIGS: &[&str] = &["config.json", "scheduler_config.json", "preprocessor_config.json"];

/// One part of a pipeline, as the index has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// `diffusers` or `transformers`.
    pub library: String,
    /// The class that wrote it, which says what it is.
    pub class: String,
}

/// An opened folder.
#[derive(Debug, Clone)]
pub struct Folder {
    root: Root,
    class: String,
    components: BTreeMap<String, Component>,
    index: Config,
}

#[derive(Debug, Clone)]
enum Root {
    Disk(PathBuf),
    Binary(Embedded),
}

impl Folder {
    /// Opens a folder that has a `model_index.json`.
    ///
    /// # Errors
    /// `file_not_found` without one; `config_invalid`, `path_denied` or `model_unsupported` for what it says.
    pub fn open(path: &Path) -> Result<Self> {
        if !path.is_dir() {
            let message = format!("there is no folder `{}`", file_label(path));
            return Err(Error::new(Code::FileNotFound, message));
        }
        Self::read(Root::Disk(path.to_owned()))
    }

    /// Opens the folder that is part of the binary.
    ///
    /// # Errors
    /// As [`Folder::open`].
    pub fn embedded(files: Embedded) -> Result<Self> {
        Self::read(Root::Binary(files))
    }

    fn read(root: Root) -> Result<Self> {
        let index = Config::read(&root.file("model_index.json", limits::CONFIG_BYTES)?, "model_index.json")?;
        let class = check_class(&index)?.to_owned();
        let mut components = BTreeMap::new();
        for (name, value) in index.value.as_object().into_iter().flatten() {
            if let Some(component) = component(name, value)? {
                components.insert(name.clone(), component);
            }
        }
        Ok(Self { root, class, components, index })
    }

    /// The pipeline's class: `StableDiffusionPipeline` …
    pub fn class(&self) -> &str {
        &self.class
    }

    /// The index itself, for the settings beside the components: `requires_safety_checker`, `boundary_ratio` …
    pub fn index(&self) -> &Config {
        &self.index
    }

    /// A component, if the index has it and it is not null.
    pub fn component(&self, name: &str) -> Option<&Component> {
        self.components.get(name)
    }

    /// All components by name.
    pub fn components(&self) -> impl Iterator<Item = (&str, &Component)> {
        self.components.iter().map(|(name, component)| (name.as_str(), component))
    }

    /// A component's `config.json` or `scheduler_config.json`.
    ///
    /// # Errors
    /// `model_not_downloaded` if there is none, `config_invalid` if it is not plain JSON.
    pub fn config(&self, name: &str) -> Result<Config> {
        check_plain(name)?;
        for config in CONFIGS {
            let path = format!("{name}/{config}");
            match self.root.file(&path, limits::CONFIG_BYTES) {
                Ok(bytes) => return Config::read(&bytes, path),
                Err(error) if error.code == Code::FileNotFound => {}
                Err(error) => return Err(error),
            }
        }
        Err(missing(format!("`{name}` has no config.json")))
    }

    /// A configuration beside the index, such as the makers' recommended settings; `None` if it is not there.
    ///
    /// # Errors
    /// `config_invalid` if it is not plain JSON.
    pub fn settings(&self, file: &str) -> Result<Option<Config>> {
        check_plain(file)?;
        match self.root.file(file, limits::CONFIG_BYTES) {
            Ok(bytes) => Config::read(&bytes, file).map(Some),
            Err(error) if error.code == Code::FileNotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A small file of a component, such as `vocab.json` of `tokenizer`.
    ///
    /// # Errors
    /// `file_not_found`, `path_denied` for a name that is a path, `tokenizer_invalid` above 64 MiB.
    pub fn file(&self, name: &str, file: &str) -> Result<Cow<'static, [u8]>> {
        check_plain(name)?;
        check_plain(file)?;
        self.root.file(&format!("{name}/{file}"), limits::TOKENIZER_BYTES).map_err(|error| match error.code {
            Code::ConfigInvalid => Error { code: Code::TokenizerInvalid, ..error },
            _ => error,
        })
    }

    /// The weights of a component: one file or all its shards.
    ///
    /// Files without a variant are preferred; otherwise the one variant that is there is taken, `fp16` for example.
    /// An index beats a file of the same variant, as it does in diffusers.
    ///
    /// # Errors
    /// `model_not_downloaded` without weights, `unsupported_format` if there are only pickles, `model_incompatible`
    /// if several variants leave a choice; and as [`Weights::open`].
    pub fn weights(&self, name: &str) -> Result<Weights> {
        check_plain(name)?;
        Ok(dialect::modern_attention(self.root.weights(name)?))
    }
}

/// One component alone: a folder of it as diffusers saves it, or a file of weights. The config beside is read if its
/// class begins with `class`; in a folder it must be there and of that class.
///
/// # Errors
/// `file_not_found`; `model_incompatible` for a folder of another class; as [`Folder::config`] and
/// [`Folder::weights`].
pub fn lone_component(path: &Path, class: &str) -> Result<(Option<Config>, Weights)> {
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
    let config = match Root::Disk(folder.to_owned()).file("config.json", limits::CONFIG_BYTES) {
        Ok(bytes) => Some(Config::read(&bytes, "config.json")?),
        Err(error) if error.code == Code::FileNotFound => None,
        Err(error) => return Err(error),
    };
    let is_one = |config: &Config| {
        config.opt_text("_class_name").is_ok_and(|it| it.is_some_and(|it| it.starts_with(class)))
    };
    if !path.is_dir() {
        return Ok((config.filter(is_one), Weights::open(path)?));
    }
    let name = file_label(path);
    if !config.as_ref().is_some_and(is_one) {
        let message = format!("the folder `{name}` has no config.json of a {class}");
        return Err(Error::new(Code::ModelIncompatible, message));
    }
    let inside = std::path::absolute(path).ok();
    let place =
        inside.as_deref().and_then(|path| Some((path.parent()?.to_owned(), path.file_name()?.to_str()?)));
    let Some((parent, name)) = place else {
        return Err(Error::new(Code::FileNotFound, format!("there is no folder `{name}`")));
    };
    Ok((config, Root::Disk(parent).weights(name)?))
}

impl Root {
    /// The weights of a component: one file or all its shards.
    fn weights(&self, name: &str) -> Result<Weights> {
        let chosen = weights_among(name, &self.list(name))?;
        let label = format!("{name}/{chosen}");
        let open = |file: &str| self.blob(&format!("{name}/{file}"));
        if chosen.contains(".safetensors.index.") {
            return Weights::sharded(&self.file(&label, limits::INDEX_BYTES)?, &label, open);
        }
        Weights::from_blobs(vec![open(&chosen)?], &label)
    }

    fn file(&self, path: &str, limit: usize) -> Result<Cow<'static, [u8]>> {
        match self {
            Self::Disk(root) => Ok(read_file(&root.join(path), path, limit)?.into()),
            Self::Binary(_) => Ok(self.binary(path)?.into()),
        }
    }

    fn binary(&self, path: &str) -> Result<&'static [u8]> {
        let Self::Binary(files) = self else { return Err(Error::internal("not in the binary")) };
        let file = files.iter().find(|(name, _)| *name == path).map(|(_, bytes)| *bytes);
        file.ok_or_else(|| Error::new(Code::FileNotFound, format!("there is no file `{path}`")))
    }

    fn blob(&self, path: &str) -> Result<Blob> {
        match self {
            Self::Disk(root) => Blob::open(&root.join(path), path),
            Self::Binary(_) => Ok(Blob::embedded(path, self.binary(path)?)),
        }
    }

    /// The names of the files in a component's folder, sorted; none if there is no such folder.
    fn list(&self, name: &str) -> Vec<String> {
        let mut names: Vec<String> = match self {
            Self::Disk(root) => {
                let entries = fs::read_dir(root.join(name)).into_iter().flatten().flatten();
                entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
            }
            Self::Binary(files) => {
                let below = |path: &'static str| path.strip_prefix(name)?.strip_prefix('/');
                files.iter().filter_map(|(path, _)| below(path)).map(str::to_owned).collect()
            }
        };
        names.sort_unstable();
        names
    }
}

/// The class of the pipeline, if it needs no code but ours.
fn check_class(index: &Config) -> Result<&str> {
    let foreign = ["auto_map", "custom_pipeline", "trust_remote_code"]
        .into_iter()
        .find(|key| index.field(key).is_some());
    let class = index.field("_class_name");
    if foreign.is_some() || class.is_some_and(Value::is_array) {
        let message = format!("`{}` asks for code of its own, which is never run", index.origin);
        return Err(Error::new(Code::ModelUnsupported, message));
    }
    let class = index.text("_class_name")?;
    if is_identifier(class) { Ok(class) } else { Err(index.invalid("_class_name", "the name of a class")) }
}

/// Reads one entry of the index: a pair of library and class; `None` for a setting, and for a part that is not there.
fn component(name: &str, value: &Value) -> Result<Option<Component>> {
    let Some([library, class]) = value.as_array().map(Vec::as_slice) else { return Ok(None) };
    // A part that the pipeline could have and has not is two nulls.
    let (Value::String(library), Value::String(class)) = (library, class) else { return Ok(None) };
    check_plain(name)?;
    if !is_identifier(class) || !library.split('.').all(is_identifier) {
        return Err(denied());
    }
    if !LIBRARIES.contains(&library.as_str()) {
        let message = format!("`{name}` is a `{class}` of the library `{library}`, which is not known here");
        return Err(Error::new(Code::ModelUnsupported, message));
    }
    Ok(Some(Component { library: library.clone(), class: class.clone() }))
}

/// A name of the language that wrote the index.
fn is_identifier(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty()
        && name.len() <= 128
        && name.chars().all(fits)
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn check_plain(name: &str) -> Result<()> {
    if is_plain(name) { Ok(()) } else { Err(denied()) }
}

/// The same words for every path, whether or not something is there.
fn denied() -> Error {
    Error::new(Code::PathDenied, "a name in the model's index leads out of its folder")
}

fn missing(message: String) -> Error {
    Error::new(Code::ModelNotDownloaded, message).hint("download the model again, all its files")
}

/// Which of the files of component `name` are its weights.
///
/// # Errors
/// `model_not_downloaded` without weights, `unsupported_format` if there are only pickles, `model_incompatible` if
/// several variants leave a choice.
pub fn weights_among(name: &str, files: &[String]) -> Result<String> {
    // By variant, "" being none; an index comes before a single file, so that it is kept.
    let mut variants: BTreeMap<&str, &str> = BTreeMap::new();
    for indexed in [true, false] {
        for file in files {
            if let Some((variant, is_index)) = variant(file)
                && is_index == indexed
            {
                variants.entry(variant).or_insert(file);
            }
        }
    }
    if let Some(file) = variants.get("") {
        return Ok((*file).to_owned());
    }
    match variants.into_values().collect::<Vec<_>>().as_slice() {
        [file] => Ok((*file).to_owned()),
        [] => Err(no_weights(name, files)),
        several => {
            let message = format!("`{name}` has several variants of its weights: {}", several.join(", "));
            Err(Error::new(Code::ModelIncompatible, message).hint("leave only one of them in the folder"))
        }
    }
}

/// The variant of a file of weights, and whether it is an index; `None` for shards and everything else.
fn variant(file: &str) -> Option<(&str, bool)> {
    let rest = STEMS.iter().find_map(|stem| file.strip_prefix(stem))?;
    if let Some(rest) = rest.strip_prefix(".safetensors.index") {
        let variant = rest.strip_suffix(".json")?;
        return Some((variant.strip_prefix('.').unwrap_or(variant), true));
    }
    let variant = rest.strip_suffix(".safetensors")?;
    if variant.is_empty() {
        return Some(("", false));
    }
    // A shard has its number in the stem or behind the variant: `-00001-of-00002.fp16`, `.fp16-00001-of-00002`.
    let variant = variant.strip_prefix('.')?;
    (!variant.contains("-of-")).then_some((variant, false))
}

/// Why a component has no weights that can be read.
fn no_weights(name: &str, files: &[String]) -> Error {
    let pickled = files.iter().find(|file| {
        [".bin", ".ckpt", ".pt", ".pth", ".msgpack", ".h5"].iter().any(|ending| file.ends_with(ending))
    });
    match pickled {
        Some(file) => {
            Error::new(Code::UnsupportedFormat, format!("`{name}` has only `{file}`, no safetensors"))
                .hint("convert it to .safetensors; pickles can run code and are never read")
        }
        None => missing(format!("`{name}` has no weights")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(files: &[&str]) -> Result<String> {
        let files: Vec<String> = files.iter().map(|&file| file.to_owned()).collect();
        weights_among("unet", &files)
    }

    #[test]
    fn the_plain_file_is_preferred_and_a_lone_variant_is_taken() {
        let plain = "diffusion_pytorch_model.safetensors";
        let half = "diffusion_pytorch_model.fp16.safetensors";
        let raw = "diffusion_pytorch_model.non_ema.safetensors";
        assert_eq!(chosen(&[half, raw, plain]).expect("one"), plain);
        assert_eq!(chosen(&["config.json", half]).expect("one"), half);
        let error = chosen(&[half, raw]).expect_err("a choice");
        assert_eq!(error.code, Code::ModelIncompatible);
        assert!(error.message.contains("fp16") && error.message.contains("non_ema"));
        let shards = ["model-00001-of-00002.fp16.safetensors", "model.fp16-00001-of-00002.safetensors"];
        let index = "model.safetensors.index.fp16.json";
        assert_eq!(chosen(&[shards[0], shards[1], index]).expect("one"), index);
        assert_eq!(
            chosen(&[plain, "model.safetensors.index.json"]).expect("one"),
            "model.safetensors.index.json"
        );
        assert_eq!(chosen(&[shards[0]]).expect_err("no index").code, Code::ModelNotDownloaded);
        assert_eq!(
            chosen(&["diffusion_pytorch_model.bin"]).expect_err("pickle").code,
            Code::UnsupportedFormat
        );
        assert_eq!(chosen(&[]).expect_err("nothing").code, Code::ModelNotDownloaded);
    }

    fn index(text: &'static str) -> Result<Folder> {
        Folder::read(Root::Binary(Box::leak(Box::new([("model_index.json", text.as_bytes())]))))
    }

    #[test]
    fn an_index_is_only_names() {
        let folder = index(
            r#"{"_class_name":"StableDiffusionPipeline","unet":["diffusers","UNet2DConditionModel"],
            "safety_checker":[null,null],"requires_safety_checker":false}"#,
        )
        .expect("good");
        assert_eq!(folder.class(), "StableDiffusionPipeline");
        assert_eq!(folder.component("unet").expect("there").class, "UNet2DConditionModel");
        assert_eq!(folder.component("safety_checker"), None);
        assert_eq!(folder.components().count(), 1);
        for (text, code) in [
            (r#"{"_class_name":"P","../vae":["diffusers","A"]}"#, Code::PathDenied),
            (r#"{"_class_name":"P","vae":["diffusers","../A"]}"#, Code::PathDenied),
            (r#"{"_class_name":"P","vae":["../x","A"]}"#, Code::PathDenied),
            (r#"{"_class_name":"P","vae":["os","system"]}"#, Code::ModelUnsupported),
            (r#"{"_class_name":["p.py","P"]}"#, Code::ModelUnsupported),
            (r#"{"_class_name":"P","auto_map":{}}"#, Code::ModelUnsupported),
            (r#"{"_class_name":"P","_class_name":"Q"}"#, Code::ConfigInvalid),
            (r#"{"unet":["diffusers","A"]}"#, Code::ConfigInvalid),
        ] {
            assert_eq!(index(text).expect_err("must be refused").code, code, "{text}");
        }
    }

    #[test]
    fn paths_from_outside_stay_inside() {
        let folder = index(r#"{"_class_name":"P"}"#).expect("good");
        for name in ["..", "../x", "a/b", "", ".hidden", "a\\b", "a\0b"] {
            assert_eq!(folder.file(name, "vocab.json").expect_err("a path").code, Code::PathDenied);
            assert_eq!(folder.file("tokenizer", name).expect_err("a path").code, Code::PathDenied);
        }
        assert_eq!(folder.file("tokenizer", "vocab.json").expect_err("nothing").code, Code::FileNotFound);
    }
}
