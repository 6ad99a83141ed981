//! Names of pools, and the URLs that say where a pool is found.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Most characters of a pool's name.
const MAX_NAME: usize = 64;
/// What a URL may be.
const ALLOWED: &str = "a pool is `embedded:` or `embedded:DIR`, `NAME` or `shm:NAME` on this host, \
    `tcp:HOST:PORT,...` by its memory nodes, or `etcd:HOST:PORT,.../NAME`";

/// What is wrong with the URL of a pool, by the part of the URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// The scheme, or the form of the whole.
    #[error("{ALLOWED}")]
    Form {
        /// The URL.
        url: String,
    },
    /// The name of the pool.
    #[error("a pool's name is 1 to {MAX_NAME} letters, digits, `-` or `_`")]
    Name {
        /// The name.
        name: String,
    },
    /// An address in the list.
    #[error("`{address}` is not HOST:PORT, as 10.0.0.1:7000 or [::1]:7000")]
    Address {
        /// The address.
        address: String,
    },
    /// An embedded pool where one is needed that processes share.
    #[error("an embedded pool is the process's own: others cannot use it")]
    Embedded,
}

impl UrlError {
    fn form(url: &str) -> Self {
        Self::Form { url: url.to_owned() }
    }
}

/// Name of a pool: letters, digits, `-` and `_`, at most 64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolName(String);

impl PoolName {
    /// The name's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PoolName {
    type Err = UrlError;

    fn from_str(name: &str) -> Result<Self, UrlError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if (1..=MAX_NAME).contains(&name.len()) && name.chars().all(allowed) {
            return Ok(Self(name.to_owned()));
        }
        Err(UrlError::Name { name: name.to_owned() })
    }
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a process that listens is reached: `HOST:PORT`, with an IPv6 address in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort(String);

impl HostPort {
    /// `HOST:PORT`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostPort {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let refused = || UrlError::Address { address: text.to_owned() };
        let (host, port) = text.rsplit_once(':').ok_or_else(refused)?;
        let number: u16 = port.parse().map_err(|_| refused())?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = match bracketed {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
                !host.is_empty() && host.chars().all(allowed)
            }
        };
        if number == 0 || !is_host {
            return Err(refused());
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolUrl {
    /// `embedded:`, one of the process's own, which ends with it.
    Embedded,
    /// `embedded:DIR`, one of the process's own, which is kept in a directory.
    EmbeddedIn(PathBuf),
    /// One that processes share.
    Shared(Place),
}

impl PoolUrl {
    /// Whether the pool is the process's own.
    #[must_use]
    pub fn is_embedded(&self) -> bool {
        matches!(self, Self::Embedded | Self::EmbeddedIn(_))
    }
}

/// Where the state of a shared pool is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// `NAME`, or `shm:NAME` if its memory has to be shared memory: in files of this host.
    Host {
        /// The pool.
        name: PoolName,
        /// Its memory is shared memory.
        is_shm: bool,
    },
    /// `tcp:HOST:PORT,...`: memory nodes know.
    Relays(Vec<HostPort>),
    /// `etcd:HOST:PORT,.../NAME`: in etcd.
    Etcd {
        /// Members of the etcd.
        endpoints: Vec<HostPort>,
        /// The pool.
        name: PoolName,
    },
}

impl FromStr for Place {
    type Err = UrlError;

    fn from_str(url: &str) -> Result<Self, UrlError> {
        let hosts = |list: &str| list.split(',').map(str::parse).collect::<Result<Vec<_>, _>>();
        match url.split_once(':') {
            None if url.is_empty() => Err(UrlError::form(url)),
            None => Ok(Self::Host { name: url.parse()?, is_shm: false }),
            Some(("shm", name)) => Ok(Self::Host { name: name.parse()?, is_shm: true }),
            Some(("tcp", list)) => hosts(list).map(Self::Relays),
            Some(("etcd", rest)) => {
                let (list, name) = rest.rsplit_once('/').ok_or_else(|| UrlError::form(url))?;
                Ok(Self::Etcd { endpoints: hosts(list)?, name: name.parse()? })
            }
            Some(("embedded", _)) => Err(UrlError::Embedded),
            Some(_) => Err(UrlError::form(url)),
        }
    }
}

impl FromStr for PoolUrl {
    type Err = UrlError;

    fn from_str(url: &str) -> Result<Self, UrlError> {
        match url.strip_prefix("embedded:") {
            Some("") => Ok(Self::Embedded),
            Some(directory) => Ok(Self::EmbeddedIn(directory.into())),
            None => url.parse().map(Self::Shared),
        }
    }
}

/// The addresses as they are in a URL.
pub(super) fn list(hosts: &[HostPort]) -> String {
    hosts.iter().map(HostPort::as_str).collect::<Vec<_>>().join(",")
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host { name, is_shm: false } => write!(f, "{name}"),
            Self::Host { name, is_shm: true } => write!(f, "shm:{name}"),
            Self::Relays(hosts) => write!(f, "tcp:{}", list(hosts)),
            Self::Etcd { endpoints, name } => write!(f, "etcd:{}/{name}", list(endpoints)),
        }
    }
}

impl fmt::Display for PoolUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded => f.write_str("embedded:"),
            Self::EmbeddedIn(directory) => write!(f, "embedded:{}", directory.display()),
            Self::Shared(place) => place.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_written_alike() {
        assert_eq!("embedded:".parse(), Ok(PoolUrl::Embedded));
        let kept: PoolUrl = "embedded:/srv/a b".parse().unwrap();
        assert_eq!(kept, PoolUrl::EmbeddedIn("/srv/a b".into()));
        assert_eq!(kept.to_string(), "embedded:/srv/a b");
        for good in [
            "a-1_B",
            "shm:a-1_B",
            "tcp:127.0.0.1:7000",
            "tcp:[::1]:7000,node-2.example:7001",
            "etcd:10.0.0.1:2379,10.0.0.2:2379/prod",
        ] {
            let url: PoolUrl = good.parse().unwrap();
            assert!(matches!(url, PoolUrl::Shared(_)));
            assert_eq!(url.to_string(), good);
        }
    }

    #[test]
    fn others_are_refused_with_what_is_allowed() {
        for bad in ["", "mem:x", "etcd:a:1", "http://x"] {
            let error = bad.parse::<PoolUrl>().unwrap_err().to_string();
            assert!(error.starts_with("a pool is `embedded:`"), "{bad}: {error}");
        }
        for bad in ["shm:", "shm:../x", "shm:a/b", "a b", "etcd:a:1/", "etcd:a:1/b.c"] {
            let error = bad.parse::<PoolUrl>().unwrap_err().to_string();
            assert!(error.starts_with("a pool's name is"), "{bad}: {error}");
        }
        for bad in ["tcp:", "tcp:x", "tcp:x:0", "tcp:x:70000", "tcp:::1:7", "tcp:[x]:1", "tcp:a:1,"]
        {
            let error = bad.parse::<PoolUrl>().unwrap_err().to_string();
            assert!(error.contains("is not HOST:PORT"), "{bad}: {error}");
        }
        assert_eq!("embedded:".parse::<Place>(), Err(UrlError::Embedded));
        assert_eq!("embedded:x".parse::<Place>(), Err(UrlError::Embedded));
        assert!(format!("shm:{}", "x".repeat(65)).parse::<PoolUrl>().is_err());
    }
}
