//! Which page a set of splits is: after a complete write-back, after one that its writer's death
//! cut short, and with splits that are damaged or lost.
//!
//! A write-back is not atomic. With c dirty data splits and r parity splits it has this
//! [`WriteOrder`]:
//!
//! ```text
//! c <= r   all parity | the dirty data splits | versions in the header, latch
//! c > r    a share of each into the writer's journal | all of them | versions in the header, latch
//! ```
//! and what a stage writes is in place before the next begins. In the first case all data splits
//! are old while splits of the first stage are torn or new. When the second stage begins, all
//! parity is new, which replaces c <= r data splits. In the second case all shares are in place
//! when the first split changes. So a writer's death alone loses nothing, and neither does the loss
//! of r memory nodes alone. Both together can lose a page in the first case, unless pages are
//! always journalled: any k of the shares and the unchanged data splits are the page, as long as
//! its header lives.

use selkie_pool::{Coding, Journal};

use super::tag::{SplitSet, Version, Versions};

/// The order of a write-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriteOrder {
    /// First all of them go into the journal.
    pub journal: bool,
    /// Then these splits are written.
    pub first: SplitSet,
    /// Then these.
    pub second: SplitSet,
}

impl WriteOrder {
    /// The order for a page of which these data splits have changed.
    pub(crate) fn of(coding: Coding, dirty: SplitSet) -> Self {
        let (data, splits) = (coding.data(), coding.splits());
        let parity = SplitSet::first(splits).without(SplitSet::first(data));
        if coding.journal() == Journal::Always || dirty.len() > coding.parity() {
            return Self { journal: true, first: parity.union(dirty), second: SplitSet::EMPTY };
        }
        Self { journal: false, first: parity, second: dirty }
    }
}

/// What a repair has found in the place of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SplitFinding {
    /// Nothing: its memory is lost, or its payload does not match its tag.
    Nothing,
    /// The intact payload of this version.
    Whole(Version),
}

/// The page that a set of splits is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResolvedPage {
    /// The page before the write-back that was cut short: from any k of these splits.
    Before(SplitSet),
    /// The page of the write-back that was cut short, with this version: from any k of these
    /// splits, some of which may be in the journal.
    After(Version, SplitSet),
    /// Too few splits of one page are left.
    Lost,
}

/// Resolves a write-back that may have been cut short to the page before it or after it.
///
/// `header` has the versions of the page before the write-back. `image` is the image in the
/// writer's journal that was made over the page of the header, if there is one: its version, and
/// the splits of which there are shares.
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
    // A version that parity has and the header has not: at most one write-back was cut short.
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
    use crate::coding::half_done::before_half_done;

    /// The states of a split during a write-back: as before, torn, or as after.
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

    /// All findings after a writer's death in a stage that writes the splits `under_way`, when
    /// those of earlier stages are `written`.
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

    /// Whether [`resolve_torn_write`] gives a page, which must be of splits of one version: before
    /// or after. `shares` are the splits of which the journal has shares.
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

    /// As [`check`], with a header made of tags: a write-back that is complete is in it.
    fn check_without_header(
        case: &Case,
        header: &Versions,
        found: &[SplitFinding],
        shares: SplitSet,
    ) -> bool {
        let data = case.coding.data();
        let image = (!shares.is_empty()).then_some((case.new, shares));
        let (of, shares) = match resolve_torn_write(case.coding, header, found, image) {
            ResolvedPage::Before(of) => (of, SplitSet::EMPTY),
            ResolvedPage::After(_, of) => (of, shares),
            ResolvedPage::Lost => return false,
        };
        assert!(of.len() >= data);
        let is = |split: usize, version| found[split] == SplitFinding::Whole(version);
        let is_changed = |split: usize| split >= data || case.dirty.contains(split);
        let after = |split: usize| if is_changed(split) { case.new } else { case.header[split] };
        let is_before = of.iter().all(|split| is(split, case.header[split]));
        let is_after = of.iter().all(|split| shares.contains(split) || is(split, after(split)));
        assert!(is_before || is_after, "{:?} {:?} {header:?} {found:?}", case.coding, case.dirty);
        true
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

    /// Memory-loss seed 91662: a node died in a write-back, and a memory node with a header and a
    /// split of the page right after. Of the tags that were left, one was new and one old.
    #[test]
    fn a_page_that_lost_its_header_too_is_never_taken_for_a_mixed_one() {
        let (mut torn_seen, mut whole_seen) = (0_u64, 0_u64);
        for case in cases() {
            let (splits, parity) = (case.coding.splits(), case.coding.parity());
            let WriteOrder { journal, first, second } = case.stages;
            let all = torn(&case, SplitSet::EMPTY, first).chain(torn(&case, first, second));
            for found in all {
                for lost in subsets(splits).filter(|lost| lost.len() <= parity) {
                    let mut found = found.clone();
                    // A split that is half written has its old tag or the new one.
                    let tags = |half: &dyn Fn(usize) -> Version| {
                        let mut versions = Versions::default();
                        for (split, version) in versions.iter_mut().enumerate().take(splits) {
                            *version = match found[split] {
                                _ if lost.contains(split) => Version::LOST,
                                SplitFinding::Whole(version) => version,
                                SplitFinding::Nothing => half(split),
                            };
                        }
                        versions
                    };
                    let both = [tags(&|split| case.header[split]), tags(&|_| case.new)];
                    lost.iter().for_each(|split| found[split] = SplitFinding::Nothing);
                    for tags in both {
                        let header = before_half_done(case.coding, &tags);
                        check_without_header(&case, &header, &found, SplitSet::EMPTY);
                        if journal {
                            let shares = first.without(lost);
                            let is_page = check_without_header(&case, &header, &found, shares);
                            assert!(is_page, "{header:?} {found:?} {shares:?}");
                        }
                        let is_torn = header != tags;
                        *(if is_torn { &mut torn_seen } else { &mut whole_seen }) += 1;
                    }
                }
            }
        }
        assert!(torn_seen > 100_000 && whole_seen > 100_000, "{torn_seen} {whole_seen}");
    }

    /// Damage is never taken for the page: with too few splits the page is lost.
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
