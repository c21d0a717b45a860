//! A picture's place in the store: how it is found again, and what its ref tells.

use serde_json::json;

use super::Picture;
use crate::artifact::store::{Artifact, Meta, Store};
use crate::error::{Error, Result};

impl Picture {
    /// Keeps the PNG `bytes` of this picture. With `metadata` its record has the recipe, and its ref the settings; without
    /// only what the pixels show.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn keep(
        &self,
        store: &Store,
        bytes: &[u8],
        filename: Option<&str>,
        metadata: bool,
    ) -> Result<Artifact> {
        store.put(bytes, &self.meta(filename, metadata)?)
    }

    /// What a store is told of this picture; its ref tells what is in `metadata` of it.
    ///
    /// # Errors
    /// `internal` if the recipe has no JSON.
    pub fn meta(&self, filename: Option<&str>, metadata: bool) -> Result<Meta> {
        let plan = &self.plan;
        let tags = [("kind", "generated_media"), ("modality", "image"), ("task", plan.task.as_str())];
        let mut meta = Meta {
            content_type: Some("image/png".into()),
            filename: filename.map(str::to_owned),
            tags: tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            ..Meta::default()
        };
        if metadata {
            let size = self.frames.pictures().first().map(|picture| (picture.width(), picture.height()));
            let (width, height) = size.unwrap_or_default();
            let facts = json!({
                "model": plan.model.name,
                "model_sha256": plan.model.digest(),
                "seed": plan.seed,
                "steps": plan.steps,
                "sampler": plan.sampler,
                "guidance": plan.guidance,
                "width": width,
                "height": height,
                "dtype": plan.dtype,
                "device": plan.device,
                "engine": format!("latentia {}", plan.version),
            });
            meta.metadata = facts.as_object().cloned().unwrap_or_default();
            let recipe = serde_json::to_value(plan);
            meta.recipe =
                Some(recipe.map_err(|error| Error::internal("a recipe has no JSON").because(error))?);
        }
        Ok(meta)
    }
}
