//! Names in a file of changes: which module, and which of its matrices.
//!
//! # Source
//! `models.md` 4.1; `kohya-ss/sd-scripts networks/lora.py`, `KohakuBlueleaf/LyCORIS lycoris/modules` and
//! `huggingface/peft src/peft/tuners/lora`, all Apache-2.0: names only.

/// What a tensor is to its module's change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Role {
    /// Low rank: from the input to the rank, between, from the rank to the output.
    Down,
    Middle,
    Up,
    /// The bias of the last.
    UpBias,
    /// What the rank is divided into.
    Alpha,
    /// Low rank squared by Hadamard: two pairs of matrices, and their kernels.
    Hada1a,
    Hada1b,
    Hada2a,
    Hada2b,
    HadaT1,
    HadaT2,
    /// A Kronecker product: each factor whole, or a product itself.
    Kron1,
    Kron1a,
    Kron1b,
    Kron2,
    Kron2a,
    Kron2b,
    KronT2,
    /// The magnitudes of weights whose directions alone are changed: by whichever axis its shape says, or a row each.
    Magnitude,
    RowMagnitude,
    /// A whole difference.
    Difference,
    BiasDifference,
}

/// Ends of names, longest first where one is the end of another.
const ENDS: &[(&str, Role)] = &[
    (".lora_linear_layer.down.weight", Role::Down),
    (".lora_linear_layer.up.weight", Role::Up),
    (".lora_A.default.weight", Role::Down),
    (".lora_B.default.weight", Role::Up),
    (".lora_B.default.bias", Role::UpBias),
    (".lora_magnitude_vector.default.weight", Role::RowMagnitude),
    (".lora_magnitude_vector.weight", Role::RowMagnitude),
    (".lora_magnitude_vector", Role::RowMagnitude),
    (".lora_down.weight", Role::Down),
    (".lora_mid.weight", Role::Middle),
    (".lora_up.weight", Role::Up),
    (".lora_up.bias", Role::UpBias),
    (".lora_A.weight", Role::Down),
    (".lora_B.weight", Role::Up),
    (".lora_B.bias", Role::UpBias),
    (".lora.down.weight", Role::Down),
    (".lora.up.weight", Role::Up),
    ("_lora.down.weight", Role::Down),
    ("_lora.up.weight", Role::Up),
    (".alpha", Role::Alpha),
    (".hada_w1_a", Role::Hada1a),
    (".hada_w1_b", Role::Hada1b),
    (".hada_w2_a", Role::Hada2a),
    (".hada_w2_b", Role::Hada2b),
    (".hada_t1", Role::HadaT1),
    (".hada_t2", Role::HadaT2),
    (".lokr_w1_a", Role::Kron1a),
    (".lokr_w1_b", Role::Kron1b),
    (".lokr_w1", Role::Kron1),
    (".lokr_w2_a", Role::Kron2a),
    (".lokr_w2_b", Role::Kron2b),
    (".lokr_w2", Role::Kron2),
    (".lokr_t2", Role::KronT2),
    (".dora_scale", Role::Magnitude),
    (".diff", Role::Difference),
    (".diff_b", Role::BiasDifference),
    (".w_norm", Role::Difference),
    (".b_norm", Role::BiasDifference),
];

/// The module and the role of a tensor; `None` if its name says neither.
pub(super) fn read(name: &str) -> Option<(String, Role)> {
    let (module, role) = ENDS.iter().find_map(|(end, role)| Some((name.strip_suffix(end)?, *role)))?;
    let module = module.strip_prefix("base_model.model.").unwrap_or(module);
    // diffusers once kept the matrices in the attention's processor: `attn1.processor.to_out`.
    let Some((attention, map)) = module.split_once(".processor.") else {
        return Some((module.to_owned(), role));
    };
    let map = if map == "to_out" { "to_out.0" } else { map };
    Some((format!("{attention}.{map}"), role))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_read() {
        for (name, module, role) in [
            ("lora_unet_mid_block_x.lora_down.weight", "lora_unet_mid_block_x", Role::Down),
            ("unet.a.to_q.lora_B.weight", "unet.a.to_q", Role::Up),
            ("base_model.model.unet.a.lora_A.default.weight", "unet.a", Role::Down),
            ("text_encoder.a.k_proj.lora_linear_layer.up.weight", "text_encoder.a.k_proj", Role::Up),
            ("unet.attn1.processor.to_out_lora.down.weight", "unet.attn1.to_out.0", Role::Down),
            ("lycoris_a.lokr_w1_b", "lycoris_a", Role::Kron1b),
            ("a.lora_magnitude_vector", "a", Role::RowMagnitude),
        ] {
            assert_eq!(read(name), Some((module.to_owned(), role)), "{name}");
        }
        assert_eq!(read("unet.a.oft_blocks"), None);
    }
}
