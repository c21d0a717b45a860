//! Where a request may lead: the hub itself, or another public host over TLS.
//!
//! A hub sends its clients elsewhere for large files, and whoever writes that address could send us to a service of
//! this machine or of the network it stands in. So a redirect leads to the hub's own origin, or to `https` at an
//! address that is public; names are looked up first, and only public answers are connected to. Behind a proxy the
//! proxy looks names up, and its owner decides.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use crate::error::{Code, Error, Result};

/// Scheme, host and port: what a token may be sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    secure: bool,
    host: String,
    port: u16,
}

impl Origin {
    /// The origin of an address; `None` if it is not plain `http` or `https`, or names a user.
    pub(super) fn of(uri: &Uri) -> Option<Self> {
        let secure = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        if uri.authority()?.as_str().contains('@') {
            return None;
        }
        let host = uri.host()?.trim_end_matches('.').to_ascii_lowercase();
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        (!host.is_empty()).then_some(Self { secure, host, port })
    }

    /// Whether nobody on the way can read what is sent: TLS, or this machine.
    pub(super) fn is_private_to_us(&self) -> bool {
        self.secure || self.host == "localhost" || self.address().is_some_and(|address| address.is_loopback())
    }

    /// The address, if the host is one and not a name.
    fn address(&self) -> Option<IpAddr> {
        self.host.trim_start_matches('[').trim_end_matches(']').parse().ok()
    }
}

/// Whether a redirect may be followed.
///
/// # Errors
/// `url_not_allowed`.
pub(super) fn may_follow(home: &Origin, target: &Uri) -> Result<()> {
    let refuse = |why: &str| Err(not_allowed(why));
    let Some(origin) = Origin::of(target) else { return refuse("an address that is not plain https") };
    if origin == *home {
        return Ok(());
    }
    if !origin.secure {
        return refuse("an address without TLS");
    }
    let local = origin.host == "localhost" || origin.host.ends_with(".localhost");
    if local || origin.address().is_some_and(|address| !is_public(address)) {
        return refuse("an address that is not public");
    }
    Ok(())
}

fn not_allowed(why: &str) -> Error {
    Error::new(Code::UrlNotAllowed, format!("the hub sends us to {why}; it was not contacted"))
        .hint("a file comes from the hub itself, or from a public host over https")
}

/// Addresses that anybody can reach.
fn is_public(address: IpAddr) -> bool {
    let v4 = |address: Ipv4Addr| {
        let [a, b, ..] = address.octets();
        !(address.is_private()
            || address.is_loopback()
            || address.is_link_local()
            || address.is_documentation()
            || address.is_multicast()
            || a == 0
            || a >= 240
            || (a == 100 && (64..128).contains(&b))
            || (a == 198 && (18..20).contains(&b)))
    };
    let v6 = |address: Ipv6Addr| {
        let first = address.segments()[0];
        // 2000::/3 is all that is given out.
        first & 0xe000 == 0x2000 && first != 0x2002 && !(first == 0x2001 && address.segments()[1] < 0x0200)
    };
    match address {
        IpAddr::V4(address) => v4(address),
        IpAddr::V6(address) => address.to_ipv4_mapped().map_or_else(|| v6(address), v4),
    }
}

/// Looks names up, and knows only public addresses of all hosts but the hub and the proxy.
#[derive(Debug)]
pub(super) struct PublicAddresses {
    pub(super) home: Origin,
}

/// Why a name has no address for us.
#[derive(Debug)]
pub(super) struct NotPublic;

impl std::fmt::Display for NotPublic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the name leads to no public address")
    }
}

impl std::error::Error for NotPublic {}

impl Resolver for PublicAddresses {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = DefaultResolver::default().resolve(uri, config, timeout)?;
        let proxy = config.proxy().is_some_and(|proxy| proxy.uri().authority() == uri.authority());
        if proxy || Origin::of(uri).is_some_and(|origin| origin == self.home) {
            return Ok(found);
        }
        let mut public = self.empty();
        for address in found.iter().filter(|address: &&SocketAddr| is_public(address.ip())) {
            public.push(*address);
        }
        if public.is_empty() { Err(ureq::Error::Other(Box::new(NotPublic))) } else { Ok(public) }
    }
}

/// The typed error of a name that leads to no public address.
pub(super) fn refused(error: &ureq::Error) -> Option<Error> {
    match error {
        ureq::Error::Other(inner) if inner.is::<NotPublic>() => {
            Some(not_allowed("a name whose address is not public"))
        }
        _ => None,
    }
}

/// Where a redirect leads, seen from where it was found.
pub(super) fn join(from: &Uri, location: &str) -> Option<Uri> {
    let (scheme, authority) = (from.scheme_str()?, from.authority()?);
    let whole = if let Some(rest) = location.strip_prefix("//") {
        format!("{scheme}://{rest}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else {
        location.to_owned()
    };
    whole.parse().ok().filter(|uri: &Uri| uri.scheme().is_some() && uri.authority().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follows(home: &str, target: &str) -> bool {
        let home: Uri = home.parse().expect("an address");
        let target = join(&home, target).expect("an address");
        may_follow(&Origin::of(&home).expect("an origin"), &target).is_ok()
    }

    #[test]
    fn redirects_lead_home_or_to_public_hosts_over_tls() {
        let home = "https://hub.example/org/name";
        for target in [
            "https://cdn.example/x?sig=1",
            "/api/resolve-cache/x",
            "https://hub.example/y",
            "//cdn.example/x",
        ] {
            assert!(follows(home, target), "{target}");
        }
        for target in [
            "http://cdn.example/x",
            "http://hub.example/x",
            "https://127.0.0.1/x",
            "https://localhost/x",
            "https://[::1]/x",
            "https://10.0.0.8/x",
            "https://169.254.169.254/latest",
            "https://192.168.1.1/",
            "https://100.64.0.1/",
            "https://[fd00::1]/x",
            "https://[fe80::1]/x",
            "https://[::ffff:127.0.0.1]/x",
            "https://user@cdn.example/x",
            "file://host/etc/passwd",
            "ftp://cdn.example/x",
            "https://0.0.0.0/",
            "https://localhost./x",
        ] {
            assert!(!follows(home, target), "{target}");
        }
        assert!(follows("http://127.0.0.1:8080/x", "http://127.0.0.1:8080/y"));
        assert!(!follows("http://127.0.0.1:8080/x", "http://127.0.0.1:8081/y"));
        assert!(join(&home.parse().expect("an address"), "relative").is_none());
    }

    #[test]
    fn a_token_travels_by_tls_or_stays_on_this_machine() {
        let private = |text: &str| {
            Origin::of(&text.parse().expect("an address")).expect("an origin").is_private_to_us()
        };
        assert!(private("https://hub.example") && private("http://127.0.0.1:1") && private("http://[::1]:1"));
        assert!(!private("http://hub.example"));
    }
}
