//! What every command that draws has in common: its arguments, how it runs, where its pictures go.

use std::ffi::OsString;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::super::progress::Progress;
use super::control::ControlArgs;
use super::destination::{Destination, stem};
use super::sizes::SizesArgs;
use super::{answer, home, lost_output, spoken_bytes, store};
use crate::artifact::store::Store;
use crate::error::{Code, Error, Result};
use crate::event::{Cancel, Watch};
use crate::kernel;
use crate::studio::{
    DeviceClass, Edit, Model, Phase, Picture, Plan, Precision, Request, Sources, Studio, Tiling,
};
use crate::text::{Long, Syntax};
use crate::weights::{Application, Block, sha256};

/// The arguments of every command that draws.
#[derive(Debug, Args)]
pub(super) struct Drawing {
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
    /// What the second text encoder reads, where there is one; the prompt without.
    #[arg(long, value_name = "PROMPT")]
    second_prompt: Option<String>,
    #[arg(
        long,
        value_name = "SYNTAX",
        value_enum,
        help = "How prompts are written: a1111 knows (x), (x:1.2), [x], BREAK and <lora:NAME:0.8> [default: plain]"
    )]
    prompt_syntax: Option<SyntaxArg>,
    /// What becomes of a prompt that is longer than the text encoder. [default: truncate]
    #[arg(long, value_name = "HOW", value_enum)]
    long_prompt: Option<LongArg>,
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
    /// A file of changes to the weights, such as a LoRA, with its strength; may be repeated.
    #[arg(long = "lora", value_name = "FILE[:SCALE]", value_parser = read_lora)]
    loras: Vec<(PathBuf, f64)>,
    /// Whether changes are added to the weights, or at run time to what comes of them. [default: auto]
    #[arg(long, value_name = "HOW", value_enum, conflicts_with = "from")]
    lora_mode: Option<LoraModeArg>,
    /// A file of a word that the model is taught (textual inversion), with the word; may be repeated.
    #[arg(long = "embedding", value_name = "[WORD=]FILE", value_parser = read_embedding)]
    embeddings: Vec<(Option<String>, PathBuf)>,
    /// A model that ends the walk that this one begins: the refiner of SD XL.
    #[arg(long, value_name = "MODEL")]
    refiner: Option<String>,
    /// The share of the walk after which the refiner takes over. [default: 0.8]
    #[arg(long, value_name = "SHARE", requires = "refiner", allow_negative_numbers = true)]
    refiner_from: Option<f64>,
    #[command(flatten)]
    sizes: SizesArgs,
    #[command(flatten)]
    control: ControlArgs,
    /// A safetensors file with a tensor `latents` to start from.
    #[arg(long, value_name = "FILE")]
    latents: Option<PathBuf>,
    /// Repeats a picture from the recipe in its PNG.
    #[arg(long, value_name = "PICTURE", conflicts_with_all = ["prompt", "negative", "size", "steps", "guidance",
        "guidance_rescale", "sampler", "eta", "clip_skip", "seed", "count", "second_prompt", "refiner_from",
        "prompt_syntax", "long_prompt", "vae_tiling"])]
    pub(super) from: Option<PathBuf>,
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
    /// Keeps encoders and denoiser in blocks of small integers: half to a quarter of the memory.
    #[arg(long, value_name = "TYPE", value_parser = read_block, conflicts_with = "dtype")]
    quantize: Option<Block>,
    /// Whether the autoencoder works in overlapping tiles; auto: where the picture does not fit in memory in one piece.
    #[arg(long, value_enum, default_value = "auto")]
    vae_tiling: TilingArg,
    /// Memory to take at most, in gigabytes; what is free without.
    #[arg(long, value_name = "GB", value_parser = read_gigabytes)]
    memory_limit: Option<f64>,
    /// Threads to compute with; as many as there are cores without.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Shows no progress.
    #[arg(short, long)]
    quiet: bool,
}

/// Where to run, as it is typed.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(in crate::face) enum DeviceArg {
    Cpu,
    Cuda,
    Metal,
}

impl DeviceArg {
    pub(in crate::face) fn class(self) -> DeviceClass {
        match self {
            Self::Cpu => DeviceClass::Cpu,
            Self::Cuda => DeviceClass::Cuda,
            Self::Metal => DeviceClass::Metal,
        }
    }
}

/// How prompts are written, as it is typed.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum SyntaxArg {
    Plain,
    A1111,
}

/// How files of changes meet the weights, as it is typed.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum LoraModeArg {
    /// In the weights; at run time where those are kept in blocks.
    Auto,
    /// In the weights, as they are read.
    Fused,
    /// Beside the weights, which stay as they are.
    Runtime,
}

