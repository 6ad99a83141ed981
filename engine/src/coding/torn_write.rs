//! Which page the splits make up: of a write-back that ended, of one that its writer did not live
//! to end, with splits that are damaged or lost.
//!
//! A write-back is not atomic. With c dirty data splits and r parity splits it goes by [`WriteOrder`]:
//!
//! ```text
//! c <= r   all parity | the dirty data splits | versions in the header, latch
//! c > r    a share of each into the writer's journal | all of them | versions in the header, latch
//! ```
//! and what a stage writes is there before the next begins. In the first case, while splits of the
//! first stage are torn or new, all data splits are old; and when the second begins, all parity is
//! new, which makes up for c <= r data splits. In the second case all shares are there when the
//! first split changes. So a writer's death alone loses nothing; nor does the loss of r memory
//! nodes alone. Both at once can in the first case, unless pages are always journalled: of the
//! shares, and the data splits that did not change, any k are the page, while its header is there.

use selkie_memnode::{Coding, Journal};

use super::tag::{SplitSet, Version, Versions};

/// In which order a write-back writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriteOrder {
    /// First of all, all of them into the journal.
    pub journal: bool,
    /// Then these splits.
    pub first: SplitSet,
    /// Then these.
    pub second: SplitSet,
}

impl WriteOrder {
    /// For a page of which these data splits have changed.
    pub(crate) fn of(coding: Coding, dirty: SplitSet) -> Self {
        let (data, splits) = (coding.data(), coding.splits());
        let parity = SplitSet::first(splits).without(SplitSet::first(data));
        if coding.journal() == Journal::Always || dirty.len() > coding.parity() {
            return Self { journal: true, first: parity.union(dirty), second: SplitSet::EMPTY };
        }
        Self { journal: false, first: parity, second: dirty }
    }
}

/// What there is of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SplitFinding {
    /// Nothing: its memory is lost, or its bytes are not what its tag says.
    Nothing,
    /// Bytes that are what was written with this version.
    Whole(Version),
}

/// What the splits of a page come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResolvedPage {
    /// The page as of the write-back that ended last: from any k of these splits.
    Before(SplitSet),
    /// The page of the write-back under way, of this version: from any k of these, of which some
    /// may be in the journal.
    After(Version, SplitSet),
    /// It cannot be told from what there is.
    Lost,
}

