//! A plan of faults, and the fate that it gives each chain.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::buf::WORD_BYTES;
use crate::env::SplitMix;
use crate::id::PeerId;
use crate::verb::{Chain, Verb};

/// A seeded plan of faults. Frequencies are "one in n" on average; 0 means never.
#[derive(Debug, Clone, Default)]
pub struct FaultPlan {
    /// Where all chance comes from.
    pub seed: u64,
    /// Which chains are delayed.
    pub delay: Delay,
    /// Which writes are torn.
    pub tear: Tear,
    /// One in so many reads above 8 bytes gets one bit of its payload flipped.
    pub corrupt_one_in: u32,
    /// Which nodes die and when.
    pub deaths: Vec<PeerDeath>,
}

impl FaultPlan {
    /// The plan in which nothing goes wrong.
    pub fn none(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }
}

/// Which chains are delayed, and by how much.
#[derive(Debug, Clone, Copy, Default)]
pub struct Delay {
    /// One in so many chains.
    pub one_in: u32,
    /// Least time from post to completion.
    pub at_least: Duration,
    /// Greatest time from post to completion, but for waiting behind earlier chains. Timers of the
    /// real environment add up to a millisecond.
    pub at_most: Duration,
}

/// Which writes are torn.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tear {
    /// One in so many writes above 8 bytes; at most one write a chain.
    pub one_in: u32,
    /// Time between its parts. Other tasks get a turn between them even if this is 0.
    pub gap: Duration,
}

/// The death of a peer.
#[derive(Debug, Clone, Copy)]
pub struct PeerDeath {
    /// The node that dies.
    pub peer: PeerId,
    /// How many chains posted to it, from all nodes together, are accepted before.
    pub after_chains: u64,
}

/// How many faults really happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultReport {
    /// Chains delayed by their own fate, not counting those that waited behind them.
    pub delayed: u64,
    /// Writes that landed in two parts.
    pub torn: u64,
    /// Reads with a flipped bit.
    pub corrupted: u64,
    /// Chains that failed because a peer was dropped.
    pub refused: u64,
}

/// Counters behind [`FaultReport`].
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) delayed: AtomicU64,
    pub(crate) torn: AtomicU64,
    pub(crate) corrupted: AtomicU64,
    pub(crate) refused: AtomicU64,
}

impl Tally {
    pub(crate) fn one(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn report(&self) -> FaultReport {
        FaultReport {
            delayed: self.delayed.load(Ordering::Relaxed),
            torn: self.torn.load(Ordering::Relaxed),
            corrupted: self.corrupted.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}

/// What happens to one chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Fate {
    /// Time until it executes.
    pub(crate) outbound: Duration,
    /// Time from then until its completion.
    pub(crate) inbound: Duration,
    pub(crate) cut: Option<Cut>,
    pub(crate) flip: Option<Flip>,
}

/// The write at `verb` lands in two parts that meet `head_words` words into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) verb: usize,
    pub(crate) head_words: usize,
}

/// Bit `bit` of the payload of the read at `verb` is flipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flip {
    pub(crate) verb: usize,
    pub(crate) bit: u64,
}

impl Fate {
    /// Draws the fate of `chain`.
    pub(crate) fn draw(plan: &FaultPlan, random: &SplitMix, chain: &Chain) -> Self {
        let mut fate = Self::default();
        if hits(random, plan.delay.one_in) {
            let Delay { at_least, at_most, .. } = plan.delay;
            let total = at_least + share(random, at_most.saturating_sub(at_least));
            fate.outbound = share(random, total);
            fate.inbound = total - fate.outbound;
        }
        for (index, verb) in chain.verbs.iter().enumerate() {
            let words = verb.buf().map_or(0, |buf| buf.words().len());
            if words < 2 {
                continue;
            }
            if matches!(verb, Verb::Read { .. }) {
                if fate.flip.is_none() && hits(random, plan.corrupt_one_in) {
                    let bit = random.below((words * WORD_BYTES) as u64 * 8);
                    fate.flip = Some(Flip { verb: index, bit });
                }
            } else if fate.cut.is_none() && hits(random, plan.tear.one_in) {
                let head_words = 1 + random.below(words as u64 - 1) as usize;
                fate.cut = Some(Cut { verb: index, head_words });
            }
        }
        fate
    }

    pub(crate) fn is_harmless(&self) -> bool {
        *self == Self::default()
    }
}

fn hits(random: &SplitMix, one_in: u32) -> bool {
    one_in > 0 && random.below(u64::from(one_in)) == 0
}

/// A random part of `whole`.
fn share(random: &SplitMix, whole: Duration) -> Duration {
    let nanoseconds = u64::try_from(whole.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(random.below(nanoseconds.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buf, RegionKey, RemoteAddr};

    fn chain(payload_bytes: usize) -> Chain {
        let at = RemoteAddr::new(RegionKey::from_raw(0), 0);
        Chain::from([
            Verb::fetch_and_add(at, 1),
            Verb::write(at, Buf::zeroed(payload_bytes)),
            Verb::read(at, Buf::zeroed(payload_bytes)),
        ])
    }

    #[test]
    fn fates_follow_from_the_seed_and_keep_to_the_plan() {
        let millisecond = Duration::from_millis(1);
        let plan = FaultPlan {
            delay: Delay { one_in: 2, at_least: millisecond, at_most: 3 * millisecond },
            tear: Tear { one_in: 2, gap: Duration::ZERO },
            corrupt_one_in: 2,
            ..FaultPlan::none(7)
        };
        let draw = |seed| {
            let random = SplitMix::new(seed);
            (0..500).map(|_| Fate::draw(&plan, &random, &chain(64))).collect::<Vec<_>>()
        };
        let fates = draw(1);
        assert_eq!(fates, draw(1));
        assert_ne!(fates, draw(2));
        let share = |pick: fn(&Fate) -> bool| fates.iter().filter(|fate| pick(fate)).count();
        for count in [
            share(|fate| fate.outbound + fate.inbound > Duration::ZERO),
            share(|fate| fate.cut.is_some()),
            share(|fate| fate.flip.is_some()),
        ] {
            assert!((150..350).contains(&count), "{count} of 500, expected about one in two");
        }
        for fate in fates {
            let total = fate.outbound + fate.inbound;
            assert!(total.is_zero() || (millisecond..=3 * millisecond).contains(&total));
            assert!(fate.cut.is_none_or(|cut| cut.verb == 1 && (1..8).contains(&cut.head_words)));
            assert!(fate.flip.is_none_or(|flip| flip.verb == 2 && flip.bit < 512));
        }
    }

    #[test]
    fn single_words_are_neither_torn_nor_corrupted() {
        let tear = Tear { one_in: 1, gap: Duration::ZERO };
        let plan = FaultPlan { tear, corrupt_one_in: 1, ..FaultPlan::none(0) };
        assert!(Fate::draw(&plan, &SplitMix::new(0), &chain(8)).is_harmless());
        assert!(!Fate::draw(&plan, &SplitMix::new(0), &chain(16)).is_harmless());
    }
}
