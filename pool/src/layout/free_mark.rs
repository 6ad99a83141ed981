//! The mark of a free line, in its header: whose the line is, and how often it had been changed.
//!
//! ```text
//! bit  63       58 57                  36 35                          0
//!      +----------+----------------------+-----------------------------+
//!      | owner: 6 | incarnation: 22      | sequence number: 36         |
//!      +----------+----------------------+-----------------------------+
//! ```
//! The owner is the index of a compute node plus one, or 63: all nodes. 62 says that the line is a
//! counter, and no page. The whole word is zero on a line that was never free, or whose header was
//! lost.
//!
//! # Why a mark can be believed
//! A mark says that the line was free when its page had that sequence number. An allocation changes
//! the page, and no change takes the number back. So a line is free if, and only if, its latch can
//! be had and its page still has the number of its mark: a line in use never has, whatever mark is
//! left in its header, and no node has to remove marks. Only the owner allocates the line. If the
//! owner is no node of the pool any more, for good, the line is free for all. A node that takes
//! such a line changes the page under its exclusive latch, so that it is taken once.
//!
//! A mark that is lost, or that does not fit these bits, costs the line until `selkie pool repair`
//! finds that nothing leads there. It never makes a line free that is in use.

use crate::compute_index::ComputeIndex;

const OWNER_SHIFT: u32 = 58;
const INCARNATION_SHIFT: u32 = 36;
const INCARNATIONS: u64 = 1 << (OWNER_SHIFT - INCARNATION_SHIFT);
const PSNS: u64 = 1 << INCARNATION_SHIFT;
/// The owner field of lines that any node may take.
const ALL: u64 = 63;
/// The word of a line that is a counter: no node may ever take it.
const COUNTER: u64 = 62 << OWNER_SHIFT;

const _: () = assert!((super::limits::MAX_COMPUTE_NODES as u64) < ALL);

/// Who may allocate a free line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineOwner {
    /// Any compute node.
    All,
    /// One compute node of the pool, and all others once it is in the pool no more.
    Node {
        /// Its index.
        node: ComputeIndex,
        /// Which node of this index it is.
        incarnation: u32,
    },
}

/// Says that a line was free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeMark {
    /// Whose it was.
    pub owner: LineOwner,
    /// The sequence number that its page had.
    pub psn: u64,
}

impl FreeMark {
    /// The word that says so; zero if it does not fit.
    #[must_use]
    pub fn to_word(self) -> u64 {
        if self.psn >= PSNS {
            return 0;
        }
        match self.owner {
            LineOwner::All => ALL << OWNER_SHIFT | self.psn,
            LineOwner::Node { node, incarnation } => {
                let (field, incarnation) = (u64::from(node.get()) + 1, u64::from(incarnation));
                if field >= ALL || incarnation >= INCARNATIONS {
                    return 0;
                }
                field << OWNER_SHIFT | incarnation << INCARNATION_SHIFT | self.psn
            }
        }
    }

    /// The word of a line that is a counter, and never free.
    #[must_use]
    pub fn counter() -> u64 {
        COUNTER
    }

    /// Whether a word says that its line is a counter.
    #[must_use]
    pub fn is_counter(word: u64) -> bool {
        word == COUNTER
    }

    /// What a word says of a free line; `None` if it says nothing of one.
    #[must_use]
    pub fn from_word(word: u64) -> Option<Self> {
        let psn = word % PSNS;
        let incarnation = (word >> INCARNATION_SHIFT) % INCARNATIONS;
        let owner = match word >> OWNER_SHIFT {
            ALL if incarnation == 0 => LineOwner::All,
            field if (1..=super::limits::MAX_COMPUTE_NODES as u64).contains(&field) => {
                let node = ComputeIndex::new(field as u16 - 1);
                LineOwner::Node { node, incarnation: incarnation as u32 }
            }
            _ => return None,
        };
        Some(Self { owner, psn })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_or_is_none() {
        let nodes = [0, 1, 31, 57].map(ComputeIndex::new);
        for psn in [0, 1, PSNS - 1] {
            let all = FreeMark { owner: LineOwner::All, psn };
            assert_eq!(FreeMark::from_word(all.to_word()), Some(all));
            for node in nodes {
                for incarnation in [1, 2, INCARNATIONS as u32 - 1] {
                    let owner = LineOwner::Node { node, incarnation };
                    let mark = FreeMark { owner, psn };
                    assert_eq!(FreeMark::from_word(mark.to_word()), Some(mark));
                }
            }
        }
        assert_eq!(FreeMark { owner: LineOwner::All, psn: PSNS }.to_word(), 0);
        let owner = LineOwner::Node { node: nodes[0], incarnation: INCARNATIONS as u32 };
        assert_eq!(FreeMark { owner, psn: 1 }.to_word(), 0);
        assert_eq!(FreeMark::from_word(0), None);
        // Owners that there are not.
        assert!(FreeMark::is_counter(FreeMark::counter()));
        for field in [59, 60, 62] {
            assert_eq!(FreeMark::from_word(field << OWNER_SHIFT | 1), None);
        }
        assert_eq!(FreeMark::from_word(ALL << OWNER_SHIFT | 1 << INCARNATION_SHIFT), None);
    }
}
