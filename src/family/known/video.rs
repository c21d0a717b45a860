//! Transformers that make clips, and pictures as clips of one frame: the table of families.
//!
//! # Source
//! `models.md` 3.3.

use super::super::contract::Task::{self, ImageToVideo, TextToImage, TextToVideo};
use super::rule::When::{Blocks, Dim, Has, No, NotDim, Rank};
use super::rule::{Rule, denoiser};

const WORDS: &[Task] = &[TextToVideo];
const PICTURE: &[Task] = &[ImageToVideo];
const BOTH: &[Task] = &[TextToVideo, ImageToVideo];

const WAN: &str = "head.modulation|condition_embedder.text_embedder.linear_1.weight";
const PATCH: &str = "patch_embedding.weight";
const SEES: &str = "img_emb.*|condition_embedder.image_embedder.*";
const ENDS: &str = "img_emb.emb_pos|condition_embedder.image_embedder.pos_embed";
const VACE: &str = "vace_*";
const FACE: &str = "face_adapter.*|motion_encoder.*";
const SPEECH: &str = "casual_audio_encoder.*";

const LTX: &str = "patchify_proj.weight|proj_in.weight";
const LTX_TIME: &str = "adaln_single.linear.weight|time_embed.linear.weight";
const LTX_TEXT: &str = "caption_projection.linear_1.weight";
const LTX_ROWS: &str = "transformer_blocks.0.scale_shift_table";
const LTX_GATES: &str = "transformer_blocks.0.attn1.to_gate_logits.weight";
const SOUND: &str = "audio_adaln_single.*|av_ca_*|audio_proj_in.weight|audio_patchify_proj.weight";

const HUNYUAN: &str = "txt_in.individual_token_refiner.*|context_embedder.token_refiner.*";
const HUNYUAN_IN: &str = "img_in.proj.weight|x_embedder.proj.weight";
const NEW: &str = "vision_in.proj.0.weight|byt5_in.*|image_embedder.*";

const COG: &str = "blocks.0.norm1.linear.weight|transformer_blocks.0.norm1.linear.weight";
const COG_IN: &str = "patch_embed.proj.weight";
/// What Mochi and `CogView` have, whose blocks are named alike.
const NO_COG: &str = "time_embed.*|time_condition_embed.*|pos_frequencies";
const OFS: &str = "ofs_embedding*";

const COSMOS: &str = "blocks.0.mlp.layer1.weight|time_embed.t_embedder.linear_1.weight";
const COSMOS_IN: &str = "x_embedder.proj.1.weight|patch_embed.proj.weight";

