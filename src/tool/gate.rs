//! The tools for a model's hands and eyes: closed until their owner opens them, each by itself.
//!
//! # Source
//! The public contract of OpenHuman for `image_generation` and `view_image`: names, parameters, switches and when a tool
//! is exposed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::drawing::{Order, Target, any_seed, draw, read_size};
use super::input;
use super::marker::Marked;
use super::{About, Answer, Desk, Gives, Tool};
use crate::error::{Error, Result};
use crate::event::Watch;
use crate::family::Task;
use crate::studio::Edit;

/// The five switches, under the names that the contract gives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the contract, under its name")]
pub struct Switches {
    /// Whether `image_generation` may be offered.
    pub image_generation_enabled: bool,
    /// Whether `view_image` may be offered.
    pub image_view_enabled: bool,
    /// The format of generated pictures where none is asked for.
    pub image_generation_output_format: PictureFormat,
    /// Whether local pictures may be read.
    pub local_image_reads_allowed: bool,
    /// Whether generated pictures may be written.
    pub generated_image_writes_allowed: bool,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            image_generation_enabled: false,
            image_view_enabled: false,
            image_generation_output_format: PictureFormat::Png,
            local_image_reads_allowed: true,
            generated_image_writes_allowed: true,
        }
    }
}

/// The format of a picture's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PictureFormat {
    /// Lossless, with the recipe in it.
    #[default]
    Png,
    /// Lossless and smaller.
    Webp,
    /// Small.
    Jpeg,
}

/// What a prompt for a model says of these tools besides what they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guidance {
    /// Which files may be looked at.
    pub include_local_file_boundaries: bool,
    /// What an answer should mention.
    pub include_final_answer_rules: bool,
}

impl Default for Guidance {
    fn default() -> Self {
        Self { include_local_file_boundaries: true, include_final_answer_rules: true }
    }
}

impl Switches {
    /// Whether pictures can be asked for.
    pub fn generates(self) -> bool {
        self.image_generation_enabled && self.generated_image_writes_allowed
    }

    /// Whether pictures can be looked at.
    pub fn views(self) -> bool {
        self.image_view_enabled && self.local_image_reads_allowed
    }

    /// Whether a tool of this contract may not be called; names that the contract does not have may not.
    pub fn is_image_tool_gated(self, name: &str) -> bool {
        match name {
            "image_generation" => !self.generates(),
            "view_image" => !self.views(),
            _ => true,
        }
    }

    /// Whether a tool of the whole table is hidden.
    pub(super) fn hides(self, name: &str) -> bool {
        match name {
            "image_generation" | "view_image" => self.is_image_tool_gated(name),
            "image_info" => !self.views(),
            _ => false,
        }
    }

    /// What a model should be told of the tools that are open; nothing if none is.
    pub fn guidance(self, options: Guidance) -> String {
        let mut lines = Vec::new();
        if self.views() {
            lines.push(
                "- `view_image`: call it when the pixels matter: a screenshot, a chart, text in a picture, two pictures to \
                 compare.",
            );
            if options.include_local_file_boundaries {
                lines.push(
                    "  It opens files of the workspace, files made in this session, and files that the user named; no others.",
                );
            }
        }
        if self.generates() {
            lines.push(
                "- `image_generation`: call it when the user wants a picture drawn or changed; give `output_path` if it \
                 matters where the file goes.",
            );
            if options.include_final_answer_rules {
                lines.push("  Say in your answer where the picture was saved.");
            }
        }
        if lines.is_empty() { String::new() } else { format!("## Pictures\n\n{}", lines.join("\n")) }
    }
}

/// The option that opens a tool.
pub(super) fn switch_of(name: &str) -> Option<&'static str> {
    match name {
        "image_generation" => Some("--image-generation"),
        "view_image" | "image_info" => Some("--image-view"),
        _ => None,
    }
}

