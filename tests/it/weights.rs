//! Files of weights as people have them: folders, variants, shards, single files.

use std::path::Path;

use candle_core::{DType, Device, Tensor};
use latentia::error::{Code, Error};
use latentia::weights::{Folder, Single, TextEncoder, Weights, synthetic, vae};

use crate::fixtures::{fixture, folder as fixtures};

fn tensor(weights: &Weights, name: &str) -> Tensor {
    weights.tensor(name, None, DType::F32, &Device::Cpu).expect("a tensor")
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().and_then(|tensor| tensor.to_vec1()).expect("numbers")
}

/// Both have the same names, shapes and numbers; `coarse` forgives what half precision loses.
fn assert_same(single: &Weights, folder: &Weights, coarse: bool) {
    let names: Vec<&str> =
        folder.inventory().names().filter(|name| !name.ends_with("position_ids")).collect();
    assert_eq!(single.inventory().names().collect::<Vec<_>>(), names);
    for name in names {
        let (a, b) = (tensor(single, name), tensor(folder, name));
        assert_eq!(a.dims(), b.dims(), "{name}");
        let b = if coarse {
            b.to_dtype(DType::F16).and_then(|b| b.to_dtype(DType::F32)).expect("cast")
        } else {
            b
        };
        assert_eq!(numbers(&a), numbers(&b), "{name}");
    }
}

#[test]
fn a_single_file_equals_the_folder_it_was_made_from() {
    let fixtures = fixtures();
    for (family, text, coarse) in [("sd15", TextEncoder::Clip, false), ("sd21", TextEncoder::OpenClip, true)]
    {
        let Some(file) = fixture(&format!("{family}/single_file/{family}.safetensors")) else { continue };
        let single = Single::open(&file).expect("opens");
        let folder = Folder::open(&fixtures.join(family).join("model")).expect("opens");
        assert_eq!(single.has_text_encoder(), Some(text));
        assert!(single.has_unet() && single.has_vae());
        assert_eq!((single.strays(), single.ema()), (&[][..], 0));
        assert_same(&single.unet().expect("unet"), &folder.weights("unet").expect("unet"), coarse);
        assert_same(&single.vae().expect("vae"), &folder.weights("vae").expect("vae"), coarse);
        let text = (single.text_encoder().expect("text"), folder.weights("text_encoder").expect("text"));
        assert_same(&text.0, &text.1, coarse);
        assert_eq!(
            single.unet().expect("unet").inventory().blocks("down_blocks"),
            if coarse { 2 } else { 4 }
        );
    }
}

#[test]
fn folders_variants_and_shards_open() {
    let fixtures = fixtures();
    let folder = Folder::open(&fixtures.join("sd15_lcm/model")).expect("opens");
    assert_eq!(folder.class(), "LatentConsistencyModelPipeline");
    assert_eq!(folder.component("scheduler").expect("there").class, "LCMScheduler");
    assert_eq!(
        folder.weights("unet").expect("the variant").label(),
        "unet/diffusion_pytorch_model.fp16.safetensors"
    );
    assert_eq!(
        folder.config("scheduler").expect("config").text("_class_name").expect("text"),
        "LCMScheduler"
    );
    assert!(!folder.file("tokenizer", "vocab.json").expect("file").is_empty());
    assert_eq!(folder.weights("image_encoder").expect_err("not there").code, Code::ModelNotDownloaded);

    let Some(flux) = fixture("flux_dev/model") else { return };
    let folder = Folder::open(&flux).expect("opens");
    let weights = folder.weights("transformer").expect("shards");
    assert_eq!(weights.inventory().bytes(), 983_424);
    assert_eq!(tensor(&weights, "proj_out.bias").dtype(), DType::F32);
    assert_eq!(weights.unused().len(), weights.inventory().tensors.len() - 1);
    let same = Weights::open(
        &fixtures.join("flux_dev/model/transformer/diffusion_pytorch_model.safetensors.index.json"),
    );
    assert_eq!(same.expect("shards").digest(), weights.digest());
}

#[test]
fn the_digest_is_that_of_the_file() {
    let weights = Weights::from_bytes("w", [2_u64.to_le_bytes().as_slice(), b"{}"].concat()).expect("valid");
    // printf '\2\0\0\0\0\0\0\0{}' | sha256sum
    assert_eq!(weights.digest(), EMPTY);
}

const EMPTY: &str = "411a485216e432ece6b9af94fa32154cf79a2a56d4f81266baa50063f45092bd";

/// Saves formula weights and opens them again.
fn toy(shapes: &[(&str, &[usize])]) -> (tempfile::TempDir, Weights) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("toy.safetensors");
    let shapes = shapes.iter().map(|(name, shape)| ((*name).to_owned(), shape.to_vec()));
    synthetic::save(&path, 7, shapes).expect("saved");
    let weights = Weights::open(&path).expect("opens");
    (folder, weights)
}

