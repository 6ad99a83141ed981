//! The seven transactions.
//!
//! Each says what it has changed, or that it failed as the description has it: then what it had
//! changed is rolled back. A conflict comes back as a retryable error with everything rolled back.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use selkie_txn::{Direction, KeyRange, Txn, TxnError, key};

use super::config::Config;
use super::input::{Input, Inputs};
use super::ledger::{CommittedChanges, SubscriberValue};
use super::rows::{Forwarding, destination, number};
use super::schema::{Tables, columns as c};
use super::transaction_type::TransactionType;
use crate::benchmark::WorkerContext;
use crate::cluster::Node;
use crate::error::{TpccError, missing};
use crate::run::{Terminal, TransactionOutcome};
use crate::workload::{Random, Text};

/// A worker.
pub(super) struct Register<'a> {
    pub(super) place: WorkerContext<'a, Config>,
    pub(super) inputs: Inputs,
}

impl Terminal for Register<'_> {
    type TransactionType = TransactionType;

    fn random(&mut self) -> &mut Random {
        &mut self.inputs.random
    }

    async fn transact(
        &mut self,
        kind: TransactionType,
        _started: Duration,
        attempts: &AtomicU64,
    ) -> Result<TransactionOutcome, TpccError> {
        let (input, place) = (self.inputs.draw(kind), &self.place);
        let execute = || execute(place.node, &input);
        place.transact(kind, attempts, execute, |done| place.ledger.note(&done)).await
    }
}

/// Runs a transaction; nothing if it failed, and was rolled back.
pub(super) async fn execute(
    node: &Node<Tables>,
    input: &Input,
) -> Result<Option<CommittedChanges>, TpccError> {
    let mut work = ActiveTransaction { node, txn: node.db.begin(), done: CommittedChanges::new() };
    let succeeded = match *input {
        Input::GetSubscriberData { s_id } => work.read_subscriber(s_id).await?,
        Input::GetNewDestination { s_id, sf_type, start_time, end_time } => {
            work.is_active(s_id, sf_type).await?
                && work.find_destination((s_id, sf_type), start_time, end_time).await?
        }
        Input::GetAccessData { s_id, ai_type } => work.read_access_data(s_id, ai_type).await?,
        Input::UpdateSubscriberData { s_id, bit_1, sf_type, data_a } => {
            work.set_bit(s_id, bit_1).await?;
            work.set_data(s_id, sf_type, data_a).await?
        }
        Input::UpdateLocation { s_id, vlr_location } => {
            let s_id = work.look_up(&number(s_id), true).await?;
            work.set_location(s_id, vlr_location).await?
        }
        Input::InsertCallForwarding { s_id, sf_type, ref forwarding } => {
            let s_id = work.look_up(&number(s_id), false).await?;
            work.has_facility(s_id, sf_type).await?
                && work.insert((s_id, sf_type), forwarding).await?
        }
        Input::DeleteCallForwarding { s_id, sf_type, start_time } => {
            let s_id = work.look_up(&number(s_id), false).await?;
            work.delete(s_id, sf_type, start_time).await?
        }
    };
    if !succeeded {
        work.txn.rollback().await;
        return Ok(None);
    }
    work.txn.commit().await?;
    Ok(Some(work.done))
}

/// A transaction on its way. What its methods return is whether the row was there, or could be.
struct ActiveTransaction<'a> {
    node: &'a Node<Tables>,
    txn: Txn<'a>,
    done: CommittedChanges,
}

