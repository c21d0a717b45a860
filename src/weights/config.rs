//! Configurations: JSON that is small, means one thing, and says where it is wrong.
//!
//! A hostile `config.json` is a few bytes that ask for terabytes, so sizes come out of here only within the range that
//! the asker gives. Unknown keys are tolerated: every version of a library adds some.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::limits;
use crate::error::{Code, Error, Result};

/// Reads JSON of at most `limit` bytes; `what` names the file in errors.
///
/// Stricter than the libraries that write these files: a key may be there only once, because two readers would give
/// two answers; NaN, infinity and numbers that overflow are no numbers; nesting ends at [`limits::JSON_DEPTH`].
///
/// # Errors
/// `config_invalid`, naming the file and the place.
pub fn read_json(bytes: &[u8], limit: usize, what: &str) -> Result<Value> {
    let invalid = |message: String| Error::new(Code::ConfigInvalid, message);
    if bytes.len() > limit {
        return Err(invalid(format!("`{what}` has {} bytes; more than {limit} are not read", bytes.len())));
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    Strict(limits::JSON_DEPTH)
        .deserialize(&mut json)
        .and_then(|value| json.end().map(|()| value))
        .map_err(|error| invalid(format!("`{what}` is not valid JSON")).because(error))
}

/// Builds a [`Value`] that may nest so many levels more.
struct Strict(usize);

impl Strict {
    fn deeper<E: serde::de::Error>(&self) -> Result<Self, E> {
        match self.0.checked_sub(1) {
            Some(left) => Ok(Self(left)),
            None => Err(E::custom(format!("nested deeper than {} levels", limits::JSON_DEPTH))),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element_seed(self.deeper()?)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = map.next_value_seed(self.deeper()?)?;
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("the key `{}` is there twice", key.escape_debug())));
            }
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

/// One configuration, read key by key.
///
/// Each getter takes the range that makes sense and comes in two forms: the plain one wants the key to be there, the
/// one named `opt_` gives `None` where it is absent or null.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The whole object.
    pub value: Value,
    /// The file, as errors call it.
    pub origin: String,
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// `config_invalid` if it is not one JSON object.
    pub fn read(bytes: &[u8], origin: impl Into<String>) -> Result<Self> {
        let origin = origin.into();
        let value = read_json(&minus_infinity_as_text(bytes), limits::CONFIG_BYTES, &origin)?;
        if !value.is_object() {
            return Err(Error::new(Code::ConfigInvalid, format!("`{origin}` is not a JSON object")));
        }
        Ok(Self { value, origin })
    }

    /// The value of a key; null counts as absent, as it does for the libraries that write these files.
    pub fn field(&self, key: &str) -> Option<&Value> {
        self.value.get(key).filter(|value| !value.is_null())
    }

    /// The error that says what `key` should be and what it is.
    pub fn invalid(&self, key: &str, expected: impl fmt::Display) -> Error {
        let found = self.value.get(key).map_or("nothing".to_owned(), |value| {
            let text = value.to_string();
            let cut: String = text.chars().take(60).collect();
            if cut.len() < text.len() { format!("{cut}…") } else { cut }
        });
        let message = format!("`{}`: `{key}` must be {expected}, found {found}", self.origin);
        Error::new(Code::ConfigInvalid, message)
    }

    fn wanted<T>(&self, key: &str, found: Option<T>, expected: impl fmt::Display) -> Result<T> {
        found.ok_or_else(|| self.invalid(key, expected))
    }

    /// A whole number within `range`.
    pub fn usize(&self, key: &str, range: RangeInclusive<usize>) -> Result<usize> {
        self.wanted(key, self.opt_usize(key, range.clone())?, whole(&range))
    }

    /// A whole number within `range`, if there is one.
    pub fn opt_usize(&self, key: &str, range: RangeInclusive<usize>) -> Result<Option<usize>> {
        let read = |value: &Value| as_usize(value, &range).ok_or_else(|| self.invalid(key, whole(&range)));
        self.field(key).map(read).transpose()
    }

    /// A number within `range`.
    pub fn number(&self, key: &str, range: RangeInclusive<f64>) -> Result<f64> {
        self.wanted(key, self.opt_number(key, range.clone())?, real(&range))
    }

    /// A number within `range`, if there is one.
    pub fn opt_number(&self, key: &str, range: RangeInclusive<f64>) -> Result<Option<f64>> {
        let read = |value: &Value| as_number(value, &range).ok_or_else(|| self.invalid(key, real(&range)));
        self.field(key).map(read).transpose()
    }

    /// A truth value.
    pub fn bool(&self, key: &str) -> Result<bool> {
        self.wanted(key, self.opt_bool(key)?, "true or false")
    }

    /// A truth value, if there is one.
    pub fn opt_bool(&self, key: &str) -> Result<Option<bool>> {
        let read = |value: &Value| value.as_bool().ok_or_else(|| self.invalid(key, "true or false"));
        self.field(key).map(read).transpose()
    }

    /// A text.
    pub fn text(&self, key: &str) -> Result<&str> {
        self.wanted(key, self.opt_text(key)?, "a text")
    }

    /// A text, if there is one.
    pub fn opt_text(&self, key: &str) -> Result<Option<&str>> {
        let read = |value| Value::as_str(value).ok_or_else(|| self.invalid(key, "a text"));
        self.field(key).map(read).transpose()
    }

    /// A list of whole numbers, each within `range`; `length` says how many there may be.
    pub fn usizes(
        &self,
        key: &str,
        length: RangeInclusive<usize>,
        range: RangeInclusive<usize>,
    ) -> Result<Vec<usize>> {
        let expected = || format!("a list of {}, each {}", spoken(&length), whole(&range));
        let list = self.field(key).and_then(Value::as_array).filter(|list| length.contains(&list.len()));
        let read = list.and_then(|list| list.iter().map(|item| as_usize(item, &range)).collect());
        self.wanted(key, read, expected())
    }

    /// A list of `length` whole numbers, or one number that stands for all of them, as in `attention_head_dim`.
    pub fn usizes_or_one(
        &self,
        key: &str,
        length: usize,
        range: RangeInclusive<usize>,
    ) -> Result<Vec<usize>> {
        match self.field(key) {
            Some(Value::Array(_)) => self.usizes(key, length..=length, range),
            _ => Ok(vec![self.usize(key, range)?; length]),
        }
    }

    /// A list of numbers, each within `range`.
    pub fn numbers(
        &self,
        key: &str,
        length: RangeInclusive<usize>,
        range: RangeInclusive<f64>,
    ) -> Result<Vec<f64>> {
        let expected = || format!("a list of {}, each {}", spoken(&length), real(&range));
        let list = self.field(key).and_then(Value::as_array).filter(|list| length.contains(&list.len()));
        let read = list.and_then(|list| list.iter().map(|item| as_number(item, &range)).collect());
        self.wanted(key, read, expected())
    }

    /// A list of texts.
    pub fn texts(&self, key: &str, length: RangeInclusive<usize>) -> Result<Vec<&str>> {
        let list = self.field(key).and_then(Value::as_array).filter(|list| length.contains(&list.len()));
        let read = list.and_then(|list| list.iter().map(Value::as_str).collect());
        self.wanted(key, read, format_args!("a list of {} texts", spoken(&length)))
    }
}

