//! What others see of a session.

use std::net::SocketAddr;
use std::sync::Arc;

use super::{CancelHandle, Session, TransactionState};
use crate::session_list::{Activity, ActivityState, Listed, SessionList};

/// Bytes that are shown of a text, as in PostgreSQL.
const LONGEST_SHOWN: usize = 1_023;

/// A session that has done nothing yet.
pub(super) fn idle(
    number: i32,
    user: &Arc<str>,
    client: Option<SocketAddr>,
    now: i64,
    cancel: &CancelHandle,
) -> Activity {
    let (cancel, terminate) = (cancel.clone(), cancel.clone());
    Activity {
        number,
        user: Arc::clone(user),
        application: String::new(),
        client,
        session_start: now,
        transaction_start: None,
        statement_start: None,
        state_change: now,
        state: ActivityState::Idle,
        text: Arc::from(""),
        index: None,
        cancel: Arc::new(move || cancel.cancel()),
        terminate: Arc::new(move || terminate.terminate()),
    }
}

impl Session {
    /// The session, shown in a list under a number that no other session of it has. Without a list
    /// it shows itself only, as number 1.
    #[must_use]
    pub fn listed(
        mut self,
        list: &Arc<SessionList>,
        number: i32,
        client: Option<SocketAddr>,
    ) -> Self {
        let mut activity = idle(number, &self.user, client, (self.clock)(), &self.cancel);
        activity.application.clone_from(&self.settings.application_name);
        self.listed = Listed::enter(list, activity);
        self
    }

    /// A statement of a text begins. Returns when.
    pub(super) fn note_statement(&self, text: &Arc<str>) -> i64 {
        let now = (self.clock)();
        // What is shown is kept until the next statement, however long the session idles.
        let text = match text.len() <= LONGEST_SHOWN {
            true => Arc::clone(text),
            false => text.get(..text.floor_char_boundary(LONGEST_SHOWN)).unwrap_or("").into(),
        };
        self.listed.change(|own| {
            own.text = text;
            (own.state, own.statement_start, own.state_change) =
                (ActivityState::Active, Some(now), now);
            // One that is alone begins its transaction itself.
            own.transaction_start = own.transaction_start.or(Some(now));
        });
        now
    }

    /// It has ended. Returns when.
    pub(super) fn note_end(&self) -> i64 {
        let now = (self.clock)();
        let (state, transaction_start) = match self.state {
            TransactionState::Idle => (ActivityState::Idle, None),
            TransactionState::InTransaction => {
                (ActivityState::InTransaction, Some(self.transaction_start))
            }
            TransactionState::Failed => (ActivityState::Failed, Some(self.transaction_start)),
        };
        self.listed.change(|own| {
            (own.state, own.transaction_start, own.state_change) = (state, transaction_start, now);
            if *own.application != *self.settings.application_name {
                own.application.clone_from(&self.settings.application_name);
            }
        });
        now
    }
}
