//! Transformers that draw pictures: the table of families.
//!
//! The first row of a family is what makes it one; the rows after it tell its sizes apart.
//!
//! # Source
//! `models.md` 3.3; names of diffusers beside those of the authors where published folders use them.

use super::super::contract::Task::{self, ImageToImage, TextToImage};
use super::rule::When::{Blocks, Dim, Has, No, NotDim};
use super::rule::{Rule, denoiser};

const DRAW: &[Task] = &[TextToImage, ImageToImage];
const EDIT: &[Task] = &[ImageToImage];
const WORDS: &[Task] = &[TextToImage];

const SD3: &str = "joint_blocks.0.context_block.attn.qkv.weight|transformer_blocks.0.attn.add_q_proj.weight";
const PLACES: &str = "pos_embed|pos_embed.pos_embed|pos_embed.proj.weight";
const TABLE: &str = "pos_embed|pos_embed.pos_embed";
const DUAL: &str = "joint_blocks.0.x_block.attn2.qkv.weight|transformer_blocks.0.attn2.to_q.weight";

const FLUX: &str = "double_blocks.0.img_attn.norm.key_norm.scale|double_blocks.0.img_attn.norm.key_norm.weight|single_transformer_blocks.0.proj_mlp.weight";
const FLUX_IN: &str = "img_in.weight|x_embedder.weight";
const POOLED: &str = "vector_in.in_layer.weight|time_text_embed.text_embedder.linear_1.weight";
const GUIDED: &str = "guidance_in.in_layer.weight|time_text_embed.guidance_embedder.linear_1.weight";
const JUMP: &str = "ref_time_in.in_layer.*|target_timestep_embedder.linear_1.*";
const EARLY: &str = "early_stream_modulations.image.lin.weight|early_stream_modulations.image.linear.weight";
const GATE: &str = "double_blocks.0.img_mlp.gate_proj.weight";
const APPROXIMATOR: &str = "distilled_guidance_layer.*";
const GLOBAL: &str = "double_stream_modulation_img.lin.weight|double_stream_modulation_img.linear.weight";
const TEXT_IN: &str = "txt_in.weight|context_embedder.weight";

const NEXT: &str = "noise_refiner.0.attention.k_norm.weight|noise_refiner.0.attention.norm_k.weight";
const CAPTION: &str = "cap_embedder.1.weight";
const LUMINA: &str = "layers.0.adaLN_modulation.1.weight";
const Z_IMAGE: &str = "layers.0.adaLN_modulation.0.weight";
const REFERENCES: &str = "ref_image_refiner.*|ref_image_patch_embedder.weight";

const QWEN: &str = "transformer_blocks.0.img_mod.1.weight";

const SANA: &str = "blocks.0.mlp.inverted_conv*|transformer_blocks.0.ff.conv_inverted.weight";
const SANA_TIME: &str = "t_block.1.weight|time_embed.linear.weight";
const PIXART: &str = "t_block.1.weight|adaln_single.linear.weight";
/// Four channels and their deviations, two by two.
const PIXART_OUT: &str = "final_layer.linear.weight|proj_out.weight";
const AURA: &str = "double_layers.0.attn.w1q.weight|joint_transformer_blocks.0.ff_context.linear_2.weight";
const PIXART_IN: &str = "x_embedder.proj.weight|pos_embed.proj.weight";

