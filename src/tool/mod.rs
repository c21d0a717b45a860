//! What agents and workflows may ask for: one table, the same on the command line, over HTTP and over MCP.
//!
//! A tool is one type: its fields are the arguments, its schema is derived from them, and [`Tool::run`] answers with small
//! refs to artifacts. Faces only carry arguments down and answers up.
//!
//! # Source
//! Names, parameters and defaults of `vision_*`: AbstractVision 0.3.34, MIT. `image_generation`, `view_image`,
//! `image_info`: the public contract of OpenHuman.

mod answer;
mod catalogue;
mod check;
mod control;
mod desk;
mod drawing;
mod edit;
mod export;
mod gate;
mod input;
mod job;
mod jobs;
mod marker;
mod picture;
mod place;
mod record;
mod resident;
mod schema;
mod upscale;
mod video;
mod view;

pub use answer::{Answer, Shown};
pub use desk::{Desk, Rules};
pub use export::{Form, export};
pub use gate::{Guidance, PictureFormat, Switches};
pub use jobs::{Job, Jobs, Listener};
pub use marker::Marked;
pub use picture::preview;
pub use record::{Phase, Progress, Record, State};
pub use resident::Wanted;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Code, Error, Result};
use crate::event::Watch;
use crate::family::Task;
use crate::weights::read_json;

/// Bytes of a request, as every face reads it.
pub const REQUEST_BYTES: usize = 32 << 20;

/// A tool, which is its own arguments.
pub trait Tool: DeserializeOwned + JsonSchema {
    /// What is said of it.
    const ABOUT: About;

    /// Does what is asked for.
    ///
    /// # Errors
    /// What the arguments, the model or the store say.
    fn run(self, desk: &Desk, watch: &mut Watch<'_>) -> Result<Answer>;
}

/// What is said of a tool.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// What it is called by.
    pub name: &'static str,
    /// What it does, in at most 200 characters.
    pub description: &'static str,
    /// When to choose it, in at most 240 characters.
    pub when_to_use: &'static str,
    /// Words to find it by.
    pub tags: &'static [&'static str],
    /// What the model must be able to do, if a model is asked.
    pub task: Option<Task>,
    /// What it answers.
    pub gives: Gives,
}

/// What a tool answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gives {
    /// A ref to one new artifact.
    Ref,
    /// Refs to new artifacts, in the order of seeds or angles.
    Refs,
    /// Saved files and refs.
    Files,
    /// Facts; nothing is made.
    Facts,
    /// An order to a job; nothing is made.
    Order,
}

