//! What must hold after the run.
//!
//! Each table, and the index of subscribers, is read front to back, and held against the rows that
//! belong there, which seed and ledger say.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use selkie_txn::{RowBuilder, RowRef, Table, TxnError, key};

use super::config::Config;
use super::ledger::{SubscriberLedger, SubscriberValue};
use super::rows::{Facility, Forwarding, START_TIMES, Subscriber, destination, number};
use super::schema::{Tables, columns as c};
use crate::benchmark::{Findings, Sequence, range_of, scan, scan_keys};
use crate::cluster::Node;
use crate::error::TpccError;

const ROWS: &str =
    "subscriber, access_info and special_facility have the rows that were loaded and no others";
const NUMBERS: &str =
    "by_number leads from the number of each subscriber to that subscriber and nowhere else";
const UNCHANGED: &str = "what no transaction changes is as it was loaded";
const LOCATION: &str = "vlr_location is the value that was committed last";
const BIT_1: &str = "bit_1 is the value that was committed last";
const DATA_A: &str = "data_a is the value that was committed last";
const PARENT: &str = "each call_forwarding has its special_facility";
const VALUES: &str = "start_time is 0, 8 or 16, end_time 1 to 24, numberx has 15 digits";
const FORWARDINGS: &str =
    "call_forwarding has the rows that were loaded or inserted, and not deleted since";
const DESTINATIONS: &str =
    "end_time and numberx of a call_forwarding are those that were loaded or inserted last";
const COUNT: &str =
    "call_forwarding has as many rows as were loaded and inserted, less those deleted";

/// Sums of the check.
const LOADED: &str = "call_forwarding_loaded";
const FOUND: &str = "call_forwarding";

/// What a subscriber's rows must be.
struct Expected<'a> {
    subscribers: BTreeMap<i32, Subscriber>,
    ledger: &'a SubscriberLedger,
}

impl Expected<'_> {
    fn bit_1(&self, of: &Subscriber) -> i64 {
        i64::from(of.bit_1()).wrapping_add(self.ledger.sum(of.s_id, SubscriberValue::Bit1))
    }

    /// Zero if there is to be no row.
    fn destination(&self, s_id: i32, of: &Facility, start_time: i32) -> i64 {
        let loaded = of.forwardings.iter().find(|row| row.start_time == start_time);
        let value = SubscriberValue::Forwarding(of.sf_type, start_time);
        loaded.map_or(0, Forwarding::destination).wrapping_add(self.ledger.sum(s_id, value))
    }

    fn location(&self, of: &Subscriber) -> i64 {
        of.vlr_location.wrapping_add(self.ledger.sum(of.s_id, SubscriberValue::Location))
    }
}

/// Looks at the rows of these subscribers.
pub(super) async fn check(
    config: &Config,
    node: &Node<Tables>,
    ledger: &SubscriberLedger,
    subscribers: Range<i32>,
) -> Result<Findings, TpccError> {
    let loaded = |s_id| (s_id, Subscriber::loaded(config.setup.seed, s_id));
    let expected = Expected { subscribers: subscribers.clone().map(loaded).collect(), ledger };
    let mut found = Findings::default();
    let part = SubscriberRange { config, node, subscribers };
    part.check_subscribers(&expected, &mut found).await?;
    part.check_numbers(&mut found).await?;
    part.check_accesses(&expected, &mut found).await?;
    part.check_facilities(&expected, &mut found).await?;
    part.check_forwardings(&expected, &mut found).await?;
    Ok(found)
}

/// Judges the number of call_forwarding rows.
pub(super) fn judge(ledger: &SubscriberLedger, found: &mut Findings) {
    let (loaded, rows) = (found.total(LOADED), found.total(FOUND));
    let (inserted, deleted) = (ledger.inserted(), ledger.deleted());
    found.add("call_forwarding_inserted", inserted);
    found.add("call_forwarding_deleted", deleted);
    found.expect(rows == loaded + inserted - deleted, COUNT, || {
        format!("{rows}, not {loaded} + {inserted} - {deleted}")
    });
}

/// A part of the tables: the rows of some subscribers.
struct SubscriberRange<'a> {
    config: &'a Config,
    node: &'a Node<Tables>,
    subscribers: Range<i32>,
}

