//! A whole model: several files at a time, and its name at the end.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::hub::Hub;
use super::listing::{Digest, Listed};
use super::manifest::{Fetched, Manifest};
use super::plan::Plan;
use super::staging::{Staging, lost};
use super::transfer::{fetch, waiting};
use crate::error::{Code, Error, Result};
use crate::event::{Event, Stage, Watch};

/// Files that travel at the same time.
const AT_ONCE: usize = 4;
/// How often a cancellation is looked for.
const TICK: Duration = Duration::from_millis(50);
/// How often a file says how far it is.
const NEWS: Duration = Duration::from_millis(100);
/// What is asked of the disk beyond the bytes that come: a twentieth.
const SPARE: u64 = 20;

/// What a pull has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// Where the model is.
    pub path: PathBuf,
    /// What is in it.
    pub manifest: Manifest,
    /// Bytes that travelled; none if it was here.
    pub fetched_bytes: u64,
    /// Whether the same model was here, whole, before.
    pub already: bool,
}

/// Brings a model into `models/name`: whole and verified, or not at all.
///
/// What arrived before a failure or a cancellation stays, and the next pull goes on from there. Two processes that pull
/// the same name take turns, and the second finds what the first brought.
///
/// # Errors
/// `already_exists` if the name is another model's; `store_full` before anything is fetched; `download_corrupt` for what
/// is not the file that the hub lists; `download_failed`; `cancelled`.
pub fn pull(hub: &Hub, plan: &Plan, models: &Path, name: &str, watch: &mut Watch<'_>) -> Result<Pulled> {
    let place = models.join(name);
    let staging = Staging::enter(models, name, watch)?;
    let here = occupant(models, name, plan)?;
    if let Some(manifest) = &here
        && is_of(manifest, plan)
        && manifest.damaged(&place).is_none()
    {
        return Ok(Pulled { path: place, manifest: manifest.clone(), fetched_bytes: 0, already: true });
    }
    let files = staging.files();
    staging.keep_only(&names(plan, true))?;
    if let Some(manifest) = &here {
        lend(manifest, &place, plan, &files);
    }
    check_room(plan, &files)?;
    let began = Instant::now();
    let what = format!("fetching {} files of {}", plan.files.len(), plan.repository);
    watch.say(Event::Began { stage: Stage::Fetch, what })?;
    let (digests, fetched_bytes) = bring(hub, plan, &files, watch)?;
    watch.say(Event::Ended { stage: Stage::Fetch, took: began.elapsed() })?;
    let manifest = manifest(plan, digests);
    staging.keep_only(&names(plan, false))?;
    manifest.save(&files)?;
    staging.publish(&place)?;
    Ok(Pulled { path: place, manifest, fetched_bytes, already: false })
}

/// Runs work that waits for the network on another thread, so that a cancellation is heard meanwhile.
pub(super) fn while_listening<T: Send>(
    hub: &Hub,
    watch: &mut Watch<'_>,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    thread::scope(|scope| {
        let worker = scope.spawn(work);
        let mut heard = Ok(());
        while !worker.is_finished() {
            if heard.is_ok() {
                heard = watch.check();
                if heard.is_err() {
                    hub.stop();
                }
            }
            thread::sleep(Duration::from_millis(5));
        }
        let done = worker.join().map_err(|_| Error::internal("a request's thread panicked"))?;
        heard.and(done)
    })
}

/// The model that has the name, if it came from the same repository and may be replaced.
fn occupant(models: &Path, name: &str, plan: &Plan) -> Result<Option<Manifest>> {
    let taken = |what: &str| {
        Err(Error::new(Code::AlreadyExists, format!("the name `{name}` is taken: {what}"))
            .hint(format!("choose another with --name, or `latentia rm {name}` first")))
    };
    for ending in ["json", "safetensors", "gguf"] {
        if models.join(format!("{name}.{ending}")).symlink_metadata().is_ok() {
            return taken("a model that was imported or put there");
        }
    }
    let place = models.join(name);
    let Ok(data) = place.symlink_metadata() else { return Ok(None) };
    match Manifest::read(&place)? {
        Some(manifest) if data.is_dir() && manifest.repository == plan.repository => Ok(Some(manifest)),
        Some(manifest) => taken(&format!("a model that was pulled from {}", manifest.repository)),
        None => taken("a folder that no pull has made"),
    }
}

/// Whether a model is what the plan would bring.
fn is_of(manifest: &Manifest, plan: &Plan) -> bool {
    let have: BTreeSet<(&str, u64)> =
        manifest.files.iter().map(|file| (file.path.as_str(), file.bytes)).collect();
    let want: BTreeSet<(&str, u64)> =
        plan.files.iter().map(|file| (file.path.as_str(), file.bytes)).collect();
    manifest.commit == plan.commit && have == want
}

/// The paths of a plan's files; with `begun`, also those under which they wait.
fn names(plan: &Plan, begun: bool) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = plan.files.iter().map(|file| file.path.clone()).collect();
    if begun {
        let digests = plan.files.iter().filter_map(|file| Some((file, file.digest.as_ref()?)));
        names.extend(digests.flat_map(|(file, digest)| waiting(file, digest)));
    }
    names
}

