//! What a model weighs in memory, phase by phase, from its headers alone.

use candle_core::DType;
use serde::Serialize;

use crate::family::known::{Finding, Part, Role};
use crate::nn::fastest_dtype;

/// Parameters of a network from which on its precision decides the time; smaller ones stay exact.
const LARGE: u64 = 100_000_000;

/// How the processor keeps weights where nobody says: large networks in what it computes with fastest, others in f32.
pub fn kept_on_cpu(network_parameters: u64) -> DType {
    if network_parameters >= LARGE { fastest_dtype() } else { DType::F32 }
}

/// Bytes of weights in each phase. The phases follow one another and leave nothing behind, so the largest of them is
/// what a picture needs, besides the activations, which depend on its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// The type that weights are kept in on the processor where nobody says and no file has blocks of small integers.
    pub dtype: &'static str,
    /// All encoders of words and pictures.
    pub text_encoder: u64,
    /// The denoiser; of several experts, one at a time.
    pub denoiser: u64,
    /// The autoencoder.
    pub decoder: u64,
    /// The largest phase.
    pub peak: u64,
}

/// What the parts that are here weigh when they are loaded; `None` where no denoiser is among them.
pub fn memory(finding: &Finding) -> Option<Memory> {
    let of = |role: Role| finding.parts.iter().filter(move |part| part.role == role);
    let largest = of(Role::Denoiser).map(|part| part.parameters).max()?;
    let dtype = kept_on_cpu(largest);
    let bytes = |part: &Part| {
        let [numbers, bytes] = part.in_blocks;
        let plain = part.parameters.saturating_sub(numbers);
        plain.saturating_mul(dtype.size_in_bytes() as u64).saturating_add(bytes)
    };
    let text_encoder = of(Role::TextEncoder).map(bytes).fold(0, u64::saturating_add);
    let denoiser = of(Role::Denoiser).map(bytes).max().unwrap_or(0);
    let decoder = of(Role::Vae).map(bytes).fold(0, u64::saturating_add);
    let peak = text_encoder.max(denoiser).max(decoder);
    Some(Memory { dtype: dtype.as_str(), text_encoder, denoiser, decoder, peak })
}
