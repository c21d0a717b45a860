//! CLIP's text network: CLIP-L of SD 1.x, `OpenCLIP` H of SD 2.x.

use std::ops::Range;

use candle_core::{DType, IndexOp, Result, Tensor};

use super::{Features, TextEncoder, Tokens};
use crate::error::{self, Code, Error};
use crate::nn::{Activation, Heads, LayerNorm, Linear, activation_dtype, attend, heads_of};
use crate::weights::Inventory;
use crate::weights::{Config, VarBuilder};

/// Sizes of a text network.
#[derive(Debug, Clone)]
pub struct ClipConfig {
    /// Ids of the vocabulary.
    pub vocabulary: usize,
    /// Positions, and so the longest prompt.
    pub positions: usize,
    /// Width of a token.
    pub width: usize,
    /// Width inside the two-layer map.
    pub inner: usize,
    /// Layers.
    pub layers: usize,
    /// Heads.
    pub heads: usize,
    /// What stands between the two maps.
    pub activation: Activation,
    /// Epsilon of the norms.
    pub eps: f64,
    /// The id that ends a prompt; `None` takes the largest id, as old configs (2) meant it.
    pub end: Option<u32>,
    /// Width of the space that prompts share with pictures, where the whole prompt is mapped into it.
    pub projection: Option<usize>,
}

impl ClipConfig {
    /// Reads transformers' `config.json`.
    ///
    /// # Errors
    /// `config_invalid` naming the key.
    pub fn read(config: &Config) -> error::Result<Self> {
        let name = config.opt_text("hidden_act")?.unwrap_or("quick_gelu").to_owned();
        let activation =
            Activation::named(&name).ok_or_else(|| config.invalid("hidden_act", "quick_gelu or gelu"))?;
        let this = Self {
            vocabulary: config.usize("vocab_size", 1..=1 << 22)?,
            positions: config.usize("max_position_embeddings", 1..=4096)?,
            width: config.usize("hidden_size", 1..=1 << 14)?,
            inner: config.usize("intermediate_size", 1..=1 << 16)?,
            layers: config.usize("num_hidden_layers", 1..=256)?,
            heads: config.usize("num_attention_heads", 1..=256)?,
            activation,
            eps: config.opt_number("layer_norm_eps", f64::MIN..=f64::MAX)?.unwrap_or(1e-5),
            end: config.opt_usize("eos_token_id", 0..=1 << 22)?.filter(|&id| id != 2).map(|id| id as u32),
            projection: None,
        };
        if !this.width.is_multiple_of(this.heads) {
            return Err(config.invalid("num_attention_heads", "a divisor of hidden_size"));
        }
        Ok(this)
    }

    /// Reads the config of a network with a projection of the whole prompt.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn with_projection(config: &Config) -> error::Result<Self> {
        let projection = Some(config.usize("projection_dim", 1..=1 << 14)?);
        Ok(Self { projection, ..Self::read(config)? })
    }
}

impl ClipConfig {
    /// Reads the network off its tensors: 64 channels a head; CLIP-L (768) has the quick GELU, `OpenCLIP` the exact one.
    ///
    /// # Errors
    /// `model_incompatible` if the tensors are no such network, with the remedy of giving its config.
    ///
    /// # Source
    /// `models.md` 2.1: the published configs of the text encoders of SD 1.5 and 2.1.
    pub fn from_shapes(inventory: &Inventory) -> error::Result<Self> {
        let unlike = |what: String| {
            Error::new(
                Code::ModelIncompatible,
                format!("the text encoder's shapes cannot tell its config: {what}"),
            )
            .hint("give the folder of its configs with --config")
        };
        let shape = |name: &str| match inventory.shape(name) {
            Some(&[rows, columns]) => Ok((rows, columns)),
            _ => Err(unlike(format!("no tensor `{name}`"))),
        };
        let (vocabulary, width) = shape("text_model.embeddings.token_embedding.weight")?;
        if width % 64 != 0 || width < 512 {
            return Err(unlike(format!("a width of {width} is not CLIP's")));
        }
        Ok(Self {
            vocabulary,
            positions: shape("text_model.embeddings.position_embedding.weight")?.0,
            width,
            inner: shape("text_model.encoder.layers.0.mlp.fc1.weight")?.0,
            layers: inventory.blocks("text_model.encoder.layers"),
            heads: width / 64,
            activation: if width == 768 { Activation::QuickGelu } else { Activation::Gelu },
            eps: 1e-5,
            end: None,
            projection: inventory
                .shape("text_projection.weight")
                .map(|shape| shape[0])
                .or_else(|| inventory.shape("text_projection")?.get(1).copied()),
        })
    }
}