impl ActiveTransaction<'_> {
    /// The subscriber with this number in the network.
    async fn look_up(&mut self, number: &Text<15>, to_change: bool) -> Result<i32, TpccError> {
        let index = self.node.tables.by_number;
        let range = KeyRange::prefix(&key![number.as_str()]);
        let row = if to_change {
            self.txn.first_for_update(index, &range).await?
        } else {
            self.txn.first(index, &range).await?
        };
        let row = row.ok_or_else(|| missing("subscriber", number.as_str()))?;
        Ok(row.i32(c::S_ID)?)
    }

    async fn read_subscriber(&mut self, s_id: i32) -> Result<bool, TpccError> {
        let row = self.txn.get(self.node.tables.subscriber, &key![s_id]).await?;
        let row = row.ok_or_else(|| missing("subscriber", s_id))?;
        let mut sum = row.i64(c::MSC_LOCATION)? + row.i64(c::VLR_LOCATION)?;
        for column in c::BIT_1..c::MSC_LOCATION {
            sum += i64::from(row.i32(column)?);
        }
        std::hint::black_box((sum, row.text(c::SUB_NBR)?));
        Ok(true)
    }

    async fn is_active(&mut self, s_id: i32, sf_type: i32) -> Result<bool, TpccError> {
        let row = self.txn.get(self.node.tables.special_facility, &key![s_id, sf_type]).await?;
        let Some(row) = row else { return Ok(false) };
        Ok(row.i32(c::IS_ACTIVE)? == 1)
    }

    async fn find_destination(
        &mut self,
        (s_id, sf_type): (i32, i32),
        start_time: i32,
        end_time: i32,
    ) -> Result<bool, TpccError> {
        let range = KeyRange::prefix(&key![s_id, sf_type]);
        let mut found = false;
        let visit = |row: selkie_txn::RowRef<'_>| {
            if row.i32(c::START_TIME)? <= start_time && end_time < row.i32(c::END_TIME)? {
                std::hint::black_box(row.text(c::NUMBERX)?);
                found = true;
            }
            Ok(ControlFlow::Continue(()))
        };
        let table = self.node.tables.call_forwarding;
        self.txn.scan(table, &range, Direction::Forward, visit).await?;
        Ok(found)
    }

    async fn read_access_data(&mut self, s_id: i32, ai_type: i32) -> Result<bool, TpccError> {
        let row = self.txn.get(self.node.tables.access_info, &key![s_id, ai_type]).await?;
        let Some(row) = row else { return Ok(false) };
        let numbers = (row.i32(c::DATA_1)?, row.i32(c::DATA_1 + 1)?);
        std::hint::black_box((numbers, row.text(c::DATA_1 + 2)?, row.text(c::DATA_1 + 3)?));
        Ok(true)
    }

    async fn set_bit(&mut self, s_id: i32, bit_1: i32) -> Result<(), TpccError> {
        let key = key![s_id];
        let set = self.txn.update(self.node.tables.subscriber, &key, |row| {
            let before = row.i32(c::BIT_1)?;
            row.set_i32(c::BIT_1, bit_1)?;
            Ok(before)
        });
        let before = there(set.await)?.ok_or_else(|| missing("subscriber", s_id))?;
        self.done.push((s_id, SubscriberValue::Bit1, i64::from(bit_1) - i64::from(before)));
        Ok(())
    }

    async fn set_data(&mut self, s_id: i32, sf_type: i32, data_a: i32) -> Result<bool, TpccError> {
        let key = key![s_id, sf_type];
        let set = self.txn.update(self.node.tables.special_facility, &key, |row| {
            let before = row.i32(c::DATA_A)?;
            row.set_i32(c::DATA_A, data_a)?;
            Ok(before)
        });
        let Some(before) = there(set.await)? else { return Ok(false) };
        self.done.push((
            s_id,
            SubscriberValue::DataA(sf_type),
            i64::from(data_a) - i64::from(before),
        ));
        Ok(true)
    }

    async fn set_location(&mut self, s_id: i32, vlr_location: i64) -> Result<bool, TpccError> {
        let key = key![s_id];
        let set = self.txn.update(self.node.tables.subscriber, &key, |row| {
            let before = row.i64(c::VLR_LOCATION)?;
            row.set_i64(c::VLR_LOCATION, vlr_location)?;
            Ok(before)
        });
        let before = there(set.await)?.ok_or_else(|| missing("subscriber", s_id))?;
        self.done.push((s_id, SubscriberValue::Location, vlr_location.wrapping_sub(before)));
        Ok(true)
    }

    /// Reads which facilities a subscriber has, and looks for this among them.
    async fn has_facility(&mut self, s_id: i32, sf_type: i32) -> Result<bool, TpccError> {
        let mut found = false;
        let visit = |row: selkie_txn::RowRef<'_>| {
            found |= row.i32(c::SF_TYPE)? == sf_type;
            Ok(ControlFlow::Continue(()))
        };
        let (table, range) = (self.node.tables.special_facility, KeyRange::prefix(&key![s_id]));
        self.txn.scan(table, &range, Direction::Forward, visit).await?;
        Ok(found)
    }

    async fn insert(
        &mut self,
        (s_id, sf_type): (i32, i32),
        forwarding: &Forwarding,
    ) -> Result<bool, TpccError> {
        let table = self.node.tables.call_forwarding;
        let mut row = self.node.db.row(table)?;
        forwarding.fill(&mut row, (s_id, sf_type));
        match self.txn.insert(table, row.finish()?).await {
            Ok(()) => {}
            Err(TxnError::Duplicate { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let value = SubscriberValue::Forwarding(sf_type, forwarding.start_time);
        self.done.push((s_id, value, forwarding.destination()));
        Ok(true)
    }

    /// Deletes a row, and reads before what the ledger needs of it: on the leaf that deleting it
    /// latches too.
    async fn delete(
        &mut self,
        s_id: i32,
        sf_type: i32,
        start_time: i32,
    ) -> Result<bool, TpccError> {
        let (table, key) = (self.node.tables.call_forwarding, key![s_id, sf_type, start_time]);
        let Some(row) = self.txn.get_for_update(table, &key).await? else { return Ok(false) };
        let destination = destination(row.i32(c::END_TIME)?, row.text(c::NUMBERX)?);
        self.txn.delete(table, &key).await?;
        self.done.push((s_id, SubscriberValue::Forwarding(sf_type, start_time), -destination));
        Ok(true)
    }
}

/// Nothing where there is no row.
fn there<T>(result: Result<T, TxnError>) -> Result<Option<T>, TxnError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(TxnError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::super::ledger::SubscriberLedger;
    use super::super::rows::{START_TIMES, Subscriber, TYPES, destination};
    use super::*;
    use crate::benchmark::Benchmark;
    use crate::benchmark::tests::{on_loaded, one_node};

    const SUBSCRIBERS: i32 = 20;

    /// A register, what its transactions have done, and what was loaded.
    struct Loaded<'a> {
        node: &'a Node<Tables>,
        ledger: SubscriberLedger,
        subscribers: Vec<Subscriber>,
    }

    /// Lets `test` work on a register, in which every rule must hold then.
    fn with_register(test: impl AsyncFnOnce(&Loaded<'_>)) {
        let subscribers = SUBSCRIBERS.unsigned_abs();
        let config = Config { subscribers, setup: one_node() };
        on_loaded(config.clone(), async |nodes| {
            let loaded = (1..=SUBSCRIBERS).map(|s_id| Subscriber::loaded(config.setup.seed, s_id));
            let (ledger, subscribers) = (config.ledger(), loaded.collect());
            let register = Loaded { node: &nodes[0], ledger, subscribers };
            test(&register).await;
            register.ledger
        });
    }

    impl Loaded<'_> {
        /// Executes a transaction; what it did, if it did not fail.
        async fn execute(&self, input: Input) -> Option<CommittedChanges> {
            let done = execute(self.node, &input).await.unwrap();
            if let Some(done) = &done {
                self.ledger.note(done);
            }
            done
        }

        /// `bit_1` and `vlr_location` of a subscriber.
        async fn subscriber(&self, s_id: i32) -> (i32, i64) {
            let mut txn = self.node.db.begin();
            let row = txn.get(self.node.tables.subscriber, &key![s_id]).await.unwrap().unwrap();
            (row.i32(c::BIT_1).unwrap(), row.i64(c::VLR_LOCATION).unwrap())
        }

        /// `data_a` of a facility, if it is there.
        async fn data_a(&self, s_id: i32, sf_type: i32) -> Option<i32> {
            let mut txn = self.node.db.begin();
            let table = self.node.tables.special_facility;
            let row = txn.get(table, &key![s_id, sf_type]).await.unwrap();
            row.map(|row| row.i32(c::DATA_A).unwrap())
        }

        /// Where and until when calls are forwarded, if they are.
        async fn forwarding(&self, key: (i32, i32, i32)) -> Option<(i32, String)> {
            let mut txn = self.node.db.begin();
            let table = self.node.tables.call_forwarding;
            let row = txn.get(table, &key![key.0, key.1, key.2]).await.unwrap();
            row.map(|row| (row.i32(c::END_TIME).unwrap(), row.text(c::NUMBERX).unwrap().to_owned()))
        }

        /// Asks for all destinations; how many there are.
        async fn find_destinations(&self, subscribers: &[Subscriber]) -> u32 {
            let mut found = 0;
            for subscriber in subscribers {
                let s_id = subscriber.s_id;
                for (sf_type, start_time, end_time) in all_hours() {
                    let input = Input::GetNewDestination { s_id, sf_type, start_time, end_time };
                    let expected = subscriber.forwards(sf_type, start_time, end_time);
                    let done = self.execute(input).await;
                    assert_eq!(done, expected.then(CommittedChanges::new), "{input:?}");
                    found += u32::from(expected);
                }
            }
            found
        }
    }

    /// All facilities, and hours from which and until which calls are forwarded.
    fn all_hours() -> impl Iterator<Item = (i32, i32, i32)> {
        let starts = (1..=TYPES).flat_map(|of| START_TIMES.map(|start_time| (of, start_time)));
        starts.flat_map(|(of, start_time)| (1..=24).map(move |end| (of, start_time, end)))
    }

    #[test]
    fn reads_find_what_was_loaded() {
        with_register(async |register| {
            for subscriber in &register.subscribers {
                let s_id = subscriber.s_id;
                let done = register.execute(Input::GetSubscriberData { s_id }).await;
                assert_eq!(done, Some(CommittedChanges::new()));
                for ai_type in 1..=TYPES {
                    let is_there = subscriber.accesses.iter().any(|of| of.ai_type == ai_type);
                    let done = register.execute(Input::GetAccessData { s_id, ai_type }).await;
                    assert_eq!(done, is_there.then(CommittedChanges::new), "{s_id} {ai_type}");
                }
            }
            let missing = Input::GetSubscriberData { s_id: SUBSCRIBERS + 1 };
            let error = execute(register.node, &missing).await.unwrap_err();
            assert!(matches!(error, TpccError::Missing { table: "subscriber", .. }), "{error}");
        });
    }

    #[test]
    fn a_new_destination_is_found_where_the_rows_say() {
        with_register(async |register| {
            let mut subscribers = register.subscribers.clone();
            let loaded = register.find_destinations(&subscribers).await;
            // Rows as they are inserted end at any hour, also before they begin.
            let mut ends = [24, 3, 17].into_iter().cycle();
            for subscriber in &mut subscribers {
                for facility in &mut subscriber.facilities {
                    let is_free = |start_time: &i32| {
                        facility.forwardings.iter().all(|row| row.start_time != *start_time)
                    };
                    let Some(start_time) = START_TIMES.into_iter().find(is_free) else { continue };
                    let end_time = ends.next().unwrap();
                    let numberx = Text::new().with("123456789012345");
                    let forwarding = Forwarding { start_time, end_time, numberx };
                    let (s_id, sf_type) = (subscriber.s_id, facility.sf_type);
                    let insert = Input::InsertCallForwarding { s_id, sf_type, forwarding };
                    assert!(register.execute(insert).await.is_some());
                    facility.forwardings.push(forwarding);
                }
            }
            let now = register.find_destinations(&subscribers).await;
            assert!(0 < loaded && loaded < now, "{loaded} and {now}");
        });
    }

    #[test]
    fn both_values_of_a_subscriber_change_or_neither() {
        with_register(async |register| {
            let mut absent = 0;
            for subscriber in &register.subscribers {
                let s_id = subscriber.s_id;
                let mut bit = subscriber.bit_1();
                for sf_type in 1..=TYPES {
                    let before = register.data_a(s_id, sf_type).await;
                    let (bit_1, data_a) = (1 - bit, before.map_or(7, |before| 255 - before));
                    let input = Input::UpdateSubscriberData { s_id, bit_1, sf_type, data_a };
                    let done = register.execute(input).await;
                    let Some(before) = before else {
                        assert_eq!(done, None, "{input:?}");
                        assert_eq!(register.subscriber(s_id).await.0, bit, "{input:?}");
                        absent += 1;
                        continue;
                    };
                    let expected: CommittedChanges = smallvec![
                        (s_id, SubscriberValue::Bit1, i64::from(bit_1 - bit)),
                        (s_id, SubscriberValue::DataA(sf_type), i64::from(data_a - before)),
                    ];
                    assert_eq!(done, Some(expected), "{input:?}");
                    bit = bit_1;
                    let now =
                        (register.subscriber(s_id).await.0, register.data_a(s_id, sf_type).await);
                    assert_eq!(now, (bit, Some(data_a)), "{input:?}");
                }
                assert_eq!(register.subscriber(s_id).await.1, subscriber.vlr_location);
            }
            assert!(absent > 10);
        });
    }

    #[test]
    fn a_location_is_that_of_the_subscriber_with_the_number() {
        with_register(async |register| {
            let loaded = &register.subscribers[12];
            let before = loaded.vlr_location;
            for (vlr_location, before) in [(4711, before), (i64::from(u32::MAX), 4711)] {
                let input = Input::UpdateLocation { s_id: 13, vlr_location };
                let expected: CommittedChanges =
                    smallvec![(13, SubscriberValue::Location, vlr_location - before)];
                assert_eq!(register.execute(input).await, Some(expected));
                assert_eq!(register.subscriber(13).await, (loaded.bit_1(), vlr_location));
            }
            let other = &register.subscribers[13];
            assert_eq!(register.subscriber(14).await, (other.bit_1(), other.vlr_location));
        });
    }

    #[test]
    fn forwardings_are_inserted_and_deleted_once() {
        with_register(async |register| {
            let (mut met, mut free, mut absent) = (0, 0, 0);
            let keys = register.subscribers.iter().flat_map(|of| {
                let starts = (1..=TYPES).flat_map(|of| START_TIMES.map(|start| (of, start)));
                starts.map(move |(sf_type, start_time)| (of, sf_type, start_time))
            });
            for (of, sf_type, start_time) in keys {
                let (s_id, key) = (of.s_id, (of.s_id, sf_type, start_time));
                let value = SubscriberValue::Forwarding(sf_type, start_time);
                let numberx = Text::new().with("000000000000042");
                let forwarding = Forwarding { start_time, end_time: 23, numberx };
                let insert = Input::InsertCallForwarding { s_id, sf_type, forwarding };
                let delete = Input::DeleteCallForwarding { s_id, sf_type, start_time };
                let inserted: Option<CommittedChanges> =
                    Some(smallvec![(s_id, value, 32 * 42 + 23)]);
                let Some(facility) = of.facilities.iter().find(|of| of.sf_type == sf_type) else {
                    assert_eq!(register.execute(insert).await, None, "{key:?}");
                    assert_eq!(register.execute(delete).await, None, "{key:?}");
                    assert_eq!(register.forwarding(key).await, None, "{key:?}");
                    absent += 1;
                    continue;
                };
                let loaded = facility.forwardings.iter().find(|row| row.start_time == start_time);
                if let Some(loaded) = loaded {
                    let there = Some((loaded.end_time, loaded.numberx.as_str().to_owned()));
                    assert_eq!(register.execute(insert).await, None, "{key:?} is there");
                    assert_eq!(register.forwarding(key).await, there, "{key:?}");
                    let gone = -destination(loaded.end_time, &loaded.numberx);
                    let deleted: CommittedChanges = smallvec![(s_id, value, gone)];
                    assert_eq!(register.execute(delete).await, Some(deleted), "{key:?}");
                    assert_eq!(register.forwarding(key).await, None, "{key:?}");
                    met += 1;
                } else {
                    free += 1;
                }
                assert_eq!(register.execute(delete).await, None, "{key:?} is not there");
                assert_eq!(register.execute(insert).await, inserted, "{key:?}");
                let there = Some((23, "000000000000042".to_owned()));
                assert_eq!(register.forwarding(key).await, there, "{key:?}");
            }
            assert!(met > 20 && free > 20 && absent > 20, "{met}, {free}, {absent}");
            let ledger = &register.ledger;
            assert_eq!((ledger.inserted(), ledger.deleted()), (met + free, met));
        });
    }
}
