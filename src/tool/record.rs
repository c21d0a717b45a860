//! What is said of a job: its record on disk, and how far it is.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Answer;
use crate::error::{Code, Result};
use crate::event::{Event, Stage};

/// What a job is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It waits for its turn.
    Queued,
    /// It works.
    Running,
    /// It is done, and its artifacts are there.
    Completed,
    /// It ended with an error.
    Failed,
    /// It was asked to stop, and did.
    Cancelled,
}

impl State {
    /// Whether nothing more will happen.
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }
}

/// How far a job is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The stage that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Steps done, of all pictures.
    pub step: usize,
    /// Steps in all; 0 while that is not known.
    pub steps: usize,
    /// Milliseconds that the steps left will take, by those done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_ms: Option<u64>,
}

impl Progress {
    /// In words, for a person.
    pub fn spoken(&self) -> String {
        let phase = match self.phase {
            Some(Phase::Load) => "opening the model",
            Some(Phase::Encode) => "reading the prompt",
            Some(Phase::Denoise) => "denoising",
            Some(Phase::Decode) => "decoding",
            Some(Phase::Save) => "saving",
            None => "waiting",
        };
        let mut text = phase.to_owned();
        if self.steps > 0 {
            text = format!("{text}, step {} of {}", self.step, self.steps);
        }
        if let Some(eta) = self.eta_ms.filter(|_| self.step < self.steps) {
            text = format!("{text}, {:.0} s left", (eta as f64 / 1e3).ceil());
        }
        text
    }
}

/// A stage, as records have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Weights are opened.
    Load,
    /// The prompt is read.
    Encode,
    /// The steps.
    Denoise,
    /// From latent to pixels.
    Decode,
    /// Bytes go to disk.
    Save,
}

/// What is on disk of a job, and what is said of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its name.
    pub id: String,
    /// `job`.
    pub object: String,
    /// The tool that works.
    pub tool: String,
    /// What it is at.
    pub status: State,
    /// How many are before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<usize>,
    /// How far it is.
    pub progress: Progress,
    /// Seconds since 1970.
    pub created_at: f64,
    /// Seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<f64>,
    /// Seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<f64>,
    /// The sha256 of the arguments, by which a repeated request is known.
    pub request_sha256: String,
    /// What the tool answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Refs of what was made.
    #[serde(default)]
    pub artifacts: Vec<Value>,
    /// Why it failed: the object that faces send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
    /// Who works on it.
    pub(super) owner: String,
}

/// Steps over all pictures, and how fast they go.
#[derive(Default)]
pub(super) struct Pace {
    began: Option<Instant>,
}

impl Pace {
    /// Takes an event in.
    pub(super) fn note(&mut self, event: &Event, pictures: usize, progress: &mut Progress) {
        match event {
            Event::Began { stage, .. } => {
                progress.phase = match stage {
                    Stage::Load => Some(Phase::Load),
                    Stage::Encode => Some(Phase::Encode),
                    Stage::Denoise => Some(Phase::Denoise),
                    Stage::Decode => Some(Phase::Decode),
                    Stage::Save => Some(Phase::Save),
                    Stage::Fetch => progress.phase,
                };
            }
            Event::Step { of, .. } => {
                progress.step += 1;
                progress.steps = (of * pictures).max(progress.step);
                // The first step also pays for the start, so that the pace is counted from its end.
                let began = *self.began.get_or_insert_with(Instant::now);
                if progress.step > 1 {
                    let each = began.elapsed().as_secs_f64() / (progress.step - 1) as f64;
                    progress.eta_ms =
                        Some((each * 1e3 * (progress.steps - progress.step) as f64).round() as u64);
                }
            }
            _ => {}
        }
    }
}

impl Record {
    /// Takes the end in.
    pub(super) fn end(&mut self, outcome: &Result<Answer>) {
        self.finished_at = Some(now());
        self.progress.eta_ms = None;
        match outcome {
            Ok(answer) => {
                self.status = State::Completed;
                self.artifacts = answer.refs();
                self.result = Some(answer.value.clone());
            }
            Err(error) => {
                self.status = if error.code == Code::Cancelled { State::Cancelled } else { State::Failed };
                self.error = Some(error.to_json()["error"].clone());
            }
        }
    }

    /// How far it is, under AbstractVision's names too.
    pub fn progress_json(&self) -> Value {
        let mut value = json!(self.progress);
        value["total_steps"] = self.progress.steps.into();
        let share = if self.progress.steps == 0 {
            0.0
        } else {
            self.progress.step as f64 / self.progress.steps as f64
        };
        value["progress"] = share.into();
        value
    }

    /// What others see of it.
    pub fn to_json(&self) -> Value {
        let mut value = json!(self);
        value["progress"] = self.progress_json();
        if let Some(keys) = value.as_object_mut() {
            keys.remove("owner");
        }
        value
    }
}

/// Seconds since 1970, to the millisecond.
pub(super) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| (time.as_secs_f64() * 1e3).round() / 1e3)
}
