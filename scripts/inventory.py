#!/usr/bin/env python3
"""Writes tests/fixtures/inventory: names and shapes of real models, without a weight.

    pip install torch diffusers==0.42.1 transformers gguf && scripts/inventory.py

Every model is built by its own library from its published sizes, on torch's `meta` device, where tensors have no data;
sizes are those of `models.md` section 2, else the constructor's own. Text encoders are written a second time under the
names that the package `gguf` gives them, networks under those of their makers (`makers.py`). A line is a name and a
shape; `{0..18}` stands for the numbers from 0 to 18. A section begins with `==` and says what must be found: the role,
the family, a word of the variant.
"""

import gzip
import pathlib
import re
import warnings

import diffusers
import torch
import transformers
from gguf.constants import MODEL_ARCH
from gguf.tensor_mapping import get_tensor_name_map

from makers import makers

warnings.filterwarnings("ignore")
ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "tests/fixtures/inventory"

SD1 = dict(sample_size=64, cross_attention_dim=768, attention_head_dim=8)
SD2 = dict(sample_size=96, cross_attention_dim=1024, attention_head_dim=[5, 10, 20, 20], use_linear_projection=True)
XL = dict(sample_size=128, block_out_channels=[320, 640, 1280], cross_attention_dim=2048,
          attention_head_dim=[5, 10, 20], use_linear_projection=True, transformer_layers_per_block=[1, 2, 10],
          down_block_types=["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
          up_block_types=["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
          addition_embed_type="text_time", addition_time_embed_dim=256, projection_class_embeddings_input_dim=2816)
REFINER = dict(sample_size=128, block_out_channels=[384, 768, 1536, 1536], cross_attention_dim=1280,
               attention_head_dim=[6, 12, 24, 24], use_linear_projection=True, transformer_layers_per_block=4,
               down_block_types=["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
               up_block_types=["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
               addition_embed_type="text_time", addition_time_embed_dim=256,
               projection_class_embeddings_input_dim=2560)
SD3 = dict(sample_size=128, num_layers=24, num_attention_heads=24, caption_projection_dim=1536,
           pos_embed_max_size=192)
SD35 = dict(qk_norm="rms_norm", pos_embed_max_size=384)
FLUX = dict(guidance_embeds=True)
WAN = dict(num_attention_heads=12, num_layers=30, ffn_dim=8960)
WAN14 = dict(num_attention_heads=40, num_layers=40, ffn_dim=13824)
LTX13 = dict(num_layers=48, attention_head_dim=128, cross_attention_dim=4096)
COSMOS = dict(in_channels=16, out_channels=16, num_attention_heads=16, num_layers=28, mlp_ratio=4.0,
              adaln_lora_dim=256, max_size=(128, 240, 240), patch_size=(1, 2, 2), rope_scale=(1.0, 4.0, 4.0),
              concat_padding_mask=True, extra_pos_embed_type=None)
KL = dict(block_out_channels=[128, 256, 512, 512], layers_per_block=2,
          down_block_types=["DownEncoderBlock2D"] * 4, up_block_types=["UpDecoderBlock2D"] * 4)
KL16 = dict(KL, latent_channels=16, use_quant_conv=False, use_post_quant_conv=False)

UNET, SPACETIME = "UNet2DConditionModel", "UNetSpatioTemporalConditionModel"
DENOISER, VAE, CONTROL, ADAPTER, ENCODER = "denoiser", "vae", "controlnet", "adapter", "text_encoder"
SD, SDXL = "stable-diffusion", "stable-diffusion-xl"

# Role, family, a word of the variant, class, sizes; then tensors that this model has beside those of the class.
MODELS = [
    (DENOISER, SD, "1", UNET, SD1),
    (DENOISER, SD, "1 inpaint", UNET, dict(SD1, in_channels=9)),
    (DENOISER, SD, "1 instruct-pix2pix", UNET, dict(SD1, in_channels=8)),
    (DENOISER, SD, "2", UNET, SD2),
    (DENOISER, SD, "2 inpaint", UNET, dict(SD2, in_channels=9)),
    (DENOISER, SD, "2 depth", UNET, dict(SD2, in_channels=5)),
    (DENOISER, SD, "2 unCLIP L", UNET, dict(SD2, class_embed_type="projection",
                                            projection_class_embeddings_input_dim=1536)),
    (DENOISER, SD, "2 unCLIP H", UNET, dict(SD2, class_embed_type="projection",
                                            projection_class_embeddings_input_dim=2048)),
    (DENOISER, SD, "x4 upscaler", UNET, dict(
        in_channels=7, block_out_channels=[256, 512, 512, 1024], num_class_embeds=1000, cross_attention_dim=1024,
        attention_head_dim=8, use_linear_projection=True, only_cross_attention=[True, True, True, False],
        down_block_types=["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
        up_block_types=["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"])),
    (DENOISER, SDXL, "base", UNET, XL),
    (DENOISER, SDXL, "inpaint", UNET, dict(XL, in_channels=9)),
    (DENOISER, SDXL, "instruct-pix2pix", UNET, dict(XL, in_channels=8)),
    (DENOISER, SDXL, "refiner", UNET, REFINER),
    (DENOISER, SDXL, "Vega", UNET, dict(XL, transformer_layers_per_block=[1, 1, 2])),
    (DENOISER, SDXL, "SSD-1B", UNET, dict(XL, transformer_layers_per_block=[1, 2, 4])),
    (DENOISER, SDXL, "KOALA 1B", UNET, dict(XL, transformer_layers_per_block=[1, 2, 6])),
    (DENOISER, SDXL, "KOALA 700M", UNET, dict(XL, transformer_layers_per_block=[1, 2, 5])),
    (DENOISER, "kolors", "", UNET, dict(XL, projection_class_embeddings_input_dim=5632, encoder_hid_dim=4096,
                                        encoder_hid_dim_type="text_proj")),
    (DENOISER, "lotus", "", UNET, dict(SD2, in_channels=8, class_embed_type="projection",
                                       projection_class_embeddings_input_dim=4)),
    (DENOISER, "stable-video-diffusion", "1", SPACETIME, dict(num_attention_heads=[5, 10, 20, 20])),
    (DENOISER, "stable-video-3d", "u", SPACETIME,
     dict(num_attention_heads=[5, 10, 20, 20], projection_class_embeddings_input_dim=256)),
    (DENOISER, "stable-video-3d", "p", SPACETIME,
     dict(num_attention_heads=[5, 10, 20, 20], projection_class_embeddings_input_dim=1280)),
    (DENOISER, "sd3", "3 medium", "SD3Transformer2DModel", SD3),
    (DENOISER, "sd3", "3.5 medium", "SD3Transformer2DModel",
     dict(SD3, **SD35, dual_attention_layers=tuple(range(13)))),
    (DENOISER, "sd3", "3.5 large", "SD3Transformer2DModel",
     dict(SD3, **dict(SD35, pos_embed_max_size=192), num_layers=38, num_attention_heads=38,
          caption_projection_dim=2432)),
    (DENOISER, "flux", "dev", "FluxTransformer2DModel", FLUX),
    (DENOISER, "flux", "schnell", "FluxTransformer2DModel", {}),
    (DENOISER, "flux", "Fill", "FluxTransformer2DModel", dict(FLUX, in_channels=384, out_channels=64)),
    (DENOISER, "flux", "Depth or Canny", "FluxTransformer2DModel", dict(FLUX, in_channels=128, out_channels=64)),
    (DENOISER, "flux", "Flex.2", "FluxTransformer2DModel",
     dict(FLUX, in_channels=196, out_channels=64, num_layers=8)),
    (DENOISER, "flux", "mini", "FluxTransformer2DModel", dict(FLUX, num_layers=8, num_single_layers=20)),
    (DENOISER, "chroma", "", "ChromaTransformer2DModel", {}),
    (DENOISER, "chroma", "Radiance", "ChromaTransformer2DModel", {},
     {"nerf_blocks.0.param_generator.weight": (49152, 3072), "nerf_blocks.0.norm.scale": (64,)}),
    (DENOISER, "longcat", "", "LongCatImageTransformer2DModel", {}),
    (DENOISER, "ovis-image", "", "OvisImageTransformer2DModel", {}),
    (DENOISER, "flux2", "dev", "Flux2Transformer2DModel", {}),
    (DENOISER, "flux2", "klein 4B", "Flux2Transformer2DModel",
     dict(num_layers=5, num_single_layers=20, num_attention_heads=24, joint_attention_dim=7680,
          guidance_embeds=False)),
    (DENOISER, "flux2", "klein 9B", "Flux2Transformer2DModel",
     dict(num_layers=8, num_single_layers=24, num_attention_heads=32, joint_attention_dim=12288,
          guidance_embeds=False)),
    (DENOISER, "flux3", "base", "Flux3Transformer2DModel", {}),
    (DENOISER, "flux3", "distilled", "Flux3Transformer2DModel", dict(flow_map=True)),
    (DENOISER, "z-image", "6B", "ZImageTransformer2DModel", {}),
    (DENOISER, "z-image", "Omni", "ZImageTransformer2DModel", dict(siglip_feat_dim=1152)),
    (DENOISER, "z-image", "pixel", "ZImageTransformer2DModel", {},
     {"dec_net.cond_embed.weight": (3840, 3840), "dec_net.final_layer.linear.weight": (768, 3840)}),
    (DENOISER, "lumina2", "2B", "Lumina2Transformer2DModel", {}),
    (DENOISER, "qwen-image", "20B", "QwenImageTransformer2DModel", {}),
    (DENOISER, "qwen-image", "Edit 2511", "QwenImageTransformer2DModel", {}, {"__index_timestep_zero__": ()}),
    (DENOISER, "qwen-image", "Layered", "QwenImageTransformer2DModel", dict(use_additional_t_cond=True)),
    (DENOISER, "qwen-image-2.1", "", "QwenImage21Transformer2DModel", {}),
    (DENOISER, "krea2", "", "Krea2Transformer2DModel", {}),
    (DENOISER, "ideogram4", "", "Ideogram4Transformer2DModel", {}),
    (DENOISER, "ernie-image", "", "ErnieImageTransformer2DModel", {}),
    (DENOISER, "hidream", "I1", "HiDreamImageTransformer2DModel",
     dict(patch_size=2, in_channels=16, out_channels=16, num_layers=16, num_single_layers=32, attention_head_dim=128,
          num_attention_heads=20, caption_channels=[4096, 4096], text_emb_dim=2048, num_routed_experts=4,
          num_activated_experts=2, axes_dims_rope=(64, 32, 32), max_resolution=(128, 128), llama_layers=[0] * 48)),
    (DENOISER, "pixart", "Sigma", "PixArtTransformer2DModel",
     dict(sample_size=128, cross_attention_dim=1152, use_additional_conditions=False)),
    (DENOISER, "pixart", "alpha", "PixArtTransformer2DModel",
     dict(sample_size=128, cross_attention_dim=1152, use_additional_conditions=True)),
    (DENOISER, "sana", "1.6B", "SanaTransformer2DModel", {}),
    (DENOISER, "sana", "4.8B", "SanaTransformer2DModel", dict(num_layers=60)),
    (DENOISER, "sana", "0.6B", "SanaTransformer2DModel",
     dict(num_layers=28, num_attention_heads=36, attention_head_dim=32, num_cross_attention_heads=16,
          cross_attention_head_dim=72, cross_attention_dim=1152)),
    (DENOISER, "auraflow", "", "AuraFlowTransformer2DModel", {}),
    (DENOISER, "hunyuan-dit", "", "HunyuanDiT2DModel", dict(sample_size=128, patch_size=2, in_channels=4, text_len=77)),
    (DENOISER, "hunyuan-image", "2.1", "HunyuanImageTransformer2DModel", {}),
    (DENOISER, "wan", "2.1 T2V 1.3B", "WanTransformer3DModel", WAN),
    (DENOISER, "wan", "T2V 14B", "WanTransformer3DModel", WAN14),
    (DENOISER, "wan", "2.1 I2V", "WanTransformer3DModel",
     dict(WAN14, in_channels=36, image_dim=1280, added_kv_proj_dim=5120)),
    (DENOISER, "wan", "2.1 FLF2V", "WanTransformer3DModel",
     dict(WAN14, in_channels=36, image_dim=1280, added_kv_proj_dim=5120, pos_embed_seq_len=514)),
    (DENOISER, "wan", "2.2 I2V", "WanTransformer3DModel", dict(WAN14, in_channels=36)),
    (DENOISER, "wan", "Fun control", "WanTransformer3DModel", dict(WAN14, in_channels=48)),
    (DENOISER, "wan", "camera", "WanTransformer3DModel", dict(WAN14, in_channels=32)),
    (DENOISER, "wan", "S2V", "WanTransformer3DModel", WAN14,
     {"casual_audio_encoder.weights": (1, 25, 1, 1), "trainable_cond_mask.weight": (3, 5120)}),
    (DENOISER, "wan", "2.2 TI2V 5B", "WanTransformer3DModel",
     dict(in_channels=48, out_channels=48, num_attention_heads=24, num_layers=30, ffn_dim=14336)),
    (DENOISER, "wan", "VACE", "WanVACETransformer3DModel", {}),
    (DENOISER, "wan", "Animate", "WanAnimateTransformer3DModel", {}),
    (DENOISER, "ltx", "2B", "LTXVideoTransformer3DModel", {}),
    (DENOISER, "ltx", "13B", "LTXVideoTransformer3DModel", LTX13),
    (DENOISER, "ltx2", "", "LTX2VideoTransformer3DModel", {}),
    (DENOISER, "ltx2", "2.3", "LTX2VideoTransformer3DModel",
     dict(gated_attn=True, cross_attn_mod=True, audio_gated_attn=True, audio_cross_attn_mod=True,
          use_prompt_embeddings=False)),
    (DENOISER, "hunyuan-video", "T2V", "HunyuanVideoTransformer3DModel", {}),
    (DENOISER, "hunyuan-video", "I2V", "HunyuanVideoTransformer3DModel", dict(in_channels=33)),
    (DENOISER, "hunyuan-video", "SkyReels", "HunyuanVideoTransformer3DModel", dict(in_channels=32)),
    (DENOISER, "hunyuan-video", "1.5", "HunyuanVideo15Transformer3DModel", {}),
    (DENOISER, "hunyuan-video", "1.5 super-resolution", "HunyuanVideo15Transformer3DModel", dict(in_channels=98)),
    (DENOISER, "cogvideox", "1.0 T2V", "CogVideoXTransformer3DModel", {}),
    (DENOISER, "cogvideox", "1.0 I2V", "CogVideoXTransformer3DModel",
     dict(in_channels=32, num_layers=42, num_attention_heads=48, use_rotary_positional_embeddings=True,
          use_learned_positional_embeddings=True)),
    (DENOISER, "cogvideox", "1.0 inpaint", "CogVideoXTransformer3DModel", dict(in_channels=48, out_channels=16)),
    (DENOISER, "cogvideox", "1.5 T2V", "CogVideoXTransformer3DModel",
     dict(patch_size_t=2, num_layers=42, num_attention_heads=48, use_rotary_positional_embeddings=True)),
    (DENOISER, "cogvideox", "1.5 I2V", "CogVideoXTransformer3DModel",
     dict(patch_size_t=2, in_channels=32, num_layers=42, num_attention_heads=48, ofs_embed_dim=512,
          use_rotary_positional_embeddings=True)),
    (DENOISER, "cosmos-predict2", "T2I 2B", "CosmosTransformer3DModel", COSMOS),
    (DENOISER, "cosmos-predict2", "T2I 14B", "CosmosTransformer3DModel",
     dict(COSMOS, num_attention_heads=40, num_layers=36)),
    (DENOISER, "cosmos-predict2", "V2W", "CosmosTransformer3DModel", dict(COSMOS, in_channels=17)),
    (DENOISER, "kandinsky5", "", "Kandinsky5Transformer3DModel", {}),
    (DENOISER, "mochi", "", "MochiTransformer3DModel", {}),
    (DENOISER, "minimax-h3", "", "MiniMaxH3Transformer3DModel", {}),
    # Nobody's rows: what is not in the tables is taken for nothing that is.
    ("other", "", "", "AllegroTransformer3DModel", {}),
    ("other", "", "", "CogView3PlusTransformer2DModel", {}),
    ("other", "", "", "CogView4Transformer2DModel", {}),
    ("other", "", "", "GlmImageTransformer2DModel", {}),
    ("other", "", "", "LatteTransformer3DModel",
     dict(in_channels=4, sample_size=64, patch_size=2, video_length=16, num_layers=28, caption_channels=4096)),
    ("other", "", "", "PRXTransformer2DModel", {}),
    ("other", "", "", "StableAudioDiTModel", {}),
    (VAE, "sd-vae", "4 channels", "AutoencoderKL", KL),
    (VAE, "flux-vae", "16 channels", "AutoencoderKL", KL16),
    (VAE, "flux2-vae", "32 channels", "AutoencoderKLFlux2", {}),
    (VAE, "svd-vae", "", "AutoencoderKLTemporalDecoder",
     dict(block_out_channels=[128, 256, 512, 512], layers_per_block=2, down_block_types=["DownEncoderBlock2D"] * 4)),
    (VAE, "wan-vae", "16 channels", "AutoencoderKLWan", {}),
    (VAE, "wan-vae", "16 channels", "AutoencoderKLQwenImage", {}),
    (VAE, "wan-vae", "48 channels", "AutoencoderKLWan",
     dict(base_dim=160, decoder_base_dim=256, z_dim=48, in_channels=12, out_channels=12, patch_size=2,
          is_residual=True, scale_factor_spatial=16, latents_mean=[0.0] * 48, latents_std=[1.0] * 48)),
    (VAE, "ltx-vae", "0.9.0", "AutoencoderKLLTXVideo", {}),
    (VAE, "ltx-vae", "0.9.1", "AutoencoderKLLTXVideo",
     dict(decoder_block_out_channels=[256, 512, 1024], decoder_layers_per_block=[5, 6, 7, 8],
          decoder_spatio_temporal_scaling=[True, True, True], decoder_inject_noise=[True, True, True, False],
          upsample_residual=[True, True, True], upsample_factor=[2, 2, 2], timestep_conditioning=True)),
    (VAE, "ltx-vae", "0.9.5", "AutoencoderKLLTXVideo",
     dict(block_out_channels=[128, 256, 512, 1024, 2048], down_block_types=["LTXVideo095DownBlock3D"] * 4,
          layers_per_block=[4, 6, 6, 2, 2], decoder_block_out_channels=[256, 512, 1024],
          decoder_layers_per_block=[5, 5, 5, 5], decoder_spatio_temporal_scaling=[True, True, True],
          spatio_temporal_scaling=[True] * 4, decoder_inject_noise=[False] * 4, upsample_residual=[True] * 3,
          upsample_factor=[2, 2, 2], timestep_conditioning=True,
          downsample_type=["spatial", "temporal", "spatiotemporal", "spatiotemporal"])),
    (VAE, "hunyuan-video-vae", "16 channels", "AutoencoderKLHunyuanVideo", {}),
    (VAE, "hunyuan-video-vae", "32 channels", "AutoencoderKLHunyuanVideo15", {}),
    (VAE, "hunyuan-image-vae", "64 channels", "AutoencoderKLHunyuanImage",
     dict(in_channels=3, out_channels=3, latent_channels=64, block_out_channels=[128, 256, 512, 512, 1024, 1024],
          layers_per_block=2, spatial_compression_ratio=32, sample_size=384)),
    (VAE, "cogvideox-vae", "", "AutoencoderKLCogVideoX", {}),
    (VAE, "dc-ae", "", "AutoencoderDC", dict(
        encoder_block_types=["ResBlock"] * 3 + ["EfficientViTBlock"] * 3,
        decoder_block_types=["ResBlock"] * 3 + ["EfficientViTBlock"] * 3, encoder_qkv_multiscales=((), (), (), (5,), (5,), (5,)),
        decoder_qkv_multiscales=((), (), (), (5,), (5,), (5,)), encoder_layers_per_block=(2, 2, 2, 3, 3, 3),
        decoder_layers_per_block=(3, 3, 3, 3, 3, 3))),
    (VAE, "qwen-2.1-vae", "64 channels", "AutoencoderKLQwenImage21", {}),
    (VAE, "mochi-vae", "", "AutoencoderKLMochi", {}),
    (VAE, "h3-vae", "", "AutoencoderKLMiniMaxH3", {}),
    (VAE, "ltx-vae", "", "AutoencoderKLLTX2Video", {}),
    (VAE, "audio-vae", "", "AutoencoderKLLTX2Audio", {}),
    ("other", "", "", "AutoencoderKLAllegro", {}),
    ("other", "", "", "AutoencoderKLCosmos", {}),
    (VAE, "tiny-vae", "pictures", "AutoencoderTiny", {}),
    (VAE, "tiny-vae", "pictures", "AutoencoderTiny", dict(latent_channels=16)),
    (VAE, "tiny-vae", "pictures", "AutoencoderTiny", dict(latent_channels=32)),
    (CONTROL, "controlnet", "of SD 1", "ControlNetModel", dict(cross_attention_dim=768)),
    (CONTROL, "controlnet", "of SD 2", "ControlNetModel",
     dict(cross_attention_dim=1024, attention_head_dim=[5, 10, 20, 20], use_linear_projection=True)),
    (CONTROL, "controlnet", "of SDXL", "ControlNetModel",
     {key: value for key, value in XL.items() if key not in ("sample_size", "up_block_types")}),
    (CONTROL, "controlnet", "of SDXL, small", "ControlNetModel",
     dict({key: value for key, value in XL.items() if key not in ("sample_size", "up_block_types")},
          down_block_types=["DownBlock2D"] * 3, transformer_layers_per_block=[1, 1, 1], mid_block_type="UNetMidBlock2D")),
    (CONTROL, "controlnet", "of SDXL, mid", "ControlNetModel",
     dict({key: value for key, value in XL.items() if key not in ("sample_size", "up_block_types")},
          transformer_layers_per_block=[1, 1, 1])),
    (CONTROL, "controlnet", "of SDXL, union", "ControlNetUnionModel",
     {key: value for key, value in XL.items() if key not in ("sample_size", "up_block_types")}),
    (CONTROL, "controlnet", "of Flux, InstantX", "FluxControlNetModel",
     dict(num_layers=5, num_single_layers=10, guidance_embeds=True)),
    (CONTROL, "controlnet", "of Flux, union", "FluxControlNetModel",
     dict(num_layers=5, num_single_layers=10, guidance_embeds=True, num_mode=10)),
    (CONTROL, "controlnet", "of SD 3", "SD3ControlNetModel",
     dict(num_layers=6, num_attention_heads=24, caption_projection_dim=1536)),
    (CONTROL, "controlnet", "of Qwen-Image", "QwenImageControlNetModel", dict(num_layers=5)),
    (CONTROL, "t2i-adapter", "", "T2IAdapter", {}),
    (CONTROL, "t2i-adapter", "", "T2IAdapter", dict(adapter_type="full_adapter_xl", channels=[320, 640, 1280, 1280])),
    (ADAPTER, "animatediff", "v3", "MotionAdapter", dict(use_motion_mid_block=False, motion_max_seq_length=32)),
    (ADAPTER, "animatediff", "v2", "MotionAdapter", dict(use_motion_mid_block=True, motion_max_seq_length=32)),
    (ADAPTER, "animatediff", "SDXL", "MotionAdapter",
     dict(block_out_channels=(320, 640, 1280), use_motion_mid_block=False)),
    (ADAPTER, "sparsectrl", "rgb", "SparseControlNetModel", {}),
    (ADAPTER, "sparsectrl", "scribble", "SparseControlNetModel", dict(use_simplified_condition_embedding=False)),
]


def clip(width, layers, heads, vocabulary=49408, **more):
    config = transformers.CLIPTextConfig(vocab_size=vocabulary, hidden_size=width, intermediate_size=4 * width,
                                         num_hidden_layers=layers, num_attention_heads=heads, **more)
    return transformers.CLIPTextModel(config)


def t5(vocabulary, width, inner, layers, heads, kind=transformers.T5EncoderModel, config=transformers.T5Config):
    return kind(config(vocab_size=vocabulary, d_model=width, d_ff=inner, num_layers=layers, num_heads=heads, d_kv=64,
                       feed_forward_proj="gated-gelu"))


def language(name, config, **sizes):
    return getattr(transformers, name)(getattr(transformers, config)(**sizes))


def qwen3(width, inner, layers, heads):
    return lambda: language("Qwen3ForCausalLM", "Qwen3Config", vocab_size=151936, hidden_size=width,
                            intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads,
                            num_key_value_heads=8, head_dim=128, tie_word_embeddings=True)


def llama(name, config, vocabulary, width, inner, layers, heads):
    return lambda: language(name, config, vocab_size=vocabulary, hidden_size=width, intermediate_size=inner,
                            num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=8, head_dim=128)


# Family, variant, how it is built, what llama.cpp calls the architecture.
ENCODERS = [
    ("clip", "CLIP-L", lambda: clip(768, 12, 12), None),
    ("clip", "OpenCLIP-H", lambda: clip(1024, 23, 16), None),
    ("clip", "OpenCLIP-bigG", lambda: clip(1280, 32, 20), None),
    ("clip-vision", "", lambda: transformers.CLIPVisionModelWithProjection(transformers.CLIPVisionConfig(
        hidden_size=1280, intermediate_size=5120, num_hidden_layers=32, num_attention_heads=16, patch_size=14,
        projection_dim=1024)), None),
    ("t5", "T5-XXL", lambda: t5(32128, 4096, 10240, 24, 64), MODEL_ARCH.T5ENCODER),
    ("t5", "T5-XL", lambda: t5(32128, 2048, 5120, 24, 32), MODEL_ARCH.T5ENCODER),
    ("umt5", "UMT5-XXL", lambda: t5(256384, 4096, 10240, 24, 64, transformers.UMT5EncoderModel,
                                    transformers.UMT5Config), MODEL_ARCH.T5ENCODER),
    ("qwen3", "Qwen3-0.6B", qwen3(1024, 3072, 28, 16), MODEL_ARCH.QWEN3),
    ("qwen3", "Qwen3-1.7B", qwen3(2048, 6144, 28, 16), MODEL_ARCH.QWEN3),
    ("qwen3", "Qwen3-4B", qwen3(2560, 9728, 36, 32), MODEL_ARCH.QWEN3),
    ("qwen3", "Qwen3-8B", qwen3(4096, 12288, 36, 32), MODEL_ARCH.QWEN3),
    ("qwen2.5-vl", "7B", lambda: language("Qwen2ForCausalLM", "Qwen2Config", vocab_size=152064, hidden_size=3584,
                                          intermediate_size=18944, num_hidden_layers=28, num_attention_heads=28,
                                          num_key_value_heads=4), MODEL_ARCH.QWEN2VL),
    ("gemma2", "Gemma2-2B", lambda: language("Gemma2ForCausalLM", "Gemma2Config", vocab_size=256000, hidden_size=2304,
                                             intermediate_size=9216, num_hidden_layers=26, num_attention_heads=8,
                                             num_key_value_heads=4, head_dim=256), MODEL_ARCH.GEMMA2),
    ("gemma3", "Gemma3-12B", lambda: language("Gemma3ForCausalLM", "Gemma3TextConfig", vocab_size=262208,
                                              hidden_size=3840, intermediate_size=15360, num_hidden_layers=48,
                                              num_attention_heads=16, num_key_value_heads=8, head_dim=256),
     MODEL_ARCH.GEMMA3),
    ("llama", "Llama-3.1-8B", llama("LlamaForCausalLM", "LlamaConfig", 128256, 4096, 14336, 32, 32), MODEL_ARCH.LLAMA),
    ("mistral", "Mistral-Small-24B", llama("MistralForCausalLM", "MistralConfig", 131072, 5120, 32768, 40, 32),
     MODEL_ARCH.LLAMA),
]


def tensors(model):
    """Names and shapes as the libraries save them: a tied output is left out."""
    state = model.state_dict()
    if getattr(getattr(model, "config", None), "tie_word_embeddings", False):
        state.pop("lm_head.weight", None)
        if "shared.weight" in state:
            state.pop("encoder.embed_tokens.weight", None)
    return {name: tuple(tensor.shape) for name, tensor in state.items() if not name.endswith("position_ids")}


RESNET = {"norm1": "in_layers.0", "conv1": "in_layers.2", "time_emb_proj": "emb_layers.1", "norm2": "out_layers.0",
          "conv2": "out_layers.3", "conv_shortcut": "skip_connection"}
OUTSIDE = {"conv_in": "input_blocks.0.0", "time_embedding.linear_1": "time_embed.0",
           "time_embedding.linear_2": "time_embed.2", "conv_norm_out": "out.0", "conv_out": "out.2",
           "add_embedding.linear_1": "label_emb.0.0", "add_embedding.linear_2": "label_emb.0.2",
           "class_embedding": "label_emb", "class_embedding.linear_1": "label_emb.0.0", "class_embedding.linear_2": "label_emb.0.2"}


def compvis(names, layers=2):
    """The names that the authors of such a U-net gave it."""
    attends = {re.match(r"up_blocks\.(\d+)", name)[1] for name in names if re.match(r"up_blocks\.\d+\.attentions", name)}

    def inside(kind, rest):
        if kind == "attentions":
            return rest
        module, parameter = rest.rsplit(".", 1)
        return f"{RESNET[module]}.{parameter}"

    def rename(name):
        module, parameter = name.rsplit(".", 1)
        if module in OUTSIDE:
            return f"{OUTSIDE[module]}.{parameter}"
        side, *rest = name.split(".", 1)
        if side == "mid_block":
            kind, number, rest = rest[0].split(".", 2)
            place = 1 if kind == "attentions" else 2 * int(number)
            return f"middle_block.{place}.{inside(kind, rest)}"
        level, kind, number, rest = rest[0].split(".", 3)
        level, number = int(level), int(number)
        if side == "down_blocks":
            if kind == "downsamplers":
                return f"input_blocks.{(layers + 1) * (level + 1)}.0.op.{parameter}"
            step = (layers + 1) * level + number + 1
            return f"input_blocks.{step}.{int(kind == 'attentions')}.{inside(kind, rest)}"
        if kind == "upsamplers":
            place = 2 if str(level) in attends else 1
            return f"output_blocks.{(layers + 1) * level + layers}.{place}.conv.{parameter}"
        return f"output_blocks.{(layers + 1) * level + number}.{int(kind == 'attentions')}.{inside(kind, rest)}"

    return {name: f"model.diffusion_model.{rename(name)}" for name in names}


def compact(lines):
    """One line for what repeats, number by number from the left."""
    lines = dict(lines)
    for place in range(4):
        groups = {}
        for name, shape in lines.items():
            numbers = list(re.finditer(r"(?<=\.)\d+(?=\.)|^\d+(?=\.)", name))
            if place < len(numbers):
                match = numbers[place]
                key = (name[: match.start()], name[match.end():], shape)
                groups.setdefault(key, []).append((int(match.group()), name))
        for (head, tail, shape), found in groups.items():
            found.sort()
            first, last = found[0][0], found[-1][0]
            if len(found) > 1 and last - first + 1 == len(found):
                for _, name in found:
                    del lines[name]
                lines[f"{head}{{{first}..{last}}}{tail}"] = shape
    return [" ".join([name, *map(str, shape)]) for name, shape in sorted(lines.items())]


def section(role, family, variant, origin, lines):
    return "\n".join([f"== {role} | {family} | {variant} | {origin}", *compact(lines), ""])


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    written = []
    for role, family, variant, name, sizes, *more in MODELS:
        with torch.device("meta"):
            model = getattr(diffusers, name)(**sizes)
        found = tensors(model)
        more = more[0] if more else {}
        written.append(section(role, family, variant, name, (found | more).items()))
        own = makers(name, variant, sizes, found)
        if own is not None:
            written.append(section(role, family, variant, f"{name}, its makers' names", (own | more).items()))
        # Those that were first published under their authors' names, with all their layers.
        if name == UNET and family in (SD, SDXL) and "encoder_hid_proj.weight" not in found:
            names = compvis(found)
            written.append(section(role, family, variant, "CompVis", {names[old]: found[old] for old in found}.items()))
    with gzip.GzipFile(OUT / "networks.txt.gz", "wb", mtime=0) as file:
        file.write("\n".join(written).encode())
    plain, renamed = [], []
    for family, variant, build, architecture in ENCODERS:
        with torch.device("meta"):
            model = build()
        found = tensors(model)
        plain.append(section(ENCODER, family, variant, type(model).__name__, found.items()))
        if architecture is None:
            continue
        names = get_tensor_name_map(architecture, 64)
        pairs = {}
        for old, shape in found.items():
            new = names.get_name(old, try_suffixes=(".weight", ".bias"))
            if new is None:
                raise SystemExit(f"{family}: {old} has no name in GGUF files")
            pairs[new] = shape
        renamed.append(section(ENCODER, family, variant, f"gguf {type(model).__name__}", pairs.items()))
    (OUT / "encoders.txt").write_text("\n".join(plain))
    (OUT / "encoders_gguf.txt").write_text("\n".join(renamed))


main()