impl SubscriberRange<'_> {
    async fn scan(
        &self,
        table: Table,
        visit: impl FnMut(RowRef<'_>) -> Result<(), TxnError> + Send,
    ) -> Result<(), TpccError> {
        let range = range_of(&self.subscribers, self.config.last_subscriber(), |s_id| key![s_id]);
        scan(self.node, table, &range, visit).await
    }

    async fn check_subscribers(
        &self,
        expected: &Expected<'_>,
        found: &mut Findings,
    ) -> Result<(), TpccError> {
        let table = self.node.tables.subscriber;
        let all = expected.subscribers.iter().map(|(s_id, subscriber)| (*s_id, subscriber));
        let mut missing = UnmetRows::new("subscriber", all);
        let mut row_of = self.node.db.row(table)?;
        let read = self.scan(table, |row| {
            let s_id = row.i32(c::S_ID)?;
            let Some(subscriber) = missing.take(s_id, found) else { return Ok(()) };
            let (bit_1, location) = (row.i32(c::BIT_1)?, row.i64(c::VLR_LOCATION)?);
            let (last_bit, last) = (expected.bit_1(subscriber), expected.location(subscriber));
            found.expect(i64::from(bit_1) == last_bit, BIT_1, || {
                format!("subscriber {s_id}: {bit_1}, not {last_bit}")
            });
            found.expect(location == last, LOCATION, || {
                format!("subscriber {s_id}: {location}, not {last}")
            });
            subscriber.fill(&mut row_of, bit_1, location);
            expect_row(row, &row_of, found, || format!("subscriber {s_id}"))
        });
        read.await?;
        missing.judge(found);
        Ok(())
    }

    /// Looks at the index alone: what it leads to has been looked at.
    async fn check_numbers(&self, found: &mut Findings) -> Result<(), TpccError> {
        let encode = |s_id| key![number(s_id).as_str()];
        let range = range_of(&self.subscribers, self.config.last_subscriber(), encode);
        // In the order of the numbers in the network, which is that of those in the table.
        let mut expected = Sequence::new("number of subscriber", NUMBERS, self.subscribers.clone());
        let mut entries = 0;
        let read = scan_keys(self.node, self.node.tables.by_number, &range, |key| {
            entries += 1;
            let fits = expected.meet(|next| (*key![next]).cmp(key), found);
            found.expect(fits, NUMBERS, || match expected.due() {
                Some(next) => format!("an entry before that of subscriber {next} leads elsewhere"),
                None => "an entry after that of the last subscriber".to_owned(),
            });
        });
        read.await?;
        expected.finish(found);
        found.add("by_number", entries);
        Ok(())
    }

    async fn check_accesses(
        &self,
        expected: &Expected<'_>,
        found: &mut Findings,
    ) -> Result<(), TpccError> {
        let table = self.node.tables.access_info;
        let all = expected.subscribers.values();
        let all =
            all.flat_map(|of| of.accesses.iter().map(|access| ((of.s_id, access.ai_type), access)));
        let mut missing = UnmetRows::new("access_info", all);
        let mut row_of = self.node.db.row(table)?;
        let read = self.scan(table, |row| {
            let key = (row.i32(c::S_ID)?, row.i32(c::AI_TYPE)?);
            let Some(access) = missing.take(key, found) else { return Ok(()) };
            access.fill(&mut row_of, key.0);
            expect_row(row, &row_of, found, || format!("access_info {key:?}"))
        });
        read.await?;
        missing.judge(found);
        Ok(())
    }

    async fn check_facilities(
        &self,
        expected: &Expected<'_>,
        found: &mut Findings,
    ) -> Result<(), TpccError> {
        let table = self.node.tables.special_facility;
        let all = expected.subscribers.values();
        let all = all.flat_map(|of| {
            of.facilities.iter().map(|facility| ((of.s_id, facility.sf_type), facility))
        });
        let mut missing = UnmetRows::new("special_facility", all);
        let mut row_of = self.node.db.row(table)?;
        let read = self.scan(table, |row| {
            let (s_id, sf_type) = (row.i32(c::S_ID)?, row.i32(c::SF_TYPE)?);
            let key = (s_id, sf_type);
            let Some(facility) = missing.take(key, found) else { return Ok(()) };
            let data_a = row.i32(c::DATA_A)?;
            let added = expected.ledger.sum(s_id, SubscriberValue::DataA(sf_type));
            let last = i64::from(facility.data_a).wrapping_add(added);
            found.expect(i64::from(data_a) == last, DATA_A, || {
                format!("special_facility {key:?}: {data_a}, not {last}")
            });
            facility.fill(&mut row_of, s_id, data_a);
            expect_row(row, &row_of, found, || format!("special_facility {key:?}"))
        });
        read.await?;
        missing.judge(found);
        Ok(())
    }

    async fn check_forwardings(
        &self,
        expected: &Expected<'_>,
        found: &mut Findings,
    ) -> Result<(), TpccError> {
        let mut there = BTreeMap::new();
        let read = self.scan(self.node.tables.call_forwarding, |row| {
            let (s_id, sf_type) = (row.i32(c::S_ID)?, row.i32(c::SF_TYPE)?);
            let (start_time, end_time) = (row.i32(c::START_TIME)?, row.i32(c::END_TIME)?);
            let (key, numberx) = ((s_id, sf_type, start_time), row.text(c::NUMBERX)?);
            found.add(FOUND, 1);
            let before = there.insert(key, destination(end_time, numberx));
            found.expect(before.is_none(), FORWARDINGS, || {
                format!("call_forwarding {key:?} is there twice")
            });
            let facilities = expected.subscribers.get(&s_id).map(|of| &of.facilities);
            let has = facilities.is_some_and(|all| all.iter().any(|of| of.sf_type == sf_type));
            found.expect(has, PARENT, || format!("call_forwarding {key:?}"));
            let digits = numberx.len() == 15 && numberx.bytes().all(|digit| digit.is_ascii_digit());
            let hours = START_TIMES.contains(&start_time) && (1..=24).contains(&end_time);
            found.expect(digits && hours, VALUES, || {
                format!("call_forwarding {key:?} to {end_time}, {numberx}")
            });
            Ok(())
        });
        read.await?;
        for subscriber in expected.subscribers.values() {
            for facility in &subscriber.facilities {
                found.add(LOADED, i64::try_from(facility.forwardings.len()).unwrap_or(0));
                for start_time in START_TIMES {
                    let last = expected.destination(subscriber.s_id, facility, start_time);
                    let key = (subscriber.s_id, facility.sf_type, start_time);
                    expect_forwarding(key, there.get(&key).copied(), last, found);
                }
            }
        }
        Ok(())
    }
}

