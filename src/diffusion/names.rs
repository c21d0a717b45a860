//! The names that people type, and what they mean on a model's own schedule.

use serde_json::{Map, Value};

use super::class::Class;
use super::settings::Settings;
use crate::error::{Error, Result};

/// A sampler that a user can name.
#[derive(Debug, Clone, Copy)]
pub struct Name {
    /// What is typed.
    pub name: &'static str,
    class: Class,
    /// The class that does the same on straight lines.
    flow: Option<Class>,
    sets: &'static [(&'static str, Set)],
}

/// A value that a name sets.
#[derive(Debug, Clone, Copy)]
enum Set {
    Word(&'static str),
    Whole(u8),
    Yes,
    No,
}

impl Set {
    fn value(self) -> Value {
        match self {
            Self::Word(word) => word.into(),
            Self::Whole(number) => number.into(),
            Self::Yes => true.into(),
            Self::No => false.into(),
        }
    }
}

const DATA_2: &[(&str, Set)] = &[
    ("algorithm_type", Set::Word("dpmsolver++")),
    ("solver_type", Set::Word("midpoint")),
    ("solver_order", Set::Whole(2)),
];
const DATA_3: &[(&str, Set)] = &[
    ("algorithm_type", Set::Word("dpmsolver++")),
    ("solver_type", Set::Word("midpoint")),
    ("solver_order", Set::Whole(3)),
];
const SDE_2: &[(&str, Set)] = &[
    ("algorithm_type", Set::Word("sde-dpmsolver++")),
    ("solver_type", Set::Word("midpoint")),
    ("solver_order", Set::Whole(2)),
];
const SDE_3: &[(&str, Set)] = &[
    ("algorithm_type", Set::Word("sde-dpmsolver++")),
    ("solver_type", Set::Word("midpoint")),
    ("solver_order", Set::Whole(3)),
];
const PLMS: &[(&str, Set)] = &[("skip_prk_steps", Set::Yes)];
const SA: &[(&str, Set)] = &[("algorithm_type", Set::Word("data_prediction"))];

/// One row: a name, its class, its class for straight lines, and what it sets.
const fn row(
    name: &'static str,
    class: Class,
    flow: Option<Class>,
    sets: &'static [(&'static str, Set)],
) -> Name {
    Name { name, class, flow, sets }
}

/// Every name but for its endings; the first of equal meaning is the one to show.
static NAMES: &[Name] = &[
    row("euler", Class::Euler, Some(Class::FlowEuler), &[]),
    row("euler_a", Class::EulerAncestral, None, &[]),
    row("euler_ancestral", Class::EulerAncestral, None, &[]),
    row("heun", Class::Heun, Some(Class::FlowHeun), &[]),
    row("lms", Class::Lms, None, &[]),
    row("dpm2", Class::Kdpm2, None, &[]),
    row("kdpm2", Class::Kdpm2, None, &[]),
    row("dpm2_a", Class::Kdpm2Ancestral, None, &[]),
    row("kdpm2_a", Class::Kdpm2Ancestral, None, &[]),
    row("kdpm2_ancestral", Class::Kdpm2Ancestral, None, &[]),
    row("dpmpp_2m", Class::DpmMultistep, Some(Class::DpmMultistep), DATA_2),
    row("dpmpp_2m_sde", Class::DpmMultistep, Some(Class::DpmMultistep), SDE_2),
    row("dpmpp_3m", Class::DpmMultistep, Some(Class::DpmMultistep), DATA_3),
    row("dpmpp_3m_sde", Class::DpmMultistep, Some(Class::DpmMultistep), SDE_3),
    row("dpmpp_2s", Class::DpmSinglestep, Some(Class::DpmSinglestep), DATA_2),
    row("dpmpp_3s", Class::DpmSinglestep, Some(Class::DpmSinglestep), DATA_3),
    row("dpmpp_2s_sde", Class::DpmSinglestep, Some(Class::DpmSinglestep), SDE_2),
    row("dpmpp_sde", Class::DpmSde, None, &[]),
    row("unipc", Class::UniPc, Some(Class::UniPc), &[("solver_type", Set::Word("bh2"))]),
    row("ddim", Class::Ddim, None, &[]),
    row("ddim_inverse", Class::DdimInverse, None, &[]),
    row("ddpm", Class::Ddpm, None, &[]),
    row("pndm", Class::Pndm, None, PLMS),
    row("plms", Class::Pndm, None, PLMS),
    row("ipndm", Class::Ipndm, None, &[]),
    row("deis", Class::Deis, Some(Class::Deis), &[("algorithm_type", Set::Word("deis"))]),
    row("sa_solver", Class::SaSolver, Some(Class::SaSolver), SA),
    row("lcm", Class::Lcm, Some(Class::FlowLcm), &[]),
    row("tcd", Class::Tcd, None, &[]),
    row("edm_euler", Class::EdmEuler, None, &[]),
    row("edm_dpmpp_2m", Class::EdmDpmMultistep, None, DATA_2),
    row("edm_dpmpp_2m_sde", Class::EdmDpmMultistep, None, SDE_2),
    row("flow_euler", Class::FlowEuler, Some(Class::FlowEuler), &[]),
    row("flow_heun", Class::FlowHeun, Some(Class::FlowHeun), &[]),
    row("flow_lcm", Class::FlowLcm, Some(Class::FlowLcm), &[]),
    row("cogvideox_ddim", Class::CogVideoX, None, &[]),
];