impl Gives {
    /// Whether pictures are made, which takes its time.
    pub fn works(self) -> bool {
        matches!(self, Self::Ref | Self::Refs | Self::Files)
    }
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// What is said of it.
    pub about: About,
    schema: fn() -> schemars::Schema,
    run: fn(&Desk, Value, &mut Watch<'_>) -> Result<Answer>,
}

const fn entry<T: Tool>() -> Entry {
    Entry { about: T::ABOUT, schema: schema::derive::<T>, run: run::<T> }
}

/// Every tool, in the order in which it is listed.
pub static TOOLS: &[Entry] = &[
    entry::<catalogue::ListAdapters>(),
    entry::<drawing::TextToImage>(),
    entry::<drawing::TextToImageBatch>(),
    entry::<edit::ImageToImage>(),
    entry::<edit::ImageToImageBatch>(),
    entry::<edit::MultiViewImage>(),
    entry::<upscale::ImageUpscale>(),
    entry::<video::TextToVideo>(),
    entry::<video::TextToVideoBatch>(),
    entry::<video::ImageToVideo>(),
    entry::<video::ImageToVideoBatch>(),
    entry::<gate::ImageGeneration>(),
    entry::<view::ViewImage>(),
    entry::<view::ImageInfo>(),
    entry::<catalogue::ListModels>(),
    entry::<job::GetJob>(),
    entry::<job::CancelJob>(),
];

/// Reads arguments that passed the check of their schema.
fn run<T: Tool>(desk: &Desk, arguments: Value, watch: &mut Watch<'_>) -> Result<Answer> {
    let ask: T = serde_json::from_value(arguments)
        .map_err(|error| Error::new(Code::InvalidArgument, "the arguments cannot be read").because(error))?;
    ask.run(desk, watch)
}

/// Arguments as they arrive: one JSON object, no key twice, not deeper than anyone needs.
///
/// # Errors
/// `malformed_request`, `payload_too_large`.
pub fn read_arguments(bytes: &[u8]) -> Result<Value> {
    if bytes.len() > REQUEST_BYTES {
        let message = format!("the request has {} bytes, at most {REQUEST_BYTES} are read", bytes.len());
        return Err(Error::new(Code::PayloadTooLarge, message));
    }
    let value = read_json(bytes, REQUEST_BYTES, "the request").map_err(|error| Error {
        code: if error.code == Code::ConfigInvalid { Code::MalformedRequest } else { error.code },
        ..error
    })?;
    if value.is_object() {
        return Ok(value);
    }
    Err(Error::new(Code::MalformedRequest, "the arguments are not a JSON object"))
}

impl Entry {
    /// Runs the tool on one thread until it is done.
    ///
    /// # Errors
    /// What the arguments, the model or the store say; `internal` if it panics.
    pub fn call(&self, desk: &Desk, arguments: &Value, watch: &mut Watch<'_>) -> Result<Answer> {
        let arguments = self.checked(desk, arguments)?;
        // A bug in one call must not take a server with it.
        let outcome =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (self.run)(desk, arguments, watch)));
        outcome.unwrap_or_else(|_| Err(Error::internal("the tool panicked; this is a bug")))
    }

    /// The arguments, if the schema for the model that they name allows them.
    ///
    /// # Errors
    /// `invalid_argument` naming the argument, what was expected and found; `unsupported_task`, `model_not_found`.
    pub fn checked(&self, desk: &Desk, arguments: &Value) -> Result<Value> {
        if let Some(error) = input::refused(arguments) {
            return Err(error);
        }
        let model = match arguments.get("model") {
            Some(Value::String(name)) => Some(name.as_str()),
            _ => None,
        };
        if let Some(task) = self.about.task {
            desk.require(model, arguments.get("task").and_then(Value::as_str), task)?;
        }
        check::check(&self.schema(desk, model)?, arguments)?;
        Ok(check::without_nulls(arguments))
    }

    /// The JSON Schema of the arguments, with the limits of a model; of the default model without.
    ///
    /// # Errors
    /// What reading the model says.
    pub fn schema(&self, desk: &Desk, model: Option<&str>) -> Result<Value> {
        schema::of(self, desk, model)
    }
}

/// The tools that may be called here.
pub fn exposed(desk: &Desk) -> impl Iterator<Item = &'static Entry> {
    let gates = desk.rules().images;
    // What would only be refused is not offered to a model.
    let idle = gates.generates() && desk.require(None, None, Task::TextToImage).is_err();
    TOOLS.iter().filter(move |entry| {
        let name = entry.about.name;
        !gates.hides(name) && (!idle || name != "image_generation")
    })
}

/// A tool by its name, or by the name of its task: `text_to_image`, `t2i`.
///
/// # Errors
/// `invalid_argument` if there is none, or none that may be called here.
pub fn find(desk: &Desk, name: &str) -> Result<&'static Entry> {
    let named = exposed(desk).find(|entry| entry.about.name == name);
    let of_task = || {
        let name = format!("vision_{}", crate::registry::canonical(name));
        exposed(desk).find(|entry| entry.about.name == name)
    };
    named.or_else(of_task).ok_or_else(|| {
        let names: Vec<&str> = exposed(desk).map(|entry| entry.about.name).collect();
        let shown: String = name.chars().take(80).flat_map(char::escape_default).collect();
        let error = Error::argument("name", format!("there is no tool `{shown}`"));
        match gate::switch_of(name) {
            Some(switch) => error.hint(format!("`{name}` is closed here; {switch} opens it")),
            None => error.hint(format!("tools: {}", names.join(", "))),
        }
    })
}