/// Python writes minus infinity as a bare word, and diffusers does so for `lambda_min_clipped`, where it means *none*.
/// As a text it is still refused wherever a number is wanted.
fn minus_infinity_as_text(bytes: &[u8]) -> Cow<'_, [u8]> {
    const WORD: &[u8] = b"-Infinity";
    if !bytes.windows(WORD.len()).any(|window| window == WORD) {
        return bytes.into();
    }
    let mut text = Vec::with_capacity(bytes.len() + 16);
    let (mut at, mut quoted) = (0, false);
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if quoted => {
                text.extend_from_slice(&bytes[at..bytes.len().min(at + 2)]);
                at += 2;
                continue;
            }
            b'"' => quoted = !quoted,
            _ if !quoted && bytes[at..].starts_with(WORD) => {
                text.extend_from_slice(b"\"-Infinity\"");
                at += WORD.len();
                continue;
            }
            _ => {}
        }
        text.push(bytes[at]);
        at += 1;
    }
    text.into()
}

fn as_usize(value: &Value, range: &RangeInclusive<usize>) -> Option<usize> {
    usize::try_from(value.as_u64()?).ok().filter(|number| range.contains(number))
}

fn as_number(value: &Value, range: &RangeInclusive<f64>) -> Option<f64> {
    value.as_f64().filter(|number| range.contains(number))
}

