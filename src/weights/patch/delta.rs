//! What a change adds to one weight.

use std::collections::BTreeMap;

use candle_core::{D, DType, Device, Tensor};

use super::key::Role;
use crate::error::{Code, Error, Result};
use crate::weights::source::Weights;

/// The matrices of one module of a file.
#[derive(Debug, Clone)]
pub(super) struct Delta {
    pub(super) file: Weights,
    /// Names in the file.
    pub(super) names: BTreeMap<Role, String>,
    /// α where the file's notes say it, and whether the rank's root divides it.
    pub(super) noted: Noted,
}

/// What the header of a file says of all its modules.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Noted {
    pub(super) alpha: Option<f64>,
    pub(super) by_root: bool,
}

impl Delta {
    fn has(&self, role: Role) -> bool {
        self.names.contains_key(&role)
    }

    fn get(&self, role: Role) -> Result<Tensor> {
        let Some(name) = self.names.get(&role) else {
            return Err(self.wrong(format!("has no {role:?} beside its other matrices")));
        };
        self.file.tensor(name, None, DType::F32, &Device::Cpu)
    }

    fn shape(&self, role: Role) -> Option<&[usize]> {
        self.file.inventory().shape(self.names.get(&role)?)
    }

    fn wrong(&self, what: impl std::fmt::Display) -> Error {
        let name = self.names.values().next().map_or("", String::as_str);
        let message = format!("`{}`: the module of `{name}` {what}", self.file.label());
        Error::new(Code::LoraIncompatible, message)
    }

    /// Whether it can be added to a weight of this shape, judged by shapes and by α, before anything is loaded.
    ///
    /// # Errors
    /// `lora_incompatible`, saying what was expected and found.
    pub(super) fn check(&self, base: &[usize]) -> Result<()> {
        let whole: usize = base.iter().product();
        let (rows, columns) = (base[0], whole.checked_div(base[0]).unwrap_or(0));
        let differs = |role: Role, what: String, expected: usize, found: usize| {
            Err(self.wrong(format!("has {found} {what} in its {role:?}; the model needs {expected}")))
        };
        if let (Some(down), Some(up)) = (self.shape(Role::Down), self.shape(Role::Up)) {
            let (rank, other) = (down.first().copied().unwrap_or(0), up.get(1).copied().unwrap_or(0));
            if rank == 0 || rank != other {
                return Err(self.wrong(format!("has the ranks {rank} and {other}")));
            }
            if up[0] != rows {
                return differs(Role::Up, "rows".into(), rows, up[0]);
            }
            let width = down.iter().skip(1).product::<usize>();
            let kernel = self.shape(Role::Middle).map_or(1, |middle| middle.iter().skip(2).product());
            if width * kernel != columns {
                return differs(Role::Down, "columns".into(), columns, width * kernel);
            }
        } else if self.has(Role::Down) || self.has(Role::Up) {
            return Err(self.wrong("has one of its two matrices"));
        }
        if let Some(shape) = self.shape(Role::Difference)
            && shape.iter().product::<usize>() != whole
        {
            return differs(Role::Difference, "numbers".into(), whole, shape.iter().product());
        }
        if self.has(Role::Alpha) {
            let alpha = self.alpha()?;
            if !alpha.is_some_and(f64::is_finite) {
                return Err(self.wrong("has an alpha that is not a number"));
            }
        }
        Ok(())
    }

    fn alpha(&self) -> Result<Option<f64>> {
        if !self.has(Role::Alpha) {
            return Ok(self.noted.alpha);
        }
        let alpha = self.get(Role::Alpha)?.flatten_all()?.to_vec1::<f32>()?;
        Ok(alpha.first().map(|&alpha| f64::from(alpha)))
    }

    /// α over the rank, or over its root where the file's notes say so; 1 without α.
    fn scale(&self, rank: usize) -> Result<f64> {
        let Some(alpha) = self.alpha()? else { return Ok(1.0) };
        let rank = rank as f64;
        Ok(alpha / if self.noted.by_root { rank.sqrt() } else { rank })
    }

