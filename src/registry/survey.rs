//! From a path to what is there: headers and configs are read, tensors are not.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::beside::read_beside;
use super::configs::{class_of, config, configs, label, no_model, read_settings, snapshot, weights_of};
use super::join::{join, take_given};
use super::memory::memory;
use super::shelf::{Licence, Terms, terms};
use crate::error::{Code, Result};
use crate::family::known::{
    Claim, Confidence, Configs, Finding, Part, Profile, Role, UNCHECKED, identify, profile, read_class,
    read_name, spoken,
};
use crate::family::{Card, Evidence, Fact, Parts, Task, Told, recognise};
use crate::weights::Weights;

/// What the user adds to a path.
#[derive(Debug, Clone, Copy, Default)]
pub struct Given<'a> {
    /// A folder of configs for a file whose shapes cannot tell.
    pub config: Option<&'a Path>,
    /// Files with parts that the model lacks, or in place of its own.
    pub parts: &'a [PathBuf],
    /// What the user says it is, against what is found: `family`, `variant`, `prediction`, `size`.
    pub facts: Option<&'a Map<String, Value>>,
}

/// What a path holds.
#[derive(Debug, Clone)]
pub struct Survey {
    /// The path as it was given.
    pub path: PathBuf,
    /// What was found.
    pub finding: Finding,
    /// The files of weights that were opened, those of other files' parts last.
    pub files: Vec<PathBuf>,
    /// Of these files, the ones that hold parts for a model that lies elsewhere.
    pub joined: Vec<PathBuf>,
    /// sha256 of the files, where somebody computed them, by file name.
    pub sha256: Map<String, Value>,
}

impl Survey {
    /// What a card says of a model that is open already, with its parts.
    ///
    /// # Errors
    /// What is wrong with its files.
    pub fn of_card(name: &str, card: &Card, parts: &Parts) -> Result<Self> {
        let mut finding = Finding::unknown(Role::Checkpoint);
        let because = card.variant.because.clone();
        finding.claim(Claim::new("family", card.family, because.clone(), Confidence::Certain));
        finding.claim(Claim::new("variant", card.variant.value.clone(), because, Confidence::Certain));
        take_card(&mut finding, card);
        if let Some(folder) = parts.configs() {
            take_defaults(&mut finding, folder.settings(DEFAULTS)?.map(|config| config.value).as_ref());
        }
        let mut sha256 = Map::new();
        for (component, role) in
            [("text_encoder", Role::TextEncoder), ("unet", Role::Denoiser), ("vae", Role::Vae)]
        {
            let weights = parts.weights(component)?;
            for part in identify(weights.inventory()).parts {
                finding.parts.push(Part { role, place: component.into(), ..part });
            }
            sha256.insert(component.into(), weights.digest().into());
        }
        finding.runs = true;
        finding.settle();
        Ok(Self { sha256, ..Self::of(Path::new(name), finding, Vec::new()) })
    }

    /// Of a folder, which says everything else itself: what is given with it.
    pub(super) fn given_with(path: &Path, given: &Given<'_>) -> Self {
        let mut finding = Finding::unknown(Role::Checkpoint);
        claim_facts(&mut finding, given);
        finding.settle();
        Self { joined: given.parts.to_vec(), ..Self::of(path, finding, Vec::new()) }
    }

    fn of(path: &Path, finding: Finding, files: Vec<PathBuf>) -> Self {
        Self { path: path.to_owned(), finding, files, joined: Vec::new(), sha256: Map::new() }
    }

    /// Everything as one object: the facts with their evidence, what the phases weigh, what the makers allow, and the
    /// files with their digests.
    ///
    /// # Errors
    /// What reading the files' headers says.
    pub fn to_json(&self) -> Result<Value> {
        let mut value = json!(self.finding);
        value["path"] = json!(self.path);
        value["memory"] = json!(memory(&self.finding));
        let terms = self.terms();
        let said = self.finding.says("licence");
        let because = match (said, &terms) {
            (Some(claim), Some(terms)) if terms.licence == Licence::of(&claim.value) => {
                format!("{} says {}", spoken(&claim.because), claim.value)
            }
            (_, Some(terms)) if terms.checked => "compared with the hub".into(),
            _ => UNCHECKED.into(),
        };
        value["licence"] = json!({
            "class": self.draws().then(|| terms.as_ref().map_or(Licence::Unknown, |terms| terms.licence)),
            "gated": terms.map(|terms| terms.gated),
            "because": because,
            "said": said.map(|claim| &claim.value),
        });
        value["defaults"] = self.defaults();
        let mut files = Vec::new();
        for file in &self.files {
            let name = super::below(&self.path, file);
            files.push(json!({
                "name": name,
                "path": file,
                "header_sha256": super::header(file)?,
                "sha256": self.sha256.get(&name),
            }));
        }
        // What is part of the binary has no files, but digests.
        let embedded = self.sha256.iter().filter(|_| self.files.is_empty());
        files.extend(embedded.map(|(name, digest)| json!({ "name": name, "sha256": digest })));
        value["files"] = json!(files);
        Ok(value)
    }

