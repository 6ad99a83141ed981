//! A B-link tree whose pages are global cache lines: many compute nodes work on one tree through
//! coherent, latched pages.
//!
//! Keys and values are byte strings, ordered by bytes. The tree has two faces. *Stand-alone
//! operations* ([`Tree::get`], [`Tree::insert`], [`Tree::upsert`], [`Tree::update`],
//! [`Tree::delete`], [`Tree::scan`]) latch for their own duration. *Building blocks* are for
//! transactions, which keep leaf latches to commit: locate a leaf ([`Tree::locate`],
//! [`Tree::locate_before`]), fetch those ahead ([`Tree::leaves_ahead`]), latch it through the
//! engine, read it ([`LeafView`]), change it ([`leaf_insert`], [`leaf_replace`], [`leaf_remove`]),
//! [stamp](leaf_stamp) it, split it while it is latched ([`Tree::split_leaf`]), and maintain the
//! tree once no latch is held ([`Tree::post`], [`Tree::reclaim`]). An empty tree is loaded from
//! sorted rows bottom-up ([`Tree::bulk_load`]).
//!
//! # Why many nodes can share it
//!
//! * Every page stores its two fences and a link to its right neighbour. A traversal that meets a
//!   page that was split in the meantime moves right. So inner pages are latched one at a time,
//!   briefly, and a split is complete before its parent knows of it.
//! * A traversal that meets an unlinked page starts again at the root. The root's address never
//!   changes, and an epoch pin keeps addresses on the way from being reused.
//! * Leaves are never the root: a leaf keeps its address as long as it lives, so a transaction can
//!   hold it by its address.
//!
//! # Latches, and why there is no deadlock
//!
//! An operation that holds an inner page waits for no latch: posting and reclaiming hold one inner
//! page and only *try* the pages below it, and no other node knows the pages that they allocate. So
//! an operation that holds leaves may wait for inner pages, but must only *try* further leaves. The
//! stand-alone operations hold at most one leaf while they wait for another page, and that page is
//! an inner one.
//!
//! # Where things are
//!
//! `page/` is the page format as functions over bytes; `tree` descends, `ahead` looks at what is
//! cached of the way; `leaf`, `split`, `post` and `reclaim` (with `merge`, one level of it) are the
//! building blocks, each with its argument; `ops`, `scan`, `verify` and `bulk` stand on them.
//!
//! # Not done
//!
//! Pages that are no longer underfull stay as they are, however full their neighbours: only two
//! that fit one page, with room to spare, are merged. Inner pages are read under shared latches,
//! not optimistically.
//!
//! # Example
//!
//! ```
//! use std::ops::{Bound, ControlFlow};
//! use std::sync::Arc;
//!
//! use selkie_btree::{Direction, Tree};
//! use selkie_engine::{ComputeId, Engine, EngineConfig};
//! use selkie_fabric::Fabric;
//! use selkie_fabric::env::RealRuntime;
//! use selkie_fabric::mem::MemFabric;
//! use selkie_memnode::EmbeddedPool;
//! use selkie_pool::{Coding, PoolConfig};
//!
//! let runtime = RealRuntime::new(1)?;
//! let env = runtime.env();
//! let fabric: Arc<dyn Fabric> = MemFabric::new();
//! let memory = EmbeddedPool::start(&fabric, PoolConfig {
//!     memory_nodes: 1,
//!     bytes_per_node: 16 << 20,
//!     gcl_bytes: 2048,
//!     range_bytes: 4 << 20,
//!     max_compute_nodes: 2,
//!     coding: Coding::PLAIN,
//!     log_bytes: 0,
//! })?;
//! runtime.block_on(async {
//!     let config = EngineConfig { cache_bytes: 4 << 20, ..EngineConfig::default() };
//!     let [a, b] = [ComputeId::new(0).unwrap(), ComputeId::new(1).unwrap()];
//!     let a = Engine::start(memory.pool(), &fabric, &env, a, config.clone()).await?;
//!     let b = Engine::start(memory.pool(), &fabric, &env, b, config).await?;
//!
//!     // One node makes the tree, the other opens it by its root's address.
//!     let tree = Tree::create(&a, u16::MAX).await?;
//!     tree.insert(&a, b"otter", b"river").await?;
//!     let same = Tree::open(tree.root(), u16::MAX);
//!     same.insert(&b, b"selkie", b"sea").await?;
//!     same.update(&b, b"otter", b"brook").await?;
//!     assert_eq!(tree.get(&a, b"otter").await?.as_deref(), Some(&b"brook"[..]));
//!
//!     let mut last = None;
//!     let range = (Bound::Unbounded, Bound::Included(&b"z"[..]));
//!     tree.scan(&a, range, Direction::Reverse, |key, _| {
//!         last = Some(key.to_vec());
//!         ControlFlow::Break(())
//!     })
//!     .await?;
//!     assert_eq!(last.as_deref(), Some(&b"selkie"[..]));
//!     assert_eq!(tree.verify(&b).await?.entries, 2);
//!     a.close().await?;
//!     b.close().await?;
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod ahead;
mod bulk;
mod error;
mod give_back;
mod latch;
mod leaf;
mod merge;
mod ops;
mod page;
mod post;
mod reclaim;
mod sample;
mod scan;
mod split;
mod sweep;
mod tree;
mod unlinked;
mod verify;

pub use ahead::RestOfScan;
pub use bulk::{BuiltTree, BulkLoad, DEFAULT_FILL};
pub use error::{NoRoom, TreeError};
pub use leaf::{
    KeyLocation, LeafView, leaf_insert, leaf_mark_locked, leaf_remove, leaf_replace, leaf_stamp,
};
pub use ops::ValueChange;
pub use page::{HEADER as LEAF_HEADER_BYTES, Stamps, max_key, max_value};
pub use reclaim::{Reclaimed, StampRule};
pub use sample::LeavesOfParent;
pub use scan::Direction;
pub use selkie_engine::Stamp;
pub use split::{MAX_SPLITS, PendingPost};
pub use sweep::{SweepRange, Swept};
pub use tree::Tree;
pub use unlinked::{give_back_new, is_unlinked, written_at};
pub use verify::TreeStats;
