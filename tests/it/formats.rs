//! GGUF files and large files: what their keys say, what damage does, what opening costs.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use candle_core::{DType, Device, Tensor};
use latentia::error::{Code, Result};
use latentia::weights::{Value, Weights};

/// A GGUF file, written field by field.
struct Writer {
    keys: Vec<u8>,
    tensors: Vec<u8>,
    counts: (u64, u64),
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// A GGUF file of these tensors in single precision, with or without the name of an architecture.
pub(crate) fn gguf(tensors: &HashMap<String, Tensor>, architecture: Option<&str>) -> Vec<u8> {
    let (mut writer, mut data) = (Writer::bare(), Vec::new());
    if let Some(name) = architecture {
        writer = writer.key("general.architecture", 8, &text(name));
    }
    for (name, tensor) in tensors {
        let dims: Vec<u64> = tensor.dims().iter().rev().map(|&size| size as u64).collect();
        writer = writer.tensor(name, &dims, 0, data.len() as u64);
        let numbers = tensor.to_dtype(DType::F32).and_then(|tensor| tensor.flatten_all()?.to_vec1::<f32>());
        data.extend(numbers.expect("numbers").iter().flat_map(|number| number.to_le_bytes()));
        data.resize(data.len().next_multiple_of(32), 0);
    }
    [writer.header(32), data].concat()
}

impl Writer {
    fn bare() -> Self {
        Self { keys: Vec::new(), tensors: Vec::new(), counts: (0, 0) }
    }

    fn new(architecture: &str) -> Self {
        Self::bare().key("general.architecture", 8, &text(architecture))
    }

    fn key(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        self.keys.extend([&text(key), &kind.to_le_bytes()[..], value].concat());
        self.counts.1 += 1;
        self
    }

    /// `dims` as the file has them: what lies together first.
    fn tensor(mut self, name: &str, dims: &[u64], kind: u32, offset: u64) -> Self {
        self.tensors.extend([&text(name), &(dims.len() as u32).to_le_bytes()[..]].concat());
        self.tensors.extend(dims.iter().flat_map(|size| size.to_le_bytes()));
        self.tensors.extend([&kind.to_le_bytes()[..], &offset.to_le_bytes()].concat());
        self.counts.0 += 1;
        self
    }

    /// The header, filled up to where the data begins.
    fn header(&self, alignment: usize) -> Vec<u8> {
        let counts = [self.counts.0.to_le_bytes(), self.counts.1.to_le_bytes()].concat();
        let mut bytes = [b"GGUF\x03\0\0\0", &counts[..], &self.keys, &self.tensors].concat();
        bytes.resize(bytes.len().next_multiple_of(alignment), 0);
        bytes
    }

    fn open(&self, data: usize) -> Result<Weights> {
        let mut bytes = self.header(32);
        bytes.resize(bytes.len() + data, 1);
        Weights::from_bytes("w.gguf", bytes)
    }
}

fn list(kind: u32, members: &[Vec<u8>]) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &(members.len() as u64).to_le_bytes(), &members.concat()].concat()
}

fn integers(members: &[u32]) -> Vec<u8> {
    list(5, &members.iter().map(|member| member.to_le_bytes().to_vec()).collect::<Vec<_>>())
}

