//! The U-net and its control networks, told what to draw.

use std::borrow::Cow;
use std::ops::Range;

use candle_core::Tensor;

use super::super::contract::{Conditioning, Denoiser};
use super::control::{ControlNet, Steering};
use super::trunk::{Heard, Trunk};
use super::unet::{Residuals, Unet};
use crate::diffusion::{Level, Predict};
use crate::error::{Error, Result};
use crate::event::Watch;
use crate::nn::sinusoid;

/// The U-net and the networks that steer it.
pub struct Network {
    /// What takes noise away.
    pub unet: Unet,
    /// What adds to its way down, in the order of the hints.
    pub controls: Vec<ControlNet>,
}

impl Denoiser for Network {
    fn bind<'a>(&'a self, told: &[Conditioning]) -> Result<Box<dyn Predict + 'a>> {
        let beside: Vec<_> = told.iter().filter_map(|row| row.beside.as_ref()).collect();
        let beside = if beside.is_empty() { None } else { Some(Tensor::cat(&beside, 0)?) };
        let all: Vec<_> = told.iter().collect();
        let (rows, steered): (Vec<_>, Vec<_>) =
            told.iter().enumerate().filter(|(_, row)| !row.hints.is_empty()).unzip();
        let mut controls = Vec::with_capacity(self.controls.len());
        if let Some(first) = steered.first() {
            if steered.iter().any(|row| row.hints.len() != self.controls.len()) {
                let message =
                    format!("{} hints for {} control networks", first.hints.len(), self.controls.len());
                return Err(Error::internal(message));
            }
            for (network, hint) in self.controls.iter().zip(&first.hints) {
                let heard = heard(network.trunk(), &steered)?;
                let seen = network.see(&hint.picture)?;
                let told = Steering { heard, seen, scale: hint.scale, guess: hint.guess };
                controls.push(Control { network, told, calls: hint.calls.clone() });
            }
        }
        let heard = heard(self.unet.trunk(), &all)?;
        Ok(Box::new(Bound { unet: &self.unet, heard, beside, controls, rows }))
    }
}

/// What a network hears of these rows.
fn heard(trunk: &Trunk, told: &[&Conditioning]) -> Result<Heard> {
    let contexts: Vec<_> = told.iter().map(|row| &row.context).collect();
    let text = trunk.listen(&Tensor::cat(&contexts, 0)?)?;
    let guidance = match trunk.config().guidance {
        Some(width) => {
            // The embedding hears w = guidance − 1, a thousandfold (Luo et al. 2023, arXiv 2310.04378, eq. 14).
            let scales: Vec<_> =
                told.iter().map(|row| (row.guidance.unwrap_or(1.0) - 1.0) * 1000.0).collect();
            Some(sinusoid(&scales, width, false, 1.0)?)
        }
        None => None,
    };
    let pooled: Vec<_> = told.iter().filter_map(|row| row.pooled.as_ref()).collect();
    let sizes: Vec<_> = told.iter().map(|row| row.sizes.clone()).collect();
    let mut added = if pooled.is_empty() { None } else { trunk.hear(&Tensor::cat(&pooled, 0)?, &sizes)? };
    let grains: Vec<usize> = told.iter().filter_map(|row| row.noise_level).collect();
    if let Some(grain) = if grains.is_empty() { None } else { trunk.hear_grain(&grains)? } {
        added = Some(match added {
            Some(added) => (added + grain)?,
            None => grain,
        });
    }
    Ok(Heard { text, guidance, added })
}

/// One control network, told what to draw.
struct Control<'a> {
    network: &'a ControlNet,
    told: Steering,
    calls: Range<usize>,
}

/// The network, told what to draw.
struct Bound<'a> {
    unet: &'a Unet,
    heard: Heard,
    beside: Option<Tensor>, // [B, C', h, w]
    controls: Vec<Control<'a>>,
    /// Which rows of the batch are steered.
    rows: Vec<usize>,
}

impl Bound<'_> {
    /// What the control networks add at this level, summed.
    fn residuals(&self, x: &Tensor, at: &Level, watch: &mut Watch<'_>) -> Result<Option<Residuals>> {
        let mut sum: Option<Residuals> = None;
        let steered = some_rows(x, &self.rows)?;
        for control in self.controls.iter().filter(|control| control.calls.contains(&at.step)) {
            let more = control.network.forward(&steered, at.time, &control.told, watch)?;
            sum = Some(match sum {
                Some(sum) => sum.plus(&more)?,
                None => more,
            });
        }
        let all = x.dim(0)?;
        sum.map(|sum| sum.map(|residual| among_noughts(residual, &self.rows, all))).transpose()
    }
}

impl Predict for Bound<'_> {
    fn predict(&mut self, x: &Tensor, at: &Level, watch: &mut Watch<'_>) -> Result<Tensor> {
        let residuals = if self.controls.is_empty() { None } else { self.residuals(x, at, watch)? };
        let x = match &self.beside {
            Some(beside) => Cow::Owned(Tensor::cat(&[x, beside], 1)?),
            None => Cow::Borrowed(x),
        };
        self.unet.forward(&x, at.time, (&self.heard, residuals.as_ref()), watch)
    }
}

/// These rows of a batch.
fn some_rows(x: &Tensor, rows: &[usize]) -> Result<Tensor> {
    if rows.len() == x.dim(0)? {
        return Ok(x.clone());
    }
    let rows = rows.iter().map(|row| x.narrow(0, *row, 1)).collect::<candle_core::Result<Vec<_>>>()?;
    Ok(Tensor::cat(&rows, 0)?)
}

/// A batch of `all` rows in which these are given and the others are noughts.
fn among_noughts(x: &Tensor, rows: &[usize], all: usize) -> Result<Tensor> {
    if rows.len() == all {
        return Ok(x.clone());
    }
    let nothing = x.narrow(0, 0, 1)?.zeros_like()?;
    let row = |row: usize| match rows.iter().position(|given| *given == row) {
        Some(given) => x.narrow(0, given, 1),
        None => Ok(nothing.clone()),
    };
    let rows = (0..all).map(row).collect::<candle_core::Result<Vec<_>>>()?;
    Ok(Tensor::cat(&rows, 0)?)
}
