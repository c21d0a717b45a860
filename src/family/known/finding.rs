//! What was found out about files: facts with evidence, and where the evidence disagrees.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::super::contract::{Evidence, Task};
use super::profile::Profile;
use super::rule::{Role, Rule};
use super::{denoisers, rules, variants};
use crate::error::{Error, Result};

/// How sure a fact is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// A name or a habit.
    Guessed,
    /// What everybody does, or a note of the author.
    Likely,
    /// Shapes, configs, or the user's word.
    Certain,
}

/// A fact as one source gives it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Claim {
    /// Which fact: `role`, `family`, `variant`, `prediction`, `size`, …
    pub fact: &'static str,
    /// What the source says.
    pub value: String,
    /// The source.
    pub because: Evidence,
    /// How sure it is.
    pub confidence: Confidence,
}

impl Claim {
    /// A source's word.
    pub fn new(
        fact: &'static str,
        value: impl Into<String>,
        because: Evidence,
        confidence: Confidence,
    ) -> Self {
        Self { fact, value: value.into(), because, confidence }
    }
}

/// One part of a model.
#[derive(Debug, Clone, Serialize)]
pub struct Part {
    /// What it is for.
    pub role: Role,
    /// The family of its kind, such as `clip` or `flux-vae`; empty if unknown.
    pub family: &'static str,
    /// Which of them; empty if unknown.
    pub variant: &'static str,
    /// The component of a folder, or the prefix in a file.
    pub place: String,
    /// The file.
    pub path: PathBuf,
    /// How many tensors.
    pub tensors: usize,
    /// Numbers in them.
    pub parameters: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Numbers that stay in their blocks of small integers in memory, and the bytes of these blocks.
    #[serde(skip)]
    pub in_blocks: [u64; 2],
    /// The type that most of the bytes have.
    pub dtype: String,
}

/// Everything that headers and configs tell about a model's files.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// What the files are for.
    pub role: Role,
    /// The family, unless nothing tells or two sources disagree.
    pub family: Option<String>,
    /// Which of the family.
    pub variant: Option<String>,
    /// What the network's output means.
    pub prediction: Option<String>,
    /// Width and height when none is asked for.
    pub size: Option<[usize; 2]>,
    /// Sides are multiples of it, where the files say so themselves.
    pub multiple: Option<usize>,
    /// A clip has so many times a number of frames and one, where the files say so themselves.
    pub every: Option<usize>,
    /// What it can be asked for.
    pub tasks: Vec<Task>,
    /// What the tasks' names do not say.
    pub abilities: Vec<&'static str>,
    /// Whether it can draw here and now.
    pub runs: bool,
    /// Every fact with its source.
    pub claims: Vec<Claim>,
    /// Where sources disagree.
    pub conflicts: Vec<String>,
    /// The parts that are there.
    pub parts: Vec<Part>,
    /// The parts that are not.
    pub missing: Vec<String>,
    /// Ways in which weights are packed that are known by name and not readable yet.
    pub unread: Vec<String>,
    /// What a user should know.
    pub notes: Vec<String>,
    /// Names of tensors that may tell somebody more; only where the family is unknown.
    pub telling: Vec<String>,
    /// What is known of the family.
    pub profile: Option<&'static Profile>,
}

impl Finding {
    /// Nothing is known yet.
    pub fn unknown(role: Role) -> Self {
        Self {
            role,
            family: None,
            variant: None,
            prediction: None,
            size: None,
            multiple: None,
            every: None,
            tasks: Vec::new(),
            abilities: Vec::new(),
            runs: false,
            claims: Vec::new(),
            conflicts: Vec::new(),
            parts: Vec::new(),
            missing: Vec::new(),
            unread: Vec::new(),
            notes: Vec::new(),
            telling: Vec::new(),
            profile: None,
        }
    }

    /// Says which file the parts are in.
    pub fn lies_in(&mut self, path: &Path) {
        for part in &mut self.parts {
            path.clone_into(&mut part.path);
        }
    }

    /// Adds a source's word.
    pub fn claim(&mut self, claim: Claim) {
        if !claim.value.is_empty() && !self.claims.contains(&claim) {
            self.claims.push(claim);
        }
    }

