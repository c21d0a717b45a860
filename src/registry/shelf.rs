//! Models that can be fetched by a short name, and what their makers allow: the data of `models/catalog`.
//!
//! Nothing in it was compared with the hub unless it says so. It is where a pull begins, not what it believes: files,
//! sizes and digests come from the hub's listing, and must be those of the catalogue only where the catalogue has them.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::error::{Code, Error, Result};
use crate::fetch::{Pinned, Wanted, check_repository};

/// What the makers allow, in classes that are shown before anything is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Licence {
    /// Apache, MIT and the like.
    Permissive,
    /// `OpenRAIL`: commerce allowed, some uses not.
    Rail,
    /// Free below a yearly revenue or a number of seats.
    RevenueCapped,
    /// Not everywhere.
    RegionLimited,
    /// Not for commerce.
    NonCommercial,
    /// Several, by variant.
    Mixed,
    /// Nobody has said.
    #[default]
    Unknown,
}

impl Licence {
    /// The class of a licence by the name that hubs have for it.
    pub fn of(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        let has = |word: &str| name.contains(word);
        if has("openrail") {
            Self::Rail
        } else if has("-nc") || has("non-commercial") || has("noncommercial") || has("research") {
            Self::NonCommercial
        } else if has("stabilityai-ai-community")
            || has("stability-ai-community")
            || has("stabilityai-community")
        {
            Self::RevenueCapped
        } else if has("tencent") || has("hunyuan") {
            Self::RegionLimited
        } else if matches!(name.as_str(), "mit" | "isc" | "unlicense" | "cc0-1.0" | "cc-by-4.0" | "wtfpl")
            || name.starts_with("apache")
            || name.starts_with("bsd")
        {
            Self::Permissive
        } else {
            Self::Unknown
        }
    }

    /// Its class in one word, as data has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Permissive => "permissive",
            Self::Rail => "rail",
            Self::RevenueCapped => "revenue-capped",
            Self::RegionLimited => "region-limited",
            Self::NonCommercial => "non-commercial",
            Self::Mixed => "mixed",
            Self::Unknown => "unknown",
        }
    }
}

/// A model of the catalogue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// What it is called here.
    pub name: String,
    /// Its family, with `/variant` where that differs.
    pub family: String,
    /// Its repository.
    pub repository: String,
    /// A branch, tag or commit.
    #[serde(default = "main")]
    pub revision: String,
    /// Which form of its weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// What a download weighs, as people say, in 10^9 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about_gb: Option<f64>,
    /// What the makers allow.
    pub licence: Licence,
    /// Whether they ask for an agreement.
    #[serde(default)]
    pub gated: bool,
    /// Files that were recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<Recorded>,
    /// Where these facts are from.
    pub source: String,
    /// Whether they were compared with the hub.
    pub checked: bool,
}

/// A file of an offer as somebody saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// Its path.
    pub path: String,
    /// Its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// What it hashes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// What the makers of a family allow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// The family, with `/variant` where that differs.
    pub family: String,
    /// What they allow.
    pub licence: Licence,
    /// Whether they ask for an agreement.
    #[serde(default)]
    pub gated: bool,
    /// Whether this was compared with what they publish.
    pub checked: bool,
}

fn main() -> String {
    "main".into()
}

/// A file of the catalogue.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    #[serde(default)]
    model: Vec<Offer>,
    #[serde(default)]
    family: Vec<Terms>,
}

/// The catalogue's files.
const PAGES: &[(&str, &str)] = &[
    ("image.toml", include_str!("../../models/catalog/image.toml")),
    ("video.toml", include_str!("../../models/catalog/video.toml")),
    ("family.toml", include_str!("../../models/catalog/family.toml")),
];

/// Every page read; a test sees to it that all of them can be.
static SHELF: LazyLock<Page> = LazyLock::new(|| {
    let mut shelf = Page::default();
    for page in PAGES.iter().filter_map(|(_, text)| toml::from_str::<Page>(text).ok()) {
        shelf.model.extend(page.model);
        shelf.family.extend(page.family);
    }
    shelf
});

/// Every model that can be fetched by a name.
pub fn offers() -> &'static [Offer] {
    &SHELF.model
}

/// The offer of a name or of a repository, in any case.
pub fn offer(name: &str) -> Option<&'static Offer> {
    let is = |text: &str| text.eq_ignore_ascii_case(name);
    let named = offers().iter().find(|offer| is(&offer.name));
    named.or_else(|| offers().iter().find(|offer| is(&offer.repository)))
}

/// What the makers of a family, or of this variant of it, allow.
pub fn terms(family: &str, variant: &str) -> Option<Terms> {
    let own = format!("{family}/{variant}");
    let of_offer = |name: &str| {
        let offer = offers().iter().find(|offer| offer.family == name)?;
        let Offer { family, licence, gated, checked, .. } = offer.clone();
        Some(Terms { family, licence, gated, checked })
    };
    let of_family = |name: &str| SHELF.family.iter().find(|terms| terms.family == name).cloned();
    [own.as_str(), family].into_iter().find_map(|name| of_family(name).or_else(|| of_offer(name)))
}

