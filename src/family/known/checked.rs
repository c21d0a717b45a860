//! Which facts of a profile were compared with a source that can be had offline, and which are remembered.
//!
//! Licences and gates stand on the makers' pages alone, so none of them counts as checked; nor do defaults that are
//! those of a distilled or later variant, which a library's code does not name.
//!
//! # Source
//! `huggingface/diffusers@v0.42.1 src/diffusers/pipelines`, the defaults of each `__call__`, Apache-2.0, as
//! `scripts/defaults.py` writes them to `tests/fixtures/defaults.json`.

use super::profile::Profile;

/// Profiles whose steps and guidance are the defaults of this pipeline, and frames where it names some.
pub static CHECKED: &[(&str, &str)] = &[
    ("stable-diffusion", "StableDiffusionPipeline"),
    ("stable-diffusion/1 instruct-pix2pix", "StableDiffusionInstructPix2PixPipeline"),
    ("stable-video-diffusion", "StableVideoDiffusionPipeline"),
    ("sd3", "StableDiffusion3Pipeline"),
    ("flux", "FluxPipeline"),
    ("flux/Fill", "FluxFillPipeline"),
    ("flux2/dev", "Flux2Pipeline"),
    ("lumina2", "Lumina2Pipeline"),
    ("qwen-image", "QwenImagePipeline"),
    ("krea2", "Krea2Pipeline"),
    ("hidream", "HiDreamImagePipeline"),
    ("pixart", "PixArtSigmaPipeline"),
    ("sana", "SanaPipeline"),
    ("wan", "WanPipeline"),
    ("wan/2.1 I2V", "WanImageToVideoPipeline"),
    ("ltx", "LTXPipeline"),
    ("hunyuan-video", "HunyuanVideoPipeline"),
    ("cogvideox", "CogVideoXPipeline"),
];

/// What a profile's facts rest on where nobody has compared them.
pub const UNCHECKED: &str = "not checked";

impl Profile {
    /// The pipeline of diffusers whose defaults these are, if they were compared.
    pub fn checked_with(&self) -> Option<&'static str> {
        CHECKED.iter().find(|(family, _)| *family == self.family).map(|(_, pipeline)| *pipeline)
    }
}
