//! Weights: the bytes behind an [`Inventory`], handed out as tensors one by one.
//!
//! Files are memory-mapped and stay so; a tensor is converted when a network asks for it, and only then does it cost
//! memory. A network's loader asks through a [`VarBuilder`].

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use candle_core::{DType, Device, Tensor};
use memmap2::Mmap;
#[cfg(unix)]
use memmap2::UncheckedAdvice;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::builder::{Held, VarBuilder};
use super::config::read_json;
use super::inventory::{Inventory, TensorInfo, too_many};
use super::patch::Patch;
use super::{decode, gguf, limits, packing, safetensors, synthetic};
use crate::error::{Code, Error, Result};
use crate::kernel::block::Block;

/// Bytes that a digest takes at a time.
const DIGESTED: usize = 16 << 20;

/// The weights of one network: an inventory and the files behind it.
///
/// Cheap to clone; clones share the files and remember together which tensors were asked for.
#[derive(Debug, Clone)]
pub struct Weights {
    store: Arc<Store>,
    inventory: Arc<Inventory>,
    label: Arc<str>,
    asked: Arc<Mutex<HashSet<String>>>,
    /// What is added to tensors as they are handed out.
    patch: Option<Arc<Patch>>,
    /// Where it is known which of them are in memory, and under which component's name.
    pub(super) held: Option<(Held, Arc<str>)>,
    /// What matrices are made into for those who ask for blocks.
    pub(super) made: Option<Block>,
}

#[derive(Debug)]
enum Store {
    /// Files on disk or in the binary.
    Files { files: Vec<Blob>, digest: OnceLock<String> },
    /// No file: every number follows from this seed and its place.
    Formula(u64),
}

/// One opened file.
#[derive(Debug)]
pub(super) struct Blob {
    pub(super) label: String,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Mapped(Mmap),
    Embedded(&'static [u8]),
    Owned(Vec<u8>),
}

impl Deref for Blob {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(map) => map,
            Bytes::Embedded(bytes) => bytes,
            Bytes::Owned(bytes) => bytes,
        }
    }
}

impl Blob {
    pub(super) fn embedded(label: impl Into<String>, bytes: &'static [u8]) -> Self {
        Self { label: label.into(), bytes: Bytes::Embedded(bytes) }
    }

    /// Maps a file; `label` names it in errors, without the path that leads to it.
    pub(super) fn open(path: &Path, label: impl Into<String>) -> Result<Self> {
        let label = label.into();
        let file = open_file(path, &label)?;
        // SAFETY: the map is read-only and private. Its bytes change, or end with SIGBUS, only if someone rewrites or
        // shortens the file while it is open; model files are written elsewhere and renamed into place.
        #[expect(unsafe_code, reason = "weights are mapped, not copied")]
        let map = unsafe { Mmap::map(&file) }.map_err(|error| unreadable(&label, error))?;
        Ok(Self { label, bytes: Bytes::Mapped(map) })
    }

    /// Says that these bytes were read and will hardly be again: what is mapped no longer counts as this process's
    /// memory, and stays in the system's cache while there is room.
    fn release(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Bytes::Mapped(map) = &self.bytes {
            const PAGE: usize = 4096;
            let (from, to) = (range.start.next_multiple_of(PAGE), range.end / PAGE * PAGE);
            if from < to && to <= map.len() {
                #[expect(unsafe_code, reason = "advice that may discard pages")]
                // SAFETY: the map is of a file and never written, so that a page comes back from there with the same
                // bytes. Advice that is not taken changes nothing.
                let _ = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, from, to - from) };
            }
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}

fn unreadable(label: &str, error: io::Error) -> Error {
    Error::new(Code::StoreIo, format!("`{label}` cannot be read")).because(error)
}

/// Opens a regular file and nothing else: a pipe would wait for ever, a device has no end.
fn open_file(path: &Path, label: &str) -> Result<File> {
    let metadata = fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            Error::new(Code::FileNotFound, format!("there is no file `{label}`"))
        }
        _ => unreadable(label, error),
    })?;
    if !metadata.is_file() {
        let message = format!("`{label}` is not a regular file");
        return Err(Error::new(Code::UnsupportedFormat, message));
    }
    File::open(path).map_err(|error| unreadable(label, error))
}

