//! `AutoencoderTiny` (TAESD): a codec of a few plain convolutions, for previews and small machines.

use candle_core::{DType, Tensor};

use super::edge::{enter, leave};
use super::{Codec, Posterior};
use crate::error::Result;
use crate::event::Watch;
use crate::nn::{Activation, Conv2d, Window, activation_dtype, double};
use crate::weights::{Config, VarBuilder};

/// Sizes of the tiny autoencoder.
#[derive(Debug, Clone)]
pub struct TinyConfig {
    /// Channels of a picture.
    pub pixels: usize,
    /// Channels of a latent.
    pub latent: usize,
    /// Channels of each level of the encoder, finest first.
    pub encoder_channels: Vec<usize>,
    /// Residual blocks of each level of the encoder.
    pub encoder_blocks: Vec<usize>,
    /// Channels of each level of the decoder, coarsest first.
    pub decoder_channels: Vec<usize>,
    /// Residual blocks of each level of the decoder.
    pub decoder_blocks: Vec<usize>,
    /// What stands between convolutions.
    pub activation: Activation,
    /// Normalised latent = latent·scale.
    pub scale: f64,
}

impl TinyConfig {
    /// Reads diffusers' `config.json`.
    ///
    /// # Errors
    /// `config_invalid` naming the key; `model_unsupported` for other ways of upsampling.
    pub fn read(config: &Config) -> Result<Self> {
        let name = config.opt_text("act_fn")?.unwrap_or("relu").to_owned();
        let activation =
            Activation::named(&name).ok_or_else(|| config.invalid("act_fn", "relu, silu or gelu"))?;
        config.supported(
            "upsample_fn",
            config.opt_text("upsample_fn")?.unwrap_or("nearest") == "nearest",
            "nearest",
        )?;
        let factor = config.opt_usize("upsampling_scaling_factor", 1..=8)?.unwrap_or(2);
        config.supported("upsampling_scaling_factor", factor == 2, "2")?;
        let this = Self {
            pixels: config.usize("in_channels", 1..=64)?,
            latent: config.usize("latent_channels", 1..=1024)?,
            encoder_channels: config.usizes("encoder_block_out_channels", 1..=16, 1..=1 << 14)?,
            encoder_blocks: config.usizes("num_encoder_blocks", 1..=16, 0..=64)?,
            decoder_channels: config.usizes("decoder_block_out_channels", 1..=16, 1..=1 << 14)?,
            decoder_blocks: config.usizes("num_decoder_blocks", 1..=16, 0..=64)?,
            activation,
            scale: config.opt_number("scaling_factor", f64::MIN..=f64::MAX)?.unwrap_or(1.0),
        };
        let equal = |channels: &[usize]| channels.windows(2).all(|pair| pair[0] == pair[1]);
        let whole = equal(&this.encoder_channels) && equal(&this.decoder_channels);
        config.supported("encoder_block_out_channels", whole, "one width for all levels")?;
        let levels = this.encoder_channels.len() == this.encoder_blocks.len();
        config.must("num_encoder_blocks", levels, "one number a level")?;
        let levels = this.decoder_channels.len() == this.decoder_blocks.len();
        config.must("num_decoder_blocks", levels, "one number a level")?;
        Ok(this)
    }

    /// Pixels to a latent's side.
    pub fn factor(&self) -> usize {
        1 << (self.decoder_channels.len() - 1)
    }
}

/// One entry of the sequence that both halves are.
enum Layer {
    Conv(Conv2d),
    Activation(Activation),
    Block([Conv2d; 3], Activation),
    Double,
}

impl Layer {
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        match self {
            Self::Conv(conv) => conv.forward(x),
            Self::Activation(activation) => activation.forward(x),
            Self::Block([first, second, third], activation) => {
                let h = first.forward_activated(x, *activation)?;
                let h = second.forward_activated(&h, *activation)?;
                third.forward_add(&h, x)?.relu()
            }
            Self::Double => double(x),
        }
    }
}

