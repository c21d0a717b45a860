//! A table of the records, to search them: never the truth, made again from the files whenever it is missing or damaged.
//!
//! Each row remembers the size and time of the file that it was read from, so that opening a store reads only what has
//! changed, whoever changed it.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params, params_from_iter};
use serde_json::Value;

use super::id::Id;
use super::record::Artifact;
use crate::error::{Code, Error, Result};

/// The file's name in the store's folder.
pub(super) const FILE: &str = ".index.sqlite3";
/// The form of the tables; an index of another form is thrown away.
const VERSION: i64 = 1;
/// Bytes of a record's words that are searched.
const WORDS_BYTES: usize = 64 << 10;
/// Artifacts of a page, at most.
pub(super) const PAGE: usize = 1000;

const TABLES: &str = "
    create table artifact (
        row integer primary key, id text not null unique, created integer not null, content_type text not null, size_bytes integer not null,
        stamp text not null, record text not null
    );
    create index newest on artifact (created desc, id desc);
    create table origin (id text not null, foreign_id text not null, primary key (foreign_id, id)) without rowid;
    create index imported on origin (id);
    create table tag (id text not null, key text not null, value text not null, primary key (id, key)) without rowid;
    create index tagged on tag (key, value);
    create table source (id text not null, source text not null, primary key (id, source)) without rowid;
    create index derived on source (source);
    create virtual table words using fts5 (said, content='', contentless_delete=1);
";

/// What to list; everything, newest first, without.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Artifacts of a page; 100 without, 1000 at most.
    pub limit: Option<usize>,
    /// Where the last page ended: its [`Page::next`].
    pub after: Option<String>,
    /// A kind of content, whole or its first half: `image/png`, `image`.
    pub content_type: Option<String>,
    /// A tag: its key, or key and value as `task=text_to_image`.
    pub tag: Option<String>,
    /// Words that stand in names, tags, prompts or settings; the last may be unfinished.
    pub text: Option<String>,
}

/// A part of a list.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// Newest first.
    pub artifacts: Vec<Artifact>,
    /// [`Query::after`] of the next page; `None` at the end.
    pub next: Option<String>,
}

/// The open table.
#[derive(Debug)]
pub(super) struct Index(Connection);

impl Index {
    /// Opens the index of a folder; one that is damaged, or of another form, is made anew, empty. Under the lock.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE);
        match Self::connect(&path) {
            Ok(Some(index)) => return Ok(index),
            Err(error) if !is_damage(&error) => return Err(failed(error)),
            _ => {}
        }
        for ending in ["", "-wal", "-shm", "-journal"] {
            let _ = std::fs::remove_file(folder.join(format!("{FILE}{ending}")));
        }
        let made = Self::connect(&path).map_err(failed)?;
        made.ok_or_else(|| Error::new(Code::StoreIo, "the index of the store could not be made anew"))
    }

    /// `None` if the tables are of another form.
    fn connect(path: &Path) -> rusqlite::Result<Option<Self>> {
        let mut connection = Connection::open(path)?;
        connection.busy_timeout(Duration::from_secs(30))?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "normal")?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let version: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if version == 0 {
            transaction.execute_batch(TABLES)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
        }
        transaction.commit()?;
        Ok([0, VERSION].contains(&version).then_some(Self(connection)))
    }

    /// The stamp of each row.
    pub(super) fn stamps(&self) -> Result<HashMap<String, String>> {
        let mut statement = self.0.prepare("select id, stamp from artifact").map_err(failed)?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(failed)?;
        rows.collect::<rusqlite::Result<_>>().map_err(failed)
    }

    /// Takes records in and out, all or none.
    pub(super) fn change(&mut self, gone: &[&str], new: &[(Artifact, String)]) -> Result<()> {
        let transaction = self.0.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        for id in gone.iter().copied().chain(new.iter().map(|(artifact, _)| artifact.id.as_str())) {
            forget(&transaction, id).map_err(failed)?;
        }
        for (artifact, stamp) in new {
            insert(&transaction, artifact, stamp)?;
        }
        transaction.commit().map_err(failed)
    }

    /// A page of records.
    pub(super) fn list(&self, query: &Query) -> Result<Page> {
        let limit = query.limit.unwrap_or(100).clamp(1, PAGE);
        let mut conditions = vec!["true".to_owned()];
        let mut values: Vec<rusqlite::types::Value> = Vec::new();
        let mut ask = |condition: &str, given: Vec<rusqlite::types::Value>| {
            conditions.push(condition.to_owned());
            values.extend(given);
        };
        if let Some(after) = &query.after {
            let place = after.split_once('-').and_then(|(time, id)| Some((time.parse::<i64>().ok()?, id)));
            let Some((time, id)) = place else {
                return Err(Error::argument("after", "this is not where a page ended").hint("leave it out"));
            };
            ask("(created, artifact.id) < (?, ?)", vec![time.into(), id.to_owned().into()]);
        }
        if let Some(kind) = &query.content_type {
            let kind = kind.to_ascii_lowercase();
            let whole = format!("{}/", kind.trim_end_matches(['/', '*']));
            ask(
                "(content_type = ? or substr(content_type, 1, length(?)) = ?)",
                vec![kind.into(), whole.clone().into(), whole.into()],
            );
        }
        if let Some(tag) = &query.tag {
            let (key, value) =
                tag.split_once('=').map_or((tag.as_str(), None), |(key, value)| (key, Some(value)));
            ask(
                "artifact.id in (select id from tag where key = ? and value = coalesce(?, value))",
                vec![key.to_owned().into(), value.map(str::to_owned).into()],
            );
        }
        if let Some(words) = query.text.as_deref().and_then(phrase) {
            ask("artifact.row in (select rowid from words where words match ?)", vec![words.into()]);
        }
        let sql = format!(
            "select record, created, id from artifact where {} order by created desc, id desc limit {}",
            conditions.join(" and "),
            limit + 1
        );
        let mut statement = self.0.prepare_cached(&sql).map_err(failed)?;
        let rows = statement
            .query_map(params_from_iter(values), |row| {
                Ok((
                    row.get::<_, String>(0)?,
                    format!("{}-{}", row.get::<_, i64>(1)?, row.get::<_, String>(2)?),
                ))
            })
            .map_err(failed)?;
        let mut rows = rows.collect::<rusqlite::Result<Vec<_>>>().map_err(failed)?;
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| more).map(|(_, place)| place.clone());
        let artifacts = rows.iter().map(|(record, _)| read(record)).collect::<Result<_>>()?;
        Ok(Page { artifacts, next })
    }

    /// How many artifacts there are, and their bytes.
    pub(super) fn total(&self) -> Result<(u64, u64)> {
        self.0
            .query_row("select count(*), coalesce(sum(size_bytes), 0) from artifact", [], |row| {
                Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64))
            })
            .map_err(failed)
    }

    /// The artifact that had this id where it was imported from.
    pub(super) fn with_origin(&self, origin: &str) -> Result<Option<String>> {
        self.0
            .query_row(
                "select id from origin join artifact using (id) where foreign_id = ?1 order by created desc limit 1",
                [origin],
                |row| row.get(0),
            )
            .optional()
            .map_err(failed)
    }

    /// Everything that an artifact was made from, or that was made from it, at any remove.
    pub(super) fn related(&self, id: &Id, derived: bool) -> Result<BTreeSet<Id>> {
        let (from, to) = if derived { ("source", "id") } else { ("id", "source") };
        let sql = format!(
            "with recursive found (id) as (select {to} from source where {from} = ?1
             union select source.{to} from source join found on source.{from} = found.id) select id from found"
        );
        let mut statement = self.0.prepare_cached(&sql).map_err(failed)?;
        let rows = statement.query_map([id.as_str()], |row| row.get::<_, String>(0)).map_err(failed)?;
        rows.map(|row| Id::parse(&row.map_err(failed)?)).collect()
    }
}

