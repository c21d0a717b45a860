//! One file, from a hub to a folder: its head compared with the listing, its bytes hashed as they are stored.
//!
//! The bytes lie under a name that holds the digest they should have, so what is left of a broken transfer is only ever
//! continued towards the same file.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use ureq::Body;
use ureq::http::Response;

use super::hub::{Ask, Failure, Hub, header, pause};
use super::listing::{Digest, Listed};
use super::plan::Plan;
use super::staging::{lost, sync_folder};
use crate::error::{Code, Error, Result};

/// Bytes that are read at a time.
const CHUNK: usize = 256 << 10;
/// Transfers in a row that end early and bring nothing new.
const FRUITLESS: u32 = 3;

/// Both digests of a file, in one pass.
pub(super) struct Sums {
    sha256: Sha256,
    git: Sha1,
}

impl Sums {
    /// For a file of this size.
    pub(super) fn new(bytes: u64) -> Self {
        let mut git = Sha1::new();
        git.update(format!("blob {bytes}\0"));
        Self { sha256: Sha256::new(), git }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.sha256.update(bytes);
        self.git.update(bytes);
    }

    /// The sha256, and whether the file is the one with this digest.
    pub(super) fn finish(self, expected: &Digest) -> (String, bool) {
        let sha256 = hex(&self.sha256.finalize());
        let right = match expected {
            Digest::Sha256(digest) => *digest == sha256,
            Digest::Git(digest) => *digest == hex(&self.git.finalize()),
        };
        (sha256, right)
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Compares a file's head with the listing: its etag is the digest, its size the size, its commit the commit.
pub(super) fn check_head(hub: &Hub, plan: &Plan, file: &Listed, path: &str) -> Result<(), Failure> {
    let answer = hub.ask(&Ask { path, what: &file.path, head: true, range: None })?;
    let headers = answer.headers();
    let corrupt = |why: &str| {
        let message = format!("`{}`: the hub's head for it {why}", file.path);
        Failure::from(
            Error::new(Code::DownloadCorrupt, message).hint("its makers may be changing it: pull again"),
        )
    };
    let etag = header(headers, "x-linked-etag").or_else(|| header(headers, "etag"));
    let etag = etag.ok_or_else(|| corrupt("has no etag"))?;
    let etag = etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"');
    let named = Digest::read(etag).ok_or_else(|| corrupt("has an etag that is no digest"))?;
    let same_kind = |digest: &&Digest| std::mem::discriminant(*digest) == std::mem::discriminant(&named);
    if file.digest.as_ref().filter(same_kind).is_some_and(|digest| *digest != named) {
        return Err(corrupt("names another digest than its listing"));
    }
    let size = header(headers, "x-linked-size")
        .or_else(|| header(headers, "content-length").filter(|_| answer.status().is_success()));
    match size.map(str::parse::<u64>) {
        Some(Ok(size)) if size != file.bytes => {
            return Err(corrupt(&format!("names {size} bytes, its listing {}", file.bytes)));
        }
        Some(Err(_)) => return Err(corrupt("names a size that is none")),
        _ => {}
    }
    match header(headers, "x-repo-commit") {
        Some(commit) if commit != plan.commit => Err(corrupt("names another commit than its listing")),
        _ => Ok(()),
    }
}

/// A file on its way.
struct Part<'a> {
    file: &'a Listed,
    digest: &'a Digest,
    path: PathBuf,
    handle: File,
    at: u64,
    sums: Sums,
    /// Whether bytes of an earlier transfer are among them.
    resumed: bool,
}

/// Brings one file into a folder, whole; gives back its sha256.
///
/// `tell` hears how many bytes of it are there, and how many of them were fetched since it was last told.
pub(super) fn fetch(
    hub: &Hub,
    plan: &Plan,
    file: &Listed,
    folder: &Path,
    tell: &dyn Fn(u64, u64),
) -> Result<String> {
    let digest = file.digest.as_ref().ok_or_else(|| Error::internal("a file without a digest is fetched"))?;
    let place = folder.join(&file.path);
    if let Some(parent) = place.parent() {
        fs::create_dir_all(parent).map_err(|error| lost(&error, &file.path))?;
    }
    if place.is_file() {
        if let Some(sha256) = already(hub, &place, file, digest, tell)? {
            return Ok(sha256);
        }
        fs::remove_file(&place).map_err(|error| lost(&error, &file.path))?;
    }
    let address = plan.address(&file.path);
    hub.patiently(|| check_head(hub, plan, file, &address))?;
    let mut part = Part::open(hub, folder, file, digest)?;
    let sha256 = part.complete(hub, &address, tell)?;
    part.publish(&place)?;
    Ok(sha256)
}

/// The sha256 of a file that is there already, if it is the right one.
fn already(
    hub: &Hub,
    place: &Path,
    file: &Listed,
    digest: &Digest,
    tell: &dyn Fn(u64, u64),
) -> Result<Option<String>> {
    let mut handle = File::open(place).map_err(|error| lost(&error, &file.path))?;
    let (length, sums) = hash(hub, &mut handle, file)?;
    if length != file.bytes {
        return Ok(None);
    }
    let (sha256, right) = sums.finish(digest);
    if right {
        tell(length, 0);
    }
    Ok(right.then_some(sha256))
}

/// Hashes what is in a file, up to the size it should have.
fn hash(hub: &Hub, handle: &mut File, file: &Listed) -> Result<(u64, Sums)> {
    let mut sums = Sums::new(file.bytes);
    let mut buffer = vec![0; CHUNK];
    let mut length = 0;
    loop {
        hub.check()?;
        match handle.read(&mut buffer).map_err(|error| lost(&error, &file.path))? {
            0 => return Ok((length, sums)),
            count => {
                sums.update(&buffer[..count]);
                length += count as u64;
            }
        }
    }
}

/// The sha256 of a file.
pub(super) fn sha256(path: &Path) -> std::io::Result<String> {
    let mut handle = File::open(path)?;
    let mut sum = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    loop {
        match handle.read(&mut buffer)? {
            0 => return Ok(hex(&sum.finalize())),
            count => sum.update(&buffer[..count]),
        }
    }
}

/// The file that holds the etag of the bytes that are there.
fn etag_of(part: &Path) -> PathBuf {
    part.with_extension("etag")
}

impl<'a> Part<'a> {
    /// Opens what is left of an earlier transfer, or begins.
    fn open(hub: &Hub, folder: &Path, file: &'a Listed, digest: &'a Digest) -> Result<Self> {
        let failed = |error: std::io::Error| lost(&error, &file.path);
        let [name, _] = waiting(file, digest);
        let path = folder.join(name);
        let mut handle = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(failed)?;
        let (at, sums) = hash(hub, &mut handle, file)?;
        let mut part = Self { file, digest, path, handle, at, sums, resumed: at > 0 };
        if part.at > file.bytes {
            part.restart()?;
        }
        Ok(part)
    }