/// An ending, and the flag that it sets.
static ENDINGS: &[(&str, &str)] = &[
    ("_karras", "use_karras_sigmas"),
    ("_exponential", "use_exponential_sigmas"),
    ("_beta", "use_beta_sigmas"),
    ("_lu", "use_lu_lambdas"),
];

/// Every sampler that can be named, endings included.
pub fn names() -> Vec<String> {
    let mut all = Vec::new();
    for name in NAMES {
        all.push(name.name.to_owned());
        for (ending, _) in ENDINGS.iter().filter(|(_, flag)| takes(name.class, flag)) {
            all.push(format!("{}{ending}", name.name));
        }
    }
    all
}

/// Whether a class reads a flag.
fn takes(class: Class, flag: &str) -> bool {
    match class {
        Class::DpmMultistep => true,
        Class::Euler
        | Class::Heun
        | Class::Kdpm2
        | Class::Kdpm2Ancestral
        | Class::Lms
        | Class::DpmSde
        | Class::DpmSinglestep
        | Class::UniPc
        | Class::Deis
        | Class::SaSolver
        | Class::FlowEuler
        | Class::FlowLcm => flag != "use_lu_lambdas",
        _ => false,
    }
}

/// `DPM++ 2M Karras` → `dpmpp_2m_karras`.
fn plain(name: &str) -> String {
    let lower = name.trim().to_lowercase().replace("++", "pp");
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    words.join("_")
}

/// What a name means: its row, and the flag of its ending.
fn find(name: &str) -> Option<(Name, Option<&'static str>)> {
    let wanted = plain(name);
    if let Some(row) = NAMES.iter().find(|row| row.name == wanted) {
        return Some((*row, None));
    }
    if let Some(class) = Class::ALL.iter().find(|class| class.as_str().eq_ignore_ascii_case(&wanted)) {
        let flow = NAMES.iter().find(|row| row.class == *class).and_then(|row| row.flow);
        return Some((Name { name: class.as_str(), class: *class, flow, sets: &[] }, None));
    }
    ENDINGS.iter().find_map(|(ending, flag)| {
        let stem = wanted.strip_suffix(ending)?;
        let row = NAMES.iter().find(|row| row.name == stem && takes(row.class, flag))?;
        Some((*row, Some(*flag)))
    })
}

