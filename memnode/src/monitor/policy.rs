//! Which slabs a memory node takes back to keep some of its host's memory free, and when it offers
//! them again: the resource monitor of Hydra §4.2 and its eviction of slabs (§5.3). Pure:
//! observations in, steps out.
//!
//! Free slabs are taken back first. Those that were never touched free no memory: all of them are
//! taken, so that no node touches them now, and none is counted. If the other free slabs are too
//! few, slabs in use are evicted: to free E of them, E + E' are drawn at random, and the E least
//! active are evicted. Slabs that are being evicted count as free.
//!
//! Between the headroom and the headroom with a margin nothing is done, so that small changes of
//! the free memory do not move slabs back and forth.

use std::cmp::Reverse;

use selkie_pool::ReclaimStep;

/// How a slab of the node is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlabUse {
    /// Not in use.
    Free,
    /// By a range.
    Used,
    /// By a range, and to be moved elsewhere.
    Evicting,
    /// By a range, and being moved.
    Moving,
    /// Not available.
    Withdrawn,
}

/// A slab of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabObservation {
    /// Which.
    pub slab: u32,
    /// How it is used.
    pub used: SlabUse,
    /// It occupies memory of the host.
    pub is_touched: bool,
    /// Accesses that compute nodes have reported since the last look.
    pub activity: u64,
}

/// The observations of one look.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'s> {
    /// Memory of the host that is free.
    pub free_bytes: u64,
    /// Bytes of a slab.
    pub slab_bytes: u64,
    /// The slabs of the node.
    pub slabs: &'s [SlabObservation],
}

/// Slabs that are drawn beyond those that are evicted, in proportion to these and at least.
const MORE_CHOICES_TIMES: usize = 1;
const LEAST_MORE_CHOICES: usize = 4;
/// The margin, as a part of the headroom; it is never less than a slab.
const MARGIN_PART: u64 = 8;

/// Keeps memory of the host free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReclaimPolicy {
    /// How much, bytes.
    pub headroom: u64,
}

impl ReclaimPolicy {
    /// The steps to take. `below(n)` draws a number below `n`, which is not 0.
    pub fn decide(
        self,
        seen: Observation<'_>,
        below: &mut dyn FnMut(u64) -> u64,
    ) -> Vec<ReclaimStep> {
        let slab_bytes = seen.slab_bytes.max(1);
        let missing = self.headroom.saturating_sub(seen.free_bytes).div_ceil(slab_bytes);
        if missing > 0 {
            return take_back(seen.slabs, usize::try_from(missing).unwrap_or(usize::MAX), below);
        }
        let margin = slab_bytes.max(self.headroom / MARGIN_PART);
        let enough = self.headroom.saturating_add(margin);
        let Some(spare) = seen.free_bytes.checked_sub(enough) else { return Vec::new() };
        let evicting: Vec<ReclaimStep> = in_use(seen.slabs, SlabUse::Evicting)
            .map(|own| ReclaimStep::Cancel(own.slab))
            .collect();
        if !evicting.is_empty() {
            return evicting;
        }
        // The host must have memory for all of them when they are used.
        let claimed = in_use(seen.slabs, SlabUse::Free).filter(|own| !own.is_touched).count();
        let slabs = (spare / slab_bytes).saturating_sub(claimed as u64);
        let withdrawn =
            in_use(seen.slabs, SlabUse::Withdrawn).map(|own| ReclaimStep::Offer(own.slab));
        withdrawn.take(usize::try_from(slabs).unwrap_or(usize::MAX)).collect()
    }
}

fn in_use(slabs: &[SlabObservation], used: SlabUse) -> impl Iterator<Item = &SlabObservation> {
    slabs.iter().filter(move |own| own.used == used)
}

/// Takes back so many slabs that have memory.
fn take_back(
    slabs: &[SlabObservation],
    missing: usize,
    below: &mut dyn FnMut(u64) -> u64,
) -> Vec<ReclaimStep> {
    let (touched, untouched): (Vec<&SlabObservation>, Vec<&SlabObservation>) =
        in_use(slabs, SlabUse::Free).partition(|own| own.is_touched);
    let mut acts: Vec<ReclaimStep> =
        untouched.iter().map(|own| ReclaimStep::Withdraw(own.slab)).collect();
    let goes = |own: &&SlabObservation| matches!(own.used, SlabUse::Evicting | SlabUse::Moving);
    let missing = missing.saturating_sub(slabs.iter().filter(goes).count());
    let mut free: Vec<u32> = touched.iter().map(|own| own.slab).collect();
    // New ranges get the lowest.
    free.sort_by_key(|slab| Reverse(*slab));
    free.truncate(missing);
    acts.extend(free.iter().map(|slab| ReclaimStep::Withdraw(*slab)));
    acts.extend(least_active(slabs, missing - free.len(), below).map(ReclaimStep::Evict));
    acts
}

