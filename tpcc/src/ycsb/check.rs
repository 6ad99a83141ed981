//! What must hold after the run.

use std::ops::{Bound, ControlFlow, Range};

use selkie_txn::{Direction, KeyBuf, KeyRange, key};

use super::client::WHOLE;
use super::config::Config;
use super::ledger::RecordLedger;
use super::record::number_of;
use super::schema::{KEY, Tables, VERSION};
use super::store::{Via, decode_key, is_whole_row};
use crate::benchmark::{Findings, scan};
use crate::cluster::Node;
use crate::error::TpccError;

const COUNT: &str = "there are as many records as were loaded and inserted";
const KNOWN: &str = "every record was loaded or inserted";
const UPDATES: &str = "the version of a record is the number of its committed updates";

/// Sums of the check.
const FOUND: &str = "records";
const INSERTED: &str = "inserted";
const UPDATED: &str = "updates";

/// Looks at a part of the records: that of these numbers, if the range of all keys is divided
/// evenly among all numbers.
pub(super) async fn check(
    config: &Config,
    node: &Node<Tables>,
    ledger: &RecordLedger,
    numbers: Range<i32>,
) -> Result<Findings, TpccError> {
    let range = (bound(config, numbers.start), bound(config, numbers.end));
    let part = Part { config, ledger };
    let mut found = Findings::default();
    if config.via == Via::Tree {
        part.scan_tree(node, range, &mut found).await?;
    } else {
        let range = match (range.0, &range.1) {
            (None, None) => KeyRange::all(),
            (Some(low), None) => KeyRange::from(&low),
            (low, Some(high)) => KeyRange::half_open(&low.unwrap_or_default(), high),
        };
        let see = |row: selkie_txn::RowRef<'_>| {
            let (key, version) = (row.i64(KEY)?, row.i64(VERSION)?);
            let whole = is_whole_row(config.rules(), key, row)?;
            part.note(key, Some((version, whole)), &mut found);
            Ok(())
        };
        scan(node, node.tables.records, &range, see).await?;
    }
    Ok(found)
}

/// Where the part of a number begins; `None` at both ends of all keys.
fn bound(config: &Config, number: i32) -> Option<KeyBuf> {
    let records = u128::from(config.records);
    let place = u128::from(number.unsigned_abs()).saturating_sub(1);
    if place == 0 || place >= records {
        return None;
    }
    // In the order of keys, the least comes first.
    let ordered = ((place << 64) / records) as u64;
    Some(key![(ordered ^ (1 << 63)).cast_signed()])
}

/// What a part is checked against.
struct Part<'a> {
    config: &'a Config,
    ledger: &'a RecordLedger,
}

impl Part<'_> {
    async fn scan_tree(
        &self,
        node: &Node<Tables>,
        (low, high): (Option<KeyBuf>, Option<KeyBuf>),
        found: &mut Findings,
    ) -> Result<(), TpccError> {
        let tree = node.db.tree(node.tables.records)?;
        let low = low.as_deref().map_or(Bound::Unbounded, Bound::Included);
        let high = high.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let rules = self.config.rules();
        let see = |bytes: &[u8], record: &[u8]| {
            match decode_key(bytes) {
                Some(key) => self.note(key, rules.look_at(key, record), found),
                None => found.expect(false, KNOWN, || format!("a key of {} bytes", bytes.len())),
            }
            ControlFlow::Continue(())
        };
        Ok(tree.scan(&node.engine, (low, high), Direction::Forward, see).await?)
    }

    /// Notes a record: its version, and whether it is whole.
    fn note(&self, key: i64, record: Option<(i64, bool)>, found: &mut Findings) {
        let number = number_of(key);
        found.add(FOUND, 1);
        let known = number < self.config.records.into() || self.ledger.numbers.has(number);
        found.expect(known, KNOWN, || format!("record {key}, the {number}th"));
        let Some((version, whole)) = record else {
            found.expect(false, WHOLE, || format!("record {key} has another length"));
            return;
        };
        found.expect(whole, WHOLE, || format!("record {key} is damaged"));
        found.add(UPDATED, version);
        let updates = self.ledger.updates(number);
        found.expect(version == i64::from(updates), UPDATES, || {
            format!("record {key} has version {version} after {updates} updates")
        });
    }
}

/// Judges all of them together, and adds what operations found.
pub(super) fn judge(config: &Config, ledger: &RecordLedger, found: &mut Findings) {
    let inserted = ledger.numbers.beyond(config.records.into());
    found.add(INSERTED, inserted.cast_signed());
    let (there, expected) =
        (found.total(FOUND), i64::from(config.records) + inserted.cast_signed());
    found.expect(there == expected, COUNT, || {
        format!("{there} records, not {} loaded + {inserted} inserted", config.records)
    });
    found.merge(ledger.wrong());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ycsb::Config;

    #[test]
    fn parts_divide_all_keys() {
        let config = Config { records: 4, ..Config::default() };
        let bounds: Vec<_> = (1..=5).map(|number| bound(&config, number)).collect();
        assert_eq!((&bounds[0], &bounds[4]), (&None, &None));
        let quarters: Vec<i64> =
            bounds[1..4].iter().map(|low| decode_key(low.as_deref().unwrap()).unwrap()).collect();
        assert_eq!(quarters, [i64::MIN / 2, 0, 1 << 62]);
    }
}
