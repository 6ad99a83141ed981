//! What stands in the lock tree: names of locks, queues, and what waits for what, as bytes.
//!
//! ```text
//! key   | root of the row's tree u64 BE | hash of the row's key u64 BE, 0: the whole tree |
//! key   | kind of advisory lock, from u64::MAX downward, u64 BE | its number u64 BE |
//! value | request, 25 bytes | request | ...        the first one holds the lock
//!
//! request | node u8 | incarnation u32 | transaction u64 | ticket u32 | age u64 |
//!
//! key   | 0 u64 | transaction u64 BE |
//! value | node u8 | incarnation u32 | wait number u64 | name of the lock, 16 bytes |
//! ```
//! The highest bit of a ticket says that the lock is wanted shared. Numbers in values are
//! little-endian.

use selkie_engine::GAddr;

/// Bytes of a name.
pub(crate) const NAME: usize = 16;
/// Bytes of a request.
pub(crate) const REQUEST: usize = 25;
/// Bytes of a wait.
const WAIT: usize = 13 + NAME;
/// Most requests in a queue, where a page takes so many: who finds it full looks again until it has
/// room. Each waiter of a long wait follows all of them in search of a deadlock.
pub(crate) const MOST_REQUESTS: usize = 64;

/// The name of a lock. Rows whose keys have the same hash share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LockName {
    root: u64,
    hash: u64,
}

impl LockName {
    /// Of the row with this key, be it there or not.
    pub(crate) fn of_row(root: GAddr, key: &[u8]) -> Self {
        // FNV-1a, then mixed: the same on every node.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in key {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self { root: root.to_u64(), hash: (hash ^ (hash >> 31)).max(1) }
    }

    /// Of all rows of a tree together: the least name of the tree.
    pub(crate) fn of_tree(root: GAddr) -> Self {
        Self { root: root.to_u64(), hash: 0 }
    }

    /// Of an advisory lock. No tree has its root there.
    pub(crate) fn advisory(kind: u8, number: u64) -> Self {
        Self { root: u64::MAX - u64::from(kind), hash: number }
    }

    pub(crate) fn key(self) -> [u8; NAME] {
        (u128::from(self.root) << u64::BITS | u128::from(self.hash)).to_be_bytes()
    }

    fn from_key(key: [u8; NAME]) -> Self {
        let both = u128::from_be_bytes(key);
        Self { root: (both >> u64::BITS) as u64, hash: both as u64 }
    }

    /// Whether a key of the lock tree is of a lock in the same tree of rows.
    pub(crate) fn is_of_same_tree(self, key: &[u8]) -> bool {
        key.first_chunk::<8>() == Some(&self.root.to_be_bytes())
    }
}

/// A transaction that locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) node: u8,
    pub(crate) incarnation: u32,
    /// Of no other transaction.
    pub(crate) txn: u64,
    /// The later it began the greater, about.
    pub(crate) age: u64,
}

/// One's place in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockRequest {
    pub(crate) owner: Owner,
    /// Which of its requests it is, and whether the lock is wanted shared.
    pub(crate) ticket: u32,
}

/// The bit of a ticket that says so.
const SHARED: u32 = 1 << 31;

impl LockRequest {
    /// For a lock that nobody shares. `number` is of no other request of the owner, of late.
    pub(crate) fn exclusive(owner: Owner, number: u64) -> Self {
        Self { owner, ticket: number as u32 & !SHARED }
    }

    /// For a lock that others may share.
    pub(crate) fn shared(owner: Owner, number: u64) -> Self {
        Self { owner, ticket: number as u32 | SHARED }
    }

    /// The same, for a lock that others may share.
    pub(crate) fn to_shared(self) -> Self {
        Self { ticket: self.ticket | SHARED, ..self }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.ticket & SHARED != 0
    }

    /// Whether a ticket is of this request, shared or not.
    pub(crate) fn has_ticket(&self, ticket: u32) -> bool {
        self.ticket | SHARED == ticket | SHARED
    }