/// The least active of some slabs that are drawn at random (Hydra §5.3).
fn least_active(
    slabs: &[SlabObservation],
    count: usize,
    below: &mut dyn FnMut(u64) -> u64,
) -> impl Iterator<Item = u32> + use<> {
    let mut used: Vec<&SlabObservation> = in_use(slabs, SlabUse::Used).collect();
    let more = count.saturating_mul(MORE_CHOICES_TIMES).max(LEAST_MORE_CHOICES);
    let drawn = if count == 0 { 0 } else { count.saturating_add(more).min(used.len()) };
    for at in 0..drawn {
        let other = at + below((used.len() - at) as u64) as usize;
        used.swap(at, other);
    }
    used.truncate(drawn);
    used.sort_by_key(|own| (own.activity, Reverse(own.slab)));
    let chosen: Vec<u32> = used.iter().take(count).map(|own| own.slab).collect();
    chosen.into_iter()
}

#[cfg(test)]
mod tests {
    use selkie_fabric::env::SplitMix;

    use super::*;

    const SLAB: u64 = 100;

    fn slabs(uses: &str) -> Vec<SlabObservation> {
        let slab = |(slab, letter): (u32, char)| {
            let used = match letter {
                'f' | 'F' => SlabUse::Free,
                'u' => SlabUse::Used,
                'e' => SlabUse::Evicting,
                'm' => SlabUse::Moving,
                _ => SlabUse::Withdrawn,
            };
            let is_touched = !matches!(letter, 'f' | 'w');
            SlabObservation { slab, used, is_touched, activity: 0 }
        };
        (0..).zip(uses.chars()).map(slab).collect()
    }

    fn decide(headroom: u64, free_bytes: u64, slabs: &[SlabObservation]) -> Vec<ReclaimStep> {
        let random = SplitMix::new(1);
        let seen = Observation { free_bytes, slab_bytes: SLAB, slabs };
        ReclaimPolicy { headroom }.decide(seen, &mut |n| random.below(n))
    }

    #[test]
    fn free_slabs_go_first_from_the_highest_and_untouched_ones_are_not_counted() {
        use ReclaimStep::{Evict, Withdraw};
        let all = slabs("uFFFf");
        assert_eq!(decide(1000, 1000, &all), []);
        assert_eq!(decide(1000, 999, &all), [Withdraw(4), Withdraw(3)]);
        assert_eq!(decide(1000, 800, &all), [Withdraw(4), Withdraw(3), Withdraw(2)]);
        let everything = [Withdraw(4), Withdraw(3), Withdraw(2), Withdraw(1), Evict(0)];
        assert_eq!(decide(1000, 0, &all), everything);
        assert_eq!(decide(u64::MAX, 0, &all), everything);
    }

    #[test]
    fn what_is_on_its_way_is_counted() {
        assert_eq!(decide(1000, 750, &slabs("uemF")), [ReclaimStep::Withdraw(3)]);
        assert_eq!(decide(1000, 850, &slabs("uemF")), []);
    }

    #[test]
    fn slabs_come_back_only_with_a_margin_to_spare() {
        let all = slabs("uewwwF");
        // A slab, and an eighth of the headroom.
        assert_eq!(decide(1600, 1799, &all), []);
        assert_eq!(
            decide(1600, 1800, &all),
            [ReclaimStep::Cancel(1)],
            "first what was to be moved"
        );
        let all = slabs("umwwwF");
        assert_eq!(decide(1600, 1899, &all), []);
        assert_eq!(decide(1600, 1900, &all), [ReclaimStep::Offer(2)]);
        assert_eq!(decide(1600, 9999, &all), [2, 3, 4].map(ReclaimStep::Offer));
        // An untouched one may take the memory that seems to be free.
        assert_eq!(decide(1600, 2000, &slabs("ufwww")), [ReclaimStep::Offer(2)]);
        assert_eq!(decide(0, 100, &slabs("ww")), []);
        assert_eq!(decide(0, 200, &slabs("ww")), [ReclaimStep::Offer(0)]);
    }

    #[test]
    fn of_those_that_are_drawn_the_least_active_go() {
        let mut all = slabs(&"u".repeat(200));
        for own in &mut all {
            own.activity = u64::from(own.slab * 7919 % 200);
        }
        let mut went = Vec::new();
        for seed in 0..200 {
            let random = SplitMix::new(seed);
            let seen = Observation { free_bytes: 0, slab_bytes: SLAB, slabs: &all };
            let acts = ReclaimPolicy { headroom: 10 * SLAB }.decide(seen, &mut |n| random.below(n));
            assert_eq!(acts.len(), 10);
            went.extend(acts.iter().map(|act| match act {
                ReclaimStep::Evict(slab) => all[*slab as usize].activity,
                other => panic!("{other:?}"),
            }));
        }
        // The lower half of twenty at random: on average a quarter of the way up, and not always
        // the very lowest.
        let mean = went.iter().sum::<u64>() / went.len() as u64;
        assert!((40..60).contains(&mean), "{mean}");
        assert!(went.iter().any(|activity| *activity > 80));
        let few = [0, 9, 3, 5].map(|activity| SlabObservation { activity, ..all[0] });
        let few: Vec<_> =
            (0..).zip(few).map(|(slab, own)| SlabObservation { slab, ..own }).collect();
        assert_eq!(
            decide(200, 0, &few),
            [ReclaimStep::Evict(0), ReclaimStep::Evict(2)],
            "all are drawn"
        );
    }

