//! Chains of latch operations: what an operation does to the word, and what a chain has found.

use selkie_fabric::{Buf, Chain, RemoteAddr, Verb};

use super::machine::{Atomic, Event, WordAccess};
use super::word::LatchWord;
use crate::GAddr;

/// Latch operations gathered for one memory node, to be posted as one chain.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) chain: Chain,
    pub(crate) lines: Vec<GAddr>,
}

/// The end of an operation that has left the word alone.
pub(crate) const NOTHING_FOUND: Event = Event::Completed { old: LatchWord::FREE };

/// What an operation does to the latch word.
pub(crate) fn push_word(chain: &mut Chain, latch: RemoteAddr, word: WordAccess) {
    match word {
        WordAccess::Change(Atomic::Add(delta)) => {
            chain.push(Verb::fetch_and_add(latch, delta.bits()));
        }
        WordAccess::Change(Atomic::Swap { expected, desired }) => {
            chain.push(Verb::compare_and_swap(latch, expected.bits(), desired.bits()));
        }
        WordAccess::Look => chain.push(Verb::read(latch, Buf::zeroed(8))),
        WordAccess::Skip => {}
    }
}

/// The word as an operation with this access found it. An operation that leaves the word alone has
/// found nothing, and is asked for nothing.
#[expect(clippy::expect_used, reason = "a completed chain has the result of each of its verbs")]
pub(crate) fn found_word(chain: &Chain, access: WordAccess) -> LatchWord {
    match access {
        WordAccess::Change(_) => {
            old_values(chain).next().expect("a completed atomic has found a value")
        }
        WordAccess::Look => {
            let word = chain.buf(0).and_then(|buf| buf.words().first().copied());
            LatchWord::from_bits(u64::from_le(word.expect("a completed look has read a word")))
        }
        WordAccess::Skip => LatchWord::FREE,
    }
}

/// The values that the atomics of a batch found, in order.
pub(crate) fn old_values(chain: &Chain) -> impl Iterator<Item = LatchWord> + Clone {
    chain.verbs.iter().filter_map(Verb::old).map(LatchWord::from_bits)
}
