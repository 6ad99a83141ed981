//! Statements: prepared, run, and read row by row.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use selkie::block_on;
use selkie::sql::{self, Datum, Row, RowStream, SqlState, ToSql};

use crate::call::{Failure, SELKIE_DONE, SELKIE_OK, SELKIE_ROW, call};
use crate::connection::Connection;
use crate::lent;
use crate::pointer::{Place, array, text};
use crate::registry::{self, Object};

/// A prepared statement, and its rows.
#[derive(Debug)]
pub struct Statement {
    _private: (),
}

/// What a statement handle stands for.
pub(crate) struct Running {
    connection: Arc<lent::Place>,
    pub(crate) statement: sql::Statement,
    /// The names of its columns.
    pub(crate) names: Vec<CString>,
    state: Mutex<State>,
}

/// How far a statement is.
#[derive(Default)]
pub(crate) struct State {
    /// Values of parameters; `None` of those that have none yet.
    pub(crate) values: Vec<Option<Datum>>,
    /// `None` before the first step, and at the end.
    rows: Option<RowStream<'static>>,
    progress: Progress,
    affected: u64,
    /// The present row.
    pub(crate) row: Option<Row>,
    /// Texts of its columns that the program has, by their index.
    texts: BTreeMap<usize, CString>,
}

/// Whether a statement may be stepped.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Progress {
    /// It runs, or has not begun.
    #[default]
    Open,
    /// It has given all its rows.
    Done,
    /// A step has failed.
    Failed,
    /// It was finalized, while a thread looked its handle up.
    Finalized,
}

impl Running {
    fn prepare(connection: Arc<lent::Place>, sql: &str) -> Result<Self, Failure> {
        let mut lent = connection.lend()?;
        let statement = block_on(lent.prepare(sql))?;
        drop(lent);
        let names = statement.columns().iter().map(|own| c_text(&own.name));
        let names = names.collect::<Result<_, _>>()?;
        let values = vec![None; statement.parameters().len()];
        let state = Mutex::new(State { values, ..State::default() });
        Ok(Self { connection, statement, names, state })
    }

    /// How far it is, for one thread.
    pub(crate) fn state(&self) -> Result<MutexGuard<'_, State>, Failure> {
        let in_use = || Failure::in_use("the statement is in use by another thread");
        let state = self.state.try_lock().ok_or_else(in_use)?;
        if state.progress == Progress::Finalized {
            return Err(registry::unknown::<Arc<Self>>());
        }
        Ok(state)
    }

    /// Sets a value, by its number from 1.
    pub(crate) fn bind(&self, number: usize, value: &dyn ToSql) -> Result<(), Failure> {
        let mut state = self.state()?;
        if state.rows.is_some() || state.progress != Progress::Open {
            return Err(Failure::new(
                SqlState::OBJECT_NOT_READY,
                "the statement has run: reset it before values are set",
            ));
        }
        let types = self.statement.parameters();
        let at = number.checked_sub(1);
        let place = at.and_then(|at| types.get(at).zip(state.values.get_mut(at)));
        let (ty, place) = place.ok_or_else(|| {
            let message = format!("there is no parameter {number}; there are {}", types.len());
            Failure::new(SqlState::UNDEFINED_PARAMETER, message)
        })?;
        let failed = |source| sql::QueryError::Parameter { number, source };
        *place = Some(value.to_sql(*ty).map_err(failed)?);
        Ok(())
    }

    fn begin(&self, state: &State) -> Result<RowStream<'static>, Failure> {
        let mut values: Vec<&(dyn ToSql + Sync)> = Vec::with_capacity(state.values.len());
        for (at, value) in state.values.iter().enumerate() {
            values.push(value.as_ref().ok_or_else(|| {
                let message = format!("parameter {} has no value", at + 1);
                Failure::new(SqlState::UNDEFINED_PARAMETER, message)
            })?);
        }
        Ok(RowStream::over(self.connection.lend()?, &self.statement, &values)?)
    }

    fn step(&self) -> Result<i32, Failure> {
        let mut state = self.state()?;
        (state.row, state.texts) = (None, BTreeMap::new());
        match state.progress {
            Progress::Open => {}
            Progress::Done => return Ok(SELKIE_DONE),
            Progress::Failed | Progress::Finalized => {
                return Err(Failure::new(
                    SqlState::OBJECT_NOT_READY,
                    "the statement has failed: reset it before it runs again",
                ));
            }
        }
        let mut rows = match state.rows.take() {
            Some(rows) => rows,
            None => self.begin(&state)?,
        };
        // If this fails or panics, the statement is over.
        state.progress = Progress::Failed;
        match block_on(rows.next())? {
            Some(row) => {
                state.progress = Progress::Open;
                (state.row, state.rows) = (Some(row), Some(rows));
                Ok(SELKIE_ROW)
            }
            None => {
                (state.progress, state.affected) = (Progress::Done, rows.affected());
                Ok(SELKIE_DONE)
            }
        }
    }

    /// Ends what runs. Values stay.
    fn reset(&self) -> Result<(), Failure> {
        let mut state = self.state()?;
        let values = std::mem::take(&mut state.values);
        let before = std::mem::replace(&mut *state, State { values, ..State::default() });
        before.finish()
    }

    /// Ends what runs, and the handle.
    fn finalize(&self, handle: *const Statement) -> Result<(), Failure> {
        let mut state = self.state()?;
        // No other thread gets between both: what it has looked up is finalized.
        let _: Arc<Self> = registry::remove(handle)?;
        let finalized = State { progress: Progress::Finalized, ..State::default() };
        let before = std::mem::replace(&mut *state, finalized);
        drop(state);
        before.finish()
    }
}

