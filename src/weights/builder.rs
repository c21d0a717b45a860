//! Where a network's layers find their weights: a place in the tree of names, and the type and device they are read in.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{DType, Device, Result, Shape, Tensor};

use super::source::Weights;
use crate::kernel::block::Block;
use crate::kernel::matrix::{Kept, Precision, Weight};

/// A layer by its name, and how its weight is packed.
type Layer = (String, Precision, bool);

/// Which weights of one model are in memory, for networks that are read again while another still has them. Keeps none of
/// them; clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Held(Arc<Mutex<HashMap<Layer, Kept>>>);

/// A place in the tree of names. Cheap to clone.
///
/// Errors come out as candle's and carry ours: [`crate::error::Error`]'s `From` unpacks them.
#[derive(Debug, Clone)]
pub struct VarBuilder {
    weights: Weights,
    path: String,
    dtype: DType,
    device: Device,
}

impl VarBuilder {
    pub(super) fn new(weights: Weights, dtype: DType, device: Device) -> Self {
        Self { weights, path: String::new(), dtype, device }
    }

    /// The place below this one.
    #[must_use]
    pub fn pp(&self, name: impl Display) -> Self {
        Self { path: self.name(name), ..self.clone() }
    }

    fn name(&self, last: impl Display) -> String {
        if self.path.is_empty() { last.to_string() } else { format!("{}.{last}", self.path) }
    }

    /// The type in which tensors are handed out.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The device on which they lie.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Whether there is such a tensor.
    pub fn contains_tensor(&self, name: &str) -> bool {
        self.weights.inventory().has(&self.name(name))
    }

    /// A tensor with all that files of changes do to it, of exactly this shape.
    ///
    /// # Errors
    /// Those of [`Weights::tensor`].
    pub fn get(&self, shape: impl Into<Shape>, name: &str) -> Result<Tensor> {
        let shape = shape.into();
        Ok(self.weights.tensor(&self.name(name), Some(shape.dims()), self.dtype, &self.device)?)
    }

    /// The tensor `weight` for a layer that also multiplies with [`Self::beside`].
    ///
    /// # Errors
    /// Those of [`Weights::tensor`].
    pub fn base(&self, shape: &[usize]) -> Result<Tensor> {
        Ok(self.weights.base(&self.name("weight"), shape, self.dtype, &self.device)?)
    }

    /// The same in blocks of small integers, where it comes so.
    ///
    /// # Errors
    /// Those of [`Weights::tensor`].
    pub fn blocks(&self, shape: &[usize]) -> Result<Option<(Block, Vec<u8>)>> {
        Ok(self.weights.blocks(&self.name("weight"), shape)?)
    }

    /// What files of changes add to the product with `weight` at run time: pairs of matrices, the second of which already
    /// has the strength.
    ///
    /// # Shapes
    /// `[R, I]` or `[R, I, K, K]`, and `[O, R]`.
    ///
    /// # Errors
    /// `lora_incompatible`.
    pub fn beside(&self, shape: &[usize]) -> Result<Vec<[Tensor; 2]>> {
        let name = self.name("weight");
        let Some(patch) = self.weights.patch_beside(&name) else { return Ok(Vec::new()) };
        let moved = |tensor: Tensor| tensor.to_device(&self.device)?.to_dtype(self.dtype);
        let pairs = patch.beside(&name, shape)?.into_iter();
        pairs.map(|[down, up]| Ok([moved(down)?, moved(up)?])).collect()
    }

    /// The layer's weight as another network has it that was read from here and is still there, else a new one.
    ///
    /// # Errors
    /// What making it says.
    pub fn shared(
        &self,
        (precision, gated): (Precision, bool),
        make: impl FnOnce() -> Result<Weight>,
    ) -> Result<Weight> {
        if ["weight", "bias"].iter().any(|last| self.weights.is_fused(&self.name(last))) {
            return make();
        }
        let Some((held, component)) = &self.weights.held else { return make() };
        let key = (format!("{component}.{}", self.path), precision, gated);
        let held = || held.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(weight) = held().get(&key).and_then(Kept::get) {
            return Ok(weight);
        }
        let weight = make()?;
        held().insert(key, weight.kept());
        Ok(weight)
    }
}