/// A row of call_forwarding is there if its last destination is not zero, and has that.
fn expect_forwarding(
    key: (i32, i32, i32),
    destination: Option<i64>,
    last: i64,
    found: &mut Findings,
) {
    found.expect(destination.is_some() == (last != 0), FORWARDINGS, || {
        let is = if last == 0 { "is there" } else { "is missing" };
        format!("call_forwarding {key:?} {is}")
    });
    if let Some(destination) = destination
        && last != 0
    {
        found.expect(destination == last, DESTINATIONS, || {
            format!("call_forwarding {key:?}: {destination}, not {last} = 32 numberx + end_time")
        });
    }
}

/// Rows of a table that were loaded and have not been met yet.
struct UnmetRows<K, V> {
    table: &'static str,
    rows: BTreeMap<K, V>,
}

impl<K: Copy + Ord + fmt::Debug, V> UnmetRows<K, V> {
    fn new(table: &'static str, rows: impl Iterator<Item = (K, V)>) -> Self {
        Self { table, rows: rows.collect() }
    }

    /// What was loaded under the key of a row that is met.
    fn take(&mut self, key: K, found: &mut Findings) -> Option<V> {
        found.add(self.table, 1);
        let row = self.rows.remove(&key);
        found.expect(row.is_some(), ROWS, || {
            format!("{} {key:?} was not loaded, or is there twice", self.table)
        });
        row
    }

    /// All have been met.
    fn judge(&self, found: &mut Findings) {
        for key in self.rows.keys() {
            found.expect(false, ROWS, || format!("{} {key:?} is missing", self.table));
        }
    }
}

/// A row is as it was loaded, or was changed as is known.
fn expect_row(
    row: RowRef<'_>,
    expected: &RowBuilder<'_>,
    found: &mut Findings,
    name: impl FnOnce() -> String,
) -> Result<(), TxnError> {
    let same = expected.finish()?.as_bytes() == row.as_bytes();
    found.expect(same, UNCHANGED, name);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_met_once() {
        let mut found = Findings::default();
        let loaded = [((1, 1), 'a'), ((1, 4), 'b'), ((2, 3), 'c')];
        let mut missing = UnmetRows::new("access_info", loaded.into_iter());
        assert_eq!(missing.take((1, 4), &mut found), Some('b'));
        assert_eq!(missing.take((1, 1), &mut found), Some('a'));
        assert!(found.hold());
        assert_eq!(missing.take((1, 4), &mut found), None);
        assert_eq!(missing.take((3, 1), &mut found), None);
        missing.judge(&mut found);
        let broken = found.violations().next().unwrap();
        assert_eq!((broken.rule, broken.offences), (ROWS, 3));
        assert_eq!(broken.examples[0], "access_info (1, 4) was not loaded, or is there twice");
        assert_eq!(broken.examples[2], "access_info (2, 3) is missing");
        assert_eq!(found.total("access_info"), 4);
    }
}
