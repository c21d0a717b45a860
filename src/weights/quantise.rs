//! Weights in blocks of small integers, for networks that keep them so: as a file has them, or made when asked for.

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use rayon::prelude::*;

use super::inventory::{Scalar, TensorInfo};
use super::source::Weights;
use crate::error::{Code, Error, Result};
use crate::kernel::block::Block;

/// Tensors of fewer numbers stay as they are: together they weigh nothing, and norms and gates are among them.
const SMALL: usize = 4096;
/// Rows that one thread quantises at a time.
const ROWS: usize = 16;

/// A type that weights can be made into, candle's name of it, and what takes its place where rows are not whole blocks.
///
/// # Source
/// The substitutes: `ggml-org/llama.cpp src/llama-quant.cpp`, where a row does not divide by 256; there `Q2_K` and `Q3_K`
/// become `IQ4_NL`, of as many bits as `Q4_0`.
const MADE: &[(Block, GgmlDType, Option<Block>)] = &[
    (Block::Q4_0, GgmlDType::Q4_0, None),
    (Block::Q4_1, GgmlDType::Q4_1, None),
    (Block::Q5_0, GgmlDType::Q5_0, None),
    (Block::Q5_1, GgmlDType::Q5_1, None),
    (Block::Q8_0, GgmlDType::Q8_0, None),
    (Block::Q2K, GgmlDType::Q2K, Some(Block::Q4_0)),
    (Block::Q3K, GgmlDType::Q3K, Some(Block::Q4_0)),
    (Block::Q4K, GgmlDType::Q4K, Some(Block::Q5_0)),
    (Block::Q5K, GgmlDType::Q5K, Some(Block::Q5_1)),
    (Block::Q6K, GgmlDType::Q6K, Some(Block::Q8_0)),
];

impl Block {
    /// The types that weights can be made into.
    pub fn made() -> impl Iterator<Item = Self> {
        MADE.iter().map(|(block, ..)| *block)
    }

    fn maker(self) -> Option<(GgmlDType, Option<Self>)> {
        MADE.iter().find(|(block, ..)| *block == self).map(|&(_, kind, other)| (kind, other))
    }
}

impl Weights {
    /// The same weights, of which every large matrix comes in blocks of this type to those who ask for its blocks.
    ///
    /// What is quantised already stays as it is. Rows that are not whole blocks come in the nearest type whose blocks
    /// divide them, or not in blocks at all.
    ///
    /// # Errors
    /// `unsupported_format` for a type that is only read.
    pub fn quantised(&self, to: Block) -> Result<Self> {
        if to.maker().is_none() {
            let names: Vec<_> = Block::made().map(Block::name).collect();
            let message = format!("weights are not made into {}", to.name());
            return Err(Error::new(Code::UnsupportedFormat, message)
                .hint(format!("take one of {}", names.join(", "))));
        }
        let mut this = self.clone();
        this.made = Some(to);
        this.held = None;
        Ok(this)
    }

    /// The type of the blocks in which a tensor comes, if it does.
    pub(super) fn block_of(&self, info: &TensorInfo) -> Option<Block> {
        match (info.scalar, &info.packing) {
            (Scalar::Block(_), _) => info.kept_block(),
            (Scalar::F32 | Scalar::F16 | Scalar::Bf16, None) if numbers(info) >= SMALL => {
                let wanted = self.made?;
                let fits = |block: &Block| is_matrix(info, *block);
                std::iter::once(wanted).chain(wanted.maker()?.1).find(fits)
            }
            _ => None,
        }
    }

