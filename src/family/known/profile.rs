//! What is known of each family beyond its shapes: the parts it needs, its size rules, its defaults.
//!
//! Shapes win over this table, and a folder's configs win over both. What of it was compared with anything is in
//! [`super::CHECKED`]; all the rest is shown as not checked. Where a model is published and what its makers allow is
//! data: `models/catalog`.
//!
//! # Source
//! `models.md` 1.2, 1.3, 1.5, 3.5.

use serde::Serialize;

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
}

use Guidance::{Classifier, Embedded, TrueClassifier, Without};

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
    picture("stable-diffusion", &["clip"], "sd-vae").size(8).walk(50, 7.5, Classifier),
    picture("stable-diffusion-xl", &["CLIP-L", "OpenCLIP-bigG"], "sd-vae").size(8).walk(30, 5.0, Classifier).overflows(),
    picture("kolors", &["ChatGLM3"], "sd-vae").size(8),
    picture("zero123", &["clip-vision"], "sd-vae").size(8),
    picture("mvdream", &["OpenCLIP-H"], "sd-vae").size(8),
    picture("lotus", &[], "sd-vae").size(8),
    clip("stable-video-diffusion", &["clip-vision"], "svd-vae").size(64).moves(1, 25, 7).walk(25, 3.0, Classifier),
    clip("stable-video-3d", &["clip-vision"], "svd-vae").size(64).moves(1, 21, 7).walk(50, 2.5, Classifier),
    picture("sd3", &["CLIP-L", "OpenCLIP-bigG", "t5"], "flux-vae").walk(28, 7.0, Classifier),
    picture("flux", &["CLIP-L", "t5"], "flux-vae").walk(28, 3.5, Embedded),
    picture("chroma", &["t5"], "flux-vae").walk(40, 4.0, Classifier),
    picture("longcat", &["qwen2.5-vl"], "flux-vae"),
    picture("ovis-image", &["qwen3"], "flux-vae"),
    picture("flux2", &["qwen3"], "flux2-vae").walk(4, 1.0, Classifier),
    picture("flux3", &["qwen3-vl"], "flux3-vae").walk(50, 4.0, Classifier),
    picture("lumina2", &["gemma2"], "flux-vae").walk(30, 4.0, Classifier).overflows(),
    picture("z-image", &["qwen3"], "flux-vae").walk(9, 0.0, Without).overflows(),
    picture("qwen-image", &["qwen2.5-vl"], "wan-vae").walk(50, 4.0, TrueClassifier).overflows(),
    picture("qwen-image-2.1", &["qwen3-vl"], "qwen-2.1-vae").walk(40, 1.0, Classifier),
    picture("mage-flow", &["qwen3-vl"], ""),
    picture("krea2", &["qwen3-vl"], "wan-vae").walk(28, 4.5, Classifier),
    picture("ideogram4", &["qwen3-vl"], "flux2-vae").walk(48, 7.0, Classifier),
    picture("ernie-image", &["mistral"], "flux2-vae"),
    picture("anima", &["qwen3"], "wan-vae").walk(30, 4.0, Classifier),
    picture("hidream", &["CLIP-L", "OpenCLIP-bigG", "t5", "llama"], "flux-vae").walk(50, 5.0, Classifier).overflows(),
    picture("lens", &["gpt-oss"], "flux2-vae").overflows(),
    picture("boogu", &["qwen3-vl"], "flux-vae"),
    picture("omnigen2", &["qwen2.5-vl"], "flux-vae"),
    picture("pixart", &["t5"], "sd-vae").size(8).walk(20, 4.5, Classifier),
    picture("sana", &["gemma2"], "dc-ae").size(32).walk(20, 4.5, Classifier),
    picture("auraflow", &["t5"], "sd-vae"),
    picture("hunyuan-dit", &["clip", "t5"], "sd-vae"),
    picture("hunyuan-image", &["qwen2.5-vl"], "hunyuan-image-vae").size(32),
    clip("wan", &["umt5"], "wan-vae").moves(4, 81, 16).walk(50, 5.0, Classifier),
    clip("ltx", &["t5"], "ltx-vae").size(32).moves(8, 161, 25).walk(50, 3.0, Classifier).overflows(),
    clip("ltx2", &["gemma3"], "ltx-vae").size(32).moves(8, 121, 24).walk(40, 4.0, Classifier).overflows(),
    clip("hunyuan-video", &["llama", "clip"], "hunyuan-video-vae").moves(4, 129, 24).walk(50, 6.0, Embedded),
    clip("cogvideox", &["t5"], "cogvideox-vae").moves(8, 49, 8).walk(50, 6.0, Classifier),
    clip("cosmos-predict2", &["t5"], "wan-vae"),
    clip("kandinsky5", &["qwen2.5-vl", "clip"], "hunyuan-video-vae"),
    clip("mochi", &["t5"], "mochi-vae").overflows(),
    clip("minimax-h3", &["qwen3-vl"], "h3-vae"),
    // Those of a family that differ from it: `family/variant`.
    picture("stable-diffusion-xl/refiner", &["OpenCLIP-bigG"], "sd-vae").size(8).walk(30, 5.0, Classifier).overflows(),
    picture("stable-diffusion/1 instruct-pix2pix", &["clip"], "sd-vae").size(8).walk(100, 7.5, Classifier),
    picture("flux/schnell", &["CLIP-L", "t5"], "flux-vae").walk(4, 0.0, Without),
    picture("flux/Fill", &["CLIP-L", "t5"], "flux-vae").walk(50, 30.0, Embedded).overflows(),
    picture("flux/Depth or Canny", &["CLIP-L", "t5"], "flux-vae").walk(50, 10.0, Embedded),
    picture("flux2/klein 4B", &["Qwen3-4B"], "flux2-vae").walk(4, 1.0, Classifier),
    picture("flux2/klein 9B", &["Qwen3-8B"], "flux2-vae").walk(4, 1.0, Classifier),
    picture("flux2/dev", &["mistral"], "flux2-vae").walk(50, 4.0, Embedded),
    clip("wan/2.1 I2V", &["umt5", "clip-vision"], "wan-vae").moves(4, 81, 16).walk(50, 5.0, Classifier),
    clip("wan/2.2 TI2V 5B", &["umt5"], "wan-vae").size(32).moves(4, 121, 24).walk(50, 5.0, Classifier),
    clip("wan/2.2 A14B", &["umt5"], "wan-vae").moves(4, 81, 16).walk(40, 4.0, Classifier),
];
