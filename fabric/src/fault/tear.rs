//! Splits a write into two that land one after the other, and joins the chain again.
//!
//! The tail lands first: if it is inside the region, so is the head, and a write that is out of
//! bounds still fails with nothing executed. The doorbell, if any, rings with the second part.

use super::plan::Cut;
use crate::buf::{Buf, WORD_BYTES};
use crate::error::FabricError;
use crate::id::RemoteAddr;
use crate::verb::{Chain, ChainError, Verb};

/// A chain in two halves. The torn write is the last verb of `first` and the first of `second`.
pub(crate) struct Torn {
    pub(crate) first: Chain,
    pub(crate) second: Chain,
    /// What was torn; keeps the caller's own buffer.
    pub(crate) whole: Verb,
}

/// Tears the write that `cut` names; gives the chain back if there is no such write.
#[expect(clippy::result_large_err, reason = "the chain is given back, it is no error")]
pub(crate) fn tear(mut chain: Chain, cut: Cut) -> Result<Torn, Chain> {
    let parts = match chain.verbs.get(cut.verb) {
        Some(Verb::Write { at, from }) => halves(*at, from, cut.head_words, Verb::write),
        Some(Verb::WriteWithDoorbell { at, from }) => {
            halves(*at, from, cut.head_words, Verb::write_with_doorbell)
        }
        _ => None,
    };
    let Some((tail, head)) = parts else { return Err(chain) };
    let whole = chain.verbs.remove(cut.verb);
    let mut second = Chain::from(head);
    second.verbs.extend(chain.verbs.drain(cut.verb..));
    chain.push(tail);
    Ok(Torn { first: chain, second, whole })
}

/// The part that lands first and the one that lands second.
fn halves(
    at: RemoteAddr,
    from: &Buf,
    head_words: usize,
    last: impl Fn(RemoteAddr, Buf) -> Verb,
) -> Option<(Verb, Verb)> {
    let (head, tail) = from.split_at_checked(head_words * WORD_BYTES)?;
    let middle = RemoteAddr::new(at.region, at.offset.checked_add(head.len() as u64)?);
    Some((Verb::write(middle, Buf::copy_of(tail)), last(at, Buf::copy_of(head))))
}

/// The chain as it was before [`tear`], with the results of the halves.
pub(crate) fn rejoin(mut first: Chain, whole: Verb, second: Chain) -> Chain {
    first.verbs.pop();
    first.push(whole);
    first.verbs.extend(second.verbs.into_iter().skip(1));
    first
}

/// The error of the whole chain when its first half failed.
pub(crate) fn first_failed(error: ChainError, whole: Verb, second: Chain) -> Box<ChainError> {
    let ChainError { chain, executed, error } = error;
    // Its last verb is the tail, but the caller knows only the whole write.
    let in_tail = executed + 1 == chain.verbs.len();
    let error = if in_tail { restate(error, &whole) } else { error };
    Box::new(ChainError { chain: rejoin(chain, whole, second), executed, error })
}

/// The error of a part, as the whole write would have had it.
fn restate(error: FabricError, whole: &Verb) -> FabricError {
    match error {
        FabricError::OutOfBounds { region_bytes, .. } => FabricError::OutOfBounds {
            at: whole.at(),
            bytes: whole.buf().map_or(0, |buf| buf.len() as u64),
            region_bytes,
        },
        FabricError::Misaligned { .. } => FabricError::Misaligned { at: whole.at() },
        other => other,
    }
}

/// The error of the whole chain when its second half failed: the verbs before the torn write are
/// done, and of the second half's the torn write is the first.
pub(crate) fn second_failed(first: Chain, whole: Verb, error: ChainError) -> Box<ChainError> {
    let executed = first.verbs.len().saturating_sub(1) + error.executed;
    Box::new(ChainError { chain: rejoin(first, whole, error.chain), executed, ..error })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PeerId, RegionKey};

    fn at(offset: u64) -> RemoteAddr {
        RemoteAddr::new(RegionKey::from_raw(0), offset)
    }

    fn chain() -> Chain {
        let payload = Buf::copy_of(&(0..32).collect::<Vec<u8>>());
        Chain::from([
            Verb::fetch_and_add(at(0), 1),
            Verb::write_with_doorbell(at(64), payload),
            Verb::compare_and_swap(at(8), 1, 2),
        ])
    }

    fn describe(chain: &Chain) -> String {
        let verbs = chain.verbs.iter();
        verbs.map(|verb| format!("{verb:?} {:?};", verb.buf().map(|buf| buf.to_vec()))).collect()
    }

    #[test]
    fn halves_cover_the_write_and_rejoin_to_the_same_chain() {
        let torn = tear(chain(), Cut { verb: 1, head_words: 1 }).ok().unwrap();
        let (tail, head) = (&torn.first.verbs[1], &torn.second.verbs[0]);
        assert_eq!((tail.at(), head.at()), (at(72), at(64)));
        assert_eq!(tail.buf().unwrap().to_vec(), (8..32).collect::<Vec<u8>>());
        assert_eq!(head.buf().unwrap().to_vec(), (0..8).collect::<Vec<u8>>());
        assert!(matches!((tail, head), (Verb::Write { .. }, Verb::WriteWithDoorbell { .. })));
        let whole = rejoin(torn.first, torn.whole, torn.second);
        assert_eq!(describe(&whole), describe(&chain()));
    }

    #[test]
    fn errors_count_the_verbs_of_the_whole_chain() {
        let dead = FabricError::PeerDead { peer: PeerId::memory(0) };
        for executed in [0, 1] {
            let torn = tear(chain(), Cut { verb: 1, head_words: 2 }).ok().unwrap();
            let error = ChainError { chain: torn.first, executed, error: dead.clone() };
            let error = first_failed(error, torn.whole, torn.second);
            assert_eq!((error.executed, describe(&error.chain)), (executed, describe(&chain())));
            let torn = tear(chain(), Cut { verb: 1, head_words: 2 }).ok().unwrap();
            let error = ChainError { chain: torn.second, executed, error: dead.clone() };
            let error = second_failed(torn.first, torn.whole, error);
            assert_eq!(error.executed, 1 + executed);
            assert_eq!(describe(&error.chain), describe(&chain()));
        }
    }

    #[test]
    fn the_tails_address_stays_a_secret() {
        let error_of = |part: RemoteAddr, bytes| {
            let torn = tear(chain(), Cut { verb: 1, head_words: 1 }).ok().unwrap();
            let error = FabricError::OutOfBounds { at: part, bytes, region_bytes: 80 };
            let error = ChainError { chain: torn.first, executed: 1, error };
            first_failed(error, torn.whole, torn.second).error
        };
        let expected = FabricError::OutOfBounds { at: at(64), bytes: 32, region_bytes: 80 };
        assert_eq!(error_of(at(72), 24), expected);
    }

    #[test]
    fn only_writes_are_torn() {
        let intact = tear(chain(), Cut { verb: 0, head_words: 1 }).err().unwrap();
        assert_eq!(describe(&intact), describe(&chain()));
    }
}
