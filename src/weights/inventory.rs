//! What is in a set of weights: names, types, shapes and where the bytes lie, but no bytes.
//!
//! Everything that recognises a model reads this and nothing else. Because a place is a range of bytes with a shape,
//! a tensor can be renamed, reshaped or cut by rows without touching its data: see [`super::dialect`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use candle_core::DType;

use super::limits;
use super::packing::Packing;
use crate::error::{Code, Error, Result};
use crate::kernel::block::Block;

/// How one number is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of an `F32`.
    Bf16,
    /// One byte: sign, four bits of exponent, three of mantissa; no infinity.
    F8E4m3,
    /// The upper half of an `F16`.
    F8E5m2,
    /// Blocks of numbers that share a scale, as GGUF files have them.
    Block(Block),
    /// Any other type that a file may have: listed, not read by itself.
    Other {
        /// Its name in the file.
        name: &'static str,
        /// Its width; some are narrower than a byte.
        bits: usize,
    },
}

/// The types that a file may name but that no network of ours reads as they are, with their widths in bits.
///
/// # Source
/// `huggingface/safetensors` README, format section, and `Dtype` of its 0.8 crate, Apache-2.0.
const OTHERS: &[(&str, usize)] = &[
    ("F4", 4),
    ("F6_E2M3", 6),
    ("F6_E3M2", 6),
    ("BOOL", 8),
    ("U8", 8),
    ("I8", 8),
    ("F8_E8M0", 8),
    ("F8_E4M3FNUZ", 8),
    ("F8_E5M2FNUZ", 8),
    ("I16", 16),
    ("U16", 16),
    ("I32", 32),
    ("U32", 32),
    ("I64", 64),
    ("U64", 64),
    ("F64", 64),
    ("C64", 64),
];

/// Ends of names of packed weights that go by another name than `weight`.
///
/// # Source
/// `nunchaku-tech/nunchaku`, `huggingface/optimum-quanto`, `AutoGPTQ/AutoGPTQ`, all with permissive licences: names only.
const WITHOUT_WEIGHT: &[(&str, &str, &str)] = &[
    (".qweight", ".wscales", "SVDQuant of nunchaku"),
    (".qweight", ".qzeros", "GPTQ or AWQ"),
    (".weight._data", ".weight._scale", "quanto"),
];

impl Scalar {
    /// Reads the spelling of a safetensors header.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "F32" => Some(Self::F32),
            "F16" => Some(Self::F16),
            "BF16" => Some(Self::Bf16),
            "F8_E4M3" => Some(Self::F8E4m3),
            "F8_E5M2" => Some(Self::F8E5m2),
            _ => {
                let &(name, bits) = OTHERS.iter().find(|(name, _)| *name == text)?;
                Some(Self::Other { name, bits })
            }
        }
    }

    /// The spelling of a safetensors header, or ggml's name of a type of blocks.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::F8E4m3 => "F8_E4M3",
            Self::F8E5m2 => "F8_E5M2",
            Self::Block(block) => block.name(),
            Self::Other { name, .. } => name,
        }
    }

    /// The bytes that so many numbers have; `None` where that is no whole count of bytes and blocks, or too many.
    pub fn bytes(self, numbers: usize) -> Option<usize> {
        let (group, bytes) = match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::Bf16 => (1, 2),
            Self::F8E4m3 | Self::F8E5m2 => (1, 1),
            Self::Block(block) => (block.numbers(), block.bytes()),
            Self::Other { bits, .. } => {
                let bits = numbers.checked_mul(bits)?;
                return bits.is_multiple_of(8).then_some(bits / 8);
            }
        };
        if numbers.is_multiple_of(group) { (numbers / group).checked_mul(bytes) } else { None }
    }
}

/// Where one tensor lies and how it reads.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorInfo {
    /// The type on disk.
    pub scalar: Scalar,
    /// The shape, as the reader of this inventory shall see it.
    pub shape: Vec<usize>,
    /// Which file of the set.
    pub file: usize,
    /// The bytes within that file, from its first byte.
    pub range: Range<usize>,
    /// What else it takes to read the numbers: scales that lie elsewhere.
    pub packing: Option<Packing>,
}

impl TensorInfo {
    /// A tensor whose bytes are its numbers.
    pub fn new(scalar: Scalar, shape: Vec<usize>, file: usize, range: Range<usize>) -> Self {
        Self { scalar, shape, file, range, packing: None }
    }

