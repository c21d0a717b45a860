//! What a recipe takes in memory, phase by phase, and how it is made to fit before anything is loaded.

use serde::Serialize;
use sysinfo::{MemoryRefreshKind, RefreshKind, System};

use super::model::Model;
use super::plan::Plan;
use crate::error::{Code, Error, Result};
use crate::event::Stage;
use crate::family::{Need, Needs};

/// Sides of tiles that are tried, largest first, in latent pixels: 64 is diffusers' for a picture of 512.
const TILES: &[usize] = &[128, 96, 64, 48, 32];
/// What the process takes besides: code, tables, buffers of threads.
const BESIDE: u64 = 48 << 20;

/// When a codec works in tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tiling {
    /// Where a picture does not fit in one piece.
    #[default]
    Auto,
    /// Always, 64 latent pixels a side.
    On,
    /// Never.
    Off,
}

/// One phase of a forecast.
#[derive(Debug, Clone, Serialize)]
pub struct Phase {
    /// Which stage.
    pub stage: Stage,
    /// Whose parts: the model's, or its refiner's.
    pub model: String,
    /// What it takes.
    #[serde(flatten)]
    pub need: Need,
}

/// What a recipe takes, told before anything is loaded.
#[derive(Debug, Clone, Serialize)]
pub struct Forecast {
    /// The phases in the order they come; none leaves anything to the next.
    pub phases: Vec<Phase>,
    /// The largest of them, and the process itself.
    pub peak_bytes: u64,
    /// What is free now, or what the caller allows if that is less; `None` where the machine does not say.
    pub free_bytes: Option<u64>,
    /// The side of the codec's tiles in latent pixels; `None` where it sees the picture in one piece.
    pub tile: Option<usize>,
}

impl Forecast {
    /// Whether all of it fits in what is free.
    pub fn fits(&self) -> bool {
        self.free_bytes.is_none_or(|free| self.peak_bytes <= free)
    }

    /// The phase that takes most.
    pub fn largest(&self) -> Option<&Phase> {
        self.phases.iter().max_by_key(|phase| phase.need.total())
    }

    /// Whether all parts of a model can stay for the next picture.
    pub(super) fn can_stay(&self) -> bool {
        let weights = self.phases.iter().map(|phase| phase.need.weights).fold(BESIDE, u64::saturating_add);
        let most = self.phases.iter().map(|phase| phase.need.activations).max().unwrap_or(0);
        self.free_bytes.is_none_or(|free| weights.saturating_add(most) <= free)
    }

    /// Refuses what does not fit.
    ///
    /// # Errors
    /// `insufficient_memory` with what is needed, what is free, and a size that would fit.
    pub fn must_fit(&self, plan: &Plan, model: &Model) -> Result<()> {
        let (Some(free), Some(largest), false) = (self.free_bytes, self.largest(), self.fits()) else {
            return Ok(());
        };
        let what = match largest.stage {
            Stage::Encode => "reading the prompt",
            Stage::Decode => "decoding",
            _ => "denoising",
        };
        let message = format!(
            "{what} {}x{} needs {} of memory, and {} are free",
            plan.width,
            plan.height,
            spoken_bytes(self.peak_bytes),
            spoken_bytes(free)
        );
        let hint = match smaller(plan, model, free)? {
            Some([width, height]) => format!("{width}x{height} would fit"),
            None => "the weights alone do not fit; take --quantize q8_0, or a smaller model".to_owned(),
        };
        Err(Error::new(Code::InsufficientMemory, message).hint(hint))
    }
}

/// Decides whether the codec works in tiles, where `limit` bytes may be taken or what is free, and says what that needs.
///
/// # Errors
/// `model_not_downloaded` if a part is not there.
pub(super) fn settle(plan: &mut Plan, model: &Model, tiling: Tiling, limit: Option<u64>) -> Result<Forecast> {
    let free = free(model, limit);
    plan.tile = match tiling {
        Tiling::On => Some(64),
        Tiling::Off => None,
        Tiling::Auto => tile_that_fits(plan, model, free)?,
    };
    forecast(plan, model, free)
}

