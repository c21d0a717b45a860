//! Which models are open, which of their parts are in memory, and why one is no longer.
//!
//! # Source
//! The keys of a record: AbstractVision 0.3.34, MIT, with ours beside them.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::Desk;
use super::record::now;
use crate::error::{Code, Error, Result};
use crate::studio::{Model, Studio};

/// Models that are gone and still told of.
const REMEMBERED: usize = 8;

/// An open model.
struct Resident {
    name: String,
    /// Away while it works.
    model: Option<Model>,
    /// Whether somebody asked that it stays.
    keeps: bool,
    parts: Vec<&'static str>,
    loaded_at: f64,
    last_used_at: Option<f64>,
}

/// The open models, and the last that were.
#[derive(Default)]
pub(super) struct Residents {
    open: Mutex<Vec<Resident>>,
    gone: Mutex<VecDeque<Value>>,
    /// Held by whoever works with a model: one at a time.
    work: Mutex<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Residents {
    /// Works with a model. One that nobody asked to keep makes room for the next; one that is asked to go while it works
    /// goes afterwards.
    pub(super) fn with<T>(
        &self,
        name: &str,
        open: impl FnOnce() -> Result<Model>,
        work: impl FnOnce(&mut Model) -> Result<T>,
    ) -> Result<T> {
        let _alone = lock(&self.work);
        let known = lock(&self.open).iter_mut().find(|one| one.name == name).map(|one| one.model.take());
        let mut model = if let Some(model) = known.flatten() {
            model
        } else {
            self.make_room(name);
            let model = open()?;
            let mut all = lock(&self.open);
            all.retain(|one| one.name != name);
            all.push(Resident::new(name));
            model
        };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&mut model)));
        let mut all = lock(&self.open);
        match done {
            Ok(done) => {
                if let Some(one) = all.iter_mut().find(|one| one.name == name) {
                    one.parts = model.open_parts();
                    one.keeps = model.keeps();
                    one.last_used_at = Some(now());
                    one.model = Some(model);
                }
                done
            }
            Err(panic) => {
                // What state it is in is not known.
                all.retain(|one| one.name != name);
                drop(all);
                std::panic::resume_unwind(panic)
            }
        }
    }

    fn make_room(&self, next: &str) {
        let mut all = lock(&self.open);
        let (stay, go): (Vec<_>, Vec<_>) = all.drain(..).partition(|one| one.keeps || one.name == next);
        *all = stay;
        drop(all);
        for one in go {
            self.remember(&one, &format!("`{next}` was asked for"));
        }
    }

    fn remember(&self, one: &Resident, reason: &str) {
        let mut record = one.record("unloaded");
        record["reason"] = reason.into();
        let mut gone = lock(&self.gone);
        gone.push_front(record);
        gone.truncate(REMEMBERED);
    }

    /// The model that was used last.
    pub(super) fn last(&self) -> Option<String> {
        let all = lock(&self.open);
        let at_work = all.iter().find(|one| one.model.is_none());
        let last = || all.iter().max_by(|a, b| a.used().total_cmp(&b.used()));
        at_work.or_else(last).map(|one| one.name.clone())
    }
}

impl Resident {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            model: None,
            keeps: false,
            parts: Vec::new(),
            loaded_at: now(),
            last_used_at: None,
        }
    }

    fn used(&self) -> f64 {
        self.last_used_at.unwrap_or(self.loaded_at)
    }

    fn record(&self, state: &str) -> Value {
        let is_gone = state == "unloaded";
        json!({
            "model": self.name,
            "provider": "latentia",
            "load_id": format!("latentia/{}", self.name),
            "backend_kind": "latentia",
            "scope": "process",
            "state": state,
            "resident": self.keeps && !is_gone,
            "loaded": !is_gone,
            "source": if self.keeps { "explicit_preload" } else { "request" },
            "loaded_at": self.loaded_at,
            "last_used_at": self.last_used_at,
            "error": null,
            "parts": if is_gone { Vec::new() } else { self.parts.clone() },
            "at_work": self.model.is_none() && !is_gone,
        })
    }
}

/// Which open models are meant.
#[derive(Debug, Default)]
pub struct Wanted {
    /// By the name of the model.
    pub model: Option<String>,
    /// By `latentia/NAME`.
    pub load_id: Option<String>,
}

impl Desk {
    /// What is open now: a record a model, the bytes of its parts in memory, and what they are.
    ///
    /// # Errors
    /// What reading the models says.
    pub fn residents(&self) -> Result<Vec<Value>> {
        let catalogue = self.catalogue()?;
        let told = |one: &Resident| {
            let mut record = one.record(if one.keeps { "resident" } else { "active" });
            let listed = catalogue.get(&one.name).filter(|listed| listed.installed);
            let tasks: Vec<String> =
                listed.iter().flat_map(|listed| &listed.tasks).map(|task| task.name().to_owned()).collect();
            record["task"] = json!(tasks.first());
            record["tasks"] = json!(tasks);
            let bytes =
                |part: &&'static str| listed.and_then(|listed| listed.found["memory"][*part].as_u64());
            record["bytes"] = json!(one.parts.iter().filter_map(bytes).sum::<u64>());
            record
        };
        Ok(lock(&self.resident().open).iter().map(told).collect())
    }

    /// The last models that are no longer open, newest first, each with the reason.
    pub fn released(&self) -> Vec<Value> {
        lock(&self.resident().gone).iter().cloned().collect()
    }

    /// Reads a model's weights now, so that the next picture need not wait for them, and keeps them until
    /// [`Self::unload`].
    ///
    /// # Errors
    /// As [`Self::listed`]; `unsupported_task` if its network does not run here; what opening the weights says.
    pub fn load(&self, model: Option<&str>) -> Result<Value> {
        let listed = self.listed(model)?;
        if !listed.runs {
            let message = format!("the network of `{}` does not run here yet", listed.id);
            return Err(Error { param: Some("model".into()), ..Error::new(Code::ModelUnsupported, message) });
        }
        self.with_model(Some(&listed.id), |_: &Studio, model| model.keep())?;
        let mut records = self.residents()?;
        records.retain(|record| record["model"] == listed.id.as_str());
        records.pop().ok_or_else(|| Error::internal("a model was loaded and is not there"))
    }

    /// Lets a model go, at once or when it has done its work; the only one that is open if none is named.
    ///
    /// # Errors
    /// `invalid_argument` if several could be meant; as [`Self::listed`] for a model that is not here at all.
    pub fn unload(&self, wanted: &Wanted) -> Result<Value> {
        let by_id = wanted.load_id.as_ref().map(|id| id.strip_prefix("latentia/").unwrap_or(id).to_owned());
        let name = wanted.model.clone().or(by_id);
        let mut all = lock(&self.resident().open);
        let name = match (name, all.as_slice()) {
            (Some(name), _) => name,
            (None, [only]) => only.name.clone(),
            (None, []) => {
                return Ok(json!({ "model": null, "state": "unloaded", "loaded": false, "resident": false }));
            }
            (None, several) => {
                let names: Vec<&str> = several.iter().map(|one| one.name.as_str()).collect();
                let error = Error::argument("model", "several models are open; say which shall go");
                return Err(error.hint(names.join(", ")));
            }
        };
        let at = all.iter().position(|one| one.name == name);
        let gone = at.map(|at| all.remove(at));
        drop(all);
        if let Some(gone) = gone {
            self.resident().remember(&gone, "unload was asked for");
            return Ok(gone.record("unloaded"));
        }
        Ok(Resident::new(&self.listed(Some(&name))?.id).record("unloaded"))
    }
}