    /// Whether the numbers are stored in fewer bits than networks compute with.
    pub fn is_quantised(&self) -> bool {
        self.packing.is_some() || matches!(self.scalar, Scalar::Block(_) | Scalar::F8E4m3 | Scalar::F8E5m2)
    }

    /// Whether it is packed in a way that we do not read, so that its shape is not the one that networks know.
    pub(super) fn is_unread(&self) -> bool {
        matches!(self.packing, Some(Packing::Unread(_)))
    }

    /// Part `number` of `parts` equal parts of the rows, which lie one after the other.
    ///
    /// `None` if they cannot be cut so: too few rows, or blocks that reach across a cut.
    pub fn rows(&self, number: usize, parts: usize) -> Option<Self> {
        let (&all, rest) = self.shape.split_first()?;
        if parts == 0 || number >= parts || !all.is_multiple_of(parts) {
            return None;
        }
        let shape: Vec<usize> = std::iter::once(all / parts).chain(rest.iter().copied()).collect();
        let bytes = self.scalar.bytes(shape.iter().product())?;
        if bytes * parts != self.range.len() {
            return None;
        }
        let start = self.range.start + number * bytes;
        let packing = match &self.packing {
            Some(packing) => Some(packing.rows(number, parts, &self.shape)?),
            None => None,
        };
        Some(Self { shape, range: start..start + bytes, packing, ..*self })
    }
}

/// The tensors of one file, or of all shards of one network.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Inventory {
    /// Every tensor by name.
    pub tensors: BTreeMap<String, TensorInfo>,
    /// The free text pairs of the header: training notes, licences, `modelspec.*`.
    pub metadata: BTreeMap<String, String>,
}

impl Inventory {
    /// The shape of a tensor, if it is there.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|tensor| tensor.shape.as_slice())
    }

    /// Whether a tensor of this name is there.
    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Whether any tensor's name begins so.
    pub fn has_prefix(&self, prefix: &str) -> bool {
        self.with_prefix(prefix).next().is_some()
    }

    /// All names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// How many numbered children `prefix.0.`, `prefix.1.` … follow one another without a gap.
    ///
    /// Depth is read so, never from a file name: `blocks("down_blocks")` of Stable Diffusion 1.5 is 4.
    pub fn blocks(&self, prefix: &str) -> usize {
        (0..self.tensors.len()).take_while(|n| self.has_prefix(&format!("{prefix}.{n}."))).count()
    }

    /// Bytes on disk of all tensors, without the scales that some share.
    pub fn bytes(&self) -> u64 {
        self.tensors.values().map(|tensor| tensor.range.len() as u64).sum()
    }

    /// Numbers in all tensors: times the width of the type in memory, what loading costs.
    pub fn parameters(&self) -> u64 {
        self.tensors.values().map(|tensor| tensor.shape.iter().product::<usize>() as u64).sum()
    }

    /// The half-precision type that most of the bytes have, if they have one.
    pub(super) fn half_precision(&self) -> Option<DType> {
        let (mut f16, mut bf16, mut f32, mut quantised) = (0, 0, 0, 0);
        for info in self.tensors.values() {
            let kind = match info.scalar {
                _ if info.is_quantised() => &mut quantised,
                Scalar::F16 => &mut f16,
                Scalar::Bf16 => &mut bf16,
                Scalar::F32 => &mut f32,
                _ => continue,
            };
            *kind += info.range.len();
        }
        let half = if f16 >= bf16 { DType::F16 } else { DType::BF16 };
        (f16.max(bf16) > f32.max(quantised)).then_some(half)
    }

    /// The ways in which its tensors are packed that we know by name and do not read yet.
    pub fn unread(&self) -> BTreeSet<String> {
        let packing = |tensor: &TensorInfo| match (&tensor.packing, tensor.scalar) {
            (Some(Packing::Unread(scheme)), _) => Some(scheme.clone()),
            (None, Scalar::Block(block)) if !block.is_readable() => Some(block.name().to_owned()),
            _ => None,
        };
        let mut schemes: BTreeSet<String> = self.tensors.values().filter_map(packing).collect();
        // Schemes that have no tensor `weight` at all: what each calls its integers, and what stands beside them.
        for (integers, beside, scheme) in WITHOUT_WEIGHT {
            let layer = self.names().find_map(|name| name.strip_suffix(integers));
            if layer.is_some_and(|layer| self.has(&format!("{layer}{beside}"))) {
                schemes.insert((*scheme).to_owned());
            }
        }
        schemes
    }

    /// Only the tensors below `prefix`, named without it.
    #[must_use]
    pub fn without_prefix(&self, prefix: &str) -> Self {
        let cut = |(name, tensor): (&String, &TensorInfo)| (name[prefix.len()..].to_owned(), tensor.clone());
        Self { tensors: self.with_prefix(prefix).map(cut).collect(), metadata: self.metadata.clone() }
    }

    /// The tensors whose names begin with `prefix`, in order.
    pub fn with_prefix<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a String, &'a TensorInfo)> + 'a {
        self.tensors.range(prefix.to_owned()..).take_while(move |(name, _)| name.starts_with(prefix))
    }

    /// Adds the tensors of another shard.
    ///
    /// # Errors
    /// `weights_corrupt` if a name is in both, `model_incompatible` if there are too many.
    pub(super) fn absorb(&mut self, shard: Self, label: &str) -> Result<()> {
        self.metadata.extend(shard.metadata);
        for (name, tensor) in shard.tensors {
            if self.tensors.len() >= limits::TENSORS {
                return Err(too_many(label));
            }
            if self.has(&name) {
                let message = format!("`{label}`: tensor `{name}` is also in another shard");
                return Err(Error::new(Code::WeightsCorrupt, message));
            }
            self.tensors.insert(name, tensor);
        }
        Ok(())
    }
}

