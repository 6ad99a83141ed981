//! The extended protocol: statements that are prepared, bound to values and run.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::extendedquery::{
    BindComplete, CloseComplete, ParseComplete, PortalSuspended,
};
use pgwire::messages::response::EmptyQueryResponse;
use selkie_sql::types::FormatSettings;
use selkie_sql::types::binary_format::from_binary;
use selkie_sql::types::text_format::from_text;
use selkie_sql::{
    CancelHandle, Client, Datum, Prepared, Session, SqlError, SqlResult, SqlState, SqlType,
    TransactionState,
};

use crate::columns::{check_formats, description, format_of, parameter_description};
use crate::error_response::notice_response;
use crate::frames::SharedFrames;
use crate::frontend::{Bind, Target, violation};
use crate::memory_limit::MemoryLimit;
use crate::output::Output;
use crate::portal_rows::{MOST_KEPT_BYTES, PortalRows, Rest};
use crate::result_rows::{ResultRows, complete};

/// The statements that a client has bound. Those that it has prepared, and the names of portals,
/// are in its session: PREPARE and DECLARE add to them.
pub(crate) struct Extended {
    /// The statement without a name.
    unnamed: Option<Prepared>,
    portals: HashMap<String, Portal>,
    /// How much of rows the portals may keep.
    limit: Arc<MemoryLimit>,
}

/// A statement with values for its parameters.
struct Portal {
    statement: Prepared,
    /// Until it has begun to run.
    parameters: Vec<Datum>,
    /// Of the columns of its rows.
    formats: Vec<i16>,
    progress: Progress,
    /// How many savepoints had been set when it was made.
    savepoints: u64,
}

/// How far a portal has been run.
enum Progress {
    Ready,
    /// All its rows went to the client at once, if it has any.
    Over,
    /// It was run, and the client has read some of its rows.
    Rows(Rest),
    /// It has failed.
    Failed,
}

impl Extended {
    /// Of a connection of a server whose portals may keep so much.
    pub(crate) fn new(server: &Arc<MemoryLimit>) -> Self {
        let limit = Arc::new(MemoryLimit::within(server, MOST_KEPT_BYTES));
        Self { unnamed: None, portals: HashMap::new(), limit }
    }

    pub(crate) async fn parse(
        &mut self,
        session: &mut Session,
        name: String,
        sql: &str,
        types: &[u32],
        output: &Output,
    ) -> SqlResult<PgWireBackendMessage> {
        if !name.is_empty() {
            session.check_new_prepared(&name)?;
        }
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
        for notice in prepared.notices().iter().filter(|own| session.wants(own)) {
            output.send(&notice_response(notice));
        }
        match &*name {
            "" => self.unnamed = Some(prepared),
            name => session.keep_prepared(name, prepared)?,
        }
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
        let prepared = match &*statement {
            "" => self.unnamed.clone(),
            name => session.prepared(name),
        };
        let prepared = prepared.ok_or_else(|| no_statement(&statement))?;
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
        session.note_prepared_run(&statement);
        if !portal.is_empty() {
            session.enter_portal(&portal, &prepared)?;
        }
        let bound = Portal {
            statement: prepared,
            parameters,
            formats: result_formats,
            progress: Progress::Ready,
            savepoints: session.savepoints_set(),
        };
        self.portals.insert(portal, bound);
        Ok(PgWireBackendMessage::BindComplete(BindComplete::new()))
    }

    pub(crate) fn describe(
        &self,
        session: &Session,
        target: &Target,
        output: &Output,
    ) -> SqlResult<()> {
        match target {
            Target::Statement(name) => {
                let statement = match &**name {
                    "" => self.unnamed.clone(),
                    name => session.prepared(name),
                };
                let statement = statement.ok_or_else(|| no_statement(name))?;
                check_described(session, &statement)?;
                output.send(&parameter_description(statement.parameters()));
                output.send(&description(statement.columns(), &[]));
            }
            Target::Portal(name) => {
                let Some(portal) = self.portals.get(name) else {
                    let columns = session.cursor_columns(name).ok_or_else(|| no_portal(name))?;
                    check_not_failed(session)?;
                    output.send(&description(&columns, &[]));
                    return Ok(());
                };
                check_described(session, &portal.statement)?;
                output.send(&description(portal.statement.columns(), &portal.formats));
            }
        }
        Ok(())
    }