#[test]
fn formula_weights_are_the_same_in_memory_and_on_disk() {
    let shapes: &[(&str, &[usize])] =
        &[("a.weight", &[40, 30, 3, 3]), ("a.bias", &[40]), ("norm.weight", &[40]), ("t", &[2, 3])];
    let (_folder, saved) = toy(shapes);
    let any = Weights::synthetic(7, []).var_builder(DType::F32, &Device::Cpu);
    for (name, shape) in shapes {
        assert_eq!(numbers(&tensor(&saved, name)), numbers(&any.get(*shape, name).expect("any")), "{name}");
    }
    let values = numbers(&tensor(&saved, "a.weight"));
    let variance = values.iter().map(|value| value * value).sum::<f32>() / values.len() as f32;
    assert!((variance * 270.0 - 1.0).abs() < 0.05, "{variance}");
    // As the formula's Python has it: see `synthetic`.
    assert_eq!(numbers(&tensor(&saved, "t")), TOY);
    assert_eq!(numbers(&tensor(&saved, "norm.weight")), [1.0; 40]);
    assert_eq!(numbers(&tensor(&saved, "a.bias")), [0.0; 40]);
    let only = Weights::synthetic(7, [("t".to_owned(), vec![2, 3])]);
    assert!(only.tensor("a.weight", Some(&[1]), DType::F32, &Device::Cpu).is_err());
}

const TOY: [f32; 6] =
    [-0.007_409_692, -0.242_481_83, 0.016_633_391, -0.099_521_756, 0.921_046_4, -0.610_158_56];

#[test]
fn what_a_network_cannot_get_names_file_tensor_and_shapes() {
    let (_folder, weights) = toy(&[("conv.weight", &[4, 4, 3, 3])]);
    let vb = weights.var_builder(DType::F32, &Device::Cpu).pp("conv");
    let error = Error::from(vb.get((4, 4, 1, 1), "weight").expect_err("another shape"));
    assert_eq!(error.code, Code::ModelIncompatible);
    for part in ["toy.safetensors", "conv.weight", "[4, 4, 3, 3]", "[4, 4, 1, 1]"] {
        assert!(error.message.contains(part), "{error}");
    }
    let error = vb.get(4, "bias").expect_err("missing").context("in a layer").bt();
    let error = Error::from(error);
    assert_eq!(error.code, Code::ModelIncompatible);
    assert!(error.message.contains("`toy.safetensors`: tensor `conv.bias` is missing"), "{error}");
    assert!(vb.contains_tensor("weight") && !vb.contains_tensor("bias"));
    let other: Error = Error::from(candle_core::Error::Msg("boom".into()));
    assert_eq!(other.code, Code::Internal);
}

#[test]
fn an_autoencoder_with_old_or_original_names_reads_like_a_new_one() {
    let old: &[(&str, &[usize])] = &[
        ("encoder.mid_block.attentions.0.query.weight", &[8, 8]),
        ("encoder.mid_block.attentions.0.proj_attn.bias", &[8]),
        ("encoder.mid_block.attentions.0.group_norm.weight", &[8]),
    ];
    let (_folder, weights) = toy(old);
    let expected = ["group_norm.weight", "to_out.0.bias", "to_q.weight"];
    let new = vae(weights);
    let names =
        new.inventory().names().map(|name| name.trim_start_matches("encoder.mid_block.attentions.0."));
    assert_eq!(names.collect::<Vec<_>>(), expected);
    let (_folder, weights) = toy(&[
        ("decoder.up.0.block.0.nin_shortcut.weight", &[4, 8, 1, 1]),
        ("decoder.up.1.upsample.conv.weight", &[8, 8, 3, 3]),
        ("decoder.mid.attn_1.q.weight", &[8, 8, 1, 1]),
    ]);
    let new = vae(weights);
    assert_eq!(
        new.inventory().shape("decoder.up_blocks.1.resnets.0.conv_shortcut.weight"),
        Some(&[4, 8, 1, 1][..])
    );
    assert_eq!(
        new.inventory().shape("decoder.up_blocks.0.upsamplers.0.conv.weight"),
        Some(&[8, 8, 3, 3][..])
    );
    assert_eq!(new.inventory().shape("decoder.mid_block.attentions.0.to_q.weight"), Some(&[8, 8][..]));
}

#[test]
fn a_single_file_says_what_is_missing_and_what_is_strange() {
    let (_folder, weights) = toy(&[
        ("model.diffusion_model.input_blocks.0.0.weight", &[4, 4, 3, 3]),
        ("model.diffusion_model.strange.weight", &[4, 4]),
        ("model_ema.decay", &[]),
        ("betas", &[10]),
        ("strange", &[]),
    ]);
    let single = Single::read(weights).expect("a denoiser");
    assert!(single.unet().expect("there").inventory().has("conv_in.weight"));
    assert_eq!(single.strays(), ["strange", "model.diffusion_model.strange.weight"]);
    assert_eq!(single.ema(), 1);
    assert_eq!(single.vae().expect_err("none").code, Code::ModelNotDownloaded);
    assert!(single.vae().expect_err("none").message.contains("autoencoder"));
    assert_eq!(single.has_text_encoder(), None);
    let (_folder, weights) = toy(&[("double_blocks.0.x", &[2, 2])]);
    assert_eq!(Single::read(weights).expect_err("another family").code, Code::ModelUnsupported);
}

#[test]
fn what_is_not_there_is_not_there() {
    let nowhere = Path::new("/nowhere/at/all");
    assert_eq!(Folder::open(nowhere).expect_err("nothing").code, Code::FileNotFound);
    let error = Weights::open(&nowhere.join("w.safetensors")).expect_err("nothing");
    assert_eq!(error.code, Code::FileNotFound);
    assert!(!error.to_string().contains("/nowhere"), "paths stay private: {error}");
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(Weights::open(folder.path()).expect_err("a folder").code, Code::UnsupportedFormat);
    assert_eq!(Folder::open(folder.path()).expect_err("no index").code, Code::FileNotFound);
}