/// What becomes of long prompts, as it is typed.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum LongArg {
    Truncate,
    Chunk,
}

/// How weights are kept, as it is typed.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(in crate::face) enum DtypeArg {
    Auto,
    F32,
    F16,
    Bf16,
}

impl DtypeArg {
    pub(in crate::face) fn precision(self) -> Precision {
        match self {
            Self::Auto => Precision::Auto,
            Self::F32 => Precision::F32,
            Self::F16 => Precision::F16,
            Self::Bf16 => Precision::Bf16,
        }
    }
}

/// When the autoencoder works in tiles, as it is typed.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum TilingArg {
    Auto,
    On,
    Off,
}

fn read_gigabytes(text: &str) -> std::result::Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| *number > 0.0 && *number < 1e6);
    number.ok_or_else(|| format!("{text:?} is not a number of gigabytes"))
}

fn read_block(text: &str) -> std::result::Result<Block, String> {
    let name = |block: &Block| block.name().eq_ignore_ascii_case(text);
    let all = || Block::made().map(|block| block.name().to_ascii_lowercase()).collect::<Vec<_>>().join(", ");
    Block::made().find(name).ok_or_else(|| format!("{text:?} is none of {}", all()))
}

pub(super) fn read_size(text: &str) -> std::result::Result<[usize; 2], String> {
    let sides = text.split_once(['x', 'X', '×']);
    let side = |text: &str| text.trim().parse::<usize>().ok();
    sides
        .and_then(|(width, height)| Some([side(width)?, side(height)?]))
        .ok_or_else(|| format!("{text:?} is not a size; write WIDTHxHEIGHT, such as 512x768"))
}

/// `FILE` or `FILE:SCALE`; what stands behind the last colon is a scale if it is a number.
fn read_lora(text: &str) -> std::result::Result<(PathBuf, f64), String> {
    let split = text.rsplit_once(':').and_then(|(file, scale)| Some((file, scale.parse::<f64>().ok()?)));
    match split {
        Some((file, scale)) if !file.is_empty() && scale.is_finite() => Ok((file.into(), scale)),
        Some(_) => Err(format!("{text:?} is not FILE or FILE:SCALE")),
        None => Ok((text.into(), 1.0)),
    }
}

