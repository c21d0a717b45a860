//! Headers made by formula, from the shapes of published models: each is of exactly one role and family.
//!
//! A line is a name and a shape; `{19}` in a name stands for the numbers from 0 to 18.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::Path;

use latentia::family::known::{Confidence, Finding, Measure, Role, Rule, View, When, identify, rules};
use latentia::weights::{Inventory, Scalar, TensorInfo};
use serde_json::{Value, json};

/// An inventory from lines.
pub(crate) fn inventory(lines: &str) -> Inventory {
    let mut tensors = BTreeMap::new();
    let mut at = 0;
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let mut words = line.split_whitespace();
        let name = words.next().expect("a name");
        let shape: Vec<usize> = words.map(|size| size.parse().expect("a size")).collect();
        for name in numbered(name) {
            let bytes = 2 * shape.iter().product::<usize>();
            let range = at..at + bytes;
            at += bytes;
            tensors.insert(name, TensorInfo::new(Scalar::F16, shape.clone(), 0, range));
        }
    }
    Inventory { tensors, metadata: BTreeMap::new() }
}

/// A file with that header and a hole for its data.
pub(crate) fn save(inventory: &Inventory, path: &Path) {
    let entry = |(name, tensor): (&String, &TensorInfo)| {
        let place = [tensor.range.start, tensor.range.end];
        (name.clone(), json!({ "dtype": tensor.scalar.name(), "shape": tensor.shape, "data_offsets": place }))
    };
    let mut entries: serde_json::Map<String, Value> = inventory.tensors.iter().map(entry).collect();
    if !inventory.metadata.is_empty() {
        entries.insert("__metadata__".into(), json!(inventory.metadata));
    }
    let header = Value::Object(entries).to_string();
    let mut file = File::create(path).expect("made");
    file.write_all(&(header.len() as u64).to_le_bytes()).expect("written");
    file.write_all(header.as_bytes()).expect("written");
    let end = inventory.tensors.values().map(|tensor| tensor.range.end).max().unwrap_or(0);
    file.set_len(8 + (header.len() + end) as u64).expect("a hole");
}

fn numbered(name: &str) -> Vec<String> {
    let Some((head, rest)) = name.split_once('{') else { return vec![name.to_owned()] };
    let (count, tail) = rest.split_once('}').expect("a closed brace");
    let count: usize = count.parse().expect("a number");
    (0..count).flat_map(|n| numbered(&format!("{head}{n}{tail}"))).collect()
}

/// A U-net of these sizes, in the names of CompVis.
pub(crate) fn unet(get: impl Fn(Measure) -> usize) -> String {
    let (width, input, context) = (get(Measure::Width), get(Measure::Input), get(Measure::Context));
    let mut lines = vec![
        format!("input_blocks.0.0.weight {width} {input} 3 3"),
        format!("time_embed.0.weight {} {width}", 4 * width),
        format!("time_embed.2.weight {} {}", 4 * width, 4 * width),
        format!("middle_block.0.in_layers.0.weight {width}"),
        format!("out.2.weight 4 {width} 3 3"),
        format!("out.2.bias 4"),
    ];
    for level in 1..get(Measure::Levels) {
        lines.push(format!("input_blocks.{}.0.op.weight {width} {width} 3 3", 3 * level));
    }
    for depth in 0..get(Measure::Depth) {
        lines
            .push(format!("input_blocks.1.1.transformer_blocks.{depth}.attn2.to_k.weight {width} {context}"));
    }
    let rank = if get(Measure::Linear) == 1 { "" } else { " 1 1" };
    lines.push(format!("input_blocks.1.1.proj_in.weight {width} {width}{rank}"));
    if get(Measure::Middle) == 1 {
        lines.push(format!("middle_block.1.norm.weight {width}"));
    }
    if get(Measure::Temporal) == 1 {
        lines.push(format!("input_blocks.1.1.time_stack.0.norm1.weight {width}"));
    }
    if get(Measure::Added) > 0 {
        lines.push(format!("label_emb.0.0.weight {} {}", 4 * width, get(Measure::Added)));
    }
    lines.join("\n")
}

