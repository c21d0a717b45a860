//! What is added to a network: control networks, image prompts, motion, and low-rank changes.
//!
//! # Source
//! `models.md` 3.4 and 4.

use super::rule::Role::{self, Adapter, Controlnet};
use super::rule::When::{Dim, Has, Is, No, Not};
use super::rule::{Rule, View, part};
use super::unet::Measure::{Added, Context, Depth};

const COND: &str = "controlnet_cond_embedding.conv_in.weight|input_hint_block.0.weight";
const BLOCKS: &str = "controlnet_blocks.*";
const UNION: &str = "control_add_embedding.*|task_embedding";
const MOTION: &str = "*motion_modules.0.temporal_transformer.transformer_blocks.0.attention_blocks.0.pos_encoder.pe|*motion_modules.0.transformer_blocks.0.pos_embed.pe|*motion_modules.0.transformer_blocks.0.attn1.to_q.weight";
const PLACES: &str = "*motion_modules.0.temporal_transformer.transformer_blocks.0.attention_blocks.0.pos_encoder.pe|*motion_modules.0.transformer_blocks.0.pos_embed.pe";
const MIDDLE: &str = "mid_block.motion_modules.*";
const IP: &str = "ip_adapter.1.to_k_ip.weight|1.to_k_ip.weight";

const STEER: &[&str] = &["control"];
const PROMPT: &[&str] = &["image_prompt"];

/// Networks that steer another.
pub(super) static CONTROLS: &[Rule] = &[
    part(Controlnet, "controlnet", "of a U-net", &[Has(COND), No(UNION), No(MOTION)]).can(STEER),
    part(
        Controlnet,
        "controlnet",
        "of SD 1",
        &[Has(COND), Is(Context, 768), Is(Added, 0), No(UNION), No(MOTION)],
    )
    .can(STEER),
    part(
        Controlnet,
        "controlnet",
        "of SD 2",
        &[Has(COND), Is(Context, 1024), Is(Added, 0), No(UNION), No(MOTION)],
    )
    .can(STEER),
    part(
        Controlnet,
        "controlnet",
        "of SDXL",
        &[Has(COND), Is(Context, 2048), Is(Added, 2816), Is(Depth, 10), No(UNION), No(MOTION)],
    )
    .can(STEER),
    part(
        Controlnet,
        "controlnet",
        "of SDXL, mid",
        &[Has(COND), Is(Context, 2048), Is(Added, 2816), Not(&Is(Depth, 10)), No(UNION), No(MOTION)],
    )
    .can(STEER),
    part(
        Controlnet,
        "controlnet",
        "of SDXL, small",
        &[Has(COND), Is(Context, 0), Is(Added, 2816), No(UNION), No(MOTION)],
    )
    .can(STEER),
    part(Controlnet, "controlnet", "of SDXL, union", &[Has(COND), Has(UNION), No(MOTION)]).can(STEER),
    part(
        Controlnet,
        "controlnet",
        "of Flux, XLabs",
        &[Has(BLOCKS), Has("double_blocks.0.*"), Has("input_hint_block.*")],
    )
    .can(STEER),
    part(
        Controlnet,
        "controlnet",
        "of Flux, InstantX",
        &[
            Has(BLOCKS),
            Has("single_transformer_blocks.0.*|controlnet_single_blocks.*|transformer_blocks.0.*"),
            Has("controlnet_x_embedder.*"),
            No("controlnet_mode_embedder.*"),
            No("pos_embed.proj.weight"),
            No("txt_norm.weight"),
        ],
    )
    .can(STEER),
    part(
        Controlnet,
        "controlnet",
        "of Flux, union",
        &[Has(BLOCKS), Has("controlnet_x_embedder.*"), Has("controlnet_mode_embedder.*")],
    )
    .can(STEER),
    part(
        Controlnet,
        "controlnet",
        "of SD 3",
        &[
            Has(BLOCKS),
            Has("transformer_blocks.0.*"),
            Has("pos_embed.proj.weight|pos_embed_input.proj.weight"),
        ],
    )
    .can(STEER),
    part(
        Controlnet,
        "controlnet",
        "of Qwen-Image",
        &[Has(BLOCKS), Has("transformer_blocks.0.img_mod.1.weight"), Has("txt_norm.weight")],
    )
    .can(STEER),
    part(
        Controlnet,
        "controlnet",
        "of Z-Image",
        &[Has("control_all_x_embedder.2-1.weight"), No("control_layers.14.*")],
    )
    .can(STEER),
    part(
        Controlnet,
        "controlnet",
        "of Z-Image, 2.x",
        &[Has("control_all_x_embedder.2-1.weight"), Has("control_layers.14.*")],
    )
    .can(STEER)
    .note("2.0 or 2.1 is told by values, when it is loaded"),
    part(Controlnet, "controlnet-lllite", "of SDXL", &[Has("lllite_unet_*")]).can(STEER),
    part(
        Controlnet,
        "t2i-adapter",
        "",
        &[Has("adapter.body.0.resnets.0.block1.weight|body.0.in_conv.weight|body.0.resnets.0.block1.weight")],
    )
    .can(STEER),
];

