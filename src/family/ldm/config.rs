//! What a `UNet2DConditionModel` is: read from its config, or from the shapes of its tensors.

use serde_json::Value;

use crate::error::{Code, Error, Result};
use crate::weights::Config;
use crate::weights::Inventory;

/// One level of the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    /// Channels.
    pub channels: usize,
    /// Residual blocks on the way down; one more on the way up.
    pub layers: usize,
    /// Transformer layers after each residual block on the way down, `None` where the level has no attention.
    pub down_depth: Option<usize>,
    /// The same on the way up.
    pub up_depth: Option<usize>,
    /// Attention heads.
    pub heads: usize,
    /// Width of the text tokens that this level attends to.
    pub context: usize,
    /// Whether its pixels attend to the text alone, and not to each other.
    pub crosses: bool,
}

/// Sizes of the network.
#[derive(Debug, Clone, PartialEq)]
pub struct UnetConfig {
    /// Channels of what comes in.
    pub input: usize,
    /// Channels of what goes out.
    pub output: usize,
    /// Levels, finest first.
    pub levels: Vec<Level>,
    /// Transformer layers in the middle; `None` where there is no middle.
    pub middle_depth: Option<usize>,
    /// Groups of the norms.
    pub groups: usize,
    /// Epsilon of the residual blocks' norms.
    pub eps: f64,
    /// Whether a transformer's way in and out are linear maps (SD 2) or 1×1 convolutions (SD 1).
    pub linear_projection: bool,
    /// Whether cosines come before sines in the time's sinusoid.
    pub cosine_first: bool,
    /// Subtracted from the number of frequencies in the sinusoid's exponent.
    pub freq_shift: f64,
    /// Width of the time signal.
    pub time: usize,
    /// Width of the guidance embedding of networks that were distilled to hear it (LCM).
    pub guidance: Option<usize>,
    /// What is heard beside the time and the text's tokens: the whole prompt and sizes (SD XL).
    pub added: Option<Added>,
    /// How many levels of noise on a given picture it tells apart, where it sees one (x4 upscaler).
    pub grains: Option<usize>,
    /// Whether the input is mapped from [0, 1] to [-1, 1] first.
    pub centre: bool,
    /// Zeros before the picture in the downsamplers.
    pub down_padding: usize,
}

/// The numbers that SD XL hears beside the time: the whole prompt as one vector, and a few sizes as sinusoids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Added {
    /// Width of the sinusoid of one size.
    pub size: usize,
    /// Width of everything together.
    pub width: usize,
}

/// Keys whose only value that this network knows is null or false.
const NEUTRAL: &[&str] = &[
    "class_embed_type",
    "encoder_hid_dim",
    "encoder_hid_dim_type",
    "dual_cross_attention",
    "cross_attention_norm",
    "mid_block_only_cross_attention",
    "timestep_post_act",
    "time_embedding_act_fn",
    "resnet_skip_time_act",
    "class_embeddings_concat",
];

/// Keys with the only value that this network knows.
const FIXED: &[(&str, &str)] = &[
    ("act_fn", "silu"),
    ("resnet_time_scale_shift", "default"),
    ("time_embedding_type", "positional"),
    ("attention_type", "default"),
];

impl UnetConfig {
    /// Widths of what the way down leaves for the way up: that of the way in, then those of every layer and halving.
    pub fn skips(&self) -> Vec<usize> {
        let mut skips = vec![self.levels[0].channels];
        for (i, level) in self.levels.iter().enumerate() {
            let halvings = usize::from(i + 1 < self.levels.len());
            skips.extend(std::iter::repeat_n(level.channels, level.layers + halvings));
        }
        skips
    }

