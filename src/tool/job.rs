//! Jobs that outlive a call: how far they are, and how to stop them.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::record::{Record, State};
use super::{About, Answer, Desk, Gives, Tool};
use crate::error::Result;
use crate::event::Watch;

/// Seconds that one call may wait.
const PATIENCE: u32 = 45;
/// How often a waiting call looks up.
const GLANCE: Duration = Duration::from_millis(200);

/// Says how far a job is, and what came of it.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct GetJob {
    /// The job that a call handed back.
    job_id: String,
    /// Waits so many seconds for its end before it answers.
    #[serde(default)]
    #[schemars(range(min = 0, max = 45))]
    wait_s: u32,
}

impl Tool for GetJob {
    const ABOUT: About = About {
        name: "get_job",
        description: "Says how far a job is; once it is over, what it made or why it failed.",
        when_to_use: "After a call handed back a job instead of a picture. Call again until status is completed, failed or cancelled.",
        tags: &["vision", "job"],
        task: None,
        gives: Gives::Facts,
    };

    fn run(self, desk: &Desk, watch: &mut Watch<'_>) -> Result<Answer> {
        let mut left = Duration::from_secs(u64::from(self.wait_s.min(PATIENCE)));
        loop {
            let record = desk.jobs().record(&self.job_id)?;
            if record.status.is_over() || left.is_zero() {
                return Ok(told(desk, &record));
            }
            watch.check()?;
            let nap = left.min(GLANCE);
            match desk.jobs().get(&self.job_id) {
                Some(job) => drop(job.wait(nap)),
                None => std::thread::sleep(nap),
            }
            left -= nap;
        }
    }
}

/// Stops a job.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct CancelJob {
    /// The job that a call handed back.
    job_id: String,
}

impl Tool for CancelJob {
    const ABOUT: About = About {
        name: "cancel_job",
        description: "Asks a job to stop, which it does within a step; what is finished stays.",
        when_to_use: "When nobody wants the result of a job any more.",
        tags: &["vision", "job"],
        task: None,
        gives: Gives::Order,
    };

    fn run(self, desk: &Desk, _: &mut Watch<'_>) -> Result<Answer> {
        let record = desk.jobs().cancel(&self.job_id)?;
        Ok(told(desk, &record))
    }
}

/// A record as an answer, with the artifacts that it names.
fn told(desk: &Desk, record: &Record) -> Answer {
    let said = match record.status {
        State::Queued => format!("job {} waits, {} before it", record.id, record.queue_position.unwrap_or(0)),
        State::Running => record.progress.spoken(),
        State::Completed => format!("job {} is done", record.id),
        State::Failed => format!("job {} failed", record.id),
        State::Cancelled => format!("job {} was cancelled", record.id),
    };
    let artifacts = record.artifacts.iter().filter_map(|reference| desk.store().resolve(reference).ok());
    Answer { artifacts: artifacts.collect(), ..Answer::facts(record.to_json(), said) }
}
