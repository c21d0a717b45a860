//! The transformer between residual blocks: pixels attend to each other, then to the text.

use candle_core::{Result, Tensor};

use crate::nn::{Attention, AttentionShape, Geglu, GroupNorm, KeyValue, LayerNorm, Linear};
use crate::weights::VarBuilder;

/// Epsilon of the group norm (`huggingface/diffusers`, `transformers/transformer_2d.py`).
const GROUP_EPS: f64 = 1e-6;
/// Epsilon of the layer norms (the same, `attention.py`).
const LAYER_EPS: f64 = 1e-5;

/// Sizes of a transformer.
#[derive(Debug, Clone, Copy)]
pub(super) struct TransformerShape {
    pub(super) channels: usize,
    pub(super) heads: usize,
    pub(super) context: usize,
    pub(super) depth: usize,
    pub(super) groups: usize,
    pub(super) linear_projection: bool,
    /// Whether pixels attend to the text in both places.
    pub(super) crosses: bool,
}

/// The keys and values of every attention to the text, in the order the network reads them; made once for a walk.
pub(super) type Told = [[Tensor; 2]];

/// Norm, way in, layers, way out; added to what came in.
pub(super) struct Transformer {
    norm: GroupNorm,
    enter: Linear,
    layers: Vec<Layer>,
    leave: Linear,
}

impl Transformer {
    /// Reads diffusers' `Transformer2DModel`; its attentions to the text are counted into `listeners`.
    pub(super) fn new(
        shape: TransformerShape,
        listeners: &mut Vec<KeyValue>,
        vb: &VarBuilder,
    ) -> Result<Self> {
        let channels = shape.channels;
        let project = if shape.linear_projection { Linear::new } else { Linear::pointwise };
        Ok(Self {
            norm: GroupNorm::new(shape.groups, channels, GROUP_EPS, &vb.pp("norm"))?,
            enter: project(channels, channels, &vb.pp("proj_in"))?,
            layers: (0..shape.depth)
                .map(|i| Layer::new(shape, listeners, &vb.pp(format!("transformer_blocks.{i}"))))
                .collect::<Result<_>>()?,
            leave: project(channels, channels, &vb.pp("proj_out"))?,
        })
    }

    /// # Shapes
    /// `x` `[B, H, W, C]` → the same.
    pub(super) fn forward(&self, x: &Tensor, told: &Told) -> Result<Tensor> {
        let (b, h, w, c) = x.dims4()?;
        let mut tokens = self.enter.forward(&self.norm.forward(x)?.reshape((b, h * w, c))?)?;
        for layer in &self.layers {
            tokens = layer.forward(&tokens, told)?;
        }
        self.leave.forward_add(&tokens, x)?.reshape((b, h, w, c))
    }
}

/// Self-attention (in some levels of upscalers a first attention to the text), attention to the text, gated map; each
/// after a norm and added.
struct Layer {
    norm1: LayerNorm,
    first: Attention,
    /// Of which listener the first attention asks; of the pixels themselves without.
    first_listener: Option<usize>,
    norm2: LayerNorm,
    text: Attention,
    listener: usize,
    norm3: LayerNorm,
    widen: Geglu,
    narrow: Linear,
}

impl Layer {
    fn new(shape: TransformerShape, listeners: &mut Vec<KeyValue>, vb: &VarBuilder) -> Result<Self> {
        let TransformerShape { channels: width, heads, context, .. } = shape;
        let inner = 4 * width;
        let asked = if shape.crosses { context } else { width };
        let first = Attention::new(AttentionShape { width, context: asked, heads }, false, &vb.pp("attn1"))?;
        let text = Attention::new(AttentionShape { width, context, heads }, false, &vb.pp("attn2"))?;
        let mut listens = |attention: &Attention| {
            listeners.push(attention.key_value().clone());
            listeners.len() - 1
        };
        Ok(Self {
            norm1: LayerNorm::new(width, LAYER_EPS, &vb.pp("norm1"))?,
            first_listener: shape.crosses.then(|| listens(&first)),
            first,
            norm2: LayerNorm::new(width, LAYER_EPS, &vb.pp("norm2"))?,
            listener: listens(&text),
            text,
            norm3: LayerNorm::new(width, LAYER_EPS, &vb.pp("norm3"))?,
            widen: Geglu::new(width, inner, &vb.pp("ff.net.0.proj"))?,
            narrow: Linear::new(inner, width, &vb.pp("ff.net.2"))?,
        })
    }

    fn forward(&self, x: &Tensor, told: &Told) -> Result<Tensor> {
        let h = self.norm1.forward(x)?;
        let x = match self.first_listener {
            Some(listener) => self.first.over(&h, &told[listener], x)?,
            None => self.first.forward(&h, x)?,
        };
        let x = self.text.over(&self.norm2.forward(&x)?, &told[self.listener], &x)?;
        let inner = self.widen.forward(&self.norm3.forward(&x)?)?;
        self.narrow.forward_add(&inner, &x)
    }
}
