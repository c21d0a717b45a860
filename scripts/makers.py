"""The names that makers gave to the networks that diffusers publishes under its own: tables of expressions.

A table is applied from its first line to its last. A mark `#0`, `#1` … in a name says that the matrix is that part of a
fused one. What comes out is not believed: the library's own converter, where it has one, must lead back from it to
exactly the names and shapes that it began with.

Source of the names: huggingface/diffusers v0.42.1 src/diffusers/loaders/single_file_utils.py, Apache-2.0.
"""

import math
import re
from inspect import signature

import torch
from diffusers.loaders import single_file_utils as library

PREFIX = "model.diffusion_model."


def pairs(text):
    """A table from lines `expression -> replacement`."""
    return [tuple(part.strip() for part in line.split("->")) for line in text.splitlines() if line.strip()]


TIMES = r"""
    ^time_text_embed\.timestep_embedder\.linear_1 -> time_in.in_layer
    ^time_text_embed\.timestep_embedder\.linear_2 -> time_in.out_layer
    ^time_text_embed\.text_embedder\.linear_1 -> vector_in.in_layer
    ^time_text_embed\.text_embedder\.linear_2 -> vector_in.out_layer
    ^time_text_embed\.guidance_embedder\.linear_1 -> guidance_in.in_layer
    ^time_text_embed\.guidance_embedder\.linear_2 -> guidance_in.out_layer
"""
ENDS = r"""
    ^context_embedder -> txt_in
    ^x_embedder -> img_in
    ^norm_out\.linear -> final_layer.adaLN_modulation.1
    ^proj_out -> final_layer.linear
"""
DOUBLE = r"""
    ^transformer_blocks\. -> double_blocks.
    (double.*)\.norm1\.linear -> \1.img_mod.lin
    (double.*)\.norm1_context\.linear -> \1.txt_mod.lin
    (double.*)\.attn\.to_q\. -> \1.img_attn.qkv#0.
    (double.*)\.attn\.to_k\. -> \1.img_attn.qkv#1.
    (double.*)\.attn\.to_v\. -> \1.img_attn.qkv#2.
    (double.*)\.attn\.add_q_proj\. -> \1.txt_attn.qkv#0.
    (double.*)\.attn\.add_k_proj\. -> \1.txt_attn.qkv#1.
    (double.*)\.attn\.add_v_proj\. -> \1.txt_attn.qkv#2.
    (double.*)\.attn\.norm_q\.weight -> \1.img_attn.norm.query_norm.scale
    (double.*)\.attn\.norm_k\.weight -> \1.img_attn.norm.key_norm.scale
    (double.*)\.attn\.norm_added_q\.weight -> \1.txt_attn.norm.query_norm.scale
    (double.*)\.attn\.norm_added_k\.weight -> \1.txt_attn.norm.key_norm.scale
    (double.*)\.attn\.to_out\.0 -> \1.img_attn.proj
    (double.*)\.attn\.to_add_out -> \1.txt_attn.proj
"""
FLUX = pairs(TIMES + ENDS + DOUBLE + r"""
    (double.*)\.ff\.net\.0\.proj -> \1.img_mlp.0
    (double.*)\.ff\.net\.2 -> \1.img_mlp.2
    (double.*)\.ff_context\.net\.0\.proj -> \1.txt_mlp.0
    (double.*)\.ff_context\.net\.2 -> \1.txt_mlp.2
    ^single_transformer_blocks\. -> single_blocks.
    (single.*)\.norm\.linear -> \1.modulation.lin
    (single.*)\.attn\.to_q\. -> \1.linear1#0.
    (single.*)\.attn\.to_k\. -> \1.linear1#1.
    (single.*)\.attn\.to_v\. -> \1.linear1#2.
    (single.*)\.proj_mlp\. -> \1.linear1#3.
    (single.*)\.attn\.norm_q\.weight -> \1.norm.query_norm.scale
    (single.*)\.attn\.norm_k\.weight -> \1.norm.key_norm.scale
    (single.*)\.proj_out -> \1.linear2
    (distilled.*)\.linear_1 -> \1.in_layer
    (distilled.*)\.linear_2 -> \1.out_layer
    (distilled.*norms\.\d+)\.weight -> \1.scale
""")
FLUX2 = pairs(ENDS + DOUBLE + r"""
    ^time_guidance_embed\.timestep_embedder\.linear_1 -> time_in.in_layer
    ^time_guidance_embed\.timestep_embedder\.linear_2 -> time_in.out_layer
    ^time_guidance_embed\.guidance_embedder\.linear_1 -> guidance_in.in_layer
    ^time_guidance_embed\.guidance_embedder\.linear_2 -> guidance_in.out_layer
    (stream_modulation.*)\.linear -> \1.lin
    (double.*)\.ff\.linear_in -> \1.img_mlp.0
    (double.*)\.ff\.linear_out -> \1.img_mlp.2
    (double.*)\.ff_context\.linear_in -> \1.txt_mlp.0
    (double.*)\.ff_context\.linear_out -> \1.txt_mlp.2
    ^single_transformer_blocks\. -> single_blocks.
    (single.*)\.attn\.to_qkv_mlp_proj -> \1.linear1
    (single.*)\.attn\.to_out -> \1.linear2
    (single.*)\.attn\.norm_q\.weight -> \1.norm.query_norm.scale
    (single.*)\.attn\.norm_k\.weight -> \1.norm.key_norm.scale
""")
FLUX3 = pairs(r"""
    ^timestep_embedder\.linear_1 -> time_in.in_layer
    ^timestep_embedder\.linear_2 -> time_in.out_layer
    ^target_timestep_embedder\.linear_1 -> ref_time_in.in_layer
    ^target_timestep_embedder\.linear_2 -> ref_time_in.out_layer
    ^proj_out -> final_layer.image.linear
    ^norm_out\.linear -> final_layer.image.adaLN_modulation.1
    ^x_embedders\. -> emb_in.
    ^context_embedder\. -> txt_in.
    ^mode_blocks\. -> content_mode_blocks.
    ^single_transformer_blocks\. -> single_blocks.
    (modulation.*)\.linear\.weight -> \1.lin.weight
    \.attn\.to_(q|k|v)\. -> .\1_proj.
    \.attn\.to_out\.0\. -> .attn_out.
    \.attn\.norm_q\.weight -> .norm.query_norm.scale
    \.attn\.norm_k\.weight -> .norm.key_norm.scale
    \.ff\.linear_in\. -> .mlp_in.
    \.ff\.linear_out\. -> .mlp_out.
""")
SD3 = pairs(r"""
    ^pos_embed\.pos_embed -> pos_embed
    ^pos_embed\.proj -> x_embedder.proj
    ^time_text_embed\.timestep_embedder\.linear_1 -> t_embedder.mlp.0
    ^time_text_embed\.timestep_embedder\.linear_2 -> t_embedder.mlp.2
    ^time_text_embed\.text_embedder\.linear_1 -> y_embedder.mlp.0
    ^time_text_embed\.text_embedder\.linear_2 -> y_embedder.mlp.2
    ^norm_out\.linear -> final_layer.adaLN_modulation.1
    ^proj_out -> final_layer.linear
    ^transformer_blocks\. -> joint_blocks.
    \.(attn2?)\.to_q\. -> .x_block.\1.qkv#0.
    \.(attn2?)\.to_k\. -> .x_block.\1.qkv#1.
    \.(attn2?)\.to_v\. -> .x_block.\1.qkv#2.
    \.attn\.add_q_proj\. -> .context_block.attn.qkv#0.
    \.attn\.add_k_proj\. -> .context_block.attn.qkv#1.
    \.attn\.add_v_proj\. -> .context_block.attn.qkv#2.
    \.(attn2?)\.norm_(q|k)\. -> .x_block.\1.ln_\2.
    \.attn\.norm_added_(q|k)\. -> .context_block.attn.ln_\1.
    \.(attn2?)\.to_out\.0 -> .x_block.\1.proj
    \.attn\.to_add_out -> .context_block.attn.proj
    \.norm1\.linear -> .x_block.adaLN_modulation.1
    \.norm1_context\.linear -> .context_block.adaLN_modulation.1
    \.ff\.net\.0\.proj -> .x_block.mlp.fc1
    \.ff\.net\.2 -> .x_block.mlp.fc2
    \.ff_context\.net\.0\.proj -> .context_block.mlp.fc1
    \.ff_context\.net\.2 -> .context_block.mlp.fc2
""")
Z_IMAGE = pairs(r"""
    ^all_final_layer\.2-1\. -> final_layer.
    ^all_x_embedder\.2-1\. -> x_embedder.
    \.attention\.to_out\.0 -> .attention.out
    \.attention\.norm_(q|k) -> .attention.\1_norm
    \.attention\.to_q\. -> .attention.qkv#0.
    \.attention\.to_k\. -> .attention.qkv#1.
    \.attention\.to_v\. -> .attention.qkv#2.
""")
LUMINA2 = pairs(r"""
    ^time_caption_embed\.caption_embedder -> cap_embedder
    ^time_caption_embed\.timestep_embedder\.linear_1 -> t_embedder.mlp.0
    ^time_caption_embed\.timestep_embedder\.linear_2 -> t_embedder.mlp.2
    ^norm_out\.linear_1 -> final_layer.adaLN_modulation.1
    ^norm_out\.linear_2 -> final_layer.linear
    \.attn\.to_q\. -> .attention.qkv#0.
    \.attn\.to_k\. -> .attention.qkv#1.
    \.attn\.to_v\. -> .attention.qkv#2.
    \.attn\.to_out\.0 -> .attention.out
    \.attn\.norm_(q|k) -> .attention.\1_norm
    \.linear_(1|2|3)\. -> .w\1.
    \.norm1\.linear -> .adaLN_modulation.1
    \.norm1\.norm -> .attention_norm1
    \.norm1\. -> .attention_norm1.
    \.norm2\. -> .attention_norm2.
""")
WAN = pairs(r"""
    ^condition_embedder\.time_embedder\.linear_1 -> time_embedding.0
    ^condition_embedder\.time_embedder\.linear_2 -> time_embedding.2
    ^condition_embedder\.text_embedder\.linear_1 -> text_embedding.0
    ^condition_embedder\.text_embedder\.linear_2 -> text_embedding.2
    ^condition_embedder\.time_proj -> time_projection.1
    ^condition_embedder\.image_embedder\.norm1 -> img_emb.proj.0
    ^condition_embedder\.image_embedder\.ff\.net\.0\.proj -> img_emb.proj.1
    ^condition_embedder\.image_embedder\.ff\.net\.2 -> img_emb.proj.3
    ^condition_embedder\.image_embedder\.norm2 -> img_emb.proj.4
    ^condition_embedder\.image_embedder\.pos_embed -> img_emb.emb_pos
    ^scale_shift_table -> head.modulation
    ^proj_out -> head.head
    \.scale_shift_table -> .modulation
    \.attn1\. -> .self_attn.
    \.attn2\. -> .cross_attn.
    \.to_out\.0\. -> .o.
    \.to_(q|k|v)\. -> .\1.
    \.add_(k|v)_proj\. -> .\1_img.
    \.norm_added_k\. -> .norm_k_img.
    \.ffn\.net\.0\.proj -> .ffn.0
    \.ffn\.net\.2 -> .ffn.2
    \.norm2\. -> .norm3.
    (vace_blocks.*)\.proj_in -> \1.before_proj
    (vace_blocks.*)\.proj_out -> \1.after_proj
""")
LTX = pairs(r"""
    ^proj_in -> patchify_proj
    ^time_embed -> adaln_single
    \.norm_(q|k)\. -> .\1_norm.
""")
LTX2 = pairs(r"""
    ^proj_in -> patchify_proj
    ^audio_proj_in -> audio_patchify_proj
    ^time_embed -> adaln_single
    ^audio_time_embed -> audio_adaln_single
    ^av_cross_attn_video_scale_shift -> av_ca_video_scale_shift_adaln_single
    ^av_cross_attn_video_a2v_gate -> av_ca_a2v_gate_adaln_single
    ^av_cross_attn_audio_scale_shift -> av_ca_audio_scale_shift_adaln_single
    ^av_cross_attn_audio_v2a_gate -> av_ca_v2a_gate_adaln_single
    \.(video|audio)_a2v_cross_attn_scale_shift_table -> .scale_shift_table_a2v_ca_\1
    \.norm_(q|k)\. -> .\1_norm.
""")
HUNYUAN = pairs(r"""
    ^context_embedder\.token_refiner\.refiner_blocks -> txt_in.individual_token_refiner.blocks
    ^context_embedder\.time_text_embed\.timestep_embedder\.linear_1 -> txt_in.t_embedder.mlp.0
    ^context_embedder\.time_text_embed\.timestep_embedder\.linear_2 -> txt_in.t_embedder.mlp.2
    ^context_embedder\.time_text_embed\.text_embedder -> txt_in.c_embedder
    ^context_embedder\.proj_in -> txt_in.input_embedder
    (txt_in.*)\.norm_out\.linear -> \1.adaLN_modulation.1
    (txt_in.*)\.attn\.to_q\. -> \1.self_attn_qkv#0.
    (txt_in.*)\.attn\.to_k\. -> \1.self_attn_qkv#1.
    (txt_in.*)\.attn\.to_v\. -> \1.self_attn_qkv#2.
    (txt_in.*)\.attn\.to_out\.0 -> \1.self_attn_proj
    (txt_in.*)\.ff\.net\.0\.proj -> \1.mlp.fc1
    (txt_in.*)\.ff\.net\.2 -> \1.mlp.fc2
    ^x_embedder -> img_in
    ^time_text_embed\.timestep_embedder\.linear_1 -> time_in.mlp.0
    ^time_text_embed\.timestep_embedder\.linear_2 -> time_in.mlp.2
    ^time_text_embed\.guidance_embedder\.linear_1 -> guidance_in.mlp.0
    ^time_text_embed\.guidance_embedder\.linear_2 -> guidance_in.mlp.2
    ^time_text_embed\.text_embedder\.linear_1 -> vector_in.in_layer
    ^time_text_embed\.text_embedder\.linear_2 -> vector_in.out_layer
    ^norm_out\.linear -> final_layer.adaLN_modulation.1
    ^proj_out -> final_layer.linear
    ^transformer_blocks\. -> double_blocks.
    (double.*)\.norm1\.linear -> \1.img_mod.linear
    (double.*)\.norm1_context\.linear -> \1.txt_mod.linear
    (double.*)\.attn\.to_q\. -> \1.img_attn_qkv#0.
    (double.*)\.attn\.to_k\. -> \1.img_attn_qkv#1.
    (double.*)\.attn\.to_v\. -> \1.img_attn_qkv#2.
    (double.*)\.attn\.add_q_proj\. -> \1.txt_attn_qkv#0.
    (double.*)\.attn\.add_k_proj\. -> \1.txt_attn_qkv#1.
    (double.*)\.attn\.add_v_proj\. -> \1.txt_attn_qkv#2.
    (double.*)\.attn\.norm_(q|k)\. -> \1.img_attn_\2_norm.
    (double.*)\.attn\.norm_added_(q|k)\. -> \1.txt_attn_\2_norm.
    (double.*)\.attn\.to_out\.0 -> \1.img_attn_proj
    (double.*)\.attn\.to_add_out -> \1.txt_attn_proj
    (double.*)\.ff\.net\.0\.proj -> \1.img_mlp.fc1
    (double.*)\.ff\.net\.2 -> \1.img_mlp.fc2
    (double.*)\.ff_context\.net\.0\.proj -> \1.txt_mlp.fc1
    (double.*)\.ff_context\.net\.2 -> \1.txt_mlp.fc2
    ^single_transformer_blocks\. -> single_blocks.
    (single.*)\.norm\.linear -> \1.modulation.linear
    (single.*)\.attn\.to_q\. -> \1.linear1#0.
    (single.*)\.attn\.to_k\. -> \1.linear1#1.
    (single.*)\.attn\.to_v\. -> \1.linear1#2.
    (single.*)\.proj_mlp\. -> \1.linear1#3.
    (single.*)\.attn\.norm_(q|k)\. -> \1.\2_norm.
    (single.*)\.proj_out -> \1.linear2
""")
MOCHI = pairs(r"""
    ^patch_embed\.proj -> x_embedder.proj
    ^time_embed\.timestep_embedder\.linear_1 -> t_embedder.mlp.0
    ^time_embed\.timestep_embedder\.linear_2 -> t_embedder.mlp.2
    ^time_embed\.pooler -> t5_y_embedder
    ^time_embed\.caption_proj -> t5_yproj
    ^norm_out\.linear -> final_layer.mod
    ^proj_out -> final_layer.linear
    ^transformer_blocks\. -> blocks.
    \.norm1\.linear -> .mod_x
    \.norm1_context\.linear(_1)? -> .mod_y
    \.attn1\.to_q\. -> .attn.qkv_x#0.
    \.attn1\.to_k\. -> .attn.qkv_x#1.
    \.attn1\.to_v\. -> .attn.qkv_x#2.
    \.attn1\.add_q_proj\. -> .attn.qkv_y#0.
    \.attn1\.add_k_proj\. -> .attn.qkv_y#1.
    \.attn1\.add_v_proj\. -> .attn.qkv_y#2.
    \.attn1\.norm_(q|k)\. -> .attn.\1_norm_x.
    \.attn1\.norm_added_(q|k)\. -> .attn.\1_norm_y.
    \.attn1\.to_out\.0 -> .attn.proj_x
    \.attn1\.to_add_out -> .attn.proj_y
    \.ff\.net\.0\.proj -> .mlp_x.w1
    \.ff\.net\.2 -> .mlp_x.w2
    \.ff_context\.net\.0\.proj -> .mlp_y.w1
    \.ff_context\.net\.2 -> .mlp_y.w2
""")
COSMOS = pairs(r"""
    ^time_embed\.t_embedder -> t_embedder.1
    ^time_embed\.norm -> t_embedding_norm
    ^patch_embed\.proj -> x_embedder.proj.1
    ^norm_out\.linear_(1|2) -> final_layer.adaln_modulation.\1
    ^proj_out -> final_layer.linear
    ^transformer_blocks\. -> blocks.
    \.norm1\.linear_(1|2) -> .adaln_modulation_self_attn.\1
    \.norm2\.linear_(1|2) -> .adaln_modulation_cross_attn.\1
    \.norm3\.linear_(1|2) -> .adaln_modulation_mlp.\1
    \.attn1\. -> .self_attn.
    \.attn2\. -> .cross_attn.
    \.to_(q|k|v)\. -> .\1_proj.
    \.to_out\.0 -> .output_proj
    \.norm_(q|k)\. -> .\1_norm.
    \.ff\.net\.0\.proj -> .mlp.layer1
    \.ff\.net\.2 -> .mlp.layer2
    ^ -> net.
""")
# Sana took PixArt's blocks.
PIXART_BLOCKS = r"""
    ^caption_projection\.linear_(1|2) -> y_embedder.y_proj.fc\1
    ^scale_shift_table -> final_layer.scale_shift_table
    ^proj_out -> final_layer.linear
    ^transformer_blocks\. -> blocks.
    \.attn1\.to_q\. -> .attn.qkv#0.
    \.attn1\.to_k\. -> .attn.qkv#1.
    \.attn1\.to_v\. -> .attn.qkv#2.
    \.attn1\.to_out\.0 -> .attn.proj
    \.attn2\.to_q -> .cross_attn.q_linear
    \.attn2\.to_k\. -> .cross_attn.kv_linear#0.
    \.attn2\.to_v\. -> .cross_attn.kv_linear#1.
    \.attn2\.to_out\.0 -> .cross_attn.proj
"""
SANA = pairs(PIXART_BLOCKS + r"""
    ^patch_embed\.proj -> x_embedder.proj
    ^time_embed\.emb\.timestep_embedder\.linear_1 -> t_embedder.mlp.0
    ^time_embed\.emb\.timestep_embedder\.linear_2 -> t_embedder.mlp.2
    ^time_embed\.linear -> t_block.1
    ^caption_norm -> attention_y_norm
    \.ff\.conv_(inverted|depth|point) -> .mlp.\1_conv.conv
""")
PIXART = pairs(PIXART_BLOCKS + r"""
    ^pos_embed\.proj -> x_embedder.proj
    ^adaln_single\.emb\.timestep_embedder\.linear_1 -> t_embedder.mlp.0
    ^adaln_single\.emb\.timestep_embedder\.linear_2 -> t_embedder.mlp.2
    ^adaln_single\.emb\.resolution_embedder\.linear_1 -> csize_embedder.mlp.0
    ^adaln_single\.emb\.resolution_embedder\.linear_2 -> csize_embedder.mlp.2
    ^adaln_single\.emb\.aspect_ratio_embedder\.linear_1 -> ar_embedder.mlp.0
    ^adaln_single\.emb\.aspect_ratio_embedder\.linear_2 -> ar_embedder.mlp.2
    ^adaln_single\.linear -> t_block.1
    \.ff\.net\.0\.proj -> .mlp.fc1
    \.ff\.net\.2 -> .mlp.fc2
""")
AURA = pairs(r"""
    ^time_step_proj\.linear_1 -> t_embedder.mlp.0
    ^time_step_proj\.linear_2 -> t_embedder.mlp.2
    ^context_embedder -> cond_seq_linear
    ^proj_out -> final_linear
    ^norm_out\.linear -> modF.1
    ^pos_embed\.pos_embed -> positional_encoding
    ^pos_embed\.proj -> init_x_linear
    ^joint_transformer_blocks\. -> double_layers.
    ^single_transformer_blocks\. -> single_layers.
    (double.*)\.ff\. -> \1.mlpX.
    (double.*)\.ff_context\. -> \1.mlpC.
    (single.*)\.ff\. -> \1.mlp.
    (layers.*)\.linear_(1|2)\. -> \1.c_fc\2.
    (layers.*)\.out_projection\. -> \1.c_proj.
    (double.*)\.norm1\.linear -> \1.modX.1
    (double.*)\.norm1_context\.linear -> \1.modC.1
    (single.*)\.norm1\.linear -> \1.modCX.1
    (double.*)\.attn\.to_(q|k|v)\. -> \1.attn.w2\2.
    (double.*)\.attn\.to_out\.0 -> \1.attn.w2o
    (double.*)\.attn\.add_(q|k|v)_proj -> \1.attn.w1\2
    (double.*)\.attn\.to_add_out -> \1.attn.w1o
    (single.*)\.attn\.to_(q|k|v)\. -> \1.attn.w1\2.
    (single.*)\.attn\.to_out\.0 -> \1.attn.w1o
""")
KREA2 = pairs(r"""
    ^img_in\. -> first.
    ^time_embed\.linear_1\. -> tmlp.0.
    ^time_embed\.linear_2\. -> tmlp.2.
    ^time_mod_proj\. -> tproj.1.
    ^txt_in\.norm\.weight -> txtmlp.0.scale
    ^txt_in\.linear_1\. -> txtmlp.1.
    ^txt_in\.linear_2\. -> txtmlp.3.
    ^text_fusion\. -> txtfusion.
    ^transformer_blocks\. -> blocks.
    ^final_layer\.linear\. -> last.linear.
    ^final_layer\.norm\.weight -> last.norm.scale
    ^final_layer\.scale_shift_table -> last.modulation.lin
    \.attn\.to_(q|k|v)\. -> .attn.w\1.
    \.attn\.to_out\.0\. -> .attn.wo.
    \.attn\.to_gate\. -> .attn.gate.
    \.attn\.norm_(q|k)\.weight -> .attn.qknorm.\1norm.scale
    \.ff\. -> .mlp.
    \.norm1\.weight -> .prenorm.scale
    \.norm2\.weight -> .postnorm.scale
    (^blocks\.\d+)\.scale_shift_table -> \1.mod.lin
""")
H3 = pairs(r"""
    ^transformer_blocks\. -> blocks.
    ^token_refiner\.refiner_blocks\. -> token_refiner.blocks.
    ^time_embedder\.linear_1\. -> time_embedder.proj_in.
    ^time_embedder\.linear_2\. -> time_embedder.proj_out.
    ^proj_in\. -> video_patch_proj.
    ^audio_proj_in\. -> audio_patch_proj.
    ^context_embedder\. -> condition_proj.
    ^norm_out\.norm\. -> final_layer.norm.
    ^norm_out\.linear\. -> final_layer.adaln_proj.linear.
    ^proj_out\. -> final_layer.video_out.
    ^audio_proj_out\. -> final_layer.audio_out.
    \.attn\.norm_(q|k)\. -> .attn.\1_norm.
    \.attn\.to_out\.0\. -> .attn.out_proj.
    \.attn\.to_q\. -> .attn.qkv_proj#0.
    \.attn\.to_k\. -> .attn.qkv_proj#1.
    \.attn\.to_v\. -> .attn.qkv_proj#2.
    \.ff\.net\.0\.proj\. -> .mlp.fc1.
    \.ff\.net\.2\. -> .mlp.fc2.
""")
QWEN21 = pairs(r"""
    \.img_mlp\.gate_layer\. -> .img_mlp.gate_up#0.
    \.img_mlp\.proj\. -> .img_mlp.gate_up#1.
""")
KL = pairs(r"""
    ^(encoder|decoder)\.mid_block\.resnets\.0 -> \1.mid.block_1
    ^(encoder|decoder)\.mid_block\.resnets\.1 -> \1.mid.block_2
    ^(encoder|decoder)\.mid_block\.attentions\.0 -> \1.mid.attn_1
    \.attn_1\.group_norm -> .attn_1.norm
    \.attn_1\.to_(q|k|v)\. -> .attn_1.\1.
    \.attn_1\.to_out\.0 -> .attn_1.proj_out
    ^encoder\.down_blocks\.(\d)\.resnets\.(\d) -> encoder.down.\1.block.\2
    ^encoder\.down_blocks\.(\d)\.downsamplers\.0 -> encoder.down.\1.downsample
    ^decoder\.up_blocks\.0\. -> decoder.up_blocks.-3.
    ^decoder\.up_blocks\.1\. -> decoder.up_blocks.-2.
    ^decoder\.up_blocks\.2\. -> decoder.up_blocks.-1.
    ^decoder\.up_blocks\.3\. -> decoder.up_blocks.-0.
    ^decoder\.up_blocks\.-(\d)\.resnets\.(\d) -> decoder.up.\1.block.\2
    ^decoder\.up_blocks\.-(\d)\.upsamplers\.0 -> decoder.up.\1.upsample
    \.conv_shortcut -> .nin_shortcut
    \.conv_norm_out -> .norm_out
""")
WAN_VAE = pairs(r"""
    ^quant_conv -> conv1
    ^post_quant_conv -> conv2
    ^(encoder|decoder)\.conv_in -> \1.conv1
    ^(encoder|decoder)\.norm_out -> \1.head.0
    ^(encoder|decoder)\.conv_out -> \1.head.2
    ^(encoder|decoder)\.mid_block\.resnets\.0 -> \1.middle.0
    ^(encoder|decoder)\.mid_block\.attentions\.0 -> \1.middle.1
    ^(encoder|decoder)\.mid_block\.resnets\.1 -> \1.middle.2
    ^encoder\.down_blocks\. -> encoder.downsamples.
    ^decoder\.up_blocks\.0\.resnets\.(\d) -> decoder.upsamples.\1
    ^decoder\.up_blocks\.0\.upsamplers\.0 -> decoder.upsamples.3
    ^decoder\.up_blocks\.1\.resnets\.0 -> decoder.upsamples.4
    ^decoder\.up_blocks\.1\.resnets\.1 -> decoder.upsamples.5
    ^decoder\.up_blocks\.1\.resnets\.2 -> decoder.upsamples.6
    ^decoder\.up_blocks\.1\.upsamplers\.0 -> decoder.upsamples.7
    ^decoder\.up_blocks\.2\.resnets\.0 -> decoder.upsamples.8
    ^decoder\.up_blocks\.2\.resnets\.1 -> decoder.upsamples.9
    ^decoder\.up_blocks\.2\.resnets\.2 -> decoder.upsamples.10
    ^decoder\.up_blocks\.2\.upsamplers\.0 -> decoder.upsamples.11
    ^decoder\.up_blocks\.3\.resnets\.0 -> decoder.upsamples.12
    ^decoder\.up_blocks\.3\.resnets\.1 -> decoder.upsamples.13
    ^decoder\.up_blocks\.3\.resnets\.2 -> decoder.upsamples.14
    \.conv_shortcut -> .shortcut
    \.norm1\.gamma -> .residual.0.gamma
    \.conv1\.(weight|bias)$ -> .residual.2.\1
    \.norm2\.gamma -> .residual.3.gamma
    \.conv2\.(weight|bias)$ -> .residual.6.\1
    ^(encoder|decoder)\.residual\.2 -> \1.conv1
""")
WAN_VAE_DEEP = pairs(r"""
    ^encoder\.down_blocks\.(\d)\.resnets\.(\d) -> encoder.downsamples.\1.downsamples.\2
    ^encoder\.down_blocks\.(\d)\.downsampler -> encoder.downsamples.\1.downsamples.2
    ^decoder\.up_blocks\.(\d)\.resnets\.(\d) -> decoder.upsamples.\1.upsamples.\2
    ^decoder\.up_blocks\.(\d)\.upsampler -> decoder.upsamples.\1.upsamples.3
""") + WAN_VAE
HALVES = r"""
    ^decoder\.mid_block -> decoder.up_blocks.-0
    ^decoder\.up_blocks\.0\.upsamplers\.0 -> decoder.up_blocks.-1
    ^decoder\.up_blocks\.0\. -> decoder.up_blocks.-2.
    ^decoder\.up_blocks\.1\.upsamplers\.0 -> decoder.up_blocks.-3
    ^decoder\.up_blocks\.1\. -> decoder.up_blocks.-4.
    ^decoder\.up_blocks\.2\.upsamplers\.0 -> decoder.up_blocks.-5
    ^decoder\.up_blocks\.2\. -> decoder.up_blocks.-6.
    ^decoder\.up_blocks\.3\.upsamplers\.0 -> decoder.up_blocks.-7
    ^decoder\.up_blocks\.3\. -> decoder.up_blocks.-8.
    up_blocks\.- -> up_blocks.
"""
DOWN = r"""
    ^encoder\.mid_block -> encoder.down_blocks.-8
    ^encoder\.down_blocks\.3\.downsamplers\.0 -> encoder.down_blocks.-7
    ^encoder\.down_blocks\.3\. -> encoder.down_blocks.-6.
    ^encoder\.down_blocks\.2\.downsamplers\.0 -> encoder.down_blocks.-5
    ^encoder\.down_blocks\.2\. -> encoder.down_blocks.-4.
    ^encoder\.down_blocks\.1\.downsamplers\.0 -> encoder.down_blocks.-3
    ^encoder\.down_blocks\.1\. -> encoder.down_blocks.-2.
    ^encoder\.down_blocks\.0\.downsamplers\.0 -> encoder.down_blocks.-1
    ^encoder\.down_blocks\.0\. -> encoder.down_blocks.-0.
    down_blocks\.- -> down_blocks.
"""
FIRST = r"""
    ^decoder\.mid_block -> decoder.up_blocks.-0
    ^decoder\.up_blocks\.0\. -> decoder.up_blocks.-1.
    ^decoder\.up_blocks\.1\.upsamplers\.0 -> decoder.up_blocks.-2
    ^decoder\.up_blocks\.1\. -> decoder.up_blocks.-3.
    ^decoder\.up_blocks\.2\.conv_in -> decoder.up_blocks.-4
    ^decoder\.up_blocks\.2\.upsamplers\.0 -> decoder.up_blocks.-5
    ^decoder\.up_blocks\.2\. -> decoder.up_blocks.-6.
    ^decoder\.up_blocks\.3\.conv_in -> decoder.up_blocks.-7
    ^decoder\.up_blocks\.3\.upsamplers\.0 -> decoder.up_blocks.-8
    ^decoder\.up_blocks\.3\. -> decoder.up_blocks.-9.
    up_blocks\.- -> up_blocks.
"""
FIRST_DOWN = r"""
    ^encoder\.mid_block -> encoder.down_blocks.-9
    ^encoder\.down_blocks\.3\. -> encoder.down_blocks.-8.
    ^encoder\.down_blocks\.2\.downsamplers\.0 -> encoder.down_blocks.-7
    ^encoder\.down_blocks\.2\. -> encoder.down_blocks.-6.
    ^encoder\.down_blocks\.1\.conv_out -> encoder.down_blocks.-5
    ^encoder\.down_blocks\.1\.downsamplers\.0 -> encoder.down_blocks.-4
    ^encoder\.down_blocks\.1\. -> encoder.down_blocks.-3.
    ^encoder\.down_blocks\.0\.conv_out -> encoder.down_blocks.-2
    ^encoder\.down_blocks\.0\.downsamplers\.0 -> encoder.down_blocks.-1
    ^encoder\.down_blocks\.0\. -> encoder.down_blocks.-0.
    down_blocks\.- -> down_blocks.
"""
COMMON = r"""
    ^decoder\.time_embedder -> decoder.last_time_embedder
    ^decoder\.scale_shift_table -> decoder.last_scale_shift_table
    ^latents_mean -> per_channel_statistics.mean-of-means
    ^latents_std -> per_channel_statistics.std-of-means
    \.conv_shortcut\.conv\. -> .conv_shortcut.
    \.norm3\. -> .norm3.norm.
    \.resnets\. -> .res_blocks.
    ^ -> vae.
"""
LTX_VAE = {"0.9.0": pairs(FIRST + FIRST_DOWN + COMMON), "0.9.1": pairs(HALVES + FIRST_DOWN + COMMON),
           "0.9.5": pairs(HALVES + DOWN + COMMON), "": pairs(HALVES + DOWN + COMMON)}