    /// The weight with the change in the given strength.
    ///
    /// # Source
    /// Hu et al. 2021 (arXiv 2106.09685); Yeh et al. 2023 (arXiv 2309.14859) for `LoHa` and `LoKr`; Liu et al. 2024 (arXiv
    /// 2402.09353) for magnitudes, where the strength leads from the weight to the changed one.
    pub(super) fn apply(&self, base: &Tensor, strength: f64) -> Result<Tensor> {
        let Some(change) = self.change(base)? else { return Ok(base.clone()) };
        let change = change.reshape(base.shape()).map_err(|_| {
            self.wrong(format!("gives {:?} numbers; the weight is {:?}", change.dims(), base.dims()))
        })?;
        let changed = match self.magnitude(base)? {
            None => (base + (change * strength)?)?,
            Some((magnitude, along)) => {
                let moved = (base + change)?;
                let mut norm = moved.sqr()?;
                for axis in along {
                    norm = norm.sum_keepdim(axis)?;
                }
                let turned = moved.broadcast_mul(&magnitude.broadcast_div(&norm.sqrt()?)?)?;
                (base + ((turned - base)? * strength)?)?
            }
        };
        self.finite(changed)
    }

    /// Whether the change of the weight is a product of two matrices and nothing else.
    pub(super) fn is_low_rank(&self) -> bool {
        let factors = [Role::Down, Role::Up, Role::Alpha, Role::UpBias, Role::BiasDifference];
        // Rows and ranks alone: an upper matrix with a kernel of its own is none.
        let up = self.shape(Role::Up).is_some_and(|up| up.iter().skip(2).all(|side| *side == 1));
        up && self.names.keys().all(|role| factors.contains(role))
    }

    /// The two matrices of a change to a weight of this shape, the second in the given strength.
    ///
    /// # Shapes
    /// `[R, I, …]`, `[O, R]`.
    pub(super) fn pair(&self, base: &[usize], strength: f64) -> Result<[Tensor; 2]> {
        let (down, up) = (self.get(Role::Down)?, self.get(Role::Up)?);
        let rank = down.dim(0)?;
        let up = (up.reshape((base[0], rank))? * (self.scale(rank)? * strength))?;
        let shape: Vec<usize> = std::iter::once(rank).chain(base[1..].iter().copied()).collect();
        Ok([self.finite(down.reshape(shape)?)?, self.finite(up)?])
    }

    /// The bias with the change in the given strength.
    pub(super) fn apply_to_bias(&self, base: &Tensor, strength: f64) -> Result<Tensor> {
        let mut bias = base.clone();
        if self.has(Role::BiasDifference) {
            bias = (bias + (self.get(Role::BiasDifference)?.reshape(base.shape())? * strength)?)?;
        }
        if self.has(Role::UpBias) {
            let rank = self.shape(Role::Down).map_or(1, |shape| shape[0]);
            let scale = self.scale(rank)? * strength;
            bias = (bias + (self.get(Role::UpBias)?.reshape(base.shape())? * scale)?)?;
        }
        self.finite(bias)
    }

    /// Whether it changes the module's bias.
    pub(super) fn has_bias(&self) -> bool {
        self.has(Role::BiasDifference) || self.has(Role::UpBias)
    }

    /// Whether it changes the module's weight.
    pub(super) fn has_weight(&self) -> bool {
        [Role::Down, Role::Hada1a, Role::Kron1, Role::Kron1a, Role::Difference]
            .iter()
            .any(|role| self.has(*role))
    }

    fn finite(&self, x: Tensor) -> Result<Tensor> {
        let sum = x.to_dtype(DType::F64)?.sqr()?.sum_all()?.to_scalar::<f64>()?;
        if sum.is_finite() { Ok(x) } else { Err(self.wrong("gives numbers that are not finite")) }
    }

    fn change(&self, base: &Tensor) -> Result<Option<Tensor>> {
        let mut sum = None;
        if self.has(Role::Difference) {
            sum = Some(self.get(Role::Difference)?);
        }
        if self.has(Role::Down) {
            sum = Some(self.low_rank()?);
        }
        if self.has(Role::Hada1a) {
            let (left, right) = (
                self.product(Role::Hada1a, Role::Hada1b, Role::HadaT1)?,
                self.product(Role::Hada2a, Role::Hada2b, Role::HadaT2)?,
            );
            let rank = self.shape(Role::Hada1b).map_or(1, |shape| shape[0]);
            sum = Some(((left * right)? * self.scale(rank)?)?);
        }
        if self.has(Role::Kron1) || self.has(Role::Kron1a) {
            sum = Some(self.kronecker(base)?);
        }
        Ok(sum)
    }