    /// Reads diffusers' `config.json`.
    ///
    /// # Errors
    /// `config_invalid` naming the key, what was expected and found; `model_unsupported` for a setting that would
    /// change the numbers and that this network does not have.
    pub fn read(config: &Config) -> Result<Self> {
        refuse_unknown(config)?;
        let channels = config.usizes("block_out_channels", 1..=16, 1..=1 << 14)?;
        let count = channels.len();
        let down = attends(config, "down_block_types", ["CrossAttnDownBlock2D", "DownBlock2D"], count)?;
        let mut up = attends(config, "up_block_types", ["CrossAttnUpBlock2D", "UpBlock2D"], count)?;
        up.reverse();
        let layers = per_level(config, "layers_per_block", count, 1..=64, 2)?;
        let depth = per_level(config, "transformer_layers_per_block", count, 1..=256, 1)?;
        let mut up_depth = if config.field("reverse_transformer_layers_per_block").is_none() {
            depth.iter().rev().copied().collect()
        } else {
            per_level(config, "reverse_transformer_layers_per_block", count, 1..=256, 1)?
        };
        up_depth.reverse();
        // The key's name is wrong: it holds the number of heads, as diffusers explains where it reads it.
        let key = if config.field("num_attention_heads").is_none() {
            "attention_head_dim"
        } else {
            "num_attention_heads"
        };
        let heads = per_level(config, key, count, 1..=1 << 10, 8)?;
        let context = per_level(config, "cross_attention_dim", count, 1..=1 << 14, 1280)?;
        let crosses = crosses(config, count)?;
        let groups = config.opt_usize("norm_num_groups", 1..=1 << 10)?.unwrap_or(32);
        config.must(
            "norm_num_groups",
            channels.iter().all(|c| c % groups == 0),
            "a divisor of every level's channels",
        )?;
        let fit = channels.iter().zip(&heads).all(|(c, h)| c % h == 0);
        config.must(key, fit, "numbers of heads that divide the channels")?;
        let levels = (0..count)
            .map(|i| Level {
                channels: channels[i],
                layers: layers[i],
                down_depth: down[i].then_some(depth[i]),
                up_depth: up[i].then_some(up_depth[i]),
                heads: heads[i],
                context: context[i],
                crosses: crosses[i],
            })
            .collect::<Vec<_>>();
        let middle = if config.value.get("mid_block_type").is_some_and(Value::is_null) {
            None
        } else {
            let name = config.opt_text("mid_block_type")?.unwrap_or(MIDDLE);
            config.supported("mid_block_type", name == MIDDLE, MIDDLE)?;
            Some(depth[count - 1])
        };
        Ok(Self {
            input: config.usize("in_channels", 1..=1 << 10)?,
            output: config.usize("out_channels", 1..=1 << 10)?,
            middle_depth: middle,
            groups,
            eps: config.opt_number("norm_eps", f64::MIN..=f64::MAX)?.unwrap_or(1e-5),
            linear_projection: config.opt_bool("use_linear_projection")?.unwrap_or(false),
            cosine_first: config.opt_bool("flip_sin_to_cos")?.unwrap_or(true),
            freq_shift: config.opt_number("freq_shift", f64::MIN..=f64::MAX)?.unwrap_or(0.0),
            time: config.opt_usize("time_embedding_dim", 1..=1 << 16)?.unwrap_or(4 * channels[0]),
            guidance: config.opt_usize("time_cond_proj_dim", 2..=1 << 14)?,
            added: added(config)?,
            grains: config.opt_usize("num_class_embeds", 1..=1 << 16)?,
            centre: config.opt_bool("center_input_sample")?.unwrap_or(false),
            down_padding: config.opt_usize("downsample_padding", 0..=1)?.unwrap_or(1),
            levels,
        })
    }
}

/// The further embedding of SD XL, if there is one; other kinds are refused.
fn added(config: &Config) -> Result<Option<Added>> {
    const KEY: &str = "addition_embed_type";
    if config.field(KEY).is_none() {
        return Ok(None);
    }
    config.supported(KEY, config.opt_text(KEY)? == Some("text_time"), "null or text_time")?;
    Ok(Some(Added {
        size: config.usize("addition_time_embed_dim", 2..=1 << 12)?,
        width: config.usize("projection_class_embeddings_input_dim", 2..=1 << 16)?,
    }))
}

const MIDDLE: &str = "UNetMidBlock2DCrossAttn";

/// Settings that would change the picture and are not ours yet are refused, never ignored.
fn refuse_unknown(config: &Config) -> Result<()> {
    for key in NEUTRAL {
        let neutral =
            config.field(key).is_none() || config.opt_bool(key).is_ok_and(|value| value == Some(false));
        config.supported(key, neutral, "null or false")?;
    }
    for (key, value) in FIXED {
        config.supported(key, config.opt_text(key)?.is_none_or(|found| found == *value), value)?;
    }
    for key in ["conv_in_kernel", "conv_out_kernel"] {
        config.supported(key, config.opt_usize(key, 1..=64)?.is_none_or(|side| side == 3), "3")?;
    }
    for key in ["mid_block_scale_factor", "resnet_out_scale_factor"] {
        config.supported(
            key,
            config.opt_number(key, f64::MIN..=f64::MAX)?.is_none_or(|factor| (factor - 1.0).abs() < 1e-9),
            "1",
        )?;
    }
    Ok(())
}

/// Which levels attend to the text alone: one answer for all, or one for each.
fn crosses(config: &Config, count: usize) -> Result<Vec<bool>> {
    const KEY: &str = "only_cross_attention";
    let Some(Value::Array(levels)) = config.field(KEY) else {
        return Ok(vec![config.opt_bool(KEY)?.unwrap_or(false); count]);
    };
    let said: Vec<bool> = levels.iter().filter_map(Value::as_bool).collect();
    config.must(KEY, said.len() == levels.len() && said.len() == count, "true or false for each level")?;
    Ok(said)
}

/// Which of the levels attend, from the names of their blocks.
fn attends(config: &Config, key: &str, names: [&str; 2], count: usize) -> Result<Vec<bool>> {
    let blocks = config.texts(key, 1..=16)?;
    config.must(key, blocks.len() == count, "as many blocks as block_out_channels")?;
    config.supported(key, blocks.iter().all(|block| names.contains(block)), &names.join(" or "))?;
    Ok(blocks.iter().map(|block| *block == names[0]).collect())
}

