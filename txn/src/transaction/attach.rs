//! Making trees that were built bottom-up those of a table.
//!
//! An empty table has one leaf a tree, which covers all keys. To attach is to change that leaf and
//! the root, and it is done as transactions change leaves:
//!
//! ```text
//! latch the leaf of each tree exclusively, in the order of their addresses
//!  -> draw a stamp, where leaves have stamps, and give it to all new leaves
//!  -> latch the roots, waiting for none
//!  -> change leaves and roots together -> release them
//! ```
//!
//! The latches keep out two-phase locked transactions that have read the table, and the change
//! makes the reads of all others stale. If others have inserted rows meanwhile, nothing is changed.
//!
//! *Stamps.* Under timestamp ordering and with snapshots a leaf has the stamp of the transaction
//! that changed it last. The new leaves were written before there was one. They get it while the
//! old leaves are latched, which are all that leads to them. With snapshots they link to the image
//! of the empty leaf, as both halves of a split leaf link to one image: at an earlier snapshot
//! nothing is found there. These records have room in the log before the old leaves are latched,
//! which may hold the log back meanwhile.
//!
//! *The table* may have been dropped or changed meanwhile, where tables change. So the leaf of the
//! catalogue that has its row is latched, too, and the row compared: as with a commit, what is
//! loaded is what the definition in force says.
//!
//! *Row locks.* A lock of a row that is not there is honoured as by a commit: the leaf that is to
//! change may be marked, and then the load waits until no row of the tree is locked. New leaves
//! have no mark.
//!
//! *No deadlock.* Two callers latch leaves in the same order, and transactions that hold leaves
//! wait for others in that order or not at all. Roots are only tried, and let go with all others
//! when one is in use.

use std::time::Duration;

use selkie_btree::{
    BuiltTree, KeyLocation, LEAF_HEADER_BYTES, LeafView, Stamp, Stamps, TreeError, leaf_stamp,
};
use selkie_engine::log::{LogReservation, Lsn};
use selkie_engine::{EngineError, ExclusiveGuard, GAddr, ImageLink, SharedGuard, change_together};
use selkie_fabric::env::yield_now;

use crate::access::table_use::no_such_table;
use crate::catalogue::changing::KnownTable;
use crate::catalogue::definition::TABLES;
use crate::error::TxnError;
use crate::locks::entry::LockName;
use crate::locks::row_locks::LOCK_TIMEOUT;
use crate::protocol::choice::ReadRule;
use crate::transaction::database_state::DatabaseState;

/// Attempts to latch all leaves, and then all roots.
const ATTEMPTS: u32 = 64;
/// First pause between two; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// How often a stamp is drawn that is later than those of the old leaves.
const DRAWS: u32 = 3;
/// Leaves after which other tasks get their turn.
const YIELD_LEAVES: usize = 64;

/// Makes these trees the ones that they were built for, all or none.
pub(super) async fn attach(
    db: &DatabaseState,
    reads: ReadRule,
    known: Option<&KnownTable>,
    mut built: Vec<BuiltTree>,
) -> Result<(), TxnError> {
    let engine = &db.engine;
    built.sort_unstable_by_key(|tree| tree.leaf().to_u64());
    let has_stamps = has_stamps(reads);
    let mut locked_since = None;
    let (room, mut leaves) = loop {
        let room = room_for(db, &built, has_stamps).await?;
        if let Some(leaves) = latch_leaves(db, &built, &room).await? {
            break (room, leaves);
        }
        // The log has that room for others meanwhile.
        drop(room);
        wait_for_locked(db, &mut locked_since).await?;
    };
    let mut stamps = Vec::with_capacity(leaves.len());
    for leaf in &leaves {
        stamps.push(view(leaf)?.stamps());
    }
    if has_stamps && !leaves.is_empty() {
        draw_stamps(db, reads, &leaves, &mut stamps).await?;
        for (tree, stamps) in built.iter().zip(&stamps) {
            stamp_leaves(db, tree.leaves(), *stamps, &room).await?;
        }
    }
    let mut roots = latch_roots(db, &built, &room).await?;
    let definition = match known {
        Some(known) => Some(hold_definition(db, known).await?),
        None => None,
    };
    let lsn = change_all(built, &mut leaves, &mut roots, stamps)?;
    drop((roots, leaves, definition, room));
    engine.until_durable(lsn).await.map_err(|source| TxnError::Undetermined { source })
}

/// As [`attach`], of trees that no other transaction knows before that of the caller commits. Their
/// new leaves have the stamps of the old ones. Nothing waits for the log: the commit does.
pub(super) async fn attach_unseen(
    db: &DatabaseState,
    mut built: Vec<BuiltTree>,
) -> Result<(), TxnError> {
    built.sort_unstable_by_key(|tree| tree.leaf().to_u64());
    let room = room_for(db, &built, false).await?;
    let Some(mut leaves) = latch_leaves(db, &built, &room).await? else {
        let leaf = built.first().map_or(GAddr::NULL, BuiltTree::leaf);
        return Err(TxnError::Conflict { leaf, upgrade: false });
    };
    let mut stamps = Vec::with_capacity(leaves.len());
    for leaf in &leaves {
        stamps.push(view(leaf)?.stamps());
    }
    let mut roots = latch_roots(db, &built, &room).await?;
    change_all(built, &mut leaves, &mut roots, stamps)?;
    drop((roots, leaves, room));
    Ok(())
}

