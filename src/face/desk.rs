//! The options that all faces of tools share, and the desk that they describe.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use super::cli::{DeviceArg, DtypeArg, home, store};
use crate::artifact::policy::{Access, Policy};
use crate::error::{Code, Error, Result};
use crate::tool::{Desk, PictureFormat, Rules, Switches};

/// What the owner of the machine allows, and where things lie.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub(super) struct DeskArgs {
    /// The folder of artifacts. [default: artifacts in the folder of models and settings]
    #[arg(long, value_name = "FOLDER", global = true)]
    store: Option<PathBuf>,
    /// The folder whose files tools may read and write. [default: the current one]
    #[arg(long, value_name = "FOLDER", global = true)]
    workspace: Option<PathBuf>,
    /// The model that draws where none is named; the embedded one without.
    #[arg(short, long, global = true)]
    model: Option<String>,
    /// Where to run.
    #[arg(long, value_enum, default_value = "cpu", global = true)]
    device: DeviceArg,
    /// How weights are kept in memory.
    #[arg(long, value_enum, default_value = "auto", global = true)]
    dtype: DtypeArg,
    /// Offers the tool `image_generation`.
    #[arg(long, global = true)]
    image_generation: bool,
    /// Offers the tools `view_image` and `image_info`.
    #[arg(long, global = true)]
    image_view: bool,
    /// The format of what `image_generation` saves: png, webp or jpeg.
    #[arg(long, value_name = "FORMAT", value_parser = read_format, default_value = "png", global = true)]
    image_format: PictureFormat,
    /// Lets no tool look at local pictures.
    #[arg(long, global = true)]
    no_image_reads: bool,
    /// Lets no tool save generated pictures as files.
    #[arg(long, global = true)]
    no_image_writes: bool,
    /// Keeps prompts out of files and records.
    #[arg(long, global = true)]
    private_prompts: bool,
}

fn read_format(text: &str) -> std::result::Result<PictureFormat, String> {
    serde_json::from_value(text.to_lowercase().into())
        .map_err(|_| format!("{text:?} is none of png, webp, jpeg"))
}

impl DeskArgs {
    /// The switches of the tools for a model's eyes and hands.
    pub(super) fn switches(&self) -> Switches {
        Switches {
            image_generation_enabled: self.image_generation,
            image_view_enabled: self.image_view,
            image_generation_output_format: self.image_format,
            local_image_reads_allowed: !self.no_image_reads,
            generated_image_writes_allowed: !self.no_image_writes,
        }
    }

    /// Opens everything that tools need.
    ///
    /// # Errors
    /// What the store, the workspace and the model say.
    pub(super) fn open(&self) -> Result<Arc<Desk>> {
        let home = home();
        let store = store(self.store.as_deref())?;
        let workspace = match &self.workspace {
            Some(folder) => folder.clone(),
            None => std::env::current_dir()
                .map_err(|error| Error::argument("workspace", "there is no current folder").because(error))?,
        };
        let rules = Rules {
            model: self.model.clone(),
            images: self.switches(),
            private: self.private_prompts,
            device: self.device.class(),
            precision: self.dtype.precision(),
            generated: home.join("generated"),
        };
        let mut paths = Policy::new().allow(&workspace, Access::ReadWrite)?;
        if self.switches().generates() {
            std::fs::create_dir_all(&rules.generated).map_err(|error| {
                Error::new(Code::StoreIo, "the folder of generated pictures cannot be made").because(error)
            })?;
            paths = paths.allow(&rules.generated, Access::ReadWrite)?;
        }
        Ok(Arc::new(Desk::open(&home, store, paths, rules)?))
    }
}
