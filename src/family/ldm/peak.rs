//! How many numbers a network holds at once at the peak of a call, from its sizes alone.
//!
//! These functions walk as the networks do and keep the sum of what is alive: what comes back to be added, what an
//! expression still needs. Counts are of f32 numbers, which activations are on the processor.

use super::config::{Level, UnetConfig};
use crate::codec::{KlConfig, TinyConfig};

/// Bytes of a number.
const NUMBER: u64 = 4;
/// Tokens of a prompt.
const TOKENS: u64 = 77;

/// What is alive, and the most that ever was.
#[derive(Default)]
struct Tally {
    held: u64,
    most: u64,
}

impl Tally {
    /// For a while so many numbers more are alive.
    fn spike(&mut self, numbers: u64) {
        self.most = self.most.max(self.held.saturating_add(numbers));
    }
}

/// What a residual block holds beside what comes in: the norm of that and what the first filters make of it; at the end
/// the second norm, the way around where there is one, and the sum.
fn resnet(input: usize, output: usize) -> u64 {
    let around = if input == output { 0 } else { output };
    ((input + output).max(2 * output + around)) as u64
}

/// What a transformer of this width holds with what comes in: that, the tokens, a norm of them, queries, keys and values
/// twice (the second time packed), and what comes out. The gated map that follows holds as much.
fn transformer(channels: usize) -> u64 {
    9 * channels as u64
}

/// Bytes of activations of a U-net's call for `rows` pictures of `latent` height and width.
pub(super) fn unet(config: &UnetConfig, rows: usize, latent: [usize; 2]) -> u64 {
    let pixels = |level: usize| {
        let [h, w] = latent.map(|side| side.div_ceil(1 << level.min(60)) as u64);
        rows as u64 * h * w
    };
    let mut tally = Tally { held: heard(config) * rows as u64, most: 0 };
    let first = config.levels.first().map_or(0, |level| level.channels);
    let mut width = first;
    let mut skips = vec![first as u64 * pixels(0)];
    tally.held += skips[0];
    let last = config.levels.len().saturating_sub(1);
    for (i, level) in config.levels.iter().enumerate() {
        for _ in 0..level.layers {
            tally.spike(resnet(width, level.channels) * pixels(i));
            width = level.channels;
            if level.down_depth.is_some() {
                tally.spike(transformer(width) * pixels(i));
            }
            skips.push(width as u64 * pixels(i));
            tally.held += width as u64 * pixels(i);
        }
        if i < last {
            skips.push(width as u64 * pixels(i + 1));
            tally.held += width as u64 * pixels(i + 1);
        }
    }
    if config.middle_depth.is_some() {
        tally.spike((width as u64 + resnet(width, width).max(transformer(width))) * pixels(last));
    }
    for (i, level) in config.levels.iter().enumerate().rev() {
        for _ in 0..=level.layers {
            let skip = skips.pop().unwrap_or(0);
            // What came from below, and it with what the way down left.
            let joined = width as u64 * pixels(i) + skip;
            let input = joined.checked_div(pixels(i)).unwrap_or(0) as usize;
            let below = width as u64 * pixels(i) + joined;
            tally.spike(below + resnet(input, level.channels) * pixels(i));
            width = level.channels;
            if level.up_depth.is_some() {
                tally.spike(below + transformer(width) * pixels(i));
            }
            tally.held -= skip;
        }
        if let Some(finer) = i.checked_sub(1) {
            tally.spike(width as u64 * (pixels(i) + pixels(finer)));
        }
    }
    tally.most.saturating_mul(NUMBER)
}

/// Bytes that `count` control networks keep beside a call of the U-net: what they add to it, summed, and of each what it
/// saw and the keys and values of its prompts.
pub(super) fn controls(config: &UnetConfig, count: usize, rows: usize, latent: [usize; 2]) -> u64 {
    if count == 0 {
        return 0;
    }
    let pixels = |level: usize| {
        let [h, w] = latent.map(|side| side.div_ceil(1 << level.min(60)) as u64);
        h * w
    };
    let first = config.levels.first().map_or(0, |level| level.channels as u64);
    let seen = first * pixels(0);
    let last = config.levels.len().saturating_sub(1);
    let added = config.levels.iter().enumerate().map(|(i, level)| {
        let half = if i < last { pixels(i + 1) } else { pixels(i) }; // the coarsest level hands over the middle
        level.channels as u64 * (level.layers as u64 * pixels(i) + half)
    });
    let added = seen + added.sum::<u64>();
    let each = seen + heard(config) * rows as u64 / 2;
    (added * rows as u64 + each * count as u64).saturating_mul(NUMBER)
}

/// Numbers of the keys and values of one prompt that a walk keeps.
fn heard(config: &UnetConfig) -> u64 {
    let level = |level: &Level| {
        let down = level.down_depth.map_or(0, |depth| depth * level.layers);
        let up = level.up_depth.map_or(0, |depth| depth * (level.layers + 1));
        ((down + up) * level.channels) as u64
    };
    let middle = config.levels.last().map_or(0, |level| level.channels * config.middle_depth.unwrap_or(0));
    2 * TOKENS * (config.levels.iter().map(level).sum::<u64>() + middle as u64)
}

/// Bytes of activations of the decoder for one latent of this height and width; its encoder takes less.
pub(super) fn kl(config: &KlConfig, latent: [usize; 2]) -> u64 {
    let pixels = |level: usize| latent.iter().map(|&side| (side as u64) << level.min(30)).product::<u64>();
    let widths: Vec<usize> = config.channels.iter().rev().copied().collect();
    let mut tally = Tally::default();
    let mut width = widths.first().copied().unwrap_or(0);
    if config.attention {
        tally.spike(transformer(width) * pixels(0));
    }
    for (i, &output) in widths.iter().enumerate() {
        for _ in 0..=config.layers {
            tally.spike((width as u64 + resnet(width, output)) * pixels(i));
            width = output;
        }
        if i + 1 < widths.len() {
            tally.spike(width as u64 * (pixels(i) + pixels(i + 1)));
        }
    }
    tally.most.saturating_mul(NUMBER)
}

/// The same of the tiny decoder: a block holds what came in, two maps of it, their sum and that above nought.
pub(super) fn tiny(config: &TinyConfig, latent: [usize; 2]) -> u64 {
    let finest = latent.map(|side| (side * config.factor()) as u64).iter().product::<u64>();
    let width = config.decoder_channels.iter().max().map_or(0, |width| *width as u64);
    (5 * width * finest).saturating_mul(NUMBER)
}

/// The same of text encoders of this width: what a transformer holds, and a map of four times the width.
pub(super) fn text(width: usize, rows: usize) -> u64 {
    (transformer(width) + 4 * width as u64) * TOKENS * rows as u64 * NUMBER
}
