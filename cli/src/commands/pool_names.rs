//! Pools that are known by their identifiers, as directories of logs have them, for people: with
//! the name of the pool, if it is still on this host, and the date of the newest log.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use selkie::shared::{Credentials, Place, SharedPool};

use super::pool_status::date;

/// Names of the pools on this host, by their identifiers.
pub(super) async fn by_id() -> BTreeMap<u64, String> {
    let mut names = BTreeMap::new();
    for name in SharedPool::names_on_this_host().unwrap_or_default() {
        let place = Place::Host { name: name.clone(), is_shm: false };
        let Ok(shared) = SharedPool::at(&place, Credentials::default()) else { continue };
        if let Ok(state) = shared.load().await {
            names.insert(state.id, name.to_string());
        }
    }
    names
}

/// `26baab4e31800cae (demo, written 2026-11-24 12:36 UTC)`, as far as that is known.
pub(super) fn described(id: u64, names: &BTreeMap<u64, String>, log_dirs: &[PathBuf]) -> String {
    let number = format!("{id:016x}");
    // A directory may be given by its URL, too.
    let path = |logs: &PathBuf| match logs.to_str().and_then(|url| url.strip_prefix("file://")) {
        Some(path) => PathBuf::from(path),
        None => logs.clone(),
    };
    let written = log_dirs.iter().filter_map(|logs| newest(&path(logs).join(&number), DEPTH)).max();
    let written = written.map(|at| format!("written {}", date(at)));
    let known: Vec<_> = names.get(&id).cloned().into_iter().chain(written).collect();
    if known.is_empty() { number } else { format!("{number} ({})", known.join(", ")) }
}

/// How deep logs lie below the directory of their pool.
const DEPTH: usize = 2;

/// When the newest file in a directory was written; nothing for object stores.
fn newest(directory: &Path, depth: usize) -> Option<SystemTime> {
    let entries = std::fs::read_dir(directory).ok()?.filter_map(Result::ok);
    let dates = entries.filter_map(|entry| {
        let found = entry.metadata().ok()?;
        if found.is_dir() && depth > 0 {
            return newest(&entry.path(), depth - 1);
        }
        found.modified().ok()
    });
    dates.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_told_by_its_name_and_the_date_of_its_newest_log() {
        let place = tempfile::tempdir().unwrap();
        let logs = [place.path().to_owned()];
        let names = BTreeMap::from([(0x1f, "demo".to_owned())]);
        assert_eq!(described(0x2e, &names, &logs), "000000000000002e");
        assert_eq!(described(0x1f, &names, &logs), "000000000000001f (demo)");
        let log = place.path().join("000000000000001f/0-1");
        std::fs::create_dir_all(&log).unwrap();
        let day = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(86_400);
        let file = std::fs::File::create(log.join("a.log")).unwrap();
        file.set_modified(day).unwrap();
        let told = described(0x1f, &names, &logs);
        assert_eq!(told, "000000000000001f (demo, written 1970-01-02 00:00 UTC)");
    }
}