    /// Whether they cannot hold a lock both.
    pub(crate) fn excludes(&self, other: &Self) -> bool {
        !(self.is_shared() && other.is_shared())
    }
}

/// Those who hold a lock or wait for it, in their order.
pub(crate) fn decode_queue(value: &[u8]) -> Vec<LockRequest> {
    let (requests, _) = value.as_chunks::<REQUEST>();
    requests.iter().map(decode_request).collect()
}

fn decode_request(bytes: &[u8; REQUEST]) -> LockRequest {
    let owner = Owner {
        node: bytes.first().copied().unwrap_or(u8::MAX),
        incarnation: number(bytes, 1, 4) as u32,
        txn: number(bytes, 5, 8),
        age: number(bytes, 17, 8),
    };
    LockRequest { owner, ticket: number(bytes, 13, 4) as u32 }
}

/// A number of so many bytes; what is missing counts as zero.
fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let digits = bytes.iter().skip(at).take(len).rev();
    digits.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

pub(crate) fn encode_queue(queue: &[LockRequest]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(queue.len() * REQUEST);
    for LockRequest { owner, ticket } in queue {
        bytes.push(owner.node);
        bytes.extend(owner.incarnation.to_le_bytes());
        bytes.extend(owner.txn.to_le_bytes());
        bytes.extend(ticket.to_le_bytes());
        bytes.extend(owner.age.to_le_bytes());
    }
    bytes
}

/// What a transaction waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) node: u8,
    pub(crate) incarnation: u32,
    /// Of no other wait of the transaction.
    pub(crate) number: u64,
    pub(crate) name: LockName,
}

impl Wait {
    /// Where the wait of a transaction stands. No tree has its root at 0.
    pub(crate) fn key(txn: u64) -> [u8; NAME] {
        u128::from(txn).to_be_bytes()
    }

    pub(crate) fn encode(self) -> Vec<u8> {
        let mut bytes = vec![self.node];
        bytes.extend(self.incarnation.to_le_bytes());
        bytes.extend(self.number.to_le_bytes());
        bytes.extend(self.name.key());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; WAIT] = bytes.try_into().ok()?;
        Some(Self {
            node: *bytes.first()?,
            incarnation: number(bytes, 1, 4) as u32,
            number: number(bytes, 5, 8),
            name: LockName::from_key(*bytes.last_chunk()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_and_waits_come_back() {
        let owner = Owner { node: 57, incarnation: u32::MAX - 1, txn: u64::MAX - 2, age: 1 << 40 };
        let other = Owner { node: 0, incarnation: 1, txn: 7, age: 0 };
        let queue = [
            LockRequest { owner, ticket: 0x0102_0304 },
            LockRequest { owner: other, ticket: u32::MAX },
        ];
        let bytes = encode_queue(&queue);
        assert_eq!((bytes.len(), decode_queue(&bytes)), (2 * REQUEST, queue.to_vec()));
        let name = LockName::of_row(GAddr::from_u64(4096), b"key");
        let wait = Wait { node: 3, incarnation: 9, number: 1 << 50, name };
        assert_eq!(Wait::decode(&wait.encode()), Some(wait));
        assert_eq!(Wait::decode(b"short"), None);
    }

    #[test]
    fn the_lock_of_a_tree_comes_before_those_of_its_rows() {
        let (root, next) = (GAddr::from_u64(4096), GAddr::from_u64(8192));
        let tree = LockName::of_tree(root);
        for at in 0..1000_u32 {
            let row = LockName::of_row(root, &at.to_be_bytes());
            assert!(tree.key() < row.key() && row.key() < LockName::of_tree(next).key());
            assert!(tree.is_of_same_tree(&row.key()));
        }
        assert!(!tree.is_of_same_tree(&LockName::of_tree(next).key()));
        assert!(Wait::key(u64::MAX) < LockName::of_tree(GAddr::from_u64(1)).key());
    }
}
