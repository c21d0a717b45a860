//! The numbers of a picture's size that some networks hear.

use super::request;
use crate::error::{Error, Result};
use crate::family::{Card, Sizes};

/// What is heard with the prompt and without it; `None` where nothing is.
pub(super) type Heard = Option<[Vec<f64>; 2]>;

/// Settles the numbers, height before width as the network counts.
///
/// # Errors
/// `invalid_argument` for a number that the network does not hear.
///
/// # Source
/// Podell et al. 2023 (arXiv 2307.01952) 2.2; order and defaults of diffusers' `StableDiffusionXLPipeline` and
/// `StableDiffusionXLImg2ImgPipeline`.
pub(super) fn settle(asked: &request::Sizes, card: &Card, [width, height]: [usize; 2]) -> Result<Heard> {
    let scores = [asked.score, asked.negative_score];
    let targets = [asked.target, asked.negative_target];
    let refused = match card.sizes {
        Sizes::None if *asked != request::Sizes::default() => Some("this model hears no sizes"),
        Sizes::Target if scores.iter().any(Option::is_some) => {
            Some("this model hears sizes, and no score: only a refiner does")
        }
        Sizes::Score if targets.iter().any(Option::is_some) => {
            Some("this model hears a score in place of the size wanted")
        }
        _ => None,
    };
    if let Some(message) = refused {
        return Err(Error::argument("sizes", message));
    }
    for score in scores.into_iter().flatten() {
        if !(0.0..=10.0).contains(&score) {
            return Err(Error::argument("sizes", format!("the score {score} is not from 0 to 10")));
        }
    }
    let numbers = |pair: [usize; 2]| [pair[1] as f64, pair[0] as f64];
    let own = [width, height];
    let with = [
        numbers(asked.original.unwrap_or(own)),
        numbers(asked.cut.unwrap_or_default()),
        numbers(asked.target.unwrap_or(own)),
    ];
    // Diffusers takes the numbers without the prompt from those with it unless both sizes are said.
    let said =
        card.sizes == Sizes::Score || (asked.negative_original.is_some() && asked.negative_target.is_some());
    let pair = |negative: Option<[usize; 2]>, positive: [f64; 2]| negative.map_or(positive, numbers);
    let without = if said {
        [
            pair(asked.negative_original, with[0]),
            numbers(asked.negative_cut.unwrap_or_default()),
            pair(asked.negative_target, with[2]),
        ]
    } else if asked.negative_original.or(asked.negative_cut).or(asked.negative_target).is_some() {
        let message = "sizes without the prompt are heard if both its original and its target size are said";
        return Err(Error::argument("sizes", message));
    } else {
        with
    };
    Ok(match card.sizes {
        Sizes::None => None,
        Sizes::Target => Some([with.concat(), without.concat()]),
        Sizes::Score => {
            let row = |pairs: [[f64; 2]; 3], score| [pairs[0].as_slice(), &pairs[1], &[score]].concat();
            let scores = [asked.score.unwrap_or(6.0), asked.negative_score.unwrap_or(2.5)];
            Some([row(with, scores[0]), row(without, scores[1])])
        }
    })
}
