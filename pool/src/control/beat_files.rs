//! Beats of nodes in files.
//!
//! ```text
//! beats/cn3.0.json    8 hexadecimal digits: checksum of the text   8: its length   the text
//! beats/cn3.1.json    the same; each beat goes to the file that the beat before did not go to
//! ```
//! Files are written in place: a beat without a report needs no room that its file has not got
//! already, where a file system writes in place, as shared memory does. A full one refuses changes
//! of the state, and no node is taken for dead because it could not write that it lives. A write
//! that ends half-way leaves the beat before it, in the other file. Readers take the newest that is
//! whole.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::io::Errno;
use selkie_fabric::PeerId;
use serde::{Deserialize, Serialize};

use super::error::{ControlError, unavailable};
use super::plane::Beat;
use crate::checksum::checksum;

/// Bytes of a new file: most reports fit.
const FILE_BYTES: usize = 8 << 10;
/// Reads of all files, if there is a node of which none is whole: both may be written meanwhile.
const READS: u32 = 4;

/// A beat, and when it was.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredBeat {
    pub(super) beat: Beat,
    /// Nanoseconds since the host started.
    pub(super) at: u64,
}

/// The files of beats in a directory.
pub(super) struct BeatFiles {
    directory: PathBuf,
    /// The nodes that write to their second file next.
    second_next: Mutex<BTreeSet<PeerId>>,
    /// Files that were said to be damaged.
    damaged: Mutex<BTreeSet<PathBuf>>,
}

impl BeatFiles {
    pub(super) fn at(directory: PathBuf) -> Self {
        Self { directory, second_next: Mutex::default(), damaged: Mutex::default() }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes a beat; without its report if there is no room for that.
    pub(super) fn write(&self, beat: &Beat, at: u64) -> Result<(), ControlError> {
        let is_second = {
            let mut second = self.second_next.lock();
            second.remove(&beat.node) || !second.insert(beat.node)
        };
        let path = self.directory.join(format!("{}.{}.json", beat.node, u8::from(is_second)));
        let write = |beat: &Beat| write_file(&path, &StoredBeat { beat: beat.clone(), at });
        let full = |error: &io::Error| {
            let code = error.raw_os_error();
            [Errno::NOSPC, Errno::DQUOT].iter().any(|full| code == Some(full.raw_os_error()))
        };
        match write(beat) {
            Err(error) if full(&error) => write(&Beat { report: String::new(), ..beat.clone() }),
            written => written,
        }
        .map_err(|error| unavailable(&path, &error))
    }

    /// The newest beat of each node. A node whose files are both damaged has none, and hides no
    /// other.
    pub(super) fn read(&self) -> Result<Vec<StoredBeat>, ControlError> {
        let (mut newest, mut missing) = (BTreeMap::new(), BTreeSet::new());
        for _ in 0..READS {
            missing.clear();
            self.read_once(&mut newest, &mut missing)?;
            missing.retain(|(name, _)| !newest.contains_key(name));
            if missing.is_empty() {
                break;
            }
        }
        for (_, path) in missing {
            if self.damaged.lock().insert(path.clone()) {
                tracing::warn!(file = %path.display(), "a beat cannot be read: its checksum is wrong, or the file cannot be read");
            }
        }
        Ok(newest.into_values().collect())
    }

    /// Reads all files once. Beats and damaged files are under what their files are called before
    /// the first dot.
    fn read_once(
        &self,
        newest: &mut BTreeMap<String, StoredBeat>,
        damaged: &mut BTreeSet<(String, PathBuf)>,
    ) -> Result<(), ControlError> {
        let failed = |error| unavailable(&self.directory, &error);
        for entry in fs::read_dir(&self.directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            let Some((node, _)) = name.strip_suffix(".json").and_then(|name| name.split_once('.'))
            else {
                continue;
            };
            let node = node.to_owned();
            let bytes = match fs::read(&path) {
                Ok(bytes) => Some(bytes),
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) if is_of_file(&error) => None,
                // The reader lacks rights, or descriptors: the others are not silent for that.
                Err(error) => return Err(unavailable(&path, &error)),
            };
            let text = bytes.as_deref().and_then(text_of);
            let Some(stored) = text.and_then(|text| serde_json::from_slice(text).ok()) else {
                damaged.insert((node, path));
                continue;
            };
            let stored: StoredBeat = stored;
            if newest.get(&node).is_none_or(|other| other.at <= stored.at) {
                newest.insert(node, stored);
            }
        }
        Ok(())
    }
}

/// Writes a beat over the one in the file. What stands behind is of earlier beats.
fn write_file(path: &Path, beat: &StoredBeat) -> io::Result<()> {
    let text = serde_json::to_vec(beat)?;
    let mut bytes = format!("{:08x}{:08x}", checksum(&text), text.len()).into_bytes();
    bytes.extend_from_slice(&text);
    let mut options = OpenOptions::new();
    let file = match options.write(true).mode(0o600).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bytes.resize(bytes.len().max(FILE_BYTES), b' ');
            options.create(true).open(path)?
        }
        opened => opened?,
    };
    file.write_all_at(&bytes, 0)
}

/// The text of a beat, if it is whole.
fn text_of(bytes: &[u8]) -> Option<&[u8]> {
    let number = |digits: &[u8]| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    let (sum, rest) = bytes.split_at_checked(8)?;
    let (length, rest) = rest.split_at_checked(8)?;
    let text = rest.get(..number(length)? as usize)?;
    (checksum(text) == number(sum)?).then_some(text)
}

/// Whether an error of a read says something of the file, and nothing of who reads it.
fn is_of_file(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [Errno::ISDIR, Errno::IO].iter().any(|errno| code == Some(errno.raw_os_error()))
}
