//! A client's messages, one after the other.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::response::{EmptyQueryResponse, ReadyForQuery, TransactionStatus};
use selkie_sql::{CancelHandle, Client, Session, SqlError, SqlResult, SqlState, TransactionState};
use tokio::sync::watch;

use crate::error_response::{Severity, error_response};
use crate::extended::Extended;
use crate::frames::{FrameError, Frames, SharedFrames};
use crate::frontend::{FrontendMessage, decode, violation};
use crate::memory_limit::MemoryLimit;
use crate::output::Output;
use crate::result_rows::ResultRows;
use crate::startup::send_parameters;
use crate::stats::ServerStats;

/// A client that has been let in.
pub(crate) struct Connection {
    session: Session,
    /// Of the session.
    cancel: CancelHandle,
    frames: SharedFrames,
    output: Arc<Output>,
    extended: Extended,
    /// An error of the extended protocol: all up to the next Sync is left out.
    skips: bool,
    /// The client was told that its next statement is waited for.
    is_ready: bool,
    /// The parameter changes that the client knows of.
    reported: u64,
    /// Whether the server ends.
    ends: watch::Receiver<bool>,
    stats: Arc<ServerStats>,
}

/// Errors with which a connection ends.
const ENDS: [SqlState; 3] =
    [SqlState::CRASH_SHUTDOWN, SqlState::ADMIN_SHUTDOWN, SqlState::IDLE_IN_TRANSACTION_TIMEOUT];

/// What follows from a message.
enum Next {
    GoOn,
    End,
}

impl Connection {
    pub(crate) fn new(
        session: Session,
        frames: Frames,
        output: Arc<Output>,
        memory: &Arc<MemoryLimit>,
        ends: watch::Receiver<bool>,
        stats: Arc<ServerStats>,
    ) -> Self {
        let reported = session.parameter_changes();
        let frames = Arc::new(tokio::sync::Mutex::new(frames));
        Self {
            cancel: session.cancel_handle(),
            session,
            frames,
            output,
            extended: Extended::new(memory),
            skips: false,
            is_ready: false,
            reported,
            ends,
            stats,
        }
    }

    /// Serves the client until it goes or the server ends.
    pub(crate) async fn serve(&mut self) -> io::Result<()> {
        self.ready();
        loop {
            let ended = match self.next().await {
                Ok(Next::GoOn) => continue,
                Ok(Next::End) => return self.rest().await,
                Err(FrameError::Gone(error)) => return Err(error),
                Err(FrameError::Broken(error)) => error,
            };
            self.stats.error(&ended);
            self.output.send(&error_response(Severity::Fatal, &ended));
            return self.output.write_last().await;
        }
    }

    /// Writes what a client that has ended still wants to read.
    async fn rest(&mut self) -> io::Result<()> {
        tokio::select! {
            written = self.output.write() => written,
            () = ended(&mut self.ends) => self.output.write_last().await,
            () = self.cancel.terminated() => self.output.write_last().await,
        }
    }

    /// Waits for a message: its kind, what is in it, and whether the series that it is in ends
    /// behind it.
    async fn message(&mut self) -> Result<(u8, Bytes, bool), FrameError> {
        let mut frames = self.frames.lock().await;
        let limit = self.session.idle_limit().filter(|_| self.is_ready);
        let idle = async {
            match limit {
                Some((limit, error)) => {
                    tokio::time::sleep(limit).await;
                    error
                }
                None => std::future::pending().await,
            }
        };
        let mut idle = std::pin::pin!(idle);
        let (kind, body) = loop {
            if !self.output.is_much()
                && let Some(frame) = frames.buffered()?
            {
                break frame;
            }
            // A client that does not read what it asks for waits here, and can be ended.
            let next = async {
                self.output.write().await?;
                match frames.has_next()? {
                    true => Ok(()),
                    false => frames.read().await,
                }
            };
            tokio::select! {
                done = next => done?,
                () = ended(&mut self.ends) => return Err(FrameError::Broken(ending())),
                () = self.cancel.terminated() => return Err(FrameError::Broken(ending())),
                error = &mut idle => return Err(FrameError::Broken(error)),
            }
        };
        self.is_ready = false;
        let is_last = frames.next_kind() == Some(b'S');
        Ok((kind, body, is_last))
    }

