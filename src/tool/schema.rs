//! The JSON Schema of a tool: derived from its type, in the plain words that every provider reads, with the limits of the
//! model at hand.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::{Desk, Entry, Tool};
use crate::error::Result;
use crate::registry::Listed;

/// What a type's fields say, every definition in its place.
pub(super) fn derive<T: Tool>() -> schemars::Schema {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings.into_generator().into_root_schema_for::<T>()
}

/// The schema of a tool for one model.
pub(super) fn of(entry: &Entry, desk: &Desk, model: Option<&str>) -> Result<Value> {
    let derived = (entry.schema)().to_value();
    let required: Vec<&str> =
        derived["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut properties = Map::new();
    for (name, property) in derived["properties"].as_object().into_iter().flatten() {
        let mut property = plain(property);
        if !required.contains(&name.as_str()) && property.get("default").is_none() {
            property["default"] = Value::Null;
        }
        properties.insert(name.clone(), property);
    }
    if let Some(task) = entry.about.task {
        // Of a model that cannot be asked for the task, nothing is known to narrow.
        if let Some(listed) = desk.listed(model).ok().filter(|listed| listed.tasks.contains(&task)) {
            narrow(&mut properties, &listed, &listed.params(task));
        }
        if let Some(property) = properties.get_mut("model") {
            property["enum"] = json!(desk.able(task)?);
        }
    }
    if let Some(format) = properties.get_mut("output_format") {
        format["default"] = json!(desk.rules().images.image_generation_output_format);
    }
    Ok(json!({ "type": "object", "properties": properties, "required": required }))
}

/// One property without what only some readers know: a type is one word, and null is its absence.
fn plain(property: &Value) -> Value {
    let mut plain = Map::new();
    for (key, value) in property.as_object().into_iter().flatten() {
        let value = match (key.as_str(), value) {
            ("type", Value::Array(types)) => {
                types.iter().find(|name| *name != "null").cloned().unwrap_or_default()
            }
            ("description", Value::String(text)) => on_one_line(text),
            ("items", items) => self::plain(items),
            ("enum", Value::Array(values)) => {
                values.iter().filter(|value| !value.is_null()).cloned().collect()
            }
            ("oneOf", Value::Array(choices)) => {
                // Variants with docs of their own: the values are enough.
                plain.insert("type".into(), "string".into());
                plain.insert("enum".into(), choices.iter().map(|choice| choice["const"].clone()).collect());
                continue;
            }
            ("anyOf", Value::Array(choices)) => {
                let choice = choices.iter().find(|choice| choice["type"] != "null").map(self::plain);
                if let Some(Value::Object(inner)) = choice {
                    plain.extend(inner);
                }
                continue;
            }
            ("format" | "additionalProperties" | "title", _) => continue,
            (_, value) => value.clone(),
        };
        plain.insert(key.clone(), value);
    }
    // The doc of the field is nearer than that of its type.
    if let Some(Value::String(text)) = property.get("description") {
        plain.insert("description".into(), on_one_line(text));
    }
    Value::Object(plain)
}

/// A doc as readers of definitions want it.
fn on_one_line(text: &str) -> Value {
    text.split_whitespace().collect::<Vec<_>>().join(" ").into()
}

/// Writes the limits of a model into the properties that it knows, and says of the others that it takes none.
fn narrow(properties: &mut Map<String, Value>, listed: &Listed, params: &Value) {
    const LIMITS: &[(&str, &str)] = &[
        ("min", "minimum"),
        ("max", "maximum"),
        ("multiple_of", "multipleOf"),
        ("enum", "enum"),
        ("const", "const"),
    ];
    for (name, property) in properties.iter_mut() {
        let spec = &params[name];
        for (theirs, ours) in LIMITS {
            if let Some(limit) = spec.get(theirs) {
                property[*ours] = limit.clone();
            }
        }
        let default =
            spec.get("const").or_else(|| spec.get("default")).filter(|_| property["default"].is_null());
        let more = match default {
            Some(default) => format!("{} takes {default} without.", listed.id),
            None => continue,
        };
        let said = property["description"].as_str().unwrap_or_default();
        property["description"] = format!("{said} {more}").trim().into();
    }
}