/// Reads a whole small file.
pub(super) fn read_file(path: &Path, label: &str, limit: usize) -> Result<Vec<u8>> {
    use io::Read;
    let mut bytes = Vec::new();
    let file = open_file(path, label)?;
    file.take(limit as u64 + 1).read_to_end(&mut bytes).map_err(|error| unreadable(label, error))?;
    if bytes.len() > limit {
        let message = format!("`{label}` has more than {limit} bytes");
        return Err(Error::new(Code::ConfigInvalid, message));
    }
    Ok(bytes)
}

/// The last part of a path: what errors call the file.
pub(super) fn file_label(path: &Path) -> String {
    path.file_name().map_or_else(|| "?".into(), |name| name.to_string_lossy().into_owned())
}

impl Weights {
    /// Opens a safetensors or GGUF file, or all shards of a `.safetensors.index.json`.
    ///
    /// What a file is, its first bytes say, never its name. Quantised tensors stay as they lie in the file until a
    /// network asks for them.
    ///
    /// # Errors
    /// `file_not_found`, `unsupported_format` (with the remedy), `weights_corrupt`, `model_incompatible`; for shards
    /// also `path_denied` and `model_not_downloaded`.
    pub fn open(path: &Path) -> Result<Self> {
        let label = file_label(path);
        if path.extension().is_some_and(|extension| extension == "json") {
            let index = read_file(path, &label, limits::INDEX_BYTES)?;
            let folder = path.parent().unwrap_or(Path::new(""));
            return Self::sharded(&index, &label, |name| Blob::open(&folder.join(name), name));
        }
        Self::from_blobs(vec![Blob::open(path, &label)?], &label)
    }

    /// Weights that are part of the binary.
    ///
    /// # Errors
    /// As [`Weights::open`].
    pub fn embedded(label: &str, bytes: &'static [u8]) -> Result<Self> {
        Self::from_blobs(vec![Blob::embedded(label, bytes)], label)
    }

    /// Weights that were read or made elsewhere.
    ///
    /// # Errors
    /// As [`Weights::open`].
    pub fn from_bytes(label: &str, bytes: Vec<u8>) -> Result<Self> {
        Self::from_blobs(vec![Blob { label: label.to_owned(), bytes: Bytes::Owned(bytes) }], label)
    }

    /// Weights without a file, for benches and tests: every number follows from the seed, the tensor's name and its
    /// place, by the formula of [`super::synthetic`].
    ///
    /// With `shapes`, those tensors are there and no others. Without, whatever is asked for is there in the shape
    /// that was asked for, so that a network of any size can be built; only `contains_tensor` says no, so that what
    /// is optional stays away.
    pub fn synthetic(seed: u64, shapes: impl IntoIterator<Item = (String, Vec<usize>)>) -> Self {
        let inventory = synthetic::inventory(shapes);
        Self::assemble(Store::Formula(seed), inventory, "synthetic")
    }

    pub(super) fn from_blobs(files: Vec<Blob>, label: &str) -> Result<Self> {
        let mut inventory = Inventory::default();
        for (number, file) in files.iter().enumerate() {
            // A file is what its first bytes say, whatever it is called.
            let read = if gguf::is_gguf(file) { gguf::read } else { safetensors::read };
            inventory.absorb(read(file, &file.label, number)?, &file.label)?;
        }
        packing::fold(&mut inventory, &files, label)?;
        Ok(Self::assemble(Store::Files { files, digest: OnceLock::new() }, inventory, label))
    }

