//! Scaled dot-product attention, heads side by side in the last dimension.
//!
//! Keys and values of a head are packed like weights, so that both products run on the matrix engines. A task takes one
//! head and a block of queries: its scores are made, soft-maxed and multiplied with the values while they are in the
//! cache, some keys at a time. The full score matrix never exists.

use std::cell::RefCell;

use candle_core::{CpuStorage, CustomOp3, D, Layout, Result, Shape, Tensor};
use half::{bf16, f16};
use rayon::prelude::*;

use super::matrix::cpu::{Block, Engine, Number, Piece, Strip, WIDTH};
use super::matrix::{Half, Precision, Row, largest};
use super::simd::{exp_of_negative, vectorised};
use super::{Shared, slice};

/// Queries of one task, about. Whole strips of the engine, so that the result does not depend on the threads.
const QUERIES: usize = 64;

/// Keys of one pass: their scores, shares and values lie in the second cache together.
const KEYS: usize = 512;

/// How the tokens attend.
#[derive(Debug, Clone, Copy)]
pub struct Heads {
    /// How many heads lie side by side.
    pub count: usize,
    /// Whether a token sees only itself and those before it.
    pub causal: bool,
    /// How the two products are computed on the CPU.
    pub precision: Precision,
}

/// softmax(q·kᵀ/√d)·v for every head.
///
/// # Shapes
/// `q` `[B, L, N·K]`, `k` and `v` `[B, M, N·K]` → `[B, L, N·K]`.
///
/// # Source
/// Vaswani et al. 2017 (arXiv 1706.03762) eq. 1.
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, heads: Heads) -> Result<Tensor> {
    if !super::is_ours(q) {
        return reference(q, k, v, heads);
    }
    q.contiguous()?.apply_op3_no_bwd(&k.contiguous()?, &v.contiguous()?, &heads)
}

/// The same in candle's own operators, with blocks of queries so that scores stay bounded.
pub fn reference(q: &Tensor, k: &Tensor, v: &Tensor, heads: Heads) -> Result<Tensor> {
    let (batch, length, width) = q.dims3()?;
    let split =
        |x: &Tensor| x.reshape((batch, (), heads.count, width / heads.count))?.transpose(1, 2)?.contiguous();
    let (q, k, v) = (split(q)?, split(k)?, split(v)?);
    let q = (q * (1.0 / ((width / heads.count) as f64).sqrt()))?;
    let k = k.t()?; // [B, N, K, M]
    let block = 1024;
    let mut parts = Vec::with_capacity(length.div_ceil(block));
    for from in (0..length).step_by(block) {
        let rows = block.min(length - from);
        let mut scores = q.narrow(2, from, rows)?.contiguous()?.matmul(&k)?; // [B, N, rows, M]
        if heads.causal {
            let seen = scores.dim(3)?;
            let mask: Vec<f32> = (0..rows * seen)
                .map(|i| if i % seen > from + i / seen { f32::NEG_INFINITY } else { 0.0 })
                .collect();
            let mask = Tensor::from_vec(mask, (1, 1, rows, seen), q.device())?.to_dtype(q.dtype())?;
            scores = scores.broadcast_add(&mask)?;
        }
        let weights = candle_nn::ops::softmax(&scores, D::Minus1)?;
        parts.push(weights.matmul(&v)?);
    }
    let joined = if parts.len() == 1 { parts.remove(0) } else { Tensor::cat(&parts, 2)? };
    joined.transpose(1, 2)?.reshape((batch, length, width))
}

