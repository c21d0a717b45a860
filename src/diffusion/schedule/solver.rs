//! Schedules whose `x` keeps unit variance, or walks straight: the exponential integrators and their kin.

use std::sync::Arc;

use super::flow::Growth;
use super::grid::{Grid, betas};
use super::{prediction, thresholding, training_steps};
use crate::diffusion::beta::{Curve, ZeroSnr};
use crate::diffusion::class::Class;
use crate::diffusion::lens::{Lens, Prediction};
use crate::diffusion::ramp::{Ramp, Shift, at_step, stretch};
use crate::diffusion::reader::Reader;
use crate::diffusion::sampler::{Algorithm, Deis, Multistep, Node, Route, SaSolver, UniPc};
use crate::diffusion::spacing::{Spacing, each, linspace, single, solver_steps, whole};
use crate::diffusion::walk::{Level, Options, Walk};
use crate::error::{Error, Result};

/// Where a walk ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// At σ = 0.
    Zero,
    /// At the lowest σ.
    Lowest,
}

const ENDS: &[(&str, End)] = &[("zero", End::Zero), ("sigma_min", End::Lowest)];

/// How a multistep solver orders its steps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dpm {
    algorithm: Algorithm,
    heun: bool,
    order: usize,
    lower_order_final: bool,
    euler_at_final: bool,
    end: End,
}

impl Dpm {
    /// Reads the solver's keys; the words of other solvers fall back to the default, as in the reference.
    pub(crate) fn read(class: Class, reader: Reader<'_>) -> Result<Self> {
        use Algorithm::{Data, DataSde, Noise, NoiseSde};
        let mut algorithms = vec![("dpmsolver++", Data), ("sde-dpmsolver++", DataSde), ("deis", Data)];
        if !class.is_edm() {
            algorithms.push(("dpmsolver", Noise));
        }
        if class == Class::DpmMultistep {
            algorithms.push(("sde-dpmsolver", NoiseSde));
        }
        let kinds = [("midpoint", false), ("heun", true), ("logrho", false), ("bh1", false), ("bh2", false)];
        let dpm = Self {
            algorithm: reader.choice("algorithm_type", &algorithms)?,
            heun: reader.choice("solver_type", &kinds)?,
            order: reader.whole("solver_order", 2, 1..=3)?,
            lower_order_final: reader.flag("lower_order_final", class != Class::DpmSinglestep)?,
            euler_at_final: class != Class::DpmSinglestep && reader.flag("euler_at_final", false)?,
            end: reader.choice("final_sigmas_type", ENDS)?,
        };
        let is_noise = matches!(dpm.algorithm, Noise | NoiseSde);
        if is_noise && dpm.end == End::Zero {
            return Err(reader.refuse("final_sigmas_type", "must be sigma_min for this algorithm_type"));
        }
        if dpm.order == 3 && (dpm.algorithm == NoiseSde || class.is_edm() && dpm.algorithm == DataSde) {
            return Err(reader.refuse("solver_order", "must be 1 or 2 for this algorithm_type"));
        }
        Ok(dpm)
    }

    /// The multistep plan over these nodes: how far back each step may look.
    pub(crate) fn plan(&self, nodes: Vec<Node>) -> Multistep {
        let n = nodes.len() - 1;
        let few = self.lower_order_final && n < 15;
        let cap = |i: usize| {
            if i + 1 == n && (self.euler_at_final || few || self.end == End::Zero) {
                1
            } else if i + 2 == n && few {
                self.order.min(2)
            } else {
                self.order
            }
        };
        Multistep { algorithm: self.algorithm, heun: self.heun, orders: (0..n).map(cap).collect(), nodes }
    }

