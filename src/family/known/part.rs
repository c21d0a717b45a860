//! Files that are one part of a model: autoencoders, text encoders, upscalers, taught words.
//!
//! # Source
//! `models.md` 3.4.

use super::super::contract::Task;
use super::rule::Role::{self, Embedding, Other, TextEncoder, Upscaler, Vae};
use super::rule::When::{Dim, Has, No, Not, NotDim, Rank};
use super::rule::{Rule, part};

const IN: &str = "decoder.conv_in.weight";
const IN3: &str = "decoder.conv_in.conv.weight";
const TIME: &str = "decoder.*time_stack*|decoder.*time_mixer*|decoder.*temporal_res_block*";
const QUANT: &str = "post_quant_conv.weight";
const WAN: &str = "decoder.middle.0.residual.0.gamma|decoder.mid_block.resnets.0.norm1.gamma";
const WAN_DEEP: &str = "decoder.upsamples.0.upsamples.0.residual.2.weight|decoder.up_blocks.0.upsampler.*";
const LTX: &str =
    "decoder.up_blocks.0.res_blocks.0.conv1.conv.weight|decoder.mid_block.resnets.0.conv1.conv.weight";
/// Attention in the middle, which tells Hunyuan's from LTX's.
const ATTENDS: &str = "decoder.mid_block.attentions.*|decoder.mid.attn_1.*";
const LTX_TIME: &str = "decoder.last_time_embedder.*|decoder.time_embedder.*";
const COG: &str = "decoder.*norm_layer*";
const MOCHI_IN: &str = "decoder.blocks.0.0.weight|blocks.0.0.weight";
const MOCHI_ATTENDS: &str = "layers.*.attn_block.attn.qkv.weight|encoder.layers.*.attn_block.attn.qkv.weight";
const DEEP: &str = "encoder.project_in.conv*|decoder.up_blocks.*.conv_inverted.weight";
const TINY: &str = "decoder.layers.0.weight|taesd_decoder.1.weight|decoder.1.weight";