impl CustomOp3 for Heads {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn cpu_fwd(
        &self,
        s1: &CpuStorage,
        l1: &Layout,
        s2: &CpuStorage,
        l2: &Layout,
        s3: &CpuStorage,
        l3: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (q, k, v) = (slice(s1, l1)?, slice(s2, l2)?, slice(s3, l3)?);
        let (batch, length, width) = l1.shape().dims3()?;
        let (key_batch, seen, key_width) = l2.shape().dims3()?;
        let fits = l3.shape() == l2.shape() && key_batch == batch && key_width == width;
        if !fits || self.count == 0 || width % self.count != 0 || seen == 0 {
            let (q, k, v) = (l1.shape(), l2.shape(), l3.shape());
            candle_core::bail!("attention: q {q:?}, k {k:?}, v {v:?}, {} heads", self.count)
        }
        let mut y = Vec::with_capacity(q.len());
        let sizes = Sizes { batch, length, seen, width, heads: self.count, causal: self.causal };
        let tensors = Tensors { q, k, v, y: Shared(y.as_mut_ptr()) };
        super::count(2 * batch * length * seen * width);
        let engine = Engine::best(self.precision);
        match engine.precision() {
            Precision::Exact => run::<f32>(engine, sizes, tensors),
            Precision::Bf16 => run::<bf16>(engine, sizes, tensors),
            Precision::F16 => run::<f16>(engine, sizes, tensors),
        }
        #[expect(unsafe_code, reason = "the output is written before it has a length")]
        // SAFETY: the tasks cover every token of every head of every picture, and so every element.
        unsafe {
            y.set_len(q.len());
        }
        Ok((CpuStorage::F32(y), l1.shape().clone()))
    }
}

#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    length: usize,
    seen: usize,
    width: usize,
    heads: usize,
    causal: bool,
}

#[derive(Clone, Copy)]
struct Tensors<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    y: Shared,
}

/// A number that queries, keys, shares and values are kept in.
trait Operand: Number + Buffers {
    /// Inner elements of one line of a panel.
    const DEEP: usize;
    /// What an inner dimension is padded to.
    const PAD: usize;
    /// What one side is multiplied with before its products with the other, by the largest of each: see [`Half::scale`].
    fn scale(left: f32, right: f32) -> f32;
    /// Scales and rounds numbers.
    fn narrow(engine: Engine, from: &[f32], scale: f32, to: &mut [Self]);
    /// Puts one element into a line.
    fn put(line: &mut Row<Self::Line>, column: usize, depth: usize, value: Self);
    /// A line of zeros.
    fn zeros() -> Row<Self::Line>;
}

/// Buffers that a thread keeps from task to task, in numbers of this type.
trait Buffers: Sized {
    /// Lends this thread's.
    fn lend(work: impl FnOnce(&mut Scratch<Self>));
}

macro_rules! buffers {
    ($($number:ty),*) => {$(
        impl Buffers for $number {
            fn lend(work: impl FnOnce(&mut Scratch<Self>)) {
                thread_local!(static SCRATCH: RefCell<Scratch<$number>> = const { RefCell::new(Scratch::new()) });
                SCRATCH.with_borrow_mut(work);
            }
        }
    )*};
}
buffers!(f32, bf16, f16);

/// What a thread keeps from task to task.
struct Scratch<T> {
    queries: Vec<T>,
    scores: Vec<Row<f32>>,
    row: Vec<f32>,
    shares: Vec<T>,
    totals: Vec<f32>,
    most: Vec<f32>,
    sums: Vec<Row<f32>>,
}

impl<T> Scratch<T> {
    const fn new() -> Self {
        Self {
            queries: Vec::new(),
            scores: Vec::new(),
            row: Vec::new(),
            shares: Vec::new(),
            totals: Vec::new(),
            most: Vec::new(),
            sums: Vec::new(),
        }
    }
}

impl Operand for f32 {
    const DEEP: usize = 1;
    const PAD: usize = 1;

    fn scale(_: f32, _: f32) -> f32 {
        1.0
    }

    fn narrow(_: Engine, from: &[f32], _: f32, to: &mut [Self]) {
        to.copy_from_slice(from);
    }

    fn put(line: &mut Row<Self>, column: usize, _: usize, value: f32) {
        line.0[column] = value;
    }

    fn zeros() -> Row<Self> {
        Row([0.0; WIDTH])
    }
}

impl<T: Half + Buffers> Operand for T {
    const DEEP: usize = 2;
    const PAD: usize = T::BLOCK;

    fn scale(left: f32, right: f32) -> f32 {
        <T as Half>::scale(left, right)
    }

    fn narrow(engine: Engine, from: &[f32], scale: f32, to: &mut [Self]) {
        <T as Half>::narrow(engine, from, scale, to);
    }

    fn put(line: &mut Row<[Self; 2]>, column: usize, depth: usize, value: Self) {
        line.0[column][depth] = value;
    }

    fn zeros() -> Row<[Self; 2]> {
        Row([[Self::ZERO; 2]; WIDTH])
    }
}

/// One head's keys and values, packed as the right sides of the two products.
struct Packed<T: Operand> {
    keys: Side<T>,   // [M/32] panels of `depth` lines
    values: Side<T>, // [K/32] panels of `seen` lines
}

