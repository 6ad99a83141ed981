//! Logs in object stores: in memory, in a directory, and in one that is slow or fails.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use selkie_fabric::env::RealRuntime;

use super::names::{ARCHIVED, KEPT, mark_of, object_of};
use super::store::LogObjects;
use crate::error::ReadError;
use crate::header::{HEADER_BYTES, Header};
use crate::lsn::{FIRST_LSN, Lsn};
use crate::owner::LogOwner;
use crate::record::Record;
use crate::scan::scan;
use crate::sink::Sink;
use crate::store::{Labels, LogStore, Piece, read_log};
use crate::test_log::{LINE, OWNER, numbers, records};

/// A record of a line.
const RECORD: u64 = 32 + 24 + LINE as u64;

/// A store that fails when it is told to, before or after it has done what it was asked for.
#[derive(Debug)]
struct Fickle {
    store: InMemory,
    /// So many puts fail before they begin.
    puts: AtomicU32,
    /// So many puts are carried out, and said to have failed.
    answers: AtomicU32,
    deletes: AtomicU32,
    lists: AtomicU32,
}

impl Fickle {
    fn new() -> Arc<Self> {
        let zero = AtomicU32::default;
        let (puts, answers, deletes, lists) = (zero(), zero(), zero(), zero());
        Arc::new(Self { store: InMemory::new(), puts, answers, deletes, lists })
    }

    fn takes(count: &AtomicU32) -> bool {
        count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }
}

impl std::fmt::Display for Fickle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("fickle")
    }
}

fn refusal() -> object_store::Error {
    object_store::Error::Generic { store: "fickle", source: "slow down".into() }
}

#[async_trait]
impl ObjectStore for Fickle {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> object_store::Result<PutResult> {
        if Self::takes(&self.puts) {
            return Err(refusal());
        }
        let done = self.store.put_opts(location, payload, opts).await;
        if Self::takes(&self.answers) { Err(refusal()) } else { done }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(location, opts).await
    }