/// Reads the layers of a sequence by their running number.
struct Sequence {
    layers: Vec<Layer>,
    vb: VarBuilder,
    activation: Activation,
}

impl Sequence {
    fn here(&self) -> VarBuilder {
        self.vb.pp(self.layers.len())
    }

    fn conv(&mut self, input: usize, output: usize, stride: usize, bias: bool) -> Result<()> {
        let window = Window { stride, ..Window::same(3) };
        let read = if bias { Conv2d::new } else { Conv2d::without_bias };
        let conv = read(input, output, window, &self.here())?;
        self.layers.push(Layer::Conv(conv));
        Ok(())
    }

    fn blocks(&mut self, count: usize, width: usize) -> Result<()> {
        for _ in 0..count {
            let vb = self.here().pp("conv");
            let conv = |i: usize| Conv2d::new(width, width, Window::same(3), &vb.pp(i));
            let block = [conv(0)?, conv(2)?, conv(4)?];
            self.layers.push(Layer::Block(block, self.activation));
        }
        Ok(())
    }
}

/// The tiny codec. Its latents are the normalised ones of the model it was made for.
pub struct AutoencoderTiny {
    encoder: Vec<Layer>,
    decoder: Vec<Layer>,
    scale: f64,
    dtype: DType,
}

impl AutoencoderTiny {
    /// Reads diffusers' names: `encoder.layers.N`, `decoder.layers.N`.
    ///
    /// # Errors
    /// `model_incompatible` naming the tensor that is missing or has another shape.
    pub fn new(config: &TinyConfig, vb: &VarBuilder) -> Result<Self> {
        let sequence = |half: &str| Sequence {
            layers: Vec::new(),
            vb: vb.pp(half).pp("layers"),
            activation: config.activation,
        };
        let mut encoder = sequence("encoder");
        for (level, (&width, &blocks)) in
            config.encoder_channels.iter().zip(&config.encoder_blocks).enumerate()
        {
            let (input, stride) = if level == 0 { (config.pixels, 1) } else { (width, 2) };
            encoder.conv(input, width, stride, level == 0)?;
            encoder.blocks(blocks, width)?;
        }
        encoder.conv(config.encoder_channels.last().copied().unwrap_or(1), config.latent, 1, true)?;

        let mut decoder = sequence("decoder");
        decoder.conv(config.latent, config.decoder_channels[0], 1, true)?;
        decoder.layers.push(Layer::Activation(config.activation));
        let last = config.decoder_channels.len() - 1;
        for (level, (&width, &blocks)) in
            config.decoder_channels.iter().zip(&config.decoder_blocks).enumerate()
        {
            decoder.blocks(blocks, width)?;
            if level < last {
                decoder.layers.push(Layer::Double);
            }
            decoder.conv(width, if level < last { width } else { config.pixels }, 1, level == last)?;
        }
        let (encoder, decoder) = (encoder.layers, decoder.layers);
        Ok(Self { encoder, decoder, scale: config.scale, dtype: activation_dtype(vb) })
    }
}

impl Codec for AutoencoderTiny {
    fn encode(&self, pixels: &Tensor, watch: &mut Watch<'_>) -> Result<Posterior> {
        let mut x = ((enter(pixels, self.dtype)? + 1.0)? / 2.0)?;
        for layer in &self.encoder {
            watch.check()?;
            x = layer.forward(&x)?;
        }
        let mean = leave(&(x * self.scale)?)?;
        Ok(Posterior { mean, deviation: None, scale: self.scale, shift: 0.0 })
    }

    fn decode(&self, latent: &Tensor, watch: &mut Watch<'_>) -> Result<Tensor> {
        let x = (enter(latent, self.dtype)? / self.scale)?;
        let mut x = ((x / 3.0)?.tanh()? * 3.0)?;
        for layer in &self.decoder {
            watch.check()?;
            x = layer.forward(&x)?;
        }
        Ok(leave(&((x * 2.0)? - 1.0)?)?.unsqueeze(2)?)
    }
}
