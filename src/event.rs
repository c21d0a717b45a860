//! What a job says while it works, and how it learns that it should stop.
//!
//! To speak is to listen: whatever reports progress through a [`Watch`] can be cancelled there, between steps, blocks
//! and tiles. The outcome of a job is its `Result`, never an event.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;

use crate::error::{Code, Error, Result};

/// One thing that happened in a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A stage began: loading, encoding, denoising, decoding.
    Began {
        /// Which stage.
        stage: Stage,
        /// What is being worked on, for a person.
        what: String,
    },
    /// Bytes read or written so far.
    Bytes {
        /// Bytes done.
        done: u64,
        /// Bytes in all.
        total: u64,
    },
    /// Bytes of one file that are there; those of all are [`Event::Bytes`].
    File {
        /// The file.
        name: String,
        /// Bytes done.
        done: u64,
        /// Bytes in all.
        total: u64,
    },
    /// A step of the walk ended.
    Step {
        /// Steps done, from 1.
        step: usize,
        /// Steps in all.
        of: usize,
        /// The noise level reached.
        sigma: f64,
    },
    /// A part of a picture that was too large for one piece ended.
    Tile {
        /// Tiles done, from 1.
        tile: usize,
        /// Tiles in all.
        of: usize,
    },
    /// A picture of the unfinished latent, as PNG.
    Preview {
        /// Steps done.
        step: usize,
        /// The file's bytes.
        #[serde(skip)]
        png: Arc<[u8]>,
    },
    /// A stage ended.
    Ended {
        /// Which stage.
        stage: Stage,
        /// How long it took.
        took: Duration,
    },
    /// Something the user should know: a prompt that was cut, a value that was snapped.
    Note {
        /// One sentence.
        text: String,
    },
}

/// The stages of every job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Files come from a hub.
    Fetch,
    /// Weights are opened.
    Load,
    /// The prompt is read.
    Encode,
    /// The walk from noise to latent.
    Denoise,
    /// From latent to pixels.
    Decode,
    /// Bytes go to disk.
    Save,
}

/// Set from another thread or a signal handler, seen at the next event.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks the job to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether someone asked.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A job's mouth and ear.
pub struct Watch<'a> {
    listener: Box<dyn FnMut(&Event) + 'a>,
    cancel: Cancel,
}

impl<'a> Watch<'a> {
    /// Reports to `listener` and stops when `cancel` is set.
    pub fn new(cancel: Cancel, listener: impl FnMut(&Event) + 'a) -> Self {
        Self { listener: Box::new(listener), cancel }
    }

    /// Nobody listens and nobody cancels: for tests and benches.
    pub fn quiet() -> Self {
        Self::new(Cancel::default(), |_| {})
    }

    /// Reports an event.
    ///
    /// # Errors
    /// `cancelled` once the job was asked to stop; the caller hands it up and cleans nothing half-made.
    #[expect(clippy::needless_pass_by_value, reason = "an event is made to be given away")]
    pub fn say(&mut self, event: Event) -> Result<()> {
        (self.listener)(&event);
        self.check()
    }

    /// Listens without speaking, for places between two events.
    ///
    /// # Errors
    /// `cancelled` once the job was asked to stop.
    pub fn check(&self) -> Result<()> {
        if self.cancel.is_cancelled() {
            return Err(Error::new(Code::Cancelled, "cancelled"));
        }
        Ok(())
    }

    /// Tells the user something, without listening.
    pub fn note(&mut self, text: impl Into<String>) {
        (self.listener)(&Event::Note { text: text.into() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_watch_reports_and_stops() {
        let cancel = Cancel::default();
        let mut heard = 0;
        let mut watch = Watch::new(cancel.clone(), |_| heard += 1);
        assert!(watch.say(Event::Step { step: 1, of: 2, sigma: 1.0 }).is_ok());
        cancel.cancel();
        let error = watch.say(Event::Step { step: 2, of: 2, sigma: 0.0 }).expect_err("must stop");
        assert_eq!(error.code, Code::Cancelled);
        drop(watch);
        assert_eq!(heard, 2);
    }
}