    /// The singlestep plan over these nodes: orders rise to the solver's and begin again.
    ///
    /// # Source
    /// `LuChengTHU/dpm-solver dpm_solver_pytorch.py` `get_orders_and_timesteps_for_singlestep_solver`, MIT.
    fn plan_single(&self, nodes: Vec<Node>) -> Multistep {
        let n = nodes.len() - 1;
        let lower = self.lower_order_final || !n.is_multiple_of(self.order) || self.end == End::Zero;
        let mut orders: Vec<usize> = (0..n).map(|i| i % self.order + 1).collect();
        let rest = n % self.order;
        if lower && n > 0 {
            match (self.order, rest) {
                (2 | 3, 0) | (3, 1) => orders[n - 1] = 1,
                _ => {}
            }
        }
        if self.end == End::Zero && n > 0 {
            orders[n - 1] = 1;
        }
        Multistep { algorithm: self.algorithm, heun: self.heun, orders, nodes }
    }
}

/// The straight process in place of the variance preserving one.
#[derive(Debug, Clone, Copy)]
struct Straight {
    shift: f64,
    dynamic: bool,
    linear: bool,
    terminal: Option<f64>,
    growth: Growth,
}

/// Which integrator walks.
#[derive(Debug, Clone)]
enum Kind {
    Multistep(Dpm),
    Singlestep(Dpm),
    UniPc { data: bool, bh1: bool, order: usize, lower_order_final: bool, uncorrected: Vec<usize>, end: End },
    Deis { order: usize, lower_order_final: bool },
    Sa { data: bool, predictor: usize, corrector: usize, lower_order_final: bool },
}

/// A schedule of one of these solvers.
#[derive(Debug, Clone)]
pub(crate) struct Solver {
    class: Class,
    grid: Grid,
    alphas: Arc<[f64]>,
    cosine: bool,
    spacing: Spacing,
    offset: f64,
    /// How many training steps are visited: those below a λ are left out.
    last: usize,
    lens: Lens,
    straight: Option<Straight>,
    kind: Kind,
    halves: bool,
}

impl Solver {
    /// Reads a configuration of one of these classes.
    pub(crate) fn read(class: Class, reader: Reader<'_>) -> Result<Self> {
        let train = training_steps(reader)?;
        let noise = betas(class, reader, train, ZeroSnr::Finite)?;
        let alphas: Arc<[f64]> = noise.alphas().into();
        let grid = Grid::read(class, reader, train, &alphas)?;
        let kind = kind(class, reader)?;
        let straight = straight(class, reader, grid.ramp)?;
        let least = if matches!(class, Class::UniPc | Class::Deis) {
            f64::NEG_INFINITY
        } else {
            reader.number("lambda_min_clipped", f64::NEG_INFINITY, f64::NEG_INFINITY..=1e3)?
        };
        let clipped = grid.sigmas.iter().filter(|sigma| -sigma.ln() < least).count();
        if clipped >= train {
            return Err(reader.refuse("lambda_min_clipped", "leaves no training step"));
        }
        let spacing = if class == Class::DpmSinglestep {
            Spacing::Linspace
        } else {
            reader.choice(
                "timestep_spacing",
                &[
                    ("linspace", Spacing::Linspace),
                    ("leading", Spacing::Leading),
                    ("trailing", Spacing::Trailing),
                ],
            )?
        };
        let halves =
            reader.choice("variance_type", &[("", false), ("learned", true), ("learned_range", true)])?;
        Ok(Self {
            class,
            grid,
            alphas,
            cosine: noise.curve == Curve::Cosine && noise.trained.is_none(),
            spacing,
            offset: reader.number("steps_offset", 0.0, -1e5..=1e5)?,
            last: train - clipped,
            lens: Lens { prediction: read_prediction(&kind, reader)?, bound: thresholding(reader)? },
            straight,
            kind,
            halves,
        })
    }

    /// The factor by which a straight schedule shifts, and whether μ takes its place; `None` for the curved ones.
    pub(crate) fn shift(&self) -> Option<(f64, bool)> {
        self.straight.map(|straight| (straight.shift, straight.dynamic))
    }

    /// μ for a picture of `tokens` tokens, where the levels depend on its size.
    pub(crate) fn mu(&self, tokens: usize) -> Option<f64> {
        self.straight.filter(|straight| straight.dynamic).map(|straight| straight.growth.mu(tokens))
    }

