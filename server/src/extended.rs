//! The extended protocol: statements that are prepared, bound to values and run.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::extendedquery::{
    BindComplete, CloseComplete, ParseComplete, PortalSuspended,
};
use pgwire::messages::response::EmptyQueryResponse;
use selkie_sql::types::FormatSettings;
use selkie_sql::types::binary_format::from_binary;
use selkie_sql::types::text_format::from_text;
use selkie_sql::{
    Client, Datum, Outcome, Prepared, Session, SqlError, SqlResult, SqlState, SqlType,
    TransactionState,
};

use crate::columns::{check_formats, description, format_of, parameter_description};
use crate::frames::SharedFrames;
use crate::frontend::{Bind, Target, violation};
use crate::output::Output;
use crate::result_rows::{ResultRows, RowEncoder, complete};

/// Most statements, and most portals, of a connection.
const MOST_NAMED: usize = 10_000;

/// The statements that a client has prepared, by their names: DEALLOCATE forgets some.
pub(crate) type SharedStatements = Arc<Mutex<HashMap<String, Prepared>>>;

/// The statements that a client has prepared, and those that it has bound.
#[derive(Default)]
pub(crate) struct Extended {
    statements: SharedStatements,
    portals: HashMap<String, Portal>,
}

/// A statement with values for its parameters.
struct Portal {
    statement: Prepared,
    /// Until it has begun to run.
    parameters: Vec<Datum>,
    /// Of the columns of its rows.
    formats: Vec<i16>,
    /// What is left of a statement that was run for some of its rows.
    rest: Option<Rest>,
}

/// Rows that the client has not asked for yet.
struct Rest {
    rows: std::vec::IntoIter<Vec<Datum>>,
    encoder: RowEncoder,
    tag: String,
}

impl Extended {
    pub(crate) async fn parse(
        &mut self,
        session: &mut Session,
        name: String,
        sql: &str,
        types: &[u32],
    ) -> SqlResult<PgWireBackendMessage> {
        if !name.is_empty() && self.statements.lock().contains_key(&name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(SqlError::new(SqlState::DUPLICATE_PREPARED, message));
        }
        check_count(self.statements.lock().len(), "prepared statements")?;
        let known = types.iter().map(|oid| match oid {
            0 => Ok(None),
            // A client that says so does not know.
            oid if *oid == SqlType::UNKNOWN.oid() => Ok(None),
            oid => SqlType::from_oid(*oid).map(Some).ok_or_else(|| {
                let message = format!("there is no type with OID {oid}");
                SqlError::new(SqlState::UNDEFINED_OBJECT, message)
            }),
        });
        let known: Vec<_> = known.collect::<SqlResult<_>>()?;
        let prepared = session.prepare(sql, &known).await?;
        self.statements.lock().insert(name, prepared);
        Ok(PgWireBackendMessage::ParseComplete(ParseComplete::new()))
    }

    pub(crate) fn bind(
        &mut self,
        session: &Session,
        bind: Bind,
    ) -> SqlResult<PgWireBackendMessage> {
        let Bind { portal, statement, formats, parameters, result_formats } = bind;
        if !portal.is_empty() && self.portals.contains_key(&portal) {
            let message = format!("cursor \"{portal}\" already exists");
            return Err(SqlError::new(SqlState::DUPLICATE_CURSOR, message));
        }
        check_count(self.portals.len(), "portals")?;
        let prepared = self.statement(&statement)?;
        let (given, wanted) = (parameters.len(), prepared.parameters().len());
        if given != wanted {
            return Err(violation(format!(
                "bind message supplies {given} parameters, but prepared statement \"{statement}\" requires {wanted}"
            )));
        }
        check_formats(&formats, given, "parameter")?;
        if !prepared.columns().is_empty() {
            check_formats(&result_formats, prepared.columns().len(), "column")?;
        }
        let settings = session.format();
        let values = parameters.iter().zip(prepared.parameters()).enumerate();
        let values = values.map(|(at, (bytes, ty))| {
            let Some(bytes) = bytes else { return Ok(Datum::Null) };
            value(bytes, *ty, format_of(&formats, at), settings)
                .map_err(|error| error.detail(format!("It is parameter ${}.", at + 1)))
        });
        let parameters = values.collect::<SqlResult<_>>()?;
        let bound = Portal { statement: prepared, parameters, formats: result_formats, rest: None };
        self.portals.insert(portal, bound);
        Ok(PgWireBackendMessage::BindComplete(BindComplete::new()))
    }

    pub(crate) fn describe(&self, target: &Target, output: &Output) -> SqlResult<()> {
        match target {
            Target::Statement(name) => {
                let statement = self.statement(name)?;
                output.send(&parameter_description(statement.parameters()));
                output.send(&description(statement.columns(), &[]));
            }
            Target::Portal(name) => {
                let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?;
                output.send(&description(portal.statement.columns(), &portal.formats));
            }
        }
        Ok(())
    }

