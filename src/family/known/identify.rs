//! From tensors' names and shapes to what a file is: role first, then prefix, then family.
//!
//! # Source
//! `models.md` 3.1.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::super::contract::Evidence;
use super::adapter::{ADAPTERS, CONTROLS, LORAS, low_rank};
use super::finding::{Claim, Confidence, Finding, Part};
use super::hint::read_notes;
use super::image::IMAGES;
use super::part::{EMBEDDINGS, ENCODERS, OTHERS, UPSCALERS, VAES};
use super::rule::{Role, Rule, View, When};
use super::unet::{UNET, UNETS};
use super::video::VIDEOS;
use crate::weights::{Inventory, TensorInfo};

/// Where a denoiser's names may begin, the longest first.
const PREFIXES: &[&str] = &[
    "model.diffusion_model.",
    "diffusion_model.",
    "model.model.",
    "transformer.",
    "model.",
    "unet.",
    "net.",
    "",
];

/// A prefix with fewer names is no denoiser.
const FEW: usize = 5;

/// Where other roles' names may begin.
const OTHER_PREFIXES: &[&str] = &["", "control_model.", "controlnet.", "model.", "diffusion_model."];

/// Where autoencoders and text encoders stand in a file of several parts.
const VAE_PREFIXES: &[&str] = &["first_stage_model.", "vae."];
const ENCODER_PREFIXES: &[&str] = &["cond_stage_model.", "conditioner.embedders.*.", "text_encoders.*."];

/// What a file is, by its tensors and the notes in its header.
pub fn identify(inventory: &Inventory) -> Finding {
    let plain = unwrapped(inventory).or_else(|| inventory.in_names_of_transformers());
    let mut finding = by_role(plain.as_ref().unwrap_or(inventory));
    finding.unread.extend(inventory.unread());
    finding
}

/// Names without what compilers and parallel wrappers put into them; `None` if there is nothing of the kind.
fn unwrapped(inventory: &Inventory) -> Option<Inventory> {
    const WRAPPERS: [&str; 2] = ["_orig_mod.", "module."];
    let wrapped = |name: &str| name.contains(WRAPPERS[0]) || name.starts_with(WRAPPERS[1]);
    if !inventory.names().any(wrapped) {
        return None;
    }
    let plain = |(name, tensor): (&String, &TensorInfo)| {
        let name = name.replace(WRAPPERS[0], "");
        (name.strip_prefix(WRAPPERS[1]).map_or(name.clone(), str::to_owned), tensor.clone())
    };
    Some(Inventory {
        tensors: inventory.tensors.iter().map(plain).collect(),
        metadata: inventory.metadata.clone(),
    })
}

fn by_role(inventory: &Inventory) -> Finding {
    let whole = View::new(inventory, "");
    let mut finding = if let Some(low) = low_rank(&whole) {
        lora(&whole, low)
    } else if let Some(found) = first(&[CONTROLS, ADAPTERS, EMBEDDINGS], &views(inventory, OTHER_PREFIXES)) {
        one_part(&found)
    } else if let Some(found) = denoiser(inventory) {
        checkpoint(inventory, &found)
    } else {
        let vaes = views(inventory, &["", "first_stage_model.", "vae.", "model."]);
        let texts = encoder_views(inventory, true);
        let found = first(&[VAES], &vaes).or_else(|| first(&[ENCODERS], &texts));
        let found = found.or_else(|| first(&[UPSCALERS, OTHERS], &views(inventory, &["", "model."])));
        found.map_or_else(|| unknown(&whole), |found| one_part(&found))
    };
    read_notes(&mut finding, inventory);
    finding
}

/// The rule that fits best, the view it fits, and other families that fit too.
struct Found<'a> {
    rule: &'static Rule,
    view: View<'a>,
    rivals: Vec<&'static str>,
}

fn views<'a>(inventory: &'a Inventory, prefixes: &[&str]) -> Vec<View<'a>> {
    let there = prefixes.iter().filter(|prefix| inventory.has_prefix(prefix));
    there.map(|prefix| View::new(inventory, *prefix)).collect()
}

/// Every place where a text encoder may stand.
fn encoder_views(inventory: &Inventory, alone: bool) -> Vec<View<'_>> {
    let mut prefixes: Vec<String> = Vec::new();
    if alone {
        prefixes.extend([String::new(), "text_model.".into()]);
    }
    for pattern in ENCODER_PREFIXES {
        let Some((head, _)) = pattern.split_once('*') else {
            prefixes.push((*pattern).into());
            continue;
        };
        for (name, _) in inventory.with_prefix(head) {
            let Some((child, _)) = name[head.len()..].split_once('.') else { continue };
            let prefix = format!("{head}{child}.");
            if prefixes.last() != Some(&prefix) {
                prefixes.push(prefix);
            }
        }
    }
    let there = prefixes.iter().filter(|prefix| inventory.has_prefix(prefix));
    let deeper = |prefix: &String| [prefix.clone(), format!("{prefix}transformer.")];
    let all = there.flat_map(deeper).filter(|prefix| inventory.has_prefix(prefix));
    all.map(|prefix| View::new(inventory, prefix)).collect()
}