/// Prepares a statement with parameters `$1`, `$2` and so on. It has to be finalized.
///
/// # Safety
/// `sql` is NULL or a text; `statement` is NULL or a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selkie_prepare(
    connection: *mut Connection,
    sql: *const c_char,
    statement: *mut *mut Statement,
) -> i32 {
    call(|| {
        // SAFETY: the caller says so.
        let place = unsafe { Place::new(statement, "statement", ptr::null_mut()) }?;
        // SAFETY: the caller says so.
        let sql = unsafe { text(sql, "sql") }?;
        let running = Running::prepare(registry::find(connection)?, sql)?;
        place.put(registry::enter(Object::Statement(Arc::new(running))));
        Ok(SELKIE_OK)
    })
}

/// Prepares a statement and sets the values of its `count` parameters, as texts; NULL is NULL. It
/// runs with the first `selkie_step`, and has to be finalized.
///
/// # Safety
/// `sql` is NULL or a text; `values` is NULL or points to `count` pointers, each NULL or a text;
/// `statement` is NULL or a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selkie_query(
    connection: *mut Connection,
    sql: *const c_char,
    count: usize,
    values: *const *const c_char,
    statement: *mut *mut Statement,
) -> i32 {
    call(|| {
        // SAFETY: the caller says so.
        let place = unsafe { Place::new(statement, "statement", ptr::null_mut()) }?;
        // SAFETY: the caller says so.
        let sql = unsafe { text(sql, "sql") }?;
        // SAFETY: the caller says so.
        let values = unsafe { array(values, count, "values") }?;
        let running = Running::prepare(registry::find(connection)?, sql)?;
        let wanted = running.statement.parameters().len();
        if wanted != count {
            return Err(sql::QueryError::ParameterCount { wanted, given: count }.into());
        }
        for (at, value) in values.iter().enumerate() {
            let value = match value.is_null() {
                true => None,
                // SAFETY: the caller says so.
                false => Some(unsafe { text(*value, "values") }?),
            };
            running.bind(at + 1, &value)?;
        }
        place.put(registry::enter(Object::Statement(Arc::new(running))));
        Ok(SELKIE_OK)
    })
}

/// Runs a statement up to its next row: `SELKIE_ROW`, or `SELKIE_DONE` when there is none. What
/// changes rows without RETURNING has done so then, and has committed if it is in no transaction of
/// the connection. Further steps give `SELKIE_DONE`, until a reset. If it fails while it runs,
/// further steps fail with 55000, until a reset. Between steps no limit, as `statement_timeout`,
/// ends the statement: rows that nobody reads keep its snapshot and its locks.
#[unsafe(no_mangle)]
pub extern "C" fn selkie_step(statement: *mut Statement) -> i32 {
    call(|| {
        let running: Arc<Running> = registry::find(statement)?;
        running.step()
    })
}

/// Ends what a statement runs, so that it may run again. Its values stay. Rows that are left are
/// not read: a query stops there, what changes rows goes on to its end, which may fail.
#[unsafe(no_mangle)]
pub extern "C" fn selkie_reset(statement: *mut Statement) -> i32 {
    call(|| {
        let running: Arc<Running> = registry::find(statement)?;
        running.reset().map(|()| SELKIE_OK)
    })
}

/// Ends a statement, as `selkie_reset`. The handle is none any more, also if this fails; unless
/// another thread uses the statement (55006).
#[unsafe(no_mangle)]
pub extern "C" fn selkie_finalize(statement: *mut Statement) -> i32 {
    call(|| {
        let running: Arc<Running> = registry::find(statement)?;
        running.finalize(statement).map(|()| SELKIE_OK)
    })
}

/// How many rows a statement has changed, or given, once `selkie_step` gave `SELKIE_DONE`; 0
/// before.
///
/// # Safety
/// `affected` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selkie_affected(statement: *mut Statement, affected: *mut u64) -> i32 {
    call(|| {
        // SAFETY: the caller says so.
        let place = unsafe { Place::new(affected, "affected", 0) }?;
        let running: Arc<Running> = registry::find(statement)?;
        let count = running.state()?.affected;
        place.put(count);
        Ok(SELKIE_OK)
    })
}

/// A text as C has it.
fn c_text(text: &str) -> Result<CString, Failure> {
    CString::new(text).map_err(|_| {
        let message = "the text has the character 0";
        Failure::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message)
    })
}

impl State {
    /// Ends what runs.
    fn finish(self) -> Result<(), Failure> {
        if let Some(rows) = self.rows {
            block_on(rows.finish())?;
        }
        Ok(())
    }

    /// The text of a column of the present row, kept with the row.
    pub(crate) fn text(&mut self, index: usize, text: &str) -> Result<&CStr, Failure> {
        // The bytes of a text stay where they are when the map changes.
        Ok(match self.texts.entry(index) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(c_text(text)?),
        })
    }
}
