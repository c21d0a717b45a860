//! Files that no library builds: families and parts known by their makers' names alone, low-rank changes of every kind,
//! and published networks behind other programs' prefixes and in bundles. Each is of exactly one role and one family.

use std::collections::BTreeSet;

use latentia::family::known::{Finding, Role, identify};
use latentia::weights::Inventory;

use crate::inventories::inventory;
use crate::published::networks;

/// Name, role, family, a word of the variant, lines; sizes are those of `models.md` where it has them.
const CASES: &[(&str, Role, &str, &str, &str)] = &[
    (
        "Stable-Zero123, whose camera is projected outside of its network",
        Role::Denoiser,
        "zero123",
        "1",
        "model.diffusion_model.input_blocks.0.0.weight 320 8 3 3
         model.diffusion_model.input_blocks.1.1.transformer_blocks.0.attn2.to_k.weight 320 768
         model.diffusion_model.input_blocks.1.1.proj_in.weight 320 320 1 1
         model.diffusion_model.input_blocks.3.0.op.weight 320 320 3 3
         model.diffusion_model.input_blocks.6.0.op.weight 640 640 3 3
         model.diffusion_model.input_blocks.9.0.op.weight 1280 1280 3 3
         model.diffusion_model.time_embed.0.weight 1280 320
         model.diffusion_model.middle_block.0.in_layers.0.weight 1280
         model.diffusion_model.middle_block.1.proj_in.weight 1280 1280 1 1
         cc_projection.weight 768 772",
    ),
    (
        "MVDream, which is no Stable Diffusion 2",
        Role::Denoiser,
        "mvdream",
        "1",
        "model.diffusion_model.input_blocks.0.0.weight 320 4 3 3
         model.diffusion_model.input_blocks.1.1.transformer_blocks.0.attn2.to_k.weight 320 1024
         model.diffusion_model.input_blocks.1.1.proj_in.weight 320 320
         model.diffusion_model.time_embed.0.weight 1280 320
         model.diffusion_model.middle_block.0.in_layers.0.weight 1280
         model.diffusion_model.camera_embed.0.weight 1280 16
         model.diffusion_model.camera_embed.2.weight 1280 1280",
    ),
    (
        "Stable Video Diffusion as Stability published it",
        Role::Denoiser,
        "stable-video-diffusion",
        "1",
        "model.diffusion_model.input_blocks.0.0.weight 320 8 3 3
         model.diffusion_model.input_blocks.1.1.transformer_blocks.0.attn2.to_k.weight 320 1024
         model.diffusion_model.input_blocks.1.1.time_stack.0.attn2.to_k.weight 320 1024
         model.diffusion_model.input_blocks.1.1.proj_in.weight 320 320
         model.diffusion_model.input_blocks.3.0.op.weight 320 320 3 3
         model.diffusion_model.time_embed.0.weight 1280 320
         model.diffusion_model.label_emb.0.0.weight 1280 768
         model.diffusion_model.middle_block.0.in_layers.0.weight 1280",
    ),
    (
        "Playground 2.5, whose deviations are in the file",
        Role::Denoiser,
        "stable-diffusion-xl",
        "Playground 2.5",
        "edm_mean 4
         edm_std 4
         model.diffusion_model.input_blocks.0.0.weight 320 4 3 3
         model.diffusion_model.input_blocks.3.0.op.weight 320 320 3 3
         model.diffusion_model.input_blocks.6.0.op.weight 640 640 3 3
         model.diffusion_model.input_blocks.7.1.transformer_blocks.{10}.attn2.to_k.weight 1280 2048
         model.diffusion_model.time_embed.0.weight 1280 320
         model.diffusion_model.label_emb.0.0.weight 1280 2816
         model.diffusion_model.middle_block.0.in_layers.0.weight 1280
         model.diffusion_model.middle_block.1.proj_in.weight 1280 1280",
    ),
    (
        "Ovis-Image as its makers named it",
        Role::Denoiser,
        "ovis-image",
        "",
        "img_in.weight 3072 64
         txt_in.weight 3072 2048
         txt_norm.weight 2048
         double_blocks.{6}.img_attn.norm.key_norm.scale 128
         double_blocks.{6}.img_mlp.gate_proj.weight 12288 3072
         single_blocks.{27}.linear1.weight 33792 3072",
    ),
    (
        "Mage-Flow",
        Role::Denoiser,
        "mage-flow",
        "",
        "txt_norm.weight 2560
         txt_in.weight 3072 2560
         img_in.weight 3072 128
         proj_out.weight 128 3072
         transformer_blocks.{12}.attn.to_q.weight 3072 3072",
    ),
    (
        "Anima, which has a Cosmos inside",
        Role::Denoiser,
        "anima",
        "",
        "net.llm_adapter.blocks.{6}.cross_attn.q_proj.weight 1024 1024
         net.blocks.{28}.mlp.layer1.weight 8192 2048
         net.x_embedder.proj.1.weight 2048 68
         net.t_embedder.1.linear_1.weight 2048 2048",
    ),
    (
        "HiDream-O1, which works on pixels",
        Role::Denoiser,
        "hidream",
        "O1",
        "x_embedder.proj1.weight 1024 768
         x_embedder.proj2.weight 4096 1024
         t_embedder1.mlp.0.weight 4096 256
         layers.{36}.self_attn.q_proj.weight 4096 4096",
    ),
    (
        "Lens",
        Role::Denoiser,
        "lens",
        "",
        "transformer_blocks.{24}.img_mlp.w1.weight 8192 3072
         transformer_blocks.{24}.attn.norm_added_q.weight 128
         img_in.weight 3072 128",
    ),
    (
        "Boogu",
        Role::Denoiser,
        "boogu",
        "",
        "double_stream_layers.{8}.img_instruct_attn.to_q.weight 3360 3360
         single_stream_layers.{32}.attn.to_q.weight 3360 3360",
    ),
    (
        "OmniGen2, which is no Lumina",
        Role::Denoiser,
        "omnigen2",
        "",
        "time_caption_embed.timestep_embedder.linear_1.weight 1024 256
         time_caption_embed.caption_embedder.1.weight 2520 2048
         ref_image_patch_embedder.weight 2520 64
         ref_image_refiner.{2}.attn.to_q.weight 2520 2520
         noise_refiner.{2}.attn.norm_k.weight 120
         layers.{32}.attn.to_q.weight 2520 2520",
    ),
    (
        "HunyuanDiT as its makers named it",
        Role::Denoiser,
        "hunyuan-dit",
        "",
        "mlp_t5.0.weight 8192 2048
         mlp_t5.2.weight 1024 8192
         blocks.{40}.attn1.Wqkv.weight 4224 1408
         pooler.positional_embedding 257 2048",
    ),
    (
        "HunyuanImage 2.1, which is no video model",
        Role::Denoiser,
        "hunyuan-image",
        "2.1",
        "img_in.proj.weight 3584 64 1 1
         txt_in.individual_token_refiner.blocks.{2}.norm1.weight 3584
         byt5_in.fc1.weight 2048 1472
         double_blocks.{20}.img_attn_qkv.weight 10752 3584
         single_blocks.{40}.linear1.weight 25088 3584",
    ),
    (
        "HunyuanVideo 1.5, super-resolution, as its makers named it",
        Role::Denoiser,
        "hunyuan-video",
        "1.5 super-resolution",
        "img_in.proj.weight 2048 98 1 1 1
         txt_in.individual_token_refiner.blocks.{2}.norm1.weight 2048
         vision_in.proj.0.weight 1152
         double_blocks.{54}.img_attn_qkv.weight 6144 2048",
    ),
    (
        "Wan Animate as its makers named it",
        Role::Denoiser,
        "wan",
        "Animate",
        "patch_embedding.weight 5120 36 1 2 2
         head.modulation 1 2 5120
         pose_patch_embedding.weight 5120 16 1 2 2
         img_emb.proj.1.weight 1280 1280
         face_adapter.fuser_blocks.{8}.linear1_q.weight 5120 5120
         motion_encoder.enc.fc.{5}.weight 512 512
         blocks.{40}.self_attn.q.weight 5120 5120",
    ),
    (
        "Wan S2V as its makers named it",
        Role::Denoiser,
        "wan",
        "S2V",
        "patch_embedding.weight 5120 16 1 2 2
         head.modulation 1 2 5120
         casual_audio_encoder.weights 1 25 1 1
         blocks.{40}.self_attn.q.weight 5120 5120",
    ),
    (
        "Mochi's decoder as its makers named it",
        Role::Vae,
        "mochi-vae",
        "12",
        "blocks.0.0.weight 768 12 1 1 1
         blocks.0.{3}.stack.2.weight 768 768 3 3 3
         blocks.4.{3}.stack.2.weight 128 128 3 3 3
         output_proj.weight 3 128",
    ),
    (
        "Mochi's encoder as its makers named it",
        Role::Vae,
        "mochi-vae",
        "encoder",
        "layers.0.weight 64 15
         layers.4.layers.1.attn_block.attn.qkv.weight 768 256
         output_proj.weight 24 384",
    ),
    (
        "HunyuanVideo 1.5's autoencoder as its makers named it",
        Role::Vae,
        "hunyuan-video-vae",
        "32",
        "decoder.conv_in.conv.weight 1024 32 3 3 3
         decoder.mid.block_1.conv1.conv.weight 1024 1024 3 3 3
         decoder.mid.attn_1.q.conv.weight 1024 1024 1 1 1
         decoder.up.{5}.block.{3}.conv1.conv.weight 128 128 3 3 3",
    ),
    (
        "an autoencoder of video previews",
        Role::Vae,
        "tiny-vae",
        "clips",
        "decoder.1.weight 256 16 3 3
         decoder.22.weight 3 64 3 3
         decoder.22.bias 3
         encoder.0.weight 64 3 3 3",
    ),
    (
        "a control network of Flux by XLabs",
        Role::Controlnet,
        "controlnet",
        "XLabs",
        "controlnet_blocks.{2}.weight 3072 3072
         input_hint_block.0.weight 16 3 3 3
         double_blocks.{2}.img_attn.qkv.weight 9216 3072
         img_in.weight 3072 64",
    ),
    (
        "a control network of Z-Image, second form",
        Role::Controlnet,
        "controlnet",
        "2.x",
        "control_all_x_embedder.2-1.weight 3840 132
         control_layers.{15}.before_proj.weight 3840 3840
         control_noise_refiner.{2}.after_proj.weight 3840 3840",
    ),
    (
        "a control network of Stable Diffusion 1 by its first author",
        Role::Controlnet,
        "controlnet",
        "of SD 1",
        "control_model.input_blocks.0.0.weight 320 4 3 3
         control_model.input_hint_block.0.weight 16 3 3 3
         control_model.input_blocks.1.1.transformer_blocks.0.attn2.to_k.weight 320 768
         control_model.time_embed.0.weight 1280 320
         control_model.middle_block.0.in_layers.0.weight 1280
         control_model.zero_convs.{12}.0.weight 320 320 1 1",
    ),
    (
        "LLLite",
        Role::Controlnet,
        "controlnet-lllite",
        "",
        "lllite_unet_input_blocks_4_1_transformer_blocks_0_attn1_to_k.down.0.weight 64 640
         lllite_unet_input_blocks_4_1_transformer_blocks_0_attn1_to_k.up.0.weight 640 64",
    ),
    (
        "an image prompt of SDXL, with its many queries",
        Role::Adapter,
        "ip-adapter",
        "plus, of SDXL",
        "ip_adapter.{70}.to_k_ip.weight 640 2048
         image_proj.latents 1 16 1280
         image_proj.layers.{4}.0.to_q.weight 1280 1280",
    ),
    (
        "an image prompt of a face",
        Role::Adapter,
        "ip-adapter",
        "FaceID",
        "ip_adapter.{17}.to_k_ip.weight 320 768
         image_proj.proj.0.weight 1024 512
         image_proj.norm.weight 768",
    ),
    ("Redux", Role::Adapter, "flux-redux", "", "redux_down.weight 4096 12288\nredux_up.weight 12288 1152"),
    (
        "PuLID",
        Role::Adapter,
        "pulid",
        "",
        "pulid_encoder.latents 1 32 1024\npulid_ca.{20}.to_q.weight 2048 3072",
    ),
    (
        "an enlarger under its old names",
        Role::Upscaler,
        "esrgan",
        "old",
        "model.0.weight 64 3 3 3\nmodel.1.sub.0.RDB1.conv1.0.weight 32 64 3 3",
    ),
    (
        "an enlarger under its new names",
        Role::Upscaler,
        "esrgan",
        "RRDB",
        "conv_first.weight 64 3 3 3\nbody.{23}.rdb1.conv1.weight 32 64 3 3",
    ),
    ("words of SDXL", Role::Embedding, "embedding", "SDXL", "clip_l 8 768\nclip_g 8 1280"),
];

