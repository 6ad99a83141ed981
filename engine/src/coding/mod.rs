//! Coded pages: pages that outlive memory nodes without being copied (Hydra, FAST'22).
//!
//! A page of a coded range is cut into k *data splits* of equal length, and r *parity splits* are
//! computed from them by [`selkie_erasure`]. Each split lies on a memory node of its own, and any k
//! of the k + r give the page back. Each page is coded by itself, so that a page remains the unit
//! of fetches, latches and write-backs.
//!
//! State and pure rules, which do not know the engine:
//! - `tag`, `header_versions`: which write-back a split is of, and its checksum;
//! - `torn_write`: the order of a write-back, and which page a torn one leaves;
//! - `half_done`: the versions from before a torn write-back, where its header was lost;
//! - `coded`: the state of a node of a coded pool; `page_write`: the splits of a write-back;
//! - `node_errors`: damaged splits, by memory node; `placed`: writes that others may be told of;
//! - `quiesced`, `unlatched`, `repair_gate`: lines and work that a rebuild or a close waits for.
//!
//! Protocols:
//! - `access`, `operation`, `write_back`, `late_binding`, `journal`: latch operations;
//! - `repair_torn`: pages whose writer died; `rebuild`: header tables that are lost or move;
//! - `regenerate`, `migrate`: slabs that are lost or move; `counter`: counters with copies.

pub(crate) mod access;
pub(crate) mod coded;
pub(crate) mod counter;
mod half_done;
pub(crate) mod header_versions;
pub(crate) mod journal;
mod late_binding;
mod migrate;
mod node_errors;
mod operation;
mod page_write;
pub(crate) mod placed;
pub(crate) mod quiesced;
mod rebuild;
pub(crate) mod regenerate;
pub(crate) mod repair_gate;
pub(crate) mod repair_torn;
pub(crate) mod tag;
pub(crate) mod torn_write;
mod unlatched;
mod write_back;
