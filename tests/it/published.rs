//! Headers of published models, built by their own libraries without a weight: each is of exactly one role and family.
//!
//! Nothing here follows from our tables; `scripts/inventory.py` knows the published sizes and the libraries the names.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use latentia::family::known::{Finding, identify};
use latentia::weights::{Inventory, Scalar, TensorInfo};
use serde_json::json;

/// A model as the script wrote it down.
pub(crate) struct Published {
    pub(crate) role: String,
    pub(crate) family: String,
    pub(crate) variant: String,
    /// The class that built it, and whose names it has.
    pub(crate) origin: String,
    pub(crate) inventory: Inventory,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/inventory")
}

/// Every model of a text: sections that begin with `==`.
fn models(text: &str) -> Vec<Published> {
    let section = |section: &str| {
        let (head, lines) = section.split_once('\n').expect("a head and lines");
        let words: Vec<&str> = head.split('|').map(str::trim).collect();
        let [role, family, variant, origin] = words[..] else { panic!("a head: {head}") };
        let own = |text: &str| text.to_owned();
        let inventory = inventory(lines);
        Published {
            role: own(role),
            family: own(family),
            variant: own(variant),
            origin: own(origin),
            inventory,
        }
    };
    text.split("== ").skip(1).map(section).collect()
}

fn inventory(lines: &str) -> Inventory {
    let (mut inventory, mut at) = (Inventory::default(), 0);
    for line in lines.lines().filter(|line| !line.is_empty()) {
        let mut words = line.split(' ');
        let name = words.next().expect("a name");
        let shape: Vec<usize> = words.map(|size| size.parse().expect("a size")).collect();
        for name in numbered(name) {
            let end = at + 2 * shape.iter().product::<usize>();
            inventory.tensors.insert(name, TensorInfo::new(Scalar::F16, shape.clone(), 0, at..end));
            at = end;
        }
    }
    inventory
}

/// `a.{2..3}.b` is `a.2.b` and `a.3.b`.
fn numbered(name: &str) -> Vec<String> {
    let Some((head, rest)) = name.split_once('{') else { return vec![name.to_owned()] };
    let (range, tail) = rest.split_once('}').expect("a closed brace");
    let (first, last) = range.split_once("..").expect("a range");
    let number = |text: &str| text.parse::<usize>().expect("a number");
    (number(first)..=number(last)).flat_map(|n| numbered(&format!("{head}{n}{tail}"))).collect()
}

/// Denoisers, autoencoders and adapters.
pub(crate) fn networks() -> Vec<Published> {
    let mut text = String::new();
    let file = File::open(folder().join("networks.txt.gz")).expect("the networks");
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("text");
    models(&text)
}

fn encoders(file: &str) -> Vec<Published> {
    models(&fs::read_to_string(folder().join(file)).expect("the encoders"))
}

fn claimed<'a>(found: &'a Finding, fact: &str) -> BTreeSet<&'a str> {
    found.claims.iter().filter(|claim| claim.fact == fact).map(|claim| claim.value.as_str()).collect()
}

/// What is wrong with what we find, if anything.
fn judge(model: &Published) -> Option<String> {
    let found = identify(&model.inventory);
    let role = json!(found.role);
    let (families, variants) = (claimed(&found, "family"), claimed(&found, "variant"));
    let wanted: BTreeSet<&str> =
        Some(model.family.as_str()).into_iter().filter(|family| !family.is_empty()).collect();
    let variant =
        model.variant.split_whitespace().all(|word| variants.iter().any(|variant| variant.contains(word)));
    let right = role == model.role.as_str() && families == wanted && variant;
    let Published { role: wanted, family, variant, origin, .. } = model;
    (!right).then(|| format!("{wanted} {family} {variant} ({origin}): {role} {families:?} {variants:?}"))
}

#[test]
fn published_networks_are_of_one_role_and_one_family() {
    let networks = networks();
    assert!(networks.len() > 200, "{}", networks.len());
    let own = networks.iter().filter(|model| model.origin.ends_with("its makers' names")).count();
    assert!(own > 60, "{own} under their makers' names");
    let wrong: Vec<String> = networks.iter().filter_map(judge).collect();
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn text_encoders_are_known_under_both_their_names() {
    let (plain, renamed) = (encoders("encoders.txt"), encoders("encoders_gguf.txt"));
    let wrong: Vec<String> = plain.iter().chain(&renamed).filter_map(judge).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for model in &renamed {
        let ours = model.inventory.in_names_of_transformers().expect("names of llama.cpp");
        let class = model.origin.strip_prefix("gguf ").expect("from gguf");
        let same = |plain: &&Published| plain.origin == class && plain.variant == model.variant;
        let theirs = &plain.iter().find(same).expect("the same model").inventory;
        let names = |inventory: &Inventory| inventory.names().map(str::to_owned).collect::<BTreeSet<_>>();
        assert_eq!(names(&ours), names(theirs), "{} {}", model.family, model.variant);
        assert!(theirs.in_names_of_transformers().is_none(), "they are in those names already");
    }
}