/// The text network.
pub struct ClipText {
    tokens: Tensor, // [V, D]
    /// Vectors of words that were taught; their ids follow the vocabulary's.
    taught: Option<Tensor>, // [N, D]
    positions: Tensor, // [P, D]
    layers: Vec<Layer>,
    norm: LayerNorm,
    projection: Option<Tensor>, // [D, P]
    config: ClipConfig,
    dtype: DType,
}

impl ClipText {
    /// Reads transformers' names below `text_model`, or without it, as transformers 5 writes them.
    pub fn new(config: &ClipConfig, vb: &VarBuilder) -> Result<Self> {
        let bare = vb.contains_tensor("embeddings.token_embedding.weight");
        let projection = config.projection.map(|width| {
            // OpenCLIP keeps the matrix as it multiplies from the right, transformers turned over.
            if vb.contains_tensor("text_projection") {
                return vb.get((config.width, width), "text_projection");
            }
            vb.get((width, config.width), "text_projection.weight")?.t()
        });
        let projection = projection.transpose()?.map(|matrix| matrix.to_dtype(activation_dtype(vb)));
        let projection = projection.transpose()?;
        let vb = if bare { vb.clone() } else { vb.pp("text_model") };
        let embeddings = vb.pp("embeddings");
        let layer = |i: usize| Layer::new(config, &vb.pp(format!("encoder.layers.{i}")));
        Ok(Self {
            tokens: embeddings.get((config.vocabulary, config.width), "token_embedding.weight")?,
            taught: None,
            positions: embeddings
                .get((config.positions, config.width), "position_embedding.weight")?
                .to_dtype(activation_dtype(&vb))?,
            layers: (0..config.layers).map(layer).collect::<Result<_>>()?,
            norm: LayerNorm::new(config.width, config.eps, &vb.pp("final_layer_norm"))?,
            projection,
            config: config.clone(),
            dtype: activation_dtype(&vb),
        })
    }

    /// A hidden state after the final norm, as `clip_skip` wants it.
    ///
    /// # Shapes
    /// `[B, L, D]` → the same.
    pub fn finish(&self, hidden: &Tensor) -> Result<Tensor> {
        self.norm.forward(hidden)
    }

    /// Learns a word of `[N, D]` vectors, and says the ids that stand for it.
    pub fn learn(&mut self, vectors: &Tensor) -> Result<Range<u32>> {
        let vectors = vectors.to_device(self.tokens.device())?.to_dtype(self.dtype)?;
        let taught = match &self.taught {
            Some(taught) => Tensor::cat(&[taught, &vectors], 0)?,
            None => vectors.clone(),
        };
        let end = (self.config.vocabulary + taught.dim(0)?) as u32;
        self.taught = Some(taught);
        Ok(end - vectors.dim(0)? as u32..end)
    }