    async fn get_opts(
        &self,
        location: &Path,
        options: GetOptions,
    ) -> object_store::Result<GetResult> {
        self.store.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        if Self::takes(&self.deletes) {
            return stream::once(async { Err(refusal()) }).boxed();
        }
        self.store.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(
        &self,
        from: &Path,
        to: &Path,
        options: CopyOptions,
    ) -> object_store::Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}

/// Appends of so many records each, from the first number on; where they end.
async fn write(sink: &dyn Sink, mut at: Lsn, numbers: Range<u64>, each: u64) -> Lsn {
    for first in numbers.clone().step_by(each as usize) {
        let bytes = records(at, first..(first + each).min(numbers.end));
        let length = bytes.len() as u64;
        sink.append(at, bytes).await.result.unwrap();
        at += length;
    }
    at
}

fn in_memory(store: Arc<dyn ObjectStore>) -> LogObjects {
    LogObjects::on(store, "test", 32 * 10 * RECORD).unwrap()
}

/// Does the same in memory and in a directory.
fn everywhere(test: impl AsyncFn(LogObjects)) {
    let place = tempfile::tempdir().unwrap();
    let runtime = RealRuntime::new(1).unwrap();
    runtime.block_on(async {
        let url = format!("file://{}/lo%20gs", place.path().display());
        test(LogObjects::at(&url, 32 * 10 * RECORD).unwrap()).await;
        assert!(place.path().join("lo gs").exists());
        test(LogObjects::at("memory:///logs", 32 * 10 * RECORD).unwrap()).await;
    });
}

#[test]
fn a_log_ends_where_it_was_first_said_to() {
    everywhere(async |logs| {
        let sink = logs.create(OWNER).await.unwrap();
        let end = write(&*sink, FIRST_LSN, 0..20, 5).await;
        assert_eq!(logs.ended(OWNER).await.unwrap(), None);
        assert_eq!(logs.end_at(OWNER, end).await.unwrap(), end);
        let late = write(&*sink, end, 20..30, 5).await;
        assert_eq!(logs.end_at(OWNER, late).await.unwrap(), end, "it was said");
        assert_eq!(logs.ended(OWNER).await.unwrap(), Some(end));
        let (read, ended) = numbers(&logs).await;
        assert_eq!((read.len(), ended.unwrap().unwrap().lsn), (20, end));
        // A node that cuts it off there leaves a log of which nothing counts.
        sink.truncate(end).await.unwrap();
        let (read, ended) = numbers(&logs).await;
        assert_eq!((read.len(), ended.unwrap().unwrap().lsn), (0, end));
    });
}

#[test]
fn what_was_written_is_read_object_by_object() {
    everywhere(async |logs| {
        logs.probe().unwrap();
        let sink = logs.create(OWNER).await.unwrap();
        let (read, ended) = numbers(&logs).await;
        assert_eq!((read.len(), ended.unwrap().unwrap().lsn), (0, FIRST_LSN), "it is there");
        assert_eq!(logs.owners().await.unwrap(), [OWNER]);
        let end = write(&*sink, FIRST_LSN, 0..100, 7).await;
        let (read, ended) = numbers(&logs).await;
        assert_eq!(read, (0..100).collect::<Vec<_>>());
        assert_eq!(ended.unwrap().unwrap().lsn, end);
        assert_eq!(logs.pieces(OWNER).await.unwrap().len(), 15);
        let again = logs.create(OWNER).await.map(drop).unwrap_err().to_string();
        assert!(again.contains("a log is there") && again.contains("3-1"), "{again}");
        let other = LogOwner { incarnation: 2, ..OWNER };
        assert!(read_log(&logs, other, |_| ()).await.unwrap().is_none());
        drop(logs.create(other).await.unwrap());
        assert_eq!(logs.owners().await.unwrap(), [OWNER, other]);
        assert_eq!(logs.labels(9).await.unwrap(), Labels::new());
        let labels = Labels::from([("a".to_owned(), "b".to_owned())]);
        logs.keep_labels(9, labels.clone()).await.unwrap();
        assert_eq!(logs.labels(9).await.unwrap(), labels);
        logs.remove(OWNER).await.unwrap();
        logs.remove(OWNER).await.unwrap();
        assert_eq!(logs.owners().await.unwrap(), [other]);
    });
}

#[test]
fn a_place_where_nothing_can_be_put_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    std::fs::write(&file, "no directory").unwrap();
    let logs = LogObjects::at(&format!("file://{}/logs", file.display()), 1 << 20).unwrap();
    let error = logs.probe().unwrap_err().to_string();
    assert!(error.starts_with("cannot write file://") && error.contains("/file/logs"), "{error}");
}

#[test]
fn what_was_cut_off_is_archived_until_it_is_forgotten() {
    everywhere(async |logs| {
        let whole = LogObjects { reads_archives: true, ..logs.clone() };
        let sink = logs.create(OWNER).await.unwrap();
        let end = write(&*sink, FIRST_LSN, 0..40, 4).await;
        let at = |record: u64| FIRST_LSN + record * RECORD;
        assert_eq!(sink.truncate(at(9)).await.unwrap(), FIRST_LSN, "too little to be worth it");
        assert_eq!(logs.archived(OWNER).await.unwrap(), []);
        assert_eq!(sink.truncate(at(22)).await.unwrap(), at(20), "whole objects");
        let (read, ended) = numbers(&logs).await;
        assert_eq!(read, (20..40).collect::<Vec<_>>());
        assert_eq!(ended.unwrap().unwrap().lsn, end);
        assert_eq!(numbers(&whole).await.0, (0..40).collect::<Vec<_>>());
        let archived = logs.archived(OWNER).await.unwrap();
        let expected = (0..5).map(|number| (at(4 * number), HEADER_BYTES + 4 * RECORD));
        assert_eq!(archived, expected.collect::<Vec<_>>());
        logs.forget(OWNER, at(4) + 1).await.unwrap();
        assert_eq!(numbers(&whole).await.0, (8..40).collect::<Vec<_>>());
        assert_eq!(logs.listed(OWNER).await.unwrap().objects.len(), 8);
        // All of it: what comes next is found, and that nothing has.
        assert_eq!(sink.truncate(end).await.unwrap(), end);
        assert_eq!(sink.truncate(end).await.unwrap(), end);
        let (read, ended) = numbers(&logs).await;
        assert_eq!((read.len(), ended.unwrap().unwrap().lsn), (0, end));
        assert_eq!(logs.owners().await.unwrap(), [OWNER]);
        logs.forget(OWNER, at(36) + 1).await.unwrap();
        let (read, ended) = numbers(&whole).await;
        assert_eq!((read.len(), ended.unwrap().unwrap().lsn), (0, end), "all is forgotten");
        write(&*sink, end, 40..50, 3).await;
        assert_eq!(numbers(&logs).await.0, (40..50).collect::<Vec<_>>());
        assert_eq!(numbers(&whole).await.0, (40..50).collect::<Vec<_>>());
    });
}