/// One of them.
struct Side<T: Operand> {
    rows: Vec<Row<T::Line>>,
    /// The largest magnitude after scaling.
    largest: f32,
    /// What they are multiplied with.
    scale: f32,
}

impl<T: Operand> Packed<T> {
    fn new(engine: Engine, sizes: Sizes, tensors: Tensors<'_>, image: usize, head: usize) -> Self {
        let (depth, lines) = (sizes.width / sizes.heads, depth_of::<T>(sizes) / T::DEEP);
        let (panels, tall) = (sizes.seen.div_ceil(WIDTH), seen_of(sizes) / T::DEEP);
        let token = |token: usize| (image * sizes.seen + token) * sizes.width + head * depth;
        let side = |from: &[f32], rows: usize| {
            let most = (0..sizes.seen).map(|at| largest(&from[token(at)..][..depth])).fold(0.0, f32::max);
            let scale = T::scale(most, 1.0);
            Side { rows: vec![T::zeros(); rows], largest: most * scale, scale }
        };
        let mut keys: Side<T> = side(tensors.k, panels * lines);
        let mut values: Side<T> = side(tensors.v, depth.div_ceil(WIDTH) * tall);
        let mut rounded = vec![T::default(); 2 * depth];
        let (key, value) = rounded.split_at_mut(depth);
        for at in 0..sizes.seen {
            T::narrow(engine, &tensors.k[token(at)..][..depth], keys.scale, key);
            T::narrow(engine, &tensors.v[token(at)..][..depth], values.scale, value);
            let (panel, column) = (at / WIDTH * lines, at % WIDTH);
            for (d, (&key, &value)) in key.iter().zip(&*value).enumerate() {
                T::put(&mut keys.rows[panel + d / T::DEEP], column, d % T::DEEP, key);
                T::put(&mut values.rows[d / WIDTH * tall + at / T::DEEP], d % WIDTH, at % T::DEEP, value);
            }
        }
        Self { keys, values }
    }
}

/// The head width as the first product's inner dimension.
fn depth_of<T: Operand>(sizes: Sizes) -> usize {
    (sizes.width / sizes.heads).next_multiple_of(T::PAD)
}

/// The tokens as the second product's inner dimension: whole panels of scores.
fn seen_of(sizes: Sizes) -> usize {
    sizes.seen.next_multiple_of(WIDTH)
}

fn run<T: Operand>(engine: Engine, sizes: Sizes, tensors: Tensors<'_>) {
    let pairs = sizes.batch * sizes.heads;
    let packed: Vec<Packed<T>> = (0..pairs)
        .into_par_iter()
        .map(|pair| Packed::new(engine, sizes, tensors, pair / sizes.heads, pair % sizes.heads))
        .collect();
    let block = (QUERIES / engine.rows()).max(1) * engine.rows();
    let blocks = sizes.length.div_ceil(block);
    (0..pairs * blocks).into_par_iter().for_each(|task| {
        let (pair, from) = (task / blocks, task % blocks * block);
        let part = Part { engine, sizes, tensors, image: pair / sizes.heads, head: pair % sizes.heads, from };
        T::lend(|scratch| part.attend(&packed[pair], block.min(sizes.length - from), scratch));
    });
}

/// A block of queries of one head of one picture.
struct Part<'a> {
    engine: Engine,
    sizes: Sizes,
    tensors: Tensors<'a>,
    image: usize,
    head: usize,
    from: usize,
}

