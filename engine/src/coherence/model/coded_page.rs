//! The splits of the model's coded page: two of data, one of parity.

use crate::coding::tag::{SplitSet, Version, Versions};
use crate::coding::torn_write::{ResolvedPage, SplitFinding, resolve_torn_write};

/// Splits of the page: two of data, the first of which is changed, and one of parity.
pub(super) const SPLITS: usize = 3;
pub(super) const DATA: usize = 2;
pub(super) const CHANGED: usize = 0;

/// A split, compared with the version in the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum SplitContent {
    #[default]
    Old,
    Torn,
    New,
}

/// The splits of the page.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct CodedPage {
    /// The node that writes the page back.
    pub(super) writer: Option<usize>,
    pub(super) splits: [SplitContent; SPLITS],
    /// The page that it writes is fresh.
    pub(super) new_fresh: bool,
    pub(super) lost: Option<usize>,
    /// A split was lost once.
    pub(super) bereft: bool,
    /// Too few splits are left: the page is refused.
    pub(super) refused: bool,
}

impl CodedPage {
    pub(super) fn code(&self) -> u64 {
        let splits = self.splits.iter().fold(0, |all, split| all << 2 | *split as u64);
        let lost = self.lost.map_or(0, |lost| lost as u64 + 1);
        let flags =
            u64::from(self.new_fresh) | u64::from(self.bereft) << 1 | u64::from(self.refused) << 2;
        splits | lost << 8 | flags << 16
    }

    /// The write-back is complete: its splits are the page.
    pub(super) fn end(&mut self) {
        self.writer = None;
        self.splits = Default::default();
        self.new_fresh = false;
    }

    /// The versions in the header, and the splits that a reader finds.
    fn found(&self) -> (Versions, Vec<SplitFinding>) {
        let old = Version::NEVER.next(SplitSet::first(DATA));
        let new = old.next(SplitSet::EMPTY.with(CHANGED));
        let mut header = Versions::default();
        header.iter_mut().take(SPLITS).for_each(|version| *version = old);
        let found = self.splits.iter().enumerate().map(|(number, split)| match split {
            _ if self.lost == Some(number) => SplitFinding::Nothing,
            SplitContent::Old => SplitFinding::Whole(old),
            SplitContent::New => SplitFinding::Whole(new),
            SplitContent::Torn => SplitFinding::Nothing,
        });
        (header, found.collect())
    }

    pub(super) fn page(&self) -> ResolvedPage {
        let (header, found) = self.found();
        let coding = selkie_pool::Coding::new(DATA, SPLITS - DATA).unwrap();
        resolve_torn_write(coding, &header, &found, None)
    }
}
