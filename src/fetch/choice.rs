//! Which files of a repository one model needs: no second copy in another precision, no pickles, no demo pictures.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::form::{Kind, Weights, is_beside, is_pickle, is_setting, is_small, weights, whole_name};
use super::listing::{Listed, is_weights};
use crate::error::{Code, Error, Result};

/// Parts of a pipeline that only judge finished pictures, and that nobody here asks.
const UNUSED: &[&str] = &["safety_checker"];
/// What makes a folder a pipeline.
pub(super) const INDEX: &str = "model_index.json";
/// A small file, at most.
const SMALL_BYTES: u64 = 64 << 20;
/// Precisions by preference, where nobody asks for one: half of the bytes first. "" has none in its name.
const PREFERRED: &[&str] = &["fp16", "bf16", ""];
/// What people call the form without a precision in its name.
const PLAIN: &[&str] = &["fp32", "full", "main", "plain"];

/// What was chosen.
#[derive(Debug, PartialEq)]
pub(super) struct Choice {
    pub(super) files: Vec<Listed>,
    /// Which form of the weights, if their names say one.
    pub(super) variant: Option<String>,
    /// Files of weights that were left out because they can run code.
    pub(super) pickles: usize,
}

/// Chooses by what is asked for: a precision of a pipeline, or one file of weights by its name.
///
/// `index` is the repository's own, if it has one.
pub(super) fn choose(files: &[Listed], index: Option<&Value>, wish: Option<&str>) -> Result<Choice> {
    let chosen = match index {
        // A file that is named is meant, whatever else is there.
        Some(index) if !wish.is_some_and(is_weights) => pipeline(files, index, wish)?,
        _ => single(files, wish)?,
    };
    let mut seen = BTreeSet::new();
    for file in &chosen.files {
        if !seen.insert(file.path.to_ascii_lowercase()) {
            let message = format!("the repository has `{}` twice, in small and large letters", file.path);
            return Err(Error::new(Code::DownloadCorrupt, message));
        }
    }
    Ok(chosen)
}

/// A folder of parts: of each part its settings, its words, and one form of its weights.
fn pipeline(files: &[Listed], index: &Value, wish: Option<&str>) -> Result<Choice> {
    let mut chosen: Vec<Listed> = files.iter().filter(|file| is_beside(&file.path)).cloned().collect();
    let mut weighted: BTreeMap<&str, Vec<(&Listed, Weights<'_>)>> = BTreeMap::new();
    let mut pickles = 0;
    let parts = index.as_object().into_iter().flatten();
    for (name, _) in parts.filter(|(_, value)| value.get(1).is_some_and(Value::is_string)) {
        if UNUSED.contains(&name.as_str()) {
            continue;
        }
        let own: Vec<(&Listed, &str)> = files
            .iter()
            .filter_map(|file| Some((file, file.path.strip_prefix(name.as_str())?.strip_prefix('/')?)))
            .filter(|(_, rest)| !rest.contains('/'))
            .collect();
        let mut forms = Vec::new();
        let mut pickled = None;
        for (file, rest) in own {
            if let Some(weights) = weights(rest) {
                forms.push((file, weights));
            } else if is_pickle(rest) {
                pickles += 1;
                pickled = pickled.or(Some(file));
            } else if is_small(rest) && file.bytes <= SMALL_BYTES && !rest.contains(".index.") {
                chosen.push(file.clone());
            }
        }
        match (forms.is_empty(), pickled) {
            (true, Some(file)) => return Err(only_pickles(&file.path)),
            (true, None) => {}
            (false, _) => {
                weighted.insert(name, forms);
            }
        }
    }
    let variant = settle(&weighted, wish)?;
    for forms in weighted.values() {
        let own = if has(forms, &variant) { variant.as_str() } else { fallback(forms) };
        let indexed = forms.iter().any(|(_, form)| form.variant == own && form.kind == Kind::Index);
        let needed = |form: &Weights<'_>| form.variant == own && (indexed != (form.kind == Kind::Whole));
        chosen.extend(forms.iter().filter(|(_, form)| needed(form)).map(|(file, _)| (*file).clone()));
    }
    Ok(Choice { files: chosen, variant: Some(variant).filter(|name| !name.is_empty()), pickles })
}

/// Whether a component has this form whole.
fn has(forms: &[(&Listed, Weights<'_>)], variant: &str) -> bool {
    forms.iter().any(|(_, form)| form.variant == variant && form.kind != Kind::Shard)
}

/// The form of a component that has not the one that was chosen.
fn fallback<'a>(forms: &[(&Listed, Weights<'a>)]) -> &'a str {
    if has(forms, "") {
        return "";
    }
    forms.iter().find(|(_, form)| form.kind != Kind::Shard).map_or("", |(_, form)| form.variant)
}

