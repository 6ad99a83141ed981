//! Write-backs that are half done in a header that was made of the tags of splits.
//!
//! A header has the versions from before a write-back until that is complete, which
//! [`super::torn_write`] needs to tell the splits of one page from those of the other. Where it was
//! lost with its home it is made again from the tags, and these are of both pages if a compute node
//! had died in the write-back. It shows: a split that the write-back writes is older than another
//! that it wrote. Then the versions from before are lost where it wrote, and known where it did
//! not.
//!
//! Only the repair of a page that a dead node held asks for that. Other pages are whole, and a tag
//! that has decayed must not make their splits count as lost.

use selkie_pool::Coding;

use super::tag::{Version, Versions, set_version, version_of};

/// The versions from before the write-back that is half done in these, if there is one.
pub(crate) fn before_half_done(coding: Coding, known: &Versions) -> Versions {
    let mut versions = *known;
    if let Some(half_done) = half_done(coding, known) {
        for split in (0..coding.splits()).filter(|split| version_of(known, *split) == half_done) {
            set_version(&mut versions, split, Version::LOST);
        }
    }
    versions
}

/// The version of the write-back that is half done, if there is one.
fn half_done(coding: Coding, versions: &Versions) -> Option<Version> {
    let splits = || (0..coding.splits()).map(|split| (split, version_of(versions, split)));
    let known = || splits().filter(|(_, version)| *version != Version::LOST);
    if versions.contains(&Version::COUNTER) {
        return None;
    }
    // A data split may have been written last long ago; parity was not.
    let parity = known().find(|(split, _)| *split >= coding.data());
    let (_, about) = parity.or_else(|| known().max_by_key(|(_, version)| *version))?;
    // A split that was made again says nothing of the others.
    let writes = known().filter(|(_, own)| !own.dirty().is_empty());
    let of_now = writes.filter_map(|(_, own)| Some((own.later_than(about)?, own)));
    let (_, last) = of_now.max_by_key(|(by, _)| *by)?;
    let is_written = |split: usize| split >= coding.data() || last.dirty().contains(split);
    let is_older = |own: Version| own != last && own.later_than(last).is_none_or(|by| by <= 0);
    known().any(|(split, own)| is_written(split) && is_older(own)).then_some(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coding::tag::SplitSet;

    /// Pages that no write-back has left: of splits of different age, and of splits made again.
    #[test]
    fn whole_pages_are_left_as_they_are() {
        let coding: Coding = "2+2".parse().unwrap();
        let whole = |versions: &Versions| assert_eq!(before_half_done(coding, versions), *versions);
        let mut versions = Versions::default();
        whole(&versions);
        for round in 0..2_000 {
            let dirty = SplitSet::EMPTY.with(usize::from(round == 7));
            let next = Version::after(&versions, 2, dirty);
            dirty.iter().chain(2..4).for_each(|split| set_version(&mut versions, split, next));
            whole(&versions);
            let mut lost = versions;
            lost[round % 4] = Version::LOST;
            whole(&lost);
            if round % 3 == 0 {
                let again = Version::after(&lost, 2, SplitSet::EMPTY);
                set_version(&mut versions, round % 4, again);
                whole(&versions);
            }
        }
        whole(&[Version::COUNTER; 12]);
    }
}
