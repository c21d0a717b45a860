//! A scheduler configuration, understood.

use serde_json::{Map, Value};

use super::class::Class;
use super::reader::Reader;
use super::schedule::edm::Edm;
use super::schedule::flow::Flow;
use super::schedule::indexed::Indexed;
use super::schedule::ipndm::Ipndm;
use super::schedule::scaled::Scaled;
use super::schedule::solver::Solver;
use super::walk::{Options, Walk};
use crate::error::{Code, Error, Result};

/// The most steps a walk may have.
pub(crate) const MOST_STEPS: usize = 500;

/// A scheduler configuration, read and checked: all it takes to plan walks.
#[derive(Debug, Clone)]
pub struct Settings {
    class: Class,
    config: Map<String, Value>,
    schedule: Schedule,
}

/// The ways of counting noise.
#[derive(Debug, Clone)]
enum Schedule {
    Indexed(Indexed),
    Scaled(Scaled),
    Solver(Solver),
    Flow(Flow),
    Edm(Edm),
    Ipndm(Ipndm),
}

impl Settings {
    /// Reads a `scheduler_config.json`; without `class` its own `_class_name` decides.
    ///
    /// Keys that are absent have the defaults of the class. Keys that no class knows are left alone.
    ///
    /// # Errors
    /// `config_invalid` for an unknown class, a value out of its range or of another type, or a setting that would change
    /// the numbers and is not implemented; it names the key and what is allowed.
    pub fn read(class: Option<&str>, config: &Value) -> Result<Self> {
        let Some(keys) = config.as_object() else {
            return Err(Error::new(Code::ConfigInvalid, "a scheduler configuration must be a JSON object"));
        };
        let Some(name) = class.or_else(|| keys.get("_class_name").and_then(Value::as_str)) else {
            return Err(Error::new(
                Code::ConfigInvalid,
                "a scheduler configuration must name its _class_name",
            ));
        };
        Self::of(Class::read(name)?, keys.clone())
    }

    /// Reads the keys for a class.
    pub(crate) fn of(class: Class, config: Map<String, Value>) -> Result<Self> {
        let reader = Reader::new(class.as_str(), &config);
        let schedule = match class {
            Class::Ddim
            | Class::DdimInverse
            | Class::CogVideoX
            | Class::Ddpm
            | Class::Pndm
            | Class::Lcm
            | Class::Tcd => Schedule::Indexed(Indexed::read(class, reader)?),
            Class::Euler
            | Class::EulerAncestral
            | Class::Heun
            | Class::Kdpm2
            | Class::Kdpm2Ancestral
            | Class::Lms
            | Class::DpmSde => Schedule::Scaled(Scaled::read(class, reader)?),
            Class::DpmMultistep | Class::DpmSinglestep | Class::UniPc | Class::Deis | Class::SaSolver => {
                Schedule::Solver(Solver::read(class, reader)?)
            }
            Class::EdmEuler | Class::EdmDpmMultistep => Schedule::Edm(Edm::read(class, reader)?),
            Class::FlowEuler | Class::FlowHeun | Class::FlowLcm => Schedule::Flow(Flow::read(class, reader)?),
            Class::Ipndm => Schedule::Ipndm(Ipndm::read(reader)?),
        };
        Ok(Self { class, config, schedule })
    }

    /// The class.
    pub fn class(&self) -> Class {
        self.class
    }

    /// The keys as they were read.
    pub(crate) fn config(&self) -> &Map<String, Value> {
        &self.config
    }

    /// Whether levels lie on straight lines, `x = (1 − σ)·x₀ + σ·ε`.
    pub fn is_flow(&self) -> bool {
        self.flow_shift().is_some()
    }

    /// The shift of a straight schedule and whether μ takes its place.
    pub(crate) fn flow_shift(&self) -> Option<(f64, bool)> {
        match &self.schedule {
            Schedule::Flow(flow) => Some((flow.shift, flow.is_dynamic())),
            Schedule::Solver(solver) => solver.shift(),
            _ => None,
        }
    }

    /// μ for a picture of `tokens` tokens, where the levels depend on the size of the picture; `None` where they do not.
    pub fn mu(&self, tokens: usize) -> Option<f64> {
        match &self.schedule {
            Schedule::Flow(flow) => flow.mu(tokens),
            Schedule::Solver(solver) => solver.mu(tokens),
            _ => None,
        }
    }

