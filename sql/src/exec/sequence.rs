//! Values of sequences.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use selkie_fabric::BoxFuture;
use selkie_txn::{SequenceError, TxnError};

use super::context::{ExecContext, Operator, Row};
use super::txn_error::from_txn;
use crate::catalogue::name_of;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{SequenceCall, SequenceFunction};
use crate::roles::{Kind, Privileges, no_privilege};
use crate::schemas::{names_of_text, no_schema};
use crate::types::Datum;

/// Values of sequences that a session has had. A rollback does not change it.
#[derive(Debug, Default)]
pub(crate) struct SequenceMemory {
    values: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// By the name of the sequence in the catalogue.
    values: HashMap<String, i64, RandomState>,
    /// What `nextval` gave last.
    last: Option<i64>,
}

/// A value of a sequence, as a row.
pub(crate) struct Sequence {
    call: Option<Box<SequenceCall>>,
}

impl Sequence {
    pub(crate) fn new(call: &SequenceCall) -> Self {
        Self { call: Some(Box::new(call.clone())) }
    }
}

impl Operator for Sequence {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            let Some(call) = self.call.take() else { return Ok(None) };
            let value = match context.holds(call.when.as_ref(), &[])? {
                true => value_of(&call, context).await?,
                false => Datum::Null,
            };
            Ok(Some(vec![vec![value]]))
        })
    }
}

async fn value_of(call: &SequenceCall, context: &mut ExecContext<'_, '_>) -> SqlResult<Datum> {
    let arguments = context.eval_all(&call.arguments, &[])?;
    if call.function == SequenceFunction::Last {
        let last = context.sequences.values.lock().last;
        return last.map(Datum::I64).ok_or_else(|| not_defined("lastval".to_owned()));
    }
    if arguments.iter().any(Datum::is_null) {
        return Ok(Datum::Null);
    }
    let Some(Datum::Text(name)) = arguments.first() else {
        return Err(SqlError::internal("the name of a sequence is no text"));
    };
    let keys = match &call.keys {
        Some(keys) => keys.clone(),
        None => {
            let parts = names_of_text(name)?;
            if let ([schema, _], Some(authority)) = (&*parts, context.authority)
                && let Some(own) = context.path.schema(schema)
            {
                authority.require(Privileges::USAGE, Kind::Schema, schema, &own.rights)?;
            }
            context.path.keys_of(&parts)?
        }
    };
    let key = found_key(keys, name, context).await?;
    match value_by(call, &key, &arguments, context).await {
        // As it was called.
        Err(error) if error.state() == SqlState::UNDEFINED_TABLE => {
            Err(no_sequence(&names_of_text(name)?.join(".")))
        }
        value => value,
    }
}

async fn value_by(
    call: &SequenceCall,
    key: &str,
    arguments: &[Datum],
    context: &mut ExecContext<'_, '_>,
) -> SqlResult<Datum> {
    if !call.is_identity {
        check(call.function, key, context).await?;
    }
    match call.function {
        SequenceFunction::Next => context.check_writes("nextval()")?,
        SequenceFunction::Set => context.check_writes("setval()")?,
        SequenceFunction::Current | SequenceFunction::Last => {}
    }
    let value = match call.function {
        SequenceFunction::Next => next(key, context).await?,
        SequenceFunction::Current => {
            context.txn.sequence(key).await.map_err(|error| sequence_error(error, key))?;
            let known = context.sequences.values.lock().values.get(key).copied();
            known.ok_or_else(|| not_defined(format!("currval of sequence \"{}\"", name_of(key))))?
        }
        SequenceFunction::Last | SequenceFunction::Set => set(key, arguments, context).await?,
    };
    Ok(Datum::I64(value))
}

