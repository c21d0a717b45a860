//! What the U-net and its control networks have in common: the way in, the way down, the middle.

use candle_core::{DType, Result, Tensor};

use super::config::{Level, UnetConfig};
use super::transformer::{Told, Transformer, TransformerShape};
use crate::error;
use crate::event::Watch;
use crate::nn::{
    Conv2d, Downsample, KeyValue, Resnet, ResnetShape, TimeEmbedding, Window, activation_dtype, sinusoid,
};
use crate::weights::VarBuilder;

/// A residual block and the transformer that may follow it.
pub(super) struct Layer {
    resnet: Resnet,
    transformer: Option<Transformer>,
}

impl Layer {
    pub(super) fn forward(&self, x: &Tensor, time: &Tensor, told: &Told) -> Result<Tensor> {
        let x = self.resnet.forward(x, Some(time))?;
        match &self.transformer {
            Some(transformer) => transformer.forward(&x, told),
            None => Ok(x),
        }
    }
}

/// The coarsest level between the ways down and up.
struct Middle {
    first: Resnet,
    transformer: Transformer,
    second: Resnet,
}

/// What the network is told for a whole walk.
#[derive(Debug, Clone, Default)]
pub struct Heard {
    /// From [`Trunk::listen`].
    pub text: Vec<[Tensor; 2]>,
    /// The guidance `[B, G]`, where the network was distilled to hear it.
    pub guidance: Option<Tensor>,
    /// From [`Trunk::hear`] and [`Trunk::hear_grain`], their sum.
    pub added: Option<Tensor>,
}

/// Reads layers of one network, counting those that listen to the text.
pub(super) struct Reader<'a> {
    config: &'a UnetConfig,
    listeners: Vec<KeyValue>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(config: &'a UnetConfig) -> Self {
        Self { config, listeners: Vec::new() }
    }

    /// All that listen to the text.
    pub(super) fn into_listeners(self) -> Vec<KeyValue> {
        self.listeners
    }

    fn resnet(&self, input: usize, output: usize, vb: &VarBuilder) -> Result<Resnet> {
        let UnetConfig { time, groups, eps, .. } = *self.config;
        Resnet::new(ResnetShape { input, output, time: Some(time), groups, eps }, vb)
    }

    fn transformer(&mut self, level: &Level, depth: usize, vb: &VarBuilder) -> Result<Transformer> {
        let shape = TransformerShape {
            channels: level.channels,
            heads: level.heads,
            context: level.context,
            depth,
            groups: self.config.groups,
            linear_projection: self.config.linear_projection,
            crosses: level.crosses,
        };
        Transformer::new(shape, &mut self.listeners, vb)
    }

    /// One layer for each width in `inputs`.
    pub(super) fn layers(
        &mut self,
        level: &Level,
        depth: Option<usize>,
        inputs: &[usize],
        vb: &VarBuilder,
    ) -> Result<Vec<Layer>> {
        let mut layers = Vec::with_capacity(inputs.len());
        for (i, &input) in inputs.iter().enumerate() {
            let resnet = self.resnet(input, level.channels, &vb.pp(format!("resnets.{i}")))?;
            let transformer = match depth {
                Some(depth) => Some(self.transformer(level, depth, &vb.pp(format!("attentions.{i}")))?),
                None => None,
            };
            layers.push(Layer { resnet, transformer });
        }
        Ok(layers)
    }

    fn middle(&mut self, vb: &VarBuilder) -> Result<Option<Middle>> {
        let (Some(depth), Some(level)) = (self.config.middle_depth, self.config.levels.last()) else {
            return Ok(None);
        };
        let width = level.channels;
        let first = self.resnet(width, width, &vb.pp("resnets.0"))?;
        // The middle has no such choice.
        let level = Level { crosses: false, ..level.clone() };
        let transformer = self.transformer(&level, depth, &vb.pp("attentions.0"))?;
        let second = self.resnet(width, width, &vb.pp("resnets.1"))?;
        Ok(Some(Middle { first, transformer, second }))
    }
}

/// The way in, the way down and the middle.
pub struct Trunk {
    config: UnetConfig,
    time: TimeEmbedding,
    added: Option<TimeEmbedding>,
    grains: Option<Tensor>, // [N, D]
    input: Conv2d,
    down: Vec<(Vec<Layer>, Option<Downsample>)>,
    middle: Option<Middle>,
    /// Those of the whole network, in the order in which it was read.
    pub(super) listeners: Vec<KeyValue>,
    dtype: DType,
}

impl Trunk {
    /// Reads diffusers' names.
    ///
    /// # Errors
    /// The tensor that is missing or has another shape.
    pub(super) fn new(reader: &mut Reader<'_>, vb: &VarBuilder) -> Result<Self> {
        let config = reader.config;
        let levels = &config.levels;
        let (first, count) = (levels[0].channels, levels.len());
        let mut down = Vec::with_capacity(count);
        let mut width = first;
        for (i, level) in levels.iter().enumerate() {
            let vb = vb.pp(format!("down_blocks.{i}"));
            let mut inputs = vec![level.channels; level.layers];
            inputs[0] = width;
            width = level.channels;
            let layers = reader.layers(level, level.down_depth, &inputs, &vb)?;
            let half = if i + 1 < count {
                Some(Downsample::new(width, config.down_padding, &vb.pp("downsamplers.0"))?)
            } else {
                None
            };
            down.push((layers, half));
        }
        let middle = reader.middle(&vb.pp("mid_block"))?;
        Ok(Self {
            time: TimeEmbedding::new(first, config.time, config.guidance, &vb.pp("time_embedding"))?,
            added: match config.added {
                Some(added) => {
                    Some(TimeEmbedding::new(added.width, config.time, None, &vb.pp("add_embedding"))?)
                }
                None => None,
            },
            grains: match config.grains {
                Some(count) => Some(
                    vb.get((count, config.time), "class_embedding.weight")?.to_dtype(activation_dtype(vb))?,
                ),
                None => None,
            },
            input: Conv2d::new(config.input, first, Window::same(3), &vb.pp("conv_in"))?,
            down,
            middle,
            listeners: Vec::new(),
            dtype: activation_dtype(vb),
            config: config.clone(),
        })
    }