    /// Opens the shards that an index names, through `open`, which gets a plain file name.
    pub(super) fn sharded(index: &[u8], label: &str, open: impl Fn(&str) -> Result<Blob>) -> Result<Self> {
        let places = shard_index(index, label)?;
        let mut names: Vec<&str> = places.iter().map(|(_, file)| file.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let open = |name: &&str| {
            open(name).map_err(|error| match error.code {
                Code::FileNotFound => {
                    let message = format!("`{label}` names the shard `{name}`, which is not here");
                    Error::new(Code::ModelNotDownloaded, message)
                        .hint("download the model again, all its files")
                }
                _ => error,
            })
        };
        let files = names.iter().map(open).collect::<Result<Vec<_>>>()?;
        let weights = Self::from_blobs(files, label)?;
        for (tensor, file) in &places {
            let found = weights.inventory.tensors.get(tensor).map(|info| names[info.file]);
            if found != Some(file) {
                let message = format!("`{label}` says that `{file}` has a tensor `{tensor}`; it has not");
                return Err(Error::new(Code::WeightsCorrupt, message));
            }
        }
        Ok(weights)
    }

    /// The bytes of a tensor, if they lie anywhere.
    pub(super) fn raw(&self, info: &TensorInfo) -> Option<&[u8]> {
        let Store::Files { files, .. } = &*self.store else { return None };
        files.get(info.file)?.get(info.range.clone())
    }

    /// Says that a tensor was read.
    pub(super) fn release(&self, info: &TensorInfo) {
        if let Store::Files { files, .. } = &*self.store {
            files[info.file].release(info.range.clone());
        }
    }

    fn assemble(store: Store, inventory: Inventory, label: &str) -> Self {
        Self {
            store: Arc::new(store),
            inventory: Arc::new(inventory),
            label: label.into(),
            asked: Arc::default(),
            patch: None,
            held: None,
            made: None,
        }
    }

    /// The same weights with changes that are added as tensors are handed out; the files stay as they are.
    #[must_use]
    pub fn patched(&self, patch: Patch) -> Self {
        let patch = (!patch.is_empty()).then(|| Arc::new(patch));
        Self { patch, asked: Arc::default(), ..self.clone() }
    }

    /// The same weights of a model's component, of which layers share what is in memory.
    #[must_use]
    pub fn held(self, held: &Held, component: &str) -> Self {
        Self { held: Some((held.clone(), component.into())), ..self }
    }

    /// The same files, seen through other names and shapes; keeps its own account of what was asked for.
    pub(super) fn view(&self, inventory: Inventory) -> Self {
        Self { inventory: Arc::new(inventory), asked: Arc::default(), held: None, ..self.clone() }
    }

    /// What is there.
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// The file, as errors call it: without the path that leads to it.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The half-precision type that most of the bytes have, if they have one.
    ///
    /// `None` for single precision and for quantised weights, which come in whatever type they are asked for.
    pub fn half_precision(&self) -> Option<DType> {
        self.inventory.half_precision()
    }

    /// The value of a key of a GGUF file: lists too, which [`Inventory::metadata`] leaves out.
    ///
    /// Read from the file each time, since a vocabulary is large and asked for once.
    pub fn value(&self, key: &str) -> Option<gguf::Value> {
        let Store::Files { files, .. } = &*self.store else { return None };
        files.iter().filter(|file| gguf::is_gguf(file)).find_map(|file| gguf::value(file, key))
    }

    /// Where a network's layers find their tensors, converted to `dtype` on `device` when asked for.
    pub fn var_builder(&self, dtype: DType, device: &Device) -> VarBuilder {
        VarBuilder::new(self.clone(), dtype, device.clone())
    }

    /// One tensor, converted.
    ///
    /// # Errors
    /// `model_incompatible` if it is not there, has another shape than `expected`, or is of a type that no network
    /// reads; `insufficient_memory` if there is no room for it.
    pub fn tensor(
        &self,
        name: &str,
        expected: Option<&[usize]>,
        dtype: DType,
        device: &Device,
    ) -> Result<Tensor> {
        match self.patch.as_ref().filter(|patch| patch.changes(name)) {
            Some(patch) => {
                let base = self.plain(name, expected, DType::F32, &Device::Cpu)?;
                Ok(patch.apply(name, base)?.to_device(device)?.to_dtype(dtype)?)
            }
            None => self.plain(name, expected, dtype, device),
        }
    }

    /// One tensor without what is added to its product at run time.
    pub(super) fn base(
        &self,
        name: &str,
        expected: &[usize],
        dtype: DType,
        device: &Device,
    ) -> Result<Tensor> {
        match self.patch_beside(name) {
            Some(_) => self.plain(name, Some(expected), dtype, device),
            None => self.tensor(name, Some(expected), dtype, device),
        }
    }

    /// The changes to a tensor that are added to its product at run time, where all of them are.
    pub(super) fn patch_beside(&self, name: &str) -> Option<&Patch> {
        let in_blocks = || self.inventory.tensors.get(name).is_some_and(|info| self.block_of(info).is_some());
        self.patch.as_deref().filter(|patch| patch.is_beside(name, in_blocks))
    }

    /// Whether a layer's tensor has changes in it.
    pub(super) fn is_fused(&self, name: &str) -> bool {
        self.patch.as_ref().is_some_and(|patch| patch.changes(name)) && self.patch_beside(name).is_none()
    }

    /// A tensor as the file has it.
    fn plain(&self, name: &str, expected: Option<&[usize]>, dtype: DType, device: &Device) -> Result<Tensor> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        let answers_all = matches!(*self.store, Store::Formula(_)) && self.inventory.tensors.is_empty();
        let Some(info) = self.inventory.tensors.get(name) else {
            return match (&*self.store, expected) {
                (&Store::Formula(seed), Some(shape)) if answers_all => {
                    synthetic::tensor(seed, name, shape, dtype, device)
                }
                _ => Err(self.incompatible(name, "is missing")),
            };
        };
        if let Some(expected) = expected.filter(|_| !info.is_unread()) {
            self.check(name, expected)?;
        }
        match &*self.store {
            Store::Formula(seed) => synthetic::tensor(*seed, name, &info.shape, dtype, device),
            Store::Files { files, .. } => {
                let tensor = decode::tensor(files, info, dtype, device)
                    .map_err(|error| error.within(format_args!("`{}`: tensor `{name}`", self.label)))?;
                self.release(info);
                Ok(tensor)
            }
        }
    }

