//! Logs in an object store, as a store.

use std::path::PathBuf;
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::path::Path;
use selkie_fabric::BoxFuture;

use super::names::{ARCHIVED, KEPT, Listed, REMOVED, mark_of, object_of};
use super::network::StoreNetwork;
use super::sink::ObjectSink;
use super::url::{Named, is_url, store_at};
use crate::error::{LogError, ReadError};
use crate::header::{HEADER_BYTES, Header};
use crate::lsn::{FIRST_LSN, Lsn};
use crate::names::{ENDED, LABELS, SUFFIX};
use crate::owner::LogOwner;
use crate::sink::Sink;
use crate::store::{Labels, LogStore, Piece};

/// How often a reader looks for the mark of a log that is being truncated.
const LOOKS: u32 = 5;
/// Objects that are deleted with a request, the limit of S3.
const DELETED_TOGETHER: usize = 1000;

/// A place for logs in an object store.
#[derive(Clone, Debug)]
pub struct LogObjects {
    pub(super) network: Arc<StoreNetwork>,
    pub(super) prefix: Path,
    pub(super) capacity: u64,
    /// Pieces of a log include those of its archive.
    pub(super) reads_archives: bool,
}

impl LogObjects {
    /// Whether this is a URL, which has `://` in it, rather than a directory.
    #[must_use]
    pub fn is_url(place: &str) -> bool {
        is_url(place)
    }

    /// Checks that [`LogObjects::at`] would accept this.
    ///
    /// # Errors
    /// [`LogError`] with what is wrong with it.
    pub fn check(url: &str) -> Result<(), LogError> {
        store_at(url).map(drop)
    }

    /// Logs in a directory, or at a URL, as `file:///var/logs`, or with the feature `cloud`
    /// `s3://BUCKET/PREFIX`, `gs://`, `az://` or `http://`, whose settings are those of the
    /// environment (`AWS_*`, `GOOGLE_*`, `AZURE_*`); each has a capacity of `capacity` bytes.
    /// Starts a thread, sends no request.
    ///
    /// # Errors
    /// [`LogError`] with what is wrong with the URL, or with the settings.
    pub fn at(url: &str, capacity: u64) -> Result<Self, LogError> {
        let Named { store, prefix, name } = store_at(url)?;
        let network = Arc::new(StoreNetwork::start(store, &name)?);
        Ok(Self { network, prefix, capacity, reads_archives: false })
    }

    /// Existing logs at a URL with their archives, for reading. As [`LogObjects::at`].
    ///
    /// # Errors
    /// [`LogError`] with what is wrong with the URL, or with the settings.
    pub fn existing(url: &str) -> Result<Self, LogError> {
        Ok(Self { reads_archives: true, ..Self::at(url, 0)? })
    }

    /// Logs below a prefix of a store, which is called `name`.
    ///
    /// # Errors
    /// [`LogError`] if no thread can be started.
    pub fn on(store: Arc<dyn ObjectStore>, name: &str, capacity: u64) -> Result<Self, LogError> {
        let network = Arc::new(StoreNetwork::start(store, name)?);
        Ok(Self { network, prefix: Path::ROOT, capacity, reads_archives: false })
    }

    /// Its name in messages.
    #[must_use]
    pub fn name(&self) -> String {
        self.network.name_of(&self.prefix)
    }

    /// Writes an object and deletes it, so that an error shows now rather than at the first commit.
    /// Blocks the thread for two round trips.
    ///
    /// # Errors
    /// [`LogError`] with the error of the store.
    pub fn probe(&self) -> Result<(), LogError> {
        let object = self.prefix.clone().join(format!("attempt-{}", std::process::id()));
        let network = Arc::clone(&self.network);
        let attempt = async move {
            network.put(&object, b"attempt".to_vec()).await?;
            network.delete(vec![object]).await
        };
        let gone = || LogError::new("ask", self.name(), std::io::ErrorKind::BrokenPipe.into());
        self.network.wait_for(attempt).unwrap_or_else(|| Err(gone()))
    }

    /// Whether there is no object.
    ///
    /// # Errors
    /// [`LogError`] if the listing fails.
    pub async fn is_empty(&self) -> Result<bool, LogError> {
        let found = self.network.list(&self.prefix).await?;
        Ok(found.objects.is_empty() && found.common_prefixes.is_empty())
    }

    /// Writes an object beside the logs.
    ///
    /// # Errors
    /// [`LogError`] if that fails.
    pub async fn put_beside(&self, name: &str, bytes: Vec<u8>) -> Result<(), LogError> {
        self.network.put(&self.prefix.clone().join(name), bytes).await
    }