    pub(crate) fn close(&mut self, session: &Session, target: &Target) -> PgWireBackendMessage {
        match target {
            Target::Statement(name) if name.is_empty() => self.unnamed = None,
            Target::Statement(name) => session.forget_prepared(name),
            Target::Portal(name) => match self.portals.remove(name) {
                Some(_) => session.leave_portal(name),
                None => session.close_cursor(name),
            },
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
        let done = self.execute_portal(session, name, most, (output, frames)).await;
        self.end_undone(session);
        done
    }

    async fn execute_portal(
        &mut self,
        session: &mut Session,
        name: &str,
        most: u32,
        (output, frames): (&Arc<Output>, &SharedFrames),
    ) -> SqlResult<()> {
        let Some(portal) = self.portals.get_mut(name) else {
            return fetch(session, name, most, (output, frames)).await;
        };
        if portal.statement.is_empty() {
            output.send(&PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new()));
            return Ok(());
        }
        if let Progress::Ready = portal.progress {
            // Until it has succeeded.
            portal.progress = Progress::Failed;
            let parameters = std::mem::take(&mut portal.parameters);
            let formats = portal.formats.clone();
            if most == 0 || portal.statement.is_copy() {
                let sink: Arc<dyn Client> = Arc::new(ResultRows::of(output, frames, formats));
                session.run_prepared_into(&portal.statement, parameters, &sink).await?;
                portal.progress = Progress::Over;
                return Ok(());
            }
            let rows = Arc::new(PortalRows::new(output, &self.limit, formats));
            let sink: Arc<dyn Client> = Arc::clone(&rows) as _;
            session.run_prepared_into(&portal.statement, parameters, &sink).await?;
            portal.progress = Progress::Rows(rows.rest());
        } else {
            check_not_failed(session)?;
            // It has changed rows, or done something else, once.
            if portal.statement.columns().is_empty() {
                return Err(cannot_run(name));
            }
        }
        match &mut portal.progress {
            Progress::Rows(rest) => give(rest, most, output, &session.cancel_handle()).await,
            Progress::Over => {
                output.send(&complete("SELECT 0"));
                Ok(())
            }
            Progress::Ready | Progress::Failed => Err(cannot_run(name)),
        }
    }

    /// Ends the portals that CLOSE has closed, and those that were made after a savepoint to which
    /// the transaction has returned.
    pub(crate) fn end_undone(&mut self, session: &mut Session) {
        for name in session.take_closed_portals() {
            self.portals.remove(&name);
        }
        if let Some(number) = session.take_returned_to() {
            self.portals.retain(|_, portal| portal.savepoints < number);
        }
    }

    /// Ends all portals, as the end of a transaction does.
    pub(crate) fn end_portals(&mut self, session: &Session) {
        if session.state() == TransactionState::Idle {
            self.portals.drain().for_each(|(name, _)| session.leave_portal(&name));
        }
    }

    /// Forgets the statement and the portal without a name, as a text of statements does.
    pub(crate) fn forget_unnamed(&mut self) {
        self.unnamed = None;
        self.portals.remove("");
    }
}

/// Gives the next rows of a cursor of DECLARE, at most so many; 0 for all.
async fn fetch(
    session: &mut Session,
    name: &str,
    most: u32,
    (output, frames): (&Arc<Output>, &SharedFrames),
) -> SqlResult<()> {
    if session.cursor_columns(name).is_none() {
        return Err(no_portal(name));
    }
    check_not_failed(session)?;
    let sink: Arc<dyn Client> = Arc::new(ResultRows::of(output, frames, Vec::new()));
    let given = session.fetch_next(name, most, &sink).await?;
    if most > 0 && given == u64::from(most) {
        output.send(&PgWireBackendMessage::PortalSuspended(PortalSuspended::new()));
    } else {
        output.send(&complete(&format!("SELECT {given}")));
    }
    Ok(())
}

/// Gives at most so many rows of what is left; 0 for all.
async fn give(rest: &mut Rest, most: u32, output: &Output, cancel: &CancelHandle) -> SqlResult<()> {
    let mut left = if most == 0 { usize::MAX } else { most as usize };
    let mut given = 0;
    while left > 0 {
        let (bytes, rows) = rest.take(left);
        if rows == 0 {
            break;
        }
        (left, given) = (left - rows, given + rows);
        output.add(|own| own.extend_from_slice(&bytes));
        // No statement runs that could be ended.
        tokio::select! {
            written = output.write_if_much() => written?,
            () = cancel.terminated() => return Err(SqlError::terminated()),
        }
    }
    // Whether there are more is not looked at, as in PostgreSQL.
    if most > 0 && left == 0 {
        output.send(&PgWireBackendMessage::PortalSuspended(PortalSuspended::new()));
    } else {
        output.send(&complete(&rest.tag(given)));
    }
    Ok(())
}

/// A transaction that has failed does not look at columns: what they are rests on tables.
fn check_described(session: &Session, statement: &Prepared) -> SqlResult<()> {
    if statement.columns().is_empty() { Ok(()) } else { check_not_failed(session) }
}

/// A transaction that has failed takes nothing but its end.
fn check_not_failed(session: &Session) -> SqlResult<()> {
    if session.state() != TransactionState::Failed {
        return Ok(());
    }
    let message = "current transaction is aborted, commands ignored until end of transaction block";
    Err(SqlError::new(SqlState::IN_FAILED_TRANSACTION, message))
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

/// That no statement has such a name.
fn no_statement(name: &str) -> SqlError {
    let message = match name {
        "" => "unnamed prepared statement does not exist".to_owned(),
        name => format!("prepared statement \"{name}\" does not exist"),
    };
    SqlError::new(SqlState::INVALID_STATEMENT_NAME, message)
}

fn no_portal(name: &str) -> SqlError {
    let message = format!("portal \"{name}\" does not exist");
    SqlError::new(SqlState::INVALID_CURSOR, message)
}

fn cannot_run(name: &str) -> SqlError {
    let message = format!("portal \"{name}\" cannot be run");
    SqlError::new(SqlState::OBJECT_NOT_READY, message)
}