    /// Forgets every byte.
    fn restart(&mut self) -> Result<()> {
        let failed = |error: std::io::Error| lost(&error, &self.file.path);
        self.handle.set_len(0).map_err(failed)?;
        self.handle.seek(SeekFrom::Start(0)).map_err(failed)?;
        let _ = fs::remove_file(etag_of(&self.path));
        self.at = 0;
        self.sums = Sums::new(self.file.bytes);
        self.resumed = false;
        Ok(())
    }

    /// Repeats and continues until the file is whole, and compares its digest.
    fn complete(&mut self, hub: &Hub, address: &str, tell: &dyn Fn(u64, u64)) -> Result<String> {
        tell(self.at, 0);
        loop {
            if let Err(error) = self.fill(hub, address, tell) {
                if error.code == Code::DownloadCorrupt {
                    self.forget();
                }
                return Err(error);
            }
            let sums = std::mem::replace(&mut self.sums, Sums::new(self.file.bytes));
            let (sha256, right) = sums.finish(self.digest);
            if right {
                return Ok(sha256);
            }
            if !self.resumed {
                self.forget();
                let message = format!(
                    "`{}` arrived with {} bytes, as listed, but its digest is not {}",
                    self.file.path,
                    self.file.bytes,
                    self.digest.hex()
                );
                return Err(Error::new(Code::DownloadCorrupt, message).hint(
                    "it was deleted; pull again, and if that repeats itself, distrust what is on the way",
                ));
            }
            // The beginning may be of another day: once more from nothing.
            self.restart()?;
        }
    }

    /// Asks for what is missing until nothing is.
    fn fill(&mut self, hub: &Hub, address: &str, tell: &dyn Fn(u64, u64)) -> Result<()> {
        let (mut most, mut fruitless) = (self.at, 0);
        while self.at < self.file.bytes {
            let body = hub.patiently(|| self.request(hub, address))?;
            let Err(failure) = self.take(hub, body, tell) else { continue };
            fruitless = if self.at > most { 0 } else { fruitless + 1 };
            most = most.max(self.at);
            if !failure.again || fruitless == FRUITLESS {
                return Err(failure.error);
            }
            hub.rest(pause(fruitless, 100))?;
        }
        Ok(())
    }

    /// One request for what is missing.
    fn request(&mut self, hub: &Hub, address: &str) -> Result<Body, Failure> {
        let etag = fs::read_to_string(etag_of(&self.path)).ok().filter(|text| is_etag(text));
        let range = (self.at > 0).then_some((self.at, etag.as_deref()));
        let answer = match hub.ask(&Ask { path: address, what: &self.file.path, head: false, range }) {
            // A range that is refused: the server may know the whole.
            Err(failure) if failure.status == Some(416) && self.at > 0 => {
                self.restart()?;
                return Err(Failure::passing(failure.error));
            }
            answer => answer?,
        };
        self.check_answer(&answer)?;
        if self.at == 0 {
            self.remember_etag(&answer);
        }
        Ok(answer.into_body())
    }

