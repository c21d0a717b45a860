//! Events to a person: a bar on a terminal, notes as lines, nothing else.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::event::{Event, Stage};

/// Draws one job's events on stderr, if stderr is a terminal; keeps its notes and times for the answer.
pub(super) struct Progress {
    bar: ProgressBar,
    last: Instant,
    /// What the user was told.
    pub(super) notes: Vec<String>,
    /// How long each stage took in all, in the order they began.
    pub(super) took: Vec<(Stage, Duration)>,
}

impl Progress {
    pub(super) fn new(quiet: bool) -> Self {
        let shown = stderr().is_terminal() && !quiet;
        let target =
            if shown { ProgressDrawTarget::stderr_with_hz(10) } else { ProgressDrawTarget::hidden() };
        Self {
            bar: ProgressBar::with_draw_target(None, target),
            last: Instant::now(),
            notes: Vec::new(),
            took: Vec::new(),
        }
    }

    /// Shows an event.
    pub(super) fn show(&mut self, event: &Event) {
        match event {
            Event::Began { what, .. } => {
                self.last = Instant::now();
                self.style("{spinner} {msg}");
                self.bar.set_message(what.clone());
                self.bar.enable_steady_tick(Duration::from_millis(120));
            }
            Event::Step { step, of, .. } => {
                if *step == 1 || self.bar.length() != Some(*of as u64) {
                    self.bar.disable_steady_tick();
                    self.bar.set_length(*of as u64);
                    self.style("{msg} [{bar:30}] {pos}/{len}  eta {eta}");
                }
                let took = self.last.elapsed();
                self.last = Instant::now();
                self.bar.set_message(format!("denoising  {:.2} s/step", took.as_secs_f64()));
                self.bar.set_position(*step as u64);
            }
            Event::Tile { tile, of } => {
                self.bar.disable_steady_tick();
                self.bar.set_length(*of as u64);
                self.style("{msg} [{bar:30}] tile {pos}/{len}");
                self.bar.set_position(*tile as u64);
            }
            Event::Ended { stage, took } => {
                match self.took.iter_mut().find(|(known, _)| known == stage) {
                    Some((_, sum)) => *sum += *took,
                    None => self.took.push((*stage, *took)),
                }
                self.bar.reset();
            }
            Event::Note { text } => {
                if !self.notes.contains(text) {
                    self.notes.push(text.clone());
                    self.bar.suspend(|| {
                        let _ = writeln!(stderr(), "note: {text}");
                    });
                }
            }
            Event::Bytes { done, total } => {
                self.bar.set_length(*total);
                self.bar.set_position(*done);
            }
            Event::File { .. } | Event::Preview { .. } => {}
        }
    }

    fn style(&self, template: &str) {
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style.progress_chars("=> "));
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
