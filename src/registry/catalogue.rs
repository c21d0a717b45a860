//! The capability registry: which model can do what, in `AbstractVision`'s form 1.0 and in ours.
//!
//! # Source
//! `tool-contract.md` 1.5; the form is read by `abstractvision.model_capabilities`.

use serde_json::{Map, Value, json};

use super::shelf::{Licence, Offer, Terms, offers, terms};
use super::survey::Survey;
use crate::error::{Code, Error, Result};
use crate::family::Task;
use crate::family::known::{Guidance, Profile, UNCHECKED, profile, row};

/// One model of the catalogue.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its name here, or the repository of its makers.
    pub id: String,
    /// Other names.
    pub aliases: Vec<String>,
    /// Whether it is on this machine.
    pub installed: bool,
    /// Whether it can draw here and now.
    pub runs: bool,
    /// What it can be asked for.
    pub tasks: Vec<Task>,
    /// What is known of its family.
    pub profile: Option<&'static Profile>,
    /// What its makers allow.
    pub terms: Option<Terms>,
    /// Where it is published, if it is not here.
    pub offer: Option<&'static Offer>,
    /// Width and height when none is asked for.
    pub size: Option<[usize; 2]>,
    /// What sides are multiples of, and what frames but one are, where its files say so themselves.
    pub rules: (Option<usize>, Option<usize>),
    /// Steps and guidance of its own, where it has them.
    pub defaults: (Option<f64>, Option<f64>),
    /// All that was found, for our own form.
    pub found: Value,
}

/// Models that are installed, and those that are known.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    models: Vec<Listed>,
}

/// Every task that models can be asked for, with its meaning.
const TASKS: &[(Task, &str, &[&str], &str)] = &[
    (Task::TextToImage, "A picture from words.", &["text"], "image"),
    (
        Task::ImageToImage,
        "A picture from a picture; with a mask, only where it allows.",
        &["text", "image"],
        "image",
    ),
    (Task::ImageUpscale, "A larger picture of a picture.", &["text_optional", "image"], "image"),
    (Task::MultiViewImage, "Views of one thing.", &["text_optional", "image"], "image[]"),
    (Task::TextToVideo, "A clip from words.", &["text"], "video"),
    (Task::ImageToVideo, "A clip from a picture.", &["text_optional", "image"], "video"),
];

/// What people and `AbstractVision` call the tasks.
const ALIASES: &[(&str, &str)] = &[
    ("t2i", "text_to_image"),
    ("i2i", "image_to_image"),
    ("image_edit", "image_to_image"),
    ("upscale", "image_upscale"),
    ("super_resolution", "image_upscale"),
    ("t2v", "text_to_video"),
    ("video", "text_to_video"),
    ("video_generation", "text_to_video"),
    ("i2v", "image_to_video"),
];

impl Catalogue {
    /// The families that are known, by the repositories of their makers.
    pub fn known() -> Self {
        let mut catalogue = Self::default();
        for offer in offers() {
            let (family, variant) = offer.family.split_once('/').unwrap_or((&offer.family, ""));
            let Some(rule) = row(family, variant) else { continue };
            catalogue.models.push(Listed {
                id: offer.repository.clone(),
                aliases: vec![offer.name.clone(), offer.family.clone()],
                installed: false,
                runs: rule.runs,
                tasks: rule.tasks.to_vec(),
                profile: profile(family, variant),
                terms: terms(family, variant),
                offer: Some(offer),
                size: (rule.size != [0, 0]).then_some(rule.size),
                rules: (None, None),
                defaults: (None, None),
                found: json!({ "family": family, "variant": rule.variant, "note": rule.note }),
            });
        }
        catalogue
    }

    /// Adds a model that is here.
    ///
    /// # Errors
    /// What reading its files' headers says.
    pub fn install(&mut self, id: &str, survey: &Survey) -> Result<()> {
        let finding = &survey.finding;
        if finding.tasks.is_empty() {
            return Ok(());
        }
        let number = |fact: &str| finding.says(fact).and_then(|claim| claim.value.parse().ok());
        self.models.retain(|model| model.id != id);
        self.models.push(Listed {
            id: id.into(),
            aliases: Vec::new(),
            installed: true,
            runs: finding.runs,
            tasks: finding.tasks.clone(),
            profile: finding.profile,
            terms: survey.terms(),
            offer: None,
            size: finding.size,
            rules: (finding.multiple, finding.every),
            defaults: (number("steps"), number("guidance")),
            found: survey.to_json()?,
        });
        Ok(())
    }

