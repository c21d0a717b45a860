//! `latentia generate`: pictures from a prompt.

use std::ffi::OsString;
use std::io::{IsTerminal, Write, stdout};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::super::progress::Progress;
use super::{home, lost_output, store};
use crate::artifact::store::Store;
use crate::artifact::{self, Existing};
use crate::error::{Code, Error, Result};
use crate::event::{Cancel, Watch};
use crate::kernel;
use crate::studio::{DeviceClass, Picture, Plan, Precision, Request, Studio};
use crate::weights::sha256;

/// The arguments of `latentia generate`.
#[derive(Debug, Args)]
pub(super) struct Generate {
    /// What to draw.
    #[arg(required_unless_present = "from")]
    prompt: Option<String>,
    /// A model folder, a .safetensors file, or the name of an installed model; the embedded model without.
    #[arg(short, long)]
    model: Option<String>,
    /// A folder of configs, for a single file whose shapes cannot tell.
    #[arg(long, value_name = "FOLDER", requires = "model")]
    config: Option<PathBuf>,
    /// A file with a text encoder or an autoencoder that the model lacks, or in place of its own; may be repeated.
    #[arg(long = "part", value_name = "FILE", requires = "model")]
    parts: Vec<PathBuf>,
    /// What not to draw.
    #[arg(long, value_name = "PROMPT")]
    negative: Option<String>,
    /// Pixels, as WIDTHxHEIGHT.
    #[arg(long, value_name = "WxH", value_parser = read_size)]
    size: Option<[usize; 2]>,
    /// Steps from noise to picture.
    #[arg(long)]
    steps: Option<usize>,
    /// How strongly the prompt pulls; 1 does without the negative prompt.
    #[arg(long, allow_negative_numbers = true)]
    guidance: Option<f64>,
    /// Brings the guided estimate back to its own deviation, 0 to 1.
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    guidance_rescale: Option<f64>,
    #[arg(
        long,
        help = "The sampler: euler, euler_a, dpmpp_2m_karras, unipc, ddim, lcm, …; the model's own without"
    )]
    sampler: Option<String>,
    /// Share of fresh noise a step, for samplers that take one.
    #[arg(long, allow_negative_numbers = true)]
    eta: Option<f64>,
    /// Last layers of the text encoder to leave out.
    #[arg(long, value_name = "LAYERS")]
    clip_skip: Option<usize>,
    /// Seed of the first picture; picture i has seed + i. [default: 0]
    #[arg(long)]
    seed: Option<u64>,
    /// How many pictures.
    #[arg(short = 'n', long, value_name = "COUNT")]
    count: Option<usize>,
    /// A safetensors file with a tensor `latents` to start from.
    #[arg(long, value_name = "FILE")]
    latents: Option<PathBuf>,
    /// Repeats a picture from the recipe in its PNG.
    #[arg(long, value_name = "PICTURE", conflicts_with_all = ["prompt", "negative", "size", "steps", "guidance",
        "guidance_rescale", "sampler", "eta", "clip_skip", "seed", "count"])]
    from: Option<PathBuf>,
    /// Where to write: a .png file, a folder, or - for standard output.
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Keeps the pictures in the store and prints their refs; files are written only with -o.
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    store: Option<OsString>,
    /// Leaves the recipe out of the PNG.
    #[arg(long)]
    no_metadata: bool,
    /// Prints one JSON object instead of paths.
    #[arg(long)]
    pub(super) json: bool,
    /// Where to run.
    #[arg(long, value_enum, default_value = "cpu")]
    device: DeviceArg,
    /// How weights are kept in memory.
    #[arg(long, value_enum, default_value = "auto")]
    dtype: DtypeArg,
    /// Threads to compute with; as many as there are cores without.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Shows no progress.
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DeviceArg {
    Cpu,
    Cuda,
    Metal,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DtypeArg {
    Auto,
    F32,
    F16,
    Bf16,
}

fn read_size(text: &str) -> std::result::Result<[usize; 2], String> {
    let sides = text.split_once(['x', 'X', '×']);
    let side = |text: &str| text.trim().parse::<usize>().ok();
    sides
        .and_then(|(width, height)| Some([side(width)?, side(height)?]))
        .ok_or_else(|| format!("{text:?} is not a size; write WIDTHxHEIGHT, such as 512x768"))
}

/// Ctrl-C asks the job to stop; a second one ends the process at once.
pub(super) fn listen_for_interrupts() -> Cancel {
    let cancel = Cancel::default();
    let asked = cancel.clone();
    let handler = move || {
        if asked.is_cancelled() {
            std::process::exit(i32::from(Code::Cancelled.exit()));
        }
        asked.cancel();
    };
    // Without a handler the signal ends the process as it always did.
    let _ = ctrlc::set_handler(handler);
    cancel
}

pub(super) fn run(arguments: &Generate) -> Result<()> {
    let count = arguments.count.unwrap_or(1);
    let destination = Destination::read(arguments.output.as_deref(), count)?;
    // Without a folder the option is there and empty.
    let folder =
        arguments.store.as_deref().map(|folder| Some(Path::new(folder)).filter(|_| !folder.is_empty()));
    let store = folder.map(store).transpose()?;
    if store.is_some() && matches!(destination, Destination::Stdout) {
        return Err(Error::argument("store", "a ref and the bytes do not both fit standard output"));
    }
    let destination = Some(destination).filter(|_| store.is_none() || arguments.output.is_some());
    let mut progress = Progress::new(arguments.quiet);
    let mut files = Vec::new();
    let outcome = {
        let mut watch = Watch::new(listen_for_interrupts(), |event| progress.show(event));
        draw(arguments, &mut watch, |index, picture| {
            let file =
                finish((index, picture), !arguments.no_metadata, destination.as_ref(), store.as_ref())?;
            if !arguments.json {
                print_path(&file)?;
            }
            files.push(file);
            Ok(())
        })
    };
    progress.finish();
    if arguments.json && !files.is_empty() {
        let took = progress.took.iter().map(|(stage, took)| (json!(stage), took.as_secs_f64() * 1e3));
        let took: serde_json::Map<String, Value> =
            took.filter_map(|(stage, ms)| Some((stage.as_str()?.to_owned(), json!(ms.round())))).collect();
        let answer = json!({ "images": files, "warnings": progress.notes, "timings_ms": took });
        writeln!(stdout(), "{answer}").map_err(lost_output)?;
    }
    outcome
}

/// Brings one picture where it shall go, and describes it.
fn finish(
    (index, picture): (usize, &Picture),
    metadata: bool,
    destination: Option<&Destination>,
    store: Option<&Store>,
) -> Result<Value> {
    let bytes = picture.png(metadata)?;
    let mut file = json!({
        "content_type": "image/png",
        "size_bytes": bytes.len(),
        "sha256": sha256(&bytes),
        "width": picture.plan.width,
        "height": picture.plan.height,
        "seed": picture.plan.seed,
        "recipe": picture.plan,
    });
    if let Some(store) = store {
        let name = format!("{}-{}.png", stem(&picture.plan), picture.plan.seed);
        file["artifact"] = picture.keep(store, &bytes, metadata.then_some(&*name), metadata)?.reference();
    }
    if let Some(destination) = destination {
        file["path"] = json!(destination.write(index, &picture.plan, &bytes)?);
    }
    Ok(file)
}

/// One line for a ref, one for a file; bytes on standard output need no line.
fn print_path(file: &Value) -> Result<()> {
    if let Some(reference) = file.get("artifact") {
        writeln!(stdout(), "{reference}").map_err(lost_output)?;
    }
    match file["path"].as_str() {
        Some(path) if path != "-" => writeln!(stdout(), "{path}").map_err(lost_output),
        _ => Ok(()),
    }
}

/// Opens the model and draws, handing over each picture as it is finished.
fn draw(
    arguments: &Generate,
    watch: &mut Watch<'_>,
    finished: impl FnMut(usize, &Picture) -> Result<()>,
) -> Result<()> {
    prepare_processor(arguments.threads)?;
    let studio = Studio::open(&home());
    let device = match arguments.device {
        DeviceArg::Cpu => DeviceClass::Cpu,
        DeviceArg::Cuda => DeviceClass::Cuda,
        DeviceArg::Metal => DeviceClass::Metal,
    };
    let precision = match arguments.dtype {
        DtypeArg::Auto => Precision::Auto,
        DtypeArg::F32 => Precision::F32,
        DtypeArg::F16 => Precision::F16,
        DtypeArg::Bf16 => Precision::Bf16,
    };
    let model = arguments.model.as_deref();
    if let Some(picture) = &arguments.from {
        let plan = Plan::from_picture(picture)?;
        let model = model.or_else(|| plan.model.needed());
        let precision = match precision {
            Precision::Auto => Precision::named(&plan.dtype).unwrap_or_default(),
            asked => asked,
        };
        let mut model =
            studio.model_with(model, arguments.config.as_deref(), &arguments.parts, device, precision)?;
        return studio.repeat(&mut model, plan, arguments.latents.as_deref(), watch, finished);
    }
    let mut model =
        studio.model_with(model, arguments.config.as_deref(), &arguments.parts, device, precision)?;
    studio.generate(&mut model, &arguments.request(), watch, finished)
}

/// Sizes the one pool of threads, and takes the oracle's operators if `LATENTIA_KERNELS` is `reference`.
fn prepare_processor(threads: Option<u16>) -> Result<()> {
    let kernels = std::env::var_os("LATENTIA_KERNELS").unwrap_or_default();
    match kernels.to_str() {
        Some("reference") => kernel::use_reference(true),
        Some("") => {}
        _ => {
            let message = format!("LATENTIA_KERNELS is {}; the only value is reference", kernels.display());
            return Err(Error::argument("LATENTIA_KERNELS", message));
        }
    }
    let Some(threads) = threads else { return Ok(()) };
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads.into())
        .build_global()
        .map_err(|error| Error::internal("the pool of threads could not be made").because(error))
}