DC_AE = pairs(r"""
    ^encoder\.down_blocks -> encoder.stages
    ^decoder\.up_blocks -> decoder.stages
    ^encoder\.conv_in -> encoder.project_in.conv
    ^encoder\.conv_out -> encoder.project_out.0.conv
    ^decoder\.conv_in -> decoder.project_in.conv
    ^decoder\.norm_out -> decoder.project_out.0
    ^decoder\.conv_out -> decoder.project_out.2.conv
    (stages\.\d+)\.(\d+)\.attn\.to_qkv_multiscale\.0\.proj_in -> \1.op_list.\2.context_module.main.aggreg.0.0
    (stages\.\d+)\.(\d+)\.attn\.to_qkv_multiscale\.0\.proj_out -> \1.op_list.\2.context_module.main.aggreg.0.1
    (stages\.\d+)\.(\d+)\.attn\.to_q\. -> \1.op_list.\2.context_module.main.qkv.conv#0.
    (stages\.\d+)\.(\d+)\.attn\.to_k\. -> \1.op_list.\2.context_module.main.qkv.conv#1.
    (stages\.\d+)\.(\d+)\.attn\.to_v\. -> \1.op_list.\2.context_module.main.qkv.conv#2.
    (stages\.\d+)\.(\d+)\.attn\.to_out\. -> \1.op_list.\2.context_module.main.proj.conv.
    (stages\.\d+)\.(\d+)\.attn\.norm_out\. -> \1.op_list.\2.context_module.main.proj.norm.
    (stages\.\d+)\.(\d+)\.conv_out\.conv_inverted -> \1.op_list.\2.local_module.main.inverted_conv.conv
    (stages\.\d+)\.(\d+)\.conv_out\.conv_depth -> \1.op_list.\2.local_module.main.depth_conv.conv
    (stages\.\d+)\.(\d+)\.conv_out\.conv_point -> \1.op_list.\2.local_module.main.point_conv.conv
    (stages\.\d+)\.(\d+)\.conv_out\.norm\. -> \1.op_list.\2.local_module.main.point_conv.norm.
    (stages\.\d+)\.(\d+)\.conv1\. -> \1.op_list.\2.main.conv1.conv.
    (stages\.\d+)\.(\d+)\.conv2\. -> \1.op_list.\2.main.conv2.conv.
    (stages\.\d+)\.(\d+)\.norm\. -> \1.op_list.\2.main.conv2.norm.
    (stages\.\d+)\.(\d+)\.conv\. -> \1.op_list.\2.main.conv.conv.
""")
MOTION = pairs(r"""
    (motion_modules\.\d)\. -> \1.temporal_transformer.
    \.pos_embed\.pe -> .attention_blocks.0.pos_encoder.pe
    \.norm1\. -> .norms.0.
    \.norm2\. -> .norms.1.
    \.norm3\. -> .ff_norm.
    \.attn1\. -> .attention_blocks.0.
    \.attn2\. -> .attention_blocks.1.
""")