/// Low-rank changes: the family, a word of the variant, names before and shapes behind the halves.
const LORAS: &[(&str, &str, &str)] = &[
    (
        "ltx",
        "2B",
        "diffusion_model.transformer_blocks.{28}.attn1.to_q 2048 2048|diffusion_model.transformer_blocks.{28}.attn2.to_k 2048 2048",
    ),
    (
        "ltx",
        "13B",
        "transformer.transformer_blocks.{48}.attn1.to_q 4096 4096|transformer.transformer_blocks.{48}.attn2.to_k 4096 4096",
    ),
    (
        "ltx2",
        "",
        "diffusion_model.transformer_blocks.{48}.attn1.to_q 4096 4096|diffusion_model.transformer_blocks.{48}.audio_attn1.to_q 2048 2048|diffusion_model.transformer_blocks.{48}.attn2.to_k 4096 4096",
    ),
    (
        "krea2",
        "",
        "diffusion_model.blocks.{28}.attn.wq 6144 6144|diffusion_model.blocks.{28}.mlp.gate 6144 16384",
    ),
    (
        "krea2",
        "",
        "transformer.transformer_blocks.{28}.attn.to_q 6144 6144|transformer.transformer_blocks.{28}.attn.to_gate 6144 6144",
    ),
    (
        "flux2",
        "klein 4B",
        "diffusion_model.single_blocks.{20}.linear1 3072 27648|diffusion_model.double_blocks.{5}.img_attn.qkv 3072 9216",
    ),
    ("flux2", "klein 9B", "diffusion_model.double_blocks.{8}.img_attn.qkv 4096 12288"),
    ("flux2", "dev", "diffusion_model.double_blocks.{8}.img_attn.qkv 6144 18432"),
    ("flux2", "", "transformer.single_transformer_blocks.{20}.attn.to_qkv_mlp_proj 3072 27648"),
    (
        "flux",
        "",
        "diffusion_model.single_blocks.{38}.linear1 3072 21504|diffusion_model.double_blocks.{19}.img_attn.qkv 3072 9216",
    ),
    ("flux", "", "transformer.single_transformer_blocks.{38}.attn.to_q 3072 3072"),
    ("z-image", "", "diffusion_model.layers.{30}.attention.qkv 3840 11520"),
    ("z-image", "", "transformer.layers.{30}.attention.to_q 3840 3840"),
    ("lumina2", "", "diffusion_model.layers.{26}.attention.qkv 2304 3840"),
    ("ideogram4", "", "diffusion_model.layers.{34}.attention.qkv 4608 13824"),
    (
        "qwen-image",
        "",
        "transformer.transformer_blocks.{60}.img_mlp.net.2 12288 3072|transformer.transformer_blocks.{60}.attn.to_q 3072 3072",
    ),
    ("sd3", "", "diffusion_model.joint_blocks.{24}.x_block.attn.qkv 1536 4608"),
    (
        "wan",
        "",
        "diffusion_model.blocks.{40}.self_attn.q 5120 5120|diffusion_model.blocks.{40}.ffn.0 5120 13824",
    ),
    ("wan", "", "transformer.blocks.{30}.attn1.to_q 1536 1536"),
    ("hunyuan-video", "", "diffusion_model.double_blocks.{20}.img_attn_qkv 3072 9216"),
    ("hidream", "", "diffusion_model.double_stream_blocks.{16}.block.attn1.to_q 2560 2560"),
    (
        "anima",
        "",
        "diffusion_model.blocks.{28}.self_attn.q_proj 2048 2048|diffusion_model.llm_adapter.blocks.{6}.self_attn.q_proj 1024 1024",
    ),
    (
        "anima",
        "",
        "diffusion_model.blocks.{28}.cross_attn.q_proj 2048 2048|diffusion_model.blocks.{28}.self_attn.q_proj 2048 2048",
    ),
    ("cosmos-predict2", "14B", "diffusion_model.blocks.{36}.self_attn.q_proj 5120 5120"),
    ("minimax-h3", "", "diffusion_model.blocks.{40}.attn.qkv_proj 4096 12288"),
    (
        "mochi",
        "",
        "transformer.transformer_blocks.{48}.attn1.to_q 3072 3072|transformer.transformer_blocks.{48}.attn1.add_q_proj 1536 3072",
    ),
    ("cogvideox", "5B", "transformer.transformer_blocks.{42}.attn1.to_q 3072 3072"),
    ("cogvideox", "2B", "transformer.transformer_blocks.{30}.attn1.to_q 1920 1920"),
    (
        "sana",
        "1.6B",
        "transformer.transformer_blocks.{20}.attn1.to_q 2240 2240|transformer.transformer_blocks.{20}.attn2.to_k 2240 2240",
    ),
    (
        "pixart",
        "",
        "transformer.transformer_blocks.{28}.attn1.to_q 1152 1152|transformer.transformer_blocks.{28}.attn2.to_k 1152 1152",
    ),
    ("auraflow", "", "diffusion_model.double_layers.{4}.attn.w1q 3072 3072"),
    ("stable-diffusion", "1", "unet.down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k 768 320"),
    ("stable-diffusion", "2", "unet.down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k 1024 320"),
    ("stable-diffusion-xl", "", "unet.down_blocks.1.attentions.0.transformer_blocks.{2}.attn2.to_k 2048 640"),
];

