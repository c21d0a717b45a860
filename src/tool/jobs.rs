//! Work that outlives the request that asked for it: one job at a time, the others in line, each with a record on disk.
//!
//! A record is written before a job is acknowledged and again when it ends. Whoever opens the folder later finds what
//! became of every job; a job whose process is gone without a word was interrupted.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::record::{Pace, Progress, Record, State, now};
use super::{Answer, Desk, Entry};
use crate::artifact::{self, Existing};
use crate::error::{Code, Error, Result};
use crate::event::{Cancel, Event, Watch};
use crate::weights::sha256;

/// Jobs that may wait.
const WAITING: usize = 32;
/// Jobs that ended and are remembered without their files.
const REMEMBERED: usize = 64;

/// A job in hand.
pub struct Job {
    /// Its name.
    pub id: String,
    cancel: Cancel,
    record: Mutex<Record>,
    outcome: Mutex<Option<Arc<Result<Answer>>>>,
    over: Condvar,
}

/// Hears what happens in a job; dropped when it ends.
pub type Listener = Box<dyn FnMut(&Event, &Progress) + Send>;

/// The line, and the folder of records.
pub struct Jobs {
    folder: PathBuf,
    owner: String,
    // Held as long as this process lives, so that others see that it does.
    _lock: File,
    line: Arc<Line>,
    // One call at a time is put in line, so that two with one key are one.
    starting: Mutex<()>,
    known: Mutex<BTreeMap<String, Arc<Job>>>,
}

/// Who works and who waits.
#[derive(Default)]
struct Line {
    waiting: Mutex<VecDeque<String>>,
    moved: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A name that nobody can guess.
fn fresh_id() -> String {
    let draw = || std::collections::hash_map::RandomState::new().build_hasher().finish();
    let text = format!("{:x}{:x}{:?}{}", draw(), draw(), SystemTime::now(), std::process::id());
    sha256(text.as_bytes())[..32].to_owned()
}

impl Jobs {
    /// The jobs whose records lie in a folder, which is made.
    ///
    /// # Errors
    /// `store_io`.
    pub fn open(folder: &Path) -> Result<Self> {
        let failed = |error| Error::new(Code::StoreIo, "the folder of jobs cannot be used").because(error);
        fs::create_dir_all(folder).map_err(failed)?;
        let owner = fresh_id();
        let file = File::create(folder.join(format!("{owner}.lock"))).map_err(failed)?;
        file.lock().map_err(failed)?;
        let jobs = Self {
            folder: folder.to_owned(),
            owner,
            _lock: file,
            line: Arc::default(),
            starting: Mutex::default(),
            known: Mutex::default(),
        };
        jobs.tidy();
        Ok(jobs)
    }

