//! The versions of a page whose header is lost with its home: from the tags of its splits.
//!
//! All nodes are quiet meanwhile, so at most one write-back is half done: that of a compute node
//! that died. A header has the versions from before it, which [`super::torn_write`] needs to tell
//! the splits of one page from those of the other. The tags say that a write-back is half done
//! when a split that it writes is older than another that it wrote. Then the versions from before
//! are lost where it wrote, and known where it did not.

use selkie_pool::Coding;

use super::tag::{Tag, Version, Versions, set_version, version_of};

/// The versions of a page, from the tags of its splits, `None` for those whose memory is lost; the
/// regeneration of the split `unmade` may not have written it yet.
pub(crate) fn versions_of_tags(
    coding: Coding,
    tags: &[Option<Tag>],
    unmade: Option<usize>,
) -> Versions {
    let mut versions = Versions::default();
    let never = tags.iter().flatten().all(|tag| tag.version == Version::NEVER);
    for (split, (version, tag)) in versions.iter_mut().zip(tags).enumerate().take(coding.splits()) {
        let is_missing =
            |tag: &Tag| unmade == Some(split) && !never && tag.version == Version::NEVER;
        *version = match tag.filter(|tag| !is_missing(tag)) {
            Some(tag) => tag.version,
            None if never => Version::NEVER,
            None => Version::LOST,
        };
    }
    if let Some(half_done) = half_done(coding, &versions) {
        for split in 0..coding.splits() {
            if version_of(&versions, split) == half_done {
                set_version(&mut versions, split, Version::LOST);
            }
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
