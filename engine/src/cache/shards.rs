//! Lines with an operation open or a waiter, in shards with a lock each.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use parking_lot::Mutex;
use selkie_pool::LineHasher;

use crate::coherence::open_line::OpenLine;

/// The lines of a shard that are not at rest.
pub(crate) type LineMap = HashMap<u64, OpenLine, BuildHasherDefault<LineHasher>>;

/// One shard, on cache lines of its own.
#[repr(align(64))]
#[derive(Default)]
pub(crate) struct Shard(pub(super) Mutex<LineMap>);