fn whole(range: &RangeInclusive<usize>) -> String {
    format!("a whole number from {} to {}", range.start(), range.end())
}

fn real(range: &RangeInclusive<f64>) -> String {
    match (range.start(), range.end()) {
        (&f64::MIN, &f64::MAX) => "a number".to_owned(),
        (start, end) => format!("a number from {start} to {end}"),
    }
}

fn spoken(length: &RangeInclusive<usize>) -> String {
    if length.start() == length.end() {
        length.start().to_string()
    } else {
        format!("{} to {}", length.start(), length.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::read(text.as_bytes(), "unet/config.json").expect("valid")
    }

    fn refused(text: &str) -> String {
        let error = Config::read(text.as_bytes(), "c.json").expect_err("must be refused");
        assert_eq!(error.code, Code::ConfigInvalid);
        error.to_string()
    }

    #[test]
    fn what_two_readers_could_read_differently_is_refused() {
        assert!(refused(r#"{"a":1,"b":{"c":1,"c":2}}"#).contains("`c` is there twice"));
        for text in [r#"{"a":NaN}"#, r#"{"a":1e400}"#, r#"{"a":Infinity}"#, "{", "[]", "{} {}", "\u{feff}{}"]
        {
            refused(text);
        }
        let deep = |n: usize| format!("{{\"a\":{}{}}}", "[".repeat(n), "]".repeat(n));
        assert!(refused(&deep(64)).contains("nested deeper"));
        refused(&deep(100_000));
        config(&deep(63));
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(limits::CONFIG_BYTES));
        assert!(refused(&long).contains("bytes"));
    }

    #[test]
    fn minus_infinity_is_read_as_diffusers_writes_it() {
        let config = config(r#"{"lambda_min_clipped": -Infinity, "a": "-Infinity \" -Infinity", "b": 1}"#);
        assert_eq!(config.text("lambda_min_clipped").expect("a text"), "-Infinity");
        assert_eq!(config.text("a").expect("untouched"), "-Infinity \" -Infinity");
        assert!(config.number("lambda_min_clipped", f64::MIN..=f64::MAX).is_err());
        refused(r#"{"a": -InfinityX}"#);
    }

    #[test]
    fn values_are_taken_only_within_their_range() {
        let config = config(
            r#"{"n":3,"minus":-1,"half":0.5,"flag":true,"name":"silu","null":null,
            "list":[1,2],"mixed":[1,"a"],"big":2147483648}"#,
        );
        assert_eq!(config.usize("n", 1..=4).expect("in range"), 3);
        assert_eq!(config.opt_usize("null", 1..=4).expect("absent"), None);
        assert_eq!(config.opt_usize("nowhere", 1..=4).expect("absent"), None);
        assert_eq!(config.usizes("list", 1..=4, 1..=2).expect("list"), [1, 2]);
        assert_eq!(config.usizes_or_one("n", 3, 1..=9).expect("one"), [3, 3, 3]);
        assert_eq!(config.numbers("list", 2..=2, 0.0..=2.0).expect("list"), [1.0, 2.0]);
        assert!((config.number("half", 0.0..=1.0).expect("in range") - 0.5).abs() < f64::EPSILON);
        assert!(config.bool("flag").expect("bool"));
        assert_eq!(config.text("name").expect("text"), "silu");
        for key in ["minus", "half", "flag", "name", "big", "list", "nowhere"] {
            let error = config.usize(key, 1..=65_536).expect_err("out of range");
            assert!(error.message.contains(key) && error.message.contains("1 to 65536"), "{error}");
        }
        assert!(config.usizes("mixed", 1..=4, 0..=9).is_err());
        assert!(config.usizes("list", 3..=3, 0..=9).is_err());
        assert!(config.texts("mixed", 0..=9).is_err());
    }
}
