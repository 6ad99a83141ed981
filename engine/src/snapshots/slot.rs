//! The slot in which a node publishes its snapshots to the others, in the control page of the
//! memory node that has the epochs.
//!
//! Each word is whole, and the words may be of different times. That does no harm: a snapshot that
//! is listed keeps its word, `open_from` is raised after those below it are listed, and a node that
//! reads a slot reads `open_from` first.

use selkie_pool::layout::SNAPSHOT_SLOT_WORDS;

use super::active::ActiveSnapshots;
use super::stamp::Stamp;

/// Snapshots that a slot lists exactly.
pub(crate) const LISTED: usize = 4;

const _: () = assert!(3 + LISTED == SNAPSHOT_SLOT_WORDS);

/// Offset of `open_from` in a slot, bytes.
pub(super) const OPEN_FROM_AT: u64 = 8;
/// Offset of the first listed snapshot in a slot, bytes.
pub(super) const LISTED_AT: u64 = 16;

/// Offset of the incarnation in a slot, bytes. It is written after the other words, and read
/// before them: the node of this incarnation has published itself at this memory node.
pub(super) const INCARNATION_AT: u64 = LISTED_AT + 8 * LISTED as u64;

/// The words of the snapshots that a slot lists.
pub(crate) type Listed = [Option<Stamp>; LISTED];

/// A stamp as a word of a slot; 0 is none.
pub(crate) fn word_of(stamp: Option<Stamp>) -> u64 {
    stamp.map_or(0, |stamp| stamp.get() + 1)
}

fn stamp_of(word: u64) -> Option<Stamp> {
    word.checked_sub(1).map(Stamp::new)
}

/// Adds what a slot says that matters to a commit at `before`, and to a horizon there: a later
/// snapshot sees that commit.
pub(crate) fn add_published(
    active: &mut ActiveSnapshots,
    open_from: u64,
    listed: impl Iterator<Item = u64>,
    before: Stamp,
) {
    if let Some(from) = stamp_of(open_from).filter(|from| *from < before) {
        active.add_from(from);
    }
    listed.filter_map(stamp_of).filter(|own| *own < before).for_each(|own| active.add(own));
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
    fn zero_says_nothing_and_later_snapshots_do_not_matter() {
        let read = |open: Option<u64>, listed: &[u64], before| {
            let mut active = ActiveSnapshots::none();
            let words = listed.iter().map(|own| word_of(Some(Stamp::new(*own))));
            let open = word_of(open.map(Stamp::new));
            add_published(&mut active, open, words.chain([0]), Stamp::new(before));
            active
        };
        assert!(read(None, &[], 5).is_empty());
        assert!(read(Some(5), &[5, 6], 5).is_empty());
        assert_eq!(read(Some(4), &[], 5).oldest(), Some(Stamp::new(4)));
        assert_eq!(read(None, &[0, 3], 5).oldest(), Some(Stamp::new(0)));
    }
}