    /// A tensor's blocks, if it comes in blocks: not where a file's own would have to be changed.
    ///
    /// # Errors
    /// Those of [`Weights::tensor`].
    pub(super) fn blocks(&self, name: &str, expected: &[usize]) -> Result<Option<(Block, Vec<u8>)>> {
        let found = self.inventory().tensors.get(name).and_then(|info| Some((info, self.block_of(info)?)));
        let Some((info, block)) = found else { return Ok(None) };
        let raw = self.raw(info).filter(|_| info.is_quantised());
        if raw.is_some() && self.is_fused(name) {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        match raw {
            Some(raw) => {
                self.check(name, expected)?;
                bytes.extend_from_slice(raw);
                self.release(info);
            }
            None => made(&self.base(name, expected, DType::F32, &Device::Cpu)?, block, &mut bytes)?,
        }
        Ok(Some((block, bytes)))
    }
}

/// Appends the blocks of a matrix.
fn made(tensor: &Tensor, block: Block, to: &mut Vec<u8>) -> Result<()> {
    let rows = tensor.flatten_from(1)?;
    let (row, numbers) = (rows.dim(1)?, rows.flatten_all()?.to_vec1::<f32>()?);
    let (kind, _) = block.maker().ok_or_else(|| Error::internal("a type of blocks that is not made"))?;
    let parts: Vec<Vec<u8>> = numbers
        .par_chunks(ROWS * row)
        .map(|part| {
            // A tensor of its own: candle 0.11 quantises a view from the beginning of what it looks at.
            let part = Tensor::from_slice(part, (part.len() / row, row), &Device::Cpu)?;
            Ok(QTensor::quantize(&part, kind)?.data()?.into_owned())
        })
        .collect::<Result<_>>()?;
    parts.iter().for_each(|part| to.extend_from_slice(part));
    Ok(())
}

impl TensorInfo {
    /// The type of the blocks in which the file has this tensor and networks keep it.
    pub fn kept_block(&self) -> Option<Block> {
        match (self.scalar, &self.packing) {
            (Scalar::Block(block), None) if block.is_readable() && is_matrix(self, block) => Some(block),
            _ => None,
        }
    }
}

fn numbers(info: &TensorInfo) -> usize {
    info.shape.iter().product()
}

/// Whether a tensor is a matrix, or a convolution, whose rows are whole blocks.
fn is_matrix(info: &TensorInfo, block: Block) -> bool {
    let [rows, inner @ ..] = info.shape.as_slice() else { return false };
    *rows > 1 && !inner.is_empty() && inner.iter().product::<usize>().is_multiple_of(block.numbers())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the blocks of a tensor say, and their type.
    fn decoded(weights: &Weights, name: &str) -> (Block, Vec<f32>) {
        let shape = weights.inventory().tensors[name].shape.clone();
        let (block, bytes) = weights.blocks(name, &shape).expect("blocks").expect("in blocks");
        let mut numbers = vec![0f32; shape.iter().product()];
        assert!(block.decode(&bytes, &mut numbers, |number| number));
        (block, numbers)
    }

    #[test]
    fn large_matrices_shrink_and_the_rest_stays() {
        let shapes: [(&str, &[usize]); 5] = [
            ("a.weight", &[80, 64]),
            ("a.bias", &[80]),
            ("conv.weight", &[8, 64, 3, 3]),
            ("odd.weight", &[100, 50]),
            ("wide.weight", &[33, 512]),
        ];
        let weights = Weights::synthetic(3, shapes.map(|(name, shape)| (name.to_owned(), shape.to_vec())));
        for wanted in Block::made() {
            let small = weights.quantised(wanted).expect("is made");
            let infos = &small.inventory().tensors;
            assert_eq!(small.block_of(&infos["wide.weight"]), Some(wanted));
            assert_eq!(small.block_of(&infos["a.bias"]), None);
            assert_eq!(small.block_of(&infos["odd.weight"]), None);
            for name in ["a.weight", "conv.weight", "wide.weight"] {
                let exact = weights.tensor(name, None, DType::F32, &Device::Cpu).expect("there");
                let exact = exact.flatten_all().and_then(|exact| exact.to_vec1::<f32>()).expect("numbers");
                let (block, ours) = decoded(&small, name);
                // Of numbers spread evenly, half a step of 2^(bits - 1) steps is lost at most, in offsets less.
                let bits = (8 * block.bytes() / block.numbers()) as i32;
                let most = exact.iter().fold(0.0_f32, |most, number| most.max(number.abs()));
                let worst = ours.iter().zip(&exact).fold(0.0_f32, |most, (a, b)| most.max((a - b).abs()));
                assert!(
                    worst <= most * 2.2 / 2f32.powi(bits),
                    "{wanted:?} {block:?} {name}: {worst} of {most}"
                );
                assert!(worst > 0.0, "{wanted:?} {name}: nothing was rounded");
            }
        }
        assert!(weights.blocks("a.weight", &[80, 64]).expect("reads").is_none(), "nobody asked for blocks");
        let small = weights.quantised(Block::Q8_0).expect("is made");
        assert!(small.blocks("a.weight", &[64, 80]).is_err(), "another shape");
        let unmade = weights.quantised(Block::Iq4Nl).expect_err("is only read");
        assert_eq!(unmade.code, Code::UnsupportedFormat);
    }
}