    /// Steps, guidance and frames where nobody asks for any: as the model's own files say, else as its family has them.
    fn defaults(&self) -> Value {
        let profile = self.finding.profile.filter(|profile| profile.steps > 0);
        let own = self.finding.says("steps").filter(|_| self.draws());
        let number = |fact: &str| self.finding.says(fact)?.value.parse::<f64>().ok();
        let steps = own.and_then(|claim| claim.value.parse().ok()).or(profile.map(|profile| profile.steps));
        let Some(steps) = steps else { return Value::Null };
        let because = match (own, profile.and_then(Profile::checked_with)) {
            (Some(claim), _) => spoken(&claim.because),
            (None, Some(pipeline)) => format!("default of diffusers' {pipeline}"),
            (None, None) => UNCHECKED.to_owned(),
        };
        json!({
            "steps": steps,
            "guidance": number("guidance").or(profile.map(|profile| profile.guidance)),
            "frames": profile.map(|profile| profile.frames).filter(|frames| frames[0] > 0),
            "because": because,
        })
    }

    /// Whether it is a model that draws, and no part of one: only those have terms.
    fn draws(&self) -> bool {
        self.finding.family.is_some() && matches!(self.finding.role, Role::Denoiser | Role::Checkpoint)
    }

    /// What its makers allow: what they say in its own files, else what is known of its family.
    pub(super) fn terms(&self) -> Option<Terms> {
        let family = self.finding.family.as_deref().filter(|_| self.draws())?;
        let known = terms(family, self.finding.variant.as_deref().unwrap_or_default());
        let said = self.finding.says("licence").map(|claim| Licence::of(&claim.value));
        match said.filter(|licence| *licence != Licence::Unknown) {
            Some(licence) => {
                let gated = known.is_some_and(|terms| terms.gated && terms.licence == licence);
                Some(Terms { family: family.to_owned(), licence, gated, checked: false })
            }
            None => known,
        }
    }

    /// What opening the model must be told: the user's word, and notes that came with a file whose tensors say less.
    pub fn told(&self) -> Told {
        let weighs = |claim: &&Claim| {
            matches!(claim.because, Evidence::User(_))
                || (self.path.is_file()
                    && matches!(claim.because, Evidence::Config(_) | Evidence::Metadata(_)))
        };
        let by_user =
            |fact: &str| self.finding.says(fact).filter(|claim| matches!(claim.because, Evidence::User(_)));
        let fact = |claim: &Claim| Fact::new(claim.value.clone(), claim.because.clone());
        let size = by_user("size").zip(self.finding.size);
        Told {
            family: by_user("family").map(fact),
            variant: by_user("variant").map(fact),
            prediction: self.finding.says("prediction").filter(weighs).map(fact),
            size: size.map(|(claim, size)| Fact::new(size, claim.because.clone())),
        }
    }
}

/// What a family of ours says of a model that it can open.
fn take_card(finding: &mut Finding, card: &Card) {
    finding.tasks.clone_from(&card.tasks);
    finding.abilities.clear();
    let size = format!("{}x{}", card.size.value[0], card.size.value[1]);
    finding.claim(Claim::new("size", size, card.size.because.clone(), Confidence::Certain));
    if finding.says("prediction").is_none() {
        let scheduler = card.sampler.value.to_json();
        let prediction = match scheduler["prediction_type"].as_str() {
            Some("v_prediction") => "v",
            other => other.unwrap_or_default(),
        };
        let because = card.sampler.because.clone();
        finding.claim(Claim::new("prediction", prediction, because, Confidence::Certain));
    }
    let (steps, guidance) = (card.steps.value.to_string(), card.guidance.value.to_string());
    finding.claim(Claim::new("steps", steps, card.steps.because.clone(), Confidence::Likely));
    finding.claim(Claim::new("guidance", guidance, card.guidance.because.clone(), Confidence::Likely));
}