impl Part<'_> {
    fn attend<T: Operand>(&self, packed: &Packed<T>, rows: usize, scratch: &mut Scratch<T>) {
        let Self { engine, sizes, .. } = *self;
        let (depth, tall) = (depth_of::<T>(sizes), seen_of(sizes));
        let strips = |width: usize| -> Vec<Strip> {
            (0..rows.div_ceil(engine.rows()))
                .map(|i| {
                    let first = i * engine.rows();
                    Strip {
                        left: first * width,
                        pixel: first,
                        rows: engine.rows().min(rows - first),
                        scale: 1.0,
                    }
                })
                .collect()
        };
        let asking = strips(depth);
        let all = asking.len() * engine.rows();
        let Scratch { queries, scores, row, shares, totals, most, sums } = scratch;
        let scale = self.gather::<T>(rows, packed.keys.largest, row, fit(queries, all * depth, T::default()));
        let unscale = 1.0 / (scale * packed.keys.scale);
        let share_scale = T::scale(1.0, packed.values.largest);

        let _session = engine.session();
        let lines = depth / T::DEEP;
        let panels = packed.values.rows.len() / (tall / T::DEEP);
        fit(sums, panels * all, f32::zeros());
        totals.clear();
        totals.resize(rows, 0.0);
        most.clear();
        most.resize(rows, f32::NEG_INFINITY);
        for from in (0..tall).step_by(KEYS) {
            let width = KEYS.min(tall - from);
            let scores = fit(scores, width / WIDTH * all, f32::zeros());
            let keys = packed.keys.rows[from / WIDTH * lines..].chunks_exact(lines);
            for (keys, scores) in keys.zip(scores.chunks_exact_mut(all)) {
                multiply::<T>(engine, (queries, depth), &asking, keys, scores, false);
            }
            let shares = fit(shares, all * width, T::default());
            row.resize(width, 0.0);
            for r in 0..rows {
                let visible = if self.sizes.causal { self.from + r + 1 } else { sizes.seen };
                let visible = visible.min(sizes.seen).saturating_sub(from);
                let (sum, faded) = weigh(scores, (r, all), unscale, visible, &mut most[r], row);
                totals[r] = totals[r] * faded + sum;
                if faded < 1.0 && from > 0 {
                    (0..panels)
                        .for_each(|panel| sums[panel * all + r].0.iter_mut().for_each(|y| *y *= faded));
                }
                T::narrow(engine, row, share_scale, &mut shares[r * width..][..width]);
            }
            let shared = strips(width);
            for (values, sums) in
                packed.values.rows.chunks_exact(tall / T::DEEP).zip(sums.chunks_exact_mut(all))
            {
                let values = &values[from / T::DEEP..][..width / T::DEEP];
                multiply::<T>(engine, (shares, width), &shared, values, sums, from > 0);
            }
        }
        for (panel, sums) in sums.chunks_exact(all).take(panels).enumerate() {
            self.scatter(panel, &sums[..rows], totals, share_scale * packed.values.scale);
        }
    }

    /// The block's queries over the root of their width, one after the other; returns what else they were scaled by.
    fn gather<T: Operand>(&self, rows: usize, keys: f32, row: &mut Vec<f32>, queries: &mut [T]) -> f32 {
        let Sizes { length, width, heads, .. } = self.sizes;
        let (depth, padded) = (width / heads, depth_of::<T>(self.sizes));
        let root = 1.0 / (depth as f32).sqrt();
        let query = |r: usize| {
            let at = (self.image * length + self.from + r) * width + self.head * depth;
            &self.tensors.q[at..][..depth]
        };
        let most = (0..rows).map(|r| largest(query(r))).fold(0.0, f32::max);
        let scale = T::scale(most * root, keys);
        row.clear();
        row.resize(padded, 0.0);
        for (r, rounded) in queries.chunks_exact_mut(padded).take(rows).enumerate() {
            row.iter_mut().zip(query(r)).for_each(|(to, from)| *to = from * root);
            T::narrow(self.engine, row, scale, rounded);
        }
        scale
    }

    /// Writes one panel of the block's result, each row divided by its total and by the scale of shares and values.
    #[expect(unsafe_code, reason = "rows of one output are written by several threads")]
    fn scatter(&self, panel: usize, sums: &[Row<f32>], totals: &[f32], scale: f32) {
        let Sizes { length, width, heads, .. } = self.sizes;
        let depth = width / heads;
        let columns = WIDTH.min(depth - panel * WIDTH);
        for (r, (sums, total)) in sums.iter().zip(totals).enumerate() {
            let at = (self.image * length + self.from + r) * width + self.head * depth + panel * WIDTH;
            // SAFETY: this head's columns of these rows belong to this task alone.
            let y = unsafe { std::slice::from_raw_parts_mut(self.tensors.y.at(at), columns) };
            let share = 1.0 / (total * scale);
            for (y, sum) in y.iter_mut().zip(&sums.0) {
                *y = sum * share;
            }
        }
    }
}

/// Grows a buffer to at least `count` and lends that much.
fn fit<T: Copy>(buffer: &mut Vec<T>, count: usize, filler: T) -> &mut [T] {
    if buffer.len() < count {
        buffer.resize(count, filler);
    }
    &mut buffer[..count]
}

