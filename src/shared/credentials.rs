//! What a process shows to the nodes of a pool over TCP: a certificate, or the token of the pool.
//!
//! `selkie pool create` writes the token to a file of the calling user. The user's processes on
//! that host find it there by the name of the pool; for processes elsewhere it is copied.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::SharedPoolError;
use super::url::PoolName;
use crate::fabric::Role;
use crate::fabric::tcp::{Security, check_private};
use crate::pool::control::{FindToken, Token};

/// The file with the token, in the directory of a pool.
const TOKEN_FILE: &str = "token";

/// What a process shows to the nodes of a pool over TCP.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// Its certificate, which secures its connections; either all nodes of a pool have one, or
    /// none.
    pub security: Option<Arc<Security>>,
    /// The token of the pool, for relays on connections that are not secured. A process on the host
    /// that the pool was made on finds it without that.
    pub token: Option<Token>,
}

impl From<Option<Arc<Security>>> for Credentials {
    fn from(security: Option<Arc<Security>>) -> Self {
        Self { security, token: None }
    }
}

impl Credentials {
    /// Reads a directory of certificates ([`Security::load`]), or a file with a token, which only
    /// its owner can read. Blocks for the reads.
    ///
    /// # Errors
    /// If something cannot be read, or is not what it should be.
    pub fn load(tls: Option<&Path>, token: Option<&Path>) -> Result<Self, SharedPoolError> {
        let security = tls.map(Security::load).transpose()?;
        Ok(Self { security, token: token.map(read_token).transpose()? })
    }

    /// Whether there are any.
    pub(super) fn are_given(&self) -> bool {
        self.security.is_some() || self.token.is_some()
    }

    /// The role in the certificate.
    pub(crate) fn role(&self) -> Option<Role> {
        Some(self.security.as_ref()?.certificate()?.role)
    }

    /// Refuses a certificate whose role does not allow what the process is about to be.
    pub(super) fn check_role(
        &self,
        what: &'static str,
        allowed: &'static [Role],
    ) -> Result<(), SharedPoolError> {
        match self.role() {
            Some(role) if !allowed.contains(&role) => {
                Err(SharedPoolError::Role { role, what, allowed })
            }
            _ => Ok(()),
        }
    }

    /// The token that was given, or that of a pool that was made on this host, whose directory
    /// `directory_of` knows.
    pub(super) fn find_token(&self, directory_of: fn(&PoolName) -> PathBuf) -> FindToken {
        let given = self.token.clone();
        Arc::new(move |name| {
            given.clone().or_else(|| {
                let path = directory_of(&name.parse().ok()?).join(TOKEN_FILE);
                match read_token(&path) {
                    Ok(token) => Some(token),
                    Err(error) => {
                        tracing::debug!(%error, "no token of the pool is at hand");
                        None
                    }
                }
            })
        })
    }
}

/// Writes the token of a new pool to its directory, which is made if it is not there. Returns the
/// file.
pub(super) fn write_token(directory: &Path, token: &Token) -> Result<PathBuf, SharedPoolError> {
    let path = directory.join(TOKEN_FILE);
    let write = || {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        writeln!(file, "{}", token.to_text())
    };
    match write() {
        Ok(()) => Ok(path),
        Err(source) => Err(SharedPoolError::Token { path, why: source.to_string() }),
    }
}

/// Removes the token of a pool that was removed, and its directory if that is empty.
pub(super) fn remove_token(directory: &Path) -> Result<(), SharedPoolError> {
    let path = directory.join(TOKEN_FILE);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(SharedPoolError::Token { path, why: error.to_string() })
        }
        _ => {
            // What else is in it is another's.
            let _ = fs::remove_dir(directory);
            Ok(())
        }
    }
}

fn read_token(path: &Path) -> Result<Token, SharedPoolError> {
    check_private(path)?;
    let refused = |why: String| SharedPoolError::Token { path: path.to_owned(), why };
    let text = fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    Token::parse(&text).map_err(|error| refused(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_is_written_once_and_read_by_its_owner_only() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("pool");
        let token = Token::random().unwrap();
        let path = write_token(&directory, &token).unwrap();
        assert!(write_token(&directory, &token).is_err(), "nothing is overwritten");
        assert_eq!(Credentials::load(None, Some(&path)).unwrap().token, Some(token));
        fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        let error = Credentials::load(None, Some(&path)).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        fs::write(&path, "nonsense").unwrap();
        let error = Credentials::load(None, Some(&path)).unwrap_err().to_string();
        assert!(error.contains("64 hexadecimal digits") && !error.contains("nonsense"), "{error}");
        remove_token(&directory).unwrap();
        assert!(!directory.exists());
        remove_token(&directory).unwrap();
    }
}