#[test]
fn a_log_is_followed_from_any_record_on() {
    everywhere(async |logs| {
        let sink = logs.create(OWNER).await.unwrap();
        let end = write(&*sink, FIRST_LSN, 0..40, 4).await;
        for first in [0, 3, 4, 38] {
            let (mut at, mut read) = (FIRST_LSN + first * RECORD, Vec::new());
            while at < end {
                let Piece { bytes, .. } = logs.read_range(OWNER, at, 3 * RECORD).await.unwrap();
                let format = OWNER.format();
                let visit = |record: Record<'_>| read.extend(record.pages().map(|redo| redo.psn()));
                at = scan(&bytes, at, format, visit).unwrap().lsn;
            }
            assert_eq!(read, (first..40).collect::<Vec<_>>());
        }
        assert!(logs.read_range(OWNER, end, RECORD).await.unwrap().bytes.is_empty());
        sink.truncate(end).await.unwrap();
        let behind = logs.read_range(OWNER, FIRST_LSN + 9 * RECORD, RECORD).await.unwrap();
        assert!(!behind.bytes.is_empty(), "it is there for readers that are behind");
        logs.forget(OWNER, FIRST_LSN + 20 * RECORD + 1).await.unwrap();
        let error = logs.read_range(OWNER, FIRST_LSN + 9 * RECORD, RECORD).await.unwrap_err();
        let kept = FIRST_LSN + 24 * RECORD;
        assert!(matches!(error, ReadError::Cut { kept: Some(at), .. } if at == kept), "{error}");
    });
}

#[test]
fn a_log_that_lacks_something_is_refused_with_object_and_place() {
    let store = Arc::new(InMemory::new());
    let logs = in_memory(Arc::clone(&store) as Arc<dyn ObjectStore>);
    RealRuntime::new(1).unwrap().block_on(async {
        write(&*logs.create(OWNER).await.unwrap(), FIRST_LSN, 0..40, 4).await;
        let start = FIRST_LSN + 8 * RECORD;
        let object = object_of(logs.of_log(OWNER), start);
        let whole = store.get(&object).await.unwrap().bytes().await.unwrap().to_vec();
        let put = async |bytes: &[u8]| {
            store.put(&object, PutPayload::from(bytes.to_vec())).await.unwrap();
        };
        // A bit of the third record, and an end that others follow.
        let mut bytes = whole.clone();
        bytes[HEADER_BYTES as usize + 2 * RECORD as usize + 40] ^= 1;
        for (bytes, record) in [(&bytes[..], 2), (&whole[..whole.len() - RECORD as usize], 3)] {
            put(bytes).await;
            match numbers(&logs).await.1 {
                Err(ReadError::Damaged { place, at, .. }) => {
                    assert_eq!((place, at), (logs.place(&object), HEADER_BYTES + record * RECORD));
                }
                other => panic!("{other:?}"),
            }
        }
        let refused = async |bytes: &[u8], what: &str| {
            put(bytes).await;
            let error = numbers(&logs).await.1.unwrap_err().to_string();
            assert!(error.contains(what) && error.contains(object.as_ref()), "{error}");
        };
        refused(&whole[..100], "shorter than its header").await;
        refused(&[0; 1024], "no file of a log").await;
        let rest = &whole[HEADER_BYTES as usize..];
        let owner = LogOwner { pool: 8, ..OWNER };
        let foreign = Header { owner, start }.encode();
        refused(&[&foreign[..], rest].concat(), "another log").await;
        let misplaced = Header { owner: OWNER, start: 7 }.encode();
        refused(&[&misplaced[..], rest].concat(), "begins at 7").await;
        // Whole objects: one of the middle, and the first.
        store.delete(&object).await.unwrap();
        assert!(matches!(numbers(&logs).await.1, Err(ReadError::Damaged { .. })));
        store.delete(&object_of(logs.of_log(OWNER), FIRST_LSN)).await.unwrap();
        let error = numbers(&logs).await.1.unwrap_err().to_string();
        assert!(error.contains("it is missing"), "{error}");
    });
}

