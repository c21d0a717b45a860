//! Control networks against diffusers: every call with golden input, and what they hand to the U-net.

use candle_core::{DType, Device, Tensor};
use latentia::event::Watch;
use latentia::family::Control;
use latentia::family::ldm::{ControlConfig, ControlNet, Heard, Residuals, Steering};

use crate::golden::{Case, Outcome, close};
use crate::golden_pipelines::said;

/// The control network of a case, if it has one.
pub(crate) fn open(case: &Case) -> Result<Option<Control>, String> {
    case.path("controlnet").map(|path| Control::open(&path)).transpose().map_err(said)
}

/// Every call of the control network, told these tokens and whole prompts.
pub(crate) fn calls(case: &Case, context: &Tensor, pooled: &Tensor) -> Outcome {
    let Some(control) = open(case)? else { return Ok(()) };
    let config = ControlConfig::read(control.config().ok_or("no config")?).map_err(said)?;
    let vb = control.weights().var_builder(DType::F32, &Device::Cpu);
    let network = ControlNet::new(&config, &vb).map_err(said)?;
    let first = |what: &str| case.get(&format!("controlnet.00.in.{what}"));
    let rows = first("sample").ok_or("no input of the control network")?.dim(0).map_err(said)?;
    // In guess mode it is told the prompt alone, which stands last.
    let last = |x: &Tensor| x.narrow(0, x.dim(0)? - rows, rows);
    let (context, pooled) = (last(context).map_err(said)?, last(pooled).map_err(said)?);
    let trunk = network.trunk();
    let added = match first("added_cond_kwargs.time_ids") {
        Some(ids) => {
            let sizes: Vec<Vec<f64>> =
                ids.to_dtype(DType::F64).and_then(|ids| ids.to_vec2()).map_err(said)?;
            trunk.hear(&pooled, &sizes).map_err(said)?
        }
        None => None,
    };
    let picture = first("controlnet_cond").ok_or("no picture")?;
    let picture = picture.narrow(0, 0, 1).and_then(|x| x.to_dtype(DType::F32)).map_err(said)?;
    let mut told = Steering {
        heard: Heard { text: trunk.listen(&context).map_err(said)?, guidance: None, added },
        seen: network.see(&picture).map_err(said)?,
        scale: 1.0,
        guess: case.argument("guess_mode") == true,
    };
    let mut call = 0;
    while case.get(&format!("controlnet.{call:02}.out.1")).is_some() {
        let at = |what: &str| {
            let own = case.get(&format!("controlnet.{call:02}.in.{what}"));
            own.or_else(|| first(what)).ok_or_else(|| format!("no {what}"))
        };
        let number = |x: &Tensor| x.to_dtype(DType::F64)?.flatten_all()?.get(0)?.to_scalar::<f64>();
        told.scale = number(at("conditioning_scale")?).map_err(said)?;
        let time = number(at("timestep")?).map_err(said)?;
        let ours = network.forward(at("sample")?, time, &told, &mut Watch::quiet()).map_err(said)?;
        let mut all = vec![(format!("controlnet.{call:02}.out.1"), &ours.middle)];
        all.extend(ours.down.iter().enumerate().map(|(i, x)| (format!("controlnet.{call:02}.out.0.{i}"), x)));
        for (key, ours) in all {
            let golden = case.get(&key).ok_or_else(|| format!("no {key}"))?;
            let ours = ours.permute((0, 3, 1, 2)).map_err(said)?;
            close(&key, &ours, golden, 1e-5)?;
        }
        if case.get(&format!("controlnet.{call:02}.out.0.{}", ours.down.len())).is_some() {
            return Err("diffusers has more residuals".into());
        }
        call += 1;
    }
    if call == 0 { Err("no call of the control network".into()) } else { Ok(()) }
}

/// What diffusers' control network handed to `rows` rows of the U-net in one call.
pub(crate) fn residuals(case: &Case, call: usize, rows: usize) -> Result<Option<Residuals>, String> {
    let spread = |x: &Tensor| {
        let x = x.permute((0, 2, 3, 1))?.contiguous()?;
        let missing = rows - x.dim(0)?;
        if missing == 0 {
            return Ok(x);
        }
        Tensor::cat(&[x.narrow(0, 0, 1)?.zeros_like()?.repeat((missing, 1, 1, 1))?, x], 0)
    };
    let get = |key: String| case.get(&key).map(spread).transpose().map_err(said);
    let Some(middle) = get(format!("controlnet.{call:02}.out.1"))? else { return Ok(None) };
    let mut down = Vec::new();
    while let Some(x) = get(format!("controlnet.{call:02}.out.0.{}", down.len()))? {
        down.push(x);
    }
    Ok(Some(Residuals { down, middle }))
}