/// Links files that a newer commit has not changed; they are hashed like all others.
fn lend(manifest: &Manifest, place: &Path, plan: &Plan, files: &Path) {
    for file in &plan.files {
        let same = |old: &&Fetched| {
            old.path == file.path
                && matches!(&file.digest, Some(Digest::Sha256(sha256)) if *sha256 == old.sha256)
        };
        let target = files.join(&file.path);
        if manifest.files.iter().any(|old| same(&old)) && !target.exists() {
            // Where there are no links the file travels again.
            let _ = target.parent().map(fs::create_dir_all);
            let _ = fs::hard_link(place.join(&file.path), &target);
        }
    }
}

/// Whether the disk has room for what is missing.
fn check_room(plan: &Plan, files: &Path) -> Result<()> {
    let size = |name: &str| files.join(name).symlink_metadata().map_or(0, |data| data.len());
    let there = |file: &Listed| {
        let part = file.digest.as_ref().map_or(0, |digest| size(&waiting(file, digest)[0]));
        size(&file.path).max(part).min(file.bytes)
    };
    let missing: u64 = plan.files.iter().map(|file| file.bytes - there(file)).sum();
    let needed = missing.saturating_add(missing / SPARE);
    let free = fs4::available_space(files).map_err(|error| lost(&error, "the models' folder"))?;
    if free < needed {
        let message = format!("the models' folder needs {needed} bytes of disk for this and has {free}");
        return Err(Error::new(Code::StoreFull, message)
            .hint("make room (`latentia du`, `latentia rm`), or set LATENTIA_HOME to another disk"));
    }
    Ok(())
}

/// What a thread that brings a file says.
enum News {
    /// Bytes of the file that are there, and those of them that travelled since it last said so.
    Bytes(usize, u64, u64),
    /// The file is whole, with this sha256; or it never will be.
    Done(usize, Result<String>),
}

/// Brings every file, and gives back their sha256 in the order of the plan, and how many bytes travelled.
fn bring(hub: &Hub, plan: &Plan, folder: &Path, watch: &mut Watch<'_>) -> Result<(Vec<String>, u64)> {
    // Large ones first, so that none is left alone at the end.
    let mut order: Vec<usize> = (0..plan.files.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(plan.files[index].bytes));
    let next = AtomicUsize::new(0);
    let (send, hear) = channel();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(order.len()) {
            let (send, order, next) = (send.clone(), &order, &next);
            scope.spawn(move || {
                while let Some(&index) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let done = one(hub, plan, folder, index, &send);
                    let failed = done.is_err();
                    if send.send(News::Done(index, done)).is_err() || failed {
                        return;
                    }
                }
            });
        }
        drop(send);
        let total = plan.bytes();
        let mut counts = vec![0; plan.files.len()];
        let mut digests = vec![String::new(); plan.files.len()];
        let mut travelled = 0;
        let mut outcome = Ok(());
        loop {
            let news = match hear.recv_timeout(TICK) {
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => None,
                Ok(news) => Some(news),
            };
            let heard = match news {
                None => watch.check(),
                Some(News::Bytes(index, there, fresh)) => {
                    counts[index] = there;
                    travelled += fresh;
                    tell(watch, &plan.files[index], there, (counts.iter().sum(), total))
                }
                Some(News::Done(index, Ok(sha256))) => {
                    digests[index] = sha256;
                    counts[index] = plan.files[index].bytes;
                    tell(watch, &plan.files[index], counts[index], (counts.iter().sum(), total))
                }
                Some(News::Done(_, Err(error))) => Err(error),
            };
            // The first that goes wrong ends all; what the others say after that is only that they were stopped.
            if let (Err(error), true) = (heard, outcome.is_ok()) {
                outcome = Err(error);
                hub.stop();
            }
        }
        outcome.map(|()| (digests, travelled))
    })
}

/// Brings one file, and says now and then how far it is.
fn one(hub: &Hub, plan: &Plan, folder: &Path, index: usize, send: &Sender<News>) -> Result<String> {
    let file = &plan.files[index];
    let state = std::cell::Cell::new((Instant::now(), 0));
    let say = |there: u64, fresh: u64| {
        let (last, waiting) = state.get();
        let fresh = waiting + fresh;
        if there == file.bytes || last.elapsed() >= NEWS {
            state.set((Instant::now(), 0));
            let _ = send.send(News::Bytes(index, there, fresh));
        } else {
            state.set((last, fresh));
        }
    };
    fetch(hub, plan, file, folder, &say)
}

fn tell(watch: &mut Watch<'_>, file: &Listed, there: u64, (done, total): (u64, u64)) -> Result<()> {
    watch.say(Event::File { name: file.path.clone(), done: there, total: file.bytes })?;
    watch.say(Event::Bytes { done, total })
}

fn manifest(plan: &Plan, digests: Vec<String>) -> Manifest {
    let fetched =
        |(file, sha256): (&Listed, String)| Fetched { path: file.path.clone(), bytes: file.bytes, sha256 };
    Manifest {
        repository: plan.repository.clone(),
        revision: plan.revision.clone(),
        commit: plan.commit.clone(),
        variant: plan.variant.clone(),
        licence: plan.licence.clone(),
        files: plan.files.iter().zip(digests).map(fetched).collect(),
    }
}