    pub(crate) fn close(&mut self, target: &Target) -> PgWireBackendMessage {
        match target {
            Target::Statement(name) => drop(self.statements.lock().remove(name)),
            Target::Portal(name) => drop(self.portals.remove(name)),
        }
        PgWireBackendMessage::CloseComplete(CloseComplete::new())
    }

    /// Runs a portal for at most so many rows; 0 for all.
    pub(crate) async fn execute(
        &mut self,
        session: &mut Session,
        name: &str,
        most: u32,
        (output, frames): (&Arc<Output>, &SharedFrames),
    ) -> SqlResult<()> {
        let portal = self.portals.get_mut(name).ok_or_else(|| no_portal(name))?;
        if portal.statement.is_empty() {
            output.send(&PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new()));
            return Ok(());
        }
        if portal.rest.is_none() {
            let parameters = std::mem::take(&mut portal.parameters);
            if most == 0 || portal.statement.is_copy() {
                let sink: Arc<dyn Client> = Arc::new(ResultRows::of(
                    output,
                    frames,
                    &self.statements,
                    portal.formats.clone(),
                ));
                // It has no rows for a second time.
                portal.rest = Some(Rest::of(None, session.format()));
                return session.run_prepared_into(&portal.statement, parameters, &sink).await;
            }
            let outcome = session.run_prepared(&portal.statement, parameters).await?;
            portal.rest = Some(Rest::of(outcome, session.format()));
        }
        let Some(rest) = &mut portal.rest else { return Ok(()) };
        rest.give(most, &portal.formats, output).await
    }

    /// Ends all portals, as the end of a transaction does.
    pub(crate) fn end_portals(&mut self, state: TransactionState) {
        if state == TransactionState::Idle {
            self.portals.clear();
        }
    }

    /// Forgets the statement and the portal without a name, as a text of statements does.
    pub(crate) fn forget_unnamed(&mut self) {
        self.statements.lock().remove("");
        self.portals.remove("");
    }

    /// Those that are prepared.
    pub(crate) fn statements(&self) -> &SharedStatements {
        &self.statements
    }

    fn statement(&self, name: &str) -> SqlResult<Prepared> {
        self.statements.lock().get(name).cloned().ok_or_else(|| no_statement(name))
    }
}

/// That no statement has such a name.
pub(crate) fn no_statement(name: &str) -> SqlError {
    let message = match name {
        "" => "unnamed prepared statement does not exist".to_owned(),
        name => format!("prepared statement \"{name}\" does not exist"),
    };
    SqlError::new(SqlState::INVALID_STATEMENT_NAME, message)
}

impl Rest {
    fn of(outcome: Option<Outcome>, format: &FormatSettings) -> Self {
        let (columns, rows, tag) = match outcome {
            Some(Outcome { columns, rows, tag }) => (columns, rows, tag),
            None => (Arc::default(), Vec::new(), "SELECT 0".to_owned()),
        };
        let encoder = RowEncoder::new(&columns, format);
        Self { rows: rows.into_iter(), encoder, tag }
    }

    /// Gives at most so many rows; 0 for all.
    async fn give(&mut self, most: u32, formats: &[i16], output: &Output) -> SqlResult<()> {
        const BATCH: usize = 256;
        let is_query = self.tag.starts_with("SELECT ");
        let mut left = if most == 0 { usize::MAX } else { most as usize };
        let mut given = 0;
        while left > 0 {
            let rows: Vec<_> = self.rows.by_ref().take(left.min(BATCH)).collect();
            if rows.is_empty() {
                break;
            }
            (left, given) = (left - rows.len(), given + rows.len());
            let mut added = Ok(());
            output.add(|bytes| added = self.encoder.add_all(&rows, formats, bytes));
            added?;
            output.write_if_much().await?;
        }
        if self.rows.len() > 0 {
            output.send(&PgWireBackendMessage::PortalSuspended(PortalSuspended::new()));
        } else if is_query {
            // As many as this message has given.
            output.send(&complete(&format!("SELECT {given}")));
        } else {
            output.send(&complete(&self.tag));
        }
        Ok(())
    }
}

/// A value of a parameter.
fn value(bytes: &Bytes, ty: SqlType, format: i16, settings: &FormatSettings) -> SqlResult<Datum> {
    if format == 1 {
        return from_binary(bytes, ty);
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = bytes.get(error.valid_up_to()).copied().unwrap_or_default();
        let message = format!("invalid byte sequence for encoding \"UTF8\": 0x{at:02x}");
        SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message)
    })?;
    if text.contains('\0') {
        let message = "invalid byte sequence for encoding \"UTF8\": 0x00";
        return Err(SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message));
    }
    from_text(text, ty, settings)
}

fn check_count(count: usize, what: &str) -> SqlResult<()> {
    if count < MOST_NAMED {
        return Ok(());
    }
    let message = format!("the connection has too many {what} (allowed: {MOST_NAMED})");
    Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message))
}

fn no_portal(name: &str) -> SqlError {
    let message = format!("portal \"{name}\" does not exist");
    SqlError::new(SqlState::INVALID_CURSOR, message)
}
