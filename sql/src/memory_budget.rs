//! How much memory the statements of several sessions may take together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{SqlError, SqlResult, SqlState};

/// A bound to the bytes that are kept for all who share it: rows that are sorted, joined or
/// grouped, and what a server keeps for its clients. What statements would take beyond it goes to
/// temporary files where that can be, and is 53200 else.
#[derive(Debug)]
pub struct MemoryBudget {
    most: usize,
    used: AtomicUsize,
    whole: Option<Arc<Self>>,
}

impl Default for MemoryBudget {
    /// One without a bound.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

// Relaxed throughout: it counts, and orders nothing else.
impl MemoryBudget {
    /// One of so many bytes.
    #[must_use]
    pub fn new(most_bytes: usize) -> Self {
        Self { most: most_bytes, used: AtomicUsize::new(0), whole: None }
    }

    /// The share of one of those who have a budget together, of at most one in `part` of it.
    #[must_use]
    pub fn share(whole: &Arc<Self>, part: usize) -> Self {
        let most = if whole.most == usize::MAX { whole.most } else { whole.most / part.max(1) };
        Self { whole: Some(Arc::clone(whole)), ..Self::new(most) }
    }

    /// Counts bytes, unless they are too many.
    ///
    /// # Errors
    /// 53200 if they are.
    pub fn take(&self, bytes: usize) -> SqlResult<()> {
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|used| *used <= self.most)
        });
        if taken.is_err() {
            let who = if self.whole.is_some() { "A client" } else { "All clients together" };
            let detail = format!("{who} may keep {} bytes.", self.most);
            return Err(SqlError::new(SqlState::OUT_OF_MEMORY, "out of memory").detail(detail));
        }
        let within = self.whole.as_ref().map_or(Ok(()), |whole| whole.take(bytes));
        if within.is_err() {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        within
    }

    /// Counts bytes no more that were taken.
    pub fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        self.whole.iter().for_each(|whole| whole.give_back(bytes));
    }

    /// How many bytes are taken.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_within_the_whole() {
        let whole = Arc::new(MemoryBudget::new(1_000));
        let shares: Vec<_> = (0..3).map(|_| MemoryBudget::share(&whole, 2)).collect();
        shares[0].take(500).unwrap();
        assert_eq!(
            shares[0].take(1).unwrap_err().detail_text(),
            Some("A client may keep 500 bytes.")
        );
        shares[1].take(400).unwrap();
        let error = shares[2].take(200).unwrap_err();
        assert_eq!(error.detail_text(), Some("All clients together may keep 1000 bytes."));
        // What was refused is not counted.
        assert_eq!((shares[2].used(), whole.used()), (0, 900));
        shares[0].give_back(500);
        shares[2].take(200).unwrap();
        assert_eq!(whole.used(), 600);
    }
}
