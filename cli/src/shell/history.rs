//! What was typed before, in a file that only its user can read.

use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::statements::is_of_word;

/// Most statements that are kept.
pub(super) const MOST_ENTRIES: usize = 10_000;

/// Where the history is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HistoryChoice {
    /// As long as the shell runs.
    InMemory,
    /// In the file of the user.
    OfUser,
    In(PathBuf),
}

impl HistoryChoice {
    /// The file, if there is one. What is no file, as /dev/null, keeps nothing.
    pub(super) fn file(&self) -> Option<PathBuf> {
        let file = self.chosen()?;
        let is_other = file.metadata().is_ok_and(|own| !own.is_file() && !own.is_dir());
        (!is_other).then_some(file)
    }

    fn chosen(&self) -> Option<PathBuf> {
        match self {
            Self::InMemory => None,
            Self::In(file) => Some(file.clone()),
            Self::OfUser => {
                let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
                let state = set("XDG_STATE_HOME").map(PathBuf::from).or_else(|| {
                    set("HOME").map(|home| PathBuf::from(home).join(".local").join("state"))
                })?;
                state.is_absolute().then(|| state.join("selkie").join("sql_history"))
            }
        }
    }
}

/// Makes the file if there is none, and lets nobody but its owner read it.
///
/// # Errors
/// What the system reports.
pub(super) fn prepare(file: &Path) -> std::io::Result<()> {
    if let Some(directory) = file.parent().filter(|own| !own.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(file)?;
    let mut permissions = opened.metadata()?.permissions();
    if permissions.mode() & 0o077 != 0 && opened.metadata()?.is_file() {
        permissions.set_mode(0o600);
        opened.set_permissions(permissions)?;
    }
    Ok(())
}

/// Whether what was typed may hold a password, as `CREATE ROLE ... PASSWORD` does.
pub(super) fn is_secret(typed: &str) -> bool {
    let words = || typed.split(|c| !is_of_word(c));
    let has =
        |list: &[&str]| words().any(|word| list.iter().any(|own| own.eq_ignore_ascii_case(word)));
    has(&["password"]) && has(&["role", "user", "group"]) && has(&["create", "alter"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_hold_a_password_is_told_apart() {
        for secret in [
            "create role a password 'x'",
            "ALTER USER a\nWITH ENCRYPTED PASSWORD'x';",
            "select 1; alter role a PassWord 'x'; select 2",
            "create role a login password 'x",
        ] {
            assert!(is_secret(secret), "{secret}");
        }
        for other in ["create role a", "select password from account", "alter role a login"] {
            assert!(!is_secret(other), "{other}");
        }
    }

    #[test]
    fn only_its_user_can_read_the_file() {
        let place = tempfile::tempdir().unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let file = place.path().join("a").join("b");
        prepare(&file).unwrap();
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
        std::fs::write(&file, "kept").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        prepare(&file).unwrap();
        assert_eq!(mode(&file), 0o600);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
        assert!(prepare(place.path()).is_err());
        assert_eq!(HistoryChoice::In(file.clone()).file(), Some(file));
        assert_eq!(HistoryChoice::In("/dev/null".into()).file(), None);
    }
}