/// Other additions.
pub(super) static ADAPTERS: &[Rule] = &[
    part(Adapter, "ip-adapter", "", &[Has(IP), Has("image_proj.*")]).can(PROMPT),
    part(Adapter, "ip-adapter", "of SD 1", &[Has(IP), Has("image_proj.proj.weight"), Dim(IP, -1, 768)])
        .can(PROMPT),
    part(Adapter, "ip-adapter", "of SD 2", &[Has(IP), Has("image_proj.proj.weight"), Dim(IP, -1, 1024)])
        .can(PROMPT),
    part(Adapter, "ip-adapter", "of SDXL", &[Has(IP), Has("image_proj.proj.weight"), Dim(IP, -1, 2048)])
        .can(PROMPT),
    part(
        Adapter,
        "ip-adapter",
        "plus, of SD 1",
        &[Has(IP), Has("image_proj.latents"), Has("image_proj.layers.*"), Dim(IP, -1, 768)],
    )
    .can(PROMPT),
    part(
        Adapter,
        "ip-adapter",
        "plus, of SDXL",
        &[Has(IP), Has("image_proj.latents"), Has("image_proj.layers.*"), Dim(IP, -1, 2048)],
    )
    .can(PROMPT),
    part(
        Adapter,
        "ip-adapter",
        "FaceID",
        &[Has(IP), Has("image_proj.proj.0.weight"), Has("image_proj.norm.weight")],
    )
    .can(PROMPT),
    part(Adapter, "flux-redux", "", &[Has("redux_down.weight")]).can(PROMPT),
    part(Adapter, "photomaker", "", &[Has("id_encoder.*")]).can(PROMPT),
    part(Adapter, "pulid", "", &[Has("pulid_encoder.*")]).can(PROMPT),
    part(
        Adapter,
        "animatediff",
        "",
        &[Has(MOTION), No(MIDDLE), No("controlnet_cond_embedding*"), No("conv_in.weight")],
    )
    .can(&["motion"]),
    part(
        Adapter,
        "animatediff",
        "v1",
        &[Has(MOTION), No(MIDDLE), Dim(PLACES, 1, 24), No("controlnet_cond_embedding*")],
    )
    .can(&["motion"]),
    part(
        Adapter,
        "animatediff",
        "v3",
        &[
            Has(MOTION),
            No(MIDDLE),
            Dim(PLACES, 1, 32),
            Has("up_blocks.3.*"),
            No("controlnet_cond_embedding*"),
        ],
    )
    .can(&["motion"]),
    part(
        Adapter,
        "animatediff",
        "SDXL beta",
        &[
            Has(MOTION),
            No(MIDDLE),
            Dim(PLACES, 1, 32),
            No("up_blocks.3.*"),
            Dim("up_blocks.2.motion_modules.0.*norm.weight", 0, 320),
            No("controlnet_cond_embedding*"),
        ],
    )
    .can(&["motion"]),
    part(Adapter, "animatediff", "v2", &[Has(MOTION), Has(MIDDLE), No("controlnet_cond_embedding*")])
        .can(&["motion"]),
    part(Adapter, "sparsectrl", "scribble", &[Has(MOTION), Has("controlnet_cond_embedding.conv_in.weight")])
        .can(STEER),
    part(Adapter, "sparsectrl", "rgb", &[Has(MOTION), Has("controlnet_cond_embedding.weight")]).can(STEER),
];