    /// A host whose other processes take so much of its memory.
    struct Host {
        bytes: u64,
        others: u64,
        slabs: Vec<SlabObservation>,
    }

    impl Host {
        fn free(&self) -> u64 {
            let own = self.slabs.iter().filter(|own| own.is_touched).count() as u64 * SLAB;
            self.bytes.saturating_sub(self.others + own)
        }

        /// Does what was decided; compute nodes move all that is to be moved.
        fn act(&mut self, acts: &[ReclaimStep], random: &SplitMix) {
            for act in acts {
                let (ReclaimStep::Withdraw(slab)
                | ReclaimStep::Evict(slab)
                | ReclaimStep::Cancel(slab)
                | ReclaimStep::Offer(slab)) = *act;
                let own = &mut self.slabs[slab as usize];
                let (expected, used) = match act {
                    ReclaimStep::Withdraw(_) => (SlabUse::Free, SlabUse::Withdrawn),
                    ReclaimStep::Evict(_) => (SlabUse::Used, SlabUse::Evicting),
                    ReclaimStep::Cancel(_) => (SlabUse::Evicting, SlabUse::Used),
                    ReclaimStep::Offer(_) => (SlabUse::Withdrawn, SlabUse::Free),
                };
                assert_eq!(own.used, expected, "{act:?}");
                own.used = used;
            }
            for own in &mut self.slabs {
                if matches!(own.used, SlabUse::Evicting | SlabUse::Moving) && random.below(3) == 0 {
                    own.used = SlabUse::Withdrawn;
                }
                own.is_touched &= own.used != SlabUse::Withdrawn;
            }
        }

        fn available(&self) -> usize {
            self.slabs.iter().filter(|own| own.used != SlabUse::Withdrawn).count()
        }
    }

    #[test]
    fn the_headroom_is_reached_if_it_can_be_and_not_by_more_than_it_takes() {
        for seed in 0..2_000 {
            let random = SplitMix::new(seed);
            let letters = |_| ['f', 'F', 'u', 'u', 'w'][random.below(5) as usize];
            let text: String = (0..1 + random.below(40)).map(letters).collect();
            let mut host = Host { bytes: 12_000, others: random.below(6_000), slabs: slabs(&text) };
            let headroom = random.below(11_000);
            let touched = |host: &Host| host.slabs.iter().filter(|own| own.is_touched).count();
            let (before, had) = (host.free(), touched(&host));
            let monitor = ReclaimPolicy { headroom };
            let mut quiet = 0;
            for _ in 0..200 {
                let seen =
                    Observation { free_bytes: host.free(), slab_bytes: SLAB, slabs: &host.slabs };
                let acts = monitor.decide(seen, &mut |n| random.below(n));
                quiet = if acts.is_empty() { quiet + 1 } else { 0 };
                host.act(&acts, &random);
            }
            assert!(quiet > 20, "seed {seed}: it settles");
            let most = before + had as u64 * SLAB;
            assert!(host.free() >= headroom.min(most), "seed {seed}: {} free", host.free());
            if before < headroom {
                let needed = (headroom - before).div_ceil(SLAB) as usize;
                let given = had - touched(&host);
                assert!(given <= needed, "seed {seed}: {given} given, {needed} needed");
            } else {
                assert!(touched(&host) == had, "seed {seed}: nothing had to be given");
            }
            // All slabs that fit are available again.
            host.others = 0;
            host.slabs.iter_mut().for_each(|own| own.is_touched |= own.used == SlabUse::Free);
            for _ in 0..200 {
                let seen =
                    Observation { free_bytes: host.free(), slab_bytes: SLAB, slabs: &host.slabs };
                let acts = monitor.decide(seen, &mut |n| random.below(n));
                host.act(&acts, &random);
                host.slabs.iter_mut().for_each(|own| own.is_touched |= own.used == SlabUse::Free);
            }
            let margin = SLAB.max(headroom / MARGIN_PART);
            let more = host.free() >= headroom + margin + SLAB;
            assert!(!more || host.available() == host.slabs.len(), "seed {seed}: {}", host.free());
        }
    }
}