    /// The vectors of tokens, `[n]` ids → `[n, D]`.
    fn look_up(&self, ids: &[u32]) -> Result<Tensor> {
        let (device, first) = (self.tokens.device(), self.config.vocabulary as u32);
        let own = ids.iter().map(|&id| if id < first { id } else { 0 }).collect::<Vec<_>>();
        let words = self.tokens.index_select(&Tensor::new(own, device)?, 0)?.to_dtype(self.dtype)?;
        let Some(taught) = self.taught.as_ref().filter(|_| ids.iter().any(|&id| id >= first)) else {
            return Ok(words);
        };
        let is_taught = ids.iter().map(|&id| u8::from(id >= first)).collect::<Vec<_>>();
        let ids = ids.iter().map(|&id| id.saturating_sub(first)).collect::<Vec<_>>();
        let is_taught = Tensor::new(is_taught, device)?.unsqueeze(1)?.broadcast_as(words.shape())?;
        is_taught.where_cond(&taught.index_select(&Tensor::new(ids, device)?, 0)?, &words)
    }

    /// How many layers there are to skip.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }
}

impl TextEncoder for ClipText {
    fn encode(&self, prompts: &[Tokens]) -> Result<Features> {
        let length = prompts.first().map_or(0, |tokens| tokens.ids.len());
        let ids: Vec<u32> = prompts.iter().flat_map(|tokens| &tokens.ids).copied().collect();
        let words = self.look_up(&ids)?.reshape((prompts.len(), length, self.config.width))?;
        let mut x = words.broadcast_add(&self.positions.narrow(0, 0, length)?)?; // [B, L, D]
        let mut hidden = vec![x.clone()];
        for layer in &self.layers {
            x = layer.forward(&x)?;
            hidden.push(x.clone());
        }
        let last = self.norm.forward(&x)?;
        let pooled = prompts
            .iter()
            .enumerate()
            .map(|(row, tokens)| last.i((row, self.position_of_end(tokens))))
            .collect::<Result<Vec<_>>>()?;
        let mut pooled = Tensor::stack(&pooled, 0)?;
        if let Some(projection) = &self.projection {
            pooled = pooled.matmul(projection)?;
        }
        Ok(Features { hidden, last, pooled })
    }
}

impl ClipText {
    /// Where the token stands that speaks for the prompt: the first end, or the first of the largest ids of the
    /// vocabulary.
    fn position_of_end(&self, tokens: &Tokens) -> usize {
        let own = tokens.ids.iter().filter(|&&id| (id as usize) < self.config.vocabulary);
        let wanted = self.config.end.or_else(|| own.max().copied());
        tokens.ids.iter().position(|&id| Some(id) == wanted).unwrap_or(0)
    }
}

/// Norm, attention to what came before, norm, two-layer map; both added to what came in.
struct Layer {
    norm1: LayerNorm,
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    norm2: LayerNorm,
    widen: Linear,
    narrow: Linear,
    activation: Activation,
    heads: Heads,
}

impl Layer {
    fn new(config: &ClipConfig, vb: &VarBuilder) -> Result<Self> {
        let &ClipConfig { width, inner, eps, activation, heads, .. } = config;
        let (attention, map) = (vb.pp("self_attn"), vb.pp("mlp"));
        Ok(Self {
            norm1: LayerNorm::new(width, eps, &vb.pp("layer_norm1"))?,
            query: Linear::new(width, width, &attention.pp("q_proj"))?,
            key: Linear::new(width, width, &attention.pp("k_proj"))?,
            value: Linear::new(width, width, &attention.pp("v_proj"))?,
            output: Linear::new(width, width, &attention.pp("out_proj"))?,
            norm2: LayerNorm::new(width, eps, &vb.pp("layer_norm2"))?,
            widen: Linear::new(width, inner, &map.pp("fc1"))?,
            narrow: Linear::new(inner, width, &map.pp("fc2"))?,
            activation,
            heads: heads_of(heads, true, vb),
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let h = self.norm1.forward(x)?;
        let (q, k, v) = (self.query.forward(&h)?, self.key.forward(&h)?, self.value.forward(&h)?);
        let x = self.output.forward_add(&attend(&q, &k, &v, self.heads)?, x)?;
        let h = self.widen.forward_activated(&self.norm2.forward(&x)?, self.activation)?;
        self.narrow.forward_add(&h, &x)
    }
}