impl Generate {
    /// What is asked for, in the studio's words.
    fn request(&self) -> Request {
        Request {
            prompt: self.prompt.clone().unwrap_or_default(),
            negative: self.negative.clone(),
            size: self.size,
            steps: self.steps,
            guidance: self.guidance,
            guidance_rescale: self.guidance_rescale,
            sampler: self.sampler.clone(),
            eta: self.eta,
            clip_skip: self.clip_skip,
            seed: self.seed,
            count: self.count,
            latents: self.latents.clone(),
        }
    }
}

/// Where pictures go.
enum Destination {
    /// This file; several pictures get a number before the ending.
    File { path: PathBuf, count: usize },
    /// A folder, with names made of prompt and seed that overwrite nothing.
    Folder(PathBuf),
    /// Standard output.
    Stdout,
}

impl Destination {
    /// Refuses what could not be written, before any work.
    fn read(output: Option<&Path>, count: usize) -> Result<Self> {
        let Some(path) = output else { return Ok(Self::Folder(PathBuf::from("."))) };
        if path.as_os_str() == "-" {
            if count != 1 {
                return Err(Error::argument("output", "only one picture fits standard output"));
            }
            if stdout().is_terminal() {
                return Err(
                    Error::argument("output", "a terminal cannot show a PNG").hint("redirect the output")
                );
            }
            return Ok(Self::Stdout);
        }
        if path.is_dir() {
            return Ok(Self::Folder(path.to_owned()));
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !parent.is_dir() {
            let message = format!("there is no folder `{}` to write to", parent.display());
            return Err(Error { param: Some("output".into()), ..Error::new(Code::FileNotFound, message) });
        }
        if !path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("png")) {
            let message =
                format!("`{}` does not end in .png, the only format written so far", path.display());
            return Err(Error::argument("output", message));
        }
        Ok(Self::File { path: path.to_owned(), count })
    }

