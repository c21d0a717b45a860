//! Where tools work: the studio, the models, the store, the rules of the house, and the jobs in hand.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::gate::Switches;
use super::jobs::Jobs;
use super::resident::Residents;
use crate::artifact::policy::Policy;
use crate::artifact::store::Store;
use crate::error::{Code, Error, Result};
use crate::family::Task;
use crate::registry::{Catalogue, Listed, Registry, canonical, offer};
use crate::studio::{DeviceClass, Model, Precision, Studio};

/// What the owner of the machine allows.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// The model that draws where none is named: a name, or a path; the embedded one without.
    pub model: Option<String>,
    /// Which of the tools for a model's eyes and hands are open.
    pub images: Switches,
    /// Whether prompts stay out of files and records.
    pub private: bool,
    /// Where models run.
    pub device: DeviceClass,
    /// How their weights are kept.
    pub precision: Precision,
    /// Where `image_generation` saves pictures where no path is named.
    pub generated: PathBuf,
}

/// Everything that a tool needs.
pub struct Desk {
    studio: Studio,
    registry: Registry,
    store: Store,
    paths: Policy,
    rules: Rules,
    jobs: Jobs,
    catalogue: Mutex<Option<(Vec<String>, Arc<Catalogue>)>>,
    residents: Residents,
}

impl Desk {
    /// A desk for the models below `home`, whose work goes into `store`.
    ///
    /// # Errors
    /// `model_not_found` if the rules name a model that is not here; what the folder of jobs says.
    pub fn open(home: &Path, store: Store, paths: Policy, rules: Rules) -> Result<Self> {
        let jobs = Jobs::open(&store.path().join("jobs"))?;
        let desk = Self {
            studio: Studio::open(home),
            registry: Registry::new(home),
            store,
            paths,
            rules,
            jobs,
            catalogue: Mutex::new(None),
            residents: Residents::default(),
        };
        if desk.rules.model.is_some() {
            desk.listed(None)?;
        }
        Ok(desk)
    }

    /// The rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Where artifacts lie.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Which paths may be read and written.
    pub fn paths(&self) -> &Policy {
        &self.paths
    }

    /// The jobs.
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// The engine.
    pub fn studio(&self) -> &Studio {
        &self.studio
    }