/// Autoencoders.
pub(super) static VAES: &[Rule] = &[
    part(
        Vae,
        "sd-vae",
        "4 channels",
        &[Dim(IN, 1, 4), Rank(IN, 4), No(TIME), No("decoder.mid_block.temp_convs.*")],
    )
    .note("of SD 1, 2 or XL: the scale of latents follows the model it serves"),
    part(Vae, "svd-vae", "over time", &[Dim(IN, 1, 4), Rank(IN, 4), Has(TIME)]),
    part(
        Vae,
        "flux-vae",
        "16 channels",
        &[Dim(IN, 1, 16), Rank(IN, 4), No(QUANT), No("bn.running_mean"), No(DEEP)],
    )
    .note("of SD 3 or Flux: the scale of latents follows the model it serves"),
    part(Vae, "kl-vae", "16 channels", &[Dim(IN, 1, 16), Rank(IN, 4), Has(QUANT), No("bn.running_mean")]),
    part(Vae, "flux2-vae", "32 channels", &[Has(IN), Rank(IN, 4), Has("bn.running_mean")]),
    part(
        Vae,
        "hunyuan-image-vae",
        "64 channels",
        &[Dim(IN, 1, 64), Rank(IN, 4), No("bn.running_mean"), No(DEEP), No(WAN)],
    ),
    part(Vae, "wan-vae", "16 channels", &[Has(WAN), No(WAN_DEEP), No(IN3), Not(&Rank(IN, 4))])
        .note("of Wan 2.1 and Qwen-Image"),
    part(Vae, "wan-vae", "48 channels", &[Has(WAN), Has(WAN_DEEP), No(IN3), Not(&Rank(IN, 4))])
        .note("of Wan 2.2 TI2V"),
    part(Vae, "qwen-2.1-vae", "64 channels", &[Has(WAN), Rank(IN, 4), Dim(IN, 1, 64), No(IN3)]),
    part(
        Vae,
        "mochi-vae",
        "12 channels",
        &[Has("decoder.block_in.resnets.0.conv1.conv.weight"), Has("decoder.up_blocks.0.proj.weight")],
    ),
    // As its makers published it: the encoder and the decoder each alone, numbered from the pixels on.
    part(
        Vae,
        "mochi-vae",
        "12 channels",
        &[Dim(MOCHI_IN, 1, 12), Has("decoder.output_proj.weight|output_proj.weight"), No(IN), No(IN3)],
    ),
    part(
        Vae,
        "mochi-vae",
        "encoder alone",
        &[Has("layers.0.weight|encoder.layers.0.weight"), Has(MOCHI_ATTENDS), No(MOCHI_IN)],
    ),
    part(Vae, "h3-vae", "24 channels", &[Has("decoder.transformer_blocks.0.scale1"), Dim(QUANT, 0, 24)]),
    part(Vae, "ltx-vae", "", &[Has(LTX), No(COG), No(ATTENDS)]),
    part(Vae, "ltx-vae", "0.9.0", &[Has(LTX), No(COG), No(ATTENDS), Dim(LTX, 0, 512), No(LTX_TIME)]),
    part(
        Vae,
        "ltx-vae",
        "0.9.1",
        &[Has(LTX), No(COG), No(ATTENDS), Dim(LTX, 0, 1024), NotDim("encoder.conv_out.conv.weight", 1, 2048)],
    ),
    part(
        Vae,
        "ltx-vae",
        "0.9.5 or later",
        &[Has(LTX), No(COG), No(ATTENDS), Dim("encoder.conv_out.conv.weight", 1, 2048)],
    ),
    part(Vae, "hunyuan-video-vae", "", &[Has(IN3), Rank(IN3, 5), No(COG), Has(ATTENDS)]),
    part(
        Vae,
        "hunyuan-video-vae",
        "16 channels",
        &[Has(IN3), Rank(IN3, 5), No(COG), Has(ATTENDS), Dim(IN3, 1, 16)],
    ),
    part(
        Vae,
        "hunyuan-video-vae",
        "32 channels",
        &[Has(IN3), Rank(IN3, 5), No(COG), Has(ATTENDS), Dim(IN3, 1, 32)],
    ),
    part(Vae, "cogvideox-vae", "", &[Has(IN3), Rank(IN3, 5), Has(COG), No(ATTENDS)]),
    part(Vae, "dc-ae", "", &[Has(DEEP), No("transformer_blocks.0.*")]),
    part(Vae, "tiny-vae", "pictures", &[Has(TINY), Rank(TINY, 4), No("decoder.22.bias")])
        .note("TAESD: quick previews, and codecs of small models"),
    part(
        Vae,
        "tiny-vae",
        "pictures, decoder alone",
        &[Has("1.weight"), Dim("1.weight", 0, 64), Rank("1.weight", 4), Has("3.conv.0.weight")],
    ),
    part(Vae, "tiny-vae", "clips", &[Has("decoder.22.bias")]).note("TAEHV: previews of Wan, Hunyuan and LTX"),
    part(Vae, "audio-vae", "", &[Has(IN3), Rank(IN3, 4)]),
];

const CLIP: &str = "text_model.encoder.layers.0.mlp.fc1.weight|transformer.text_model.encoder.layers.0.mlp.fc1.weight|encoder.layers.0.mlp.fc1.weight";
const CLIP_22: &str =
    "text_model.encoder.layers.22.*|transformer.text_model.encoder.layers.22.*|encoder.layers.22.*";
const CLIP_30: &str =
    "text_model.encoder.layers.30.*|transformer.text_model.encoder.layers.30.*|encoder.layers.30.*";
const CLIP_WORDS: &str = "text_model.embeddings.token_embedding.weight|transformer.text_model.embeddings.token_embedding.weight|embeddings.token_embedding.weight";
const OPEN: &str =
    "transformer.resblocks.0.attn.in_proj_weight|model.transformer.resblocks.0.attn.in_proj_weight";
const OPEN_WORDS: &str = "token_embedding.weight|model.token_embedding.weight";
const VISION: &str =
    "vision_model.embeddings.class_embedding|visual.class_embedding|embeddings.class_embedding";
