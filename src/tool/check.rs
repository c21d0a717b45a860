//! Arguments against a schema, before anything is read from them: an error that names the argument, what was expected and
//! what was found.

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// Refuses unknown, missing and impossible arguments. Null is the same as absence.
///
/// # Errors
/// `invalid_argument`.
pub(super) fn check(schema: &Value, arguments: &Value) -> Result<()> {
    let properties = &schema["properties"];
    let given = arguments.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    for (name, value) in given {
        let Some(property) = properties.get(name) else {
            if super::input::HIDDEN.contains(&name.as_str()) {
                continue;
            }
            let known: Vec<&str> =
                properties.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
            let shown: String = name.chars().take(80).flat_map(char::escape_default).collect();
            return Err(Error::argument(&shown, format!("`{shown}` is not an argument of this tool"))
                .hint(format!("arguments: {}", known.join(", "))));
        };
        fits(name, property, value)?;
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if arguments.get(name).is_none_or(Value::is_null) {
            return Err(Error::argument(name, format!("`{name}` is required")));
        }
    }
    Ok(())
}

/// The arguments that say something.
pub(super) fn without_nulls(arguments: &Value) -> Value {
    let given = arguments.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    Value::Object(given.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>())
}

/// One value against its property.
fn fits(name: &str, property: &Value, value: &Value) -> Result<()> {
    let wrong = |expected: String| {
        Err(Error::argument(name, format!("`{name}` is {}; expected {expected}", spoken(value))))
    };
    let right = match property["type"].as_str() {
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => true,
    };
    if !right {
        let kind = property["type"].as_str().unwrap_or_default();
        return wrong(match (kind, property["minimum"].as_i64(), property["maximum"].as_i64()) {
            ("integer", Some(low), Some(high)) => format!("an integer from {low} to {high}"),
            ("integer", ..) => "an integer below 2^64".into(),
            _ => format!("{} {kind}", if kind.starts_with(['a', 'o', 'i']) { "an" } else { "a" }),
        });
    }
    if let Some(choices) = property["enum"].as_array().filter(|choices| !choices.contains(value)) {
        // A model's name is looked up, so that the answer says what it is missing.
        if name != "model" {
            let choices: Vec<String> = choices.iter().map(Value::to_string).collect();
            return wrong(format!("one of {}", choices.join(", ")));
        }
    }
    if let Some(only) = property.get("const").filter(|only| only.as_f64() != value.as_f64()) {
        return wrong(format!("{only}, which this model always takes"));
    }
    if let Some(number) = value.as_f64() {
        let low = property["minimum"].as_f64().unwrap_or(f64::NEG_INFINITY);
        let high = property["maximum"].as_f64().unwrap_or(f64::INFINITY);
        if !(low..=high).contains(&number) {
            return wrong(match property["maximum"].as_f64() {
                Some(high) => format!("a number from {low} to {high}"),
                None => format!("a number from {low}"),
            });
        }
        let multiple = property["multipleOf"].as_u64().unwrap_or(1).max(1);
        if let Some(pixels) = value.as_u64().filter(|pixels| !pixels.is_multiple_of(multiple)) {
            let near = (pixels / multiple).max(1) * multiple;
            return wrong(format!("a multiple of {multiple}, such as {near}"));
        }
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        fits(&format!("{name}[{index}]"), &property["items"], item)?;
    }
    Ok(())
}

/// A value as a message shows it: short, on one line.
fn spoken(value: &Value) -> String {
    let text = match value {
        Value::String(text) => format!("{text:?}"),
        other => other.to_string(),
    };
    let short: String = text.chars().take(60).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_does_not_fit_is_named_with_what_would() {
        let schema = json!({
            "properties": {
                "prompt": { "type": "string" },
                "width": { "type": "integer", "minimum": 8, "maximum": 64, "multipleOf": 8, "default": null },
                "seeds": { "type": "array", "items": { "type": "integer", "minimum": 0 }, "default": null },
                "detail": { "type": "string", "enum": ["auto", "high"], "default": "auto" },
            },
            "required": ["prompt"],
        });
        let refused = |arguments: Value| {
            let error = check(&schema, &arguments).expect_err("must be refused");
            (error.param.unwrap_or_default(), error.message)
        };
        assert!(check(&schema, &json!({ "prompt": "a", "width": null, "seeds": [1, 2] })).is_ok());
        for (arguments, param, said) in [
            (json!({}), "prompt", "required"),
            (json!({ "prompt": 5 }), "prompt", "expected a string"),
            (json!({ "prompt": "a", "width": 9 }), "width", "such as 8"),
            (json!({ "prompt": "a", "width": 80 }), "width", "from 8 to 64"),
            (json!({ "prompt": "a", "width": 8.5 }), "width", "an integer from 8 to 64"),
            (json!({ "prompt": "a", "seeds": [1, -2] }), "seeds[1]", "from 0"),
            (json!({ "prompt": "a", "detail": "low" }), "detail", "one of \"auto\", \"high\""),
            (json!({ "prompt": "a", "tallness": 8 }), "tallness", "not an argument"),
        ] {
            let (got, message) = refused(arguments);
            assert_eq!(got, param);
            assert!(message.contains(said), "{message}");
        }
    }
}
