//! `ActiveSnapshots`: which snapshots may be active, as a commit has learnt it.

use smallvec::SmallVec;

use super::stamp::Stamp;

/// The snapshots that may be active, of all nodes, as published when a stamp was drawn.
///
/// A snapshot that is not among them had ended, or begins at that stamp or later.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct ActiveSnapshots {
    /// Those that are known exactly, in no order.
    exact: SmallVec<[Stamp; 4]>,
    /// Every snapshot from here on may be active.
    open_from: Option<Stamp>,
}

impl ActiveSnapshots {
    /// None.
    pub(super) fn none() -> Self {
        Self::default()
    }

    /// This one is active.
    pub(super) fn add(&mut self, snapshot: Stamp) {
        self.exact.push(snapshot);
    }

    /// Every snapshot from here on may be active.
    pub(super) fn add_from(&mut self, from: Stamp) {
        self.open_from = Some(self.open_from.map_or(from, |open| open.min(from)));
    }

    /// Whether none can be active.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.open_from.is_none()
    }

    /// Whether one at `from` or later may be active.
    #[must_use]
    pub fn any_since(&self, from: Stamp) -> bool {
        self.open_from.is_some() || self.exact.iter().any(|snapshot| *snapshot >= from)
    }

    /// Whether one at `from` or later, and before `until`, may be active.
    #[must_use]
    pub fn any_within(&self, from: Stamp, until: Stamp) -> bool {
        from < until
            && (self.open_from.is_some_and(|open| open < until)
                || self.exact.iter().any(|snapshot| (from..until).contains(snapshot)))
    }

    /// The oldest that may be active.
    #[must_use]
    pub fn oldest(&self) -> Option<Stamp> {
        self.exact.iter().copied().chain(self.open_from).min()
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_counts_from_its_start_and_what_is_exact_where_it_is() {
        let stamp = Stamp::new;
        let none = ActiveSnapshots::none();
        assert!(none.is_empty() && !none.any_since(stamp(0)));
        assert!(!none.any_within(stamp(0), stamp(u64::MAX)) && none.oldest().is_none());
        let mut exact = ActiveSnapshots::none();
        exact.add(stamp(4));
        exact.add(stamp(9));
        assert!(exact.any_since(stamp(9)) && !exact.any_since(stamp(10)));
        assert!(exact.any_within(stamp(4), stamp(5)) && !exact.any_within(stamp(5), stamp(9)));
        assert_eq!(exact.oldest(), Some(stamp(4)));
        let mut open = exact.clone();
        open.add_from(stamp(7));
        open.add_from(stamp(8));
        assert!(open.any_since(stamp(100)));
        assert!(open.any_within(stamp(5), stamp(8)) && !open.any_within(stamp(5), stamp(7)));
        assert!(!open.any_within(stamp(8), stamp(8)), "nothing lies in it");
    }
}