/// More tensors than any model has.
pub(super) fn too_many(label: &str) -> Error {
    let message =
        format!("`{label}` lists more than {} tensors, which no model of ours has", limits::TENSORS);
    Error::new(Code::ModelIncompatible, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inventory(names: &[&str]) -> Inventory {
        let tensor = TensorInfo::new(Scalar::F16, vec![2, 3], 0, 8..20);
        Inventory {
            tensors: names.iter().map(|name| ((*name).to_owned(), tensor.clone())).collect(),
            metadata: BTreeMap::new(),
        }
    }

    #[test]
    fn blocks_counts_numbered_children_up_to_the_first_gap() {
        let inventory = inventory(&["d.0.w", "d.1.w", "d.10.w", "d.3.w", "dd.2.w", "e.1.w", "f.0"]);
        assert_eq!(inventory.blocks("d"), 2);
        assert_eq!(inventory.blocks("e"), 0, "does not begin at nought");
        assert_eq!(inventory.blocks("f"), 0, "a tensor is not a child");
    }

    #[test]
    fn a_prefix_is_cut_off_and_the_rest_is_left_out() {
        let inventory = inventory(&["a.b.w", "a.c", "ab.w"]);
        let below = inventory.without_prefix("a.");
        assert_eq!(below.names().collect::<Vec<_>>(), ["b.w", "c"]);
        assert_eq!((below.bytes(), below.parameters()), (24, 12));
        assert_eq!(below.shape("c"), Some(&[2, 3][..]));
    }

    #[test]
    fn every_type_keeps_its_spelling() {
        for name in OTHERS.iter().map(|(name, _)| *name).chain(["F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"]) {
            assert_eq!(Scalar::parse(name).expect("known").name(), name);
        }
        assert_eq!(Scalar::parse("F128"), None);
    }

    #[test]
    fn rows_are_cut_at_blocks_and_nowhere_else() {
        let q8 = Scalar::Block(Block::Q8_0);
        assert_eq!((q8.bytes(64), q8.bytes(33), q8.bytes(usize::MAX - 31)), (Some(68), None, None));
        let tensor = TensorInfo::new(q8, vec![6, 32], 1, 10..10 + 6 * 34);
        let cut = tensor.rows(1, 3).expect("whole blocks");
        assert_eq!((cut.range, cut.shape, cut.file), (78..146, vec![2, 32], 1));
        assert_eq!(tensor.rows(0, 4), None);
        assert_eq!(tensor.rows(3, 3), None);
        let narrow = TensorInfo::new(q8, vec![4, 16], 0, 0..68);
        assert_eq!(narrow.rows(0, 4), None, "a block has two rows");
    }
}
