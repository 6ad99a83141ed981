//! Logs in directories.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use selkie_fabric::env::RealRuntime;

use super::names::{UNNAMED, files_in, path_of};
use super::store::LogFiles;
use crate::error::ReadError;
use crate::header::{HEADER_BYTES, Header};
use crate::lsn::{FIRST_LSN, Lsn};
use crate::names::ENDED;
use crate::owner::LogOwner;
use crate::record::Record;
use crate::scan::scan;
use crate::sink::Sink;
use crate::store::{LogStore, Piece, read_log};
use crate::test_log::{OWNER, numbers, record};

fn logs(place: &Path) -> LogFiles {
    LogFiles::new(&place.join("logs"), 1 << 16, 1 << 20).unwrap()
}

/// A log, and where it ends.
struct Writing {
    sink: Arc<dyn Sink>,
    end: Lsn,
}

async fn begin(logs: &LogFiles) -> Writing {
    Writing { sink: logs.create(OWNER).await.unwrap(), end: FIRST_LSN }
}

/// Writes so many records, each an append of its own.
async fn write(log: &mut Writing, records: std::ops::Range<u64>) {
    for number in records {
        let bytes = record(log.end, log.end, number);
        let length = bytes.len() as u64;
        log.sink.append(log.end, bytes).await.result.unwrap();
        log.end += length;
    }
}

#[test]
fn what_was_written_is_read_file_by_file() {
    let place = tempfile::tempdir().unwrap();
    let logs = logs(place.path());
    RealRuntime::new(1).unwrap().block_on(async {
        let mut log = begin(&logs).await;
        write(&mut log, 0..500).await;
        let files = files_in(&logs.directory(OWNER)).unwrap();
        assert!(files.len() > 3, "{files:?}");
        let (read, ended) = numbers(&logs).await;
        assert_eq!(read, (0..500).collect::<Vec<_>>());
        assert_eq!(ended.unwrap().unwrap().lsn, log.end);
        assert_eq!(logs.owners().await.unwrap(), [OWNER]);
        // No node needs the records before the third file.
        assert_eq!(log.sink.truncate(files[2].0 + 8).await.unwrap(), files[2].0);
        let (read, _) = numbers(&logs).await;
        assert_eq!(files_in(&logs.directory(OWNER)).unwrap(), files[2..]);
        assert_eq!(*read.last().unwrap(), 499);
        let again = logs.create(OWNER).await.map(drop).unwrap_err().to_string();
        assert!(again.contains("a log is there"), "{again}");
        let other = LogOwner { incarnation: 2, ..OWNER };
        assert!(read_log(&logs, other, |_| ()).await.unwrap().is_none());
        logs.create(other)
            .await
            .unwrap()
            .append(FIRST_LSN, record(FIRST_LSN, 0, 0))
            .await
            .result
            .unwrap();
        assert_eq!(logs.owners().await.unwrap(), [OWNER, other]);
        logs.remove(OWNER).await.unwrap();
        logs.remove(OWNER).await.unwrap();
        assert_eq!(logs.owners().await.unwrap(), [other]);
    });
}

#[test]
fn a_log_ends_where_it_was_first_said_to() {
    let place = tempfile::tempdir().unwrap();
    let logs = logs(place.path());
    RealRuntime::new(1).unwrap().block_on(async {
        let mut log = begin(&logs).await;
        write(&mut log, 0..20).await;
        assert_eq!(logs.ended(OWNER).await.unwrap(), None);
        let end = log.end;
        assert_eq!(logs.end_at(OWNER, end).await.unwrap(), end);
        // Enough for more files.
        write(&mut log, 20..500).await;
        assert_eq!(logs.end_at(OWNER, log.end).await.unwrap(), end, "it was said");
        assert_eq!(logs.ended(OWNER).await.unwrap(), Some(end));
        let read = numbers(&logs).await;
        assert_eq!((read.0.len(), read.1.unwrap().unwrap().lsn), (20, end));
        // A record that others have read is not there any more.
        let first = path_of(&logs.directory(OWNER), FIRST_LSN);
        let file = OpenOptions::new().write(true).open(&first).unwrap();
        file.write_all_at(&[0xEE; 8], HEADER_BYTES + end - FIRST_LSN - 16).unwrap();
        let (read, short) = numbers(&logs).await;
        assert!(matches!(short, Err(ReadError::Damaged { .. })), "{short:?}");
        assert_eq!(read.len(), 19);
        fs::write(logs.directory(OWNER).join(ENDED), [7; 600]).unwrap();
        let (_, wrong) = numbers(&logs).await;
        assert!(wrong.unwrap_err().to_string().contains("no file of a log"));
        logs.remove(OWNER).await.unwrap();
        assert_eq!(logs.end_at(OWNER, 4711).await.unwrap(), 4711, "no node reads it");
        assert!(!logs.directory(OWNER).exists());
    });
}

