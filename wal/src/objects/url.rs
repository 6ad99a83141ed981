//! Which object store a URL, or a directory, names.

use std::io;
use std::path::{Component, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use url::{Position, Url};

use crate::error::LogError;

/// Schemes of stores that are elsewhere.
const CLOUD: [&str; 10] =
    ["s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "http", "https"];

/// The store that a URL names, and where in it.
pub(super) struct Named {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) prefix: Path,
    /// The URL without the path in the store.
    pub(super) name: String,
}

/// Whether this is a URL rather than a directory.
pub(super) fn is_url(place: &str) -> bool {
    place.contains("://")
}

/// Finds the store.
///
/// # Errors
/// [`LogError`] if it is no URL, of a scheme that is not known or not compiled in, or the store's
/// settings do not do.
pub(super) fn store_at(url: &str) -> Result<Named, LogError> {
    let refused =
        |why: String| LogError::new("use", url, io::Error::new(io::ErrorKind::InvalidInput, why));
    let parsed = if is_url(url) {
        Url::parse(url).map_err(|error| refused(error.to_string()))?
    } else {
        let direct = direct(url.as_ref()).map_err(|error| refused(error.to_string()))?;
        Url::from_file_path(direct).map_err(|()| refused("it is no directory".to_owned()))?
    };
    let name = parsed[..Position::BeforePath].to_owned();
    let own = |store: Arc<dyn ObjectStore>| {
        if let Some(host) = parsed.host_str().filter(|host| !host.is_empty()) {
            return Err(refused(format!(
                "{host} would be a host: a path is written with three slashes, as {}:///{host}",
                parsed.scheme()
            )));
        }
        let prefix =
            Path::from_url_path(parsed.path()).map_err(|error| refused(error.to_string()))?;
        Ok(Named { store, prefix, name: name.clone() })
    };
    match parsed.scheme() {
        // What was put is durable when that is said.
        "file" => own(Arc::new(LocalFileSystem::new().with_fsync(true))),
        #[cfg(test)]
        "memory" => own(Arc::new(object_store::memory::InMemory::new())),
        scheme if CLOUD.contains(&scheme) => cloud(&parsed, name.clone()),
        scheme => Err(refused(format!(
            "{scheme} is no scheme of object stores: file, {} are",
            CLOUD.join(", ")
        ))),
    }
}

/// The path from the root without steps back, which URLs do not have.
fn direct(path: &std::path::Path) -> io::Result<PathBuf> {
    let mut direct = PathBuf::new();
    for part in std::path::absolute(path)?.components() {
        if part != Component::ParentDir {
            direct.push(part);
            continue;
        }
        // Where a link leads, if that is there.
        direct = direct.canonicalize().unwrap_or(direct);
        direct.pop();
    }
    Ok(direct)
}

#[cfg(feature = "cloud")]
fn cloud(url: &Url, name: String) -> Result<Named, LogError> {
    // A provider that the process has chosen before will do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let is_setting =
        |key: &str| ["AWS_", "AZURE_", "GOOGLE_"].iter().any(|known| key.starts_with(known));
    let settings = std::env::vars().filter(|(key, _)| is_setting(key));
    let plain = (url.scheme() == "http").then(|| ("allow_http".to_owned(), "true".to_owned()));
    let (store, prefix) = object_store::parse_url_opts(url, settings.chain(plain))
        .map_err(|error| LogError::new("use", url.as_str(), error.into()))?;
    Ok(Named { store: store.into(), prefix, name })
}

#[cfg(not(feature = "cloud"))]
fn cloud(url: &Url, _: String) -> Result<Named, LogError> {
    let scheme = url.scheme();
    let why = format!("{scheme}:// needs a build with the feature `cloud`");
    let error = io::Error::new(io::ErrorKind::Unsupported, why);
    Err(LogError::new("use", url.as_str(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_store_and_a_place_in_it() {
        for (url, name, prefix) in [
            ("file:///var/log%20s/a", "file://", "var/log s/a"),
            ("file:///", "file://", ""),
            ("memory:///x", "memory://", "x"),
            ("/var/log s", "file://", "var/log s"),
            ("/var/none/../../log/", "file://", "log"),
        ] {
            let named = store_at(url).map_err(|error| error.to_string()).unwrap();
            assert_eq!((&*named.name, named.prefix.as_ref()), (name, prefix));
        }
    }

    #[test]
    fn what_names_no_store_is_refused_with_the_reason() {
        for (url, why) in [
            ("nfs://host/x", "nfs is no scheme"),
            ("file://var/log", "three slashes, as file:///var"),
            ("://x", "cannot use ://x: relative URL"),
        ] {
            let error = store_at(url).map(drop).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(url), "{error}");
        }
        #[cfg(not(feature = "cloud"))]
        for url in ["s3://bucket/x", "gs://b", "az://c/d", "https://example.com/x"] {
            let error = store_at(url).map(drop).unwrap_err().to_string();
            let scheme = url.split_once(':').unwrap().0;
            assert!(
                error.contains(&format!("{scheme}:// needs a build with the feature `cloud`")),
                "{error}"
            );
        }
        #[cfg(feature = "cloud")]
        for (url, name) in [("s3://bucket/x/y", "s3://bucket"), ("http://h:1/x/y", "http://h:1")] {
            let named = store_at(url).map_err(|error| error.to_string()).unwrap();
            assert_eq!((&*named.name, named.prefix.as_ref()), (name, "x/y"));
        }
    }
}