/// Sizes of Stable Diffusion 1, with these changed.
pub(crate) fn sizes(changed: Vec<(Measure, usize)>) -> impl Fn(Measure) -> usize {
    move |measure| {
        let own = changed.iter().find(|(known, _)| *known == measure).map(|(_, size)| *size);
        own.unwrap_or(match measure {
            Measure::Width => 320,
            Measure::Input | Measure::Levels => 4,
            Measure::Context => 768,
            Measure::Middle | Measure::Depth => 1,
            Measure::Added | Measure::Linear | Measure::Temporal => 0,
        })
    }
}

/// The least inventory that a rule fits: what its conditions ask for, and nothing else.
fn least(rule: &Rule) -> Inventory {
    let mut measures = Vec::new();
    let mut shapes: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut blocks = Vec::new();
    let plain = |name: &str| {
        let first = name.split('|').next().expect("a spelling");
        first.trim_start_matches('/').replace('*', "x.0.x")
    };
    for when in rule.when {
        match *when {
            When::Has(name) => {
                shapes.entry(plain(name)).or_insert_with(|| vec![7, 7]);
            }
            When::Rank(name, rank) => {
                let shape = shapes.entry(plain(name)).or_insert_with(|| vec![7; rank]);
                shape.resize(rank, 7);
            }
            When::Dim(name, axis, size) => {
                let shape = shapes.entry(plain(name)).or_insert_with(|| vec![7, 7]);
                let axis =
                    if axis < 0 { shape.len() - usize::from(axis.unsigned_abs()) } else { axis as usize };
                if shape.len() <= axis {
                    shape.resize(axis + 1, 7);
                }
                shape[axis] = size;
            }
            When::NotDim(name, ..) => {
                shapes.entry(plain(name)).or_insert_with(|| vec![7, 7]);
            }
            When::Blocks(prefix, count) => blocks.push((plain(prefix), count)),
            When::Is(measure, size) => measures.push((measure, size)),
            When::No(_) | When::Not(_) => {}
        }
    }
    let mut lines = String::new();
    if !measures.is_empty() {
        if rule.when.iter().any(|when| matches!(when, When::Is(Measure::Context, 1024))) {
            measures.push((Measure::Linear, 1));
        }
        lines.push_str(&unet(sizes(measures)));
        lines.push('\n');
    }
    for (name, shape) in shapes {
        let shape: Vec<String> = shape.iter().map(ToString::to_string).collect();
        lines.extend([name.as_str(), " ", &shape.join(" "), "\n"]);
    }
    for (prefix, count) in blocks {
        lines.extend([prefix.as_str(), ".{", &count.to_string(), "}.filler 7\n"]);
    }
    // A denoiser of five tensors is none.
    if rule.role == Role::Denoiser {
        lines.push_str("filler.{8}.bias 7\n");
    }
    if rule.role == Role::Lora {
        lines.push_str("filler.lora_down.weight 4 7\n");
    }
    inventory(&lines)
}

