//! Names of files, and the listing of a log's directory.

use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::BuildHasher;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::LogError;
use crate::header::HEADER_BYTES;
use crate::lsn::Lsn;
use crate::names::SUFFIX;

/// Files that were truncated from a log, in a directory below that of the log.
pub(super) const ARCHIVE: &str = "archive";
/// Extension of a file that is not complete yet.
pub(super) const UNNAMED: &str = "new";

pub(super) fn remove_if_there(path: &Path) -> Result<(), LogError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(LogError::new("remove", path, error))
        }
        _ => Ok(()),
    }
}

/// The archived files of a log, in order, each with the place where it begins.
pub(super) fn archived_in(directory: &Path) -> Result<Vec<(Lsn, PathBuf)>, LogError> {
    let archive = directory.join(ARCHIVE);
    if archive.exists() { files_in(&archive) } else { Ok(Vec::new()) }
}

/// A unique name for a file that is not complete yet: other processes, also on other hosts, may
/// create the same file now.
pub(super) fn unnamed_in(directory: &Path, name: &str) -> PathBuf {
    let unique = RandomState::new().hash_one(std::process::id());
    directory.join(format!("{name}-{unique:016x}.{UNNAMED}"))
}

pub(super) fn path_of(directory: &Path, start: Lsn) -> PathBuf {
    directory.join(format!("{start:016x}.{SUFFIX}"))
}

/// The first bytes of a file.
pub(super) fn head_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(File::open(path)?, HEADER_BYTES), &mut bytes)?;
    Ok(bytes)
}

pub(super) fn directories_in(directory: &Path) -> Result<Vec<PathBuf>, LogError> {
    let failed = |error| LogError::new("list", directory, error);
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            all.push(path);
        }
    }
    Ok(all)
}

/// The files of a log, in order, each with the place where it begins.
pub(super) fn files_in(directory: &Path) -> Result<Vec<(Lsn, PathBuf)>, LogError> {
    let failed = |error| LogError::new("list", directory, error);
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_none_or(|extension| extension != SUFFIX) {
            continue;
        }
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let start = stem.and_then(|stem| Lsn::from_str_radix(stem, 16).ok());
        let Some(start) = start else {
            let error = io::Error::new(io::ErrorKind::InvalidData, "its name is no place in a log");
            return Err(LogError::new("read", path, error));
        };
        files.push((start, path));
    }
    files.sort();
    Ok(files)
}
