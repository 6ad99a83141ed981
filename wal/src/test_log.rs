//! The log that tests of several stores write and read: records of one line.

use std::ops::Range;

use selkie_pool::GAddr;

use crate::dirty::Dirty;
use crate::error::ReadError;
use crate::lsn::Lsn;
use crate::owner::LogOwner;
use crate::record::{Change, Record, encode};
use crate::scan::LogEnd;
use crate::store::{LogStore, read_log};

/// Bytes of a line.
pub(crate) const LINE: usize = 512;
/// The owner of the log.
pub(crate) const OWNER: LogOwner =
    LogOwner { pool: 9, node: 3, incarnation: 1, line_bytes: LINE as u32 };

/// A record of a whole line.
pub(crate) fn record(lsn: Lsn, durable: Lsn, number: u64) -> Vec<u8> {
    let line = vec![number as u8; LINE];
    let addr = GAddr::from_u64(LINE as u64);
    let change = Change { addr, psn: number, pieces: Dirty::ALL, line: &line };
    let mut bytes = Vec::new();
    encode(&mut bytes, OWNER.format().salt, (lsn, durable), &[change]);
    bytes
}

/// Consecutive records, the first of which begins at `at`, up to where the log is durable.
pub(crate) fn records(at: Lsn, numbers: Range<u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in numbers {
        bytes.extend(record(at + bytes.len() as u64, at, number));
    }
    bytes
}

/// The numbers of all records in a store, and where they end.
pub(crate) async fn numbers(logs: &dyn LogStore) -> (Vec<u64>, Result<Option<LogEnd>, ReadError>) {
    let mut numbers = Vec::new();
    let visit = |record: Record<'_>| numbers.extend(record.pages().map(|redo| redo.psn()));
    let end = read_log(logs, OWNER, visit).await;
    (numbers, end)
}