    /// Waits for a message and answers it.
    async fn next(&mut self) -> Result<Next, FrameError> {
        let (kind, body, is_last) = self.message().await?;
        let is_over = *self.ends.borrow() && self.session.state() == TransactionState::Idle;
        if is_over || self.cancel.is_terminated() {
            return Err(FrameError::Broken(ending()));
        }
        if self.skips && !matches!(kind, b'S' | b'X') {
            // Whatever is in it.
            return Ok(Next::GoOn);
        }
        let message = match decode(kind, body) {
            Ok(FrontendMessage::Terminate) => return Ok(Next::End),
            Ok(FrontendMessage::Sync) => {
                self.sync().await;
                return Ok(Next::GoOn);
            }
            // The frame is over, so the next message can be read.
            Err(error) => Err(error),
            Ok(message) => Ok(message),
        };
        let is_query = kind == b'Q';
        let begun = matches!(kind, b'Q' | b'E').then(Instant::now);
        let done = match message {
            Ok(FrontendMessage::Query(sql)) => self.query(&sql).await,
            Ok(message) => self.extended(message, is_last).await,
            Err(error) => Err(error),
        };
        if let Some(begun) = begun {
            self.stats.statement(begun.elapsed());
        }
        if let Err(error) = done {
            if ENDS.contains(&error.state()) {
                return Err(FrameError::Broken(error));
            }
            // Also if it is one of a message, and no statement has run.
            self.session.fail();
            self.stats.error(&error);
            self.output.send(&error_response(Severity::Error, &error));
            self.skips = !is_query;
        }
        if is_query {
            self.skips = false;
            self.report();
            self.ready();
        }
        Ok(Next::GoOn)
    }

    /// Runs the statements of a text.
    async fn query(&mut self, sql: &str) -> SqlResult<()> {
        self.extended.forget_unnamed();
        let sink: Arc<dyn Client> = Arc::new(ResultRows::described(&self.output, &self.frames));
        let ran = self.session.execute_into(sql, &sink).await;
        self.extended.end_undone(&mut self.session);
        if !ran? {
            let empty = PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new());
            self.output.send(&empty);
        }
        self.extended.end_portals(&self.session);
        Ok(())
    }

    async fn extended(&mut self, message: FrontendMessage, is_last: bool) -> SqlResult<()> {
        let (extended, session, output) = (&mut self.extended, &mut self.session, &self.output);
        match message {
            FrontendMessage::Parse { statement, sql, types } => {
                output.send(&extended.parse(session, statement, &sql, &types, output).await?);
            }
            FrontendMessage::Bind(bind) => output.send(&extended.bind(session, bind)?),
            FrontendMessage::Describe(target) => extended.describe(session, &target, output)?,
            FrontendMessage::Close(target) => output.send(&extended.close(session, &target)),
            FrontendMessage::Execute { portal, most } => {
                // Alone it is a transaction, which can be run again; else it is one with all that
                // comes before the next Sync.
                if !is_last {
                    session.begin_block()?;
                }
                extended.execute(session, &portal, most, (output, &self.frames)).await?;
            }
            // What is there is written before the next message is waited for.
            FrontendMessage::Flush => {}
            // Left over from a COPY that has failed.
            FrontendMessage::CopyData(_)
            | FrontendMessage::CopyDone
            | FrontendMessage::CopyFail(_) => {}
            _ => return Err(violation("a message out of place")),
        }
        Ok(())
    }

    /// The end of a series of messages of the extended protocol.
    async fn sync(&mut self) {
        self.skips = false;
        if let Err(error) = self.session.end_block().await {
            self.stats.error(&error);
            self.output.send(&error_response(Severity::Error, &error));
        }
        self.extended.end_portals(&self.session);
        self.report();
        self.ready();
    }

    /// Tells the client of parameters that have changed.
    fn report(&mut self) {
        let changes = self.session.parameter_changes();
        if changes != self.reported {
            self.reported = changes;
            send_parameters(&self.session, &self.output);
        }
    }

    fn ready(&mut self) {
        self.is_ready = true;
        let status = match self.session.state() {
            TransactionState::Idle => TransactionStatus::Idle,
            TransactionState::InTransaction => TransactionStatus::Transaction,
            TransactionState::Failed => TransactionStatus::Error,
        };
        self.output.send(&PgWireBackendMessage::ReadyForQuery(ReadyForQuery::new(status)));
    }
}

/// Waits until the server ends.
pub(crate) async fn ended(ends: &mut watch::Receiver<bool>) {
    // If what tells it is gone, it has.
    let _ = ends.wait_for(|ends| *ends).await;
}

/// That the server ends.
pub(crate) fn ending() -> SqlError {
    SqlError::terminated()
}
