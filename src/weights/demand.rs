//! What a network demands of its configuration beyond the range of one number.

use super::config::Config;
use crate::error::{Code, Error, Result};

impl Config {
    /// The value of `key` must agree with the rest of the configuration.
    ///
    /// # Errors
    /// `config_invalid` naming the file, the key, what was expected and what was found.
    pub fn must(&self, key: &str, holds: bool, expected: &str) -> Result<()> {
        if holds { Ok(()) } else { Err(self.invalid(key, expected)) }
    }

    /// The value of `key` must be one that we can compute; another one would change the picture.
    ///
    /// # Errors
    /// `model_unsupported` with the same words.
    pub fn supported(&self, key: &str, holds: bool, expected: &str) -> Result<()> {
        if holds {
            return Ok(());
        }
        Err(Error { code: Code::ModelUnsupported, ..self.invalid(key, format_args!("{expected} here")) })
    }
}