    /// The sizes it was read with.
    pub fn config(&self) -> &UnetConfig {
        &self.config
    }

    /// What the network computes in.
    pub(super) fn dtype(&self) -> DType {
        self.dtype
    }

    /// What every attention to the text needs of it, once for a whole walk.
    ///
    /// # Shapes
    /// `context` `[B, L, D]`.
    pub fn listen(&self, context: &Tensor) -> Result<Vec<[Tensor; 2]>> {
        let context = context.to_dtype(self.dtype)?;
        self.listeners.iter().map(|listener| listener.project(&context)).collect()
    }

    /// What the network hears beside the time, once for a whole walk: the whole prompts and their sizes.
    ///
    /// # Shapes
    /// `pooled` `[B, P]`, `sizes` B × N → `[B, D]`; `None` where the network hears no such thing.
    ///
    /// # Errors
    /// `internal` if the widths do not add up.
    pub fn hear(&self, pooled: &Tensor, sizes: &[Vec<f64>]) -> error::Result<Option<Tensor>> {
        let (Some(embed), Some(added)) = (&self.added, self.config.added) else { return Ok(None) };
        let UnetConfig { cosine_first, freq_shift, .. } = self.config;
        let waves = sinusoid(&sizes.concat(), added.size, cosine_first, freq_shift)?;
        let waves = waves.reshape((sizes.len(), waves.elem_count() / sizes.len().max(1)))?;
        let pooled = pooled.to_device(waves.device())?.to_dtype(waves.dtype())?;
        let both = Tensor::cat(&[&pooled, &waves], 1)?; // [B, P + N·S]
        if both.dim(1)? != added.width {
            let message =
                format!("the prompt and its sizes have {} numbers, not {}", both.dim(1)?, added.width);
            return Err(error::Error::internal(message));
        }
        Ok(Some(embed.forward(&both, None)?))
    }

    /// What the network hears of the noise on the given picture, once for a whole walk.
    ///
    /// # Shapes
    /// `levels` B × 1 → `[B, D]`; `None` where the network hears no such thing.
    ///
    /// # Errors
    /// `invalid_argument` for a level that it was not trained on.
    ///
    /// # Source
    /// `huggingface/diffusers src/diffusers/models/unets/unet_2d_condition.py`, `num_class_embeds`, Apache-2.0.
    pub fn hear_grain(&self, levels: &[usize]) -> error::Result<Option<Tensor>> {
        let Some(known) = &self.grains else { return Ok(None) };
        let count = known.dim(0)?;
        if let Some(level) = levels.iter().find(|level| **level >= count) {
            let message = format!("noise_level {level} is not from 0 to {}", count - 1);
            return Err(error::Error::argument("noise_level", message));
        }
        let levels: Vec<u32> = levels.iter().map(|&level| level as u32).collect();
        let levels = Tensor::new(levels, known.device())?;
        Ok(Some(known.index_select(&levels, 0)?))
    }

    /// The time as every residual block hears it.
    ///
    /// # Shapes
    /// `[rows, D]`.
    pub(super) fn time(&self, time: f64, rows: usize, heard: &Heard) -> Result<Tensor> {
        let UnetConfig { cosine_first, freq_shift, ref levels, .. } = self.config;
        let wave = sinusoid(&vec![time; rows], levels[0].channels, cosine_first, freq_shift)?;
        let mut time = self.time.forward(&wave, heard.guidance.as_ref())?;
        if let Some(added) = &heard.added {
            time = (time + added)?;
        }
        time.silu()
    }

    /// The way in.
    ///
    /// # Shapes
    /// `x` `[B, C, H, W]` → `[B, H, W, C']`.
    pub(super) fn enter(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.permute((0, 2, 3, 1))?.contiguous()?.to_dtype(self.dtype)?; // [B, H, W, C]
        if self.config.centre {
            x = ((x * 2.0)? - 1.0)?;
        }
        self.input.forward(&x)
    }

    /// The way down and the middle: what comes out of it, and what is left for the way up, first that which came in.
    ///
    /// # Shapes
    /// `x` `[B, H, W, C]`, `time` `[B, D]`.
    ///
    /// # Errors
    /// `cancelled` between blocks.
    pub(super) fn descend(
        &self,
        mut x: Tensor,
        time: &Tensor,
        told: &Told,
        watch: &mut Watch<'_>,
    ) -> error::Result<(Tensor, Vec<Tensor>)> {
        let mut skips = vec![x.clone()];
        for (layers, half) in &self.down {
            for layer in layers {
                watch.check()?;
                x = layer.forward(&x, time, told)?;
                skips.push(x.clone());
            }
            if let Some(half) = half {
                x = half.forward(&x)?;
                skips.push(x.clone());
            }
        }
        if let Some(middle) = &self.middle {
            watch.check()?;
            x = middle.first.forward(&x, Some(time))?;
            x = middle.transformer.forward(&x, told)?;
            x = middle.second.forward(&x, Some(time))?;
        }
        Ok((x, skips))
    }
}
