//! The pages of a backup.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use super::error::BackupError;
use super::manifest::Manifest;
use crate::access::engine::Engine;
use crate::{GAddr, Stamp};
use selkie_fabric::BoxFuture;
use selkie_wal::{Labels, LogObjects, LogOwner, Lsn, PSN_BYTES, Pages, Record, merge, read_log};

/// A backup that is whole.
pub struct Backup {
    pool: u64,
    line_bytes: usize,
    lines: BTreeMap<GAddr, Box<[u8]>>,
    labels: Labels,
    incarnations: BTreeMap<u16, u32>,
}

impl Backup {
    /// Reads a backup, and makes its pages in memory.
    ///
    /// # Errors
    /// [`BackupError`]: there is no backup, a part of it is missing or damaged, it is of another
    /// version, or it cannot be read.
    pub fn open(from: &LogObjects) -> BoxFuture<'_, Result<Self, BackupError>> {
        Box::pin(async move {
            let manifest = Manifest::read(from).await?;
            let pool = manifest.pool();
            let mut pages = Pages::new(manifest.line_bytes);
            read_image(from, &manifest, &mut pages).await?;
            let logs = manifest.logs();
            let owners: Vec<LogOwner> = logs.iter().map(|(owner, _)| *owner).collect();
            let read = merge(from, &owners, &mut pages, false).await?;
            for (read, (owner, end)) in read.iter().zip(&logs) {
                check_end(from, *owner, (read.end, *end))?;
            }
            let (line_bytes, lines) = (manifest.line_bytes, pages.into_lines());
            let Manifest { incarnations, labels, .. } = manifest;
            Ok(Self { pool, line_bytes, lines, labels, incarnations })
        })
    }

    /// The pool that it is of, by that one's name for itself.
    #[must_use]
    pub fn pool(&self) -> u64 {
        self.pool
    }

    /// Bytes of a page as pools keep it.
    #[must_use]
    pub fn line_bytes(&self) -> usize {
        self.line_bytes
    }

    /// Its pages.
    #[must_use]
    pub fn lines(&self) -> &BTreeMap<GAddr, Box<[u8]>> {
        &self.lines
    }

    /// Keeps the pages of which `is_used` says so, by their bytes. A backup has pages that were
    /// freed before: restored, they would be lines that nothing leads to.
    pub fn retain(&mut self, is_used: impl Fn(&[u8]) -> bool) {
        self.lines.retain(|_, line| line.get(PSN_BYTES..).is_some_and(&is_used));
    }

    /// What those who used the pool had to say to each other.
    #[must_use]
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// How many nodes had had each compute index: a pool that gets the pages counts on from there
    /// ([`Pool::count_on`](selkie_pool::Pool::count_on)).
    #[must_use]
    pub fn incarnations(&self) -> &BTreeMap<u16, u32> {
        &self.incarnations
    }

    /// Looks whether its pages can be put into a pool with lines of so many bytes.
    ///
    /// # Errors
    /// [`BackupError::LineBytes`] if not.
    pub fn check(&self, pool: usize) -> Result<(), BackupError> {
        if pool == self.line_bytes {
            return Ok(());
        }
        Err(BackupError::LineBytes { backup: self.line_bytes, pool })
    }

    /// Puts the pages into an unused pool. Incarnations are the caller's to count
    /// on, before a node of the pool is started, and labels to set, afterwards, as others go by
    /// them. As [`Engine::restore`].
    ///
    /// # Errors
    /// [`BackupError::LineBytes`] if the pool has lines of another size, else as
    /// [`Engine::restore`].
    pub fn restore<'a>(
        &'a self,
        into: &'a Engine,
        written_at: fn(&[u8]) -> Stamp,
    ) -> BoxFuture<'a, Result<(), BackupError>> {
        Box::pin(async move {
            self.check(into.core().cache.gcl_bytes())?;
            Ok(into.restore(&self.lines, written_at).await?)
        })
    }
}

/// Takes over the pages of the image: what came before is in them.
async fn read_image(
    from: &LogObjects,
    manifest: &Manifest,
    pages: &mut Pages,
) -> Result<(), BackupError> {
    let (owner, end) = manifest.image();
    let (mut found, mut lines) = (0, HashMap::new());
    let take = |record: Record<'_>| {
        for redo in record.pages() {
            let mut line = vec![0; manifest.line_bytes].into_boxed_slice();
            redo.apply(&mut line);
            lines.insert(redo.addr(), line);
            found += 1;
        }
    };
    let read = read_log(from, owner, take).await?;
    check_end(from, owner, (read.map_or(0, |read| read.lsn), end))?;
    if found != manifest.pages {
        let what = format!("the image has {found} pages, and should have {}", manifest.pages);
        return Err(BackupError::Damaged { place: from.name().into(), what });
    }
    lines.into_iter().for_each(|(addr, line)| pages.insert(addr, line));
    Ok(())
}

/// Refuses a log that ends elsewhere than it should.
fn check_end(
    from: &LogObjects,
    owner: LogOwner,
    (found, end): (Lsn, Lsn),
) -> Result<(), BackupError> {
    if found == end {
        return Ok(());
    }
    let place: PathBuf = from.place_of(owner);
    let what = format!("its last record ends at {found}, and should at {end}: objects are missing");
    Err(BackupError::Damaged { place, what })
}
