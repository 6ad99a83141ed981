//! What a session keeps under names from one statement to the next: prepared statements and
//! cursors. Portals of the protocol have their names among those of cursors.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::motion::{Direction, Motion, Place};
use super::prepared::Prepared;
use crate::bind::{NewCursor, OutputColumn};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::{MemoryLimits, RowStore, RowWriter, StoreMemory};
use crate::system::{KeptCursor, KeptStatement};
use crate::types::object_names::Names;

/// Most prepared statements of a session, and most cursors.
const MOST_NAMED: usize = 10_000;

/// All that a session keeps under names.
#[derive(Default)]
pub(super) struct Kept {
    statements: Mutex<BTreeMap<String, NamedStatement>>,
    cursors: Mutex<Cursors>,
    /// What the rows of the cursors take.
    memory: Arc<StoreMemory>,
}

/// A prepared statement.
struct NamedStatement {
    prepared: Prepared,
    /// The text that has prepared it.
    text: Arc<str>,
    prepared_at: i64,
    /// Whether by PREPARE.
    is_from_sql: bool,
    runs: u64,
}

#[derive(Default)]
struct Cursors {
    open: BTreeMap<String, Named>,
    /// How many savepoints were ever set.
    savepoints: u64,
    /// Portals that a statement has closed, until their owner asks for them.
    closed: Vec<String>,
}

/// A cursor, or a portal of the protocol.
struct Named {
    text: Arc<str>,
    opened_at: i64,
    /// How many savepoints were set before.
    savepoints: u64,
    is_scrollable: bool,
    is_holdable: bool,
    /// Whether the transaction that has opened it has committed.
    is_held: bool,
    /// `None` of a portal, whose owner has it.
    rows: Option<Arc<Mutex<Cursor>>>,
}

/// The rows of a cursor.
pub(super) struct Cursor {
    pub(super) columns: Arc<[OutputColumn]>,
    pub(super) rows: RowStore,
    position: u64,
    is_scrollable: bool,
    has_failed: bool,
    /// By which names of the catalogue are printed.
    pub(super) names: Names,
}

impl Cursor {
    /// The rows of a direction. The cursor has failed, and is of no use from then on, if it cannot
    /// go there.
    pub(super) fn motion(
        &mut self,
        name: &str,
        direction: Direction,
        is_move: bool,
    ) -> SqlResult<Motion> {
        if self.has_failed {
            let message = format!("portal \"{name}\" cannot be run");
            return Err(SqlError::new(SqlState::OBJECT_NOT_READY, message));
        }
        let (position, is_scrollable) = (self.position, self.is_scrollable);
        let place = Place { position, rows: self.rows.len(), is_scrollable };
        let motion = place.motion(direction, is_move);
        self.has_failed = motion.is_err();
        motion
    }

    pub(super) fn move_to(&mut self, position: u64) {
        self.position = position;
    }
}

/// No statement has such a name.
fn no_statement(name: &str) -> SqlError {
    let message = format!("prepared statement \"{name}\" does not exist");
    SqlError::new(SqlState::INVALID_STATEMENT_NAME, message)
}

/// No cursor has such a name.
fn no_cursor(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_CURSOR, format!("cursor \"{name}\" does not exist"))
}

fn check_count(count: usize, what: &str) -> SqlResult<()> {
    if count < MOST_NAMED {
        return Ok(());
    }
    let message = format!("the session has too many {what} (allowed: {MOST_NAMED})");
    Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message))
}

impl Kept {
    /// An error if there is a statement of a name, or too many.
    pub(super) fn check_new_statement(&self, name: &str) -> SqlResult<()> {
        let statements = self.statements.lock();
        if statements.contains_key(name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(SqlError::new(SqlState::DUPLICATE_PREPARED, message));
        }
        check_count(statements.len(), "prepared statements")
    }

    /// Keeps a statement.
    pub(super) fn keep_statement(
        &self,
        name: &str,
        prepared: Prepared,
        text: &Arc<str>,
        (prepared_at, is_from_sql): (i64, bool),
    ) -> SqlResult<()> {
        self.check_new_statement(name)?;
        let (text, runs) = (Arc::clone(text), 0);
        let named = NamedStatement { prepared, text, prepared_at, is_from_sql, runs };
        self.statements.lock().insert(name.to_owned(), named);
        Ok(())
    }

    /// The statement of a name.
    ///
    /// # Errors
    /// 26000 if there is none.
    pub(super) fn statement(&self, name: &str) -> SqlResult<Prepared> {
        let statements = self.statements.lock();
        statements.get(name).map(|own| own.prepared.clone()).ok_or_else(|| no_statement(name))
    }

    /// Counts a run of a statement.
    pub(super) fn note_run(&self, name: &str) {
        if let Some(found) = self.statements.lock().get_mut(name) {
            found.runs += 1;
        }
    }

    /// Forgets a statement, or all.
    pub(super) fn forget_statement(&self, name: Option<&str>) -> SqlResult<()> {
        let mut statements = self.statements.lock();
        match name {
            None => statements.clear(),
            Some(name) => drop(statements.remove(name).ok_or_else(|| no_statement(name))?),
        }
        Ok(())
    }

    /// An error if there is a cursor of a name, or too many.
    pub(super) fn check_new_cursor(&self, name: &str) -> SqlResult<()> {
        self.cursors.lock().check_new(name)
    }

