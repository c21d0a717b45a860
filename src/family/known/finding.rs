//! What was found out about files: facts with evidence, and where the evidence disagrees.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::super::contract::{Evidence, Task};
use super::profile::Profile;
use super::rule::Role;

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
        if self.family.is_none() || torn(self, "prediction") {
            self.runs = false;
        }
    }

    /// The user's word; else that of the config, unless the tensors say the same and more.
    fn settled_variant(&self) -> Option<String> {
        let best = self.says("variant")?;
        if matches!(best.because, Evidence::User(_)) {
            return Some(best.value.clone());
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