    /// The strongest word on a fact: the user's, then the surest, then what somebody said before what is only assumed,
    /// then the first.
    pub fn says(&self, fact: &str) -> Option<&Claim> {
        let rank = |claim: &&Claim| {
            let is_user = matches!(claim.because, Evidence::User(_));
            (is_user, claim.confidence, !matches!(claim.because, Evidence::Assumed(_)))
        };
        let mut best: Option<&Claim> = None;
        for claim in self.claims.iter().filter(|claim| claim.fact == fact) {
            if best.is_none_or(|best| rank(&claim) > rank(&best)) {
                best = Some(claim);
            }
        }
        best
    }

    /// Settles each fact; where two sure sources disagree, nothing is settled and both are reported.
    pub fn settle(&mut self) {
        let facts = ["family", "variant", "prediction"];
        let found: Vec<String> = facts.iter().flat_map(|fact| self.disagreements(fact)).collect();
        for conflict in found {
            if !self.conflicts.contains(&conflict) {
                self.conflicts.push(conflict);
            }
        }
        let torn = |finding: &Self, fact: &str| {
            let user = matches!(finding.says(fact), Some(Claim { because: Evidence::User(_), .. }));
            !user && finding.sure(fact).windows(2).any(|pair| pair[0].value != pair[1].value)
        };
        let settled = |finding: &Self, fact: &str| {
            (!torn(finding, fact)).then(|| finding.says(fact).map(|claim| claim.value.clone())).flatten()
        };
        self.family = settled(self, "family");
        self.prediction = settled(self, "prediction");
        self.variant = self.settled_variant();
        self.size = self.says("size").and_then(|claim| {
            let (width, height) = claim.value.split_once('x')?;
            Some([width.parse().ok()?, height.parse().ok()?])
        });
        let number = |finding: &Self, fact: &str| finding.says(fact)?.value.parse().ok();
        self.multiple = number(self, "sides");
        self.every = number(self, "frames");
        if self.family.is_none() || torn(self, "prediction") {
            self.runs = false;
        }
    }

    /// The user's word; else that of the config, unless the tensors say the same and more; nothing where the user says
    /// that it is of another family, whose variants these are not.
    fn settled_variant(&self) -> Option<String> {
        let best = self.says("variant")?;
        if matches!(best.because, Evidence::User(_)) {
            return Some(best.value.clone());
        }
        if self.is_contradicted() {
            return None;
        }
        let of = |wanted: fn(&Evidence) -> bool| {
            self.claims.iter().find(|claim| claim.fact == "variant" && wanted(&claim.because))
        };
        let config = of(|because| matches!(because, Evidence::Config(_)));
        let tensor = of(|because| matches!(because, Evidence::Tensor(_)));
        let chosen = match (config, tensor) {
            (Some(config), Some(tensor)) if tensor.value.contains(&config.value) => tensor,
            (Some(config), _) => config,
            _ => best,
        };
        Some(chosen.value.clone())
    }

    /// Whether the user says that it is of another family than its files say.
    pub fn is_contradicted(&self) -> bool {
        let user = self.says("family").filter(|claim| matches!(claim.because, Evidence::User(_)));
        user.is_some_and(|user| self.sure("family").iter().any(|claim| claim.value != user.value))
    }

