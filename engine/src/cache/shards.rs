//! Lines with an operation open or a waiter, in shards with a lock each.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use parking_lot::Mutex;

use crate::coherence::open_line::OpenLine;

/// Hash of line addresses inside a shard: the address is multiplied, as in the address table.
#[derive(Default)]
pub(crate) struct LineHasher(u64);

impl Hasher for LineHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte) ^ self.0.rotate_left(8));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }
}

/// The lines of a shard that are not at rest.
pub(crate) type LineMap = HashMap<u64, OpenLine, BuildHasherDefault<LineHasher>>;

/// One shard, on cache lines of its own.
#[repr(align(64))]
#[derive(Default)]
pub(crate) struct Shard(pub(super) Mutex<LineMap>);