/// A torn end can only be that of the last object, where a store does not put objects as a whole.
#[test]
fn a_torn_end_is_an_end() {
    let store = Arc::new(InMemory::new());
    let logs = in_memory(Arc::clone(&store) as Arc<dyn ObjectStore>);
    RealRuntime::new(1).unwrap().block_on(async {
        write(&*logs.create(OWNER).await.unwrap(), FIRST_LSN, 0..8, 4).await;
        let object = object_of(logs.of_log(OWNER), FIRST_LSN + 4 * RECORD);
        let mut bytes = store.get(&object).await.unwrap().bytes().await.unwrap().to_vec();
        bytes.truncate(bytes.len() - 100);
        store.put(&object, PutPayload::from(bytes)).await.unwrap();
        let (read, ended) = numbers(&logs).await;
        assert_eq!(read, (0..7).collect::<Vec<_>>());
        assert_eq!(ended.unwrap().unwrap().lsn, FIRST_LSN + 7 * RECORD);
    });
}

#[test]
fn what_was_not_put_is_put_again_as_it_was() {
    for is_done in [false, true] {
        let store = Fickle::new();
        let logs = in_memory(Arc::clone(&store) as Arc<dyn ObjectStore>);
        RealRuntime::new(1).unwrap().block_on(async {
            let sink = logs.create(OWNER).await.unwrap();
            let at = write(&*sink, FIRST_LSN, 0..4, 4).await;
            let lists = store.lists.load(Ordering::SeqCst);
            let fails = if is_done { &store.answers } else { &store.puts };
            fails.store(2, Ordering::SeqCst);
            for _ in 0..2 {
                let written = sink.append(at, records(at, 4..9)).await;
                let error = written.result.unwrap_err().to_string();
                assert!(error.contains("slog") && error.contains("slow down"), "{error}");
                assert_eq!(written.bytes.len() as u64, 5 * RECORD);
            }
            sink.append(at, records(at, 4..9)).await.result.unwrap();
            write(&*sink, at + 5 * RECORD, 9..12, 1).await;
            assert_eq!(store.lists.load(Ordering::SeqCst), lists, "nothing is listed");
            let late = [&Header { owner: OWNER, start: at }.encode()[..], &records(at, 4..9)];
            let object = object_of(logs.of_log(OWNER), at);
            store.put(&object, PutPayload::from(late.concat())).await.unwrap();
            assert_eq!(numbers(&logs).await.0, (0..12).collect::<Vec<_>>());
        });
    }
}

#[test]
fn what_could_not_be_deleted_is_not_read_and_deleted_later() {
    let store = Fickle::new();
    let logs = in_memory(Arc::clone(&store) as Arc<dyn ObjectStore>);
    RealRuntime::new(1).unwrap().block_on(async {
        let whole = LogObjects { reads_archives: true, ..logs.clone() };
        let sink = logs.create(OWNER).await.unwrap();
        write(&*sink, FIRST_LSN, 0..40, 4).await;
        sink.truncate(FIRST_LSN + 24 * RECORD).await.unwrap();
        store.deletes.store(1, Ordering::SeqCst);
        let error = logs.forget(OWNER, FIRST_LSN + 8 * RECORD + 1).await.unwrap_err().to_string();
        assert!(error.contains("cannot delete") && error.contains("slow down"), "{error}");
        // Any of them may be gone.
        store.delete(&object_of(logs.of_log(OWNER), FIRST_LSN + 8 * RECORD)).await.unwrap();
        assert_eq!(numbers(&whole).await.0, (12..40).collect::<Vec<_>>());
        logs.forget(OWNER, FIRST_LSN + 16 * RECORD + 1).await.unwrap();
        assert_eq!(logs.listed(OWNER).await.unwrap().objects[0].0, FIRST_LSN + 20 * RECORD);
        // What is left of it at any time is none.
        store.deletes.store(1, Ordering::SeqCst);
        logs.remove(OWNER).await.unwrap_err();
        assert_eq!(logs.owners().await.unwrap(), []);
        assert!(read_log(&whole, OWNER, |_| ()).await.unwrap().is_none());
        logs.remove(OWNER).await.unwrap();
        logs.remove(OWNER).await.unwrap();
        let left = logs.network.objects_of(&logs.of_log(OWNER)).await.unwrap();
        assert_eq!(left.len(), 1, "that it was removed: {left:?}");
    });
}

