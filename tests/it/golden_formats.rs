//! Files of weights in every format people have, number by number.

use std::collections::BTreeMap;
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use latentia::error::Code;
use latentia::weights::{Block, Scalar, Weights};

use crate::fixtures::{distance, fixture, numbers, tensors};
use crate::golden::{Account, Outcome};

fn read(weights: &Weights, name: &str, dtype: DType) -> Result<Tensor, String> {
    weights.tensor(name, None, dtype, &Device::Cpu).map_err(|error| error.to_string())
}

fn equal(ours: &Tensor, golden: &Tensor) -> Outcome {
    if ours.dims() != golden.dims() {
        return Err(format!("shape {:?} for {:?}", ours.dims(), golden.dims()));
    }
    let (ours, golden) = (numbers(ours), numbers(golden));
    match ours.iter().zip(&golden).position(|(ours, golden)| *ours - *golden != 0.0) {
        None => Ok(()),
        Some(at) => Err(format!("number {at} is {} for {}", ours[at], golden[at])),
    }
}

fn done(account: Account, family: &str) {
    let failed = account.print(family);
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn golden_gguf_types_are_decoded_to_the_last_bit() {
    let Some(folder) = fixture("gguf_types") else { return };
    let weights = Weights::open(&folder.join("types.gguf")).expect("opens");
    assert_eq!(weights.inventory().metadata["general.architecture"], "flux");
    assert_eq!(weights.half_precision(), None);
    let mut account = Account::default();
    for (name, golden) in tensors(&folder.join("golden.safetensors")) {
        let outcome = || {
            let ours = read(&weights, &name, DType::F32)?;
            equal(&ours, &golden)?;
            let narrow = |tensor: &Tensor, dtype| tensor.to_dtype(dtype).map_err(|error| error.to_string());
            [DType::F16, DType::BF16]
                .into_iter()
                .try_for_each(|dtype| equal(&read(&weights, &name, dtype)?, &narrow(&golden, dtype)?))
        };
        account.note(&name, outcome());
    }
    assert_eq!(weights.unused(), [""; 0]);
    done(account, "gguf_types");
}

/// The most that a type may lose of a number, as a share of the largest of its 32 neighbours.
fn loss(scalar: Scalar) -> f64 {
    match scalar {
        // Half a step of 127; the scale itself is half precision.
        Scalar::Block(Block::Q8_0) => 0.5 / 127.0 + 1e-3,
        // Steps of an eighth from −8 to 7: the other end is a whole step away.
        Scalar::Block(Block::Q4_0) => 1.0 / 8.0 + 1e-3,
        Scalar::F8E4m3 => 1.0 / 16.0,
        _ => 1e-3,
    }
}

/// Every tensor of a quantised file against the file it was made from.
fn against(quantised: &Path, original: &Path, wanted: Scalar) -> Account {
    let (weights, original) =
        (Weights::open(quantised).expect("opens"), Weights::open(original).expect("opens"));
    let names: Vec<&str> = original.inventory().names().collect();
    assert_eq!(weights.inventory().names().collect::<Vec<_>>(), names);
    let mut account = Account::default();
    for name in names {
        let outcome = || {
            let (ours, theirs) = (read(&weights, name, DType::F32)?, read(&original, name, DType::F32)?);
            if ours.dims() != theirs.dims() {
                return Err(format!("shape {:?} for {:?}", ours.dims(), theirs.dims()));
            }
            let allowed = loss(weights.inventory().tensors[name].scalar);
            let (ours, theirs) = (numbers(&ours), numbers(&theirs));
            let worst =
                ours.chunks(32).zip(theirs.chunks(32)).map(|(a, b)| distance(a, b)).fold(0.0, f64::max);
            if worst <= allowed { Ok(()) } else { Err(format!("loses {worst:.4}, allowed {allowed:.4}")) }
        };
        account.note(name, outcome());
    }
    let scalars = weights.inventory().tensors.values().filter(|info| info.scalar == wanted);
    assert!(scalars.count() > 10, "{} is the type of this file", wanted.name());
    assert_eq!(weights.half_precision(), None);
    account
}

#[test]
fn golden_flux_and_wan_files_hold_what_they_were_made_from() {
    let (q8, q4) = (Scalar::Block(Block::Q8_0), Scalar::Block(Block::Q4_0));
    for (file, original, scalar) in [
        ("flux_dev/flux1-Q8_0.gguf", "flux_dev/single_file/flux1.safetensors", q8),
        ("flux_dev/flux1-Q4_0.gguf", "flux_dev/single_file/flux1.safetensors", q4),
        ("flux_dev/flux1-fp8.safetensors", "flux_dev/single_file/flux1.safetensors", Scalar::F8E4m3),
        ("wan21_t2v/wan-Q8_0.gguf", "wan21_t2v/single_file/wan.safetensors", q8),
    ] {
        let (Some(quantised), Some(original)) = (fixture(file), fixture(original)) else { continue };
        done(against(&quantised, &original, scalar), file);
    }
}

#[test]
fn golden_packed_weights_are_what_their_makers_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/quantised");
    let weights = Weights::open(&folder.join("packed.safetensors")).expect("opens");
    let golden: BTreeMap<_, _> = tensors(&folder.join("golden.safetensors")).into_iter().collect();
    let names: Vec<&str> = weights.inventory().names().filter(|name| *name != "block.weight").collect();
    assert_eq!(names, golden.keys().map(String::as_str).collect::<Vec<_>>(), "scales are no tensors");
    let mut account = Account::default();
    for (name, golden) in &golden {
        let vb = weights.var_builder(DType::F32, &Device::Cpu);
        let ours = vb.get(golden.dims(), name).map_err(|error| error.to_string());
        account.note(name, ours.and_then(|ours| equal(&ours, golden)));
    }
    assert_eq!(weights.inventory().tensors["nested.weight"].scalar.name(), "NF4");
    let error = weights.tensor("block.weight", None, DType::F32, &Device::Cpu).expect_err("not read");
    assert_eq!(error.code, Code::ModelIncompatible);
    assert!(error.message.contains("nvfp4"), "{error}");
    done(account, "quantised");
}

#[test]
fn golden_smallest_blocks_are_decoded_to_the_last_bit() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/quantised");
    let weights = Weights::open(&folder.join("lattice.gguf")).expect("opens");
    let golden = tensors(&folder.join("lattice_golden.safetensors"));
    let types: Vec<&str> = weights.inventory().tensors.values().map(|info| info.scalar.name()).collect();
    assert_eq!(types, ["IQ1_M", "IQ1_S", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ3_S", "IQ3_XXS"]);
    let mut account = Account::default();
    for (name, golden) in golden {
        account.note(&name, read(&weights, &name, DType::F32).and_then(|ours| equal(&ours, &golden)));
    }
    done(account, "lattice");
}