/// The page that these splits make up, where the header says which versions are those of the page
/// before a write-back that may have been cut short. `image` is what the writer's journal has of an
/// image that was made over the page of the header: its version, and the splits of which there are
/// shares.
pub(crate) fn resolve_torn_write(
    coding: Coding,
    header: &Versions,
    found: &[SplitFinding],
    image: Option<(Version, SplitSet)>,
) -> ResolvedPage {
    let data = coding.data();
    let with =
        |split: usize, version: Version| found.get(split) == Some(&SplitFinding::Whole(version));
    let splits = || 0..coding.splits();
    let old: SplitSet =
        splits().filter(|split| header.get(*split).is_some_and(|v| with(*split, *v))).collect();
    if old.len() >= data {
        return ResolvedPage::Before(old);
    }
    // The versions that parity has and the header has not: at most one write-back can have been
    // under way.
    let newer = found.iter().enumerate().skip(data).find_map(|(split, found)| match found {
        SplitFinding::Whole(version) if header.get(split) != Some(version) => Some(*version),
        _ => None,
    });
    let Some(version) = image.map(|(version, _)| version).or(newer) else {
        return ResolvedPage::Lost;
    };
    let shares = image.map_or(SplitSet::EMPTY, |(_, shares)| shares);
    let new: SplitSet = splits()
        .filter(|split| {
            let unchanged = *split < data && !version.dirty().contains(*split);
            shares.contains(*split) || with(*split, version) || unchanged && old.contains(*split)
        })
        .collect();
    if new.len() >= data { ResolvedPage::After(version, new) } else { ResolvedPage::Lost }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A split while a write-back runs: as before, torn, or as after.
    const STATES: u64 = 3;

    struct Case {
        coding: Coding,
        header: Versions,
        new: Version,
        dirty: SplitSet,
        stages: WriteOrder,
    }

    fn cases() -> impl Iterator<Item = Case> {
        let shapes = (1..=5_usize).flat_map(|data| (1..=3_usize).map(move |parity| (data, parity)));
        shapes.flat_map(|(data, parity)| {
            ["auto", "always"].into_iter().flat_map(move |journal| {
                let text = format!("{data}+{parity},journal={journal}");
                let coding: Coding = text.parse().unwrap();
                (1_u32..1 << data).map(move |bits| {
                    let dirty: SplitSet = (0..data).filter(|s| bits >> s & 1 == 1).collect();
                    // Data splits of different age, parity of the last write-back.
                    let mut header = [Version::NEVER; 12];
                    let mut last = Version::NEVER;
                    for age in 0..3 {
                        let changed = SplitSet::EMPTY.with(age % data);
                        last = last.next(changed);
                        header[age % data] = last;
                        header[data..data + parity].fill(last);
                    }
                    let new = last.next(dirty);
                    let stages = WriteOrder::of(coding, dirty);
                    Case { coding, header, new, dirty, stages }
                })
            })
        })
    }

    /// All that can be found after a writer's death in a stage that writes these splits, the ones
    /// of earlier stages being there.
    fn torn(
        case: &Case,
        written: SplitSet,
        under_way: SplitSet,
    ) -> impl Iterator<Item = Vec<SplitFinding>> {
        let count = STATES.pow(under_way.len() as u32);
        (0..count).map(move |mut number| {
            let mut state = || {
                let state = number % STATES;
                number /= STATES;
                state
            };
            (0..case.coding.splits())
                .map(|split| match () {
                    () if written.contains(split) => SplitFinding::Whole(case.new),
                    () if !under_way.contains(split) => SplitFinding::Whole(case.header[split]),
                    () => match state() {
                        0 => SplitFinding::Whole(case.header[split]),
                        1 => SplitFinding::Nothing,
                        _ => SplitFinding::Whole(case.new),
                    },
                })
                .collect()
        })
    }

    /// What `resolve_torn_write` says must be made of splits that belong to one page: that before, or that
    /// after. `shares` are those in the journal, of all that the write-back writes.
    fn check(case: &Case, found: &[SplitFinding], shares: SplitSet) -> bool {
        let data = case.coding.data();
        let image = (!shares.is_empty()).then_some((case.new, shares));
        match resolve_torn_write(case.coding, &case.header, found, image) {
            ResolvedPage::Before(splits) => {
                assert!(splits.len() >= data);
                splits.iter().all(|split| found[split] == SplitFinding::Whole(case.header[split]))
            }
            ResolvedPage::After(version, splits) => {
                assert!(splits.len() >= data && version == case.new);
                splits.iter().all(|split| {
                    let as_before = split < data && !case.dirty.contains(split);
                    let expected = if as_before { case.header[split] } else { case.new };
                    found[split] == SplitFinding::Whole(expected) || shares.contains(split)
                })
            }
            ResolvedPage::Lost => false,
        }
    }

    #[test]
    fn a_writer_that_dies_anywhere_leaves_the_page_before_or_after() {
        let mut seen = 0_u64;
        for case in cases() {
            let WriteOrder { journal, first, second } = case.stages;
            let shares = if journal { first.union(second) } else { SplitSet::EMPTY };
            let all = torn(&case, SplitSet::EMPTY, first).chain(torn(&case, first, second));
            for found in all {
                seen += 1;
                let (coding, dirty) = (case.coding, case.dirty);
                assert!(check(&case, &found, shares), "{coding:?} {dirty:?} {found:?}");
            }
            let untouched: Vec<_> = (0..case.coding.splits())
                .map(|split| SplitFinding::Whole(case.header[split]))
                .collect();
            for unwritten in subsets(case.coding.splits()) {
                let some = shares.without(unwritten);
                assert!(check(&case, &untouched, some), "died in the journal");
            }
        }
        assert!(seen > 80_000, "{seen}");
    }

    #[test]
    fn r_lost_nodes_lose_nothing_when_no_write_back_was_cut_short() {
        for case in cases() {
            let splits = case.coding.splits();
            let kept = (0_u32..1 << splits)
                .filter(|kept| kept.count_ones() as usize >= case.coding.data());
            for kept in kept {
                let found: Vec<_> = (0..splits)
                    .map(|split| match kept >> split & 1 {
                        1 => SplitFinding::Whole(case.header[split]),
                        _ => SplitFinding::Nothing,
                    })
                    .collect();
                let page = resolve_torn_write(case.coding, &case.header, &found, None);
                assert!(
                    matches!(page, ResolvedPage::Before(splits) if splits.len() == kept.count_ones() as usize)
                );
            }
        }
    }

    fn subsets(splits: usize) -> impl Iterator<Item = SplitSet> {
        (0_u32..1 << splits).map(move |set| (0..splits).filter(|s| set >> s & 1 == 1).collect())
    }

    #[test]
    fn where_it_is_journalled_a_writer_and_r_nodes_may_go_together() {
        for case in cases().filter(|case| case.stages.journal) {
            let parity = case.coding.parity();
            for found in torn(&case, SplitSet::EMPTY, case.stages.first) {
                for lost in subsets(found.len()).filter(|lost| lost.len() <= parity) {
                    let mut found = found.clone();
                    lost.iter().for_each(|split| found[split] = SplitFinding::Nothing);
                    let shares = case.stages.first.without(lost);
                    assert!(check(&case, &found, shares), "{found:?} {shares:?}");
                }
            }
        }
    }

    /// Damage is never taken for the page: with too few splits the page is lost, not guessed at.
    #[test]
    fn too_few_splits_of_one_page_are_no_page() {
        let coding: Coding = "2+1".parse().unwrap();
        let old = Version::NEVER.next(SplitSet::first(2));
        let new = old.next(SplitSet::EMPTY.with(0));
        let mut header = [Version::NEVER; 12];
        header[..3].fill(old);
        let whole = SplitFinding::Whole;
        let lost = [whole(new), SplitFinding::Nothing, SplitFinding::Nothing];
        assert_eq!(resolve_torn_write(coding, &header, &lost, None), ResolvedPage::Lost);
        let mixed = [whole(new), whole(old), SplitFinding::Nothing];
        assert_eq!(
            resolve_torn_write(coding, &header, &mixed, None),
            ResolvedPage::Lost,
            "parity tells, and is gone"
        );
        let stranger = [SplitFinding::Nothing, whole(new.next(SplitSet::EMPTY)), whole(new)];
        assert_eq!(resolve_torn_write(coding, &header, &stranger, None), ResolvedPage::Lost);
    }
}