/// Which form is taken: the one asked for, else the smallest that every component has.
fn settle(weighted: &BTreeMap<&str, Vec<(&Listed, Weights<'_>)>>, wish: Option<&str>) -> Result<String> {
    let everywhere = |variant: &str| weighted.values().all(|forms| has(forms, variant));
    let Some(wish) = wish else {
        return Ok((*PREFERRED.iter().find(|variant| everywhere(variant)).unwrap_or(&"")).to_owned());
    };
    let plain = if PLAIN.contains(&wish.to_ascii_lowercase().as_str()) { "" } else { wish };
    if weighted.values().any(|forms| has(forms, plain)) {
        return Ok(plain.to_owned());
    }
    let mut there: BTreeSet<&str> = BTreeSet::new();
    for (_, form) in weighted.values().flatten() {
        there.insert(if form.variant.is_empty() { "fp32" } else { form.variant });
    }
    let there: Vec<&str> = there.into_iter().collect();
    Err(Error::argument("variant", format!("the repository has no variant `{wish}`"))
        .hint(format!("its variants: {}", there.join(", "))))
}

/// A repository without an index: one file of weights, or the shards of one, with what lies beside it.
fn single(files: &[Listed], wish: Option<&str>) -> Result<Choice> {
    let mut groups: BTreeMap<String, Vec<&Listed>> = BTreeMap::new();
    for file in files.iter().filter(|file| is_weights(&file.path)) {
        groups.entry(whole_name(&file.path)).or_default().push(file);
    }
    let pickled: Vec<&Listed> = files.iter().filter(|file| is_pickle(&file.path)).collect();
    let name = match wish {
        Some(wish) => asked_for(&groups, wish)?,
        None => lone(&groups, &pickled)?,
    };
    let mut chosen: Vec<Listed> = groups.get(&name).into_iter().flatten().map(|&file| file.clone()).collect();
    let (folder, file) = name.rsplit_once('/').map_or(("", name.as_str()), |(folder, file)| (folder, file));
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    let sharded = chosen.len() > 1 || chosen.iter().any(|file| file.path != name);
    let beside = |path: &str| {
        let (other, rest) = path.rsplit_once('/').unwrap_or(("", path));
        let index = sharded && rest == format!("{file}.index.json");
        other == folder && (index || is_setting(rest) || rest == format!("{stem}.yaml"))
    };
    let licence = |path: &str| is_beside(path) && path != INDEX;
    let small = |file: &&Listed| file.bytes <= SMALL_BYTES && (beside(&file.path) || licence(&file.path));
    chosen.extend(files.iter().filter(small).cloned());
    let variant = (groups.len() > 1).then(|| stem.to_owned());
    Ok(Choice { files: chosen, variant, pickles: pickled.len() })
}

/// The file that people mean: its path, its name, its stem, or a part of the name that no other file has.
fn asked_for(groups: &BTreeMap<String, Vec<&Listed>>, wish: &str) -> Result<String> {
    let wish = wish.to_ascii_lowercase();
    let base = |name: &str| name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
    let ways: [&dyn Fn(&str) -> bool; 4] = [
        &|name| name.to_ascii_lowercase() == wish,
        &|name| base(name) == wish,
        &|name| base(name).rsplit_once('.').is_some_and(|(stem, _)| stem == wish),
        &|name| base(name).contains(&wish),
    ];
    for way in ways {
        let found: Vec<&String> = groups.keys().filter(|name| way(name)).collect();
        match found.as_slice() {
            [] => {}
            [one] => return Ok((*one).clone()),
            several => {
                let names: Vec<&str> = several.iter().map(|name| name.as_str()).collect();
                return Err(Error::argument(
                    "variant",
                    format!("`{wish}` is said of {} files", several.len()),
                )
                .hint(format!("say one of {}", some(&names))));
            }
        }
    }
    let names: Vec<&str> = groups.keys().map(String::as_str).collect();
    Err(Error::argument("variant", format!("the repository has no file of weights `{wish}`"))
        .hint(format!("its files of weights: {}", some(&names))))
}

/// The one file of weights that there is to take, at the top or anywhere.
fn lone(groups: &BTreeMap<String, Vec<&Listed>>, pickled: &[&Listed]) -> Result<String> {
    let top: Vec<&String> = groups.keys().filter(|name| !name.contains('/')).collect();
    let all: Vec<&String> = groups.keys().collect();
    let candidates = if top.is_empty() { &all } else { &top };
    if let [one] = candidates.as_slice() {
        return Ok((*one).clone());
    }
    // One set of weights in several precisions.
    let forms: Vec<(&String, &str)> =
        candidates.iter().filter_map(|name| Some((*name, weights(name)?.variant))).collect();
    if forms.len() == candidates.len() {
        let preferred = PREFERRED.iter().find_map(|variant| forms.iter().find(|(_, own)| own == variant));
        if let Some((name, _)) = preferred {
            return Ok((*name).clone());
        }
    }
    match (candidates.first(), pickled.first()) {
        (Some(_), _) => {
            let names: Vec<&str> = candidates.iter().map(|name| name.as_str()).collect();
            let message = format!("the repository has {} files of weights", names.len());
            Err(Error::argument("variant", message)
                .hint(format!("say REPO:FILE with one of {}", some(&names))))
        }
        (None, Some(file)) => Err(only_pickles(&file.path)),
        (None, None) => Err(Error::new(Code::ModelIncompatible, "the repository has no weights")),
    }
}

/// At most twelve names.
fn some(names: &[&str]) -> String {
    match names {
        few if few.len() <= 12 => few.join(", "),
        many => format!("{} and {} more", many[..12].join(", "), many.len() - 12),
    }
}

fn only_pickles(path: &str) -> Error {
    Error::new(
        Code::UnsupportedFormat,
        format!("the repository has `{path}` and no .safetensors in its place"),
    )
    .hint("pickles can run code and are never fetched; look for a conversion of the model")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn listed(paths: &[&str]) -> Vec<Listed> {
        paths.iter().map(|path| Listed { path: (*path).to_owned(), bytes: 1, digest: None }).collect()
    }

    fn chosen(
        paths: &[&str],
        index: Option<&Value>,
        wish: Option<&str>,
    ) -> Result<(Vec<String>, Option<String>)> {
        let choice = choose(&listed(paths), index, wish)?;
        let mut paths: Vec<String> = choice.files.into_iter().map(|file| file.path).collect();
        paths.sort();
        Ok((paths, choice.variant))
    }

    const PIPELINE: &[&str] = &[
        ".gitattributes",
        "README.md",
        "LICENSE.md",
        "model_index.json",
        "v1-5-pruned.safetensors",
        "v1-5-pruned.ckpt",
        "unet/config.json",
        "unet/diffusion_pytorch_model.safetensors",
        "unet/diffusion_pytorch_model.fp16.safetensors",
        "unet/diffusion_pytorch_model.bin",
        "unet/diffusion_pytorch_model.non_ema.safetensors",
        "text_encoder/config.json",
        "text_encoder/model.safetensors",
        "text_encoder/model.fp16.safetensors",
        "text_encoder/openvino/model.xml",
        "vae/config.json",
        "vae/diffusion_pytorch_model.safetensors",
        "vae/diffusion_pytorch_model.fp16.safetensors",
        "safety_checker/config.json",
        "safety_checker/model.safetensors",
        "tokenizer/vocab.json",
        "tokenizer/merges.txt",
        "scheduler/scheduler_config.json",
        "images/demo.png",
    ];

    fn index() -> Value {
        let part = json!(["diffusers", "A"]);
        json!({ "_class_name": "P", "unet": part, "vae": part, "text_encoder": part, "tokenizer": part, "scheduler": part,
            "safety_checker": part, "feature_extractor": [null, null], "requires_safety_checker": true })
    }

    #[test]
    fn a_pipeline_gives_one_precision_of_each_part_and_nothing_else() {
        let (half, variant) = chosen(PIPELINE, Some(&index()), None).expect("chosen");
        assert_eq!(variant.as_deref(), Some("fp16"));
        assert_eq!(
            half,
            [
                "LICENSE.md",
                "model_index.json",
                "scheduler/scheduler_config.json",
                "text_encoder/config.json",
                "text_encoder/model.fp16.safetensors",
                "tokenizer/merges.txt",
                "tokenizer/vocab.json",
                "unet/config.json",
                "unet/diffusion_pytorch_model.fp16.safetensors",
                "vae/config.json",
                "vae/diffusion_pytorch_model.fp16.safetensors",
            ]
        );
        let (full, variant) = chosen(PIPELINE, Some(&index()), Some("fp32")).expect("chosen");
        assert!(variant.is_none() && full.contains(&"unet/diffusion_pytorch_model.safetensors".to_owned()));
        assert!(full.iter().all(|path| !path.contains("fp16") && !path.contains("non_ema")));
        // A form that only one part has: the others come plain.
        let (mixed, _) = chosen(PIPELINE, Some(&index()), Some("non_ema")).expect("chosen");
        assert!(mixed.contains(&"unet/diffusion_pytorch_model.non_ema.safetensors".to_owned()));
        assert!(mixed.contains(&"vae/diffusion_pytorch_model.safetensors".to_owned()));
        let error = chosen(PIPELINE, Some(&index()), Some("int3")).expect_err("none");
        assert!(error.hint.is_some_and(|hint| hint.contains("fp16, fp32, non_ema")));
    }

    #[test]
    fn a_file_of_a_pipelines_repository_comes_alone() {
        let (one, _) =
            chosen(PIPELINE, Some(&index()), Some("v1-5-pruned.safetensors")).expect("the file at the top");
        assert_eq!(one, ["LICENSE.md", "v1-5-pruned.safetensors"]);
        let name = "vae/diffusion_pytorch_model.fp16.safetensors";
        let (part, _) = chosen(PIPELINE, Some(&index()), Some(name)).expect("a part");
        assert_eq!(part, ["LICENSE.md", "vae/config.json", name]);
    }

    #[test]
    fn shards_come_with_their_index() {
        let part = json!({ "transformer": ["diffusers", "A"] });
        let paths = [
            "model_index.json",
            "transformer/diffusion_pytorch_model-00001-of-00002.safetensors",
            "transformer/diffusion_pytorch_model-00002-of-00002.safetensors",
            "transformer/diffusion_pytorch_model.safetensors.index.json",
        ];
        assert_eq!(chosen(&paths, Some(&part), None).expect("chosen").0, sorted(&paths));
        let loose = [
            "diffusion_pytorch_model-00001-of-00001.safetensors",
            "diffusion_pytorch_model.safetensors.index.json",
            "config.json",
        ];
        assert_eq!(chosen(&loose, None, None).expect("chosen").0.len(), 3);
    }

    fn sorted(paths: &[&str]) -> Vec<String> {
        let mut paths: Vec<String> = paths.iter().map(|&path| path.to_owned()).collect();
        paths.sort();
        paths
    }

    #[test]
    fn a_repository_of_files_gives_the_one_that_is_meant() {
        let files = ["flux-Q4_K_S.gguf", "flux-Q4_K_M.gguf", "flux-Q8_0.gguf", "README.md"];
        assert_eq!(chosen(&files, None, Some("q8_0")).expect("one").0, ["flux-Q8_0.gguf"]);
        assert_eq!(
            chosen(&files, None, Some("flux-Q8_0.gguf")).expect("one").1.as_deref(),
            Some("flux-Q8_0")
        );
        assert_eq!(chosen(&files, None, Some("q4")).expect_err("two").code, Code::InvalidArgument);
        assert_eq!(chosen(&files, None, Some("q5")).expect_err("none").code, Code::InvalidArgument);
        assert!(
            chosen(&files, None, None)
                .expect_err("three")
                .hint
                .is_some_and(|hint| hint.contains("REPO:FILE"))
        );
        let one = ["model.safetensors", "model.yaml", "config.json", "other.json", "model.ckpt"];
        assert_eq!(
            chosen(&one, None, None).expect("one").0,
            ["config.json", "model.safetensors", "model.yaml"]
        );
        let forms = ["diffusion_pytorch_model.safetensors", "diffusion_pytorch_model.fp16.safetensors"];
        assert_eq!(chosen(&forms, None, None).expect("one").0, ["diffusion_pytorch_model.fp16.safetensors"]);
    }

    #[test]
    fn pickles_are_never_taken() {
        assert_eq!(chosen(&["model.ckpt"], None, None).expect_err("pickle").code, Code::UnsupportedFormat);
        assert_eq!(chosen(&["README.md"], None, None).expect_err("empty").code, Code::ModelIncompatible);
        let part = json!({ "unet": ["diffusers", "A"] });
        let paths = ["model_index.json", "unet/config.json", "unet/diffusion_pytorch_model.bin"];
        assert_eq!(chosen(&paths, Some(&part), None).expect_err("pickle").code, Code::UnsupportedFormat);
        assert_eq!(chosen(&["A.gguf"], None, None).expect("one").0, ["A.gguf"]);
        let twice = ["model_index.json", "unet/config.json", "unet/Config.json"];
        assert_eq!(chosen(&twice, Some(&part), None).expect_err("twice").code, Code::DownloadCorrupt);
    }
}
