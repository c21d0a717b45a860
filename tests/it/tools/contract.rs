//! The definitions of tools, against the contracts that they are to equal.

use std::path::Path;

use serde_json::{Value, json};

use super::{Bench, contract};
use crate::inventories::{FLUX, inventory, save};

fn listed(bench: &Bench, form: &str, more: &[&str]) -> Vec<Value> {
    let mut command = bench.command(&["tools", "list", "--json", "--format", form]);
    let output = command.args(more).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// C01–C04, C37: names, parameters, types, defaults and tags are AbstractVision's; ours come on top.
#[test]
fn tools_are_those_of_abstractvision() {
    let ours = listed(&Bench::new(), "abstractcore", &[]);
    let contract = contract();
    let wanted = contract["tools"].as_array().unwrap();
    assert_eq!(wanted.len(), 11);
    let names: Vec<_> = ours.iter().take(11).map(|tool| &tool["name"]).collect();
    assert_eq!(names, wanted.iter().map(|tool| &tool["name"]).collect::<Vec<_>>(), "the order too");
    for (ours, wanted) in ours.iter().zip(wanted) {
        let name = &wanted["name"];
        assert_eq!(ours["required_args"], wanted["required_args"], "{name}");
        assert_eq!(ours["tags"], wanted["tags"], "{name}");
        for (parameter, spec) in wanted["parameters"].as_object().unwrap() {
            let own = &ours["parameters"][parameter];
            for key in ["type", "default"] {
                assert_eq!(own.get(key), spec.get(key), "{name} {parameter} {key}: {own}");
            }
            if spec.get("items").is_some() {
                assert_eq!(own["items"]["type"], spec["items"]["type"], "{name} {parameter}: {own}");
            }
            assert!(own["description"].as_str().is_some_and(|text| !text.is_empty()), "{name} {parameter}");
        }
        for (parameter, own) in ours["parameters"].as_object().unwrap() {
            let known = wanted["parameters"].get(parameter).is_some();
            assert!(
                known || own.get("default").is_some(),
                "{name}: {parameter} is ours and must be optional"
            );
        }
    }
    for tool in &ours {
        let length = |key: &str| tool[key].as_str().unwrap().chars().count();
        assert!(length("description") <= 200 && length("when_to_use") <= 240, "{}", tool["name"]);
        assert!(!tool.to_string().contains("\\n"), "one line each: {}", tool["name"]);
    }
}

/// B03: limits are those of the model at hand.
#[test]
fn schemas_have_the_limits_of_the_model() {
    let bench = Bench::new();
    let find = |more: &[&str]| {
        let tools = listed(&bench, "mcp", more);
        tools.into_iter().find(|tool| tool["name"] == "vision_text_to_image").unwrap()
    };
    let sprites = find(&[]);
    let properties = &sprites["inputSchema"]["properties"];
    assert_eq!(properties["width"]["multipleOf"], 8);
    assert_eq!(properties["width"]["maximum"], 8192);
    assert_eq!(properties["steps"]["maximum"], 500);
    assert!(
        properties["width"]["description"].as_str().unwrap().contains("sprites takes 64"),
        "{}",
        properties["width"]
    );
    assert_eq!(properties["model"]["enum"], json!(["sprites"]), "no mock is offered");
    let mock = find(&["--model", "mock"]);
    assert_eq!(mock["inputSchema"]["properties"]["model"]["enum"], json!(["mock", "sprites"]));
    assert!(
        mock["inputSchema"]["properties"]["width"]["description"]
            .as_str()
            .unwrap()
            .contains("mock takes 256")
    );
}

/// C48–C52: the contract of OpenHuman, to the letter.
#[test]
fn the_picture_tools_are_closed_and_then_exactly_as_agreed() {
    let bench = Bench::new();
    let find =
        |name: &str, more: &[&str]| listed(&bench, "mcp", more).into_iter().find(|tool| tool["name"] == name);
    assert!(find("image_generation", &[]).is_none() && find("view_image", &[]).is_none());
    assert!(find("image_generation", &["--image-generation", "--no-image-writes"]).is_none());
    assert!(find("view_image", &["--image-generation"]).is_none());
    let generation = find("image_generation", &["--image-generation", "--image-format", "webp"]).unwrap();
    let schema = &generation["inputSchema"];
    let names: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["input_image_path", "output_format", "output_path", "prompt", "size"]);
    assert_eq!(schema["required"], json!(["prompt"]));
    assert_eq!(schema["properties"]["output_format"]["enum"], json!(["png", "webp", "jpeg"]));
    assert_eq!(schema["properties"]["output_format"]["default"], "webp");
    let view = find("view_image", &["--image-view"]).unwrap();
    let schema = &view["inputSchema"];
    let names: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    assert_eq!(
        (names, &schema["required"]),
        (vec![&"detail".to_owned(), &"path".to_owned()], &json!(["path"]))
    );
    assert_eq!(schema["properties"]["detail"]["enum"], json!(["auto", "high", "original"]));
    assert_eq!(schema["properties"]["detail"]["default"], "auto");
    let guidance = |more: &[&str]| {
        let output = bench.command(&["tools", "guidance"]).args(more).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(guidance(&[]), "");
    assert!(guidance(&["--image-view"]).contains("view_image"));
}

#[test]
fn every_form_holds_the_same_schema() {
    let bench = Bench::new();
    let tools = |form: &str| listed(&bench, form, &[]);
    let (mcp, openai, chat, anthropic) =
        (tools("mcp"), tools("openai"), tools("openai-chat"), tools("anthropic"));
    for (index, tool) in mcp.iter().enumerate() {
        let names =
            |schema: &Value| schema["properties"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let own = names(&tool["inputSchema"]);
        assert_eq!(names(&openai[index]["parameters"]), own);
        assert_eq!(names(&chat[index]["function"]["parameters"]), own);
        assert_eq!(names(&anthropic[index]["input_schema"]), own);
        assert_eq!(chat[index]["type"], "function");
        assert!(tool["annotations"]["openWorldHint"] == false && tool["outputSchema"]["type"] == "object");
    }
}

/// C50: OpenHuman's records of its two tools.
#[test]
fn the_picture_tools_say_what_they_may_do() {
    let bench = Bench::new();
    let tools = listed(&bench, "openhuman", &["--image-generation", "--image-view"]);
    for (name, permission, shows, writes) in
        [("image_generation", "write", false, true), ("view_image", "read_only", true, false)]
    {
        let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
        let keys: Vec<&String> = tool.as_object().unwrap().keys().collect();
        assert_eq!(
            keys,
            ["description", "model_visible_image_output", "name", "parameters", "permission", "writes_files"]
        );
        assert_eq!(tool["permission"], permission);
        assert_eq!(
            (&tool["model_visible_image_output"], &tool["writes_files"]),
            (&json!(shows), &json!(writes))
        );
        assert_eq!(tool["parameters"]["type"], "object");
    }
}

/// C57: what the model at hand cannot draw is not offered, though it is open.
#[test]
fn a_model_that_cannot_draw_offers_no_drawing() {
    let bench = Bench::new();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden/sd15/model");
    let open = ["--image-generation", "--image-view", "--model"];
    let offers = |model: &Path| {
        let tools = listed(&bench, "mcp", &[&open[..], &[model.to_str().unwrap()]].concat());
        let has = |name: &str| tools.iter().any(|tool| tool["name"] == name);
        (has("image_generation"), has("view_image"))
    };
    assert_eq!(offers(&model), (true, true));
    // A network that is known and does not run.
    let other = bench.path("home").join("flux.safetensors");
    save(&inventory(&format!("{FLUX}\nguidance_in.in_layer.weight 3072 256")), &other);
    assert_eq!(offers(&other), (false, true));
}