/// A request that was given up may be carried out at any later time.
#[test]
fn what_comes_late_changes_nothing() {
    let store = Arc::new(InMemory::new());
    let logs = in_memory(Arc::clone(&store) as Arc<dyn ObjectStore>);
    let whole = LogObjects { reads_archives: true, ..logs.clone() };
    RealRuntime::new(1).unwrap().block_on(async {
        let sink = logs.create(OWNER).await.unwrap();
        let log = logs.of_log(OWNER);
        let late = async |object: Path, start: Lsn, records: &[u8]| {
            let bytes = [&Header { owner: OWNER, start }.encode()[..], records].concat();
            store.put(&object, PutPayload::from(bytes)).await.unwrap();
        };
        let end = write(&*sink, FIRST_LSN, 0..40, 4).await;
        let at = |record: u64| FIRST_LSN + record * RECORD;
        sink.truncate(at(12)).await.unwrap();
        // That it begins.
        late(mark_of(log.clone(), KEPT, FIRST_LSN), FIRST_LSN, &[]).await;
        assert_eq!(numbers(&logs).await.0, (12..40).collect::<Vec<_>>());
        sink.truncate(at(24)).await.unwrap();
        logs.forget(OWNER, at(8) + 1).await.unwrap();
        logs.forget(OWNER, at(16) + 1).await.unwrap();
        // From where it, and what it was cut off, was kept before.
        late(mark_of(log.clone(), KEPT, at(12)), at(12), &[]).await;
        late(mark_of(log.clone(), ARCHIVED, at(12)), at(12), &[]).await;
        assert_eq!(numbers(&logs).await.0, (24..40).collect::<Vec<_>>());
        assert_eq!(numbers(&whole).await.0, (20..40).collect::<Vec<_>>());
        logs.remove(OWNER).await.unwrap();
        // A cut and an append of one that was taken for dead.
        late(mark_of(log.clone(), KEPT, at(36)), at(36), &[]).await;
        late(object_of(log.clone(), end), end, &records(end, 40..44)).await;
        assert_eq!(logs.owners().await.unwrap(), []);
        assert!(read_log(&whole, OWNER, |_| ()).await.unwrap().is_none());
    });
}

/// Where others keep things that are none of ours.
#[test]
fn what_is_no_log_is_passed_over() {
    let store = Arc::new(InMemory::new());
    let logs = in_memory(Arc::clone(&store) as Arc<dyn ObjectStore>);
    RealRuntime::new(1).unwrap().block_on(async {
        drop(logs.create(OWNER).await.unwrap());
        for name in [
            "file",
            "backups/monday/manifest.json",
            "0000000000000009/other/64",
            "0000000000000009/7-1/junk",
            "0000000000000008/labels.json",
        ] {
            store.put(&Path::from(name), PutPayload::from_static(b"none of ours")).await.unwrap();
        }
        assert_eq!(logs.owners().await.unwrap(), [OWNER]);
        let odd = Path::from("0000000000000009/3-1/kept-x");
        store.put(&odd, PutPayload::from_static(b"odd")).await.unwrap();
        let error = logs.owners().await.unwrap_err().to_string();
        assert!(error.contains("kept-x: its name is no place in a log"), "{error}");
    });
}