/// What a user asks for with `NAME[:VARIANT]` or `ORGANISATION/NAME[:VARIANT]`, and what to call it here.
///
/// # Errors
/// `invalid_argument` if it is neither.
pub fn wanted(text: &str, revision: Option<&str>) -> Result<(Wanted, String)> {
    let (model, variant) = match text.split_once(':') {
        Some((model, variant)) => (model, Some(variant)),
        None => (text, None),
    };
    let plain =
        |variant: &str| !variant.is_empty() && variant.len() <= 255 && !variant.chars().any(char::is_control);
    if variant.is_some_and(|variant| !plain(variant)) {
        return Err(Error::argument("model", "what follows the colon is no variant"));
    }
    let listed = offer(model);
    if listed.is_none() {
        check_repository(model).map_err(|error| {
            let code = if model.contains('/') { error.code } else { Code::ModelNotFound };
            Error { code, ..error }
        })?;
    }
    let repository = listed.map_or(model, |offer| offer.repository.as_str());
    let short = listed.map_or_else(|| model.rsplit('/').next().unwrap_or(model), |offer| offer.name.as_str());
    // What was recorded is of one form at one revision.
    let same = variant.is_none() && revision.is_none();
    let files = listed.filter(|_| same).map(|offer| offer.files.as_slice()).unwrap_or_default();
    let pinned = files.iter().map(|file| Pinned {
        path: file.path.clone(),
        bytes: file.bytes,
        sha256: file.sha256.clone(),
    });
    let wanted = Wanted {
        repository: repository.to_owned(),
        revision: revision.or(listed.map(|offer| offer.revision.as_str())).unwrap_or("main").to_owned(),
        variant: variant.map(str::to_owned).or_else(|| listed?.variant.clone()),
        pinned: pinned.collect(),
    };
    Ok((wanted, called(short, variant)))
}

/// A name for a model on this machine: its own, and the variant that was asked for.
fn called(short: &str, variant: Option<&str>) -> String {
    let whole = match variant {
        Some(variant) => {
            let file = variant.rsplit('/').next().unwrap_or(variant);
            let stem = [".safetensors", ".gguf"].iter().find_map(|ending| file.strip_suffix(ending));
            stem.map_or_else(|| format!("{short}-{file}"), str::to_owned)
        }
        None => short.to_owned(),
    };
    let fits = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') { c } else { '-' };
    whole.trim_start_matches(['.', '_']).chars().map(fits).take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::known::PROFILES;
    use crate::registry::check_name;

    #[test]
    fn every_page_can_be_read_and_every_fact_is_possible() {
        let mut names = std::collections::HashSet::new();
        for (file, text) in PAGES {
            let page: Page = toml::from_str(text).unwrap_or_else(|error| panic!("{file}: {error}"));
            for offer in page.model {
                assert!(names.insert(offer.name.clone()), "{} is there twice", offer.name);
                check_name(&offer.name).expect("a name");
                check_repository(&offer.repository).expect("a repository");
                assert!(PROFILES.iter().any(|profile| profile.family == offer.family), "{}", offer.family);
                let pinned = offer.revision.len() == 40;
                assert!(offer.files.iter().all(|file| file.sha256.is_none() || pinned), "{}", offer.name);
            }
        }
        assert!(names.len() >= 30);
    }

    #[test]
    fn names_and_repositories_are_told_apart() {
        let (sdxl, name) = wanted("SDXL:fp32", None).expect("an offer");
        assert_eq!((name.as_str(), sdxl.variant.as_deref()), ("sdxl-fp32", Some("fp32")));
        assert!(sdxl.repository.contains('/') && sdxl.revision == "main");
        let (one, name) = wanted("org/flux-gguf:flux-Q4_K_S.gguf", Some("v2")).expect("a repository");
        assert_eq!(
            (one.repository.as_str(), one.revision.as_str(), name.as_str()),
            ("org/flux-gguf", "v2", "flux-Q4_K_S")
        );
        assert_eq!(wanted("nothing-of-the-kind", None).expect_err("unknown").code, Code::ModelNotFound);
        assert_eq!(wanted("../x", None).expect_err("no name").code, Code::InvalidArgument);
        assert_eq!(wanted("org/name:", None).expect_err("no variant").code, Code::InvalidArgument);
    }

    #[test]
    fn licences_have_classes() {
        for (name, class) in [
            ("apache-2.0", Licence::Permissive),
            ("creativeml-openrail-m", Licence::Rail),
            ("cc-by-nc-4.0", Licence::NonCommercial),
            ("flux-1-dev-non-commercial-license", Licence::NonCommercial),
            ("stabilityai-ai-community", Licence::RevenueCapped),
            ("other", Licence::Unknown),
        ] {
            assert_eq!(Licence::of(name), class, "{name}");
        }
        assert_eq!(terms("flux", "dev").map(|terms| terms.licence), Some(Licence::NonCommercial));
        assert_eq!(terms("flux", "schnell").map(|terms| terms.licence), Some(Licence::Permissive));
        assert_eq!(terms("krea2", "").map(|terms| terms.licence), Some(Licence::RevenueCapped));
        assert!(terms("nobody", "").is_none());
    }
}
