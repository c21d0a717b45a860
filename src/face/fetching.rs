//! A pull to a person: a bar a file and one for all on a terminal; lines elsewhere, for those who read a log.

use std::collections::HashMap;
use std::io::{IsTerminal, Write, stderr};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::event::Event;

/// Shows how far files are, on stderr.
pub(super) struct Fetching {
    bars: MultiProgress,
    all: ProgressBar,
    files: HashMap<String, ProgressBar>,
    shown: bool,
    quiet: bool,
    tenth: u64,
}

impl Fetching {
    pub(super) fn new(quiet: bool) -> Self {
        let shown = stderr().is_terminal() && !quiet;
        let target =
            if shown { ProgressDrawTarget::stderr_with_hz(10) } else { ProgressDrawTarget::hidden() };
        let bars = MultiProgress::with_draw_target(target);
        let all = bars.add(ProgressBar::no_length());
        style(&all, "{msg:40!} [{bar:24}] {bytes}/{total_bytes}  {bytes_per_sec}  eta {eta}");
        all.set_message("in all");
        Self { bars, all, files: HashMap::new(), shown, quiet, tenth: 0 }
    }

    /// Shows an event.
    pub(super) fn show(&mut self, event: &Event) {
        match event {
            Event::File { name, done, total } => self.file(name, *done, *total),
            Event::Bytes { done, total } => {
                self.all.set_length(*total);
                self.all.set_position(*done);
                let tenth = (*done).saturating_mul(10).checked_div(*total).unwrap_or(10);
                if tenth > self.tenth {
                    self.tenth = tenth;
                    self.line(&format!("{:>3} %", tenth * 10));
                }
            }
            Event::Note { text } if !self.quiet => {
                self.bars.suspend(|| {
                    let _ = writeln!(stderr(), "note: {text}");
                });
            }
            _ => {}
        }
    }

    fn file(&mut self, name: &str, done: u64, total: u64) {
        let known = self.files.contains_key(name);
        let bars = &self.bars;
        let bar = self.files.entry(name.to_owned()).or_insert_with(|| {
            let bar = bars.insert_from_back(1, ProgressBar::new(total));
            style(&bar, "{msg:40!} [{bar:24}] {bytes}/{total_bytes}");
            let long = name.chars().count().saturating_sub(39);
            let mark = if long > 0 { "…" } else { "" };
            bar.set_message(format!("{mark}{}", name.chars().skip(long).collect::<String>()));
            bar
        });
        bar.set_position(done);
        if done == total && !(known && bar.is_finished()) {
            bar.finish_and_clear();
            self.line(&format!("  {name}"));
        }
    }

    /// A line for a log; a terminal has its bars.
    fn line(&self, text: &str) {
        if !self.shown && !self.quiet {
            let _ = writeln!(stderr(), "{text}");
        }
    }

    /// Takes the bars away.
    pub(super) fn finish(&self) {
        self.all.finish_and_clear();
        let _ = self.bars.clear();
    }
}

fn style(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
}
