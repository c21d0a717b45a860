//! The arguments for what SD XL is told of its training pictures.

use clap::Args;

use super::drawing::read_size;
use crate::studio::Sizes;

/// The sizes that a network hears, where it hears any.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sizes that SD XL hears")]
pub(super) struct SizesArgs {
    /// Size of the training picture; the size drawn without.
    #[arg(long, value_name = "WxH", value_parser = read_size, conflicts_with = "from")]
    original_size: Option<[usize; 2]>,
    /// Where it was cut, from the left and from the top; 0x0 without.
    #[arg(long, value_name = "LxT", value_parser = read_size, conflicts_with = "from")]
    cut: Option<[usize; 2]>,
    /// Size of the picture wanted; the size drawn without.
    #[arg(long, value_name = "WxH", value_parser = read_size, conflicts_with = "from")]
    target_size: Option<[usize; 2]>,
    /// The original size that is heard without the prompt.
    #[arg(long, value_name = "WxH", value_parser = read_size, conflicts_with = "from")]
    negative_original_size: Option<[usize; 2]>,
    /// The cut that is heard without the prompt.
    #[arg(long, value_name = "LxT", value_parser = read_size, conflicts_with = "from")]
    negative_cut: Option<[usize; 2]>,
    /// The target size that is heard without the prompt.
    #[arg(long, value_name = "WxH", value_parser = read_size, conflicts_with = "from")]
    negative_target_size: Option<[usize; 2]>,
    /// How beautiful the picture is, for a refiner. [default: 6]
    #[arg(long, value_name = "0-10", conflicts_with = "from")]
    score: Option<f64>,
    /// The score that is heard without the prompt. [default: 2.5]
    #[arg(long, value_name = "0-10", conflicts_with = "from")]
    negative_score: Option<f64>,
}

impl SizesArgs {
    /// The same in the studio's words.
    pub(super) fn sizes(&self) -> Sizes {
        Sizes {
            original: self.original_size,
            cut: self.cut,
            target: self.target_size,
            negative_original: self.negative_original_size,
            negative_cut: self.negative_cut,
            negative_target: self.negative_target_size,
            score: self.score,
            negative_score: self.negative_score,
        }
    }
}