    /// Takes the user's word for what it is: the facts of that row of the tables in place of those that tensors chose.
    ///
    /// # Errors
    /// `invalid_argument` for a family or a variant that is not known, with those that are.
    pub fn retell(&mut self) -> Result<()> {
        let user = |fact: &str| {
            let claim = self.says(fact).filter(|claim| matches!(claim.because, Evidence::User(_)))?;
            Some(claim.value.clone())
        };
        let (family, variant) = (user("family"), user("variant"));
        if family.is_none() && variant.is_none() {
            return Ok(());
        }
        let Some(own) = family.clone().or_else(|| self.says("family").map(|claim| claim.value.clone()))
        else {
            return Err(Error::argument("variant", "a variant is told of a file whose family nothing tells")
                .hint("say --set family=… too"));
        };
        let known = variants(&own);
        if known.is_empty() {
            let families: BTreeSet<&str> =
                rules().map(|rule| rule.family).filter(|f| !f.is_empty()).collect();
            let families: Vec<&str> = families.into_iter().collect();
            return Err(Error::argument("family", format!("there is no family `{own}`"))
                .hint(format!("the families are {}", families.join(", "))));
        }
        if let Some(variant) = variant.as_deref().filter(|variant| !known.contains(variant)) {
            let named: Vec<&str> = known.into_iter().filter(|name| !name.is_empty()).collect();
            return Err(Error::argument("variant", format!("the family {own} has no variant `{variant}`"))
                .hint(format!("its variants are {}", named.join(", "))));
        }
        let silent = self.sure("family").iter().all(|claim| matches!(claim.because, Evidence::User(_)));
        if variant.is_some() || silent || self.is_contradicted() {
            self.take_rows(&own, variant.as_deref());
        }
        Ok(())
    }

    /// The facts of a family's rows, or of one variant's, in place of those that tensors chose; what its rows do not
    /// agree on stays open.
    fn take_rows(&mut self, family: &str, variant: Option<&str>) {
        let of = |rule: &&Rule| {
            rule.family == family
                && !rule.tasks.is_empty()
                && variant.is_none_or(|variant| rule.variant == variant)
        };
        let rows: Vec<&Rule> = denoisers().filter(of).collect();
        let is_model = matches!(self.role, Role::Denoiser | Role::Checkpoint);
        let (Some(first), true) = (rows.first(), is_model) else { return };
        self.claims.retain(|claim| {
            let habit = ["prediction", "size"].contains(&claim.fact);
            !(habit && matches!(claim.because, Evidence::Assumed(_)))
        });
        let because = || Evidence::Assumed(format!("as {family} has it, which the user says it is"));
        if rows.iter().all(|row| row.prediction == first.prediction) {
            self.claim(Claim::new("prediction", first.prediction, because(), Confidence::Likely));
        }
        if first.size != [0, 0] && rows.iter().all(|row| row.size == first.size) {
            let size = format!("{}x{}", first.size[0], first.size[1]);
            self.claim(Claim::new("size", size, because(), Confidence::Likely));
        }
        self.tasks = first.tasks.to_vec();
        self.abilities = first.abilities.to_vec();
        self.runs = rows.iter().any(|row| row.runs);
    }

    fn sure(&self, fact: &str) -> Vec<&Claim> {
        let sure = |claim: &&Claim| claim.fact == fact && claim.confidence == Confidence::Certain;
        self.claims.iter().filter(sure).collect()
    }

    fn disagreements(&self, fact: &str) -> Vec<String> {
        let Some(best) = self.says(fact) else { return Vec::new() };
        // A published habit is what is assumed where nobody speaks; it contradicts nothing.
        let speaks = |claim: &&Claim| claim.fact == fact && !matches!(claim.because, Evidence::Assumed(_));
        let differs = |claim: &&Claim| match fact {
            // A variant may be told more or less fully, and a class may name another side of it than shapes do.
            "variant" => {
                let weak = [claim, best].iter().any(|claim| matches!(claim.because, Evidence::Metadata(_)));
                weak && !claim.value.contains(&best.value) && !best.value.contains(&claim.value)
            }
            _ => claim.value != best.value,
        };
        let others = self.claims.iter().filter(speaks).filter(differs);
        others
            .map(|other| {
                format!(
                    "{fact}: {} says {}, {} says {}",
                    spoken(&best.because),
                    best.value,
                    spoken(&other.because),
                    other.value
                )
            })
            .collect()
    }
}

/// Where a fact comes from, in words.
pub fn spoken(evidence: &Evidence) -> String {
    match evidence {
        Evidence::Tensor(what) => format!("tensor {what}"),
        Evidence::Config(what) => format!("config {what}"),
        Evidence::Manifest(what) => format!("manifest {what}"),
        Evidence::Metadata(what) => format!("metadata {what}"),
        Evidence::Name(what) => format!("name {what}"),
        Evidence::User(what) => format!("user {what}"),
        Evidence::Assumed(what) => format!("assumed {what}"),
    }
}
