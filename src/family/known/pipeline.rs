//! Classes in `model_index.json` and `config.json`: what diffusers calls the models it saves.
//!
//! # Source
//! `models.md` 3.1 and 3.2; class names of `huggingface/diffusers@v0.42.1`, Apache-2.0.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::contract::Evidence;
use super::super::contract::Task::{
    self, ImageToImage, ImageToVideo, MultiViewImage, TextToImage, TextToVideo,
};
use super::finding::{Claim, Confidence, Finding};

/// The configs of a folder: that of each component by name, the index under the empty name.
pub type Configs = BTreeMap<String, Value>;

/// What a class says, if the settings are so.
struct Class {
    name: &'static str,
    family: &'static str,
    variant: &'static str,
    tasks: &'static [Task],
    abilities: &'static [&'static str],
    /// Families whose networks it was trained from, so that its shapes are theirs.
    shaped: &'static [&'static str],
    /// Component, key, and the value as JSON writes it.
    when: &'static [(&'static str, &'static str, &'static str)],
}

type Setting = (&'static str, &'static str, &'static str);

const fn class(
    name: &'static str,
    family: &'static str,
    variant: &'static str,
    tasks: &'static [Task],
    when: &'static [Setting],
) -> Class {
    Class { name, family, variant, tasks, abilities: &[], shaped: &[], when }
}

impl Class {
    const fn can(self, abilities: &'static [&'static str]) -> Self {
        Self { abilities, ..self }
    }

    const fn shaped(self, shaped: &'static [&'static str]) -> Self {
        Self { shaped, ..self }
    }
}

const DRAW: &[Task] = &[TextToImage, ImageToImage];
const EDIT: &[Task] = &[ImageToImage];
const VIEWS: &[Task] = &[MultiViewImage];
const CLIPS: &[Task] = &[TextToVideo];
const MOVE: &[Task] = &[ImageToVideo];
const BOTH: &[Task] = &[TextToVideo, ImageToVideo];