# What a table is for: the library's class; its table, or one a variant; its converter, where the library has one.
FILES = {
    "FluxTransformer2DModel": (FLUX, library.convert_flux_transformer_checkpoint_to_diffusers),
    "ChromaTransformer2DModel": (FLUX, library.convert_chroma_transformer_checkpoint_to_diffusers),
    "LongCatImageTransformer2DModel": (FLUX, None),
    "Flux2Transformer2DModel": (FLUX2, library.convert_flux2_transformer_checkpoint_to_diffusers),
    "Flux3Transformer2DModel": (FLUX3, library.convert_flux3_transformer_checkpoint_to_diffusers),
    "SD3Transformer2DModel": (SD3, library.convert_sd3_transformer_checkpoint_to_diffusers),
    "ZImageTransformer2DModel": (Z_IMAGE, library.convert_z_image_transformer_checkpoint_to_diffusers),
    "Lumina2Transformer2DModel": (LUMINA2, library.convert_lumina2_to_diffusers),
    "QwenImage21Transformer2DModel": (QWEN21, library.convert_qwen_image21_transformer_checkpoint_to_diffusers),
    "Krea2Transformer2DModel": (KREA2, library.convert_krea2_transformer_checkpoint_to_diffusers),
    "PixArtTransformer2DModel": (PIXART, None),
    "SanaTransformer2DModel": (SANA, library.convert_sana_transformer_to_diffusers),
    "AuraFlowTransformer2DModel": (AURA, library.convert_auraflow_transformer_checkpoint_to_diffusers),
    "WanTransformer3DModel": (WAN, library.convert_wan_transformer_to_diffusers),
    "WanVACETransformer3DModel": (WAN, library.convert_wan_transformer_to_diffusers),
    "LTXVideoTransformer3DModel": (LTX, library.convert_ltx_transformer_checkpoint_to_diffusers),
    "LTX2VideoTransformer3DModel": (LTX2, library.convert_ltx2_transformer_to_diffusers),
    "HunyuanVideoTransformer3DModel": (HUNYUAN, library.convert_hunyuan_video_transformer_to_diffusers),
    "MochiTransformer3DModel": (MOCHI, library.convert_mochi_transformer_checkpoint_to_diffusers),
    "CosmosTransformer3DModel": (COSMOS, library.convert_cosmos_transformer_checkpoint_to_diffusers),
    "MiniMaxH3Transformer3DModel": (H3, library.convert_minimax_h3_transformer_checkpoint_to_diffusers),
    "AutoencoderKL": (KL, library.convert_ldm_vae_checkpoint),
    "AutoencoderKLFlux2": (KL, None),
    "AutoencoderKLWan": ({"16 channels": WAN_VAE, "48 channels": WAN_VAE_DEEP}, library.convert_wan_vae_to_diffusers),
    "AutoencoderKLQwenImage": (WAN_VAE, library.convert_wan_vae_to_diffusers),
    "AutoencoderKLLTXVideo": (LTX_VAE, library.convert_ltx_vae_checkpoint_to_diffusers),
    "AutoencoderKLLTX2Video": (LTX_VAE, library.convert_ltx2_vae_to_diffusers),
    "AutoencoderDC": (DC_AE, library.convert_autoencoder_dc_checkpoint_to_diffusers),
    "MotionAdapter": (MOTION, library.convert_animatediff_checkpoint_to_diffusers),
}
# What the makers' files have and diffusers leaves out.
MORE = {
    "SanaTransformer2DModel": {"pos_embed": (1, 1024, 2240), "y_embedder.y_embedding": (300, 2304)},
    "PixArtTransformer2DModel": {"pos_embed": (1, 4096, 1152), "y_embedder.y_embedding": (300, 4096)},
    "Lumina2Transformer2DModel": {"norm_final.weight": (2304,)},
    "ZImageTransformer2DModel": {"norm_final.weight": (3840,)},
}
# Of these the converter knows less than it should.
UNKNOWN = [("WanTransformer3DModel", "2.1 FLF2V"), ("AutoencoderKLWan", "48 channels")]
# Matrices that one of the two libraries stores as another form of the same numbers.
RESHAPED = {
    "AutoencoderKL": (r"\.attn_1\.(q|k|v|proj_out)\.weight", lambda shape: (*shape, 1, 1)),
    "AutoencoderKLFlux2": (r"\.attn_1\.(q|k|v|proj_out)\.weight", lambda shape: (*shape, 1, 1)),
    "AutoencoderDC": (r"\.(qkv|proj)\.conv\.weight", lambda shape: (*shape, 1, 1)),
    "Krea2Transformer2DModel": (r"^blocks\.\d+\.mod\.lin", lambda shape: (math.prod(shape),)),
}