/// What a low-rank change adds to a matrix's name, in the spellings of `models.md` 4.1.
const LOW_RANK: &[&str] = &[
    ".lora_down.weight",
    ".lora_up.weight",
    ".lora_mid.weight",
    ".lora_A.weight",
    ".lora_B.weight",
    ".lora_A.default.weight",
    ".lora_B.default.weight",
    ".lora.down.weight",
    ".lora.up.weight",
    "_lora.down.weight",
    "_lora.up.weight",
    ".lora_linear_layer.down.weight",
    ".lora_linear_layer.up.weight",
    "_lora1.down.weight",
    "_lora1.up.weight",
    "_lora2.down.weight",
    "_lora2.up.weight",
    ".hada_w1_a",
    ".hada_w1_b",
    ".hada_w2_a",
    ".hada_w2_b",
    ".hada_t1",
    ".hada_t2",
    ".lokr_w1",
    ".lokr_w2",
    ".lokr_w1_a",
    ".lokr_w1_b",
    ".lokr_w2_a",
    ".lokr_w2_b",
    ".lokr_t2",
    ".oft_blocks",
    ".oft_diag",
];

/// What may stand beside them.
const BESIDE: &[&str] = &[
    ".alpha",
    ".dora_scale",
    ".diff",
    ".diff_b",
    ".w_norm",
    ".b_norm",
    ".set_weight",
    ".lora_magnitude_vector",
    ".lora_up.bias",
    ".lora_B.bias",
];

/// Whole matrices that a file of low-rank changes may bring: Wan's for pictures have a new `patch_embedding`.
const WHOLE: usize = 8;

/// How many low-rank tensors there are, if that is what the file is made of.
pub(super) fn low_rank(view: &View<'_>) -> Option<usize> {
    let ends = |name: &str, endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    let (mut low, mut whole) = (0, 0);
    for (name, tensor) in view.tensors() {
        if ends(name, LOW_RANK) {
            low += 1;
        } else if tensor.shape.len() >= 2 && !ends(name, BESIDE) {
            whole += 1;
        }
    }
    (low > 0 && whole <= WHOLE).then_some(low)
}