/// Defaults and licence that the makers of a model write beside its index.
const DEFAULTS: &str = "latentia.json";

fn take_defaults(finding: &mut Finding, defaults: Option<&Value>) {
    if let Some(licence) = defaults.and_then(|defaults| defaults.get("licence")?.as_str()) {
        let because = Evidence::Manifest(DEFAULTS.into());
        finding.claim(Claim::new("licence", licence, because, Confidence::Certain));
    }
}

/// Looks at a file, a model's folder or a component's folder.
///
/// # Errors
/// `file_not_found`, `model_incompatible` if the folder holds no model, `invalid_argument` for a family or variant that the
/// user says and nobody knows, and what is wrong with its files.
pub fn survey(path: &Path, given: &Given<'_>) -> Result<Survey> {
    let whole = snapshot(path).filter(|_| path.is_dir()).unwrap_or_else(|| path.to_owned());
    let is_pipeline = whole.join("model_index.json").is_file();
    let (mut finding, files) = match () {
        () if is_pipeline => of_pipeline(&whole)?,
        () if whole.is_dir() => of_component(&whole)?,
        () => of_file(&whole, given.config)?,
    };
    read_name(&mut finding, &label(path));
    if whole.is_file() {
        read_beside(&mut finding, &whole);
    }
    claim_facts(&mut finding, given);
    finding.retell()?;
    finding.settle();
    if let (Some(family), Role::Denoiser | Role::Checkpoint) = (&finding.family, finding.role) {
        finding.profile = profile(family, finding.variant.as_deref().unwrap_or_default());
    }
    let mut survey = Survey::of(path, finding, files);
    survey.joined = if is_pipeline {
        take_given(&mut survey.finding, given.parts)?
    } else {
        join(&whole, &mut survey.finding, given.parts)?
    };
    survey.files.extend(survey.joined.iter().cloned());
    try_to_open(&mut survey, &whole, given.config, is_pipeline);
    survey.finding.settle();
    Ok(survey)
}

/// Adds the user's word.
fn claim_facts(finding: &mut Finding, given: &Given<'_>) {
    for fact in ["family", "variant", "prediction", "size"] {
        if let Some(value) = given.facts.and_then(|facts| facts.get(fact)?.as_str()) {
            let because = Evidence::User(format!("said {fact} {value}"));
            finding.claim(Claim::new(fact, value, because, Confidence::Certain));
        }
    }
}

/// Whether a family of ours can open it, and what that family says of it.
fn try_to_open(survey: &mut Survey, whole: &Path, config: Option<&Path>, is_pipeline: bool) {
    let told = survey.told();
    let finding = &mut survey.finding;
    let is_whole = finding.missing.is_empty();
    // Without configs or a word on it, recognising Stable Diffusion 2 would read a tensor, which is for loading.
    let beside = whole.with_extension("").join("model_index.json").is_file();
    let costs_nothing = config.is_some()
        || beside
        || told.sure_prediction().is_some()
        || finding.is_contradicted()
        || (finding.runs && finding.variant.as_deref().is_some_and(|variant| !variant.starts_with('2')));
    let is_model = matches!(finding.role, Role::Checkpoint | Role::Denoiser) && finding.family.is_some();
    if is_pipeline || (is_model && is_whole && costs_nothing) {
        let open = || {
            let parts = Parts::open(whole, config.filter(|_| !is_pipeline))?;
            let parts = survey.joined.iter().try_fold(parts, |parts, file| parts.with(file))?;
            recognise(&parts.told(told))
        };
        match open() {
            Ok(variant) => {
                take_card(finding, variant.card());
                finding.runs = true;
            }
            Err(error) => {
                finding.runs = false;
                finding.notes.push(format!("not runnable here yet: {error}"));
            }
        }
    }
    finding.runs &= is_whole && finding.unread.is_empty();
    if finding.runs {
        // Of what such a network could do, this is what can be asked for today.
        finding
            .tasks
            .retain(|task| matches!(task, Task::TextToImage | Task::ImageToImage | Task::ImageUpscale));
        finding.abilities.clear();
    }
}

/// One file, with the configs of a folder if shapes cannot tell.
fn of_file(path: &Path, config: Option<&Path>) -> Result<(Finding, Vec<PathBuf>)> {
    let weights = Weights::open(path)?;
    let mut finding = identify(weights.inventory());
    finding.lies_in(path);
    let beside = path.with_extension("");
    let beside = beside.join("model_index.json").is_file().then_some(beside);
    if let Some(folder) = config.map(Path::to_owned).or(beside) {
        let configs = configs(&folder)?;
        let class = class_of(&configs).ok_or_else(|| no_model(&folder))?;
        told_by(&mut finding, &class, &configs);
    }
    Ok((finding, vec![path.to_owned()]))
}