def renamed(found, table):
    """Names and shapes under the makers' names, fused where they fused."""
    fused = {}
    for name, shape in found.items():
        for expression, replacement in table:
            name = re.sub(expression, replacement, name)
        part = re.search(r"#(\d)", name)
        whole = re.sub(r"#\d", "", name)
        fused.setdefault(whole, {})[int(part[1]) if part else 0] = shape
    joined = {}
    for name, parts in fused.items():
        shapes = [parts[at] for at in range(len(parts))]
        joined[name] = (sum(shape[0] for shape in shapes), *shapes[0][1:]) if len(shapes) > 1 else shapes[0]
    return joined


def makers(kind, variant, sizes, found):
    """The same network as its makers published it, checked with the library's converter; `None` if it has no table."""
    if kind not in FILES:
        return None
    table, convert = FILES[kind]
    if isinstance(table, dict):
        table = table[variant]
    own = renamed(found, table)
    if kind in RESHAPED:
        where, form = RESHAPED[kind]
        own = {name: form(shape) if re.search(where, name) else shape for name, shape in own.items()}
    own |= MORE.get(kind, {})
    if convert is not None and (kind, variant) not in UNKNOWN:
        checkpoint = {name: torch.empty(shape, device="meta") for name, shape in own.items()}
        arguments = {"config": sizes} if "config" in signature(convert).parameters else {}
        back = convert(checkpoint, **arguments)
        back = {name: tuple(tensor.shape) for name, tensor in back.items() if tensor is not None}
        wanted = {name: shape for name, shape in found.items() if not (kind == "MotionAdapter" and "pos_embed" in name)}
        back.pop("norm_final.weight", None)
        if back != wanted:
            lost = [f"{name} {shape}" for name, shape in wanted.items() if back.get(name) != shape][:6]
            new = [f"{name} {shape}" for name, shape in back.items() if wanted.get(name) != shape][:6]
            raise SystemExit(f"{kind} {variant}: the converter does not lead back\n  {lost}\n  {new}")
    return own