const CROSS: &str = "*attn2_to_k.lora_down.weight|*attn2.to_k.lora_A.weight|*attn2.to_k.lora_down.weight|*attn2.to_k.lora.down.weight|*attn2.processor.to_k_lora.down.weight|*attn2_to_k.hada_w1_b|*attn2_to_k.lokr_w2|*attn2.to_k.lora_A.default.weight";
const UNET: &str = "*up_blocks*|*output_blocks*|*down_blocks*|*input_blocks*";
const DOUBLE: &str = "*double_blocks*|*transformer.single_transformer_blocks*|*transformer_single_transformer_blocks*|*unet_single_transformer_blocks*|single_transformer_blocks*|*single_blocks*";
const TWO: &str = "*to_qkv_mlp_proj*|*double_stream_modulation*|*single_stream_modulation*";
/// What a block of one stream gives: seven widths in FLUX.1, nine in FLUX.2.
const SINGLE_UP: &str = "*single_blocks.*.linear1.lora_B.weight|*single_blocks.*.linear1.lora_up.weight|*single_blocks_*_linear1.lora_up.weight|*single_blocks.*.linear1.lora_B.default.weight";
/// What a block of two streams takes: the width.
const DOUBLE_DOWN: &str = "*double_blocks.*.img_attn.qkv.lora_A.weight|*double_blocks.*.img_attn.qkv.lora_down.weight|*double_blocks_*_img_attn_qkv.lora_down.weight|*double_blocks.*.img_attn.qkv.lora_A.default.weight";
const QWEN: &str = "*img_mod.1.*|*img_mod_1.*|*transformer_blocks*img_mlp*|*transformer_blocks*txt_mlp*";
const JOINT: &str = "*joint_blocks*";
const NEXT: &str = "*layers.*.attention.qkv.lora_A.weight|*layers.*.attention.qkv.lora_down.weight|*layers_*_attention_qkv.lora_down.weight|*layers.*.attention.to_q.lora_A.weight|*layers.*.attention.to_q.lora_down.weight|*layers_*_attention_to_q.lora_down.weight|*layers.*.attention.to_q.lora_A.default.weight|*layers.*.attention.qkv.lora_A.default.weight";
const WAN: &str = "*blocks.*.self_attn.*|*blocks_*_self_attn_*|*blocks.*.ffn.*|*blocks_*_ffn_*|*.blocks.*.attn1.*|blocks.*.attn1.*|*unet_blocks_*_attn1_*";
/// Its own names; where dots are underscores those of FLUX.1 are the same, which has a block less of each kind.
const HUNYUAN: &str = "*double_blocks.*.img_attn_qkv.*|*img_mlp_fc1*|*img_mlp.fc1*|*individual_token_refiner*|*double_blocks_19_*|*double_blocks.19.*|*single_blocks_38_*|*single_blocks.38.*";
/// Attention to itself in blocks that are called `transformer_blocks`.
const SELF: &str = "*transformer_blocks.*.attn1.to_q.lora_A.weight|*transformer_blocks.*.attn1.to_q.lora_down.weight|*transformer_blocks_*_attn1_to_q.lora_down.weight|*transformer_blocks.*.attn1.to_q.lora_A.default.weight|*transformer_blocks.*.attn1.to_k.lora_A.weight";
const ADDED: &str = "*transformer_blocks*add_q_proj*";
const SOUND: &str = "*audio_attn1*|*audio_to_video_attn*|*video_to_audio_attn*|*audio_ff*|*audio_adaln_single*|*audio_patchify_proj*|*av_ca_*";
const KREA: &str = "*blocks.*.attn.wq.*|*blocks_*_attn_wq.*|*txtfusion*|*text_fusion*|*transformer_blocks.*.attn.to_gate.*|*transformer_blocks_*_attn_to_gate.*";
const STREAMS: &str = "*double_stream_blocks*|*single_stream_blocks*";
const COSMOS: &str = "*blocks.*.self_attn.q_proj.lora_A.weight|*blocks.*.self_attn.q_proj.lora_down.weight|*blocks_*_self_attn_q_proj.lora_down.weight|*blocks.*.self_attn.q_proj.lora_A.default.weight";
const H3: &str = "*blocks.*.attn.qkv_proj.*|*blocks_*_attn_qkv_proj.*";
const AURA: &str = "*double_layers.*|*double_layers_*|*joint_transformer_blocks*";