/// All strips of `left`, whose rows are `step` long, with one panel over the whole inner dimension; `keep` adds to what
/// is there.
fn multiply<T: Operand>(
    engine: Engine,
    (left, step): (&[T], usize),
    strips: &[Strip],
    panel: &[Row<T::Line>],
    sums: &mut [Row<f32>],
    keep: bool,
) {
    let pieces = [Piece { left: 0, line: 0, depth: step }];
    let calls = strips.chunks(engine.strips()).zip(sums.chunks_mut(engine.strips() * engine.rows()));
    for (strips, sums) in calls {
        T::sums(engine, Block { left, step, strips, panel, pieces: &pieces, keep }, sums);
    }
}

vectorised! {
    /// Exponentials of one row of scores less the largest so far, zero beyond `visible`; their sum, and what earlier
    /// shares are multiplied with now that there may be a larger score.
    ///
    /// # Source
    /// The running maximum of Milakov & Gimelshein 2018 (arXiv 1805.02867) algorithm 3.
    fn weigh(
        scores: &[Row<f32>],
        place: (usize, usize),
        unscale: f32,
        visible: usize,
        largest: &mut f32,
        row: &mut [f32]
    ) -> (f32, f32) {
        let (first, stride) = place;
        let (whole, left) = (visible.min(row.len()) / WIDTH, visible.min(row.len()) % WIDTH);
        // Of the last panel, what is not to be seen is as far below as can be.
        let mut last = [f32::NEG_INFINITY; WIDTH];
        if left > 0 {
            last[..left].copy_from_slice(&scores[first + whole * stride].0[..left]);
        }
        let panels = scores[first..].iter().step_by(stride).take(whole).map(|row| &row.0);
        let mut lanes = last;
        for scores in panels.clone() {
            for (lane, score) in lanes.iter_mut().zip(scores) {
                *lane = if *score > *lane { *score } else { *lane };
            }
        }
        let before = *largest;
        *largest = before.max(unscale * lanes.into_iter().fold(f32::NEG_INFINITY, f32::max));
        let most = *largest;
        let mut sums = [0f32; WIDTH];
        let (shares, rest) = row.as_chunks_mut::<WIDTH>();
        for (shares, scores) in shares.iter_mut().zip(panels.chain(std::iter::once(&last))) {
            for ((share, sum), score) in shares.iter_mut().zip(&mut sums).zip(scores) {
                *share = exp_of_negative(score.mul_add(unscale, -most));
                *sum += *share;
            }
        }
        shares.iter_mut().skip(whole + 1).for_each(|unseen| *unseen = [0.0; WIDTH]);
        debug_assert!(rest.is_empty(), "shares come in whole panels");
        (sums.iter().sum(), exp_of_negative(before - most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    fn wave(shape: (usize, usize, usize), phase: usize) -> Result<Tensor> {
        let count = shape.0 * shape.1 * shape.2;
        let values: Vec<f32> = (0..count).map(|i| (((i + phase) * 29 % 211) as f32 * 0.17).sin()).collect();
        Tensor::from_vec(values, shape, &Device::Cpu)
    }

    #[test]
    fn ours_equals_the_reference_for_self_cross_and_causal() -> Result<()> {
        for (precision, tolerance) in
            [(Precision::Exact, 1e-5), (Precision::Bf16, 1e-2), (Precision::F16, 2e-3)]
        {
            for (length, seen, width, causal) in [
                (150, 150, 24, false),
                (70, 7, 24, false),
                (77, 77, 24, true),
                (1, 1, 24, true),
                (65, 33, 120, false),
                (30, 1100, 24, false),
                (600, 600, 24, true),
            ] {
                let shape = |rows| (2, rows, width);
                let (q, k, v) = (wave(shape(length), 0)?, wave(shape(seen), 5)?, wave(shape(seen), 9)?);
                let heads = Heads { count: 3, causal, precision };
                let ours = attention(&q, &k, &v, heads)?;
                let oracle = reference(&q, &k, &v, heads)?;
                let error = (ours - oracle)?.abs()?.max_all()?.to_scalar::<f32>()?;
                assert!(error < tolerance, "{length} over {seen}, causal {causal}, {precision:?}: {error}");
            }
        }
        Ok(())
    }
}
