//! What golden tests share: tensors of a case, comparison, and the account at the end.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use serde_json::Value;

use crate::fixtures::{self, read_json};

/// One case: what was called, and every tensor that came of it.
pub(crate) struct Case {
    pub(crate) folder: PathBuf,
    pub(crate) json: Value,
    pub(crate) golden: BTreeMap<String, Tensor>,
    inputs: BTreeMap<String, Tensor>,
}

/// The outcome of a case: nothing, or what differs.
pub(crate) type Outcome = Result<(), String>;

impl Case {
    pub(crate) fn open(folder: &Path) -> Result<Self, String> {
        let json = read_json(&folder.join("case.json"))?;
        let tensors = |file: &str| -> Result<BTreeMap<String, Tensor>, String> {
            let path = folder.join(file);
            if !path.exists() {
                return Ok(BTreeMap::new());
            }
            let found = candle_core::safetensors::load(path, &Device::Cpu).map_err(|e| e.to_string())?;
            Ok(found.into_iter().collect())
        };
        Ok(Self {
            json,
            golden: tensors("golden.safetensors")?,
            inputs: tensors("inputs.safetensors")?,
            folder: folder.to_owned(),
        })
    }

    /// An argument of the call; a tensor's is looked up.
    pub(crate) fn argument(&self, name: &str) -> &Value {
        &self.json["call"][name]
    }

    /// The texts of an argument, one a picture; empty where it was left out.
    pub(crate) fn texts(&self, name: &str, count: usize) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
        match self.argument(name) {
            Value::Array(list) => list.iter().map(text).collect(),
            one => vec![text(one); count],
        }
    }

    /// The noise that was drawn, in order.
    pub(crate) fn draws(&self) -> Vec<Tensor> {
        (0..).map_while(|k| self.get(&format!("noise.{k:02}")).cloned()).collect()
    }

    /// The noise that was drawn in one function.
    pub(crate) fn draws_in(&self, function: &str) -> Vec<Tensor> {
        let list = self.json["noise_draws"].as_array().into_iter().flatten();
        let here = list.filter(|draw| draw["drawn_in"] == function);
        here.filter_map(|draw| self.get(draw["key"].as_str()?).cloned()).collect()
    }

    /// A file that an argument of the call names.
    pub(crate) fn file(&self, argument: &str) -> Option<PathBuf> {
        Some(self.folder.join(self.argument(argument)["png"].as_str()?))
    }

    /// The files of changes to the weights, with their strengths.
    pub(crate) fn loras(&self) -> Vec<(PathBuf, f64)> {
        let list = self.json["lora"].as_array().into_iter().flatten();
        let file = |lora: &Value| Some((self.folder.join(lora["file"].as_str()?), lora["scale"].as_f64()?));
        list.filter_map(file).collect()
    }

    /// The red, green and blue bytes of a result.
    pub(crate) fn picture(&self, image: usize) -> Result<Vec<u8>, String> {
        let names = [format!("result_{image:02}.png"), "result.png".to_owned()];
        let file = names
            .iter()
            .map(|name| self.folder.join(name))
            .find(|path| path.is_file())
            .ok_or("no result.png")?;
        let file = std::io::BufReader::new(fs::File::open(file).map_err(|e| e.to_string())?);
        let mut reader = png::Decoder::new(file).read_info().map_err(|e| e.to_string())?;
        let mut bytes = vec![0; reader.output_buffer_size().ok_or("a huge picture")?];
        let info = reader.next_frame(&mut bytes).map_err(|e| e.to_string())?;
        bytes.truncate(info.buffer_size());
        if info.color_type != png::ColorType::Rgb {
            return Err("the golden picture is not RGB".into());
        }
        Ok(bytes)
    }

    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        self.argument(name).as_f64()
    }

    pub(crate) fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.inputs.get(self.argument(name)["tensor"].as_str()?)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Tensor> {
        self.golden.get(key)
    }

    /// A path of the case, relative to its folder.
    pub(crate) fn path(&self, key: &str) -> Option<PathBuf> {
        Some(self.folder.join(self.json[key].as_str()?))
    }
}

/// Largest difference over largest value; infinite if shapes differ or anything is not a number.
pub(crate) fn distance(ours: &Tensor, golden: &Tensor) -> f64 {
    if ours.dims() != golden.dims() {
        return f64::INFINITY;
    }
    fixtures::distance(&fixtures::numbers(ours), &fixtures::numbers(golden))
}

/// Fails with the name of the stage if two tensors differ by more than `tolerance`; half-precision golden values are
/// held to 1e-3, as `FIXTURES.md` says.
pub(crate) fn close(stage: &str, ours: &Tensor, golden: &Tensor, tolerance: f64) -> Outcome {
    let tolerance =
        if matches!(golden.dtype(), DType::F16 | DType::BF16) { tolerance.max(1e-3) } else { tolerance };
    let found = distance(ours, golden);
    if found <= tolerance {
        return Ok(());
    }
    let shapes = if ours.dims() == golden.dims() {
        String::new()
    } else {
        format!(" {:?} for {:?}", ours.dims(), golden.dims())
    };
    Err(format!("{stage}:{shapes} differs by {found:.2e}, allowed {tolerance:.0e}"))
}

/// The cases of one family and how they fared.
#[derive(Default)]
pub(crate) struct Account {
    passed: usize,
    failed: Vec<String>,
    unsupported: Vec<String>,
}

impl Account {
    pub(crate) fn note(&mut self, case: &str, outcome: Outcome) {
        match outcome {
            Ok(()) => self.passed += 1,
            Err(what) => self.failed.push(format!("{case}: {what}")),
        }
    }

    pub(crate) fn unsupported(&mut self, case: &str) {
        self.unsupported.push(case.to_owned());
    }

    /// Prints one line a family and hands back the failures.
    pub(crate) fn print(self, family: &str) -> Vec<String> {
        let ran = self.passed + self.failed.len();
        let later = match self.unsupported.len() {
            0 => String::new(),
            n => format!("; not yet supported: {n} ({})", self.unsupported.join(", ")),
        };
        if ran == 0 {
            println!("golden {family}: not yet supported{}", later.trim_start_matches("; not yet supported"));
        } else {
            println!("golden {family}: {} of {ran} cases passed{later}", self.passed);
        }
        self.failed.into_iter().map(|failure| format!("{family}/{failure}")).collect()
    }
}

/// Folders below `folder` that hold a `case.json`, by name.
pub(crate) fn cases(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("case.json").is_file())
        .collect();
    found.sort();
    found
}

pub(crate) fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