/// Every transformer that makes clips.
pub(super) static VIDEOS: &[Rule] = &[
    denoiser("wan", "", &[Has(WAN), Has(PATCH)]).flow(832, 480),
    denoiser("wan", "T2V", &[Has(WAN), Dim(PATCH, 1, 16), No(VACE), No(FACE), No(SPEECH)])
        .tasks(WORDS)
        .flow(832, 480),
    denoiser(
        "wan",
        "2.1 T2V 1.3B",
        &[Has(WAN), Dim(PATCH, 1, 16), Dim(PATCH, 0, 1536), No(VACE), No(FACE), No(SPEECH)],
    )
    .tasks(WORDS)
    .flow(832, 480),
    denoiser(
        "wan",
        "2.1 T2V 14B or one expert of 2.2",
        &[Has(WAN), Dim(PATCH, 1, 16), Dim(PATCH, 0, 5120), No(VACE), No(FACE), No(SPEECH)],
    )
    .tasks(WORDS)
    .flow(1280, 720)
    .note("2.2 has two such networks, for high and for low noise: only names tell, and both are needed"),
    denoiser("wan", "2.1 I2V", &[Has(WAN), Dim(PATCH, 1, 36), Has(SEES), No(ENDS), No(FACE), No(SPEECH)])
        .tasks(PICTURE)
        .flow(832, 480)
        .note("needs the picture encoder of CLIP"),
    denoiser("wan", "2.1 FLF2V", &[Has(WAN), Dim(PATCH, 1, 36), Has(SEES), Has(ENDS), No(FACE), No(SPEECH)])
        .tasks(PICTURE)
        .can(&["first_last_frame"])
        .flow(1280, 720),
    denoiser(
        "wan",
        "2.2 I2V, one expert",
        &[Has(WAN), Dim(PATCH, 1, 36), No(SEES), No(VACE), No(FACE), No(SPEECH)],
    )
    .tasks(PICTURE)
    .flow(832, 480)
    .note("high or low noise is told by name, and both are needed"),
    denoiser("wan", "2.2 TI2V", &[Has(WAN), Dim(PATCH, 1, 48), NotDim(PATCH, 0, 5120)])
        .tasks(BOTH)
        .flow(1280, 704),
    denoiser(
        "wan",
        "2.2 TI2V 5B",
        &[Has(WAN), Dim(PATCH, 1, 48), NotDim(PATCH, 0, 5120), Dim(PATCH, 0, 3072)],
    )
    .tasks(BOTH)
    .flow(1280, 704),
    denoiser("wan", "Fun control", &[Has(WAN), Dim(PATCH, 1, 48), Dim(PATCH, 0, 5120)])
        .tasks(BOTH)
        .can(&["control"])
        .flow(832, 480),
    denoiser("wan", "camera", &[Has(WAN), Dim(PATCH, 1, 32)]).tasks(PICTURE).can(&["camera"]).flow(832, 480),
    denoiser("wan", "VACE", &[Has(WAN), Has(PATCH), Has(VACE)])
        .tasks(BOTH)
        .can(&["edit", "control"])
        .flow(832, 480),
    denoiser("wan", "Animate", &[Has(WAN), Has(PATCH), Has(FACE)])
        .tasks(PICTURE)
        .can(&["animate"])
        .flow(832, 480),
    denoiser("wan", "S2V", &[Has(WAN), Has(PATCH), Has(SPEECH)])
        .tasks(PICTURE)
        .can(&["speech"])
        .flow(832, 480),
    denoiser(
        "ltx",
        "",
        &[Has(LTX), Has(LTX_TIME), Has(LTX_ROWS), Rank(LTX, 2), No(SOUND), No("caption_norm.weight")],
    )
    .tasks(BOTH)
    .flow(704, 512)
    .note("which 0.9 it is shows in its autoencoder"),
    denoiser(
        "ltx",
        "2B",
        &[Has(LTX), Has(LTX_TIME), Has(LTX_ROWS), Rank(LTX, 2), No(SOUND), Blocks("transformer_blocks", 28)],
    )
    .tasks(BOTH)
    .flow(704, 512),
    denoiser(
        "ltx",
        "13B",
        &[Has(LTX), Has(LTX_TIME), Has(LTX_ROWS), Rank(LTX, 2), No(SOUND), Blocks("transformer_blocks", 48)],
    )
    .tasks(BOTH)
    .flow(704, 512),
    denoiser("ltx2", "", &[Has(LTX), Has(LTX_TIME), Has(SOUND)])
        .tasks(BOTH)
        .can(&["sound"])
        .flow(768, 512)
        .note("the metadata `config` says which"),
    denoiser("ltx2", "19B", &[Has(LTX), Has(LTX_TIME), Has(SOUND), Dim(LTX_TEXT, 1, 3840)])
        .tasks(BOTH)
        .can(&["sound"])
        .flow(768, 512),
    denoiser(
        "ltx2",
        "2.3 or later, 22B",
        &[Has(LTX), Has(LTX_TIME), Has(SOUND), Has(LTX_GATES), No(LTX_TEXT)],
    )
    .tasks(BOTH)
    .can(&["sound"])
    .flow(768, 512)
    .note("2.3 or 2.5: the metadata `model_version` says which"),
    denoiser("hunyuan-video", "T2V", &[Has(HUNYUAN), Dim(HUNYUAN_IN, 1, 16), No(NEW), Rank(HUNYUAN_IN, 5)])
        .tasks(WORDS)
        .flow(1280, 720),
    denoiser("hunyuan-video", "I2V", &[Has(HUNYUAN), Dim(HUNYUAN_IN, 1, 33), No(NEW)])
        .tasks(PICTURE)
        .flow(1280, 720),
    denoiser(
        "hunyuan-video",
        "SkyReels",
        &[Has(HUNYUAN), Dim(HUNYUAN_IN, 1, 32), No(NEW), Rank(HUNYUAN_IN, 5)],
    )
    .tasks(PICTURE)
    .flow(1280, 720),
    denoiser("hunyuan-video", "1.5", &[Has(HUNYUAN), Dim(HUNYUAN_IN, 1, 65), Rank(HUNYUAN_IN, 5)])
        .tasks(BOTH)
        .flow(848, 480),
    denoiser("hunyuan-video", "1.5 super-resolution", &[Has(HUNYUAN), Dim(HUNYUAN_IN, 1, 98)])
        .tasks(BOTH)
        .can(&["upscale"])
        .predicts("flow"),
    denoiser("hunyuan-image", "2.1", &[Has(HUNYUAN), Rank(HUNYUAN_IN, 4)])
        .tasks(&[TextToImage])
        .flow(2048, 2048),
    denoiser("cogvideox", "1.0", &[Has(COG), No(NO_COG), Rank(COG_IN, 4)])
        .tasks(WORDS)
        .predicts("v")
        .size(720, 480),
    denoiser("cogvideox", "1.0 T2V", &[Has(COG), No(NO_COG), Rank(COG_IN, 4), Dim(COG_IN, 1, 16)])
        .tasks(WORDS)
        .predicts("v")
        .size(720, 480),
    denoiser("cogvideox", "1.0 I2V", &[Has(COG), No(NO_COG), Rank(COG_IN, 4), Dim(COG_IN, 1, 32)])
        .tasks(PICTURE)
        .predicts("v")
        .size(720, 480),
    denoiser("cogvideox", "1.0 inpaint", &[Has(COG), No(NO_COG), Rank(COG_IN, 4), Dim(COG_IN, 1, 48)])
        .tasks(PICTURE)
        .can(&["inpaint"])
        .predicts("v")
        .size(720, 480),
    denoiser("cogvideox", "1.5 T2V", &[Has(COG), No(NO_COG), Rank(COG_IN, 2), No(OFS)])
        .tasks(WORDS)
        .predicts("v")
        .size(1360, 768),
    denoiser("cogvideox", "1.5 I2V", &[Has(COG), No(NO_COG), Rank(COG_IN, 2), Has(OFS)])
        .tasks(PICTURE)
        .predicts("v")
        .size(1360, 768),
    denoiser("cosmos-predict2", "", &[Has(COSMOS), Has(COSMOS_IN), No("llm_adapter.*")]).predicts("edm"),
    denoiser("cosmos-predict2", "T2I", &[Has(COSMOS), Dim(COSMOS_IN, 1, 68), No("llm_adapter.*")])
        .tasks(&[TextToImage])
        .predicts("edm"),
    denoiser(
        "cosmos-predict2",
        "T2I 2B",
        &[Has(COSMOS), Dim(COSMOS_IN, 1, 68), Dim(COSMOS_IN, 0, 2048), No("llm_adapter.*")],
    )
    .tasks(&[TextToImage])
    .predicts("edm"),
    denoiser(
        "cosmos-predict2",
        "T2I 14B",
        &[Has(COSMOS), Dim(COSMOS_IN, 1, 68), Dim(COSMOS_IN, 0, 5120), No("llm_adapter.*")],
    )
    .tasks(&[TextToImage])
    .predicts("edm"),
    denoiser("cosmos-predict2", "V2W", &[Has(COSMOS), Dim(COSMOS_IN, 1, 72), No("llm_adapter.*")])
        .tasks(PICTURE)
        .predicts("edm"),
    denoiser("kandinsky5", "", &[Has("visual_transformer_blocks.0.cross_attention.key_norm.weight")])
        .tasks(WORDS)
        .predicts("flow"),
    denoiser("mochi", "", &[Has("t5_yproj.weight|time_embed.caption_proj.weight")])
        .tasks(WORDS)
        .predicts("flow"),
    denoiser(
        "minimax-h3",
        "",
        &[
            Has("video_patch_proj.weight|token_refiner.final_norm.weight"),
            Has("audio_patch_proj.weight|audio_proj_in.weight"),
        ],
    )
    .tasks(BOTH)
    .can(&["sound"])
    .predicts("flow"),
];
