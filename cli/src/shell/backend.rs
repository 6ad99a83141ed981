//! What runs the statements of the shell: a session of this process on a pool, or one at a server.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use selkie::fabric::Env;
use selkie_sql::{Session, SqlError, TransactionState};

use super::busy::Busy;
use super::output::{Shown, text_of};
use super::view::{Cells, Column, Kind};
use super::watch::Watch;
use crate::support::signals::{Interrupt, Interrupted};
use crate::wire::{Client, NotRun, Receiver, Report, Wish};

/// The database of a pool, as prompts name it.
const DATABASE: &str = "selkie";

/// A session.
pub(crate) enum Backend {
    /// Of this process, whose waits are those of `env`.
    Pool { session: Box<Session>, env: Env },
    /// At a server.
    Server(Box<Client>),
}

/// What a statement of the shell's own gave.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Cells>,
}

impl Backend {
    /// The name of the database.
    pub(super) fn database(&self) -> &str {
        match self {
            Self::Pool { .. } => DATABASE,
            Self::Server(client) => client.database(),
        }
    }

    pub(super) fn state(&self) -> TransactionState {
        match self {
            Self::Pool { session, .. } => session.state(),
            Self::Server(client) => client.state(),
        }
    }

    /// The server, if it is one.
    pub(super) fn server(&mut self) -> Option<&mut Client> {
        match self {
            Self::Pool { .. } => None,
            Self::Server(client) => Some(client),
        }
    }

    /// Runs statements, and shows what they give. `looks` is asked every now and then, and says
    /// whether they are to be cancelled.
    ///
    /// # Errors
    /// The signal that asks the process to end; within it, those of a statement.
    pub(super) fn run(
        &mut self,
        text: &str,
        shown: &Arc<Shown>,
        busy: &Arc<Busy>,
        interrupt: &Interrupt,
        looks: impl FnMut() -> bool,
    ) -> Result<Result<(), Report>, Interrupted> {
        match self {
            Self::Pool { session, env } => {
                let client: Arc<dyn selkie_sql::Client> = Arc::clone(shown) as _;
                let cancel = session.cancel_handle();
                let look = cancelling(looks, || cancel.cancel());
                let run = session.execute_into(text, &client);
                let ran = selkie::block_on(interrupt.or_end_looking(env, run, look))?;
                Ok(ran.map(drop).map_err(Report::from))
            }
            Self::Server(client) => {
                let _watch = Watch::begin(text, client, busy);
                let ran = client.run(text, &**shown, &mut wishing(interrupt, looks));
                of_server(ran, interrupt)
            }
        }
    }

    /// Runs a statement and gives what it gives. `looks` is as in [`run`](Self::run).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub(super) fn ask(
        &mut self,
        sql: &str,
        interrupt: &Interrupt,
        looks: impl FnMut() -> bool,
    ) -> Result<Result<Answer, Report>, Interrupted> {
        match self {
            Self::Pool { session, env } => {
                let cancel = session.cancel_handle();
                let look = cancelling(looks, || cancel.cancel());
                let run = session.execute(sql);
                let ran = selkie::block_on(interrupt.or_end_looking(env, run, look))?;
                Ok(ran.map_err(Report::from).map(|outcomes| answer_of(session, outcomes)))
            }
            Self::Server(client) => {
                let kept = Kept::default();
                let ran = client.run(sql, &kept, &mut wishing(interrupt, looks));
                let ran = of_server(ran, interrupt)?;
                Ok(ran.map(|()| kept.into_answer()))
            }
        }
    }

    /// Runs a statement that only reads, outside of a transaction, and gives what it gives; `None`
    /// if it fails or is not done by then. A server that is silent is left then, with the session.
    pub(super) fn glance(&mut self, sql: &str, until: Instant) -> Option<Answer> {
        let is_late = || Instant::now() >= until;
        match self {
            // Signals are for the shell to see, which waits for what the user types.
            Self::Pool { .. } => self.ask(sql, &Interrupt::default(), is_late).ok()?.ok(),
            Self::Server(client) => {
                let kept = Kept::default();
                let mut look = || if is_late() { Wish::Leave } else { Wish::Wait };
                client.glance(sql, &kept, &mut look).ok()?;
                Some(kept.into_answer())
            }
        }
    }
}

/// Cancels what runs as long as that is wanted.
fn cancelling(mut looks: impl FnMut() -> bool, cancel: impl Fn()) -> impl FnMut() {
    move || {
        if looks() {
            cancel();
        }
    }
}

/// What is to become of a wait for a server.
pub(super) fn wishing(
    interrupt: &Interrupt,
    mut looks: impl FnMut() -> bool,
) -> impl FnMut() -> Wish {
    move || match (looks(), interrupt.signal()) {
        (_, Some(_)) => Wish::Leave,
        (true, None) => Wish::Cancel,
        (false, None) => Wish::Wait,
    }
}

fn of_server(
    ran: Result<(), NotRun>,
    interrupt: &Interrupt,
) -> Result<Result<(), Report>, Interrupted> {
    match ran {
        Ok(()) => Ok(Ok(())),
        Err(NotRun::Failed(report)) => Ok(Err(report)),
        Err(NotRun::Left) => {
            interrupt.check()?;
            Ok(Err(Report::error("57014", "nobody waits for the statement any more")))
        }
    }
}

fn answer_of(session: &Session, mut outcomes: Vec<selkie_sql::Outcome>) -> Answer {
    let Some(outcome) = outcomes.pop() else { return Answer::default() };
    let values = session.format();
    let cells = |row: &Vec<_>| {
        let cells = row.iter().zip(outcome.columns.iter());
        cells.map(|(value, column)| text_of(value, column.ty, values)).collect()
    };
    let rows = outcome.rows.iter().map(cells).collect();
    let columns = outcome.columns.iter();
    let columns =
        columns.map(|own| Column { name: own.name.clone(), kind: Kind::of(own.ty) }).collect();
    Answer { columns, rows }
}

/// Keeps what the last statement gives.
#[derive(Default)]
pub(super) struct Kept(Mutex<Answer>);

impl Kept {
    pub(super) fn into_answer(self) -> Answer {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Receiver for Kept {
    fn described(&self, columns: &[(String, u32)]) {
        let columns =
            columns.iter().map(|own| Column { name: own.0.clone(), kind: Kind::of_oid(own.1) });
        let answer = Answer { columns: columns.collect(), rows: Vec::new() };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = answer;
    }

    fn given(&self, rows: Vec<Cells>) -> Result<(), Report> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).rows.extend(rows);
        Ok(())
    }

    fn asked_for_data(&self, _is_binary: bool) -> Result<(), Report> {
        Err(SqlError::unsupported("COPY FROM STDIN here").into())
    }

    fn next_data(&self) -> Result<Option<Vec<u8>>, Report> {
        Ok(None)
    }

    fn copied(&self, _data: Vec<u8>) -> Result<(), Report> {
        Ok(())
    }

    fn noticed(&self, _notice: &Report) {}

    fn ended(&self, _tag: &str) {}
}