    /// What is installed and what is known; read again when the models change.
    ///
    /// # Errors
    /// What reading the models says.
    pub fn catalogue(&self) -> Result<Arc<Catalogue>> {
        let names = self.registry.names();
        let mut kept = self.catalogue.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, catalogue)) = kept.as_ref().filter(|(known, _)| *known == names) {
            return Ok(Arc::clone(catalogue));
        }
        let (mut catalogue, _) = self.studio.catalogue()?;
        if let Some(model) = &self.rules.model {
            match self.studio.built_in(model).filter(|_| !names.contains(model)) {
                Some((name, survey)) => catalogue.install(name, &survey)?,
                None if Path::new(model).exists() => {
                    catalogue.install(&short(model), &self.registry.survey(model, None, &[])?)?;
                }
                None => {}
            }
        }
        let catalogue = Arc::new(catalogue);
        *kept = Some((names, Arc::clone(&catalogue)));
        Ok(catalogue)
    }

    /// The name of the model that draws where none is named.
    ///
    /// # Errors
    /// `model_not_downloaded` if there is none.
    pub fn default_model(&self) -> Result<String> {
        match &self.rules.model {
            Some(model) if Path::new(model).exists() => Ok(short(model)),
            Some(model) => Ok(model.clone()),
            None => self.studio.embedded_name().map(str::to_owned).ok_or_else(|| {
                Error::new(Code::ModelNotDownloaded, "no model is named, and this binary brings none")
                    .hint("name one with --model, or in the argument `model`")
            }),
        }
    }

    /// All that is known of a model by its name, never by a path; of the default one without.
    ///
    /// # Errors
    /// `model_not_found`, `model_not_downloaded` with the command that fetches it.
    pub fn listed(&self, model: Option<&str>) -> Result<Listed> {
        let own = self.default_model();
        let name = match model {
            Some(name) => name.to_owned(),
            None => own?,
        };
        let catalogue = self.catalogue()?;
        if let Some(listed) = catalogue.get(&name).filter(|listed| listed.installed) {
            return Ok(listed.clone());
        }
        if let Some((name, survey)) = self.studio.built_in(&name) {
            let mut alone = Catalogue::default();
            alone.install(name, &survey)?;
            return alone
                .get(name)
                .cloned()
                .ok_or_else(|| Error::internal("a model of the binary is not listed"));
        }
        let installed = self.registry.installed(&name).map_err(|error| {
            // What merely looks like a repository is nothing that anybody here has heard of.
            let unheard = error.code == Code::ModelNotDownloaded && offer(&name).is_none();
            let code = if unheard { Code::ModelNotFound } else { error.code };
            Error { code, param: Some("model".into()), ..error }
        })?;
        let found = catalogue.get(&installed).cloned();
        found.ok_or_else(|| Error::new(Code::ModelUnsupported, format!("`{name}` cannot draw")))
    }

    /// The models here that can be asked for a task now.
    ///
    /// # Errors
    /// What reading the models says.
    pub fn able(&self, task: Task) -> Result<Vec<String>> {
        let catalogue = self.catalogue()?;
        let able = |listed: &&Listed| listed.installed && listed.runs && listed.tasks.contains(&task);
        let mut names: Vec<String> =
            catalogue.models().iter().filter(able).map(|listed| listed.id.clone()).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Refuses a task that the model cannot be asked for, before any work.
    ///
    /// `said` is the task that the caller names, if it names one.
    ///
    /// # Errors
    /// `unsupported_task`, with what the model and the others here can do; as [`Self::listed`].
    pub fn require(&self, model: Option<&str>, said: Option<&str>, task: Task) -> Result<()> {
        let listed = self.listed(model)?;
        let own = task.name().to_owned();
        let wanted = said.map_or_else(|| own.clone(), canonical);
        let can: Vec<String> = listed.tasks.iter().map(|task| task.name().to_owned()).collect();
        if listed.runs && can.contains(&wanted) {
            if wanted == own {
                return Ok(());
            }
            let message = format!("this tool does {own}, and the argument says {wanted}");
            return Err(Error::argument("task", message).hint(format!("call vision_{wanted}")));
        }
        let able = match Task::ALL.iter().find(|task| task.name() == wanted) {
            Some(task) => self.able(*task)?,
            None => Vec::new(),
        };
        let others = if able.is_empty() { "none".to_owned() } else { able.join(", ") };
        let what = if listed.runs {
            format!("it can {}", can.join(", "))
        } else {
            "its network does not run here yet".into()
        };
        let message = format!("Model '{}' does not support task '{wanted}': {what}", listed.id);
        let error = Error { param: Some("task".into()), ..Error::new(Code::UnsupportedTask, message) };
        Err(error.hint(format!("installed models that can {wanted}: {others}")))
    }

    /// The file of an installed adapter, by its name and never by a path.
    ///
    /// # Errors
    /// `model_not_found` with the names of those that are here.
    pub(super) fn adapter(&self, name: &str) -> Result<PathBuf> {
        let adapters = self.studio.adapters();
        if adapters.iter().any(|(known, _)| known == name) {
            return self.registry.find(name);
        }
        let shown: String = name.chars().take(80).flat_map(char::escape_default).collect();
        let names: Vec<&str> = adapters.iter().map(|(name, _)| name.as_str()).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Err(Error::new(Code::ModelNotFound, format!("no adapter `{shown}` is installed"))
            .hint(format!("adapters here: {names}; `latentia import FILE` remembers one")))
    }

    /// The name of an installed control network, by that name and never by a path; the only one without a name.
    ///
    /// # Errors
    /// `invalid_argument` if several are here and none is named; `model_not_found` with the names of those that are here.
    pub(super) fn control_network(&self, name: Option<&str>) -> Result<String> {
        let here = self.studio.control_networks();
        if let Some(found) = here.iter().find(|known| Some(known.as_str()) == name.or(Some(known))) {
            if name.is_some() || here.len() == 1 {
                return Ok(found.clone());
            }
            let message = "several control networks are installed; say which";
            return Err(Error::argument("control_model", message)
                .hint(format!("control networks here: {}", here.join(", "))));
        }
        let message = match name {
            Some(name) => {
                let shown: String = name.chars().take(80).flat_map(char::escape_default).collect();
                format!("no control network `{shown}` is installed")
            }
            None => "no control network is installed".to_owned(),
        };
        let names = if here.is_empty() { "none".to_owned() } else { here.join(", ") };
        let error = Error::new(Code::ModelNotFound, message);
        Err(Error { param: Some("control_model".into()), ..error }
            .hint(format!("control networks here: {names}; `latentia import FILE` remembers one")))
    }

    /// Works with a model, which stays for the next call.
    ///
    /// # Errors
    /// What opening it says, and what the work says.
    pub(super) fn with_model<T>(
        &self,
        model: Option<&str>,
        work: impl FnOnce(&Studio, &mut Model) -> Result<T>,
    ) -> Result<T> {
        let name = self.listed(model)?.id;
        let open = || {
            let path = self.rules.model.as_ref().map(PathBuf::from).filter(|path| path.exists());
            let path = path.filter(|path| short(&path.to_string_lossy()) == name);
            let asked = path.map_or_else(|| name.clone(), |path| path.to_string_lossy().into_owned());
            self.studio.model(Some(&asked), None, self.rules.device, self.rules.precision)
        };
        self.residents.with(&name, open, |model| work(&self.studio, model))
    }

    /// The model that is open, if one is.
    pub fn open_model(&self) -> Option<String> {
        self.residents.last()
    }

    pub(super) fn resident(&self) -> &Residents {
        &self.residents
    }
}

/// A path's last name.
fn short(path: &str) -> String {
    let path = Path::new(path);
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    whole.file_name().map_or_else(|| "model".into(), |name| name.to_string_lossy().into_owned())
}