    /// Plans a walk of `n` steps.
    pub(crate) fn walk(&self, n: usize, options: &Options) -> Result<Walk> {
        let has: &[&str] = match self.class {
            Class::DpmMultistep | Class::DpmSinglestep => &["mu", "timesteps"],
            Class::UniPc => &["mu", "sigmas"],
            Class::Deis => &["mu"],
            _ => &[],
        };
        options.check(self.class.as_str(), has)?;
        if n >= self.grid.train {
            return Err(Error::argument(
                "steps",
                format!("{n} steps, but the model was trained on {}", self.grid.train),
            ));
        }
        if options.timesteps.is_some() && (self.grid.ramp != Ramp::Training || self.straight.is_some()) {
            return Err(Error::argument(
                "timesteps",
                "timesteps cannot be given where a table of sigmas decides",
            ));
        }
        let (sigmas, times) = self.table(n, options)?;
        let nodes: Vec<Node> = sigmas.iter().map(|&sigma| self.node(sigma)).collect();
        let level = |(node, &time): (&Node, &f64)| Level {
            alpha: node.alpha,
            sigma: node.sigma,
            time,
            ..Level::default()
        };
        let mut levels: Vec<Level> = nodes.iter().zip(&times).map(level).collect();
        levels.iter_mut().zip(&sigmas).for_each(|(level, &sigma)| level.listed = sigma);
        let mut walk = Walk::new(levels, self.lens, self.route(nodes, &times));
        walk.sigmas = sigmas;
        walk.halves = self.halves;
        if self.class == Class::SaSolver {
            walk.noising = Some(self.alphas.clone());
        }
        Ok(walk)
    }

    fn route(&self, nodes: Vec<Node>, times: &[f64]) -> Route {
        let n = times.len();
        match &self.kind {
            Kind::Multistep(dpm) => Route::Multistep(dpm.plan(nodes)),
            Kind::Singlestep(dpm) => Route::Singlestep(dpm.plan_single(nodes)),
            Kind::Deis { order, lower_order_final } => {
                let few = *lower_order_final && n < 15;
                let cap = |i: usize| if few { (*order).min(n - i) } else { *order };
                Route::Deis(Deis { orders: (0..n).map(cap).collect(), nodes })
            }
            Kind::UniPc { data, bh1, order, lower_order_final, uncorrected, .. } => {
                let cap = |i: usize| if *lower_order_final { (*order).min(n - i) } else { *order };
                Route::UniPc(UniPc {
                    data: *data,
                    bh1: *bh1,
                    orders: (0..n).map(cap).collect(),
                    uncorrected: uncorrected.clone(),
                    nodes,
                })
            }
            Kind::Sa { data, predictor, corrector, lower_order_final } => Route::SaSolver(SaSolver {
                data: *data,
                predictor: *predictor,
                corrector: *corrector,
                lower_order_final: *lower_order_final,
                // The published default of `tau_func`: stochastic between training steps 200 and 800.
                taus: times
                    .iter()
                    .map(|time| if (200.0..=800.0).contains(time) { 1.0 } else { 0.0 })
                    .collect(),
                nodes,
            }),
        }
    }

    fn node(&self, sigma: f64) -> Node {
        if self.straight.is_some() {
            return Node::new(1.0 - sigma, sigma);
        }
        let alpha = 1.0 / sigma.hypot(1.0);
        Node { alpha, sigma: sigma * alpha, lambda: -sigma.ln() }
    }