/// `FILE` or `WORD=FILE`.
fn read_embedding(text: &str) -> std::result::Result<(Option<String>, PathBuf), String> {
    match text.split_once('=') {
        Some((word, file)) if word.is_empty() || file.is_empty() => {
            Err(format!("{text:?} is not FILE or WORD=FILE"))
        }
        Some((word, file)) => Ok((Some(word.into()), file.into())),
        None => Ok((None, text.into())),
    }
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

/// Draws what is asked for and writes it: `edit` is what an edit begins from.
pub(super) fn run(arguments: &Drawing, prompt: Option<&str>, edit: Option<Edit>) -> Result<()> {
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
        draw(arguments, (prompt, edit), &mut watch, |index, picture| {
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

/// Says what a drawing would take in memory, and draws nothing.
pub(super) fn plan(arguments: &Drawing, prompt: Option<&str>, edit: Option<Edit>) -> Result<()> {
    let mut progress = Progress::new(true);
    let mut watch = Watch::new(Cancel::default(), |event| progress.show(event));
    let studio = Studio::open(&home());
    let mut model = arguments.open(
        &studio,
        arguments.model.as_deref(),
        arguments.device.class(),
        arguments.precision(),
    )?;
    let prompt = prompt.unwrap_or_default().to_owned();
    let request = Request { prompt, edit, ..arguments.request() };
    let (plan, forecast) = studio.plan(&mut model, &request, &mut watch)?;
    let mut lines = vec![format!(
        "{}, {}x{}, {} steps, {} on {}",
        plan.model.name, plan.width, plan.height, plan.steps, plan.dtype, plan.device
    )];
    for Phase { stage, model, need } in &forecast.phases {
        let phase = json!(stage);
        let name = phase.as_str().unwrap_or_default();
        let [weights, activations] = [need.weights, need.activations].map(spoken_bytes);
        let whose = if *model == plan.model.name { String::new() } else { format!("  {model}") };
        let total = spoken_bytes(need.total());
        lines.push(format!("{name:>8}  {total:>9}: weights {weights}, activations {activations}{whose}"));
    }
    if let Some(side) = forecast.tile {
        lines.push(format!("the picture is decoded in tiles of {side} latent pixels"));
    }
    let free = forecast.free_bytes.map_or("an unknown amount".into(), spoken_bytes);
    lines.push(format!("at most {} at once; {free} free", spoken_bytes(forecast.peak_bytes)));
    answer(arguments.json, &json!({ "recipe": plan, "memory": forecast }), &lines)?;
    forecast.must_fit(&plan, &model)
}

/// Brings one picture where it shall go, and describes it.
fn finish(
    (index, picture): (usize, &Picture),
    metadata: bool,
    destination: Option<&Destination>,
    store: Option<&Store>,
) -> Result<Value> {
    let bytes = picture.png(metadata)?;
    let size = picture.frames.pictures().first().map(|picture| (picture.width(), picture.height()));
    let (width, height) = size.unwrap_or_default();
    let mut file = json!({
        "content_type": "image/png",
        "size_bytes": bytes.len(),
        "sha256": sha256(&bytes),
        "width": width,
        "height": height,
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
    arguments: &Drawing,
    (prompt, edit): (Option<&str>, Option<Edit>),
    watch: &mut Watch<'_>,
    finished: impl FnMut(usize, &Picture) -> Result<()>,
) -> Result<()> {
    prepare_processor(arguments.threads)?;
    let studio = Studio::open(&home());
    let device = arguments.device.class();
    let precision = arguments.precision();
    let model = arguments.model.as_deref();
    let controls = arguments.control.pictures()?;
    if let Some(picture) = &arguments.from {
        let plan = Plan::from_picture(picture)?;
        let model = model.or_else(|| plan.model.needed());
        let precision = match precision {
            Precision::Auto => Precision::named(&plan.dtype).unwrap_or_default(),
            asked => asked,
        };
        let mut model = arguments.open(&studio, model, device, precision)?;
        let (image, mask) = edit.map_or((None, None), |edit| (Some(edit.image), edit.mask));
        let sources = Sources {
            latents: arguments.latents.as_deref(),
            image,
            mask,
            loras: arguments.loras.clone(),
            embeddings: arguments.embeddings.clone(),
            controls,
        };
        return studio.repeat(&mut model, plan, &sources, watch, finished);
    }
    let mut model = arguments.open(&studio, model, device, precision)?;
    let prompt = prompt.unwrap_or_default().to_owned();
    let request = Request { prompt, edit, controls, ..arguments.request() };
    studio.generate(&mut model, &request, watch, finished)
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

impl Drawing {
    /// How weights are to be kept.
    fn precision(&self) -> Precision {
        match self.dtype {
            DtypeArg::Auto => self.quantize.map_or(Precision::Auto, Precision::Quantised),
            asked => asked.precision(),
        }
    }

    /// The model with its refiner, if one is named.
    fn open(
        &self,
        studio: &Studio,
        model: Option<&str>,
        device: DeviceClass,
        precision: Precision,
    ) -> Result<Model> {
        let model = studio.model_with(model, self.config.as_deref(), &self.parts, device, precision)?;
        match &self.refiner {
            Some(refiner) => model.with_refiner(studio.model(Some(refiner), None, device, precision)?),
            None => Ok(model),
        }
    }

    /// What is asked for besides prompt and picture, in the studio's words.
    fn request(&self) -> Request {
        Request {
            prompt: String::new(),
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
            second_prompt: self.second_prompt.clone(),
            prompt_syntax: match self.prompt_syntax {
                Some(SyntaxArg::A1111) => Syntax::A1111,
                Some(SyntaxArg::Plain) | None => Syntax::Plain,
            },
            long_prompt: match self.long_prompt {
                Some(LongArg::Chunk) => Long::Chunk,
                Some(LongArg::Truncate) | None => Long::Truncate,
            },
            sizes: self.sizes.sizes(),
            loras: self.loras.clone(),
            lora_application: match self.lora_mode {
                Some(LoraModeArg::Fused) => Application::Fused,
                Some(LoraModeArg::Runtime) => Application::Runtime,
                Some(LoraModeArg::Auto) | None => Application::Auto,
            },
            embeddings: self.embeddings.clone(),
            refiner_from: self.refiner.as_ref().map(|_| self.refiner_from.unwrap_or(0.8)),
            edit: None,
            controls: Vec::new(),
            control_guess: self.control.guess,
            control_window: self.control.window,
            tiling: match self.vae_tiling {
                TilingArg::Auto => Tiling::Auto,
                TilingArg::On => Tiling::On,
                TilingArg::Off => Tiling::Off,
            },
            memory_limit: self.memory_limit.map(|gigabytes| (gigabytes * 1e9) as u64),
        }
    }
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