/// Halves of a low-rank change, in the spellings of PEFT and of kohya, and whether dots become underscores.
const HALVES: &[(&str, &str, bool)] = &[
    (".lora_A.weight", ".lora_B.weight", false),
    (".lora_down.weight", ".lora_up.weight", false),
    (".lora_A.default.weight", ".lora_B.default.weight", false),
    (".lora_down.weight", ".lora_up.weight", true),
];

/// The same change in one of the spellings, with a few whole tensors where asked for.
fn changes(matrices: &str, (down, up, flat): (&str, &str, bool), whole: bool) -> Inventory {
    let mut lines = String::new();
    for matrix in matrices.split('|') {
        let [name, takes, gives] = matrix.split(' ').collect::<Vec<_>>()[..] else { panic!("{matrix}") };
        let below = ["diffusion_model.", "transformer.", "unet."].iter().find_map(|p| name.strip_prefix(p));
        let name = match below.filter(|_| flat) {
            Some(below) => format!("lora_unet_{}", below.replace('.', "_")),
            None => name.to_owned(),
        };
        lines.extend([format!("{name}{down} 16 {takes}\n{name}{up} {gives} 16\n{name}.alpha\n")]);
    }
    if whole {
        lines += "some.norm.diff 64\nsome.first_layer.weight 64 36 1 2 2\n";
    }
    inventory(&lines)
}