    /// σ per step with the last, and what the network hears.
    fn table(&self, n: usize, options: &Options) -> Result<(Vec<f64>, Vec<f64>)> {
        let lowest = self.grid.sigmas[0];
        let (mut sigmas, mut times): (Vec<f64>, Vec<f64>);
        let ends_at;
        if let (Some(ramped), None) = (self.grid.ramped_over_all(n), &options.sigmas) {
            sigmas = ramped;
            if self.straight.is_some() {
                each(&mut sigmas, |sigma| sigma / (sigma + 1.0));
                times = sigmas.iter().map(|sigma| sigma * self.grid.train as f64).collect();
            } else {
                times = sigmas.iter().map(|&sigma| self.grid.clock.at(sigma)).collect();
                if self.rounds() {
                    each(&mut times, f64::round_ties_even);
                }
            }
            ends_at = if matches!(self.class, Class::DpmMultistep | Class::DpmSinglestep) {
                lowest
            } else {
                sigmas[sigmas.len() - 1]
            };
        } else if let Some(straight) = self.straight {
            sigmas = self.straight_sigmas(straight, n, options)?;
            times = sigmas.iter().map(|sigma| sigma * self.grid.train as f64).collect();
            ends_at = if matches!(self.class, Class::DpmMultistep | Class::DpmSinglestep) {
                lowest
            } else {
                sigmas[sigmas.len() - 1]
            };
        } else {
            if options.sigmas.is_some() {
                return Err(Error::argument(
                    "sigmas",
                    "sigmas can be given to straight (flow) schedules only",
                ));
            }
            times = match &options.timesteps {
                Some(times) => times.clone(),
                None => solver_steps(self.spacing, n, self.grid.train, self.last, self.offset),
            };
            each(&mut times, f64::trunc);
            sigmas = times.iter().map(|&time| at_step(&self.grid.sigmas, time)).collect();
            ends_at = lowest;
        }
        each(&mut times, f64::trunc);
        sigmas.push(if self.ends_at_zero() { 0.0 } else { ends_at });
        each(&mut sigmas, single);
        Ok((sigmas, times))
    }

    /// Whether the network hears the nearest training step of a ramped level, or the one below.
    fn rounds(&self) -> bool {
        match self.grid.ramp {
            Ramp::Karras => self.class != Class::DpmMultistep || !self.cosine,
            Ramp::Lu => !self.cosine,
            _ => false,
        }
    }

    fn ends_at_zero(&self) -> bool {
        match &self.kind {
            Kind::Multistep(dpm) | Kind::Singlestep(dpm) => dpm.end == End::Zero,
            Kind::UniPc { end, .. } => *end == End::Zero,
            Kind::Deis { .. } | Kind::Sa { .. } => false,
        }
    }

    fn straight_sigmas(&self, straight: Straight, n: usize, options: &Options) -> Result<Vec<f64>> {
        let shift = match (options.mu, straight.dynamic) {
            (Some(mu), true) if straight.linear => Shift::Linear(mu),
            (Some(mu), true) => Shift::Exponential(mu),
            (None, false) => Shift::Factor(straight.shift),
            (None, true) if self.class != Class::UniPc => Shift::Factor(straight.shift),
            (None, true) => {
                return Err(Error::argument("mu", "this schedule has use_dynamic_shifting and needs mu")
                    .hint("it follows from the size of the picture"));
            }
            (Some(_), false) => {
                return Err(Error::argument(
                    "mu",
                    "mu is for schedules with use_dynamic_shifting, which this is not",
                ));
            }
        };
        let lowest = 1.0 / self.grid.train as f64;
        let plain = linspace(1.0, lowest, n + 1);
        if self.class != Class::UniPc {
            return Ok((0..n).rev().map(|i| shift.apply(1.0 - plain[i + 1])).collect());
        }
        let mut sigmas: Vec<f64> = match &options.sigmas {
            Some(sigmas) => sigmas.clone(),
            None => plain[..n].to_vec(),
        };
        each(&mut sigmas, |sigma| shift.apply(sigma));
        if let Some(terminal) = straight.terminal {
            stretch(&mut sigmas, terminal);
        }
        // At σ = 1 nothing of the picture is left and λ is infinite; the reference begins a millionth below.
        if (sigmas[0] - 1.0).abs() < 1e-6 {
            sigmas[0] -= 1e-6;
        }
        Ok(sigmas)
    }
}