#[test]
fn keys_of_every_kind_are_kept_and_lists_are_read_when_asked_for() {
    let nested = list(9, &[integers(&[1, 2]), integers(&[])]);
    let weights = Writer::new("wan")
        .key("u8", 0, &[200])
        .key("i8", 1, &[200])
        .key("i16", 3, &(-3_i16).to_le_bytes())
        .key("f32", 6, &0.5_f32.to_le_bytes())
        .key("flag", 7, &[1])
        .key("i64", 11, &i64::MIN.to_le_bytes())
        .key("f64", 12, &1.25_f64.to_le_bytes())
        .key("tokenizer.ggml.tokens", 9, &list(8, &[text("a"), text("▁b")]))
        .key("nested", 9, &nested)
        .open(0)
        .expect("good");
    let metadata = &weights.inventory().metadata;
    for (key, said) in [
        ("u8", "200"),
        ("i8", "-56"),
        ("i16", "-3"),
        ("f32", "0.5"),
        ("flag", "true"),
        ("i64", "-9223372036854775808"),
        ("f64", "1.25"),
        ("general.architecture", "wan"),
    ] {
        assert_eq!(metadata[key], said, "{key}");
    }
    assert!(!metadata.contains_key("nested"));
    let tokens = Value::List(vec![Value::Text("a".into()), Value::Text("▁b".into())]);
    assert_eq!(weights.value("tokenizer.ggml.tokens"), Some(tokens));
    let numbers = Value::List(vec![Value::Signed(1), Value::Signed(2)]);
    assert_eq!(weights.value("nested"), Some(Value::List(vec![numbers, Value::List(Vec::new())])));
    assert_eq!(weights.value("nowhere"), None);
}

#[test]
fn shapes_are_turned_round_and_those_that_ggml_cannot_hold_restored() {
    let original = "comfy.gguf.orig_shape.patch.weight";
    let good = Writer::new("sdxl")
        .key(original, 9, &integers(&[2, 4, 2, 2, 2]))
        .tensor("patch.weight", &[32, 2], 8, 0)
        .tensor("first_stage_model.decoder.w", &[3, 2], 0, 96);
    let weights = good.open(96 + 24).expect("good");
    assert_eq!(weights.inventory().shape("patch.weight"), Some(&[2, 4, 2, 2, 2][..]));
    assert_eq!(weights.inventory().shape("first_stage_model.decoder.w"), Some(&[2, 3][..]));
    let tensor = weights.tensor("patch.weight", Some(&[2, 4, 2, 2, 2]), DType::BF16, &Device::Cpu);
    assert_eq!(tensor.expect("read").dims(), [2, 4, 2, 2, 2]);
    assert_eq!(weights.unused(), ["first_stage_model.decoder.w"]);

    let code = |writer: Writer, data| writer.open(data).expect_err("must be refused").code;
    let lies =
        Writer::new("sdxl").key(original, 9, &integers(&[2, 33])).tensor("patch.weight", &[32, 2], 8, 0);
    assert_eq!(code(lies, 68), Code::WeightsCorrupt);
    // Five axes are for a convolution in time.
    assert!(Writer::new("wan").tensor("w", &[1, 1, 1, 1, 2], 0, 0).open(8).is_ok());
    assert_eq!(code(Writer::new("flux").tensor("w", &[1, 1, 1, 1, 2], 0, 0), 8), Code::WeightsCorrupt);
    // Two tensors in one place, a name twice, an alignment that is none, a key twice.
    let twice =
        |second: &str, offset| Writer::new("flux").tensor("a", &[8], 0, 0).tensor(second, &[8], 0, offset);
    assert!(twice("b", 32).open(64).is_ok());
    assert_eq!(code(twice("b", 0), 64), Code::WeightsCorrupt);
    assert_eq!(code(twice("a", 32), 64), Code::WeightsCorrupt);
    assert_eq!(
        code(Writer::new("flux").key("general.alignment", 4, &[24, 0, 0, 0]), 0),
        Code::WeightsCorrupt
    );
    assert_eq!(code(Writer::new("flux").key("a", 0, &[1]).key("a", 0, &[1]), 0), Code::WeightsCorrupt);
    // Lists three deep, and one that says more than it has.
    let deep = list(9, &[list(9, &[integers(&[1])])]);
    assert_eq!(code(Writer::new("flux").key("deep", 9, &deep), 0), Code::WeightsCorrupt);
    let long = [&4_u32.to_le_bytes()[..], &(1_u64 << 61).to_le_bytes()].concat();
    assert_eq!(code(Writer::new("flux").key("long", 9, &long), 0), Code::WeightsCorrupt);
    // A type that we know but do not decode is listed, and refused when a network wants it.
    let listed = Writer::new("flux").tensor("w", &[64], 40, 0).open(36).expect("listed");
    let error = listed.tensor("w", None, DType::F32, &Device::Cpu).expect_err("not read");
    assert_eq!(error.code, Code::ModelIncompatible);
    assert!(error.message.contains("NVFP4"), "{error}");
}

