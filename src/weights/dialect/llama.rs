//! Text encoders as llama.cpp names them in GGUF files, seen in the names of transformers.
//!
//! Only names change. For the architecture `llama` llama.cpp also orders the rows of queries and keys otherwise, which a
//! reader of such a network has to undo.
//!
//! # Source
//! `ggml-org/llama.cpp gguf-py/gguf/tensor_mapping.py`, MIT; checked against the package `gguf` by `scripts/inventory.py`.

use crate::weights::inventory::Inventory;

/// Modules of a block of T5: theirs, transformers'.
const T5: &[(&str, &str)] = &[
    ("attn_q", "layer.0.SelfAttention.q"),
    ("attn_k", "layer.0.SelfAttention.k"),
    ("attn_v", "layer.0.SelfAttention.v"),
    ("attn_o", "layer.0.SelfAttention.o"),
    ("attn_rel_b", "layer.0.SelfAttention.relative_attention_bias"),
    ("attn_norm", "layer.0.layer_norm"),
    ("ffn_gate", "layer.1.DenseReluDense.wi_0"),
    ("ffn_up", "layer.1.DenseReluDense.wi_1"),
    ("ffn_down", "layer.1.DenseReluDense.wo"),
    ("ffn_norm", "layer.1.layer_norm"),
];

/// Modules of a block of a language model.
const BLOCK: &[(&str, &str)] = &[
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("attn_norm", "input_layernorm"),
    ("post_attention_norm", "post_attention_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// The inventory in the names of transformers; `None` if it is not in those of llama.cpp.
pub(in crate::weights) fn rename(theirs: &Inventory) -> Option<Inventory> {
    let is_t5 = theirs.has("enc.blk.0.attn_q.weight");
    if !is_t5 && !theirs.has("blk.0.attn_q.weight") {
        return None;
    }
    let has_norms_behind = theirs.has("blk.0.post_ffw_norm.weight");
    let renamed = |name: &str| if is_t5 { t5(name) } else { language_model(name, has_norms_behind) };
    let tensors = theirs.tensors.iter();
    let tensors =
        tensors.map(|(name, tensor)| (renamed(name).unwrap_or_else(|| name.clone()), tensor.clone()));
    Some(Inventory { tensors: tensors.collect(), metadata: theirs.metadata.clone() })
}

fn t5(name: &str) -> Option<String> {
    let (module, parameter) = name.rsplit_once('.')?;
    match module {
        "token_embd" => return Some(format!("shared.{parameter}")),
        "enc.output_norm" => return Some(format!("encoder.final_layer_norm.{parameter}")),
        _ => {}
    }
    let (block, module) = module.strip_prefix("enc.blk.")?.split_once('.')?;
    let (_, new) = T5.iter().find(|(old, _)| *old == module)?;
    Some(format!("encoder.block.{block}.{new}.{parameter}"))
}

/// `ffn_norm` stands before the feed-forward layer: Gemma, which has norms behind its layers too, calls it so.
fn language_model(name: &str, has_norms_behind: bool) -> Option<String> {
    let (module, parameter) = name.rsplit_once('.')?;
    match module {
        "token_embd" => return Some(format!("model.embed_tokens.{parameter}")),
        "output_norm" => return Some(format!("model.norm.{parameter}")),
        "output" => return Some(format!("lm_head.{parameter}")),
        _ => {}
    }
    let (block, module) = module.strip_prefix("blk.")?.split_once('.')?;
    let new = match (module, has_norms_behind) {
        ("ffn_norm", true) => "pre_feedforward_layernorm",
        ("ffn_norm", false) => "post_attention_layernorm",
        _ => BLOCK.iter().find(|(old, _)| *old == module)?.1,
    };
    Some(format!("model.layers.{block}.{new}.{parameter}"))
}
