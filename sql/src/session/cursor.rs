//! Cursors: DECLARE, FETCH, MOVE, CLOSE.
//!
//! DECLARE runs the query to its end and keeps the rows: a cursor shows what there was when it was
//! declared, whatever the transaction does afterwards, and FETCH needs no transaction.

use std::sync::Arc;

use sqlparser::ast::{FetchDirection, FetchPosition, Ident};

use super::Session;
use super::kept::Cursor;
use super::motion::Direction;
use super::parsed::Planned;
use super::prepared::Prepared;
use super::run::Run;
use crate::bind::{NewCursor, OutputColumn, fold, is_name};
use crate::client::Client;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::{Batch, ExecContext, Operator, Row};
use crate::types::object_names::Names;

impl Run {
    /// DECLARE: keeps the rows of a query.
    pub(super) async fn declare(
        &self,
        operator: &mut dyn Operator,
        context: &mut ExecContext<'_, '_>,
        planned: &Planned,
        new: &NewCursor,
    ) -> SqlResult<()> {
        if self.is_alone && !new.is_holdable {
            let message = "DECLARE CURSOR can only be used in transaction blocks";
            return Err(SqlError::new(SqlState::NO_ACTIVE_TRANSACTION, message));
        }
        self.kept.check_new_cursor(&new.name)?;
        let mut rows = self.kept.new_store(context.limits);
        while let Some(batch) = operator.next(context).await? {
            batch.into_iter().try_for_each(|row| rows.push(row))?;
        }
        let shows_names = planned.columns.iter().any(|own| is_name(own.ty));
        let names = if shows_names { self.settings.format.names.clone() } else { Names::default() };
        let text = (&self.work.parsed.sql, context.call.statement_start);
        self.kept.open(new, text, (&planned.columns, rows.finish()?, names))
    }
}

impl Session {
    /// The columns of a cursor that FETCH reads; none of MOVE, or if there is no such cursor.
    pub(super) fn fetched_columns(
        &self,
        name: &Ident,
        position: &FetchPosition,
    ) -> Vec<OutputColumn> {
        match position {
            FetchPosition::In => Vec::new(),
            FetchPosition::From => self.cursor_columns(&fold(name)).unwrap_or_default(),
        }
    }

    /// The columns of a cursor; `None` if there is none of that name.
    #[must_use]
    pub fn cursor_columns(&self, name: &str) -> Option<Vec<OutputColumn>> {
        let cursor = self.kept.cursor(name).ok()?;
        let columns = cursor.lock().columns.to_vec();
        Some(columns)
    }

    /// FETCH, and MOVE, which has the word IN. What it says in the end.
    pub(super) async fn fetch(
        &self,
        name: &Ident,
        direction: &FetchDirection,
        position: &FetchPosition,
        client: &Arc<dyn Client>,
    ) -> SqlResult<String> {
        let cursor = self.kept.cursor(&fold(name))?;
        let direction = Direction::of(direction)?;
        let is_move = matches!(position, FetchPosition::In);
        let motion = {
            let mut own = cursor.lock();
            let motion = own.motion(&fold(name), direction, is_move)?;
            own.move_to(motion.position);
            if !is_move {
                let mut format = self.settings.format.clone();
                format.names = own.names.clone();
                client.begin(&own.columns, &format);
            }
            motion
        };
        if is_move {
            client.begin(&Arc::default(), &self.settings.format);
            return Ok(format!("MOVE {}", motion.rows));
        }
        let given = async {
            let number = |at: u64| match motion.is_backward {
                true => motion.first - at,
                false => motion.first + at,
            };
            let mut numbers = (0..motion.rows).map(number);
            loop {
                let batch = batch_of(&mut cursor.lock(), &mut numbers)?;
                let Some(rows) = batch else { return Ok(()) };
                client.rows(rows).await?;
            }
        };
        self.unless_ended(given).await??;
        Ok(format!("FETCH {}", motion.rows))
    }

    /// Gives the next rows of a cursor to a client, as the protocol runs a portal: at most so many,
    /// all for 0. How many there were.
    ///
    /// # Errors
    /// 34000 if there is no such cursor; errors of the client.
    pub async fn fetch_next(
        &mut self,
        name: &str,
        most: u32,
        client: &Arc<dyn Client>,
    ) -> SqlResult<u64> {
        let name = Ident::with_quote('"', name);
        let limit = sqlparser::ast::Value::Number(most.to_string(), false);
        let direction = match i32::try_from(most) {
            Ok(1..) => FetchDirection::Forward { limit: Some(limit.into()) },
            _ => FetchDirection::ForwardAll,
        };
        let tag = self.fetch(&name, &direction, &FetchPosition::From, client).await?;
        Ok(tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0))
    }

    /// Enters the name of a portal of the protocol beside those of cursors, until
    /// [`leave_portal`](Self::leave_portal), CLOSE, or the end of the transaction.
    ///
    /// # Errors
    /// 42P03 if there is a cursor or portal of that name; 54000 if there are too many.
    pub fn enter_portal(&self, name: &str, prepared: &Prepared) -> SqlResult<()> {
        self.kept.enter_portal(name, prepared.text(), (self.clock)())
    }

    /// Closes a cursor. Nothing if there is none of that name.
    pub fn close_cursor(&self, name: &str) {
        if self.kept.cursor(name).is_ok() {
            // It is there.
            let _ = self.kept.close(Some(name));
        }
    }

    /// Forgets the name of a portal. Nothing if there is none.
    pub fn leave_portal(&self, name: &str) {
        self.kept.leave(name);
    }

    /// The names of portals that CLOSE has closed since this was asked last.
    #[must_use]
    pub fn take_closed_portals(&self) -> Vec<String> {
        self.kept.take_closed()
    }
}

/// The next rows by their numbers from 1, as many as are given at a time; `None` behind the last.
fn batch_of(
    cursor: &mut Cursor,
    numbers: &mut impl Iterator<Item = u64>,
) -> SqlResult<Option<Vec<Row>>> {
    let missing = || SqlError::internal("a cursor has lost a row");
    let mut batch = Batch::default();
    while batch.has_room()
        && let Some(number) = numbers.next()
    {
        let at = number.checked_sub(1).ok_or_else(missing)?;
        batch.push(cursor.rows.get(at)?.ok_or_else(missing)?);
    }
    cursor.rows.rest();
    Ok(batch.finish())
}