/// Whose low-rank changes they are.
pub(super) static LORAS: &[Rule] = &[
    part(Role::Lora, "stable-diffusion", "1", &[Dim(CROSS, -1, 768), Has(UNET), No(DOUBLE)]),
    part(Role::Lora, "stable-diffusion", "2", &[Dim(CROSS, -1, 1024), Has(UNET), No(DOUBLE)]),
    part(Role::Lora, "stable-diffusion-xl", "", &[Dim(CROSS, -1, 2048), Has(UNET), No(DOUBLE)]),
    part(
        Role::Lora,
        "flux",
        "",
        &[
            Has(DOUBLE),
            No(TWO),
            No(HUNYUAN),
            No(QWEN),
            No("*distilled_guidance_layer*"),
            No(AURA),
            Not(&Dim(SINGLE_UP, 0, 27648)),
            Not(&Dim(SINGLE_UP, 0, 36864)),
            Not(&Dim(SINGLE_UP, 0, 55296)),
            Not(&Dim(DOUBLE_DOWN, -1, 4096)),
            Not(&Dim(DOUBLE_DOWN, -1, 6144)),
        ],
    ),
    part(Role::Lora, "chroma", "", &[Has(DOUBLE), Has("*distilled_guidance_layer*")]),
    part(Role::Lora, "flux2", "", &[Has(TWO)]),
    part(Role::Lora, "flux2", "klein 4B", &[Dim(SINGLE_UP, 0, 27648), No(TWO)]),
    part(Role::Lora, "flux2", "klein 9B", &[Dim(SINGLE_UP, 0, 36864), No(TWO)]),
    part(Role::Lora, "flux2", "dev", &[Dim(SINGLE_UP, 0, 55296), No(TWO)]),
    part(Role::Lora, "flux2", "klein 9B", &[Dim(DOUBLE_DOWN, -1, 4096), No(TWO)]),
    part(Role::Lora, "flux2", "dev", &[Dim(DOUBLE_DOWN, -1, 6144), No(TWO)]),
    part(
        Role::Lora,
        "hunyuan-video",
        "",
        &[
            Has(DOUBLE),
            Has(HUNYUAN),
            No(TWO),
            Not(&Dim(SINGLE_UP, 0, 55296)),
            Not(&Dim(DOUBLE_DOWN, -1, 6144)),
        ],
    ),
    part(
        Role::Lora,
        "qwen-image",
        "",
        &[Has(QWEN), No(TWO), No("*double_blocks*"), No("*single_transformer_blocks*"), No(SELF)],
    ),
    part(Role::Lora, "sd3", "", &[Has(JOINT)]),
    part(Role::Lora, "z-image", "", &[Dim(NEXT, -1, 3840), No(DOUBLE), No(UNET)]),
    part(Role::Lora, "lumina2", "", &[Dim(NEXT, -1, 2304), No(DOUBLE), No(UNET)]),
    part(Role::Lora, "ideogram4", "", &[Dim(NEXT, -1, 4608), No(DOUBLE), No(UNET)]),
    part(
        Role::Lora,
        "wan",
        "",
        &[Has(WAN), No(NEXT), No(DOUBLE), No(UNET), No("*llm_adapter*"), No("*q_proj*"), No(SELF)],
    ),
    part(Role::Lora, "ltx2", "", &[Has(SOUND), No(UNET), No(DOUBLE)]),
    part(Role::Lora, "ltx", "2B", &[Has(SELF), Dim(CROSS, -1, 2048), No(UNET), No(SOUND), No(ADDED)]),
    part(Role::Lora, "ltx", "13B", &[Has(SELF), Dim(CROSS, -1, 4096), No(UNET), No(SOUND), No(ADDED)])
        .note("one of LTX-2 that leaves the sound alone has the same names and sizes"),
    part(Role::Lora, "sana", "1.6B", &[Has(SELF), Dim(CROSS, -1, 2240), No(UNET)]),
    part(Role::Lora, "pixart", "", &[Has(SELF), Dim(CROSS, -1, 1152), No(UNET)])
        .note("one of Sana 0.6B has the same names and sizes"),
    part(Role::Lora, "cogvideox", "2B", &[Dim(SELF, -1, 1920), No(CROSS), No(UNET), No(ADDED)]),
    part(Role::Lora, "cogvideox", "5B", &[Dim(SELF, -1, 3072), No(CROSS), No(UNET), No(ADDED)]),
    part(Role::Lora, "mochi", "", &[Has(SELF), Has(ADDED), No(CROSS), No(UNET)]),
    part(Role::Lora, "krea2", "", &[Has(KREA), No(UNET), No(DOUBLE)]),
    part(Role::Lora, "hidream", "", &[Has(STREAMS)]),
    part(Role::Lora, "anima", "", &[Has("*llm_adapter*"), No(UNET)]),
    part(Role::Lora, "anima", "", &[Dim(COSMOS, -1, 2048), No("*llm_adapter*")])
        .note("one of Cosmos-Predict2 2B has the same names and sizes"),
    part(Role::Lora, "cosmos-predict2", "14B", &[Dim(COSMOS, -1, 5120), No("*llm_adapter*")]),
    part(Role::Lora, "minimax-h3", "", &[Has(H3)]),
    part(Role::Lora, "auraflow", "", &[Has(AURA)]),
];