#[rustfmt::skip]
static CLASSES: &[Class] = &[
    class("StableDiffusionPipeline", "stable-diffusion", "", DRAW, &[]).can(&["inpaint"]),
    class("StableDiffusionPipeline", "stable-diffusion", "1", DRAW, &[("unet", "cross_attention_dim", "768")]).can(&["inpaint"]),
    class("StableDiffusionPipeline", "stable-diffusion", "2", DRAW, &[("unet", "cross_attention_dim", "1024")]).can(&["inpaint"]),
    class("LatentConsistencyModelPipeline", "stable-diffusion", "latent consistency", DRAW, &[]),
    class("StableDiffusionInpaintPipeline", "stable-diffusion", "inpaint", EDIT, &[]).can(&["inpaint", "outpaint"]),
    class("StableDiffusionInstructPix2PixPipeline", "stable-diffusion", "1 instruct-pix2pix", EDIT, &[]).can(&["edit"]),
    class("StableDiffusionDepth2ImgPipeline", "stable-diffusion", "2 depth", EDIT, &[]).can(&["depth"]),
    class("StableDiffusionUpscalePipeline", "stable-diffusion", "x4 upscaler", &[Task::ImageUpscale], &[]).can(&["upscale"]),
    class("StableUnCLIPImg2ImgPipeline", "stable-diffusion", "2 unCLIP", EDIT, &[]).can(&["variation"]),
    class("StableUnCLIPPipeline", "stable-diffusion", "2 unCLIP", EDIT, &[]).can(&["variation"]),
    class("StableDiffusionXLPipeline", "stable-diffusion-xl", "", DRAW, &[]).can(&["inpaint"]),
    class("StableDiffusionXLImg2ImgPipeline", "stable-diffusion-xl", "", DRAW, &[]).can(&["inpaint"]),
    class("StableDiffusionXLImg2ImgPipeline", "stable-diffusion-xl", "refiner", EDIT, &[("", "requires_aesthetics_score", "true")]).can(&["refine"]),
    class("StableDiffusionXLInpaintPipeline", "stable-diffusion-xl", "inpaint", EDIT, &[]).can(&["inpaint", "outpaint"]),
    class("StableDiffusionXLInstructPix2PixPipeline", "stable-diffusion-xl", "instruct-pix2pix", EDIT, &[]).can(&["edit"]),
    class("KolorsPipeline", "kolors", "1", DRAW, &[]),
    class("StableVideoDiffusionPipeline", "stable-video-diffusion", "1", MOVE, &[]),
    class("Zero123PlusPipeline", "zero123", "plus", VIEWS, &[]).shaped(&["stable-diffusion"]),
    class("Zero1to3StableDiffusionPipeline", "zero123", "1", VIEWS, &[]).shaped(&["stable-diffusion"]),
    class("MVDreamPipeline", "mvdream", "1", VIEWS, &[]),
    class("StableDiffusion3Pipeline", "sd3", "", DRAW, &[]),
    class("StableDiffusion3Pipeline", "sd3", "3.5 large", DRAW, &[("transformer", "num_layers", "38")]),
    class("StableDiffusion3Pipeline", "sd3", "3 medium", DRAW, &[("transformer", "num_layers", "24"), ("transformer", "pos_embed_max_size", "192")]),
    class("StableDiffusion3Pipeline", "sd3", "3.5 medium", DRAW, &[("transformer", "pos_embed_max_size", "384")]),
    class("FluxPipeline", "flux", "", DRAW, &[]),
    class("FluxPipeline", "flux", "dev", DRAW, &[("transformer", "guidance_embeds", "true")]),
    class("FluxPipeline", "flux", "schnell", DRAW, &[("transformer", "guidance_embeds", "false")]),
    class("FluxKontextPipeline", "flux", "Kontext", DRAW, &[]).can(&["edit"]),
    class("FluxFillPipeline", "flux", "Fill", EDIT, &[]).can(&["inpaint", "outpaint"]),
    class("FluxControlPipeline", "flux", "Depth or Canny", EDIT, &[]).can(&["control"]),
    class("ChromaPipeline", "chroma", "", DRAW, &[]),
    class("Flux2Pipeline", "flux2", "dev", DRAW, &[]).can(&["edit", "references"]),
    class("Flux2KleinPipeline", "flux2", "klein", DRAW, &[]).can(&["edit", "references"]),
    class("Flux2KleinPipeline", "flux2", "klein 4B", DRAW, &[("transformer", "joint_attention_dim", "7680")]).can(&["edit", "references"]),
    class("Flux2KleinPipeline", "flux2", "klein 9B", DRAW, &[("transformer", "joint_attention_dim", "12288")]).can(&["edit", "references"]),
    class("Lumina2Pipeline", "lumina2", "2B", DRAW, &[]),
    class("Lumina2Text2ImgPipeline", "lumina2", "2B", DRAW, &[]),
    class("ZImagePipeline", "z-image", "", DRAW, &[]),
    class("ZImagePipeline", "z-image", "Turbo", DRAW, &[("scheduler", "shift", "3.0")]),
    class("ZImagePipeline", "z-image", "base", DRAW, &[("scheduler", "shift", "6.0")]),
    class("QwenImagePipeline", "qwen-image", "", DRAW, &[]),
    class("QwenImageEditPipeline", "qwen-image", "Edit", EDIT, &[]).can(&["edit"]),
    class("QwenImageEditPlusPipeline", "qwen-image", "Edit 2509 or later", EDIT, &[]).can(&["edit", "references"]),
    class("QwenImageLayeredPipeline", "qwen-image", "Layered", EDIT, &[]).can(&["layers"]),
    class("PixArtAlphaPipeline", "pixart", "alpha", &[TextToImage], &[]),
    class("PixArtSigmaPipeline", "pixart", "Sigma", DRAW, &[]),
    class("SanaPipeline", "sana", "", &[TextToImage], &[]),
    class("SanaSprintPipeline", "sana", "Sprint", &[TextToImage], &[]),
    class("AuraFlowPipeline", "auraflow", "", &[TextToImage], &[]),
    class("HunyuanDiTPipeline", "hunyuan-dit", "", &[TextToImage], &[]),
    class("HiDreamImagePipeline", "hidream", "I1", DRAW, &[]),
    class("OmniGen2Pipeline", "omnigen2", "", DRAW, &[]).can(&["edit", "references"]),
    class("WanPipeline", "wan", "2.1 T2V", CLIPS, &[]),
    class("WanPipeline", "wan", "2.2 A14B", CLIPS, &[("", "transformer_2", "[\"diffusers\",\"WanTransformer3DModel\"]")]),
    class("WanPipeline", "wan", "2.2 TI2V", BOTH, &[("", "expand_timesteps", "true")]),
    class("WanImageToVideoPipeline", "wan", "2.1 I2V", MOVE, &[]),
    class("WanImageToVideoPipeline", "wan", "2.2 I2V A14B", MOVE, &[("", "transformer_2", "[\"diffusers\",\"WanTransformer3DModel\"]")]),
    class("WanImageToVideoPipeline", "wan", "2.2 TI2V", BOTH, &[("", "expand_timesteps", "true")]),
    class("WanVACEPipeline", "wan", "VACE", BOTH, &[]).can(&["edit", "control"]),
    class("WanAnimatePipeline", "wan", "Animate", MOVE, &[]).can(&["animate"]),
    class("LTXPipeline", "ltx", "", BOTH, &[]),
    class("LTXImageToVideoPipeline", "ltx", "", BOTH, &[]),
    class("LTXConditionPipeline", "ltx", "", BOTH, &[]),
    class("LTX2Pipeline", "ltx2", "", BOTH, &[]).can(&["sound"]),
    class("HunyuanVideoPipeline", "hunyuan-video", "T2V", CLIPS, &[]),
    class("HunyuanVideoImageToVideoPipeline", "hunyuan-video", "I2V", MOVE, &[]),
    class("HunyuanVideo15Pipeline", "hunyuan-video", "1.5", BOTH, &[]),
    class("CogVideoXPipeline", "cogvideox", "T2V", CLIPS, &[]),
    class("CogVideoXImageToVideoPipeline", "cogvideox", "I2V", MOVE, &[]),
    class("MochiPipeline", "mochi", "", CLIPS, &[]),
    class("Cosmos2TextToImagePipeline", "cosmos-predict2", "T2I", &[TextToImage], &[]),
    class("Cosmos2VideoToWorldPipeline", "cosmos-predict2", "V2W", MOVE, &[]),
    // Components alone.
    class("FluxTransformer2DModel", "flux", "", DRAW, &[]),
    class("Flux2Transformer2DModel", "flux2", "", DRAW, &[]),
    class("SD3Transformer2DModel", "sd3", "", DRAW, &[]),
    class("ChromaTransformer2DModel", "chroma", "", DRAW, &[]),
    class("ZImageTransformer2DModel", "z-image", "", DRAW, &[]),
    class("Lumina2Transformer2DModel", "lumina2", "", DRAW, &[]),
    class("QwenImageTransformer2DModel", "qwen-image", "", DRAW, &[]),
    class("PixArtTransformer2DModel", "pixart", "", &[TextToImage], &[]),
    class("SanaTransformer2DModel", "sana", "", &[TextToImage], &[]),
    class("AuraFlowTransformer2DModel", "auraflow", "", &[TextToImage], &[]),
    class("HiDreamImageTransformer2DModel", "hidream", "", DRAW, &[]),
    class("WanTransformer3DModel", "wan", "", &[], &[]),
    class("WanTransformer3DModel", "wan", "2.1 FLF2V", MOVE, &[("", "pos_embed_seq_len", "514")]).can(&["first_last_frame"]),
    class("LTXVideoTransformer3DModel", "ltx", "", BOTH, &[]),
    class("HunyuanVideoTransformer3DModel", "hunyuan-video", "", &[], &[]),
    class("CogVideoXTransformer3DModel", "cogvideox", "", &[], &[]),
    class("UNetSpatioTemporalConditionModel", "stable-video-diffusion", "1", MOVE, &[]),
    class("MotionAdapter", "animatediff", "", &[], &[]).can(&["motion"]),
    class("ControlNetModel", "controlnet", "of a U-net", &[], &[]).can(&["control"]),
    class("ControlNetModel", "controlnet", "of SD 1", &[], &[("", "cross_attention_dim", "768")]).can(&["control"]),
    class("ControlNetModel", "controlnet", "of SDXL", &[], &[("", "addition_embed_type", "\"text_time\"")]).can(&["control"]),
    class("FluxControlNetModel", "controlnet", "of Flux", &[], &[]).can(&["control"]),
    class("AutoencoderTiny", "tiny-vae", "", &[], &[]),
    class("AutoencoderDC", "dc-ae", "", &[], &[]),
    class("AutoencoderKLWan", "wan-vae", "", &[], &[]),
    class("AutoencoderKLQwenImage", "wan-vae", "", &[], &[]),
    class("AutoencoderKLFlux2", "flux2-vae", "", &[], &[]),
    class("AutoencoderKLLTXVideo", "ltx-vae", "", &[], &[]),
    class("AutoencoderKLHunyuanVideo", "hunyuan-video-vae", "", &[], &[]),
    class("AutoencoderKLCogVideoX", "cogvideox-vae", "", &[], &[]),
    class("AutoencoderKLTemporalDecoder", "svd-vae", "", &[], &[]),
];