/// The name of a sequence in the catalogue, of those that it may have. It is not looked for where
/// there is only one.
async fn found_key(
    mut keys: Vec<String>,
    name: &str,
    context: &mut ExecContext<'_, '_>,
) -> SqlResult<String> {
    let Some(last) = keys.pop() else {
        return Err(match &*names_of_text(name)? {
            [schema, _] => no_schema(schema),
            _ => no_sequence(name),
        });
    };
    for key in keys {
        match context.txn.sequence(&key).await {
            Ok(_) => return Ok(key),
            Err(TxnError::Sequence(SequenceError::NoSuchSequence { .. })) => {}
            Err(error) => return Err(from_txn(error, None)),
        }
    }
    Ok(last)
}

/// Refuses a call whose role has no privilege of the sequence for it.
async fn check(
    function: SequenceFunction,
    key: &str,
    context: &mut ExecContext<'_, '_>,
) -> SqlResult<()> {
    let Some(authority) = context.authority else { return Ok(()) };
    let Some(roles) = authority.roles() else { return Ok(()) };
    // One that is not there is named as such.
    context.txn.sequence(key).await.map_err(|error| sequence_error(error, key))?;
    let held = authority.held(Kind::Sequence, &roles.sequence(key));
    let wanted = match function {
        SequenceFunction::Next => Privileges::USAGE.with(Privileges::UPDATE),
        SequenceFunction::Current | SequenceFunction::Last => {
            Privileges::USAGE.with(Privileges::SELECT)
        }
        SequenceFunction::Set => Privileges::UPDATE,
    };
    if held.and(wanted).is_empty() {
        Err(no_privilege(Kind::Sequence, name_of(key)))
    } else {
        Ok(())
    }
}

async fn next(key: &str, context: &mut ExecContext<'_, '_>) -> SqlResult<i64> {
    let value = context.txn.next_value(key).await;
    let value = value.map_err(|error| sequence_error(error, key))?;
    let mut known = context.sequences.values.lock();
    known.values.insert(key.to_owned(), value);
    known.last = Some(value);
    Ok(value)
}

/// Sets what comes next, as a change of the transaction.
async fn set(key: &str, arguments: &[Datum], context: &mut ExecContext<'_, '_>) -> SqlResult<i64> {
    let Some(Datum::I64(value)) = arguments.get(1) else {
        return Err(SqlError::internal("the value of a sequence is no number"));
    };
    let is_called = !matches!(arguments.get(2), Some(Datum::Bool(false)));
    let schema = context.txn.sequence(key).await.map_err(|error| sequence_error(error, key))?;
    let (min, max, name) = (schema.min, schema.max, name_of(key));
    if !(min..=max).contains(value) {
        let message = format!(
            "setval: value {value} is out of bounds for sequence \"{name}\" ({min}..{max})"
        );
        return Err(SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, message));
    }
    let set = context.txn.alter_sequence(key, |_| {}, Some(*value)).await;
    set.map_err(|error| sequence_error(error, key))?;
    if is_called {
        // The sequence is one of this transaction now, and the value is the next.
        context.txn.next_value(key).await.map_err(|error| sequence_error(error, key))?;
        context.sequences.values.lock().values.insert(key.to_owned(), *value);
    }
    Ok(*value)
}

fn no_sequence(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))
}

fn not_defined(what: String) -> SqlError {
    let message = format!("{what} is not yet defined in this session");
    SqlError::new(SqlState::OBJECT_NOT_READY, message)
}

fn sequence_error(error: TxnError, key: &str) -> SqlError {
    match error {
        TxnError::Sequence(SequenceError::NoSuchSequence { .. }) => no_sequence(name_of(key)),
        TxnError::Sequence(SequenceError::Exhausted { last, .. }) => {
            let bound = if last < 0 { "minimum" } else { "maximum" };
            let name = name_of(key);
            let message = format!("nextval: reached {bound} value of sequence \"{name}\" ({last})");
            SqlError::new(SqlState::SEQUENCE_EXHAUSTED, message)
        }
        error => from_txn(error, None),
    }
}