/// Draws or changes a picture and saves it as a file.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ImageGeneration {
    /// What to draw, or what to change in the given picture.
    prompt: String,
    /// Where to save it: a path in the workspace, or an absolute path that is allowed; a place for generated pictures
    /// without.
    #[serde(default)]
    output_path: Option<String>,
    /// Pixels, such as 1024x1024 or 1536x1024; the model's own size without.
    #[serde(default)]
    size: Option<String>,
    /// A local picture to change; it must be one that may be looked at.
    #[serde(default)]
    input_image_path: Option<String>,
    /// The format of the file.
    #[serde(default)]
    output_format: Option<PictureFormat>,
}

impl Tool for ImageGeneration {
    const ABOUT: About = About {
        name: "image_generation",
        description: "Draws a picture from words, or changes a given one, and saves it as a file.",
        when_to_use: "When the user asks for a new raster picture, or for a change to one.",
        tags: &["image", "generate"],
        task: None,
        gives: Gives::Files,
    };

    fn run(self, desk: &Desk, watch: &mut Watch<'_>) -> Result<Answer> {
        let switches = desk.rules().images;
        let marked = Marked::read(&self.prompt)?;
        let mut images = marked.open(desk)?;
        if let Some(path) = &self.input_image_path {
            images.push(input::at_path(desk, "input_image_path", path)?);
        }
        if images.len() > 1 {
            let message = format!("{} pictures are named; one can be changed", images.len());
            return Err(Error::argument("input_image_path", message));
        }
        let task = if images.is_empty() { Task::TextToImage } else { Task::ImageToImage };
        desk.require(None, None, task)?;
        let mut order = Order {
            task,
            sources: images.first().and_then(|image| image.source("image")).into_iter().collect(),
            target: Target::File {
                path: self.output_path.clone(),
                format: self.output_format.unwrap_or(switches.image_generation_output_format),
            },
            ..Order::new(marked.text)
        };
        if let Some(image) = images.pop() {
            order.request.edit = Some(Edit::of(image.given("input_image_path")?));
        }
        order.request.size = self.size.as_deref().map(read_size).transpose()?;
        let mut answer = draw(desk, &order, &[any_seed()], watch)?;
        answer.value = json!({ "paths": answer.paths, "artifacts": answer.refs() });
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_closed_until_opened_each_by_itself() {
        let closed = Switches::default();
        assert!(["image_generation", "view_image", "image_info"].iter().all(|name| closed.hides(name)));
        assert!(closed.guidance(Guidance::default()).is_empty());
        let views = Switches { image_view_enabled: true, ..closed };
        assert!(!views.is_image_tool_gated("view_image") && views.is_image_tool_gated("image_generation"));
        let generates = Switches { image_generation_enabled: true, ..closed };
        assert!(
            generates.is_image_tool_gated("view_image") && !generates.is_image_tool_gated("image_generation")
        );
        let unread = Switches { local_image_reads_allowed: false, ..views };
        assert!(unread.is_image_tool_gated("view_image"));
        let unwritten = Switches { generated_image_writes_allowed: false, ..generates };
        assert!(unwritten.is_image_tool_gated("image_generation"));
        let open = Switches { image_generation_enabled: true, image_view_enabled: true, ..closed };
        assert!(open.is_image_tool_gated("rm_rf") && open.is_image_tool_gated("image_info"));
        assert!(!open.hides("vision_text_to_image") && !closed.hides("vision_text_to_image"));
    }

    #[test]
    fn guidance_speaks_of_open_tools_alone() {
        let views = Switches { image_view_enabled: true, ..Switches::default() };
        let text = views.guidance(Guidance::default());
        assert!(
            text.contains("view_image") && text.contains("workspace") && !text.contains("image_generation")
        );
        let open = Switches { image_generation_enabled: true, ..views };
        let bare = Guidance { include_local_file_boundaries: false, include_final_answer_rules: false };
        let (full, bare) = (open.guidance(Guidance::default()), open.guidance(bare));
        assert!(full.contains("was saved") && !bare.contains("was saved") && !bare.contains("workspace"));
        assert_eq!(full, full.trim_end());
    }

    #[test]
    fn the_switches_have_the_names_of_the_contract() {
        assert_eq!(
            json!(Switches::default()),
            json!({
                "image_generation_enabled": false,
                "image_view_enabled": false,
                "image_generation_output_format": "png",
                "local_image_reads_allowed": true,
                "generated_image_writes_allowed": true,
            })
        );
    }
}
