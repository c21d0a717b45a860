//! What a file is, by its name alone: weights in which precision, a shard or an index of them, settings, a pickle.

use super::choice::INDEX;

/// What the weights of a component are called, before their ending.
const STEMS: &[&str] = &["diffusion_pytorch_model", "model"];
/// How small files end that a component may need: settings, words, licences.
const SMALL: &[&str] = &[".json", ".txt", ".model", ".jinja"];

/// A file of weights of one form.
pub(super) struct Weights<'a> {
    pub(super) variant: &'a str,
    pub(super) kind: Kind,
}

/// What of the weights it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Whole,
    Shard,
    Index,
}

/// A file of weights of a component by its name, if it is one.
pub(super) fn weights(file: &str) -> Option<Weights<'_>> {
    let rest = STEMS.iter().find_map(|stem| file.strip_prefix(stem))?;
    if let Some(rest) = rest.strip_prefix(".safetensors.index") {
        let variant = rest.strip_suffix(".json")?;
        return Some(Weights { variant: variant.strip_prefix('.').unwrap_or(variant), kind: Kind::Index });
    }
    let rest = rest.strip_suffix(".safetensors")?;
    let (start, end, kind) = match shard(rest) {
        Some(number) => (&rest[..number], &rest[number + SHARD..], Kind::Shard),
        None => (rest, "", Kind::Whole),
    };
    // The number stands before the variant or behind it.
    let variant = if start.is_empty() { end } else { start };
    match variant.strip_prefix('.') {
        Some(variant) if !variant.is_empty() => Some(Weights { variant, kind }),
        None if variant.is_empty() => Some(Weights { variant, kind }),
        _ => None,
    }
}

/// The length of `-00001-of-00002`.
const SHARD: usize = 15;

/// Where `-00001-of-00002` stands in a name.
fn shard(name: &str) -> Option<usize> {
    let at = name.find("-of-")?.checked_sub(6)?;
    let digits = |from: usize| {
        name.get(from..from + 5).is_some_and(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
    };
    (name.get(at..=at) == Some("-") && digits(at + 1) && digits(at + 10)).then_some(at)
}

/// The name of the whole whose shard this is, or the file's own.
pub(super) fn whole_name(path: &str) -> String {
    match shard(path) {
        Some(at) => format!("{}{}", &path[..at], &path[at + SHARD..]),
        None => path.to_owned(),
    }
}

/// Files of weights that can run code.
pub(super) fn is_pickle(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    [".bin", ".ckpt", ".pt", ".pth", ".pkl", ".msgpack", ".h5", ".onnx"]
        .iter()
        .any(|ending| path.ends_with(ending))
}

/// Settings, words and licences of a component.
pub(super) fn is_small(file: &str) -> bool {
    !file.starts_with('.') && SMALL.iter().any(|ending| file.ends_with(ending))
}

/// Files at the top that every model takes along: its index, and what its makers allow.
pub(super) fn is_beside(path: &str) -> bool {
    path == INDEX || (!path.contains('/') && path.to_ascii_uppercase().starts_with("LICENSE"))
}

/// Settings and words that lie beside a single file of weights.
pub(super) fn is_setting(file: &str) -> bool {
    [
        "config.json",
        "scheduler_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "vocab.json",
        "merges.txt",
        "spiece.model",
        "tokenizer.model",
    ]
    .contains(&file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_weights_say_precision_and_place() {
        for (name, variant) in [
            ("model.fp16-00001-of-00002.safetensors", "fp16"),
            ("model-00001-of-00002.fp16.safetensors", "fp16"),
            ("model.safetensors.index.fp16.json", "fp16"),
            ("model.safetensors", ""),
        ] {
            assert_eq!(weights(name).map(|form| form.variant), Some(variant), "{name}");
        }
        assert!(weights("model_ema.safetensors").is_none());
        assert_eq!(weights("model-00001-of-00002.safetensors").map(|form| form.kind), Some(Kind::Shard));
        assert_eq!(whole_name("a/flux-00001-of-00002.gguf"), "a/flux.gguf");
        assert_eq!(whole_name("one-of-them.gguf"), "one-of-them.gguf");
    }
}