    /// Takes away the locks of processes that are gone.
    fn tidy(&self) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(owner) = name.strip_suffix(".lock").filter(|owner| *owner != self.owner)
                && !self.lives(owner)
            {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Whether the process that took this name still runs.
    fn lives(&self, owner: &str) -> bool {
        if owner == self.owner {
            return true;
        }
        let Ok(file) = File::open(self.folder.join(format!("{owner}.lock"))) else { return false };
        file.try_lock().is_err()
    }

    /// Puts a call in line.
    ///
    /// The same `key` with the same arguments is the same job, however often it is asked for.
    ///
    /// # Errors
    /// What the arguments say, before anything is queued; `busy` if too many wait; `idempotency_conflict` if the key was
    /// used with other arguments; `store_io`.
    pub fn start(
        &self,
        desk: &Arc<Desk>,
        entry: &'static Entry,
        arguments: Value,
        key: Option<&str>,
        listener: Option<Listener>,
    ) -> Result<Arc<Job>> {
        entry.checked(desk, &arguments)?;
        let digest = sha256(format!("{} {arguments}", entry.about.name).as_bytes());
        let id = match key {
            Some(key) => sha256(format!("key {key}").as_bytes())[..32].to_owned(),
            None => fresh_id(),
        };
        let _starting = lock(&self.starting);
        if key.is_some()
            && let Ok(record) = self.record(&id)
        {
            if record.request_sha256 != digest {
                let message = "this idempotency key was used with other arguments";
                return Err(Error::new(Code::IdempotencyConflict, message).hint("take another key"));
            }
            if let Some(job) = lock(&self.known).get(&id) {
                return Ok(Arc::clone(job));
            }
            return Ok(Arc::new(Job::past(record)));
        }
        // One of them works.
        let waiting = self.waiting();
        if waiting > WAITING {
            let message = format!("{} jobs wait, and no more may", waiting - 1);
            return Err(Error::new(Code::Busy, message).hint("ask again in some seconds"));
        }
        let record = Record {
            id: id.clone(),
            object: "job".into(),
            tool: entry.about.name.into(),
            status: State::Queued,
            queue_position: None,
            progress: Progress::default(),
            created_at: now(),
            started_at: None,
            finished_at: None,
            request_sha256: digest,
            result: None,
            artifacts: Vec::new(),
            error: None,
            owner: self.owner.clone(),
        };
        let job = Arc::new(Job {
            id: id.clone(),
            cancel: Cancel::default(),
            record: Mutex::new(record),
            outcome: Mutex::default(),
            over: Condvar::new(),
        });
        self.save(&job)?;
        lock(&self.line.waiting).push_back(id.clone());
        self.remember(&job);
        let (desk, line, own) = (Arc::clone(desk), Arc::clone(&self.line), Arc::clone(&job));
        let thread = std::thread::Builder::new().name(format!("job {}", &id[..8]));
        let work = move || work(&desk, &line, &own, entry, &arguments, listener);
        if let Err(error) = thread.spawn(work) {
            lock(&self.line.waiting).retain(|waiting| *waiting != id);
            return Err(Error::new(Code::Busy, "there is no thread for another job").because(error));
        }
        Ok(job)
    }

    fn remember(&self, job: &Arc<Job>) {
        let mut known = lock(&self.known);
        known.insert(job.id.clone(), Arc::clone(job));
        let mut over: Vec<(f64, String)> = known
            .values()
            .filter_map(|job| {
                let record = lock(&job.record);
                record.status.is_over().then(|| (record.finished_at.unwrap_or(0.0), record.id.clone()))
            })
            .collect();
        over.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (_, id) in over.iter().rev().skip(REMEMBERED) {
            known.remove(id);
        }
    }

    /// How many wait or work.
    pub fn waiting(&self) -> usize {
        lock(&self.line.waiting).len()
    }

    /// A job of this process.
    pub fn get(&self, id: &str) -> Option<Arc<Job>> {
        lock(&self.known).get(id).map(Arc::clone)
    }

    /// What is known of a job, whoever works on it.
    ///
    /// # Errors
    /// `job_not_found`.
    pub fn record(&self, id: &str) -> Result<Record> {
        if let Some(job) = self.get(id) {
            let mut record = job.record();
            record.queue_position = lock(&self.line.waiting).iter().position(|waiting| waiting == id);
            record.queue_position = record.queue_position.filter(|_| record.status == State::Queued);
            return Ok(record);
        }
        let unknown = || {
            let shown: String = id.chars().take(40).flat_map(char::escape_default).collect();
            let error = Error::new(Code::JobNotFound, format!("there is no job `{shown}`"));
            Error { param: Some("job_id".into()), ..error }
        };
        if id.len() != 32 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(unknown());
        }
        let bytes = fs::read(self.folder.join(format!("{id}.json"))).map_err(|_| unknown())?;
        let mut record: Record = serde_json::from_slice(&bytes).map_err(|_| unknown())?;
        if !record.status.is_over() && !self.lives(&record.owner) {
            record.status = State::Failed;
            let error =
                Error::new(Code::Interrupted, "the process that worked on it is gone").hint("ask again");
            record.error = Some(error.to_json()["error"].clone());
        }
        Ok(record)
    }

    /// Asks a job to stop; it does within a step. One that is over stays as it is.
    ///
    /// # Errors
    /// `job_not_found`, also for a job of another process.
    pub fn cancel(&self, id: &str) -> Result<Record> {
        if let Some(job) = self.get(id) {
            job.cancel();
            self.line.moved.notify_all();
        }
        self.record(id)
    }