fn read(record: &str) -> Result<Artifact> {
    serde_json::from_str(record)
        .map_err(|error| Error::internal("a record in the index is damaged").because(error))
}

/// Takes everything out that is known of an id.
fn forget(transaction: &Transaction<'_>, id: &str) -> rusqlite::Result<()> {
    for condition in [
        "words where rowid = (select row from artifact where id = ?1)",
        "artifact where id = ?1",
        "tag where id = ?1",
        "source where id = ?1",
        "origin where id = ?1",
    ] {
        transaction.prepare_cached(&format!("delete from {condition}"))?.execute([id])?;
    }
    Ok(())
}

fn insert(transaction: &Transaction<'_>, artifact: &Artifact, stamp: &str) -> Result<()> {
    let record = serde_json::to_string(artifact)
        .map_err(|error| Error::internal("a record has no JSON").because(error))?;
    let id = artifact.id.as_str();
    let run = |sql: &str, values: &[&dyn rusqlite::ToSql]| {
        transaction.prepare_cached(sql).and_then(|mut statement| statement.execute(values)).map_err(failed)
    };
    run(
        "insert into artifact (id, created, content_type, size_bytes, stamp, record)
         values (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            id,
            artifact.created(),
            artifact.content_type.to_ascii_lowercase(),
            artifact.size_bytes as i64,
            stamp,
            record
        ],
    )?;
    for (key, value) in &artifact.tags {
        run("insert into tag (id, key, value) values (?1, ?2, ?3)", params![id, key, value])?;
    }
    for source in &artifact.more.source_refs {
        run(
            "insert or ignore into source (id, source) values (?1, ?2)",
            params![id, source.artifact.as_str()],
        )?;
    }
    for origin in &artifact.more.origins {
        run(
            "insert or ignore into origin (id, foreign_id) values (?1, ?2)",
            params![id, origin.artifact_id],
        )?;
    }
    run(
        "insert into words (rowid, said) values ((select row from artifact where id = ?1), ?2)",
        params![id, words(artifact)],
    )?;
    Ok(())
}

/// All that a person may search a record by.
fn words(artifact: &Artifact) -> String {
    fn gather(value: &Value, words: &mut String) {
        match value {
            Value::String(text) if words.len() + text.len() < WORDS_BYTES => {
                words.push_str(text);
                words.push('\n');
            }
            Value::Array(values) => values.iter().for_each(|value| gather(value, words)),
            Value::Object(values) => values.values().for_each(|value| gather(value, words)),
            _ => {}
        }
    }
    let mut words = format!("{}\n", artifact.filename.as_deref().unwrap_or(""));
    artifact.tags.values().for_each(|tag| gather(&tag.as_str().into(), &mut words));
    artifact.metadata.values().for_each(|value| gather(value, &mut words));
    artifact.more.recipe.iter().for_each(|recipe| gather(recipe, &mut words));
    words
}

/// Words as FTS5 takes them: each quoted, so that none is an operator, the last open at its end.
fn phrase(text: &str) -> Option<String> {
    let spoken = |word: &&str| word.chars().any(char::is_alphanumeric);
    let words = text.split_whitespace().filter(spoken);
    let words: Vec<_> = words.map(|word| format!("\"{}\"", word.replace('"', "\"\""))).collect();
    (!words.is_empty()).then(|| format!("{}*", words.join(" ")))
}

fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
}

fn failed(error: rusqlite::Error) -> Error {
    let code = match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => Code::StoreFull,
        _ => Code::StoreIo,
    };
    Error::new(code, "the index of the store failed").because(error)
}