/// What a settled recipe takes.
///
/// # Errors
/// `model_not_downloaded` if a part is not there.
fn forecast(plan: &Plan, model: &Model, free_bytes: Option<u64>) -> Result<Forecast> {
    let Needs { encode, denoise, decode } = needs(plan, model)?;
    let own = |stage: Stage, need: Need| Phase { stage, model: plan.model.name.clone(), need };
    let mut phases = vec![own(Stage::Encode, encode), own(Stage::Denoise, denoise)];
    if let (Some(ends), Some(refiner)) = (&plan.refiner, &model.refiner) {
        let Needs { encode, denoise, .. } = needs(ends, refiner)?;
        let other = |stage: Stage, need: Need| Phase { stage, model: ends.model.name.clone(), need };
        phases.extend([other(Stage::Encode, encode), other(Stage::Denoise, denoise)]);
    }
    phases.push(own(Stage::Decode, decode));
    let peak = phases.iter().map(|phase| phase.need.total()).max().unwrap_or(0);
    Ok(Forecast { phases, peak_bytes: peak.saturating_add(BESIDE), free_bytes, tile: plan.tile })
}

/// What the model's own three phases take; the codec sees one tile at a time.
fn needs(plan: &Plan, model: &Model) -> Result<Needs> {
    let [_, _, height, width] = plan.latent(model.card());
    let rows = plan.asking(model.card()).with_prompt().len();
    let mut needs = model.needs(rows, [height, width])?;
    if let Some(tile) = plan.tile {
        needs.decode = model.needs(1, [height.min(tile), width.min(tile)])?.decode;
        // The picture grows tile by tile, in f32.
        needs.decode.activations += (3 * 4 * plan.width * plan.height) as u64;
    }
    Ok(needs)
}

/// The largest tile with which the codec fits, `None` if it does without; the smallest if none does.
fn tile_that_fits(plan: &Plan, model: &Model, free: Option<u64>) -> Result<Option<usize>> {
    let Some(free) = free else { return Ok(None) };
    let fits = |tile: Option<usize>| {
        let decode = needs(&Plan { tile, ..plan.clone() }, model)?.decode;
        Ok::<_, Error>(decode.total().saturating_add(BESIDE) <= free)
    };
    let [_, _, height, width] = plan.latent(model.card());
    let smaller = || TILES.iter().copied().filter(|tile| *tile < height.max(width));
    if fits(None)? {
        return Ok(None);
    }
    for tile in smaller() {
        if fits(Some(tile))? {
            return Ok(Some(tile));
        }
    }
    Ok(smaller().last())
}

/// The largest picture of the same form that fits.
fn smaller(plan: &Plan, model: &Model, free: u64) -> Result<Option<[usize; 2]>> {
    let factor = model.card().factor;
    for share in (1..16).rev() {
        let [width, height] = [plan.width, plan.height].map(|side| side * share / 16 / factor * factor);
        if width.min(height) < 64.max(factor) {
            break;
        }
        let mut plan = Plan { width, height, ..plan.clone() };
        plan.tile = tile_that_fits(&plan, model, Some(free))?;
        if forecast(&plan, model, Some(free))?.fits() {
            return Ok(Some([width, height]));
        }
    }
    Ok(None)
}

/// Bytes that a job may take: those that are free to this process or, if that is less, those that the caller allows.
fn free(model: &Model, limit: Option<u64>) -> Option<u64> {
    // Other devices have memory of their own, which candle does not tell.
    let own = if model.is_on_cpu() { free_here() } else { None };
    own.into_iter().chain(limit).min()
}

/// Bytes that the machine has to spare, or the group of processes that this one belongs to.
fn free_here() -> Option<u64> {
    let system = System::new_with_specifics(
        RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram()),
    );
    // What a group has cached of files is not counted: it gives way.
    let group = system.cgroup_limits().map(|limits| limits.total_memory.saturating_sub(limits.rss));
    let machine = Some(system.available_memory()).filter(|free| *free > 0);
    machine.into_iter().chain(group).min()
}

/// Bytes as people say them.
pub fn spoken_bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64 / 1000.0;
    let mut unit = 0;
    while amount >= 1000.0 && unit + 1 < UNITS.len() {
        amount /= 1000.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}
