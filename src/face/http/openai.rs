//! OpenAI's words for a picture as arguments of our tools.

use serde_json::{Map, Value, json};

use super::form::PICTURES;
use crate::error::{Error, Result};

/// Fields of OpenAI's that say nothing which a local model could heed, and their harmless values.
const IDLE: &[(&str, &[&str])] = &[
    ("quality", &["auto", "standard", "medium", "high", "hd", "low"]),
    ("style", &["vivid", "natural"]),
    ("background", &["auto", "opaque"]),
    ("moderation", &["auto", "low"]),
    ("input_fidelity", &["low", "high"]),
    ("user", &[]),
    ("output_format", &["png"]),
];

/// Other names of our arguments.
const ALIASES: &[(&str, &str)] = &[
    ("num_inference_steps", "steps"),
    ("guidance", "guidance_scale"),
    ("cfg_scale", "guidance_scale"),
    ("sampler_name", "sampler"),
    ("denoising_strength", "strength"),
];

/// How pictures come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Base64,
    Url,
    Artifact,
}

/// A request in the words of our tool, and what of it could not be heeded.
pub(super) struct Wanted {
    pub(super) arguments: Value,
    pub(super) form: Form,
    pub(super) warnings: Vec<String>,
    /// Pictures of the way there, if the answer is a stream of events.
    pub(super) stream: Option<u64>,
}

/// A request of OpenAI's as arguments of our tool.
///
/// # Errors
/// `url_not_allowed`, `invalid_argument` for what no model here can heed.
pub(super) fn translated(sent: &Value, schema: &Value) -> Result<Wanted> {
    let properties = &schema["properties"];
    let mut wanted =
        Wanted { arguments: Value::Null, form: Form::Base64, warnings: Vec::new(), stream: None };
    let mut arguments = Map::new();
    let mut is_stream = false;
    for (name, value) in sent.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
        let own = ALIASES.iter().find(|(alias, _)| alias == name).map_or(name.as_str(), |(_, own)| *own);
        if is_idle(name, value)? {
            continue;
        }
        match own {
            "n" => {
                // Ten pictures are what this form has room for.
                let count = typed(value, "integer").as_u64().filter(|count| (1..=10).contains(count));
                let count =
                    count.ok_or_else(|| Error::argument("n", format!("n is {value}; expected 1 to 10")))?;
                arguments.insert("count".into(), count.into());
            }
            "response_format" => wanted.form = form_of(value)?,
            "stream" => {
                is_stream = typed(value, "boolean").as_bool().ok_or_else(|| {
                    Error::argument("stream", format!("stream is {value}; expected true or false"))
                })?;
            }
            "partial_images" => {
                let count = typed(value, "integer").as_u64().filter(|count| *count <= 3);
                wanted.stream = Some(count.ok_or_else(|| {
                    Error::argument("partial_images", format!("partial_images is {value}; expected 0 to 3"))
                })?);
            }
            "size" if value == "auto" => {}
            "image" | PICTURES if properties.get("image_b64").is_some() => {
                add_pictures(&mut arguments, value)?;
            }
            "mask" if properties.get("mask_b64").is_some() => {
                let (key, value) = picture("mask", value)?;
                arguments.insert(key, value);
            }
            own if own == "task" || properties.get(own).is_some() => {
                let kind = properties[own]["type"].as_str().unwrap_or_default();
                arguments.insert(own.to_owned(), typed(value, kind));
            }
            // Nothing is fetched: what names a picture is refused, not passed over.
            own if own.starts_with("image") || own.starts_with("mask") || own.ends_with("_url") => {
                arguments.insert(own.to_owned(), value.clone());
            }
            _ => wanted
                .warnings
                .push(format!("`{}` is not known here and was passed over", name.escape_default())),
        }
    }
    wanted.stream = is_stream.then(|| wanted.stream.unwrap_or(0));
    // Some send both forms of a size.
    if let (Some(Value::String(size)), Some(width), Some(height)) =
        (arguments.get("size"), arguments.get("width"), arguments.get("height"))
        && *size == format!("{width}x{height}")
    {
        arguments.remove("size");
    }
    wanted.arguments = Value::Object(arguments);
    Ok(wanted)
}

/// Whether a field says nothing that could be heeded.
///
/// # Errors
/// `invalid_argument` if it asks for something all the same.
fn is_idle(name: &str, value: &Value) -> Result<bool> {
    let Some((_, harmless)) = IDLE.iter().find(|(idle, _)| *idle == name) else { return Ok(false) };
    if harmless.is_empty() || harmless.contains(&value.as_str().unwrap_or_default()) {
        return Ok(true);
    }
    let message = format!("`{name}` is {value}; the models here know {}", harmless.join(", "));
    Err(Error::argument(name, message))
}

