//! Sweeping: what nobody needs goes, what lost its record gets one.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::Store;
use super::disk::{self, Found};
use super::id::Id;
use super::index::{PAGE, Query};
use super::record::Artifact;
use crate::artifact::file;
use crate::error::Result;

/// What to sweep. Without any wish: leftovers of writers that died, and what has expired.
#[derive(Debug, Clone, Default)]
pub struct Sweep {
    /// Only says what would go.
    pub dry_run: bool,
    /// Also what is older than this.
    pub older_than: Option<SignedDuration>,
    /// Also the oldest, until no more than so many bytes are left.
    pub max_bytes: Option<u64>,
    /// Also what is in quarantine.
    pub quarantine: bool,
}

/// What was swept, or would be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Swept {
    /// Files that writers left half written.
    pub leftovers: u64,
    /// Records whose bytes are gone.
    pub ghosts: Vec<Id>,
    /// Artifacts whose time is over, that are too old or too many.
    pub removed: Vec<Id>,
    /// Bytes that had lost their record and have one again.
    pub adopted: Vec<Id>,
    /// Files of the quarantine.
    pub quarantined: u64,
    /// Bytes that became free.
    pub bytes: u64,
}

impl Store {
    /// Sweeps. What is pinned stays, and so does what something that stays was made from.
    ///
    /// # Errors
    /// `store_io`.
    pub fn gc(&self, sweep: &Sweep) -> Result<Swept> {
        self.refresh()?;
        // Whoever writes holds the lock, so now every half-written file is one that nobody will finish.
        let _alone = disk::lock(&self.folder)?;
        let mut swept = Swept::default();
        self.sweep_leftovers(sweep, &mut swept)?;
        self.adopt_bytes(sweep, &mut swept)?;
        self.sweep_artifacts(sweep, &mut swept)?;
        if sweep.quarantine {
            self.sweep_quarantine(sweep, &mut swept)?;
        }
        Ok(swept)
    }

    fn sweep_leftovers(&self, sweep: &Sweep, swept: &mut Swept) -> Result<()> {
        for name in disk::names(&self.folder)?.iter().filter(|name| file::is_draft(name)) {
            swept.leftovers += 1;
            swept.bytes += self.discard(Path::new(name), sweep.dry_run)?;
        }
        Ok(())
    }

    /// Bytes without a record are what a writer that died had not acknowledged yet, or what lost its record since:
    /// nobody can tell, so nothing is lost.
    fn adopt_bytes(&self, sweep: &Sweep, swept: &mut Swept) -> Result<()> {
        let mut ids: Vec<_> = disk::survey(&self.folder)?.into_keys().collect();
        ids.sort_unstable();
        for id in ids {
            let id = Id::parse(&id)?;
            let Found::Bytes(name) = disk::find(&self.folder, &id)? else { continue };
            // Those whose hash is not their name are left to `verify`.
            let Ok(artifact) = disk::describe(&self.folder, &id, &name) else { continue };
            if !sweep.dry_run {
                self.record(&artifact)?;
            }
            swept.adopted.push(id);
        }
        Ok(())
    }

    fn sweep_artifacts(&self, sweep: &Sweep, swept: &mut Swept) -> Result<()> {
        let now = Timestamp::now();
        let mut artifacts = self.everything()?;
        artifacts.reverse();
        let mut needed: HashSet<Id> = HashSet::new();
        for artifact in &artifacts {
            needed.extend(artifact.more.source_refs.iter().map(|source| source.artifact.clone()));
        }
        let mut left: u64 = artifacts.iter().map(|artifact| artifact.size_bytes).sum();
        let oldest =
            sweep.older_than.and_then(|age| now.checked_sub(age).ok()).map(Timestamp::as_microsecond);
        for artifact in &artifacts {
            let bytes = self.folder.symlink_metadata(Path::new(&artifact.content_file));
            if bytes.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
                swept.ghosts.push(artifact.id.clone());
                left -= artifact.size_bytes;
                if !sweep.dry_run {
                    self.remove(artifact)?;
                }
                continue;
            }
            let over = artifact.more.expires_at.is_some_and(|time| time <= now)
                || oldest.is_some_and(|oldest| artifact.created() < oldest)
                || sweep.max_bytes.is_some_and(|most| left > most);
            if !over || artifact.more.pinned || needed.contains(&artifact.id) {
                continue;
            }
            left -= artifact.size_bytes;
            swept.bytes += artifact.size_bytes;
            swept.removed.push(artifact.id.clone());
            if !sweep.dry_run {
                self.remove(artifact)?;
            }
        }
        Ok(())
    }

    fn sweep_quarantine(&self, sweep: &Sweep, swept: &mut Swept) -> Result<()> {
        let Ok(folder) = self.folder.open_dir(disk::QUARANTINE) else { return Ok(()) };
        for name in disk::names(&folder)? {
            swept.quarantined += 1;
            swept.bytes += self.discard(&Path::new(disk::QUARANTINE).join(name), sweep.dry_run)?;
        }
        Ok(())
    }

    /// Removes a file and says how large it was.
    fn discard(&self, name: &Path, dry_run: bool) -> Result<u64> {
        let bytes = self.folder.symlink_metadata(name).map_or(0, |file| file.len());
        if !dry_run {
            self.folder.remove_file(name).map_err(|error| disk::lost("a leftover", error))?;
        }
        Ok(bytes)
    }

    /// All records, newest first.
    pub(super) fn everything(&self) -> Result<Vec<Artifact>> {
        let mut query = Query { limit: Some(PAGE), ..Query::default() };
        let mut artifacts = Vec::new();
        loop {
            let page = self.list(&query)?;
            artifacts.extend(page.artifacts);
            query.after = page.next;
            if query.after.is_none() {
                return Ok(artifacts);
            }
        }
    }
}
