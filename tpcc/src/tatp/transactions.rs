//! The seven transactions.
//!
//! Each says what it has changed, or that it failed as the description has it: then what it had changed is rolled back.
//! A conflict comes back as a retryable error with everything rolled back.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use selkie_txn::{Direction, KeyRange, Txn, TxnError, key};
use smallvec::SmallVec;

use super::config::Config;
use super::input::{Input, Inputs};
use super::kind::Kind;
use super::ledger::Value;
use super::rows::{Forwarding, destination, number};
use super::schema::{Tables, columns as c};
use crate::benchmark::Place;
use crate::cluster::Node;
use crate::error::TpccError;
use crate::random::{Random, Text};
use crate::run::{Outcome, Terminal};
use crate::transactions::missing;

/// What a committed transaction did: to which value of a subscriber it added how much.
pub(super) type Done = SmallVec<[(i32, Value, i64); 2]>;

/// A worker.
pub(super) struct Register<'a> {
    pub(super) place: Place<'a, Config>,
    pub(super) inputs: Inputs,
}

impl Terminal for Register<'_> {
    type Kind = Kind;

    fn random(&mut self) -> &mut Random {
        &mut self.inputs.random
    }

    async fn transact(
        &mut self,
        kind: Kind,
        _started: Duration,
        attempts: &AtomicU64,
    ) -> Result<Outcome, TpccError> {
        let (input, place) = (self.inputs.draw(kind), &self.place);
        let execute = || execute(place.node, &input);
        place.transact(kind, attempts, execute, |done| place.ledger.note(&done)).await
    }
}

/// Runs a transaction; nothing if it failed, and was rolled back.
pub(super) async fn execute(node: &Node<Tables>, input: &Input) -> Result<Option<Done>, TpccError> {
    let mut work = Work { node, txn: node.db.begin(), done: Done::new() };
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
struct Work<'a> {
    node: &'a Node<Tables>,
    txn: Txn<'a>,
    done: Done,
}

impl Work<'_> {
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
        self.done.push((s_id, Value::Bit1, i64::from(bit_1) - i64::from(before)));
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
        self.done.push((s_id, Value::DataA(sf_type), i64::from(data_a) - i64::from(before)));
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
        self.done.push((s_id, Value::Location, vlr_location.wrapping_sub(before)));
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
        let value = Value::Forwarding(sf_type, forwarding.start_time);
        self.done.push((s_id, value, forwarding.destination()));
        Ok(true)
    }

    /// Deletes a row, and reads before what the ledger needs of it: on the leaf that deleting it latches too.
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
        self.done.push((s_id, Value::Forwarding(sf_type, start_time), -destination));
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
