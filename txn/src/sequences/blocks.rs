//! The blocks of values that this node has taken.

use std::collections::HashMap;

use parking_lot::Mutex;
use selkie_fabric::Doorbell;

/// Values that no other node gives out: one at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(super) first: i64,
    /// Values behind the first.
    pub(super) more: u32,
    pub(super) increment: i64,
}

impl Block {
    /// The block without its first value, if it has others.
    pub(super) fn rest(self) -> Option<Self> {
        let more = self.more.checked_sub(1)?;
        // No further than the last value.
        Some(Self { first: self.first.wrapping_add(self.increment), more, ..self })
    }
}

/// What a caller that needs a value does next.
pub(super) enum NextStep<'a> {
    Take(i64),
    /// It takes a block for all.
    Lease(LeaseTurn<'a>),
    /// Another is taking one: it waits until this count of the bell is over.
    Wait(u64),
}

/// The blocks of all sequences, by their identities.
#[derive(Default)]
pub(crate) struct LeasedBlocks {
    blocks: Mutex<HashMap<i64, Option<Block>>>,
    bell: Doorbell,
}

impl LeasedBlocks {
    pub(super) fn next(&self, identity: i64) -> NextStep<'_> {
        // Before the look: a turn that ends after it moves the count.
        let seen = self.bell.count();
        let mut blocks = self.blocks.lock();
        match blocks.get(&identity).copied() {
            // A caller has its turn to take one.
            Some(None) => NextStep::Wait(seen),
            Some(Some(block)) => {
                match block.rest() {
                    Some(rest) => blocks.insert(identity, Some(rest)),
                    None => blocks.remove(&identity),
                };
                NextStep::Take(block.first)
            }
            None => {
                blocks.insert(identity, None);
                NextStep::Lease(LeaseTurn { of: self, identity, block: None })
            }
        }
    }

    /// Waits until a turn has ended after this count.
    pub(super) async fn wait_past(&self, seen: u64) {
        self.bell.wait_past(seen).await;
    }

    /// How many sequences have values here.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.blocks.lock().len()
    }
}

/// The turn to take a block, which ends when it is dropped.
pub(super) struct LeaseTurn<'a> {
    of: &'a LeasedBlocks,
    identity: i64,
    block: Option<Block>,
}

impl LeaseTurn<'_> {
    /// The first value of a block, whose others are for the callers that come.
    pub(super) fn give(mut self, block: Block) -> i64 {
        self.block = block.rest();
        block.first
    }
}

impl Drop for LeaseTurn<'_> {
    fn drop(&mut self) {
        let mut blocks = self.of.blocks.lock();
        match self.block {
            Some(block) => blocks.insert(self.identity, Some(block)),
            None => blocks.remove(&self.identity),
        };
        drop(blocks);
        self.of.bell.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_takes_a_block_for_all_and_a_turn_that_is_dropped_is_another_s() {
        let blocks = LeasedBlocks::default();
        let NextStep::Lease(turn) = blocks.next(7) else { panic!("no block") };
        let NextStep::Wait(seen) = blocks.next(7) else { panic!("a turn") };
        let NextStep::Lease(other) = blocks.next(8) else { panic!("another sequence") };
        drop((turn, other));
        assert!(blocks.bell.count() > seen);
        assert_eq!(blocks.len(), 0);

        let NextStep::Lease(turn) = blocks.next(7) else { panic!("the turn is free") };
        assert_eq!(turn.give(Block { first: 5, more: 2, increment: 2 }), 5);
        for expected in [7, 9] {
            let NextStep::Take(value) = blocks.next(7) else { panic!("a block") };
            assert_eq!(value, expected);
        }
        assert_eq!(blocks.len(), 0, "nothing is kept of an empty block");
        let NextStep::Lease(turn) = blocks.next(7) else { panic!("it is empty") };
        assert_eq!(turn.give(Block { first: 11, more: 0, increment: 2 }), 11);
        assert!(matches!(blocks.next(7), NextStep::Lease(_)));
    }
}