    /// Where rows of a cursor come.
    pub(super) fn new_store(&self, limits: &MemoryLimits) -> RowWriter {
        RowWriter::new(&self.memory, limits)
    }

    /// Opens a cursor on rows.
    pub(super) fn open(
        &self,
        new: &NewCursor,
        (text, opened_at): (&Arc<str>, i64),
        (columns, rows, names): (&Arc<[OutputColumn]>, RowStore, Names),
    ) -> SqlResult<()> {
        let NewCursor { name, is_scrollable, is_holdable } = new;
        let (is_scrollable, is_holdable) = (*is_scrollable, *is_holdable);
        let columns = Arc::clone(columns);
        let cursor = Cursor { columns, rows, position: 0, is_scrollable, has_failed: false, names };
        let rows = Some(Arc::new(Mutex::new(cursor)));
        let text = Arc::clone(text);
        self.cursors.lock().add(
            name,
            Named {
                text,
                opened_at,
                savepoints: 0,
                is_scrollable,
                is_holdable,
                is_held: false,
                rows,
            },
        )
    }

    /// Enters the name of a portal.
    pub(super) fn enter_portal(&self, name: &str, text: Arc<str>, opened_at: i64) -> SqlResult<()> {
        self.cursors.lock().add(
            name,
            Named {
                text,
                opened_at,
                savepoints: 0,
                is_scrollable: false,
                is_holdable: false,
                is_held: false,
                rows: None,
            },
        )
    }

    /// The rows of a cursor.
    ///
    /// # Errors
    /// 34000 if there is none of that name; 0A000 if it is a portal.
    pub(super) fn cursor(&self, name: &str) -> SqlResult<Arc<Mutex<Cursor>>> {
        let cursors = self.cursors.lock();
        let found = cursors.open.get(name).ok_or_else(|| no_cursor(name))?;
        let rows = found.rows.as_ref();
        rows.cloned().ok_or_else(|| SqlError::unsupported("FETCH and MOVE of a portal"))
    }

    /// Closes a cursor, or all.
    pub(super) fn close(&self, name: Option<&str>) -> SqlResult<()> {
        let mut cursors = self.cursors.lock();
        let names = match name {
            Some(name) if cursors.open.contains_key(name) => vec![name.to_owned()],
            Some(name) => return Err(no_cursor(name)),
            None => cursors.open.keys().cloned().collect(),
        };
        for name in names {
            let is_portal = cursors.open.remove(&name).is_some_and(|own| own.rows.is_none());
            if is_portal {
                cursors.closed.push(name);
            }
        }
        Ok(())
    }

    /// Forgets the name of a portal, if there is one.
    pub(super) fn leave(&self, name: &str) {
        let open = &mut self.cursors.lock().open;
        if open.get(name).is_some_and(|own| own.rows.is_none()) {
            open.remove(name);
        }
    }

    /// The portals that statements have closed since this was asked last.
    pub(super) fn take_closed(&self) -> Vec<String> {
        std::mem::take(&mut self.cursors.lock().closed)
    }

    /// So many savepoints have been set.
    pub(super) fn note_savepoint(&self, number: u64) {
        self.cursors.lock().savepoints = number;
    }

    /// Closes what was opened behind a savepoint.
    pub(super) fn return_to(&self, savepoint: u64) {
        self.cursors.lock().open.retain(|_, own| own.is_held || own.savepoints < savepoint);
    }

    /// A transaction has ended. What stays is what it was to leave, if it has committed.
    pub(super) fn end_transaction(&self, has_failed: bool) {
        let mut cursors = self.cursors.lock();
        if cursors.open.is_empty() {
            return;
        }
        cursors.open.retain(|_, own| own.is_held || own.is_holdable && !has_failed);
        cursors.open.values_mut().for_each(|own| own.is_held = true);
    }

    /// The statements, as the catalogue shows them.
    pub(super) fn shown_statements(&self) -> Vec<KeptStatement> {
        let shown = |(name, own): (&String, &NamedStatement)| KeptStatement {
            name: name.clone(),
            text: Arc::clone(&own.text),
            prepared_at: own.prepared_at,
            types: own.prepared.parameters().to_vec(),
            is_from_sql: own.is_from_sql,
            runs: own.runs,
        };
        self.statements.lock().iter().map(shown).collect()
    }

    /// The cursors and portals, as the catalogue shows them.
    pub(super) fn shown_cursors(&self) -> Vec<KeptCursor> {
        let shown = |(name, own): (&String, &Named)| KeptCursor {
            name: name.clone(),
            text: Arc::clone(&own.text),
            is_holdable: own.is_holdable,
            is_scrollable: own.is_scrollable,
            opened_at: own.opened_at,
        };
        self.cursors.lock().open.iter().map(shown).collect()
    }
}

impl Cursors {
    fn check_new(&self, name: &str) -> SqlResult<()> {
        if self.open.contains_key(name) {
            let message = format!("cursor \"{name}\" already exists");
            return Err(SqlError::new(SqlState::DUPLICATE_CURSOR, message));
        }
        check_count(self.open.len(), "cursors and portals")
    }

    fn add(&mut self, name: &str, new: Named) -> SqlResult<()> {
        self.check_new(name)?;
        let savepoints = self.savepoints;
        self.open.insert(name.to_owned(), Named { savepoints, ..new });
        Ok(())
    }
}
