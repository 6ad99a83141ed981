//! Two neighbours that become one page, or share their entries anew; and when they should.

use super::cut::middle_cut;
use super::layout::{CHILD, Damage, HEADER, LOCKED, MAX_PAGE, SLOT, entry_bytes};
use super::rebuild::{Builder, PageSpec, split_into};
use super::view::PageView;
use super::write::PageMut;

/// How full a page is, is told in eighths of its room for entries. A page of at most so many is
/// underfull.
const UNDERFULL_EIGHTHS: usize = 3;
/// Two neighbours are merged if they take at most so many eighths of a page together. The halves of
/// a page that was split take all of it, so a third of the entries has to go before they are merged
/// again; and a merged page takes as many again before it is split.
const MERGED_EIGHTHS: usize = 5;
const EIGHTHS: usize = 8;
const _: () = assert!(UNDERFULL_EIGHTHS < MERGED_EIGHTHS && MERGED_EIGHTHS < EIGHTHS);
// Of two pages that may be merged one is underfull: it is enough to look at those.
const _: () = assert!(MERGED_EIGHTHS <= 2 * UNDERFULL_EIGHTHS);
// The entries of two pages are laid out in one buffer, whose offsets have 16 bits.
const _: () = assert!(2 * MAX_PAGE <= u16::MAX as usize);

/// What two neighbours can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joint {
    /// Become one page.
    Merge,
    /// One has no entries, or is an inner page with one child, but they do not fit one page: they
    /// divide the entries of the other.
    Share,
    /// Stay as they are.
    Apart,
}

/// How much less than underfull a page is: 0 if it is not, the most if it has no entries. Each step
/// up is a time to look whether it can be merged.
pub(crate) fn underfill(page: &PageView<'_>) -> u8 {
    let room = page.heap_end().saturating_sub(HEADER).max(1);
    let free = page.free_bytes() + usize::from(page.header().garbage);
    let by_bytes = (room.saturating_sub(free) * EIGHTHS).div_ceil(room);
    let eighths = match most_rows(page) {
        Some(most) => by_bytes.max((page.len() * EIGHTHS).div_ceil(most.max(1))),
        None => by_bytes,
    };
    u8::try_from((UNDERFULL_EIGHTHS + 1).saturating_sub(eighths)).unwrap_or(u8::MAX)
}

/// The most entries that a page may have; `None` for an inner page.
fn most_rows(page: &PageView<'_>) -> Option<usize> {
    (page.level() == 0).then(|| usize::try_from(page.header().extra).unwrap_or(usize::MAX))
}

/// What two neighbours of one level can do, by their sizes.
pub(crate) fn joint(left: &PageView<'_>, right: &PageView<'_>) -> Result<Joint, Damage> {
    let rows = left.len() + right.len();
    let most = most_rows(left).unwrap_or(usize::MAX);
    let (bytes, page) = (joined_bytes(left, right)?, left.page_bytes());
    // Of no use where it is: it goes wherever it fits.
    let is_useless = left.len().min(right.len()) <= usize::from(left.level() > 0);
    Ok(match is_useless {
        true if bytes <= page && rows <= most => Joint::Merge,
        true => Joint::Share,
        false
            if bytes * EIGHTHS <= page * MERGED_EIGHTHS
                && rows.saturating_mul(EIGHTHS) <= most.saturating_mul(MERGED_EIGHTHS) =>
        {
            Joint::Merge
        }
        false => Joint::Apart,
    })
}

/// Bytes that the two take as one page, with its prefix, which may be shorter than theirs.
fn joined_bytes(left: &PageView<'_>, right: &PageView<'_>) -> Result<usize, Damage> {
    let (low, high) = (left.low(), right.high());
    let prefix = low.iter().zip(high).take_while(|(a, b)| a == b).count();
    let mut bytes = HEADER + low.len() + high.len();
    for page in [left, right] {
        let longer = usize::from(page.header().prefix_len).saturating_sub(prefix);
        for slot in 0..page.len() {
            let cell = page.cell(slot)?;
            let suffix = match slot == 0 && page.level() > 0 && std::ptr::eq(page, left) {
                // Of an inner page, the first key is the low fence.
                true => 0,
                false => usize::from(cell.slot.suffix_len) + longer,
            };
            bytes += entry_bytes(suffix, cell.value.len());
        }
    }
    Ok(bytes)
}

/// Writes what the two are together into `target`. Of inner pages, the count of removals is later
/// than both, because the range of either grows (see [`crate::post`]).
fn join_into(target: &mut [u8], left: &PageView<'_>, right: &PageView<'_>) -> Result<(), Damage> {
    let (behind, whole) = (*right.header(), PageSpec::of(left));
    let extra = match left.level() {
        0 => whole.extra,
        _ => whole.extra.max(behind.extra).wrapping_add(1),
    };
    let stamps = whole.stamps.latest(behind.stamps);
    let (high, right_link) = (right.high().to_vec(), behind.right);
    let may_be_locked = whole.may_be_locked || behind.flags & LOCKED != 0;
    let spec = PageSpec { high, right: right_link, extra, stamps, may_be_locked, ..whole };
    let mut builder = Builder::new(target, &spec)?;
    builder.push_all(left, 0..left.len(), None)?;
    builder.push_all(right, 0..right.len(), None)?;
    builder.finish();
    Ok(())
}

/// Extends a page over the range of its right neighbour, whose entries it takes over. Its prefix
/// may shrink, so it is re-encoded; [`Damage`] also when that does not fit. On an error the page is
/// unchanged.
pub(crate) fn absorb(page: &mut impl PageMut, neighbour: &PageView<'_>) -> Result<(), Damage> {
    let mut image = vec![0; page.len()];
    join_into(&mut image, &PageView::parse(page)?, neighbour)?;
    page.change(0..image.len()).copy_from_slice(&image);
    Ok(())
}

/// Two neighbours that have divided their entries.
pub(crate) struct Halves {
    pub(crate) left: Vec<u8>,
    pub(crate) right: Vec<u8>,
    /// High fence of the left page and low fence of the right one.
    pub(crate) separator: Vec<u8>,
}

/// Divides the entries of two neighbours anew, half of the bytes to either. `right_addr` is where
/// the right one lives. [`Damage`] also when a half does not fit its page.
pub(crate) fn share(
    left: &PageView<'_>,
    right: &PageView<'_>,
    right_addr: u64,
) -> Result<Halves, Damage> {
    let bytes = left.page_bytes();
    let mut both = vec![0; 2 * bytes];
    join_into(&mut both, left, right)?;
    let cut = middle_cut(&PageView::parse(&both)?, bytes)?;
    let (mut left, mut right) = (vec![0; bytes], vec![0; bytes]);
    split_into(&both, &mut left, &mut right, &cut, right_addr)?;
    Ok(Halves { left, right, separator: cut.separator })
}

/// Whether an inner page has room for a separator in place of the one in `slot`.
pub(crate) fn has_room_instead(
    page: &PageView<'_>,
    slot: usize,
    separator: &[u8],
) -> Result<bool, Damage> {
    let prefix = usize::from(page.header().prefix_len);
    let freed = SLOT + page.cell(slot)?.heap_bytes();
    let free = page.free_bytes() + usize::from(page.header().garbage) + freed;
    Ok(entry_bytes(separator.len().saturating_sub(prefix), CHILD) <= free)
}