    /// up·down, with the kernel between them where there is one.
    fn low_rank(&self) -> Result<Tensor> {
        let (down, up) = (self.get(Role::Down)?, self.get(Role::Up)?);
        let rank = down.dim(0)?;
        let up = up.reshape((up.dim(0)?, rank))?;
        let down = down.reshape((rank, down.elem_count() / rank.max(1)))?;
        let change = if self.has(Role::Middle) {
            tucker(&self.get(Role::Middle)?, &up.t()?.contiguous()?, &down)?
        } else {
            up.matmul(&down)?
        };
        Ok((change * self.scale(rank)?)?)
    }

    /// a·b, or their product through a kernel.
    fn product(&self, a: Role, b: Role, kernel: Role) -> Result<Tensor> {
        if self.has(kernel) {
            return tucker(&self.get(kernel)?, &self.get(a)?, &self.get(b)?);
        }
        Ok(self.get(a)?.matmul(&self.get(b)?)?)
    }

    /// One factor of a Kronecker product, and its rank where it is a product itself.
    fn factor(&self, whole: Role, [a, b, kernel]: [Role; 3]) -> Result<(Tensor, Option<usize>)> {
        if self.has(whole) {
            return Ok((self.get(whole)?, None));
        }
        Ok((self.product(a, b, kernel)?, self.shape(b).map(|shape| shape[0])))
    }

    fn kronecker(&self, base: &Tensor) -> Result<Tensor> {
        let (left, first) = self.factor(Role::Kron1, [Role::Kron1a, Role::Kron1b, Role::Kron1])?;
        let (right, second) = self.factor(Role::Kron2, [Role::Kron2a, Role::Kron2b, Role::KronT2])?;
        let (a, b) = left.dims2()?;
        let (c, rest) = (right.dim(0)?, right.elem_count() / right.dim(0)?.max(1));
        // A factor over all of a kernel was flattened with the input.
        let kernel: usize = base.dims().iter().skip(2).product();
        let d = rest / kernel.max(1);
        let (left, right) = (left.reshape((a, 1, b, 1, 1))?, right.reshape((1, c, 1, d, kernel.max(1)))?);
        let product = left.broadcast_mul(&right)?.reshape((a * c, b * d * kernel.max(1)))?;
        // Where both factors are whole, α has no rank to be divided by.
        let scale = second.or(first).map_or(Ok(1.0), |rank| self.scale(rank))?;
        Ok((product * scale)?)
    }

    /// The magnitudes, and along which axes the norm is taken.
    fn magnitude(&self, base: &Tensor) -> Result<Option<(Tensor, Vec<usize>)>> {
        let axes = base.rank();
        let ones = |at: usize, count: usize| {
            let mut shape = vec![1; axes];
            shape[at] = count;
            shape
        };
        let (rows, columns) = (base.dim(0)?, base.dim(1)?);
        let (magnitude, by_row) = if self.has(Role::RowMagnitude) {
            (self.get(Role::RowMagnitude)?, true)
        } else if self.has(Role::Magnitude) {
            let magnitude = self.get(Role::Magnitude)?;
            let by_row = magnitude.dim(0)? == rows && (magnitude.elem_count() == rows);
            (magnitude, by_row)
        } else {
            return Ok(None);
        };
        let (axis, count) = if by_row { (0, rows) } else { (1, columns) };
        if magnitude.elem_count() != count {
            let found = magnitude.elem_count();
            return Err(self.wrong(format!("has {found} magnitudes; the weight is {:?}", base.dims())));
        }
        let along = (0..axes).filter(|&other| other != axis).collect();
        Ok(Some((magnitude.reshape(ones(axis, count))?, along)))
    }
}

/// Σ kernel[i, j, …]·a[i, p]·b[j, r] → `[p, r·…]`.
///
/// # Shapes
/// `kernel` `[R, R, h, w]`, `a` `[R, O]`, `b` `[R, I]` → `[O, I·h·w]`.
fn tucker(kernel: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (i, j, h, w) = kernel.dims4()?;
    let (outputs, inputs) = (a.dim(D::Minus1)?, b.dim(D::Minus1)?);
    let a = a.reshape((i, outputs))?.t()?.contiguous()?; // [O, i]
    let half = a.matmul(&kernel.reshape((i, j * h * w))?)?.reshape((outputs, j, h * w))?; // [O, j, hw]
    let half = half.permute((0, 2, 1))?.contiguous()?.reshape((outputs * h * w, j))?;
    let whole = half.matmul(&b.reshape((j, inputs))?)?.reshape((outputs, h * w, inputs))?;
    Ok(whole.permute((0, 2, 1))?.contiguous()?.reshape((outputs, inputs * h * w))?)
}