/// Opens and reads everything; errors must be typed, and what comes out must have the shape it says.
fn read_all(bytes: Vec<u8>) -> Result<()> {
    let weights = Weights::from_bytes("w", bytes)?;
    for (name, info) in &weights.inventory().tensors {
        match weights.tensor(name, None, DType::F32, &Device::Cpu) {
            Ok(tensor) => assert_eq!(tensor.dims(), info.shape),
            Err(error) => assert_eq!(error.code, Code::ModelIncompatible, "{error}"),
        }
        if let Some(cut) = info.rows(1, 2) {
            assert!(cut.range.end <= info.range.end);
        }
    }
    for key in weights.inventory().metadata.keys() {
        assert!(weights.value(key).is_some(), "{key}");
    }
    Ok(())
}

#[test]
fn no_flipped_or_cut_quantised_file_panics() {
    let gguf = Writer::new("flux")
        .key("general.alignment", 4, &[32, 0, 0, 0])
        .key("comfy.gguf.orig_shape.a", 9, &integers(&[4, 16]))
        .key("words", 9, &list(8, &[text("a"), text("b")]))
        .key("deep", 9, &list(9, &[integers(&[1]), list(7, &[vec![1]])]))
        .tensor("a", &[32, 2], 8, 0)
        .tensor("b", &[256], 14, 96)
        .tensor("c", &[2, 1, 3], 1, 320);
    let mut gguf = gguf.header(32);
    let header = gguf.len();
    gguf.resize(header + 332, 7);
    for length in 0..gguf.len() {
        assert!(read_all(gguf[..length].to_vec()).is_err(), "cut at {length}");
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/quantised");
    let packed = std::fs::read(folder.join("packed.safetensors")).expect("a fixture");
    // Xorshift (Marsaglia 2003): the same damage in every run.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).expect("31 bits") % below
    };
    for (good, reach, tries) in [(gguf, header, 20_000), (packed.clone(), packed.len(), 400)] {
        read_all(good.clone()).expect("good");
        for _ in 0..tries {
            let mut bad = good.clone();
            for _ in 0..=random(3) {
                let at = random(reach);
                bad[at] = if random(2) == 0 { random(256) as u8 } else { bad[at] ^ (1 << random(8)) };
            }
            let _ = read_all(bad);
        }
    }
}

/// Ten gigabytes with nothing in them.
const LARGE: u64 = 10_000_000_000;
const ASKED: &str = "LATENTIA_TEST_OPENS";

#[test]
fn opening_ten_gigabytes_costs_nothing() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let json = format!(r#"{{"w":{{"dtype":"U8","shape":[{LARGE}],"data_offsets":[0,{LARGE}]}}}}"#);
    let safetensors = [&(json.len() as u64).to_le_bytes(), json.as_bytes()].concat();
    let gguf = Writer::new("flux").tensor("w", &[32, LARGE / 34], 8, 0).header(32);
    for (name, header) in [("w.safetensors", safetensors), ("w.gguf", gguf)] {
        let path = folder.path().join(name);
        let mut file = File::create(&path).expect("made");
        file.write_all(&header).expect("written");
        if file.set_len(header.len() as u64 + LARGE).is_err() {
            return;
        }
        let mut child = Command::new(std::env::current_exe().expect("this test"));
        child.args(["--exact", "formats::what_opening_costs", "--ignored"]).env(ASKED, &path);
        let output = child.output().expect("ran");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
#[ignore = "asked by `opening_ten_gigabytes_costs_nothing`, in a process of its own"]
fn what_opening_costs() {
    let Some(path) = std::env::var_os(ASKED) else { return };
    let began = Instant::now();
    let weights = Weights::open(Path::new(&path)).expect("opens");
    let took = began.elapsed();
    assert!(weights.inventory().bytes() > LARGE - 100);
    assert!(took.as_secs_f64() < 0.2, "took {took:?}");
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let most: u64 = most.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(most < 64 << 10, "{most} KiB");
}