fn claimed<'a>(found: &'a Finding, fact: &str) -> BTreeSet<&'a str> {
    found.claims.iter().filter(|claim| claim.fact == fact).map(|claim| claim.value.as_str()).collect()
}

/// What is wrong with what was found, if anything.
fn judge(what: &str, found: &Finding, role: Role, family: &str, variant: &str) -> Option<String> {
    let (families, variants) = (claimed(found, "family"), claimed(found, "variant"));
    let named = variant.is_empty() || variants.iter().any(|known| known.contains(variant));
    let right = found.role == role && families == BTreeSet::from([family]) && named;
    (!right).then(|| format!("{what}: {:?} {families:?} {variants:?}, not {family} {variant}", found.role))
}

#[test]
fn what_no_library_builds_is_known_by_its_makers_names() {
    let wrong: Vec<String> = CASES
        .iter()
        .filter_map(|(what, role, family, variant, lines)| {
            // A denoiser of a handful of tensors is none.
            let lines = if *role == Role::Denoiser {
                format!("{lines}\nfiller.{{8}}.bias 7")
            } else {
                (*lines).into()
            };
            judge(what, &identify(&inventory(&lines)), *role, family, variant)
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn low_rank_changes_are_their_networks_in_every_spelling() {
    let mut wrong = Vec::new();
    for (family, variant, matrices) in LORAS {
        for &halves in HALVES {
            for whole in [false, true] {
                let found = identify(&changes(matrices, halves, whole));
                let what = format!("{matrices} as {halves:?}, whole tensors: {whole}");
                wrong.extend(judge(&what, &found, Role::Lora, family, variant));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// What other programs put before a network's names.
const PREFIXES: &[&str] = &[
    "model.diffusion_model.",
    "diffusion_model.",
    "model.model.",
    "transformer.",
    "unet.",
    "net.",
    "model.",
    "module.",
    "_orig_mod.",
];

/// An autoencoder and a pruned encoder as they stand in a bundle.
const BESIDE: &str = "first_stage_model.decoder.conv_in.weight 512 16 3 3
    text_encoders.t5xxl.transformer.shared.weight 32128 4096
    text_encoders.t5xxl.transformer.encoder.block.{24}.layer.0.SelfAttention.q.weight 4096 4096
    text_encoders.t5xxl.transformer.encoder.block.{24}.layer.1.DenseReluDense.wi_1.weight 10240 4096";

#[test]
fn published_denoisers_are_the_same_behind_prefixes_and_in_bundles() {
    let beside = inventory(BESIDE);
    let (mut asked, mut wrong) = (0, Vec::new());
    let networks = networks();
    for (turn, model) in networks.iter().filter(|model| model.role == "denoiser").enumerate() {
        // Some are published behind one.
        let own = ["net.", "model.diffusion_model."];
        let own = own.into_iter().find(|own| model.inventory.names().all(|name| name.starts_with(own)));
        let plain = model.inventory.without_prefix(own.unwrap_or_default());
        // The usual one, and a third of the others by turns.
        let others = PREFIXES.iter().enumerate().filter(|(at, _)| *at == 0 || (at + turn) % 3 == 0);
        for (_, prefix) in others {
            let named = |(name, tensor): (&String, &_)| (format!("{prefix}{name}"), Clone::clone(tensor));
            let mut inventory =
                Inventory { tensors: plain.tensors.iter().map(named).collect(), ..Inventory::default() };
            let what = format!("{} {} ({}) behind {prefix}", model.family, model.variant, model.origin);
            let ask = |inventory: &Inventory, role: Role| {
                let found = identify(inventory);
                let words = model.variant.split_whitespace();
                let variants = claimed(&found, "variant").into_iter().collect::<Vec<_>>().join(" ");
                let variant = if words.clone().all(|word| variants.contains(word)) {
                    ""
                } else {
                    model.variant.as_str()
                };
                judge(&what, &found, role, &model.family, variant)
            };
            wrong.extend(ask(&inventory, Role::Denoiser));
            if *prefix == "model.diffusion_model." {
                inventory.tensors.extend(beside.tensors.clone());
                wrong.extend(ask(&inventory, Role::Checkpoint));
            }
            asked += 1;
        }
    }
    assert!(wrong.is_empty(), "{} of {asked} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(asked > 400, "{asked}");
}