const T5: &str = "encoder.block.0.layer.0.SelfAttention.q.weight|transformer.encoder.block.0.layer.0.SelfAttention.q.weight";
const T5_BIAS: &str = "encoder.block.1.layer.0.SelfAttention.relative_attention_bias.weight|transformer.encoder.block.1.layer.0.SelfAttention.relative_attention_bias.weight";
const T5_WIDE: &str = "encoder.block.0.layer.1.DenseReluDense.wi_1.weight|transformer.encoder.block.0.layer.1.DenseReluDense.wi_1.weight";
const WORDS: &str = "model.embed_tokens.weight|embed_tokens.weight|model.language_model.embed_tokens.weight|language_model.model.embed_tokens.weight";
const Q_NORM: &str = "model.layers.0.self_attn.q_norm.weight|layers.0.self_attn.q_norm.weight|model.language_model.layers.0.self_attn.q_norm.weight";
const K_BIAS: &str = "model.layers.0.self_attn.k_proj.bias|layers.0.self_attn.k_proj.bias|model.language_model.layers.0.self_attn.k_proj.bias";
const FEED: &str = "model.layers.0.post_feedforward_layernorm.weight|layers.0.post_feedforward_layernorm.weight|model.language_model.layers.0.post_feedforward_layernorm.weight|language_model.model.layers.0.post_feedforward_layernorm.weight";
const TOWER: &str = "visual.blocks.0.attn.qkv.weight|model.visual.blocks.0.attn.qkv.weight";
const STACK: &str = "visual.deepstack_merger_list.*|model.visual.deepstack_merger_list.*|*deepstack_merger*";

/// Encoders of words and of pictures.
pub(super) static ENCODERS: &[Rule] = &[
    part(TextEncoder, "clip", "", &[Has(CLIP), No(VISION)]),
    part(TextEncoder, "clip", "CLIP-L", &[Has(CLIP), No(VISION), Dim(CLIP_WORDS, 1, 768), No(CLIP_22)]),
    part(TextEncoder, "clip", "OpenCLIP-H", &[Has(CLIP), No(VISION), Dim(CLIP_WORDS, 1, 1024), No(CLIP_30)]),
    part(
        TextEncoder,
        "clip",
        "OpenCLIP-bigG",
        &[Has(CLIP), No(VISION), Dim(CLIP_WORDS, 1, 1280), Has(CLIP_30)],
    ),
    part(TextEncoder, "clip", "", &[Has(OPEN)]),
    part(TextEncoder, "clip", "OpenCLIP-H", &[Has(OPEN), Dim(OPEN_WORDS, 1, 1024)]),
    part(TextEncoder, "clip", "OpenCLIP-bigG", &[Has(OPEN), Dim(OPEN_WORDS, 1, 1280)]),
    part(TextEncoder, "clip-vision", "", &[Has(VISION), No(CLIP_WORDS)]),
    part(TextEncoder, "t5", "", &[Has(T5), No(T5_BIAS)]),
    part(TextEncoder, "t5", "T5-XL", &[Has(T5), No(T5_BIAS), Dim(T5_WIDE, 0, 5120)]),
    part(TextEncoder, "t5", "T5-XXL", &[Has(T5), No(T5_BIAS), Dim(T5_WIDE, 0, 10240)]),
    part(TextEncoder, "umt5", "", &[Has(T5), Has(T5_BIAS)]),
    part(TextEncoder, "umt5", "UMT5-XXL", &[Has(T5), Has(T5_BIAS), Dim(T5_WIDE, 0, 10240)]),
    part(TextEncoder, "gemma2", "", &[Has(WORDS), Has(FEED), No(Q_NORM)]),
    part(TextEncoder, "gemma2", "Gemma2-2B", &[Has(WORDS), Has(FEED), No(Q_NORM), Dim(WORDS, 1, 2304)]),
    part(TextEncoder, "gemma3", "", &[Has(WORDS), Has(FEED), Has(Q_NORM)]),
    part(TextEncoder, "gemma3", "Gemma3-4B", &[Has(WORDS), Has(FEED), Has(Q_NORM), Dim(WORDS, 1, 2560)]),
    part(TextEncoder, "gemma3", "Gemma3-12B", &[Has(WORDS), Has(FEED), Has(Q_NORM), Dim(WORDS, 1, 3840)]),
    part(TextEncoder, "qwen2.5-vl", "", &[Has(WORDS), Has(K_BIAS)]),
    part(TextEncoder, "qwen2.5-vl", "Qwen2.5-VL-3B", &[Has(WORDS), Dim(K_BIAS, 0, 256)]),
    part(TextEncoder, "qwen2.5-vl", "Qwen2.5-VL-7B", &[Has(WORDS), Dim(K_BIAS, 0, 512)]),
    part(TextEncoder, "qwen3", "", &[Has(WORDS), Has(Q_NORM), No(FEED), No(STACK)]),
    part(
        TextEncoder,
        "qwen3",
        "Qwen3-0.6B",
        &[Has(WORDS), Has(Q_NORM), No(FEED), No(STACK), Dim(WORDS, 1, 1024)],
    ),
    part(
        TextEncoder,
        "qwen3",
        "Qwen3-1.7B",
        &[Has(WORDS), Has(Q_NORM), No(FEED), No(STACK), Dim(WORDS, 1, 2048)],
    ),
    part(
        TextEncoder,
        "qwen3",
        "Qwen3-4B",
        &[Has(WORDS), Has(Q_NORM), No(FEED), No(STACK), Dim(WORDS, 1, 2560)],
    ),
    part(
        TextEncoder,
        "qwen3",
        "Qwen3-8B",
        &[Has(WORDS), Has(Q_NORM), No(FEED), No(STACK), Dim(WORDS, 1, 4096)],
    ),
    part(TextEncoder, "qwen3-vl", "", &[Has(WORDS), Has(Q_NORM), No(FEED), Has(STACK)]),
    part(
        TextEncoder,
        "mistral",
        "Mistral-Small-24B",
        &[Has(WORDS), No(Q_NORM), No(K_BIAS), No(FEED), Dim(WORDS, 1, 5120), No(TOWER)],
    ),
    part(
        TextEncoder,
        "llama",
        "",
        &[Has(WORDS), No(Q_NORM), No(K_BIAS), No(FEED), NotDim(WORDS, 1, 5120), No(TOWER)],
    ),
    part(
        TextEncoder,
        "llama",
        "Llama-3.1-8B",
        &[
            Has(WORDS),
            No(Q_NORM),
            No(K_BIAS),
            No(FEED),
            NotDim(WORDS, 1, 5120),
            No(TOWER),
            Dim(WORDS, 1, 4096),
            Dim(WORDS, 0, 128_256),
        ],
    ),
];