/// A class and its settings beside the tensors of a file.
fn told_by(finding: &mut Finding, class: &str, configs: &Configs) {
    let (role, runs) = (finding.role, finding.runs);
    let known = read_class(finding, class, configs);
    if matches!(role, Role::Denoiser | Role::Checkpoint) {
        read_settings(finding, configs);
    }
    finding.role = role;
    finding.runs = runs;
    if known && finding.says("family").is_some() {
        finding.telling.clear();
    }
    if !known {
        finding.notes.push(format!("the class {class} is not known"));
    }
    for (component, config) in configs {
        let method =
            config.get("quantization_config").and_then(|config| config.get("quant_method")?.as_str());
        if let Some(method) = method.filter(|method| !method.starts_with("bitsandbytes")) {
            let shown: String = method.chars().filter(|c| !c.is_control()).take(40).collect();
            finding.unread.push(if component.is_empty() { shown } else { format!("{component}: {shown}") });
        }
    }
    // Parts of a network draw nothing alone.
    if !matches!(role, Role::Denoiser | Role::Checkpoint | Role::Upscaler) {
        finding.tasks.clear();
    }
}

/// A folder with an index: the class first, then every component's tensors against it.
fn of_pipeline(folder: &Path) -> Result<(Finding, Vec<PathBuf>)> {
    let configs = configs(folder)?;
    let class = class_of(&configs).ok_or_else(|| no_model(folder))?;
    let mut finding = Finding::unknown(Role::Checkpoint);
    let mut files = Vec::new();
    let index = configs.get("").and_then(Value::as_object).cloned().unwrap_or_default();
    let named = |value: &Value| value.get(1).and_then(Value::as_str).is_some();
    for name in index.iter().filter(|(_, value)| named(value)).map(|(name, _)| name) {
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let component = folder.join(name);
        if !plain || weightless(name) {
            continue;
        }
        match weights_of(&component) {
            Ok(file) => {
                let mut found = identify(Weights::open(&file)?.inventory());
                found.lies_in(&file);
                absorb(&mut finding, found, name);
                files.push(file);
            }
            Err(error) if error.code == Code::ModelNotDownloaded => {
                finding.missing.push(format!("weights of {name}"));
            }
            Err(error) => finding.missing.push(format!("weights of {name}: {error}")),
        }
    }
    told_by(&mut finding, &class, &configs);
    take_defaults(&mut finding, config(&folder.join(DEFAULTS))?.as_ref());
    Ok((finding, files))
}

/// Components that are settings and words, or that judge finished pictures: nothing that drawing needs.
fn weightless(name: &str) -> bool {
    let kinds = ["scheduler", "tokenizer", "feature_extractor", "processor", "watermarker", "safety_checker"];
    kinds.iter().any(|kind| name.contains(kind))
}

/// Takes the facts of one component into the whole.
fn absorb(whole: &mut Finding, component: Finding, name: &str) {
    let denoiser = name.starts_with("unet") || name.starts_with("transformer");
    whole.unread.extend(component.unread.iter().map(|scheme| format!("{name}: {scheme}")));
    for mut part in component.parts {
        name.clone_into(&mut part.place);
        if denoiser {
            part.role = Role::Denoiser;
        }
        whole.parts.push(part);
    }
    if denoiser && name != "transformer_2" {
        whole.tasks = component.tasks;
        whole.abilities = component.abilities;
        whole.notes.extend(component.notes);
        for claim in component.claims {
            whole.claim(claim);
        }
    }
}

/// A component's folder, or any folder with one set of weights.
fn of_component(folder: &Path) -> Result<(Finding, Vec<PathBuf>)> {
    let configs = configs(folder)?;
    let file = weights_of(folder).map_err(|error| match error.code {
        Code::ModelNotDownloaded => no_model(folder),
        _ => error,
    })?;
    let mut finding = identify(Weights::open(&file)?.inventory());
    finding.lies_in(&file);
    if let Some(class) = class_of(&configs) {
        let before = finding.says("family").is_some();
        let mut known = finding.clone();
        told_by(&mut known, &class, &configs);
        // Encoders' classes say less than their shapes.
        if known.says("family").is_some() || !before {
            finding = known;
        }
    }
    Ok((finding, vec![file]))
}
