//! The bytes of a page with counts, which show a wrong piece wherever it is.
//!
//! A page is cut into [`PARTS`] parts. Each has a count, and every word of it follows from that;
//! the value of the page is the sum of its counts. So a page that is put together of old and new
//! pieces has the wrong value, and a bit that is wrong shows wherever it is.

use selkie_engine::GAddr;

use crate::error::{SimError, ensure};

/// Pieces of a page that change by themselves.
pub(super) const PARTS: usize = 8;
/// What a page is worth before the first increment, so that a page never fetched is told from one.
pub(super) const FIRST: u64 = 1;

/// Writes a part that has this count.
pub(super) fn fill(bytes: &mut [u8], addr: GAddr, part: usize, count: u64) {
    for (place, word) in bytes.chunks_exact_mut(8).zip(0..) {
        place.copy_from_slice(&word_of(addr, part, count, word).to_le_bytes());
    }
}

/// The bytes of a part, whole words: parts differ by a word at most.
pub(super) fn part_of(page_bytes: usize, part: usize) -> std::ops::Range<usize> {
    let start = |part: usize| part * (page_bytes / 8) / PARTS * 8;
    start(part)..start(part + 1)
}

/// The first word of a part is its count, the others are mixed of it. A part is zero until it is
/// incremented, as a page is until it is written: not all of its splits are, the first time.
fn word_of(addr: GAddr, part: usize, count: u64, word: u64) -> u64 {
    if word == 0 || count == 0 {
        return count;
    }
    let mixed = addr.to_u64() ^ (part as u64) << 56 ^ count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.rotate_left(word as u32).wrapping_add(word)
}

/// The counts of a page's parts, every word of which is as it should be.
pub(super) fn counts(page: &[u8], addr: GAddr) -> Result<[u64; PARTS], SimError> {
    let mut counts = [0; PARTS];
    for (part, own) in counts.iter_mut().enumerate() {
        let (words, _) = page.get(part_of(page.len(), part)).unwrap_or_default().as_chunks::<8>();
        let missing = || SimError::Broken(format!("page {addr} is too short for part {part}"));
        *own = u64::from_le_bytes(words.first().copied().ok_or_else(missing)?);
        for (word, bytes) in (0..).zip(words) {
            let (found, expected) = (u64::from_le_bytes(*bytes), word_of(addr, part, *own, word));
            ensure(found == expected, || {
                format!(
                    "page {addr} is torn or damaged: word {word} of part {part}, whose count is {own}, is \
                     {found:#x} and not {expected:#x}"
                )
            })?;
        }
    }
    Ok(counts)
}

/// The value of a page: the sum of its counts.
pub(super) fn value(page: &[u8], addr: GAddr) -> Result<u64, SimError> {
    Ok(counts(page, addr)?.iter().sum())
}
