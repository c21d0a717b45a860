//! How large the files of a model may be, before anything in them is believed.
//!
//! One row of `reliability.md`'s table each: large enough for every published checkpoint, small enough that a hostile
//! file is refused before it costs memory.

/// The JSON header of a safetensors file; the largest diffusion checkpoints need 0.3 MB.
pub const HEADER_BYTES: usize = 16 << 20;
/// Tensors in one set of weights; published ones have fewer than 5,000.
pub const TENSORS: usize = 32_768;
/// A tensor's name.
pub const NAME_BYTES: usize = 512;
/// A tensor's axes.
pub const DIMS: usize = 8;
/// A `config.json`, `scheduler_config.json` or `model_index.json`.
pub const CONFIG_BYTES: usize = 1 << 20;
/// A tokenizer's file.
pub const TOKENIZER_BYTES: usize = 64 << 20;
/// A `*.safetensors.index.json`.
pub const INDEX_BYTES: usize = 8 << 20;
/// Lists and objects inside one another.
pub const JSON_DEPTH: usize = 64;
/// Keys of a GGUF file; published ones have fewer than 100.
pub const GGUF_KEYS: usize = 4096;
/// A text in a GGUF file.
pub const GGUF_TEXT_BYTES: usize = 1 << 20;
/// Everything in a GGUF file before its tensors' data; the vocabularies of text encoders fit.
pub const GGUF_HEADER_BYTES: usize = 64 << 20;
/// Members of all lists of a GGUF file; the largest vocabularies have 262,144 words, with a score and a kind each.
pub const GGUF_ITEMS: usize = 2 << 20;
/// Lists inside one another in a GGUF file.
pub const GGUF_NESTING: usize = 2;
/// A tensor's axes in a GGUF file; a convolution in time has one more.
pub const GGUF_DIMS: usize = 4;
/// What a GGUF file may align its tensors to, always a power of two.
pub const GGUF_ALIGNMENT: std::ops::RangeInclusive<usize> = 8..=4096;
