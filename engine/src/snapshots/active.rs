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