fn form_of(value: &Value) -> Result<Form> {
    match value.as_str() {
        Some("b64_json") => Ok(Form::Base64),
        Some("url") => Ok(Form::Url),
        Some("artifact") => Ok(Form::Artifact),
        _ => {
            let message = format!("response_format is {value}; expected b64_json, url or artifact");
            Err(Error::argument("response_format", message))
        }
    }
}

/// Text of a form as the type that it stands for; what is none stays text, and is refused by the tool's schema.
fn typed(value: &Value, kind: &str) -> Value {
    let Some(text) = value.as_str().filter(|_| !matches!(kind, "string" | "")) else { return value.clone() };
    serde_json::from_str(text.trim()).unwrap_or_else(|_| match text.trim().to_ascii_lowercase().as_str() {
        "true" => true.into(),
        "false" => false.into(),
        _ => value.clone(),
    })
}

/// The first picture is the one to change, the others are looked at.
fn add_pictures(arguments: &mut Map<String, Value>, value: &Value) -> Result<()> {
    let one = std::slice::from_ref(value);
    let [first, more @ ..] = value.as_array().map_or(one, Vec::as_slice) else {
        return Err(Error::argument("image", "there is no picture"));
    };
    let (key, first) = picture("image", first)?;
    arguments.insert(key, first);
    if !more.is_empty() {
        let reference = |value: &Value| {
            let (key, value) = picture("image", value)?;
            Ok(if key.ends_with("_b64") { json!({ "b64": value }) } else { value })
        };
        let more = more.iter().map(reference).collect::<Result<Vec<Value>>>()?;
        arguments.insert("reference_images".into(), more.into());
    }
    Ok(())
}

/// A picture in one of the forms that clients send: text in base64, `{image_url}` with a data URL, `{file_id}` with the id
/// of an artifact, a ref.
fn picture(name: &str, value: &Value) -> Result<(String, Value)> {
    let text = value.as_str().or_else(|| {
        let url = &value["image_url"];
        url.as_str().or_else(|| url["url"].as_str())
    });
    if let Some(text) = text {
        return Ok((format!("{name}_b64"), text.into()));
    }
    if let Some(id) = value["file_id"].as_str() {
        return Ok((format!("{name}_artifact"), json!({ "$artifact": id })));
    }
    if value.is_object() {
        return Ok((format!("{name}_artifact"), value.clone()));
    }
    Err(Error::argument(name, format!("{name} is neither base64 nor {{image_url}} nor {{file_id}}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Value {
        let kind = |name: &str| json!({ "type": name });
        json!({ "properties": {
            "prompt": kind("string"), "steps": kind("integer"), "strength": kind("number"), "preview": kind("boolean"),
            "image_b64": kind("string"), "image_artifact": kind("object"), "mask_b64": kind("string"),
            "reference_images": kind("array"), "extend": kind("object"), "size": kind("string"),
        } })
    }

    #[test]
    fn text_of_a_form_becomes_what_it_stands_for() {
        let sent = json!({ "prompt": "7", "n": "2", "num_inference_steps": "4", "denoising_strength": "0.5",
            "preview": "False", "extend": "{\"left\": 8}", "size": "auto", "user": "me", "input_fidelity": "high" });
        let wanted = translated(&sent, &schema()).expect("fine");
        assert_eq!(
            wanted.arguments,
            json!({ "prompt": "7", "count": 2, "steps": 4, "strength": 0.5, "preview": false, "extend": { "left": 8 } })
        );
        assert!(wanted.warnings.is_empty() && wanted.stream.is_none());
        let wanted = translated(&json!({ "steps": "many" }), &schema()).expect("the tool refuses it");
        assert_eq!(wanted.arguments["steps"], "many");
    }

    #[test]
    fn pictures_come_in_every_form_of_a_client() {
        let sent = json!({ "images": [{ "image_url": "data:image/png;base64,AA" }, { "file_id": "f" }, "BB"],
            "mask": { "image_url": { "url": "data:image/png;base64,CC" } }, "stream": "true", "partial_images": 2 });
        let wanted = translated(&sent, &schema()).expect("fine");
        assert_eq!(
            wanted.arguments,
            json!({ "image_b64": "data:image/png;base64,AA", "mask_b64": "data:image/png;base64,CC",
                "reference_images": [{ "$artifact": "f" }, { "b64": "BB" }] })
        );
        assert_eq!(wanted.stream, Some(2));
        for (sent, param) in [
            (json!({ "images": [] }), "image"),
            (json!({ "images": 5 }), "image"),
            (json!({ "mask": 5 }), "mask"),
            (json!({ "partial_images": 4 }), "partial_images"),
            (json!({ "input_fidelity": "wild" }), "input_fidelity"),
        ] {
            let error = translated(&sent, &schema()).err().expect("must be refused");
            assert_eq!(error.param.as_deref(), Some(param));
        }
    }
}