/// Every transformer that draws pictures.
pub(super) static IMAGES: &[Rule] = &[
    denoiser("sd3", "", &[Has(SD3), Has(PLACES)])
        .tasks(DRAW)
        .flow(1024, 1024)
        .note("turbo is not visible in weights"),
    denoiser(
        "sd3",
        "3 medium",
        &[
            Has(SD3),
            Has(PLACES),
            Dim(TABLE, 1, 36864),
            Blocks("joint_blocks|transformer_blocks", 24),
            No(DUAL),
        ],
    )
    .tasks(DRAW)
    .flow(1024, 1024),
    denoiser("sd3", "3.5 medium", &[Has(SD3), Has(PLACES), Has(DUAL)]).tasks(DRAW).flow(1024, 1024),
    denoiser("sd3", "3.5 medium", &[Has(SD3), Has(PLACES), Dim(TABLE, 1, 147_456), No(DUAL)])
        .tasks(DRAW)
        .flow(1024, 1024),
    denoiser("sd3", "3.5 large", &[Has(SD3), Has(PLACES), Blocks("joint_blocks|transformer_blocks", 38)])
        .tasks(DRAW)
        .flow(1024, 1024)
        .note("turbo is not visible in weights"),
    denoiser("flux", "", &[Has(FLUX), Has(FLUX_IN), Has(POOLED), No(APPROXIMATOR), No(GATE)])
        .tasks(DRAW)
        .flow(1024, 1024),
    denoiser(
        "flux",
        "dev",
        &[Has(FLUX), Dim(FLUX_IN, 1, 64), Has(POOLED), Has(GUIDED), No(APPROXIMATOR), No(GATE)],
    )
    .tasks(DRAW)
    .flow(1024, 1024)
    .note("Krea, SRPO and Kontext have the same shapes: only a name tells them apart"),
    denoiser(
        "flux",
        "schnell",
        &[Has(FLUX), Dim(FLUX_IN, 1, 64), Has(POOLED), No(GUIDED), No(APPROXIMATOR), No(GATE)],
    )
    .tasks(DRAW)
    .flow(1024, 1024),
    denoiser("flux", "Fill", &[Has(FLUX), Dim(FLUX_IN, 1, 384), Has(POOLED), No(APPROXIMATOR), No(GATE)])
        .tasks(EDIT)
        .can(&["inpaint", "outpaint"])
        .flow(1024, 1024),
    denoiser(
        "flux",
        "Depth or Canny",
        &[Has(FLUX), Dim(FLUX_IN, 1, 128), Has(POOLED), No(APPROXIMATOR), No(GATE)],
    )
    .tasks(EDIT)
    .can(&["control"])
    .flow(1024, 1024)
    .note("which of the two, only a name tells"),
    denoiser("flux", "Flex.2", &[Has(FLUX), Dim(FLUX_IN, 1, 196), Has(POOLED), No(APPROXIMATOR), No(GATE)])
        .tasks(DRAW)
        .can(&["inpaint", "control"])
        .flow(1024, 1024),
    denoiser(
        "flux",
        "mini",
        &[
            Has(FLUX),
            Dim(FLUX_IN, 1, 64),
            Has(POOLED),
            No(APPROXIMATOR),
            No(GATE),
            Blocks("double_blocks|transformer_blocks", 8),
            NotDim(FLUX_IN, 1, 0),
        ],
    )
    .tasks(DRAW)
    .flow(1024, 1024),
    denoiser("chroma", "", &[Has(APPROXIMATOR), No("nerf_blocks.*")])
        .tasks(DRAW)
        .flow(1024, 1024)
        .note("Flash and HD are told apart by name"),
    denoiser("chroma", "Radiance", &[Has(APPROXIMATOR), Has("nerf_blocks.*")])
        .tasks(DRAW)
        .flow(1024, 1024)
        .note("works on pixels"),
    denoiser("longcat", "", &[Has(FLUX), Has(FLUX_IN), Dim(TEXT_IN, 1, 3584), No(POOLED)])
        .tasks(DRAW)
        .can(&["edit"])
        .flow(1024, 1024)
        .note("whether it edits, only a name tells"),
    denoiser("ovis-image", "", &[Has(GATE), Has("txt_norm.weight")]).tasks(WORDS).flow(1024, 1024),
    denoiser(
        "ovis-image",
        "",
        &[
            Has("single_transformer_blocks.0.proj_mlp.weight"),
            Has("context_embedder_norm.weight"),
            No(POOLED),
        ],
    )
    .tasks(WORDS)
    .flow(1024, 1024),
    denoiser("flux2", "", &[Has(GLOBAL)]).tasks(DRAW).can(&["edit", "references"]).flow(1024, 1024),
    denoiser("flux2", "klein 4B", &[Has(GLOBAL), Dim(TEXT_IN, 1, 7680)])
        .tasks(DRAW)
        .can(&["edit", "references"])
        .flow(1024, 1024)
        .note("base or distilled: the folder's `is_distilled`, or a name"),
    denoiser("flux2", "klein 9B", &[Has(GLOBAL), Dim(TEXT_IN, 1, 12288)])
        .tasks(DRAW)
        .can(&["edit", "references"])
        .flow(1024, 1024)
        .note("base or distilled: the folder's `is_distilled`, or a name"),
    denoiser("flux2", "dev", &[Has(GLOBAL), Dim(TEXT_IN, 1, 15360)])
        .tasks(DRAW)
        .can(&["edit", "references"])
        .flow(1024, 1024),
    denoiser("flux3", "base", &[Has(EARLY), No(JUMP)]).tasks(DRAW).can(&["references"]).flow(1024, 1024),
    denoiser("flux3", "distilled", &[Has(EARLY), Has(JUMP)])
        .tasks(DRAW)
        .can(&["references"])
        .flow(1024, 1024),
    denoiser("lumina2", "", &[Has(CAPTION), Has(NEXT), Has(LUMINA), No(Z_IMAGE)])
        .tasks(DRAW)
        .flow(1024, 1024),
    denoiser("lumina2", "2B", &[Has(CAPTION), Has(NEXT), Has(LUMINA), No(Z_IMAGE), Dim(CAPTION, 0, 2304)])
        .tasks(DRAW)
        .flow(1024, 1024),
    denoiser(
        "lumina2",
        "2B",
        &[
            Has("time_caption_embed.caption_embedder.1.weight"),
            Has("noise_refiner.0.attn.norm_k.weight"),
            No(REFERENCES),
        ],
    )
    .tasks(DRAW)
    .flow(1024, 1024),
    denoiser(
        "z-image",
        "",
        &[Has(CAPTION), Has(NEXT), Has(Z_IMAGE), No("siglip_embedder.*"), No("dec_net.*")],
    )
    .tasks(DRAW)
    .flow(1024, 1024)
    .note("Turbo or base: the scheduler's shift, 3 or 6, or a name"),
    denoiser(
        "z-image",
        "6B",
        &[
            Has(CAPTION),
            Has(NEXT),
            Has(Z_IMAGE),
            Dim(CAPTION, 0, 3840),
            No("siglip_embedder.*"),
            No("dec_net.*"),
        ],
    )
    .tasks(DRAW)
    .flow(1024, 1024)
    .note("Turbo or base: the scheduler's shift, 3 or 6, or a name"),
    denoiser("z-image", "Omni", &[Has(CAPTION), Has(NEXT), Has(Z_IMAGE), Has("siglip_embedder.*")])
        .tasks(DRAW)
        .can(&["edit"])
        .flow(1024, 1024),
    denoiser("z-image", "pixel", &[Has(CAPTION), Has(NEXT), Has(Z_IMAGE), Has("dec_net.*")])
        .tasks(DRAW)
        .flow(1024, 1024)
        .note("works on pixels"),
    denoiser(
        "qwen-image",
        "",
        &[
            Has(QWEN),
            Has("txt_norm.weight"),
            Has("img_in.weight"),
            No("__index_timestep_zero__"),
            No("time_text_embed.addition_t_embedding*"),
        ],
    )
    .tasks(DRAW)
    .flow(1328, 1328)
    .note("drawing or editing, and which year's, is told by the folder's class or a name"),
    denoiser(
        "qwen-image",
        "20B",
        &[
            Has(QWEN),
            Dim("txt_norm.weight", 0, 3584),
            Dim("img_in.weight", 1, 64),
            No("__index_timestep_zero__"),
            No("time_text_embed.addition_t_embedding*"),
            Blocks("transformer_blocks", 60),
        ],
    )
    .tasks(DRAW)
    .flow(1328, 1328)
    .note("drawing or editing, and which year's, is told by the folder's class or a name"),
    denoiser("qwen-image", "Edit 2511", &[Has(QWEN), Has("txt_norm.weight"), Has("__index_timestep_zero__")])
        .tasks(EDIT)
        .can(&["edit", "references"])
        .flow(1328, 1328),
    denoiser(
        "qwen-image",
        "Layered",
        &[Has(QWEN), Has("txt_norm.weight"), Has("time_text_embed.addition_t_embedding*")],
    )
    .tasks(EDIT)
    .can(&["layers"])
    .flow(1328, 1328),
    denoiser("qwen-image-2.1", "", &[Has("txt_in.text_norm.weight")])
        .tasks(DRAW)
        .can(&["references"])
        .predicts("flow"),
    denoiser("mage-flow", "", &[Dim("txt_norm.weight", 0, 2560), Dim("proj_out.weight", 0, 128), No(QWEN)])
        .tasks(DRAW)
        .can(&["edit"])
        .predicts("flow"),
    denoiser("krea2", "", &[Has("txtfusion.projector.weight|text_fusion.projector.weight")])
        .tasks(DRAW)
        .predicts("flow")
        .note("Turbo is told by name"),
    denoiser("ideogram4", "", &[Has("embed_image_indicator.weight")])
        .tasks(WORDS)
        .can(&["layout"])
        .predicts("flow")
        .note("one file holds the network with or without conditioning: only a name tells which"),
    denoiser(
        "ernie-image",
        "",
        &[Has("layers.0.mlp.linear_fc2.weight"), Has("adaLN_sa_ln*|layers.0.adaLN_sa_ln*")],
    )
    .tasks(WORDS)
    .predicts("flow"),
    denoiser("anima", "", &[Has("llm_adapter.blocks.0.cross_attn.q_proj.weight")])
        .tasks(WORDS)
        .flow(1024, 1024),
    denoiser(
        "hidream",
        "I1",
        &[
            Has("double_stream_blocks.0.block.adaLN_modulation.1.bias|caption_projection.0.linear.weight"),
            No("t_embedder1*"),
        ],
    )
    .tasks(DRAW)
    .flow(1024, 1024)
    .note("E1, which edits, is told by name"),
    denoiser("hidream", "O1", &[Has("x_embedder.proj1*"), Has("t_embedder1*")])
        .tasks(DRAW)
        .can(&["edit"])
        .flow(2048, 2048)
        .note("works on pixels"),
    denoiser(
        "lens",
        "",
        &[
            Has("transformer_blocks.0.img_mlp.w1.weight"),
            Has("transformer_blocks.0.attn.norm_added_q.weight"),
        ],
    )
    .tasks(WORDS)
    .predicts("flow"),
    denoiser("boogu", "", &[Has("double_stream_layers.0.img_instruct_attn*")]).tasks(WORDS).predicts("flow"),
    denoiser("omnigen2", "", &[Has("time_caption_embed.timestep_embedder.linear_1.*"), Has(REFERENCES)])
        .tasks(DRAW)
        .can(&["edit", "references"])
        .predicts("flow"),
    denoiser(
        "pixart",
        "Sigma",
        &[
            Has(PIXART),
            Has(PIXART_IN),
            No("ar_embedder.*|adaln_single.emb.resolution_embedder.*"),
            No(SANA),
            No("patchify_proj.weight"),
            Dim(PIXART_OUT, 0, 32),
            No("temporal_transformer_blocks.*"),
        ],
    )
    .tasks(DRAW)
    .predicts("epsilon")
    .size(1024, 1024),
    denoiser(
        "pixart",
        "alpha",
        &[
            Has(PIXART),
            Has(PIXART_IN),
            Has("ar_embedder.*|adaln_single.emb.resolution_embedder.*"),
            No(SANA),
            Dim(PIXART_OUT, 0, 32),
        ],
    )
    .tasks(DRAW)
    .predicts("epsilon")
    .size(1024, 1024),
    denoiser("sana", "", &[Has(SANA), Has(SANA_TIME)]).tasks(WORDS).flow(1024, 1024),
    denoiser(
        "sana",
        "0.6B",
        &[Has(SANA), Has(SANA_TIME), Blocks("blocks|transformer_blocks", 28), Dim(SANA_OUT, 1, 1152)],
    )
    .tasks(WORDS)
    .flow(1024, 1024),
    denoiser(
        "sana",
        "1.6B",
        &[Has(SANA), Has(SANA_TIME), Blocks("blocks|transformer_blocks", 20), Dim(SANA_OUT, 1, 2240)],
    )
    .tasks(WORDS)
    .flow(1024, 1024),
    denoiser(
        "sana",
        "4.8B",
        &[Has(SANA), Has(SANA_TIME), Blocks("blocks|transformer_blocks", 60), Dim(SANA_OUT, 1, 2240)],
    )
    .tasks(WORDS)
    .flow(1024, 1024),
    denoiser("auraflow", "", &[Has(AURA)]).tasks(WORDS).flow(1024, 1024),
    denoiser("hunyuan-dit", "", &[Has("mlp_t5.0.weight|time_extra_emb.pooler.q_proj.weight")])
        .tasks(WORDS)
        .predicts("v")
        .size(1024, 1024),
];

const SANA_OUT: &str = "final_layer.linear.weight|proj_out.weight";