    /// Every model.
    pub fn models(&self) -> &[Listed] {
        &self.models
    }

    /// A model by its name, or by another name in any case.
    pub fn get(&self, model: &str) -> Option<&Listed> {
        let exact = self.models.iter().find(|listed| listed.id == model);
        let alias =
            |listed: &&Listed| listed.aliases.iter().any(|alias| alias.eq_ignore_ascii_case(model.trim()));
        exact.or_else(|| self.models.iter().find(alias))
    }

    /// Whether a model can be asked for a task; of an unknown model, no.
    pub fn supports(&self, model: &str, task: &str) -> bool {
        self.get(model).is_some_and(|listed| listed.tasks.iter().any(|known| known.name() == canonical(task)))
    }

    /// The models that can be asked for a task, sorted.
    pub fn models_for_task(&self, task: &str) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .models
            .iter()
            .map(|listed| listed.id.as_str())
            .filter(|id| self.supports(id, task))
            .collect();
        names.sort_unstable();
        names
    }

    /// Refuses a task that a model cannot be asked for, and names the models that can.
    ///
    /// # Errors
    /// `unsupported_task`, also for unknown models.
    pub fn require_support(&self, model: &str, task: &str) -> Result<()> {
        if self.supports(model, task) {
            return Ok(());
        }
        let what = match self.get(model) {
            Some(listed) => {
                let can: Vec<String> = listed.tasks.iter().map(|task| task.name().to_owned()).collect();
                format!("it can {}", can.join(", "))
            }
            None => "it is not a known model".into(),
        };
        let able = self.models_for_task(task);
        let (here, elsewhere): (Vec<&str>, Vec<&str>) =
            able.iter().partition(|id| self.get(id).is_some_and(|listed| listed.installed && listed.runs));
        let hint = if here.is_empty() {
            format!("known models that can: {}", some(&elsewhere))
        } else {
            format!("installed models that can: {}", some(&here))
        };
        let message = format!("Model '{model}' does not support task '{task}': {what}");
        Err(Error { param: Some("task".into()), ..Error::new(Code::UnsupportedTask, message) }.hint(hint))
    }

    /// The registry in `AbstractVision`'s form, with our facts beside it under `x_latentia`.
    pub fn to_json(&self) -> Value {
        let tasks: Map<String, Value> = TASKS
            .iter()
            .map(|(task, description, ..)| {
                let mut spec = json!({ "description": description });
                if matches!(task, Task::TextToVideo | Task::ImageToVideo) {
                    spec["maturity"] = "experimental".into();
                }
                (task.name().to_owned(), spec)
            })
            .collect();
        let models: Map<String, Value> =
            self.models.iter().map(|listed| (listed.id.clone(), listed.to_json())).collect();
        json!({ "schema_version": "1.0", "tasks": tasks, "models": models })
    }
}

/// At most eight names.
fn some(names: &[&str]) -> String {
    match names {
        [] => "none".into(),
        few if few.len() <= 8 => few.join(", "),
        many => format!("{} and {} more", many[..8].join(", "), many.len() - 8),
    }
}

/// A task's own name for one of its aliases.
pub fn canonical(task: &str) -> String {
    let plain = task.trim().to_lowercase().replace('-', "_");
    ALIASES.iter().find(|(alias, _)| *alias == plain).map_or(plain.clone(), |(_, own)| (*own).into())
}

impl Listed {
    /// The class of what its makers allow.
    pub fn licence(&self) -> Licence {
        self.terms.as_ref().map_or(Licence::Unknown, |terms| terms.licence)
    }