#[test]
fn a_log_that_is_written_is_followed_file_by_file() {
    let place = tempfile::tempdir().unwrap();
    let logs = logs(place.path());
    RealRuntime::new(1).unwrap().block_on(async {
        let mut log = begin(&logs).await;
        let (mut at, mut numbers) = (FIRST_LSN, Vec::new());
        for part in 0..10 {
            write(&mut log, part * 50..part * 50 + 50).await;
            while at < log.end {
                let Piece { bytes, .. } = logs.read_range(OWNER, at, 5000).await.unwrap();
                assert!(bytes.len() <= 5000);
                let visit = |record: Record<'_>| {
                    numbers.extend(record.pages().map(|redo| redo.psn()));
                };
                let end = scan(&bytes, at, OWNER.format(), visit).unwrap().lsn;
                assert!(end > at, "records follow");
                at = end;
            }
        }
        assert_eq!(numbers, (0..500).collect::<Vec<_>>());
        let kept = log.sink.truncate(log.end).await.unwrap();
        let behind = logs.read_range(OWNER, FIRST_LSN, 5000).await.unwrap();
        assert_eq!(behind.bytes.len(), 5000, "it is there for readers that are behind");
        logs.forget(OWNER, kept).await.unwrap();
        let error = logs.read_range(OWNER, FIRST_LSN, 5000).await.unwrap_err();
        assert!(matches!(error, ReadError::Cut { kept: Some(at), .. } if at == kept), "{error}");
    });
}

/// One that dies at once has left what it was given, and that was nothing.
#[test]
fn a_log_that_was_only_begun_is_there() {
    let place = tempfile::tempdir().unwrap();
    let logs = logs(place.path());
    RealRuntime::new(1).unwrap().block_on(async {
        drop(begin(&logs).await);
        let (read, ended) = numbers(&logs).await;
        assert_eq!((read.len(), ended.unwrap().unwrap().lsn), (0, FIRST_LSN));
        assert_eq!(logs.owners().await.unwrap(), [OWNER]);
    });
}

#[test]
fn a_file_that_was_only_begun_is_none() {
    let place = tempfile::tempdir().unwrap();
    let logs = logs(place.path());
    RealRuntime::new(1).unwrap().block_on(async {
        let mut log = begin(&logs).await;
        write(&mut log, 0..500).await;
        let files = files_in(&logs.directory(OWNER)).unwrap();
        let next = path_of(&logs.directory(OWNER), log.end);
        fs::write(next.with_extension(UNNAMED), "half a hea").unwrap();
        let (read, ended) = numbers(&logs).await;
        assert_eq!(read, (0..500).collect::<Vec<_>>());
        assert_eq!(ended.unwrap().unwrap().lsn, log.end);
        assert_eq!(files_in(&logs.directory(OWNER)).unwrap(), files);
    });
}

#[test]
fn a_log_of_which_nothing_is_needed_keeps_no_records() {
    let place = tempfile::tempdir().unwrap();
    let logs = logs(place.path());
    RealRuntime::new(1).unwrap().block_on(async {
        let mut log = begin(&logs).await;
        // More in one file than the log should keep.
        let large: Vec<u8> = (0..900).flat_map(|number| record(0, 0, number)).collect();
        let end = log.end + large.len() as u64;
        log.sink.append(log.end, large).await.result.unwrap();
        assert_eq!(log.sink.truncate(end).await.unwrap(), end);
        assert_eq!(log.sink.truncate(end).await.unwrap(), end);
        log.end = end;
        write(&mut log, 900..950).await;
        let (read, ended) = numbers(&logs).await;
        assert_eq!(read, (900..950).collect::<Vec<_>>());
        assert_eq!(ended.unwrap().unwrap().lsn, log.end);
    });
}