/// The first view in which a rule of these tables fits, tables in their order.
fn first<'a>(tables: &[&'static [Rule]], views: &[View<'a>]) -> Option<Found<'a>> {
    tables.iter().find_map(|table| views.iter().find_map(|view| best(table, view)))
}

/// The rule with the most conditions among those that fit; of equals the first family, and of its rows the last, since
/// a table goes from what makes a family to what tells its members apart.
fn best<'a>(table: &'static [Rule], view: &View<'a>) -> Option<Found<'a>> {
    let fitting: Vec<&'static Rule> = table.iter().filter(|rule| rule.fits(view)).collect();
    let most = fitting.iter().map(|rule| rule.when.len()).max()?;
    let mut equals = fitting.iter().copied().filter(|rule| rule.when.len() == most);
    let first = equals.next()?;
    let rule = equals.rfind(|rule| rule.family == first.family).unwrap_or(first);
    let mut rivals: Vec<&str> =
        fitting.iter().map(|other| other.family).filter(|&f| f != rule.family).collect();
    rivals.dedup();
    Some(Found { rule, view: view.clone(), rivals })
}

/// The denoiser, behind the prefix with the most hits.
fn denoiser(inventory: &Inventory) -> Option<Found<'_>> {
    let mut chosen: Option<(usize, Found<'_>)> = None;
    for prefix in PREFIXES {
        if inventory.with_prefix(prefix).take(FEW + 1).count() <= FEW {
            continue;
        }
        let view = View::new(inventory, *prefix);
        let fitting = [UNETS, IMAGES, VIDEOS].into_iter().filter_map(|table| best(table, &view));
        let mut fitting: Vec<_> = fitting.collect();
        fitting.sort_by_key(|found| std::cmp::Reverse(found.rule.when.len()));
        let others: Vec<_> = fitting.iter().skip(1).map(|found| found.rule.family).collect();
        let found = match fitting.into_iter().next() {
            Some(mut found) => {
                found.rivals.extend(others);
                found
            }
            None if view.sizes().is_some() => Found { rule: &UNET, view, rivals: Vec::new() },
            None => continue,
        };
        let score = found.rule.hits(&found.view).max(1) + found.rule.when.len();
        if chosen.as_ref().is_none_or(|(most, _)| score > *most) {
            chosen = Some((score, found));
        }
    }
    chosen.map(|(_, found)| found)
}

/// A denoiser and what stands beside it in the file.
fn checkpoint(inventory: &Inventory, found: &Found<'_>) -> Finding {
    let mut finding = one_part(found);
    for view in views(inventory, VAE_PREFIXES) {
        finding.parts.push(part(&view, best(VAES, &view).map(|found| found.rule), Role::Vae));
    }
    let mut covered: Vec<String> = Vec::new();
    for view in encoder_views(inventory, false) {
        let base = view.prefix().strip_suffix("transformer.").unwrap_or(view.prefix()).to_owned();
        let Some(found) = best(ENCODERS, &view) else { continue };
        if !covered.contains(&base) {
            covered.push(base);
            finding.parts.push(part(&view, Some(found.rule), Role::TextEncoder));
        }
    }
    if finding.parts.len() > 1 {
        finding.role = Role::Checkpoint;
    }
    finding
}

/// A file that a rule explains.
fn one_part(found: &Found<'_>) -> Finding {
    let Found { rule, view, rivals } = found;
    let mut finding = Finding::unknown(rule.role);
    finding.parts.push(part(view, Some(rule), rule.role));
    finding.tasks = rule.tasks.to_vec();
    finding.abilities = rule.abilities.to_vec();
    finding.runs = rule.runs;
    let evidence = Evidence::Tensor(evidence(rule, view));
    finding.claim(Claim::new("family", rule.family, evidence.clone(), Confidence::Certain));
    for rival in rivals {
        finding.claim(Claim::new("family", *rival, evidence.clone(), Confidence::Certain));
    }
    if rule.family.is_empty() {
        finding.telling = telling(view);
        finding.notes.push(format!("it is {} of no published size", rule.variant));
    } else {
        finding.claim(Claim::new("variant", rule.variant, evidence.clone(), Confidence::Certain));
    }
    prediction(&mut finding, rule, view);
    if rule.size != [0, 0] {
        let size = format!("{}x{}", rule.size[0], rule.size[1]);
        let because = Evidence::Assumed("what its makers trained it at".into());
        finding.claim(Claim::new("size", size, because, Confidence::Likely));
    }
    if !rule.note.is_empty() {
        finding.notes.push(rule.note.into());
    }
    finding
}

/// The prediction: a marker where there is one, else what such networks were published with.
fn prediction(finding: &mut Finding, rule: &Rule, view: &View<'_>) {
    let marker = view.find("/v_pred|v_pred|/edm_mean|edm_mean|/edm_vpred.sigma_max|edm_vpred.sigma_max");
    let hidden = view.sizes().is_some();
    let (because, confidence) = match (marker, hidden) {
        (Some((name, _)), _) => (Evidence::Tensor(name.into()), Confidence::Certain),
        (None, true) => (Evidence::Assumed("as such networks were published".into()), Confidence::Likely),
        (None, false) => (Evidence::Assumed("as the family has it".into()), Confidence::Certain),
    };
    finding.claim(Claim::new("prediction", rule.prediction, because, confidence));
}

/// The tensors that decided, at most four.
fn evidence(rule: &Rule, view: &View<'_>) -> String {
    let positive = rule.when.iter().filter(|when| !matches!(when, When::No(_) | When::Not(_)));
    let spoken: Vec<String> = positive.filter_map(|when| when.spoken(view)).take(6).collect();
    let mut unique = spoken;
    unique.dedup();
    if unique.is_empty() {
        return view.tensors().next().map(|(name, _)| name.clone()).unwrap_or_default();
    }
    unique.join(", ")
}

fn lora(view: &View<'_>, low: usize) -> Finding {
    let mut finding = if let Some(found) = best(LORAS, view) {
        one_part(&found)
    } else {
        let mut finding = unknown(view);
        finding.role = Role::Lora;
        finding.notes.push("which network it changes is told by the network's own names and sizes".into());
        finding
    };
    for part in &mut finding.parts {
        part.role = Role::Lora;
    }
    finding.claim(Claim::new(
        "role",
        "lora",
        Evidence::Tensor(format!("{low} low-rank tensors")),
        Confidence::Certain,
    ));
    finding
}

/// Nothing fits: say what is in the file, and guess nothing.
fn unknown(view: &View<'_>) -> Finding {
    let mut finding = Finding::unknown(Role::Other);
    finding.parts.push(part(view, None, Role::Other));
    finding.telling = telling(view);
    finding
}

/// The largest tensors of distinct kinds: what to show somebody who knows more.
fn telling(view: &View<'_>) -> Vec<String> {
    let mut kinds: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for (name, tensor) in view.tensors() {
        let kind: String =
            name.split('.').map(|part| if part.parse::<u32>().is_ok() { "#" } else { part }).collect();
        let size = tensor.shape.iter().product();
        let shown = format!("{name} {:?}", tensor.shape);
        let best = kinds.entry(kind).or_insert((0, String::new()));
        if best.1.is_empty() || size > best.0 {
            *best = (size, shown);
        }
    }
    let mut kinds: Vec<_> = kinds.into_values().collect();
    kinds.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    kinds.into_iter().take(8).map(|(_, shown)| shown).collect()
}

/// One part with its sums.
fn part(view: &View<'_>, rule: Option<&Rule>, role: Role) -> Part {
    let mut bytes_by: BTreeMap<&'static str, u64> = BTreeMap::new();
    let (mut tensors, mut parameters, mut bytes, mut in_blocks) = (0, 0_u64, 0_u64, [0_u64; 2]);
    for (_, tensor) in view.tensors() {
        tensors += 1;
        let numbers = tensor.shape.iter().fold(1_u64, |product, &size| product.saturating_mul(size as u64));
        parameters = parameters.saturating_add(numbers);
        bytes += tensor.range.len() as u64;
        if tensor.kept_block().is_some() {
            in_blocks[0] = in_blocks[0].saturating_add(numbers);
            in_blocks[1] += tensor.range.len() as u64;
        }
        *bytes_by.entry(tensor.scalar.name()).or_default() += tensor.range.len() as u64;
    }
    let most = bytes_by.into_iter().max_by_key(|(_, bytes)| *bytes);
    Part {
        role,
        family: rule.map_or("", |rule| rule.family),
        variant: rule.map_or("", |rule| rule.variant),
        place: view.prefix().into(),
        path: PathBuf::new(),
        tensors,
        parameters,
        bytes,
        in_blocks,
        dtype: most.map_or(String::new(), |(name, _)| name.into()),
    }
}
