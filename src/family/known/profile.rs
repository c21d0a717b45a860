//! What is known of each family beyond its shapes: the parts it needs, its size rules, its defaults, its licence.
//!
//! Shapes win over this table, and a folder's configs win over both. What of it was compared with anything is in
//! [`super::CHECKED`]; all the rest is shown as not checked.
//!
//! # Source
//! `models.md` 1.2, 1.3, 1.5, 3.5.

use serde::Serialize;

/// What the makers allow, in classes that are shown before anything is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Licence {
    /// Apache or MIT.
    Permissive,
    /// `OpenRAIL`: commerce allowed, some uses not.
    Rail,
    /// Free below a yearly revenue or a number of seats.
    RevenueCapped,
    /// Not everywhere.
    RegionLimited,
    /// Not for commerce.
    NonCommercial,
    /// Several, by variant.
    Mixed,
    /// Nobody has said.
    Unknown,
}

/// How guidance reaches the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Guidance {
    /// Asked twice, with and without the prompt.
    Classifier,
    /// The network hears a number.
    Embedded,
    /// Asked twice, and brought back to the deviation of the first answer.
    TrueClassifier,
    /// None.
    Without,
}

/// A family's facts.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Profile {
    /// The family.
    pub family: &'static str,
    /// Text encoders that a prompt needs, by the names of their rules.
    pub encoders: &'static [&'static str],
    /// The family of its autoencoder; empty if it works on pixels.
    pub codec: &'static str,
    /// Sides are multiples of it.
    pub multiple: usize,
    /// A clip has `every * k + 1` frames; 0 for pictures.
    pub every: usize,
    /// Frames and frames a second when none are asked for; 0 for pictures.
    pub frames: [usize; 2],
    /// Steps when none are asked for.
    pub steps: usize,
    /// Guidance when none is asked for.
    pub guidance: f64,
    /// How it is given.
    pub guided: Guidance,
    /// Whether half precision of five exponent bits overflows.
    pub half_unsafe: bool,
    /// What the makers allow.
    pub licence: Licence,
    /// Whether the makers' repositories ask for an agreement.
    pub gated: bool,
    /// Where the makers publish it.
    pub source: &'static str,
}

use Guidance::{Classifier, Embedded, TrueClassifier, Without};
use Licence::{Mixed, NonCommercial, Permissive, Rail, RegionLimited, RevenueCapped, Unknown};

const NONE: Profile = Profile {
    family: "",
    encoders: &[],
    codec: "",
    multiple: 8,
    every: 0,
    frames: [0, 0],
    steps: 0,
    guidance: 0.0,
    guided: Classifier,
    half_unsafe: false,
    licence: Unknown,
    gated: false,
    source: "",
};