    /// Reads an object beside the logs; `None` if there is none.
    ///
    /// # Errors
    /// [`LogError`] if that fails.
    pub async fn get_beside(&self, name: &str) -> Result<Option<Vec<u8>>, LogError> {
        self.network.get(&self.prefix.clone().join(name)).await
    }

    /// The name of an object beside the logs in messages.
    #[must_use]
    pub fn name_beside(&self, name: &str) -> PathBuf {
        self.network.name_of(&self.prefix.clone().join(name)).into()
    }

    /// The name of the objects of a log in messages.
    #[must_use]
    pub fn place_of(&self, owner: LogOwner) -> PathBuf {
        self.place(&self.of_log(owner))
    }

    fn of_pool(&self, pool: u64) -> Path {
        self.prefix.clone().join(format!("{pool:016x}"))
    }

    pub(super) fn of_log(&self, owner: LogOwner) -> Path {
        self.of_pool(owner.pool).join(format!("{}-{}", owner.node, owner.incarnation))
    }

    pub(super) fn place(&self, object: &Path) -> PathBuf {
        self.network.name_of(object).into()
    }

    fn refused(&self, object: &Path, what: impl Into<String>) -> ReadError {
        ReadError::Place { place: self.place(object), what: what.into() }
    }

    fn failed(&self, error: ReadError) -> LogError {
        match error {
            ReadError::Log(error) => error,
            error => LogError::new("cut", self.name(), std::io::Error::other(error)),
        }
    }

    /// The objects of a log. One request for each thousand objects.
    pub(super) async fn listed(&self, owner: LogOwner) -> Result<Listed, ReadError> {
        self.listed_at(&self.of_log(owner)).await
    }

    async fn listed_at(&self, log: &Path) -> Result<Listed, ReadError> {
        let mut listed = self.listed_once(log).await?;
        for _ in 0..LOOKS {
            // A listing may skip a mark that is deleted meanwhile, and miss the one that was
            // written before that.
            if !listed.kept.is_empty() || listed.objects.is_empty() || listed.is_removed {
                break;
            }
            listed = self.listed_once(log).await?;
        }
        Ok(listed)
    }

    async fn listed_once(&self, log: &Path) -> Result<Listed, ReadError> {
        let mut listed = Listed::default();
        for (object, size) in self.network.objects_of(log).await? {
            // A prefix without a name is no mark and no object of the log.
            let name = object.filename().unwrap_or_default();
            let (to, place) = if let Some(place) = name.strip_prefix(KEPT) {
                (&mut listed.kept, place)
            } else if let Some(place) = name.strip_prefix(ARCHIVED) {
                (&mut listed.archived, place)
            } else if let Some(place) =
                name.strip_suffix(SUFFIX).and_then(|stem| stem.strip_suffix('.'))
            {
                (&mut listed.objects, place)
            } else {
                listed.is_removed |= name.starts_with(REMOVED);
                continue;
            };
            let wrong = || self.refused(&object, "its name is no place in a log");
            to.push((place.parse().map_err(|_| wrong())?, size));
        }
        for all in [&mut listed.objects, &mut listed.kept, &mut listed.archived] {
            all.sort_unstable();
        }
        Ok(listed)
    }

    async fn ended_at(&self, owner: LogOwner) -> Result<Option<Lsn>, ReadError> {
        let object = self.of_log(owner).join(ENDED);
        let Some(bytes) = self.network.get(&object).await? else { return Ok(None) };
        Header::of(owner, &bytes).map(Some).map_err(|what| self.refused(&object, what))
    }

    async fn end_log_at(&self, owner: LogOwner, end: Lsn) -> Result<Lsn, ReadError> {
        if let Some(end) = self.ended_at(owner).await? {
            return Ok(end);
        }
        let object = self.of_log(owner).join(ENDED);
        let header = Header { owner, start: end }.encode().to_vec();
        self.network.put_once(&object, header).await?;
        // The first end counts.
        self.ended_at(owner).await?.ok_or_else(|| self.refused(&object, "it is missing"))
    }

    async fn set_mark(&self, owner: LogOwner, name: &str, start: Lsn) -> Result<(), LogError> {
        let header = Header { owner, start }.encode();
        self.network.put(&mark_of(self.of_log(owner), name, start), header.to_vec()).await
    }

    /// The first piece begins where the log is kept from, even if its object is missing: a reader
    /// then finds the gap.
    async fn pieces_of(&self, owner: LogOwner) -> Result<Vec<Lsn>, ReadError> {
        let listed = self.listed(owner).await?;
        let Some(from) = listed.from(self.reads_archives) else { return Ok(Vec::new()) };
        let behind = listed.objects.iter().map(|(start, _)| *start).filter(|start| *start > from);
        Ok(std::iter::once(from).chain(behind).collect())
    }

