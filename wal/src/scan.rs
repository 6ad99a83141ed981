//! Reads the records of a log, and tells a torn end, which was never durable, from damage.

use crate::lsn::Lsn;
use crate::record::{Format, NoRecord, RECORD_HEADER_BYTES, Record};

/// How a log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// Where the last whole record ends.
    pub lsn: Lsn,
    /// Why no record follows. Nothing beyond was durable.
    pub then: NoRecord,
}

/// A log lacks durable records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "at {lsn} of the log: {why}, but the record at {witness} was made when the log was durable up to {durable}"
)]
pub struct LogDamage {
    /// Where the missing records begin.
    pub lsn: Lsn,
    /// What is there instead.
    pub why: NoRecord,
    /// A later, whole record.
    pub witness: Lsn,
    /// Up to where the log was durable when that record was written.
    pub durable: Lsn,
}

/// Shows `visit` the records of a log from `start` on, where `bytes` begin.
///
/// # Errors
/// [`LogDamage`], after the records before it have been shown.
pub fn scan<'a>(
    bytes: &'a [u8],
    start: Lsn,
    format: Format,
    mut visit: impl FnMut(Record<'a>),
) -> Result<LogEnd, LogDamage> {
    let mut at = 0;
    let why = loop {
        let rest = bytes.split_at(at).1;
        match Record::decode(rest, start + at as u64, format) {
            Ok(record) => {
                at = (record.end() - start) as usize;
                visit(record);
            }
            Err(why) => break why,
        }
    };
    let lsn = start + at as u64;
    match witness(bytes, start, at, format) {
        Some(witness) => {
            let (witness, durable) = (witness.lsn(), witness.durable());
            Err(LogDamage { lsn, why, witness, durable })
        }
        None => Ok(LogEnd { lsn, then: why }),
    }
}

/// A whole record after a place without one, if it was written when the log was durable beyond that
/// place.
fn witness(bytes: &[u8], start: Lsn, from: usize, format: Format) -> Option<Record<'_>> {
    let lsn = start + from as u64;
    let last = bytes.len().saturating_sub(RECORD_HEADER_BYTES);
    let mut found = (from..=last).step_by(8).filter_map(|at| {
        let rest = bytes.get(at..)?;
        // Most places have no LSN of their own: no checksum is computed for them.
        Record::decode(rest, start + at as u64, format).ok()
    });
    found.find(|record| record.durable() > lsn)
}

#[cfg(test)]
mod tests {
    use selkie_pool::GAddr;

    use super::*;
    use crate::dirty::Dirty;
    use crate::record::{Change, encode};

    const LINE: usize = 512;
    const START: Lsn = 1 << 20;

    /// Records that become durable three at a time; where each begins, and the end.
    fn log(records: u64) -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut starts, mut durable) = (Vec::new(), Vec::new(), START);
        for number in 0..records {
            if number % 3 == 0 {
                durable = START + bytes.len() as u64;
            }
            starts.push(bytes.len());
            let line = vec![number as u8; LINE];
            let pieces = Dirty::of(&(8..8 + 8 * (1 + number as usize % 20)), LINE);
            let addr = GAddr::from_u64(LINE as u64 * (1 + number));
            let change = Change { addr, psn: number, pieces, line: &line };
            let lsn = START + starts[number as usize] as u64;
            encode(&mut bytes, 5, (lsn, durable), &[change]);
        }
        starts.push(bytes.len());
        (bytes, starts)
    }

    fn count(bytes: &[u8]) -> (usize, Result<LogEnd, LogDamage>) {
        let mut count = 0;
        let end = scan(bytes, START, Format { line_bytes: LINE, salt: 5 }, |record| {
            assert_eq!(record.pages().map(|redo| redo.psn()).sum::<u64>(), count as u64);
            count += 1;
        });
        (count, end)
    }

    #[test]
    fn a_whole_log_is_read_to_its_end() {
        let (bytes, starts) = log(20);
        let lsn = START + bytes.len() as u64;
        assert_eq!(count(&bytes), (20, Ok(LogEnd { lsn, then: NoRecord::End })));
        let mut with_room = bytes.clone();
        with_room.resize(bytes.len() + 4096, 0);
        assert_eq!(count(&with_room), (20, Ok(LogEnd { lsn, then: NoRecord::Length(0) })));
        assert_eq!(starts.len(), 21);
    }

    /// Of what was not durable any part may be there, and any other not.
    #[test]
    fn a_torn_end_is_an_end() {
        let (bytes, starts) = log(12);
        let durable = starts[9];
        for cut in (durable..bytes.len()).step_by(8) {
            let mut torn = bytes.clone();
            torn[cut..].fill(0);
            let whole = starts.iter().rposition(|start| *start <= cut).unwrap().min(12);
            let (records, end) = count(&torn);
            assert_eq!((records, end.unwrap().lsn), (whole, START + starts[whole] as u64));
            // The middle is missing, and what comes after it is there.
            let mut hole = bytes.clone();
            hole[cut..cut + 8].fill(0xEE);
            let (records, end) = count(&hole);
            let first = starts.iter().rposition(|start| *start <= cut).unwrap();
            assert_eq!((records, end.unwrap().lsn), (first, START + starts[first] as u64));
        }
    }

    #[test]
    fn what_was_durable_and_is_not_there_is_damage() {
        let (bytes, starts) = log(12);
        for cut in (0..starts[9]).step_by(8) {
            let mut hole = bytes.clone();
            hole[cut] ^= 0x10;
            let (records, end) = count(&hole);
            let first = starts.iter().rposition(|start| *start <= cut).unwrap();
            assert_eq!(records, first);
            let damage = end.unwrap_err();
            assert_eq!(damage.lsn, START + starts[first] as u64);
            assert!(damage.durable > damage.lsn && damage.witness > damage.lsn);
        }
    }
}