impl Settings {
    /// The sampler of a name on the schedule of a model.
    ///
    /// What the model was trained with comes from its own configuration: β, prediction, zero-terminal-SNR, shift. What
    /// the configuration does not say has the defaults of the named class, but latents are never clipped unless it says
    /// so. On a model of straight lines the name means the sampler that does the same there.
    ///
    /// # Errors
    /// `invalid_argument` naming `sampler` for an unknown name, listing those that are known, and for a sampler that
    /// cannot walk this model's schedule.
    pub fn named(name: &str, base: &Self) -> Result<Self> {
        let Some((row, flag)) = find(name) else {
            let known = names().join(", ");
            return Err(Error::argument("sampler", format!("the sampler {name:?} is not known"))
                .hint(format!("known are {known}, and the class names of diffusers")));
        };
        let class = target(&row, base)?;
        let mut config = inherited(base, class);
        for (key, set) in row.sets {
            config.insert((*key).into(), set.value());
        }
        if let Some(flag) = flag {
            if !takes(class, flag) {
                return Err(Error::argument("sampler", format!("{class} has no {flag}")));
            }
            for (_, other) in ENDINGS {
                config.insert((*other).into(), if *other == flag { Set::Yes } else { Set::No }.value());
            }
        }
        Self::of(class, config).map_err(|error| Error {
            hint: error.hint.or_else(|| Some("choose another sampler, or the model's own".into())),
            ..Error::argument(
                "sampler",
                format!("{name} cannot walk this model's schedule: {}", error.message),
            )
        })
    }
}

/// The class that walks the model's own kind of line.
fn target(row: &Name, base: &Settings) -> Result<Class> {
    let refuse = |why: &str| {
        let fitting: Vec<&str> = NAMES
            .iter()
            .filter(|other| if base.is_flow() { other.flow.is_some() } else { !other.class.is_flow() })
            .map(|other| other.name)
            .collect();
        Error::argument("sampler", format!("{} {why}", row.name))
            .hint(format!("fitting are {}", fitting.join(", ")))
    };
    if base.is_flow() {
        return row.flow.ok_or_else(|| refuse("cannot walk the straight lines of a flow model"));
    }
    if base.class().is_edm() {
        return match row.class {
            Class::Euler | Class::EdmEuler => Ok(Class::EdmEuler),
            Class::DpmMultistep | Class::EdmDpmMultistep => Ok(Class::EdmDpmMultistep),
            _ => Err(Error::argument("sampler", format!("{} cannot precondition as EDM does", row.name))
                .hint("fitting are euler, dpmpp_2m, dpmpp_2m_sde")),
        };
    }
    let special = |class: Class| class.is_edm() || matches!(class, Class::CogVideoX | Class::Ipndm);
    if row.class.is_flow() {
        return Err(refuse("walks straight lines, and this model's are curved"));
    }
    if row.class != base.class() && (special(row.class) || special(base.class())) {
        return Err(refuse("does not fit the schedule this model was trained with"));
    }
    Ok(row.class)
}