#[test]
fn every_row_of_the_tables_is_one_role_and_one_family() {
    let mut wrong = Vec::new();
    for rule in rules() {
        let inventory = least(rule);
        if !rule.fits(&View::new(&inventory, "")) {
            wrong.push(format!("{} {}: does not fit its own least inventory", rule.family, rule.variant));
            continue;
        }
        let found = identify(&inventory);
        let families: BTreeSet<&str> = found
            .claims
            .iter()
            .filter(|claim| claim.fact == "family")
            .map(|claim| claim.value.as_str())
            .collect();
        if found.role != rule.role || families != BTreeSet::from([rule.family]) {
            wrong.push(format!(
                "{:?} {} {}: found {:?} {families:?}",
                rule.role, rule.family, rule.variant, found.role
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn said(found: &Finding, fact: &str) -> String {
    found.says(fact).map(|claim| claim.value.clone()).unwrap_or_default()
}

pub(crate) const FLUX: &str = "img_in.weight 3072 64
    txt_in.weight 3072 4096
    vector_in.in_layer.weight 3072 768
    double_blocks.{19}.img_attn.norm.key_norm.scale 128
    double_blocks.{19}.img_attn.qkv.weight 9216 3072
    single_blocks.{38}.linear1.weight 21504 3072";

/// Published models and twisted ones: name, role, family, variant, lines.
const CASES: &[(&str, Role, &str, &str, &str)] = &[
    ("flux dev", Role::Denoiser, "flux", "dev", "guidance_in.in_layer.weight 3072 256"),
    ("flux schnell", Role::Denoiser, "flux", "schnell", "final_layer.linear.weight 64 3072"),
    (
        "a LoRA of Wan for pictures, with its whole first layer",
        Role::Lora,
        "wan",
        "",
        "diffusion_model.blocks.{40}.self_attn.q.lora_A.weight 32 5120
         diffusion_model.blocks.{40}.self_attn.q.lora_B.weight 5120 32
         diffusion_model.blocks.{40}.self_attn.q.diff_b 5120
         diffusion_model.patch_embedding.weight 5120 36 1 2 2",
    ),
    (
        "a control LoRA of Flux, with its norms",
        Role::Lora,
        "flux",
        "",
        "double_blocks.{19}.img_attn.qkv.lora_A.weight 128 3072
         double_blocks.{19}.img_attn.qkv.lora_B.weight 9216 128
         double_blocks.{19}.img_attn.norm.query_norm.scale 128
         img_in.lora_A.weight 128 128
         img_in.lora_B.weight 3072 128",
    ),
    (
        "an SDXL LoRA of kohya is not one of SD 1",
        Role::Lora,
        "stable-diffusion-xl",
        "",
        "lora_unet_down_blocks_1_attentions_0_transformer_blocks_{2}_attn2_to_k.lora_down.weight 16 2048
         lora_unet_down_blocks_1_attentions_0_transformer_blocks_{2}_attn2_to_k.lora_up.weight 640 16
         lora_unet_down_blocks_1_attentions_0_transformer_blocks_{2}_attn2_to_k.alpha",
    ),
    (
        "a T5 encoder alone, pruned to its encoder",
        Role::TextEncoder,
        "t5",
        "T5-XXL",
        "shared.weight 32128 4096
         encoder.block.{24}.layer.0.SelfAttention.q.weight 4096 4096
         encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight 32 64
         encoder.block.{24}.layer.1.DenseReluDense.wi_1.weight 10240 4096",
    ),
    (
        "UMT5, whose every layer has a bias of its own",
        Role::TextEncoder,
        "umt5",
        "UMT5-XXL",
        "shared.weight 256384 4096
         encoder.block.{24}.layer.0.SelfAttention.q.weight 4096 4096
         encoder.block.{24}.layer.0.SelfAttention.relative_attention_bias.weight 32 64
         encoder.block.{24}.layer.1.DenseReluDense.wi_1.weight 10240 4096",
    ),
    (
        "Mistral, pruned to thirty layers",
        Role::TextEncoder,
        "mistral",
        "Mistral-Small-24B",
        "model.embed_tokens.weight 131072 5120
         model.layers.{30}.self_attn.q_proj.weight 4096 5120",
    ),
    (
        "words taught to SD 1, called by their name",
        Role::Embedding,
        "embedding",
        "of SD 1",
        "<sks-dog> 4 768",
    ),
    (
        "FLUX.1 in one file with its encoders and its autoencoder",
        Role::Checkpoint,
        "flux",
        "dev",
        "model.diffusion_model.img_in.weight 3072 64
         model.diffusion_model.txt_in.weight 3072 4096
         model.diffusion_model.vector_in.in_layer.weight 3072 768
         model.diffusion_model.guidance_in.in_layer.weight 3072 256
         model.diffusion_model.double_blocks.{19}.img_attn.norm.key_norm.scale 128
         text_encoders.clip_l.transformer.text_model.embeddings.token_embedding.weight 49408 768
         text_encoders.clip_l.transformer.text_model.encoder.layers.{12}.mlp.fc1.weight 3072 768
         text_encoders.t5xxl.transformer.shared.weight 32128 4096
         text_encoders.t5xxl.transformer.encoder.block.{24}.layer.0.SelfAttention.q.weight 4096 4096
         text_encoders.t5xxl.transformer.encoder.block.{24}.layer.1.DenseReluDense.wi_1.weight 10240 4096
         vae.decoder.conv_in.weight 512 16 3 3",
    ),
    (
        "SDXL in one file, by its conditioner",
        Role::Checkpoint,
        "stable-diffusion-xl",
        "base",
        "model.diffusion_model.input_blocks.0.0.weight 320 4 3 3
         model.diffusion_model.input_blocks.{3}.0.in_layers.2.weight 320 320 3 3
         model.diffusion_model.input_blocks.3.0.op.weight 320 320 3 3
         model.diffusion_model.input_blocks.6.0.op.weight 640 640 3 3
         model.diffusion_model.input_blocks.7.1.proj_in.weight 1280 1280
         model.diffusion_model.input_blocks.7.1.transformer_blocks.{10}.attn2.to_k.weight 1280 2048
         model.diffusion_model.middle_block.0.in_layers.0.weight 1280
         model.diffusion_model.middle_block.1.proj_in.weight 1280 1280
         model.diffusion_model.time_embed.0.weight 1280 320
         model.diffusion_model.label_emb.0.0.weight 1280 2816
         conditioner.embedders.0.transformer.text_model.embeddings.token_embedding.weight 49408 768
         conditioner.embedders.0.transformer.text_model.encoder.layers.{12}.mlp.fc1.weight 3072 768
         conditioner.embedders.1.model.token_embedding.weight 49408 1280
         conditioner.embedders.1.model.transformer.resblocks.{32}.attn.in_proj_weight 3840 1280
         first_stage_model.decoder.conv_in.weight 512 4 3 3",
    ),
    (
        "SD 3 medium, as its makers name it",
        Role::Denoiser,
        "sd3",
        "3 medium",
        "joint_blocks.{24}.context_block.attn.qkv.weight 4608 1536
         pos_embed 1 36864 1536
         x_embedder.proj.weight 1536 16 2 2",
    ),
    (
        "SD 3.5 medium, whose first blocks attend twice",
        Role::Denoiser,
        "sd3",
        "3.5 medium",
        "joint_blocks.{24}.context_block.attn.qkv.weight 4608 1536
         joint_blocks.{13}.x_block.attn2.qkv.weight 4608 1536
         pos_embed 1 147456 1536
         x_embedder.proj.weight 1536 16 2 2",
    ),
    (
        "SD 3.5 large",
        Role::Denoiser,
        "sd3",
        "3.5 large",
        "joint_blocks.{38}.context_block.attn.qkv.weight 7296 2432
         pos_embed 1 36864 2432
         x_embedder.proj.weight 2432 16 2 2",
    ),
    (
        "FLUX.1 Fill, whose first layer is six times as wide",
        Role::Denoiser,
        "flux",
        "Fill",
        "img_in.weight 3072 384
         txt_in.weight 3072 4096
         vector_in.in_layer.weight 3072 768
         guidance_in.in_layer.weight 3072 256
         double_blocks.{19}.img_attn.norm.key_norm.scale 128
         single_blocks.{38}.linear1.weight 21504 3072",
    ),
    (
        "Chroma, which is no FLUX.1",
        Role::Denoiser,
        "chroma",
        "",
        "distilled_guidance_layer.layers.{5}.in_layer.weight 5120 5120
         distilled_guidance_layer.in_proj.weight 5120 64
         img_in.weight 3072 64
         txt_in.weight 3072 4096
         double_blocks.{19}.img_attn.norm.key_norm.scale 128
         single_blocks.{38}.linear1.weight 21504 3072",
    ),
    (
        "Z-Image, which is no Lumina",
        Role::Denoiser,
        "z-image",
        "6B",
        "cap_embedder.1.weight 3840 2560
         noise_refiner.{2}.attention.k_norm.weight 128
         layers.{30}.adaLN_modulation.0.weight 15360 256
         layers.{30}.attention.qkv.weight 11520 3840
         x_embedder.weight 3840 64",
    ),
    (
        "Lumina 2, which is no Z-Image",
        Role::Denoiser,
        "lumina2",
        "2B",
        "cap_embedder.1.weight 2304 2304
         noise_refiner.{2}.attention.k_norm.weight 96
         layers.{26}.adaLN_modulation.1.weight 9216 1024
         layers.{26}.attention.qkv.weight 3840 2304
         x_embedder.weight 2304 64",
    ),
    (
        "LTX-Video 2B, which is no LTX-2",
        Role::Denoiser,
        "ltx",
        "2B",
        "patchify_proj.weight 2048 128
         adaln_single.linear.weight 12288 2048
         caption_projection.linear_1.weight 2048 4096
         transformer_blocks.{28}.scale_shift_table 6 2048",
    ),
    (
        "HunyuanVideo 1.5",
        Role::Denoiser,
        "hunyuan-video",
        "1.5",
        "img_in.proj.weight 2048 65 1 1 1
         txt_in.individual_token_refiner.blocks.{2}.norm1.weight 2048
         vision_in.proj.0.weight 1152
         double_blocks.{54}.img_attn_qkv.weight 6144 2048",
    ),
    (
        "Wan 2.1 for pictures, which needs their encoder",
        Role::Denoiser,
        "wan",
        "2.1 I2V",
        "patch_embedding.weight 5120 36 1 2 2
         head.modulation 1 2 5120
         img_emb.proj.1.weight 1280 1280
         blocks.{40}.self_attn.q.weight 5120 5120",
    ),
    (
        "one expert of Wan 2.2 for pictures, which does not",
        Role::Denoiser,
        "wan",
        "2.2 I2V, one expert",
        "patch_embedding.weight 5120 36 1 2 2
         head.modulation 1 2 5120
         blocks.{40}.self_attn.q.weight 5120 5120",
    ),
    (
        "Wan 2.1 1.3B",
        Role::Denoiser,
        "wan",
        "2.1 T2V 1.3B",
        "patch_embedding.weight 1536 16 1 2 2
         head.modulation 1 2 1536
         blocks.{30}.self_attn.q.weight 1536 1536",
    ),
    (
        "Wan 2.2 TI2V, which is no I2V of 14B",
        Role::Denoiser,
        "wan",
        "2.2 TI2V 5B",
        "patch_embedding.weight 3072 48 1 2 2
         head.modulation 1 2 3072
         blocks.{30}.self_attn.q.weight 3072 3072",
    ),
    (
        "LTX-2, which is no LTX-Video",
        Role::Denoiser,
        "ltx2",
        "19B",
        "patchify_proj.weight 4096 128
         adaln_single.linear.weight 24576 4096
         audio_adaln_single.linear.weight 12288 2048
         caption_projection.linear_1.weight 4096 3840
         transformer_blocks.{48}.scale_shift_table 6 4096",
    ),
    (
        "FLUX.2 klein 4B, which is no dev",
        Role::Denoiser,
        "flux2",
        "klein 4B",
        "double_stream_modulation_img.lin.weight 18432 3072
         single_stream_modulation.lin.weight 9216 3072
         txt_in.weight 3072 7680
         img_in.weight 3072 128
         double_blocks.{5}.img_attn.norm.key_norm.scale 128
         single_blocks.{20}.linear1.weight 27648 3072",
    ),
    (
        "Qwen-Image, bare, which is no Stable Diffusion",
        Role::Denoiser,
        "qwen-image",
        "20B",
        "img_in.weight 3072 64
         txt_norm.weight 3584
         txt_in.weight 3072 3584
         transformer_blocks.{60}.img_mod.1.weight 18432 3072",
    ),
];

#[test]
fn published_models_and_twisted_ones_are_what_they_are() {
    let xl = |more: Vec<(Measure, usize)>| {
        let mut all = vec![
            (Measure::Context, 2048),
            (Measure::Added, 2816),
            (Measure::Depth, 10),
            (Measure::Levels, 3),
        ];
        all.extend(more);
        unet(sizes(all))
    };
    let below = |prefix: &str, lines: &str| {
        lines.lines().flat_map(|line| [prefix, line.trim(), "\n"]).collect::<String>()
    };
    let sd1 = below("model.diffusion_model.", &unet(sizes(Vec::new())));
    let vae = "first_stage_model.decoder.conv_in.weight 512 4 3 3\n";
    let clip = below(
        "cond_stage_model.transformer.text_model.",
        "embeddings.token_embedding.weight 49408 768\nencoder.layers.{12}.mlp.fc1.weight 3072 768",
    );
    let mut cases: Vec<(String, Role, &str, &str, String)> = CASES
        .iter()
        .map(|(name, role, family, variant, lines)| {
            let lines =
                if name.starts_with("flux ") { format!("{FLUX}\n{lines}") } else { (*lines).to_owned() };
            ((*name).to_owned(), *role, *family, *variant, lines)
        })
        .collect();
    for prefix in
        ["model.diffusion_model.", "diffusion_model.", "transformer.", "_orig_mod.", "module.", "net."]
    {
        let lines = below(prefix, &format!("{FLUX}\nguidance_in.in_layer.weight 3072 256"));
        cases.push((format!("flux behind {prefix}"), Role::Denoiser, "flux", "dev", lines));
    }
    let (sd, sdxl) = ("stable-diffusion", "stable-diffusion-xl");
    cases.extend([
        ("SD 1, whole".into(), Role::Checkpoint, sd, "1", format!("{sd1}{vae}{clip}")),
        ("SD 1, without encoder".into(), Role::Checkpoint, sd, "1", format!("{sd1}{vae}")),
        ("SD 1, alone".into(), Role::Denoiser, sd, "1", sd1.clone()),
        ("SDXL of v, marked".into(), Role::Denoiser, sdxl, "v-prediction", {
            format!("v_pred\nztsnr\n{}", below("model.diffusion_model.", &xl(Vec::new())))
        }),
        ("SDXL".into(), Role::Denoiser, sdxl, "base", below("model.diffusion_model.", &xl(Vec::new()))),
        ("SDXL inpaint".into(), Role::Denoiser, sdxl, "inpaint", xl(vec![(Measure::Input, 9)])),
        ("a U-net nobody has described".into(), Role::Denoiser, "", "", {
            unet(sizes(vec![(Measure::Context, 999)]))
        }),
    ]);
    for (name, role, family, variant, lines) in cases {
        let found = identify(&inventory(&lines));
        let is = (found.role, said(&found, "family"), said(&found, "variant"));
        assert_eq!(is, (role, family.to_owned(), variant.to_owned()), "{name}");
        assert_eq!(family.is_empty(), !found.telling.is_empty(), "{name}: {:?}", found.telling);
    }
}

#[test]
fn what_nothing_tells_stays_unknown_and_is_listed() {
    let found = identify(&inventory("something.{9}.else.weight 64 64\nsomething.large.weight 4096 4096"));
    assert_eq!((found.role, said(&found, "family")), (Role::Other, String::new()));
    assert!(found.telling[0].contains("something.large.weight"), "{:?}", found.telling);
    assert!(found.tasks.is_empty() && !found.runs);
}

#[test]
fn sources_that_disagree_are_reported_and_never_averaged() {
    let mut inventory = inventory(&unet(sizes(Vec::new())));
    inventory.metadata.insert("modelspec.architecture".into(), "stable-diffusion-xl-v1-base".into());
    let mut found = identify(&inventory);
    found.settle();
    assert_eq!(found.family.as_deref(), Some("stable-diffusion"), "shapes win over notes");
    assert!(
        found.conflicts.iter().any(|conflict| conflict.contains("stable-diffusion-xl")),
        "{:?}",
        found.conflicts
    );
    assert!(found.claims.iter().any(|claim| claim.confidence == Confidence::Likely));
}
