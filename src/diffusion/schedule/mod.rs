//! From a configuration to a walk, one file per way of counting noise.

pub(crate) mod edm;
pub(crate) mod flow;
pub(crate) mod grid;
pub(crate) mod indexed;
pub(crate) mod ipndm;
pub(crate) mod scaled;
pub(crate) mod solver;

use super::lens::{Bound, Prediction};
use super::reader::Reader;
use crate::error::Result;

/// The most training steps a schedule may have: more is a broken file.
pub(crate) const MOST_TRAINING_STEPS: usize = 100_000;

/// The number of training steps.
pub(crate) fn training_steps(reader: Reader<'_>) -> Result<usize> {
    reader.whole("num_train_timesteps", 1000, 1..=MOST_TRAINING_STEPS)
}

/// What the network says, one of the given.
pub(crate) fn prediction(reader: Reader<'_>, allowed: &[Prediction]) -> Result<Prediction> {
    let word = |prediction: &Prediction| match prediction {
        Prediction::Epsilon => "epsilon",
        Prediction::Sample => "sample",
        Prediction::V => "v_prediction",
        Prediction::Velocity => "flow_prediction",
        Prediction::Edm { .. } => "edm",
    };
    let words: Vec<(&str, Prediction)> = allowed.iter().map(|p| (word(p), *p)).collect();
    reader.choice("prediction_type", &words)
}

/// Dynamic thresholding, if it is on.
pub(crate) fn thresholding(reader: Reader<'_>) -> Result<Bound> {
    let ratio = reader.number("dynamic_thresholding_ratio", 0.995, 0.0..=1.0)?;
    let most = reader.number("sample_max_value", 1.0, 1e-6..=1e6)?;
    Ok(if reader.flag("thresholding", false)? { Bound::Threshold { ratio, most } } else { Bound::None })
}

/// Clipping, if it is on.
pub(crate) fn clipping(reader: Reader<'_>, default: bool) -> Result<Bound> {
    let range = reader.number("clip_sample_range", 1.0, 1e-6..=1e6)?;
    Ok(if reader.flag("clip_sample", default)? { Bound::Clip(range) } else { Bound::None })
}