    async fn forget_before(&self, owner: LogOwner, lsn: Lsn) -> Result<(), ReadError> {
        let listed = self.listed(owner).await?;
        let Some(kept) = listed.from(false) else { return Ok(()) };
        let starts = listed.objects.iter().map(|(start, _)| *start);
        let from = starts.clone().find(|start| *start >= lsn).unwrap_or(kept).min(kept);
        self.set_mark(owner, ARCHIVED, from).await?;
        let log = self.of_log(owner);
        let objects = starts.filter(|start| *start < from);
        let objects = objects.map(|start| object_of(log.clone(), start));
        let marks = listed.archived.iter().filter(|(mark, _)| *mark < from);
        let marks = marks.map(|(mark, _)| mark_of(log.clone(), ARCHIVED, *mark));
        Ok(self.delete(objects.chain(marks).collect()).await?)
    }

    async fn remove_all(&self, owner: LogOwner) -> Result<(), ReadError> {
        let (listed, log) = (self.listed(owner).await?, self.of_log(owner));
        if listed.from(false).is_none() && listed.objects.is_empty() {
            return Ok(());
        }
        // The mark comes first: from then on the log does not exist, even if a late append arrives.
        let removed = mark_of(log.clone(), REMOVED, FIRST_LSN);
        self.set_mark(owner, REMOVED, FIRST_LSN).await?;
        let left = self.network.objects_of(&log).await?.into_iter().map(|(object, _)| object);
        Ok(self.delete(left.filter(|object| *object != removed).collect()).await?)
    }

    async fn delete(&self, objects: Vec<Path>) -> Result<(), LogError> {
        for some in objects.chunks(DELETED_TOGETHER) {
            self.network.delete(some.to_vec()).await?;
        }
        Ok(())
    }

    /// The records of an object; `None` if there is none.
    async fn records_at(&self, owner: LogOwner, start: Lsn) -> Result<Option<Piece>, ReadError> {
        let object = object_of(self.of_log(owner), start);
        let Some(mut bytes) = self.network.get(&object).await? else { return Ok(None) };
        let own = Header::of(owner, &bytes).map_err(|what| self.refused(&object, what))?;
        if own != start {
            return Err(self.refused(&object, format!("it says that it begins at {own}")));
        }
        bytes.drain(..HEADER_BYTES as usize);
        Ok(Some(Piece { place: self.place(&object), offset: HEADER_BYTES, bytes }))
    }

    /// The owner of the log with this prefix, if that is one.
    async fn owner_at(&self, log: &Path, pool: u64) -> Result<Option<LogOwner>, ReadError> {
        let name = log.filename().and_then(|name| name.split_once('-'));
        let Some((node, incarnation)) = name
            .and_then(|(node, incarnation)| Some((node.parse().ok()?, incarnation.parse().ok()?)))
        else {
            return Ok(None);
        };
        // A concurrent truncation writes the new mark before it deletes this one.
        for _ in 0..LOOKS {
            let Some(mark) = self.listed_at(log).await?.from(false) else { return Ok(None) };
            let mark = mark_of(log.clone(), KEPT, mark);
            let Some(bytes) = self.network.get(&mark).await? else { continue };
            let own = Header::decode(&bytes).map_err(|what| self.refused(&mark, what))?.owner;
            if (own.pool, own.node, own.incarnation) != (pool, node, incarnation) {
                return Err(self.refused(&mark, "it is of another log"));
            }
            return Ok(Some(own));
        }
        Ok(None)
    }

    async fn read_range_at(
        &self,
        owner: LogOwner,
        from: Lsn,
        length: u64,
    ) -> Result<Piece, ReadError> {
        // A reader that follows a log object by object asks for the next object.
        if let Some(piece) = self.records_at(owner, from).await? {
            return Ok(piece);
        }
        let listed = self.listed(owner).await?;
        let (place, kept) = (self.place_of(owner), listed.from(true));
        let cut = || ReadError::Cut { place: place.clone(), from, kept };
        let found = listed.objects.iter().rev().find(|(start, _)| *start <= from);
        let (start, size) = match (kept, found) {
            (Some(kept), Some(found)) if kept <= from => *found,
            (Some(kept), None) if kept == from => (from, HEADER_BYTES),
            _ => return Err(cut()),
        };
        let offset = from - start;
        if offset >= size.saturating_sub(HEADER_BYTES) {
            return Ok(Piece { place, offset: HEADER_BYTES + offset, bytes: Vec::new() });
        }
        let Piece { place, offset: first, mut bytes } =
            self.records_at(owner, start).await?.ok_or_else(cut)?;
        bytes.drain(..bytes.len().min(offset as usize));
        bytes.truncate(length as usize);
        Ok(Piece { place, offset: first + offset, bytes })
    }
}