const fn picture(family: &'static str, encoders: &'static [&'static str], codec: &'static str) -> Profile {
    Profile { family, encoders, codec, multiple: 16, ..NONE }
}

const fn clip(family: &'static str, encoders: &'static [&'static str], codec: &'static str) -> Profile {
    Profile { family, encoders, codec, multiple: 16, every: 4, ..NONE }
}

impl Profile {
    const fn walk(self, steps: usize, guidance: f64, guided: Guidance) -> Self {
        Self { steps, guidance, guided, ..self }
    }
    const fn size(self, multiple: usize) -> Self {
        Self { multiple, ..self }
    }
    const fn moves(self, every: usize, frames: usize, fps: usize) -> Self {
        Self { every, frames: [frames, fps], ..self }
    }
    const fn from(self, source: &'static str, licence: Licence) -> Self {
        Self { licence, source, ..self }
    }
    const fn gated(self) -> Self {
        Self { gated: true, ..self }
    }
    const fn overflows(self) -> Self {
        Self { half_unsafe: true, ..self }
    }
}

/// What is known of a family, or of this one of it where that differs.
pub fn profile(family: &str, variant: &str) -> Option<&'static Profile> {
    let own = format!("{family}/{variant}");
    let named = |name: &str| PROFILES.iter().find(|profile| profile.family == name);
    named(&own).or_else(|| named(family))
}

/// Every family that draws.
#[rustfmt::skip]
pub static PROFILES: &[Profile] = &[
    picture("stable-diffusion", &["clip"], "sd-vae").size(8).walk(50, 7.5, Classifier).from("stable-diffusion-v1-5/stable-diffusion-v1-5", Rail),
    picture("stable-diffusion-xl", &["CLIP-L", "OpenCLIP-bigG"], "sd-vae").size(8).walk(30, 5.0, Classifier).from("stabilityai/stable-diffusion-xl-base-1.0", Rail).overflows(),
    picture("kolors", &["ChatGLM3"], "sd-vae").size(8),
    picture("zero123", &["clip-vision"], "sd-vae").size(8).from("stabilityai/stable-zero123", NonCommercial),
    picture("mvdream", &["OpenCLIP-H"], "sd-vae").size(8).from("bytedance/MVDream", Rail),
    picture("lotus", &[], "sd-vae").size(8).from("", Permissive),
    clip("stable-video-diffusion", &["clip-vision"], "svd-vae").size(64).moves(1, 25, 7).walk(25, 3.0, Classifier).from("stabilityai/stable-video-diffusion-img2vid-xt", RevenueCapped).gated(),
    clip("stable-video-3d", &["clip-vision"], "svd-vae").size(64).moves(1, 21, 7).walk(50, 2.5, Classifier).from("stabilityai/sv3d", NonCommercial).gated(),
    picture("sd3", &["CLIP-L", "OpenCLIP-bigG", "t5"], "flux-vae").walk(28, 7.0, Classifier).from("stabilityai/stable-diffusion-3.5-large", RevenueCapped).gated(),
    picture("flux", &["CLIP-L", "t5"], "flux-vae").walk(28, 3.5, Embedded).from("black-forest-labs/FLUX.1-dev", NonCommercial).gated(),
    picture("chroma", &["t5"], "flux-vae").walk(40, 4.0, Classifier).from("lodestones/Chroma1-HD", Permissive),
    picture("longcat", &["qwen2.5-vl"], "flux-vae"),
    picture("ovis-image", &["qwen3"], "flux-vae"),
    picture("flux2", &["qwen3"], "flux2-vae").walk(4, 1.0, Classifier).from("black-forest-labs/FLUX.2-klein-4B", Mixed),
    picture("flux3", &["qwen3-vl"], "flux3-vae").walk(50, 4.0, Classifier).from("", RevenueCapped),
    picture("lumina2", &["gemma2"], "flux-vae").walk(30, 4.0, Classifier).from("Alpha-VLLM/Lumina-Image-2.0", Permissive).overflows(),
    picture("z-image", &["qwen3"], "flux-vae").walk(9, 0.0, Without).from("Tongyi-MAI/Z-Image-Turbo", Permissive).overflows(),
    picture("qwen-image", &["qwen2.5-vl"], "wan-vae").walk(50, 4.0, TrueClassifier).from("Qwen/Qwen-Image", Permissive).overflows(),
    picture("qwen-image-2.1", &["qwen3-vl"], "qwen-2.1-vae").walk(40, 1.0, Classifier).from("", NonCommercial),
    picture("mage-flow", &["qwen3-vl"], "").from("", Unknown),
    picture("krea2", &["qwen3-vl"], "wan-vae").walk(28, 4.5, Classifier).from("", RevenueCapped),
    picture("ideogram4", &["qwen3-vl"], "flux2-vae").walk(48, 7.0, Classifier).from("", NonCommercial).gated(),
    picture("ernie-image", &["mistral"], "flux2-vae").from("", Unknown),
    picture("anima", &["qwen3"], "wan-vae").walk(30, 4.0, Classifier).from("", NonCommercial),
    picture("hidream", &["CLIP-L", "OpenCLIP-bigG", "t5", "llama"], "flux-vae").walk(50, 5.0, Classifier).from("HiDream-ai/HiDream-I1-Full", Permissive).overflows(),
    picture("lens", &["gpt-oss"], "flux2-vae").overflows(),
    picture("boogu", &["qwen3-vl"], "flux-vae"),
    picture("omnigen2", &["qwen2.5-vl"], "flux-vae"),
    picture("pixart", &["t5"], "sd-vae").size(8).walk(20, 4.5, Classifier).from("PixArt-alpha/PixArt-Sigma-XL-2-1024-MS", Rail),
    picture("sana", &["gemma2"], "dc-ae").size(32).walk(20, 4.5, Classifier).from("Efficient-Large-Model/Sana_1600M_1024px_diffusers", NonCommercial),
    picture("auraflow", &["t5"], "sd-vae"),
    picture("hunyuan-dit", &["clip", "t5"], "sd-vae"),
    picture("hunyuan-image", &["qwen2.5-vl"], "hunyuan-image-vae").size(32),
    clip("wan", &["umt5"], "wan-vae").moves(4, 81, 16).walk(50, 5.0, Classifier).from("Wan-AI/Wan2.1-T2V-1.3B-Diffusers", Permissive),
    clip("ltx", &["t5"], "ltx-vae").size(32).moves(8, 161, 25).walk(50, 3.0, Classifier).from("Lightricks/LTX-Video", RevenueCapped).overflows(),
    clip("ltx2", &["gemma3"], "ltx-vae").size(32).moves(8, 121, 24).walk(40, 4.0, Classifier).from("Lightricks/LTX-2", RevenueCapped).overflows(),
    clip("hunyuan-video", &["llama", "clip"], "hunyuan-video-vae").moves(4, 129, 24).walk(50, 6.0, Embedded).from("tencent/HunyuanVideo", RegionLimited),
    clip("cogvideox", &["t5"], "cogvideox-vae").moves(8, 49, 8).walk(50, 6.0, Classifier).from("THUDM/CogVideoX-2b", Mixed),
    clip("cosmos-predict2", &["t5"], "wan-vae"),
    clip("kandinsky5", &["qwen2.5-vl", "clip"], "hunyuan-video-vae"),
    clip("mochi", &["t5"], "mochi-vae").overflows(),
    clip("minimax-h3", &["qwen3-vl"], "h3-vae").from("", RevenueCapped),
    // Those of a family that differ from it: `family/variant`.
    picture("stable-diffusion-xl/refiner", &["OpenCLIP-bigG"], "sd-vae").size(8).walk(30, 5.0, Classifier).from("stabilityai/stable-diffusion-xl-refiner-1.0", Rail).overflows(),
    picture("stable-diffusion/1 instruct-pix2pix", &["clip"], "sd-vae").size(8).walk(100, 7.5, Classifier).from("timbrooks/instruct-pix2pix", Rail),
    picture("flux/schnell", &["CLIP-L", "t5"], "flux-vae").walk(4, 0.0, Without).from("black-forest-labs/FLUX.1-schnell", Permissive).gated(),
    picture("flux/Fill", &["CLIP-L", "t5"], "flux-vae").walk(50, 30.0, Embedded).from("black-forest-labs/FLUX.1-Fill-dev", NonCommercial).gated().overflows(),
    picture("flux/Depth or Canny", &["CLIP-L", "t5"], "flux-vae").walk(50, 10.0, Embedded).from("black-forest-labs/FLUX.1-Depth-dev", NonCommercial).gated(),
    picture("flux2/klein 4B", &["Qwen3-4B"], "flux2-vae").walk(4, 1.0, Classifier).from("black-forest-labs/FLUX.2-klein-4B", Permissive),
    picture("flux2/klein 9B", &["Qwen3-8B"], "flux2-vae").walk(4, 1.0, Classifier).from("black-forest-labs/FLUX.2-klein-9B", NonCommercial).gated(),
    picture("flux2/dev", &["mistral"], "flux2-vae").walk(50, 4.0, Embedded).from("black-forest-labs/FLUX.2-dev", NonCommercial).gated(),
    clip("wan/2.1 I2V", &["umt5", "clip-vision"], "wan-vae").moves(4, 81, 16).walk(50, 5.0, Classifier).from("Wan-AI/Wan2.1-I2V-14B-480P-Diffusers", Permissive),
    clip("wan/2.2 TI2V 5B", &["umt5"], "wan-vae").size(32).moves(4, 121, 24).walk(50, 5.0, Classifier).from("Wan-AI/Wan2.2-TI2V-5B-Diffusers", Permissive),
    clip("wan/2.2 A14B", &["umt5"], "wan-vae").moves(4, 81, 16).walk(40, 4.0, Classifier).from("Wan-AI/Wan2.2-T2V-A14B-Diffusers", Permissive),
];