    fn to_json(&self) -> Value {
        let backend = if self.runs { "latentia" } else { "not_supported" };
        let tasks: Map<String, Value> = TASKS
            .iter()
            .filter(|(task, ..)| self.tasks.contains(task))
            .map(|(task, _, inputs, output)| {
                let spec = json!({
                    "inputs": inputs,
                    "outputs": [output],
                    "params": self.params(*task),
                    "requires": { "backend": backend },
                });
                (task.name().to_owned(), spec)
            })
            .collect();
        let licence = self.licence();
        let downloads = match self.offer {
            Some(offer) => json!([{
                "key": offer.name,
                "engine": "diffusers",
                "target": "diffusers",
                "bits": 16,
                "repo_id": offer.repository,
                "source": "official",
                "aliases": self.aliases,
            }]),
            None => json!([]),
        };
        json!({
            "provider": if self.installed { "latentia" } else { "huggingface" },
            "license": licence,
            "notes": self.notes(),
            "downloads": downloads,
            "tasks": tasks,
            "x_latentia": {
                "installed": self.installed,
                "runs": self.runs,
                "gated": self.terms.as_ref().is_some_and(|terms| terms.gated),
                "offer": self.offer,
                "profile": self.profile,
                "defaults_because": self.profile.map(|profile| profile.checked_with().unwrap_or(UNCHECKED)),
                "found": self.found,
            },
        })
    }

    /// What a reader of this form would not see otherwise.
    fn notes(&self) -> String {
        let Some(profile) = self.profile else { return String::new() };
        let checked = self.terms.as_ref().is_some_and(|terms| terms.checked);
        let mut unchecked = if checked { Vec::new() } else { vec!["licence", "gate"] };
        if profile.steps > 0 && profile.checked_with().is_none() {
            unchecked.push("default steps and guidance");
        }
        if unchecked.is_empty() {
            return String::new();
        }
        format!("{}: {UNCHECKED} with the makers' page", unchecked.join(", "))
    }

    /// What a task's arguments may be.
    pub fn params(&self, task: Task) -> Value {
        let mut params = Map::new();
        let mut set = |key: &str, value: Value| params.insert(key.into(), value);
        let free = task == Task::ImageToVideo || task == Task::MultiViewImage || task == Task::ImageUpscale;
        set("prompt", json!({ "required": !free }));
        set("negative_prompt", json!({ "required": false }));
        if !matches!(task, Task::TextToImage | Task::TextToVideo) {
            set("image", json!({ "required": true }));
        }
        let multiple = self.rules.0.unwrap_or(self.profile.map_or(8, |profile| profile.multiple));
        for (index, side) in ["width", "height"].into_iter().enumerate() {
            let mut spec =
                json!({ "required": false, "min": multiple, "max": 8192, "multiple_of": multiple });
            if let Some(size) = self.size {
                spec["default"] = size[index].into();
            }
            set(side, spec);
        }
        let own = self.profile.filter(|profile| profile.steps > 0);
        let mut steps = json!({ "required": false, "min": 1, "max": 500 });
        if let Some(default) = self.defaults.0.or_else(|| own.map(|profile| profile.steps as f64)) {
            steps["default"] = (default as u64).into();
        }
        set("steps", steps);
        let guidance = if own.is_some_and(|profile| profile.guided == Guidance::Without) {
            json!({ "required": false, "const": 0.0 })
        } else {
            let mut spec = json!({ "required": false, "min": 0.0, "max": 100.0 });
            if let Some(default) = self.defaults.1.or_else(|| own.map(|profile| profile.guidance)) {
                spec["default"] = default.into();
            }
            spec
        };
        set("guidance_scale", guidance);
        set("seed", json!({ "required": false, "min": 0 }));
        if let Some(profile) = self.profile.filter(|profile| profile.frames[0] > 0) {
            let [frames, fps] = profile.frames;
            let rule = format!("{} k + 1", self.rules.1.unwrap_or(profile.every));
            set("num_frames", json!({ "required": false, "default": frames, "min": 1, "description": rule }));
            set("fps", json!({ "required": false, "default": fps, "min": 1, "max": 120 }));
        }
        if task == Task::ImageToImage {
            set("mask", json!({ "required": false }));
            set("strength", json!({ "required": false, "min": 0.0, "max": 1.0 }));
        }
        if matches!(task, Task::TextToImage | Task::ImageToImage) {
            set("output_format", json!({ "required": false, "default": "png", "enum": ["png"] }));
        }
        Value::Object(params)
    }
}