fn kind(class: Class, reader: Reader<'_>) -> Result<Kind> {
    Ok(match class {
        Class::DpmMultistep => Kind::Multistep(Dpm::read(class, reader)?),
        Class::DpmSinglestep => Kind::Singlestep(Dpm::read(class, reader)?),
        Class::UniPc => unipc(reader)?,
        Class::Deis => {
            reader.choice("algorithm_type", &[("deis", ()), ("dpmsolver", ()), ("dpmsolver++", ())])?;
            let types = [("logrho", ()), ("midpoint", ()), ("heun", ()), ("bh1", ()), ("bh2", ())];
            reader.choice("solver_type", &types)?;
            Kind::Deis {
                order: reader.whole("solver_order", 2, 1..=3)?,
                lower_order_final: reader.flag("lower_order_final", true)?,
            }
        }
        _ => {
            reader.absent("tau_func")?;
            Kind::Sa {
                data: reader
                    .choice("algorithm_type", &[("data_prediction", true), ("noise_prediction", false)])?,
                predictor: reader.whole("predictor_order", 2, 1..=4)?,
                corrector: reader.whole("corrector_order", 2, 1..=4)?,
                lower_order_final: reader.flag("lower_order_final", true)?,
            }
        }
    })
}

fn unipc(reader: Reader<'_>) -> Result<Kind> {
    reader.absent("solver_p")?;
    let types = [("bh2", false), ("bh1", true), ("midpoint", false), ("heun", false), ("logrho", false)];
    let data = reader.flag("predict_x0", true)?;
    let bh1 = reader.choice("solver_type", &types)?;
    let order = reader.whole("solver_order", 2, 1..=4)?;
    let lower_order_final = reader.flag("lower_order_final", true)?;
    let end = reader.choice("final_sigmas_type", ENDS)?;
    if end == End::Zero && (bh1 || !data || (!lower_order_final && order > 1)) {
        let why =
            "must be sigma_min where solver_type is bh1, predict_x0 is false or lower_order_final is false";
        return Err(reader.refuse("final_sigmas_type", why));
    }
    let uncorrected = if reader.is_empty_list("disable_corrector") {
        Vec::new()
    } else {
        reader.numbers("disable_corrector", -1e6..=1e6)?.unwrap_or_default()
    };
    let uncorrected = uncorrected.into_iter().filter(|step| *step >= 0.0).map(whole).collect();
    Ok(Kind::UniPc { data, bh1, order, lower_order_final, uncorrected, end })
}

fn straight(class: Class, reader: Reader<'_>, ramp: Ramp) -> Result<Option<Straight>> {
    let terminal = if class == Class::UniPc { reader.maybe("shift_terminal", 0.0..=0.999)? } else { None };
    if !reader.flag("use_flow_sigmas", false)? {
        if terminal.is_some() {
            return Err(reader.refuse("shift_terminal", "needs use_flow_sigmas"));
        }
        return Ok(None);
    }
    if ramp != Ramp::Training && (class, ramp) != (Class::UniPc, Ramp::Karras) {
        return Err(reader.refuse("use_flow_sigmas", "cannot be combined with another table of sigmas"));
    }
    Ok(Some(Straight {
        shift: reader.number("flow_shift", 1.0, 1e-6..=1e4)?,
        dynamic: reader.flag("use_dynamic_shifting", false)?,
        linear: reader
            .choice("time_shift_type", &[("exponential", false), ("linear", class == Class::UniPc)])?,
        terminal: terminal.filter(|terminal| *terminal > 0.0),
        growth: Growth::read(reader)?,
    }))
}

fn read_prediction(kind: &Kind, reader: Reader<'_>) -> Result<Prediction> {
    use Prediction::{Epsilon, Sample, V, Velocity};
    let says_clean = match kind {
        Kind::Multistep(dpm) | Kind::Singlestep(dpm) => {
            matches!(dpm.algorithm, Algorithm::Data | Algorithm::DataSde)
        }
        Kind::UniPc { data, .. } | Kind::Sa { data, .. } => *data,
        Kind::Deis { .. } => true,
    };
    prediction(reader, if says_clean { &[Epsilon, Sample, V, Velocity] } else { &[Epsilon, Sample, V] })
}
