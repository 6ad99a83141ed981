//! What belongs to a backup. It is written last, so that a backup has one only if it is whole.

use std::collections::BTreeMap;

use selkie_pool::checksum;
use selkie_wal::{FIRST_LSN, Labels, LogObjects, LogOwner, Lsn};
use serde::{Deserialize, Serialize};

use super::error::BackupError;

/// Its name.
const NAME: &str = "manifest.json";
/// Of what is written by this software; others are refused.
const FORMAT: u32 = 2;

/// The owner of the image: no compute node has such a number.
const IMAGE_NODE: u16 = u16::MAX;
/// The owner of the log that has the image.
pub(super) fn image_of(pool: u64, line_bytes: usize) -> LogOwner {
    LogOwner { pool, node: IMAGE_NODE, incarnation: 1, line_bytes: line_bytes as u32 }
}

/// The image of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Image {
    /// Pages in it.
    pub(super) pages: u64,
    /// Bytes of their records.
    pub(super) bytes: u64,
    /// Where they end.
    pub(super) end: Lsn,
}

/// A log of a backup, or its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BackedUpLog {
    /// The compute node, and which one of that number.
    pub(super) node: u16,
    pub(super) incarnation: u32,
    /// Where its records begin in the backup, and end.
    pub(super) start: Lsn,
    pub(super) end: Lsn,
    /// What was read of the node's own log for it.
    pub(super) read_from: Lsn,
    pub(super) read_to: Lsn,
}

/// The manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    format: u32,
    /// The pool's name for itself, in hexadecimal digits, as JSON has no such numbers.
    pool: String,
    /// Bytes of a line.
    pub(super) line_bytes: usize,
    /// Pages in the image.
    pub(super) pages: u64,
    /// Bytes of records, of image and logs.
    pub(super) bytes: u64,
    /// How many nodes have had each compute index.
    pub(super) incarnations: BTreeMap<u16, u32>,
    /// What those who use the pool have to say to each other.
    pub(super) labels: Labels,
    image: BackedUpLog,
    logs: Vec<BackedUpLog>,
}

/// As it is written.
#[derive(Serialize, Deserialize)]
struct Sealed {
    manifest: Manifest,
    /// CRC-32C of the manifest without white space.
    checksum: u32,
}

impl Manifest {
    pub(super) fn of(
        (pool, line_bytes): (u64, usize),
        (incarnations, labels): (BTreeMap<u16, u32>, Labels),
        image: Image,
        logs: Vec<BackedUpLog>,
    ) -> Self {
        let owner = image_of(pool, line_bytes);
        let part = BackedUpLog {
            node: owner.node,
            incarnation: owner.incarnation,
            start: FIRST_LSN,
            end: image.end,
            read_from: 0,
            read_to: 0,
        };
        let bytes = image.bytes + logs.iter().map(|log| log.end - log.start).sum::<u64>();
        Self {
            format: FORMAT,
            pool: format!("{pool:016x}"),
            line_bytes,
            pages: image.pages,
            bytes,
            incarnations,
            labels,
            image: part,
            logs,
        }
    }

    /// The pool of the backup, by its own name.
    pub(super) fn pool(&self) -> u64 {
        #[expect(clippy::expect_used, reason = "`of` writes a number, and `decode` checks it")]
        self.parsed_pool().expect("the manifest names no pool")
    }

    fn parsed_pool(&self) -> Option<u64> {
        u64::from_str_radix(&self.pool, 16).ok()
    }

    fn owner(&self, part: BackedUpLog) -> LogOwner {
        let (pool, line_bytes) = (self.pool(), self.line_bytes as u32);
        LogOwner { pool, node: part.node, incarnation: part.incarnation, line_bytes }
    }

    /// The image, and where it ends.
    pub(super) fn image(&self) -> (LogOwner, Lsn) {
        (self.owner(self.image), self.image.end)
    }

    /// The logs, and where each ends.
    pub(super) fn logs(&self) -> Vec<(LogOwner, Lsn)> {
        self.logs.iter().map(|part| (self.owner(*part), part.end)).collect()
    }

    fn sum(&self) -> Result<u32, serde_json::Error> {
        Ok(checksum(&serde_json::to_vec(self)?))
    }

    /// Writes it beside image and logs.
    pub(super) async fn write(self, to: &LogObjects) -> Result<(), BackupError> {
        let damaged = |error: serde_json::Error| BackupError::Damaged {
            place: to.name_beside(NAME),
            what: error.to_string(),
        };
        let checksum = self.sum().map_err(damaged)?;
        let sealed = Sealed { manifest: self, checksum };
        let text = serde_json::to_vec_pretty(&sealed).map_err(damaged)?;
        Ok(to.put_beside(NAME, text).await?)
    }

    /// Reads it again.
    ///
    /// # Errors
    /// [`BackupError::None`] if there is none, `Damaged` if it is damaged or of a later version.
    pub(super) async fn read(from: &LogObjects) -> Result<Self, BackupError> {
        let Some(text) = from.get_beside(NAME).await? else {
            return Err(BackupError::None { place: from.name().into() });
        };
        decode(&text).map_err(|what| BackupError::Damaged { place: from.name_beside(NAME), what })
    }
}

fn decode(text: &[u8]) -> Result<Manifest, String> {
    let json: serde_json::Value = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    let format = json.pointer("/manifest/format").and_then(serde_json::Value::as_u64);
    if let Some(format) = format.filter(|format| *format != u64::from(FORMAT)) {
        return Err(format!("it is of format {format}: this version reads format {FORMAT}"));
    }
    let Sealed { manifest, checksum } =
        serde_json::from_value(json).map_err(|error| error.to_string())?;
    if manifest.sum().map_err(|error| error.to_string())? != checksum {
        return Err("its checksum is wrong".to_owned());
    }
    if manifest.parsed_pool().is_none() {
        return Err(format!("{} is no pool", manifest.pool));
    }
    Ok(manifest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(manifest: &Manifest) -> String {
        let checksum = manifest.sum().unwrap();
        serde_json::to_string_pretty(&Sealed { manifest: manifest.clone(), checksum }).unwrap()
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written_or_refused() {
        let log =
            BackedUpLog { node: 3, incarnation: 2, start: 64, end: 640, read_from: 9, read_to: 99 };
        let image = Image { pages: 12, bytes: 3000, end: 3064 };
        let incarnations = BTreeMap::from([(3, 2), (11, 1)]);
        let labels = Labels::from([("name".to_owned(), "{\"a\": 1}".to_owned())]);
        let manifest = Manifest::of((u64::MAX - 5, 2048), (incarnations, labels), image, vec![log]);
        let text = sealed(&manifest);
        assert_eq!(decode(text.as_bytes()).unwrap(), manifest);
        let owner = LogOwner { pool: u64::MAX - 5, node: 3, incarnation: 2, line_bytes: 2048 };
        assert_eq!(manifest.logs(), [(owner, 640)]);
        assert_eq!((manifest.image().1, manifest.bytes), (3064, 3576));
        let refused = |text: &str, why: &str| {
            let error = decode(text.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{error}");
        };
        refused(&text.replace("640", "648"), "checksum is wrong");
        refused(&text[..text.len() / 2], "EOF");
        let later = Manifest { format: 3, ..manifest };
        refused(&sealed(&later), "format 3: this version reads format 2");
    }
}