    /// Writes one picture whole or not at all, and says where.
    fn write(&self, index: usize, plan: &Plan, bytes: &[u8]) -> Result<PathBuf> {
        match self {
            Self::Stdout => {
                stdout().write_all(bytes).map_err(lost_output)?;
                Ok(PathBuf::from("-"))
            }
            Self::File { path, count } => {
                let path = if *count == 1 { path.clone() } else { numbered(path, index + 1) };
                artifact::write(&path, bytes, Existing::Replace)?;
                Ok(path)
            }
            Self::Folder(folder) => write_new(folder, plan, bytes),
        }
    }
}

/// `fish.png` → `fish-2.png`.
fn numbered(path: &Path, number: usize) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{number}.png"))
}

/// The words of a prompt as the beginning of a name.
fn stem(plan: &Plan) -> String {
    let letters = plan.prompt.to_lowercase();
    let words = letters.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let stem: String = words.collect::<Vec<_>>().join("-").chars().take(48).collect();
    if stem.is_empty() { "picture".into() } else { stem }
}

/// Writes under a name made of prompt and seed, with a number where that name is taken.
fn write_new(folder: &Path, plan: &Plan, bytes: &[u8]) -> Result<PathBuf> {
    let stem = stem(plan);
    for number in 1..10_000 {
        let name = match number {
            1 => format!("{stem}-{}.png", plan.seed),
            _ => format!("{stem}-{}-{number}.png", plan.seed),
        };
        let path = folder.join(name);
        match artifact::write(&path, bytes, Existing::Keep) {
            Ok(()) => return Ok(path.strip_prefix(".").map(Path::to_owned).unwrap_or(path)),
            Err(error) if error.code == Code::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::new(Code::AlreadyExists, format!("10,000 pictures are called `{stem}`"))
        .hint("name one with -o"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(read_size("512x768"), Ok([512, 768]));
        assert_eq!(read_size("64X64"), Ok([64, 64]));
        assert!(read_size("512").is_err());
        assert!(read_size("512x-1").is_err());
    }
}
