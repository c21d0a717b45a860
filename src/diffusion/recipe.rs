//! Settings as a recipe keeps them, and as web UIs call them.

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::class::Class;
use super::settings::Settings;

impl Settings {
    /// The class and every key that was read: [`Settings::read`] of it gives the same settings.
    pub fn to_json(&self) -> Value {
        let mut config = self.config().clone();
        config.insert("_class_name".into(), self.class().as_str().into());
        Value::Object(config)
    }

    /// The sampler and the spacing of its levels in the words of web UIs: `DPM++ 2M`, `Karras`.
    ///
    /// # Source
    /// The lists of samplers and schedules that readers of infotext know; `interfaces.md` 2.4.
    pub fn spoken(&self) -> (String, Option<&'static str>) {
        let says = |key: &str, word: &str| self.config().get(key).is_some_and(|value| value == word);
        let third = self.config().get("solver_order").is_some_and(|order| order == 3);
        let stochastic = says("algorithm_type", "sde-dpmsolver++");
        let name = match self.class() {
            Class::Euler | Class::FlowEuler => "Euler",
            Class::EulerAncestral => "Euler a",
            Class::Heun | Class::FlowHeun => "Heun",
            Class::Lms => "LMS",
            Class::Kdpm2 => "DPM2",
            Class::Kdpm2Ancestral => "DPM2 a",
            Class::DpmMultistep if third && stochastic => "DPM++ 3M SDE",
            Class::DpmMultistep if third => "DPM++ 3M",
            Class::DpmMultistep if stochastic => "DPM++ 2M SDE",
            Class::DpmMultistep => "DPM++ 2M",
            Class::DpmSinglestep => "DPM++ 2S",
            Class::DpmSde => "DPM++ SDE",
            Class::UniPc => "UniPC",
            Class::Ddim => "DDIM",
            Class::Ddpm => "DDPM",
            Class::Pndm => "PLMS",
            Class::Lcm | Class::FlowLcm => "LCM",
            other => other.as_str().trim_end_matches("Scheduler"),
        };
        let spacings = [
            ("use_karras_sigmas", "Karras"),
            ("use_exponential_sigmas", "Exponential"),
            ("use_beta_sigmas", "Beta"),
        ];
        let spacing = spacings.iter().find(|(key, _)| self.config().get(*key) == Some(&Value::Bool(true)));
        (name.to_owned(), spacing.map(|(_, word)| *word))
    }
}

impl PartialEq for Settings {
    fn eq(&self, other: &Self) -> bool {
        self.to_json() == other.to_json()
    }
}

impl Serialize for Settings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_come_back_from_their_json() -> crate::error::Result<()> {
        let config =
            json!({ "beta_schedule": "scaled_linear", "use_karras_sigmas": true, "solver_order": 2 });
        let settings = Settings::read(Some("DPMSolverMultistepScheduler"), &config)?;
        assert_eq!(Settings::read(None, &settings.to_json())?, settings);
        assert_eq!(settings.spoken(), ("DPM++ 2M".into(), Some("Karras")));
        Ok(())
    }
}