/// One number for all levels, or one for each.
fn per_level(
    config: &Config,
    key: &str,
    count: usize,
    range: std::ops::RangeInclusive<usize>,
    usual: usize,
) -> Result<Vec<usize>> {
    if config.field(key).is_none() { Ok(vec![usual; count]) } else { config.usizes_or_one(key, count, range) }
}

impl UnetConfig {
    /// Reads the network off its tensors (diffusers' names), as Stable Diffusion 1, 2 and XL have it.
    ///
    /// The number of heads, the groups and the epsilons are in no shape: 8 heads where the transformers' way in is a
    /// convolution (SD 1) or where noise on a given picture is told apart (x4 upscaler), 64 channels a head where it is
    /// linear (SD 2, XL), 32 groups, sinusoids of 256 for sizes.
    ///
    /// # Errors
    /// `model_incompatible` if the tensors are no such network, with the remedy of giving its config.
    ///
    /// # Source
    /// `models.md` 2.1 and 3.2: the published configs of SD 1.5 and 2.1.
    pub fn from_shapes(inventory: &Inventory) -> Result<Self> {
        let trunk = Self::trunk_from_shapes(inventory)?;
        let output = inventory.shape("conv_out.weight").and_then(|shape| shape.first()).copied();
        let output = output.ok_or_else(|| unlike("no tensor `conv_out.weight`"))?;
        Ok(Self { output, ..trunk })
    }

    /// The same of a network that may have no way up and no way out.
    ///
    /// # Errors
    /// As [`Self::from_shapes`].
    pub(super) fn trunk_from_shapes(inventory: &Inventory) -> Result<Self> {
        let shape = |name: &str| inventory.shape(name).ok_or_else(|| unlike(&format!("no tensor `{name}`")));
        let last = |name: &str| Ok::<_, Error>(shape(name)?.get(1).copied().unwrap_or(0));
        let count = inventory.blocks("down_blocks");
        let first = shape("conv_in.weight")?.to_vec();
        let guess =
            ["down_blocks.0", "down_blocks.1"].map(|level| format!("{level}.attentions.0.proj_in.weight"));
        let rank = guess.iter().find_map(|name| inventory.shape(name)).map(<[usize]>::len);
        let linear_projection = rank == Some(2);
        let depth = |block: &str| {
            let depth = inventory.blocks(&format!("{block}.attentions.0.transformer_blocks"));
            (depth > 0).then_some(depth)
        };
        let grains = inventory.shape("class_embedding.weight").map(|shape| shape[0]);
        let mut levels = Vec::with_capacity(count);
        for i in 0..count {
            let (down, up) = (format!("down_blocks.{i}"), format!("up_blocks.{}", count - 1 - i));
            let channels = shape(&format!("{down}.resnets.0.conv1.weight"))?[0];
            let heads = if linear_projection && grains.is_none() { channels / 64 } else { 8 };
            if heads == 0 || channels % 32 != 0 || channels % heads != 0 {
                return Err(unlike(&format!("{channels} channels are not a size of Stable Diffusion")));
            }
            let asked = [&down, &up].into_iter().find(|block| depth(block).is_some());
            let asked = asked.map(|block| format!("{block}.attentions.0.transformer_blocks.0"));
            let width = |attention: &str| {
                asked.as_ref().map_or(Ok(0), |block| last(&format!("{block}.{attention}.to_k.weight")))
            };
            let (itself, context) = (width("attn1")?, width("attn2")?);
            let layers = inventory.blocks(&format!("{down}.resnets"));
            levels.push(Level {
                channels,
                layers,
                down_depth: depth(&down),
                up_depth: depth(&up),
                heads,
                context,
                // Where both have one width the shapes cannot tell, and the published model attends to itself.
                crosses: itself == context && context != channels && context > 0,
            });
        }
        let Some(text) = levels.iter().map(|level| level.context).find(|&width| width > 0) else {
            return Err(unlike("no level attends to a text"));
        };
        levels.iter_mut().for_each(|level| level.context = text);
        Ok(Self {
            input: first.get(1).copied().unwrap_or(0),
            output: first.get(1).copied().unwrap_or(0),
            middle_depth: depth("mid_block"),
            groups: 32,
            eps: 1e-5,
            linear_projection,
            cosine_first: true,
            freq_shift: 0.0,
            time: shape("time_embedding.linear_1.weight")?[0],
            guidance: inventory
                .shape("time_embedding.cond_proj.weight")
                .and_then(|shape| shape.get(1))
                .copied(),
            added: inventory
                .shape("add_embedding.linear_1.weight")
                .and_then(|shape| shape.get(1))
                .map(|&width| Added { size: 256, width }),
            grains,
            centre: false,
            down_padding: 1,
            levels,
        })
    }
}

/// The error for tensors that are not those of such a network.
fn unlike(what: &str) -> Error {
    Error::new(Code::ModelIncompatible, format!("the network's shapes cannot tell its config: {what}"))
        .hint("give the folder of its configs with --config")
}