    /// Plans a walk.
    ///
    /// # Errors
    /// `invalid_argument` for 0 or more than 500 steps, more steps than the model was trained on, or an option that this
    /// class does not have; `config_invalid` where the walk would leave the training steps.
    pub fn walk(&self, steps: usize, options: &Options) -> Result<Walk> {
        let steps = match (&options.timesteps, &options.sigmas) {
            (None, Some(given)) if self.class == Class::Euler => given.len().saturating_sub(1),
            (Some(given), _) | (None, Some(given)) => given.len(),
            (None, None) => steps,
        };
        if steps == 0 || steps > MOST_STEPS {
            return Err(Error::argument("steps", format!("{steps} steps are not from 1 to {MOST_STEPS}")));
        }
        match &self.schedule {
            Schedule::Indexed(schedule) => schedule.walk(steps, options),
            Schedule::Scaled(schedule) => schedule.walk(steps, options),
            Schedule::Solver(schedule) => schedule.walk(steps, options),
            Schedule::Flow(schedule) => schedule.walk(steps, options),
            Schedule::Edm(schedule) => schedule.walk(steps, options),
            Schedule::Ipndm(schedule) => schedule.walk(steps, options),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn wrong_settings_are_refused_by_name() {
        for (class, config, key) in [
            ("EulerScheduler", json!({}), "_class_name"),
            ("EulerDiscreteScheduler", json!({ "beta_schedule": "cubic" }), "beta_schedule"),
            ("EulerDiscreteScheduler", json!({ "num_train_timesteps": 2_000_000 }), "num_train_timesteps"),
            ("EulerDiscreteScheduler", json!({ "num_train_timesteps": 0.5 }), "num_train_timesteps"),
            ("EulerDiscreteScheduler", json!({ "beta_start": "NaN" }), "beta_start"),
            ("EulerDiscreteScheduler", json!({ "timestep_spacing": 3 }), "timestep_spacing"),
            (
                "EulerDiscreteScheduler",
                json!({ "use_karras_sigmas": true, "use_beta_sigmas": true }),
                "use_beta_sigmas",
            ),
            ("KDPM2DiscreteScheduler", json!({ "prediction_type": "sample" }), "prediction_type"),
            ("DPMSolverMultistepScheduler", json!({ "algorithm_type": "dpmsolver" }), "final_sigmas_type"),
            ("DDPMScheduler", json!({ "variance_type": "fixed_large_log" }), "variance_type"),
            ("FlowMatchLCMScheduler", json!({ "scale_factors": [2.0] }), "scale_factors"),
            ("UniPCMultistepScheduler", json!({ "solver_type": "bh1" }), "final_sigmas_type"),
        ] {
            let error = Settings::read(Some(class), &config).expect_err(key);
            assert_eq!(
                (error.code, error.param.as_deref()),
                (Code::ConfigInvalid, Some(key)),
                "{class} {error}"
            );
        }
    }

    #[test]
    fn wrong_arguments_are_refused_by_name() {
        let euler = Settings::read(Some("EulerDiscreteScheduler"), &json!({})).unwrap();
        let none = Options::default();
        for (steps, options, param) in [
            (0, none.clone(), "steps"),
            (501, none.clone(), "steps"),
            (8, Options { eta: Some(0.5), ..none.clone() }, "eta"),
            (8, Options { mu: Some(0.5), ..none.clone() }, "mu"),
            (8, Options { sigmas: Some(vec![1.0, f64::NAN]), ..none.clone() }, "sigmas"),
            (8, Options { timesteps: Some(vec![1.0, 2.0]), ..none.clone() }, "timesteps"),
        ] {
            let error = euler.walk(steps, &options).expect_err(param);
            assert_eq!((error.code, error.param.as_deref()), (Code::InvalidArgument, Some(param)), "{error}");
        }
        let flux =
            Settings::read(Some("FlowMatchEulerDiscreteScheduler"), &json!({ "use_dynamic_shifting": true }));
        let flux = flux.unwrap();
        assert_eq!(flux.walk(4, &none).unwrap_err().param.as_deref(), Some("mu"));
        assert!((flux.mu(4096).unwrap() - 1.15).abs() < 1e-9 && (flux.mu(256).unwrap() - 0.5).abs() < 1e-9);
        assert_eq!(euler.walk(20, &none).unwrap().last(21).unwrap_err().code, Code::InvalidArgument);
    }
}
