//! Tasks that the nodes of a pool share: each is done by one compute node at a time, and taken over
//! by another if that node dies.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::ranges::Slab;

/// How far a move has got: see the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MigrationStage {
    /// Only the node that moves the slab knows of it.
    Clearing,
    /// The new slab is being filled.
    Copying,
    /// The new slab is complete.
    Switching,
    /// The new slab is in use, and the old one still is.
    Switched,
    /// It is over, or given up, and one of the slabs will be free.
    Settling,
}

/// A slab on its way from one memory node to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migration {
    /// Its range.
    pub range: usize,
    /// Its position in the range.
    pub position: usize,
    /// Where it lies.
    pub from: Slab,
    /// Where it is to lie.
    pub to: Slab,
    /// The compute node that moves it, by index.
    pub by: u16,
    /// How far it is.
    pub stage: MigrationStage,
}

/// How far the headers of a memory node have got to new homes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rebuild {
    /// Tells it from others.
    pub number: u64,
    /// The memory node that has the headers, or had them.
    pub memory: u16,
    /// It lives, and only those of this range leave it; `None` if all are lost with it.
    pub leaving: Option<usize>,
    /// Where they were before they moved, as long as they can be read there.
    pub before: Vec<HeaderMove>,
    /// Compute nodes that have quiesced the lines concerned.
    pub quiet: BTreeSet<u16>,
    /// The compute node that moves the homes.
    pub by: Option<u16>,
    /// They have moved, and the headers are there, but for the latch words.
    pub moved: bool,
    /// The tables concerned, as (range, position), once they have moved: a node that comes in then
    /// does not find them by their homes. `None` before that, and if they moved when this was not
    /// kept yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tables: Option<BTreeSet<(usize, usize)>>,
    /// Compute nodes that have entered their copies in the latch words.
    pub entered: BTreeSet<u16>,
    /// Compute nodes that died before they could: their copies are unknown.
    pub doubtful: BTreeSet<u16>,
    /// Ranges in which pages may be lost for good whose words said so and are lost, and that are
    /// not remembered one by one: the words of lines that no node has are to say so again.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub abandoned: BTreeSet<usize>,
}

/// A header table and a place of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderMove {
    /// The range.
    pub range: usize,
    /// The position to which the headers belong.
    pub position: usize,
    /// How many positions on they lie there.
    pub on: usize,
    /// The slab there.
    pub slab: Slab,
}

/// A slab that is being regenerated on another memory node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Regeneration {
    /// Its range.
    pub range: usize,
    /// Its position in the range.
    pub position: usize,
    /// Where it is to lie.
    pub to: Slab,
    /// The compute node that regenerates it, by index.
    pub by: u16,
    /// The slab is in its range, and in use.
    pub begun: bool,
    /// All its splits are there; counters of the range stand still.
    pub ends: bool,
    /// How often it was to be begun anew.
    pub attempt: u32,
}

/// A snapshot barrier, which all compute nodes mark in their logs: see
/// [`crate::Pool::begin_barrier`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotBarrier {
    /// From 1 on.
    pub number: u64,
    /// The compute node that wants it.
    pub by: u16,
}