impl LogStore for LogObjects {
    fn create(&self, owner: LogOwner) -> BoxFuture<'_, Result<Arc<dyn Sink>, LogError>> {
        Box::pin(async move {
            let log = self.of_log(owner);
            // Also if it was removed: a name is not used again.
            if let Some((first, _)) = self.network.objects_of(&log).await?.first() {
                let error =
                    std::io::Error::new(std::io::ErrorKind::AlreadyExists, "a log is there");
                return Err(LogError::new("begin a log at", self.place(first), error));
            }
            // A log needs a mark to exist: recovery of a node without a log reports its changes as
            // lost, though it has changed nothing yet.
            self.set_mark(owner, KEPT, FIRST_LSN).await?;
            let sink = ObjectSink::new(Arc::clone(&self.network), log, owner, self.capacity);
            Ok(Arc::new(sink) as Arc<dyn Sink>)
        })
    }

    fn pieces(&self, owner: LogOwner) -> BoxFuture<'_, Result<Vec<Lsn>, ReadError>> {
        Box::pin(self.pieces_of(owner))
    }

    fn piece(&self, owner: LogOwner, start: Lsn) -> BoxFuture<'_, Result<Piece, ReadError>> {
        Box::pin(async move {
            if let Some(piece) = self.records_at(owner, start).await? {
                return Ok(piece);
            }
            let listed = self.listed(owner).await?;
            let is_mark = [false, true].map(|all| listed.from(all)).contains(&Some(start));
            let place = self.place(&object_of(self.of_log(owner), start));
            if is_mark && listed.objects.last().is_none_or(|(last, _)| *last < start) {
                // Nothing was appended since the whole log was truncated.
                return Ok(Piece { place, offset: HEADER_BYTES, bytes: Vec::new() });
            }
            Err(ReadError::Place { place, what: "it is missing".to_owned() })
        })
    }

    fn read_range(
        &self,
        owner: LogOwner,
        from: Lsn,
        length: u64,
    ) -> BoxFuture<'_, Result<Piece, ReadError>> {
        Box::pin(self.read_range_at(owner, from, length))
    }

    fn end_at(&self, owner: LogOwner, end: Lsn) -> BoxFuture<'_, Result<Lsn, ReadError>> {
        Box::pin(self.end_log_at(owner, end))
    }

    fn ended(&self, owner: LogOwner) -> BoxFuture<'_, Result<Option<Lsn>, ReadError>> {
        Box::pin(self.ended_at(owner))
    }

    fn remove(&self, owner: LogOwner) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async move { self.remove_all(owner).await.map_err(|error| self.failed(error)) })
    }

    fn archived(&self, owner: LogOwner) -> BoxFuture<'_, Result<Vec<(Lsn, u64)>, ReadError>> {
        Box::pin(async move {
            let mut listed = self.listed(owner).await?;
            let (archived, kept) = (listed.from(true), listed.from(false));
            listed.objects.retain(|(start, _)| {
                archived.is_some_and(|archived| archived <= *start) && Some(*start) < kept
            });
            Ok(listed.objects)
        })
    }

    fn forget(&self, owner: LogOwner, lsn: Lsn) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(
            async move { self.forget_before(owner, lsn).await.map_err(|error| self.failed(error)) },
        )
    }

    fn owners(&self) -> BoxFuture<'_, Result<Vec<LogOwner>, ReadError>> {
        Box::pin(async move {
            let mut owners = Vec::new();
            for place in self.network.list(&self.prefix).await?.common_prefixes {
                let name = place.filename().filter(|name| name.len() == 16);
                let pool = name.and_then(|name| u64::from_str_radix(name, 16).ok());
                // The prefix may have other objects.
                let Some(pool) = pool else { continue };
                for log in self.network.list(&place).await?.common_prefixes {
                    owners.extend(self.owner_at(&log, pool).await?);
                }
            }
            owners.sort();
            Ok(owners)
        })
    }

    fn keep_labels(&self, pool: u64, labels: Labels) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async move {
            let object = self.of_pool(pool).join(LABELS);
            let failed = |error: serde_json::Error| {
                LogError::new("write", self.place(&object), error.into())
            };
            let text = serde_json::to_vec_pretty(&labels).map_err(failed)?;
            self.network.put(&object, text).await
        })
    }

    fn labels(&self, pool: u64) -> BoxFuture<'_, Result<Labels, ReadError>> {
        Box::pin(async move {
            let object = self.of_pool(pool).join(LABELS);
            let Some(bytes) = self.network.get(&object).await? else { return Ok(Labels::new()) };
            serde_json::from_slice(&bytes).map_err(|error| self.refused(&object, error.to_string()))
        })
    }
}