    /// Compares a tensor's shape with the one that a network needs.
    pub(super) fn check(&self, name: &str, expected: &[usize]) -> Result<()> {
        match self.inventory.tensors.get(name) {
            Some(info) if info.shape != expected => {
                let what = format!("has the shape {:?}; the model needs {expected:?}", info.shape);
                Err(self.incompatible(name, what))
            }
            _ => Ok(()),
        }
    }

    fn incompatible(&self, name: &str, what: impl std::fmt::Display) -> Error {
        Error::new(Code::ModelIncompatible, format!("`{}`: tensor `{name}` {what}", self.label))
    }

    /// Tensors that nobody asked for so far: a loader's last look at what it may have overlooked.
    pub fn unused(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        self.inventory.names().filter(|name| !asked.contains(*name)).map(str::to_owned).collect()
    }

    /// The sha256 of all the bytes of the files, in hexadecimal; of shards, of one after the other in order of name.
    ///
    /// Reads everything once and remembers. Synthetic weights are known by their seed instead.
    pub fn digest(&self) -> &str {
        static SYNTHETIC: &str = "synthetic";
        match &*self.store {
            Store::Formula(_) => SYNTHETIC,
            Store::Files { files, digest } => digest.get_or_init(|| {
                let mut hash = Sha256::new();
                for file in files {
                    for (index, part) in file.chunks(DIGESTED).enumerate() {
                        hash.update(part);
                        file.release(index * DIGESTED..index * DIGESTED + part.len());
                    }
                }
                hex(&hash.finalize())
            }),
        }
    }
}

/// The sha256 of bytes, in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The pairs (tensor, file) of an index, files being plain names.
fn shard_index(bytes: &[u8], label: &str) -> Result<Vec<(String, String)>> {
    let index = read_json(bytes, limits::INDEX_BYTES, label)?;
    let invalid =
        || Error::new(Code::ConfigInvalid, format!("`{label}`: `weight_map` must map names to files"));
    let map = index.get("weight_map").and_then(Value::as_object).ok_or_else(invalid)?;
    if map.len() > limits::TENSORS {
        return Err(too_many(label));
    }
    let pair = |(tensor, file): (&String, &Value)| {
        let file = file.as_str().ok_or_else(invalid)?;
        if !is_plain(file) {
            let message = format!("`{label}` names a file outside its folder");
            return Err(Error::new(Code::PathDenied, message));
        }
        Ok((tensor.clone(), file.to_owned()))
    };
    map.iter().map(pair).collect()
}

/// Whether a name from inside a file is a name and no path: letters, digits, `_`, `-`, and dots within.
pub(super) fn is_plain(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    !name.is_empty() && name.len() <= 255 && !name.starts_with('.') && name.chars().all(fits)
}
