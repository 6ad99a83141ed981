//! What a server has done, in numbers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_sql::SqlError;

use crate::registry::Registry;

/// Counts while the server runs. Each number is right by itself; none orders others, so all
/// accesses are Relaxed.
#[derive(Default)]
pub(crate) struct ServerStats {
    clients: AtomicU64,
    statements: AtomicU64,
    statement_micros: AtomicU64,
    errors: Mutex<BTreeMap<&'static str, u64>>,
}

/// What a server has done since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerCounters {
    /// Clients that are connected now, and were let in.
    pub clients_open: u64,
    /// Clients that were let in.
    pub clients: u64,
    /// Messages that ran statements: texts of the simple protocol, and portals.
    pub statements: u64,
    /// How long these took together, without what was sent when they were over.
    pub statement_time: Duration,
    /// Errors that clients were told, by their SQLSTATE.
    pub errors: Vec<(&'static str, u64)>,
}

impl ServerStats {
    /// A client was let in.
    pub(crate) fn client(&self) {
        self.clients.fetch_add(1, Ordering::Relaxed);
    }

    /// A message was run, in such a time.
    pub(crate) fn statement(&self, time: Duration) {
        self.statements.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.statement_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// A client is told of an error.
    pub(crate) fn error(&self, error: &SqlError) {
        *self.errors.lock().entry(error.state().code()).or_default() += 1;
    }

    fn counters(&self, registry: &Registry) -> ServerCounters {
        ServerCounters {
            clients_open: u64::try_from(registry.open()).unwrap_or(u64::MAX),
            clients: self.clients.load(Ordering::Relaxed),
            statements: self.statements.load(Ordering::Relaxed),
            statement_time: Duration::from_micros(self.statement_micros.load(Ordering::Relaxed)),
            errors: self.errors.lock().iter().map(|(state, count)| (*state, *count)).collect(),
        }
    }
}

/// Where the counters of a server are read, also once it has ended.
#[derive(Clone)]
pub struct ServerCounts {
    pub(crate) stats: Arc<ServerStats>,
    pub(crate) registry: Arc<Registry>,
}

impl ServerCounts {
    /// What the server has done so far.
    #[must_use]
    pub fn read(&self) -> ServerCounters {
        self.stats.counters(&self.registry)
    }
}
