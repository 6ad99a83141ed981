//! Page sequence numbers: how often a page was changed, at the front of its line.

/// Bytes at the front of each line that hold the page's sequence number, little-endian.
pub const PSN_BYTES: usize = 8;

const _: () = assert!(PSN_BYTES == size_of::<u64>());

/// The sequence number of a page.
///
/// # Panics
/// If the line is shorter than a sequence number.
#[must_use]
pub fn psn_of(line: &[u8]) -> u64 {
    let psn = line.first_chunk();
    assert!(psn.is_some(), "a line of {} bytes has no page sequence number", line.len());
    psn.map_or(0, |psn| u64::from_le_bytes(*psn))
}