const UP: &[Task] = &[Task::ImageUpscale];

/// Enlargers without a prompt.
pub(super) static UPSCALERS: &[Rule] = &[
    part(Upscaler, "esrgan", "old names", &[Has("model.0.weight"), Has("model.1.sub.0.*")]).tasks(UP),
    part(
        Upscaler,
        "esrgan",
        "RRDB",
        &[Has("conv_first.weight"), Has("*RRDB*|body.0.rdb1.conv1.weight|*.RDB1.*")],
    )
    .tasks(UP),
];

/// Words that were taught.
pub(super) static EMBEDDINGS: &[Rule] = &[
    part(Embedding, "embedding", "", &[Has("string_to_param.*")]),
    part(Embedding, "embedding", "of SD 1", &[Dim("emb_params", -1, 768)]),
    part(Embedding, "embedding", "of SD 2", &[Dim("emb_params", -1, 1024)]),
    // Its only tensor is called what the words are.
    part(Embedding, "embedding", "of SD 1", &[Dim("<*>", -1, 768)]),
    part(Embedding, "embedding", "of SD 2", &[Dim("<*>", -1, 1024)]),
    part(Embedding, "embedding", "of SDXL", &[Dim("clip_l", -1, 768), Dim("clip_g", -1, 1280)]),
];

/// What no picture is made with.
pub(super) static OTHERS: &[Rule] = &[
    part(Other, "safety-checker", "", &[Has("concept_embeds")]),
    part(
        Role::Other,
        "vocoder",
        "",
        &[Has("ups.0.weight|ups.0.weight_v|conv_pre.weight|conv_pre.weight_v"), Has("resblocks.0.*")],
    ),
];