/// What a class takes over from a model's configuration.
fn inherited(base: &Settings, class: Class) -> Map<String, Value> {
    let mut config = base.config().clone();
    config.remove("_class_name");
    if class == base.class() {
        return config;
    }
    // Ends of the table that only some classes have; the reference drops them on the way to another class.
    if !matches!(class, Class::Euler | Class::UniPc) && !class.is_edm() {
        config.remove("sigma_min");
        config.remove("sigma_max");
    }
    if class != Class::DpmMultistep {
        config.remove("use_lu_lambdas");
    }
    config.entry("clip_sample").or_insert(false.into());
    if let Some((shift, dynamic)) = base.flow_shift() {
        config.insert("use_dynamic_shifting".into(), dynamic.into());
        if class.is_flow() {
            config.insert("shift".into(), shift.into());
        } else {
            config.insert("flow_shift".into(), shift.into());
            config.insert("use_flow_sigmas".into(), true.into());
            config.insert("prediction_type".into(), "flow_prediction".into());
        }
        if class != Class::UniPc && !class.is_flow() {
            config.remove("shift_terminal");
            config.remove("time_shift_type");
        }
    }
    config
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::diffusion::Options;
    use crate::error::Code;

    fn stable_diffusion() -> Settings {
        let config = json!({ "_class_name": "PNDMScheduler", "beta_start": 0.00085, "beta_end": 0.012,
            "beta_schedule": "scaled_linear", "skip_prk_steps": true, "steps_offset": 1, "clip_sample": false });
        Settings::read(None, &config).unwrap()
    }

    #[test]
    fn every_name_walks_on_the_model_it_fits() {
        let sd = stable_diffusion();
        let flow = json!({ "_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 3.0 });
        let flow = Settings::read(None, &flow).unwrap();
        let edm = Settings::read(Some("EDMEulerScheduler"), &json!({})).unwrap();
        for name in names() {
            let models = [&sd, &flow, &edm];
            let walked = models.iter().filter_map(|base| Settings::named(&name, base).ok());
            let special = ["ipndm", "cogvideox_ddim"].contains(&name.as_str());
            let mut count = 0;
            for settings in walked {
                settings.walk(8, &Options::default()).unwrap();
                count += 1;
            }
            assert!(count > 0 || special, "{name} fits no model");
        }
    }

    #[test]
    fn spellings_of_other_programs_are_read() {
        let sd = stable_diffusion();
        for (typed, class) in [
            ("DPM++ 2M Karras", Class::DpmMultistep),
            ("DPM++ 2M SDE Karras", Class::DpmMultistep),
            ("DPM++ SDE", Class::DpmSde),
            ("Euler a", Class::EulerAncestral),
            ("dpm2-a", Class::Kdpm2Ancestral),
            ("UniPC", Class::UniPc),
            ("EulerDiscreteScheduler", Class::Euler),
            (" ddim ", Class::Ddim),
        ] {
            assert_eq!(Settings::named(typed, &sd).unwrap().class(), class, "{typed}");
        }
    }

    #[test]
    fn a_name_keeps_what_the_model_was_trained_with() {
        let config = json!({ "_class_name": "DDIMScheduler", "prediction_type": "v_prediction",
            "rescale_betas_zero_snr": true, "timestep_spacing": "trailing" });
        let base = Settings::read(None, &config).unwrap();
        let euler = Settings::named("euler", &base).unwrap().walk(4, &Options::default()).unwrap();
        assert!((euler.sigmas[0] - 4096.0).abs() < 1.0, "zero SNR is kept: {:?}", euler.sigmas);
        let flow = json!({ "_class_name": "UniPCMultistepScheduler", "use_flow_sigmas": true, "flow_shift": 5.0,
            "prediction_type": "flow_prediction" });
        let wan = Settings::read(None, &flow).unwrap();
        assert_eq!(Settings::named("euler", &wan).unwrap().class(), Class::FlowEuler);
        assert_eq!(Settings::named("euler", &wan).unwrap().flow_shift(), Some((5.0, false)));
        let flux = json!({ "_class_name": "FlowMatchEulerDiscreteScheduler", "use_dynamic_shifting": true });
        let flux = Settings::read(None, &flux).unwrap();
        for name in ["unipc", "dpmpp_2m", "deis", "euler"] {
            let settings = Settings::named(name, &flux).unwrap();
            let options = Options { mu: settings.mu(4096), ..Options::default() };
            assert!(options.mu.is_some_and(|mu| (mu - 1.15).abs() < 1e-9), "{name}");
            settings.walk(4, &options).unwrap();
        }
    }

    #[test]
    fn unknown_and_unfitting_names_say_what_would_fit() {
        let error = Settings::named("dpmpp_9m", &stable_diffusion()).unwrap_err();
        assert_eq!((error.code, error.param.as_deref()), (Code::InvalidArgument, Some("sampler")));
        assert!(error.hint.unwrap().contains("dpmpp_2m_karras"));
        let flow = Settings::read(Some("FlowMatchEulerDiscreteScheduler"), &json!({})).unwrap();
        let error = Settings::named("ddim", &flow).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("sampler"));
        assert!(error.hint.unwrap().contains("euler"));
    }
}
