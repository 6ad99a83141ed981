//! The sessions of a server, and what they do: what `pg_stat_activity` shows.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

/// The sessions of a server. Each shows what all of them do.
#[derive(Default)]
pub struct SessionList {
    /// When the first session began.
    begun: OnceLock<i64>,
    open: Mutex<BTreeMap<i32, Arc<Mutex<Activity>>>>,
}

/// Whether a session does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActivityState {
    Active,
    Idle,
    InTransaction,
    Failed,
}

/// How far the building of an index is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexProgress {
    /// Of the table, among all.
    pub(crate) table_number: usize,
    pub(crate) is_concurrent: bool,
    pub(crate) rows_done: u64,
    /// About so many; 0 if that is not known.
    pub(crate) rows_total: u64,
}

/// What a session does. Moments are microseconds since 2000-01-01.
#[derive(Clone)]
pub(crate) struct Activity {
    pub(crate) number: i32,
    pub(crate) user: Arc<str>,
    pub(crate) application: String,
    pub(crate) client: Option<SocketAddr>,
    pub(crate) session_start: i64,
    pub(crate) transaction_start: Option<i64>,
    pub(crate) statement_start: Option<i64>,
    pub(crate) state_change: i64,
    pub(crate) state: ActivityState,
    /// The text that runs, or ran last.
    pub(crate) text: Arc<str>,
    /// The index that it builds.
    pub(crate) index: Option<IndexProgress>,
    /// Ends what it runs.
    pub(crate) cancel: Arc<dyn Fn() + Send + Sync>,
    /// Ends the session.
    pub(crate) terminate: Arc<dyn Fn() + Send + Sync>,
}

/// The place of a session in a list, as long as it is kept.
pub(crate) struct Listed {
    list: Arc<SessionList>,
    number: i32,
    activity: Arc<Mutex<Activity>>,
}

impl ActivityState {
    /// As PostgreSQL calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Idle => "idle",
            Self::InTransaction => "idle in transaction",
            Self::Failed => "idle in transaction (aborted)",
        }
    }
}

impl fmt::Debug for SessionList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionList").field("open", &self.open.lock().len()).finish()
    }
}

impl SessionList {
    /// What all sessions do, in the order of their numbers.
    pub(crate) fn all(&self) -> Vec<Activity> {
        let open: Vec<_> = self.open.lock().values().cloned().collect();
        open.iter().map(|own| own.lock().clone()).collect()
    }

    /// When the first session of the server began.
    pub(crate) fn begun(&self) -> Option<i64> {
        self.begun.get().copied()
    }

    /// What the session of a number does.
    pub(crate) fn find(&self, number: i32) -> Option<Activity> {
        let found = self.open.lock().get(&number).cloned();
        found.map(|own| own.lock().clone())
    }
}

impl Listed {
    /// Enters a session in a list, in the place of another of its number.
    pub(crate) fn enter(list: &Arc<SessionList>, activity: Activity) -> Self {
        let (list, number) = (Arc::clone(list), activity.number);
        list.begun.get_or_init(|| activity.session_start);
        let activity = Arc::new(Mutex::new(activity));
        list.open.lock().insert(number, Arc::clone(&activity));
        Self { list, number, activity }
    }

    pub(crate) fn list(&self) -> &Arc<SessionList> {
        &self.list
    }

    pub(crate) fn number(&self) -> i32 {
        self.number
    }

    /// Changes what is shown.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Activity)) {
        change(&mut self.activity.lock());
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut open = self.list.open.lock();
        // Another may have taken the number.
        if open.get(&self.number).is_some_and(|own| Arc::ptr_eq(own, &self.activity)) {
            open.remove(&self.number);
        }
    }
}