#[test]
fn a_log_that_lacks_something_is_refused_with_file_and_place() {
    let place = tempfile::tempdir().unwrap();
    let logs = logs(place.path());
    RealRuntime::new(1).unwrap().block_on(async {
        write(&mut begin(&logs).await, 0..500).await;
        let files = files_in(&logs.directory(OWNER)).unwrap();
        let (_, second) = &files[1];
        let whole = fs::read(second).unwrap();
        let length = record(0, 0, 0).len();
        // A bit of a record in the middle.
        let mut bytes = whole.clone();
        bytes[HEADER_BYTES as usize + 2 * length + 40] ^= 1;
        fs::write(second, &bytes).unwrap();
        let at = HEADER_BYTES + 2 * length as u64;
        match numbers(&logs).await.1 {
            Err(ReadError::Damaged { place, at: found, .. }) => {
                assert_eq!((&place, found), (second, at))
            }
            other => panic!("{other:?}"),
        }
        // The end of a file that another one follows.
        fs::write(second, &whole[..whole.len() - 3 * length]).unwrap();
        assert!(matches!(numbers(&logs).await.1, Err(ReadError::Damaged { .. })));
        // A whole file.
        fs::remove_file(second).unwrap();
        assert!(matches!(numbers(&logs).await.1, Err(ReadError::Damaged { .. })));
        // Headers.
        let refused = async |bytes: &[u8], what: &str| {
            fs::write(second, bytes).unwrap();
            let error = numbers(&logs).await.1.unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("slog"), "{error}");
        };
        refused(&whole[..100], "shorter than its header").await;
        refused(&[0; 1024], "no file of a log").await;
        for (byte, what) in
            [(8, "another version"), (12, "header is damaged"), (33, "header is damaged")]
        {
            let mut bytes = whole.clone();
            bytes[byte] ^= 1;
            refused(&bytes, what).await;
        }
        let rest = &whole[HEADER_BYTES as usize..];
        let owner = LogOwner { pool: 8, ..OWNER };
        let header = Header { owner, start: files[1].0 };
        refused(&[&header.encode()[..], rest].concat(), "another log").await;
        let header = Header { owner: OWNER, start: 7 };
        refused(&[&header.encode()[..], rest].concat(), "begins at 7").await;
    });
}

#[test]
fn what_cannot_be_written_is_tried_again() {
    let place = tempfile::tempdir().unwrap();
    let logs = logs(place.path());
    RealRuntime::new(1).unwrap().block_on(async {
        let mut log = begin(&logs).await;
        write(&mut log, 0..100).await;
        // No file can be made in its place.
        let directory = logs.directory(OWNER);
        let next = path_of(&directory, log.end);
        let aside = place.path().join("aside");
        fs::rename(&directory, &aside).unwrap();
        let length = record(0, 0, 0).len() as u64;
        let large: Vec<u8> = (0..200)
            .flat_map(|number| record(log.end + number * length, log.end, 100 + number))
            .collect();
        let written = log.sink.append(log.end, large.clone()).await;
        let error = written.result.unwrap_err();
        assert!(error.to_string().contains(next.to_str().unwrap()), "{error}");
        fs::rename(&aside, &directory).unwrap();
        log.sink.append(log.end, written.bytes).await.result.unwrap();
        let (read, ended) = numbers(&logs).await;
        assert_eq!(read, (0..300).collect::<Vec<_>>());
        assert_eq!(ended.unwrap().unwrap().lsn, log.end + 200 * length);
    });
}

#[test]
fn a_place_where_no_log_can_be_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let refused = |root: &Path, file_bytes, capacity, what: &str| {
        let error = LogFiles::new(root, file_bytes, capacity).unwrap_err().to_string();
        assert!(error.contains(what) && error.contains(root.to_str().unwrap()), "{error}");
    };
    refused(place.path(), 1 << 10, 1 << 30, "64 KiB to 4 GiB");
    refused(place.path(), 1 << 16, 1 << 17, "262144 or more");
    let file = place.path().join("file");
    fs::write(&file, "no directory").unwrap();
    refused(&file, 1 << 16, 1 << 20, "cannot make");
    refused(&file.join("below"), 1 << 16, 1 << 20, "cannot make");
}
