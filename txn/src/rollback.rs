//! Taking changes back, on leaves that are held exclusively. Nothing here waits or can fail.

use selkie_btree::{LeafView, Whereabouts, leaf_insert, leaf_remove, leaf_replace};

use crate::database::Inner;
use crate::held::HeldLeaves;
use crate::transaction::Work;
use crate::undo::{Change, UndoEntry};
use crate::upkeep::Upkeep;

/// Takes back the latest changes until `mark` are left.
///
/// # Panics
/// If a held leaf is not what the log says, which means that its bytes were damaged meanwhile:
/// going on would make half a transaction visible.
pub(crate) fn undo_to(work: &mut Work<'_>, mark: usize) {
    while work.undo.len() > mark {
        let Some(entry) = work.undo.last() else { break };
        work.removed |= entry.change == Change::Inserted;
        let done = revert(&mut work.held, &entry);
        assert!(
            done.is_some(),
            "undo of {:?} found another leaf than the one it left",
            entry.change
        );
        work.undo.pop();
    }
}

/// Takes one change back, where its key is now; `None` if that is impossible.
fn revert(held: &mut HeldLeaves<'_>, entry: &UndoEntry<'_>) -> Option<()> {
    let (leaf, slot) = home(held, entry.leaf, entry.key)?;
    let guard = held.exclusive_mut(leaf)?;
    match (entry.change, slot) {
        (Change::Inserted, Ok(slot)) => leaf_remove(guard, slot).ok(),
        (Change::Removed, Err(_)) => leaf_insert(guard, entry.key, entry.image).ok(),
        (Change::Replaced, Ok(slot)) => leaf_replace(guard, slot, entry.image).ok(),
        (Change::Patched { offset }, Ok(slot)) => {
            let start = LeafView::new(guard).ok()?.value_range(slot).ok()?.start + offset;
            guard.bytes_mut(start..start + entry.image.len()).copy_from_slice(entry.image);
            Some(())
        }
        _ => None,
    }
}

/// The held leaf that a key is in now which was in `leaf`, and its place there. Splits since then
/// moved it only to the right, into leaves that the transaction holds because it made them.
pub(crate) fn home(
    held: &HeldLeaves<'_>,
    mut leaf: usize,
    key: &[u8],
) -> Option<(usize, Result<usize, usize>)> {
    for _ in 0..=held.len() {
        match LeafView::new(held.bytes(leaf)?).ok()?.where_is(key).ok()? {
            Whereabouts::Here(slot) => return Some((leaf, slot)),
            Whereabouts::Right(next) => leaf = held.position(next)?,
            Whereabouts::Elsewhere => return None,
        }
    }
    None
}

/// Queues held leaves without entries to be reclaimed once they are released.
pub(crate) fn note_empty_leaves(work: &mut Work<'_>, db: &Inner) {
    if !std::mem::take(&mut work.removed) {
        return;
    }
    for (tree, guard) in work.held.exclusive() {
        if LeafView::new(guard).is_ok_and(|leaf| leaf.is_empty())
            && let Some(tree) = db.tree(tree)
        {
            work.upkeep.push(Upkeep::Reclaim(tree, guard.addr()));
        }
    }
}
