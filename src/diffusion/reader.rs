//! Reads a scheduler configuration: every value is checked, and an error says what would have been right.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::spacing;

use crate::error::{Code, Error, Result};

/// The keys of one configuration, read for one class.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    class: &'a str,
    keys: &'a Map<String, Value>,
}

impl<'a> Reader<'a> {
    /// Reads `keys` on behalf of `class`, whose name every error carries.
    pub(crate) fn new(class: &'a str, keys: &'a Map<String, Value>) -> Self {
        Self { class, keys }
    }

    /// An error about `key`.
    pub(crate) fn refuse(&self, key: &str, why: impl std::fmt::Display) -> Error {
        Error {
            param: Some(key.into()),
            ..Error::new(Code::ConfigInvalid, format!("{}: {key} {why}", self.class))
        }
    }

    /// The value of `key`, unless it is absent or null.
    fn value(&self, key: &str) -> Option<&'a Value> {
        self.keys.get(key).filter(|value| !value.is_null())
    }

    /// Whether `key` is given.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// Whether `key` is a list of nothing.
    pub(crate) fn is_empty_list(&self, key: &str) -> bool {
        self.value(key).and_then(Value::as_array).is_some_and(Vec::is_empty)
    }

    /// A number in `range`, if it is given.
    pub(crate) fn maybe(&self, key: &str, range: RangeInclusive<f64>) -> Result<Option<f64>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let number = match value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        match number {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            _ => Err(self.refuse(
                key,
                format_args!("is {value}, but must be a number from {} to {}", range.start(), range.end()),
            )),
        }
    }

    /// A number in `range`, or its default.
    pub(crate) fn number(&self, key: &str, default: f64, range: RangeInclusive<f64>) -> Result<f64> {
        Ok(self.maybe(key, range)?.unwrap_or(default))
    }

    /// A whole number in `range`, or its default.
    pub(crate) fn whole(&self, key: &str, default: usize, range: RangeInclusive<usize>) -> Result<usize> {
        let Some(value) = self.value(key) else { return Ok(default) };
        let whole =
            value.as_f64().filter(|number| number.fract() == 0.0 && *number >= 0.0).map(spacing::whole);
        match whole {
            Some(whole) if range.contains(&whole) => Ok(whole),
            _ => Err(self.refuse(
                key,
                format_args!(
                    "is {value}, but must be a whole number from {} to {}",
                    range.start(),
                    range.end()
                ),
            )),
        }
    }

    /// True or false, or its default.
    pub(crate) fn flag(&self, key: &str, default: bool) -> Result<bool> {
        match self.value(key) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(self.refuse(key, format_args!("is {other}, but must be true or false"))),
        }
    }

    /// One of the listed words, or the first of them.
    pub(crate) fn choice<T: Copy>(&self, key: &str, allowed: &[(&str, T)]) -> Result<T> {
        let Some(value) = self.value(key) else { return Ok(allowed[0].1) };
        if let Some((_, choice)) = allowed.iter().find(|(word, _)| value == word) {
            return Ok(*choice);
        }
        let words: Vec<&str> = allowed.iter().map(|(word, _)| *word).collect();
        Err(self.refuse(key, format_args!("is {value}, but must be one of {}", words.join(", "))))
    }

    /// A list of numbers in `range`, if it is given.
    pub(crate) fn numbers(&self, key: &str, range: RangeInclusive<f64>) -> Result<Option<Vec<f64>>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let numbers: Option<Vec<f64>> =
            value.as_array().and_then(|list| list.iter().map(Value::as_f64).collect());
        match numbers {
            Some(numbers) if !numbers.is_empty() && numbers.iter().all(|n| range.contains(n)) => {
                Ok(Some(numbers))
            }
            _ => Err(self.refuse(
                key,
                format_args!("must be a list of numbers from {} to {}", range.start(), range.end()),
            )),
        }
    }

    /// Refuses a setting that would change the numbers and is not implemented, unless it is null, false or empty.
    pub(crate) fn absent(&self, key: &str) -> Result<()> {
        match self.value(key) {
            None | Some(Value::Bool(false)) => Ok(()),
            Some(Value::Array(list)) if list.is_empty() => Ok(()),
            Some(_) => Err(self.refuse(key, "is not supported")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_name_the_class_the_key_and_what_is_allowed() {
        let config = json!({ "a": "x", "b": 3, "c": [1, "2"], "d": -1, "e": "-Infinity" });
        let reader = Reader::new("Euler", config.as_object().unwrap());
        let error = reader.choice("a", &[("y", 1), ("z", 2)]).unwrap_err();
        assert_eq!(error.code, Code::ConfigInvalid);
        assert_eq!(error.message, "Euler: a is \"x\", but must be one of y, z");
        assert_eq!(error.param.as_deref(), Some("a"));
        assert!(reader.flag("b", true).is_err());
        assert!(reader.numbers("c", 0.0..=9.0).is_err());
        assert!(reader.whole("d", 1, 0..=9).is_err());
        assert!(reader.number("e", 0.0, f64::NEG_INFINITY..=0.0).unwrap().is_infinite());
        assert!(reader.absent("b").is_err() && reader.absent("none").is_ok());
        assert_eq!(reader.whole("none", 7, 0..=9).unwrap(), 7);
    }
}