    /// Forgets a job that is over; what it made stays.
    ///
    /// # Errors
    /// `job_not_found`, `store_io`.
    pub fn forget(&self, id: &str) -> Result<()> {
        if self.record(id)?.status.is_over() {
            lock(&self.known).remove(id);
            fs::remove_file(self.folder.join(format!("{id}.json")))
                .map_err(|error| Error::new(Code::StoreIo, "a job cannot be forgotten").because(error))?;
        }
        Ok(())
    }

    /// Asks every job to stop.
    pub fn cancel_all(&self) {
        for job in lock(&self.known).values() {
            job.cancel();
        }
        self.line.moved.notify_all();
    }

    fn save(&self, job: &Job) -> Result<()> {
        write(&self.folder, &lock(&job.record))
    }
}

fn write(folder: &Path, record: &Record) -> Result<()> {
    let path = folder.join(format!("{}.json", record.id));
    artifact::write(&path, json!(record).to_string().as_bytes(), Existing::Replace)
}

/// Waits for its turn, works, and says how it ended.
fn work(
    desk: &Arc<Desk>,
    line: &Line,
    job: &Job,
    entry: &Entry,
    arguments: &Value,
    mut listener: Option<Listener>,
) {
    let mut waiting = lock(&line.waiting);
    while waiting.front() != Some(&job.id) && !job.cancel.is_cancelled() {
        let glance = Duration::from_millis(100);
        waiting = line.moved.wait_timeout(waiting, glance).unwrap_or_else(PoisonError::into_inner).0;
    }
    drop(waiting);
    let outcome = if job.cancel.is_cancelled() {
        Err(Error::new(Code::Cancelled, "cancelled before it began"))
    } else {
        job.change(|record| (record.status, record.started_at) = (State::Running, Some(now())));
        let _ = desk.jobs().save(job);
        let pictures = pictures(arguments);
        let mut pace = Pace::default();
        let mut watch = Watch::new(job.cancel.clone(), |event| {
            let progress = job.change(|record| pace.note(event, pictures, &mut record.progress));
            if let Some(listener) = &mut listener {
                listener(event, &progress);
            }
        });
        entry.call(desk, arguments, &mut watch)
    };
    job.change(|record| record.end(&outcome));
    // What could not be recorded cannot be told otherwise either; the artifacts are safe in the store.
    let _ = desk.jobs().save(job);
    *lock(&job.outcome) = Some(Arc::new(outcome));
    job.over.notify_all();
    lock(&line.waiting).retain(|waiting| *waiting != job.id);
    line.moved.notify_all();
}

/// How many pictures a request is for.
fn pictures(arguments: &Value) -> usize {
    let seeds = arguments["seeds"].as_array().map(Vec::len);
    seeds.or_else(|| usize::try_from(arguments["count"].as_u64()?).ok()).unwrap_or(1).max(1)
}

impl Job {
    /// A job that only its record remembers.
    fn past(record: Record) -> Self {
        Self {
            id: record.id.clone(),
            cancel: Cancel::default(),
            record: Mutex::new(record),
            outcome: Mutex::default(),
            over: Condvar::new(),
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Record) -> T) -> Progress {
        let mut record = lock(&self.record);
        change(&mut record);
        record.progress
    }

    /// What is known of it.
    pub fn record(&self) -> Record {
        lock(&self.record).clone()
    }

    /// Asks it to stop.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// How it ended, once it did in this process.
    pub fn outcome(&self) -> Option<Arc<Result<Answer>>> {
        lock(&self.outcome).clone()
    }

    /// Waits until it is over, or for so long.
    pub fn wait(&self, patience: Duration) -> Option<Arc<Result<Answer>>> {
        let outcome = lock(&self.outcome);
        let pending = |outcome: &mut Option<Arc<Result<Answer>>>| outcome.is_none();
        let waited = self.over.wait_timeout_while(outcome, patience, pending);
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}
