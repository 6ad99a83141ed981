//! What records hold, and how that is checked.
//!
//! A record has a version and ten fields of printable ASCII. The version counts the updates of the
//! record: a lost one is seen, and so is one that was made twice. A field says in its first four
//! letters which of its values it has, and repeats eight letters behind that follow from the key,
//! the field and those four: a value of another record or field, or one mixed of two, does not fit.
//! So a reader checks what it finds at the cost of a comparison.

/// Fields of a record.
pub const FIELDS: usize = 10;
/// Letters of a field that say which value it is.
const STAMP: usize = 4;
/// Fewest bytes of a field: a value, and as much that is checked.
pub(super) const LEAST_FIELD: usize = 2 * STAMP;

/// How long the fields are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FieldSizes {
    bytes: usize,
}

impl FieldSizes {
    /// Of a record with so many bytes in all fields together.
    pub(super) fn new(bytes: usize) -> Self {
        Self { bytes }
    }

    /// Bytes of a field: the first ones have one more where the bytes cannot be divided.
    pub(super) fn of(self, field: usize) -> usize {
        self.bytes / FIELDS + usize::from(field < self.bytes % FIELDS)
    }

    /// Bytes of all fields.
    pub(super) fn sum(self) -> usize {
        self.bytes
    }
}

/// Which of its values a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp([u8; STAMP]);

impl Stamp {
    /// Of 24 random bits.
    pub(super) fn of(bits: u64) -> Self {
        let [a, b, c, d, ..] = letters(bits);
        Self([a, b, c, d])
    }

    /// Of a field as it is loaded or inserted.
    pub(super) fn loaded(seed: u64, key: i64, field: usize) -> Self {
        Self::of(mixed(key, field, seed))
    }

    /// Puts the field's value behind what is in `buffer`.
    pub(super) fn write(self, key: i64, field: usize, bytes: usize, buffer: &mut Vec<u8>) {
        let block = block(key, field, self);
        let body = bytes.saturating_sub(STAMP);
        buffer.extend_from_slice(&self.0);
        buffer.extend(block.iter().cycle().take(body));
    }
}

/// What a field that was read tells.
pub(super) fn check(key: i64, field: usize, value: &[u8], bytes: usize) -> Option<Stamp> {
    let (stamp, body) = value.split_first_chunk::<STAMP>()?;
    let stamp = Stamp(*stamp);
    let block = block(key, field, stamp);
    let (blocks, rest) = body.as_chunks::<8>();
    let whole = blocks.iter().all(|found| *found == block);
    (whole && block.starts_with(rest) && value.len() == bytes).then_some(stamp)
}

/// The letters that a field repeats.
fn block(key: i64, field: usize, stamp: Stamp) -> [u8; 8] {
    letters(mixed(key, field, u64::from(u32::from_le_bytes(stamp.0))))
}

/// Eight letters: six bits of each byte, behind `0` to `o`.
fn letters(bits: u64) -> [u8; 8] {
    ((bits & 0x3f3f_3f3f_3f3f_3f3f) + 0x3030_3030_3030_3030).to_le_bytes()
}

fn mixed(key: i64, field: usize, third: u64) -> u64 {
    let first = scrambled(key.cast_unsigned() ^ third.rotate_left(32));
    scrambled(first ^ (field as u64 + 1))
}

/// The key of a record: a permutation of the numbers, so that records are inserted in an order that
/// is not that of their keys, and no two have one key.
pub(super) fn key_of(number: u64) -> i64 {
    scrambled(number).cast_signed()
}

/// The number of the record with this key.
pub(super) fn number_of(key: i64) -> u64 {
    let undo = |value: u64, shift: u32| {
        let mut whole = value;
        // Each round puts as many further bits right.
        for _ in 0..(64 / shift) {
            whole = value ^ (whole >> shift);
        }
        whole
    };
    // The inverses, modulo 2^64, of the factors of `scrambled`.
    let value = undo(key.cast_unsigned(), 31).wrapping_mul(0x3196_42b2_d24d_8ec3);
    undo(undo(value, 27).wrapping_mul(0x96de_1b17_3f11_9089), 30)
}

/// The output function of SplitMix64, a permutation.
fn scrambled(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_a_permutation_of_the_numbers() {
        for number in (0..1_000).chain([u64::MAX, 1 << 63, 1 << 40, 0x0123_4567_89ab_cdef]) {
            assert_eq!(number_of(key_of(number)), number);
        }
        let keys: Vec<i64> = (0..1_000).map(key_of).collect();
        let ascents = keys.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((400..600).contains(&ascents), "{ascents}");
    }

    #[test]
    fn fields_share_the_bytes_of_a_record() {
        for bytes in [80, 100, 1_000, 1_024, 1_029] {
            let sizes = FieldSizes::new(bytes);
            let all: Vec<_> = (0..FIELDS).map(|field| sizes.of(field)).collect();
            assert_eq!((all.iter().sum::<usize>(), sizes.sum()), (bytes, bytes));
            assert!(all.iter().max().unwrap() - all.iter().min().unwrap() <= 1);
        }
    }

    #[test]
    fn only_whole_values_of_the_field_and_the_record_fit() {
        for bytes in [8, 11, 12, 13, 100, 103] {
            let mut value = Vec::new();
            let stamp = Stamp::loaded(5, 77, 3);
            stamp.write(77, 3, bytes, &mut value);
            assert_eq!(value.len(), bytes);
            assert!(value.iter().all(|letter| (b'0'..=b'o').contains(letter)));
            assert_eq!(check(77, 3, &value, bytes), Some(stamp));
            assert_eq!(check(78, 3, &value, bytes), None, "another record");
            assert_eq!(check(77, 4, &value, bytes), None, "another field");
            assert_eq!(check(77, 3, &value, bytes + 1), None, "another length");
            for at in 0..bytes {
                let mut damaged = value.clone();
                damaged[at] ^= 1;
                assert_eq!(check(77, 3, &damaged, bytes), None, "byte {at} of {bytes}");
            }
            // The beginning of one value and the end of another.
            let mut other = Vec::new();
            Stamp::of(0x0102_0304_0506_0708).write(77, 3, bytes, &mut other);
            for cut in 1..bytes {
                let mixed = [&other[..cut], &value[cut..]].concat();
                assert_eq!(check(77, 3, &mixed, bytes), None, "cut at {cut} of {bytes}");
            }
        }
        assert_eq!(check(77, 3, b"abc", 3), None);
        assert_ne!(Stamp::loaded(5, 77, 3), Stamp::loaded(6, 77, 3));
    }
}