/// Gives leaves and roots that are latched their content, all in one change, if all trees are empty
/// still. Where it ends in the log.
fn change_all<'db>(
    built: Vec<BuiltTree>,
    leaves: &mut [ExclusiveGuard<'db>],
    roots: &mut [ExclusiveGuard<'db>],
    stamps: Vec<Stamps>,
) -> Result<Lsn, TxnError> {
    for ((tree, leaf), root) in built.iter().zip(&*leaves).zip(&*roots) {
        tree.check(leaf, root)?;
    }
    let pages = leaves.iter_mut().zip(&mut *roots);
    for ((tree, (leaf, root)), stamps) in built.into_iter().zip(pages).zip(stamps) {
        tree.attach(leaf, root, stamps)?;
    }
    Ok(change_together(leaves.iter_mut().chain(roots)).unwrap_or(0))
}

/// Latches the leaf of the catalogue that says that a definition is in force, so that no commit
/// changes that meanwhile. It is only tried.
async fn hold_definition<'db>(
    db: &'db DatabaseState,
    known: &KnownTable,
) -> Result<SharedGuard<'db>, TxnError> {
    let engine = &db.engine;
    let tables = db.directory.fixed(TABLES).ok_or_else(|| no_such_table(known.table))?;
    let key = known.table.catalogue_key();
    let mut conflict = GAddr::NULL;
    for attempt in 0..ATTEMPTS {
        let _pin = engine.pin();
        match tables.primary.tree.locate_in_order(engine, &key).await {
            Ok(leaf) => conflict = leaf,
            Err(TreeError::Engine(EngineError::Busy { .. })) => {
                pause(db, attempt).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        }
        let guard = match engine.try_shared(conflict).await {
            Ok(guard) => guard,
            Err(EngineError::Busy { .. }) => {
                pause(db, attempt).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let leaf = LeafView::new(&guard).map_err(|error| error.at(conflict))?;
        let KeyLocation::Here(slot) = leaf.where_is(&key)? else { continue };
        let row = slot.ok().map(|slot| leaf.value(slot)).transpose()?;
        if db.digester.of_value(row) == known.digest {
            return Ok(guard);
        }
        return Err(TxnError::Stale { leaf: conflict });
    }
    Err(TxnError::Conflict { leaf: conflict, upgrade: false })
}

/// Whether leaves have the stamps of those who change them.
pub(super) fn has_stamps(reads: ReadRule) -> bool {
    matches!(reads, ReadRule::Stamp | ReadRule::RecordRows)
}

/// Bytes in the log of what is recorded while so many leaves of so many trees become a table.
pub(super) fn log_need(db: &DatabaseState, leaves: usize, trees: usize, has_stamps: bool) -> u64 {
    let page = db.engine.gcl_bytes() as u64;
    // The pieces of a page that have its header, and what is recorded with them.
    let stamp = page / 8 + 2 * LEAF_HEADER_BYTES as u64;
    let stamps = if has_stamps { leaves as u64 * stamp } else { 0 };
    stamps + 3 * page * trees as u64
}

/// Whether a row of a tree whose leaf is held is locked.
async fn has_locked_rows(
    db: &DatabaseState,
    built: &[BuiltTree],
    leaves: &[ExclusiveGuard<'_>],
) -> Result<bool, TxnError> {
    let Some(table) = &db.locks else { return Ok(false) };
    for (tree, leaf) in built.iter().zip(leaves) {
        if view(leaf)?.may_be_locked() {
            match table.has_locks(LockName::of_tree(tree.root())).await {
                Ok(false) => {}
                // A recovery may need what is held.
                Ok(true) | Err(TreeError::Engine(EngineError::Busy { .. })) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(false)
}

/// Room in the log for what is recorded while leaves are latched.
async fn room_for(
    db: &DatabaseState,
    built: &[BuiltTree],
    has_stamps: bool,
) -> Result<LogReservation, TxnError> {
    let engine = &db.engine;
    let leaves: usize = built.iter().map(|tree| tree.leaves().len()).sum();
    let need = log_need(db, leaves, built.len(), has_stamps);
    loop {
        let mut room = LogReservation::default();
        match engine.reserve_log(&mut room, need) {
            Err(EngineError::LogFull) => engine.until_room(need).await?,
            reserved => return Ok(reserved.map(|()| room)?),
        }
    }
}

async fn pause(db: &DatabaseState, attempt: u32) {
    let pause = FIRST_PAUSE.saturating_mul(1 << attempt.min(16)).min(LONGEST_PAUSE);
    db.engine.env().pause(pause).await;
}

/// A pause before it is looked again whether rows are locked, which they are since `since`.
async fn wait_for_locked(db: &DatabaseState, since: &mut Option<Duration>) -> Result<(), TxnError> {
    let now = db.engine.env().now();
    let waited = now - *since.get_or_insert(now);
    if waited > LOCK_TIMEOUT {
        let (table, key) = (String::new(), String::new());
        return Err(TxnError::LockTimeout { waited, table, key });
    }
    db.engine.env().pause(LONGEST_PAUSE).await;
    Ok(())
}

/// Latches the leaf of each tree, waiting for those that others hold. `None` if they have locked
/// rows.
async fn latch_leaves<'db>(
    db: &'db DatabaseState,
    built: &[BuiltTree],
    room: &LogReservation,
) -> Result<Option<Vec<ExclusiveGuard<'db>>>, TxnError> {
    let mut conflict = GAddr::NULL;
    for attempt in 0..ATTEMPTS {
        let mut leaves = Vec::with_capacity(built.len());
        for tree in built {
            match db.engine.exclusive_with_room(tree.leaf(), room).await {
                Ok(leaf) => leaves.push(leaf),
                Err(EngineError::Busy { .. }) => {
                    conflict = tree.leaf();
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        if leaves.len() == built.len() {
            let locked = has_locked_rows(db, built, &leaves).await?;
            return Ok((!locked).then_some(leaves));
        }
        drop(leaves);
        pause(db, attempt).await;
    }
    Err(TxnError::Conflict { leaf: conflict, upgrade: false })
}

/// Latches the root of each tree, waiting for none while another is held.
async fn latch_roots<'db>(
    db: &'db DatabaseState,
    built: &[BuiltTree],
    room: &LogReservation,
) -> Result<Vec<ExclusiveGuard<'db>>, TxnError> {
    for attempt in 0..ATTEMPTS {
        let mut roots = Vec::with_capacity(built.len());
        for tree in built {
            let Some(root) = tree.try_root(&db.engine, room).await? else { break };
            roots.push(root);
        }
        if roots.len() == built.len() {
            return Ok(roots);
        }
        drop(roots);
        pause(db, attempt).await;
    }
    Err(TxnError::Conflict { leaf: GAddr::NULL, upgrade: false })
}

/// Draws a stamp that is later than all of the old leaves, and makes it theirs. With snapshots,
/// keeps images of them.
async fn draw_stamps(
    db: &DatabaseState,
    reads: ReadRule,
    leaves: &[ExclusiveGuard<'_>],
    stamps: &mut [Stamps],
) -> Result<(), TxnError> {
    let engine = &db.engine;
    if reads == ReadRule::Stamp {
        let latest = stamps.iter().map(|stamps| stamps.read.max(stamps.write)).max();
        let latest = latest.unwrap_or_default();
        for _ in 0..DRAWS {
            let stamp = db.clock.draw(engine).await?;
            if stamp > latest {
                stamps.iter_mut().for_each(|stamps| stamps.write = stamp);
                return Ok(());
            }
            // The clock is behind the pages.
            db.clock.observe(latest);
        }
        return Err(TxnError::TooLate {
            leaf: leaves.first().map_or(GAddr::NULL, |leaf| leaf.addr()),
        });
    }
    let latest = stamps.iter().map(|stamps| stamps.write).max().unwrap_or_default();
    let (mut stamp, mut active) = engine.draw_stamp().await?;
    if stamp <= latest {
        engine.raise_clock(latest.get()).await?;
        (stamp, active) = engine.draw_stamp().await?;
    }
    db.note_stamp(stamp);
    for (leaf, stamps) in leaves.iter().zip(stamps) {
        if active.any_since(stamps.write) {
            let before = ImageLink::from_u64(stamps.read.get());
            let link = engine.keep_image(leaf, stamps.write, stamp, before, &active);
            if link != ImageLink::NONE {
                stamps.read = Stamp::new(link.to_u64());
            }
        }
        stamps.write = stamp;
    }
    Ok(())
}

/// Gives new leaves their stamps. Nothing leads to them yet.
async fn stamp_leaves(
    db: &DatabaseState,
    leaves: &[GAddr],
    stamps: Stamps,
    room: &LogReservation,
) -> Result<(), TxnError> {
    for (at, addr) in leaves.iter().enumerate() {
        let mut leaf = db.engine.exclusive_with_room(*addr, room).await?;
        view(&leaf)?;
        leaf_stamp(&mut leaf, stamps);
        drop(leaf);
        if at % YIELD_LEAVES == YIELD_LEAVES - 1 {
            yield_now().await;
        }
    }
    Ok(())
}

fn view<'a>(leaf: &'a ExclusiveGuard<'_>) -> Result<LeafView<'a>, TxnError> {
    Ok(LeafView::new(leaf).map_err(|error| error.at(leaf.addr()))?)
}