/// The variants of a family that classes name.
pub(super) fn variants(family: &str) -> impl Iterator<Item = &'static str> {
    CLASSES.iter().filter(move |class| class.family == family).map(|class| class.variant)
}

/// Adds what a folder's class and settings say; `false` if the class means nothing to us.
pub fn read_class(finding: &mut Finding, name: &str, configs: &Configs) -> bool {
    let holds = |(component, key, value): &Setting| {
        let found = configs.get(*component).and_then(|config| config.get(*key));
        found.map(ToString::to_string).is_some_and(|found| found == *value)
    };
    let fitting = CLASSES.iter().filter(|class| class.name == name && class.when.iter().all(holds));
    // The last of those with the most conditions.
    let Some(class) = fitting.max_by_key(|class| class.when.len()) else { return false };
    let theirs = |claim: &&Claim| class.shaped.contains(&claim.value.as_str());
    if let Some(shape) = finding.says("family").filter(theirs).map(|claim| claim.value.clone()) {
        let variant = finding.says("variant").map_or(String::new(), |claim| format!(" {}", claim.value));
        finding.notes.push(format!("its network is shaped like that of {shape}{variant}"));
        finding.claims.retain(|claim| !["family", "variant"].contains(&claim.fact));
        finding.tasks.clear();
        finding.abilities.clear();
    }
    let file = if configs.contains_key("scheduler") || configs.len() > 1 {
        "model_index.json"
    } else {
        "config.json"
    };
    let settings: Vec<String> =
        class.when.iter().map(|(part, key, value)| format!("{part} {key} {value}")).collect();
    let because = Evidence::Config(format!("{file} {name} {}", settings.join(", ")).trim_end().into());
    finding.claim(Claim::new("family", class.family, because.clone(), Confidence::Certain));
    finding.claim(Claim::new("variant", class.variant, because.clone(), Confidence::Certain));
    if !class.tasks.is_empty() {
        if !finding.tasks.is_empty() && !finding.tasks.iter().any(|task| class.tasks.contains(task)) {
            let message = format!("tasks: config says {:?}, tensors say {:?}", class.tasks, finding.tasks);
            finding.conflicts.push(message);
        }
        finding.tasks = class.tasks.to_vec();
    }
    if !class.abilities.is_empty() {
        finding.abilities = class.abilities.to_vec();
    }
    true
}