    /// Whether this is an answer with the bytes that are missing.
    fn check_answer(&mut self, answer: &Response<Body>) -> Result<(), Failure> {
        let headers = answer.headers();
        let name = self.file.path.clone();
        let corrupt = |why: String| {
            let message = format!("`{name}` {why}");
            Failure::from(
                Error::new(Code::DownloadCorrupt, message).hint("is a portal or a proxy on the way?"),
            )
        };
        let kind = header(headers, "content-type").unwrap_or("").to_ascii_lowercase();
        if kind.starts_with("text/html") {
            return Err(corrupt("came as a page of HTML, not as a file".into()));
        }
        let packed = header(headers, "content-encoding").unwrap_or("identity");
        if !packed.eq_ignore_ascii_case("identity") {
            return Err(corrupt("came packed, which was not asked for".into()));
        }
        if answer.status().as_u16() == 206 {
            let range = header(headers, "content-range").unwrap_or("");
            let expected = format!("bytes {}-{}/{}", self.at, self.file.bytes - 1, self.file.bytes);
            if self.at == 0 || range != expected {
                self.restart()?;
                let message = format!("`{name}`: the server sends other bytes than were asked for");
                return Err(Failure::passing(Error::new(Code::DownloadFailed, message)));
            }
        } else if self.at > 0 {
            self.restart()?;
        }
        let missing = self.file.bytes - self.at;
        match header(headers, "content-length").map(str::parse::<u64>) {
            Some(Ok(length)) if length != missing => {
                Err(corrupt(format!("comes with {length} bytes, and {missing} are expected")))
            }
            Some(Err(_)) => Err(corrupt("comes with a length that is none".into())),
            _ => Ok(()),
        }
    }

    /// Appends a body, hashing it, and never more of it than the file has.
    fn take(&mut self, hub: &Hub, body: Body, tell: &dyn Fn(u64, u64)) -> Result<(), Failure> {
        let name = self.file.path.clone();
        let mut body = body.into_with_config().limit(u64::MAX).reader();
        let mut buffer = vec![0; CHUNK];
        loop {
            hub.check()?;
            let count = match body.read(&mut buffer) {
                Ok(0) if self.at < self.file.bytes => return Err(self.cut("the connection was closed")),
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) => {
                    hub.check()?;
                    return Err(self.cut(&error.kind().to_string()));
                }
            };
            if self.at + count as u64 > self.file.bytes {
                let message = format!("`{name}` comes with more than its {} bytes", self.file.bytes);
                return Err(Error::new(Code::DownloadCorrupt, message).into());
            }
            self.handle.write_all(&buffer[..count]).map_err(|error| lost(&error, &name))?;
            self.sums.update(&buffer[..count]);
            self.at += count as u64;
            tell(self.at, count as u64);
        }
    }

    fn cut(&self, why: &str) -> Failure {
        let message =
            format!("`{}` broke off at {} of {} bytes: {why}", self.file.path, self.at, self.file.bytes);
        Failure::passing(
            Error::new(Code::DownloadFailed, message)
                .hint("the same command again goes on where this one ended"),
        )
    }

    /// Keeps the etag of the server that sends the bytes, so that it continues only the same ones.
    fn remember_etag(&self, answer: &Response<Body>) {
        let etag = header(answer.headers(), "etag").filter(|text| is_etag(text));
        // Without it the digest at the end decides alone.
        let _ = match etag {
            Some(etag) => fs::write(etag_of(&self.path), etag),
            None => fs::remove_file(etag_of(&self.path)),
        };
    }

    /// Deletes what arrived.
    fn forget(&self) {
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(etag_of(&self.path));
    }

    /// Forces the bytes to disk and gives them their name.
    fn publish(self, place: &Path) -> Result<()> {
        let write = || {
            self.handle.sync_all()?;
            fs::rename(&self.path, place)?;
            sync_folder(place.parent().unwrap_or(place))
        };
        write().map_err(|error| lost(&error, &self.file.path))?;
        let _ = fs::remove_file(etag_of(&self.path));
        Ok(())
    }
}

/// Where a file waits while it is not whole, and where the etag of its bytes is: paths in the folder of its model.
pub(super) fn waiting(file: &Listed, digest: &Digest) -> [String; 2] {
    let (folder, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
    let slash = if folder.is_empty() { "" } else { "/" };
    let name: String = name.chars().take(60).collect();
    ["part", "etag"].map(|ending| format!("{folder}{slash}.{name}.{}.{ending}", digest.hex()))
}

/// A strong etag as it may be sent back.
fn is_etag(text: &str) -> bool {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    inner.is_some_and(|inner| {
        inner.len() <= 256 && inner.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"')
    })
}
