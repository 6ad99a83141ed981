//! What clients of a server keep in its memory together: rows of portals that were not read, and
//! long messages of which a part has come. Each is bounded for itself, and all of them by the
//! budget of the server, which their statements draw from, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use selkie_sql::{MemoryBudget, SqlError, SqlResult, SqlState};

/// The part of the memory of the machine that the clients of a server may take, one in so many.
const PART_OF_MEMORY: usize = 4;

/// What they may take if the system does not say how much memory there is.
const UNKNOWN_MEMORY: usize = 1 << 30;

/// A bound to bytes that are kept, maybe within another.
pub(crate) struct MemoryLimit {
    most: usize,
    used: AtomicUsize,
    whole: Option<Arc<Self>>,
    budget: Option<Arc<MemoryBudget>>,
}

/// Bytes that count as long as this is kept.
pub(crate) struct Counted {
    limit: Arc<MemoryLimit>,
    bytes: usize,
}

/// The memory that the clients of a server may take together, unless it is told: a part of that of
/// the machine.
pub(crate) fn memory_of_server() -> usize {
    let system = rustix::system::sysinfo();
    let memory = u64::from(system.mem_unit).saturating_mul(system.totalram);
    match usize::try_from(memory) {
        Ok(0) | Err(_) => UNKNOWN_MEMORY,
        Ok(memory) => memory / PART_OF_MEMORY,
    }
}

impl MemoryLimit {
    /// That of a server with a budget.
    pub(crate) fn of_server(budget: &Arc<MemoryBudget>) -> Self {
        Self { budget: Some(Arc::clone(budget)), ..Self::new(usize::MAX) }
    }

    pub(crate) fn new(most: usize) -> Self {
        Self { most, used: AtomicUsize::new(0), whole: None, budget: None }
    }

    /// One within another.
    pub(crate) fn within(whole: &Arc<Self>, most: usize) -> Self {
        Self { whole: Some(Arc::clone(whole)), ..Self::new(most) }
    }

    /// Counts bytes, unless they are too many.
    fn take(&self, bytes: usize) -> SqlResult<()> {
        // It counts and orders nothing else.
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let taken = self.used.fetch_update(set, fetch, |used| {
            used.checked_add(bytes).filter(|used| *used <= self.most)
        });
        if taken.is_err() {
            let detail = format!(
                "Rows of portals and messages that the client keeps would need more than {} bytes.",
                self.most
            );
            return Err(SqlError::new(SqlState::OUT_OF_MEMORY, "out of memory").detail(detail));
        }
        let within = match (&self.whole, &self.budget) {
            (Some(whole), _) => whole.take(bytes),
            (None, Some(budget)) => budget.take(bytes),
            (None, None) => Ok(()),
        };
        if within.is_err() {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        within
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        self.whole.iter().for_each(|whole| whole.give_back(bytes));
        self.budget.iter().for_each(|budget| budget.give_back(bytes));
    }

    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

impl Counted {
    /// None yet.
    pub(crate) fn new(limit: &Arc<MemoryLimit>) -> Self {
        Self { limit: Arc::clone(limit), bytes: 0 }
    }

    /// Counts so many instead.
    ///
    /// # Errors
    /// 53200 if they are too many; as many count then as before.
    pub(crate) fn set(&mut self, bytes: usize) -> SqlResult<()> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.limit.take(more)?,
            None => self.limit.give_back(self.bytes - bytes),
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.limit.give_back(self.bytes);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_within_both_bounds() {
        let server = Arc::new(MemoryLimit::new(1_000));
        let client = || Arc::new(MemoryLimit::within(&server, 700));
        let (first, second) = (client(), client());
        let (mut one, mut other) = (Counted::new(&first), Counted::new(&second));
        one.set(600).unwrap();
        let of_client = one.set(800).unwrap_err();
        let of_server = other.set(500).unwrap_err();
        for error in [of_client, of_server] {
            assert_eq!(error.state(), SqlState::OUT_OF_MEMORY);
        }
        // What was refused is not counted.
        assert_eq!((first.used(), second.used(), server.used()), (600, 0, 600));
        one.set(100).unwrap();
        other.set(500).unwrap();
        assert_eq!((first.used(), second.used(), server.used()), (100, 500, 600));
        drop(one);
        drop(other);
        assert_eq!((first.used(), second.used(), server.used()), (0, 0, 0));
    }

    #[test]
    fn a_server_may_take_some_memory() {
        assert!(memory_of_server() > 64 << 20);
        let budget = Arc::new(MemoryBudget::new(1_000));
        let server = Arc::new(MemoryLimit::of_server(&budget));
        let client = Arc::new(MemoryLimit::within(&server, 900));
        let mut kept = Counted::new(&client);
        // What statements have taken is not there for others.
        budget.take(400).unwrap();
        assert_eq!(kept.set(700).unwrap_err().state(), SqlState::OUT_OF_MEMORY);
        kept.set(600).unwrap();
        assert_eq!(budget.used(), 1_000);
        drop(kept);
        assert_eq!((budget.used(), client.used()), (400, 0));
    }
}
