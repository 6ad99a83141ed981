//! How records of a run are made, and what makes one whole.

use super::record::{FIELDS, FieldSizes, Stamp, check};

/// Bytes of the version in a record of a tree.
const VERSION_BYTES: usize = 8;

/// What all records of a run have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordRules {
    pub(super) seed: u64,
    pub(super) fields: FieldSizes,
}

impl RecordRules {
    /// Puts a field of a record, as it is loaded or inserted, behind what is in `buffer`.
    pub(super) fn write_loaded(self, key: i64, field: usize, buffer: &mut Vec<u8>) {
        Stamp::loaded(self.seed, key, field).write(key, field, self.fields.of(field), buffer);
    }

    /// A new value of a field.
    pub(super) fn value(self, key: i64, field: usize, bits: u64) -> Vec<u8> {
        let mut value = Vec::with_capacity(self.fields.of(field));
        Stamp::of(bits).write(key, field, self.fields.of(field), &mut value);
        value
    }

    /// Whether a record is whole: each field has a value of its own, and that which was loaded if
    /// the record was never updated.
    pub(super) fn is_whole<'a>(
        self,
        key: i64,
        version: i64,
        field: impl Fn(usize) -> Option<&'a [u8]>,
    ) -> bool {
        (0..FIELDS).all(|at| {
            let value = field(at);
            let stamp = value.and_then(|value| check(key, at, value, self.fields.of(at)));
            stamp.is_some_and(|stamp| {
                version > 0 || version == 0 && stamp == Stamp::loaded(self.seed, key, at)
            })
        })
    }

    /// A record of a tree as it is loaded or inserted, in place of what is in `buffer`: the
    /// version, 8 bytes little-endian, and the fields, one behind the other.
    pub(super) fn encode_loaded(self, key: i64, buffer: &mut Vec<u8>) {
        buffer.clear();
        buffer.extend_from_slice(&0_i64.to_le_bytes());
        (0..FIELDS).for_each(|field| self.write_loaded(key, field, buffer));
    }

    /// Version of a record of a tree, and whether it is whole; `None` if it has not the size of
    /// one.
    pub(super) fn look_at(self, key: i64, record: &[u8]) -> Option<(i64, bool)> {
        let (version, fields) = record.split_first_chunk::<VERSION_BYTES>()?;
        let version = i64::from_le_bytes(*version);
        if fields.len() != self.fields.sum() {
            return None;
        }
        let field = |at| fields.get(self.start_of(at)..)?.get(..self.fields.of(at));
        Some((version, self.is_whole(key, version, field)))
    }

    /// The record of a tree with this field in place of the one that it has, and the next version;
    /// `None` if it has not the size of one.
    pub(super) fn updated(self, record: &[u8], field: usize, value: &[u8]) -> Option<Vec<u8>> {
        let mut new = record.to_vec();
        let (version, fields) = new.split_first_chunk_mut::<VERSION_BYTES>()?;
        *version = i64::from_le_bytes(*version).wrapping_add(1).to_le_bytes();
        let place = fields.get_mut(self.start_of(field)..)?.get_mut(..value.len())?;
        place.copy_from_slice(value);
        Some(new)
    }

    fn start_of(self, field: usize) -> usize {
        (0..field).map(|before| self.fields.of(before)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_trees_are_read_as_they_were_written() {
        for bytes in [80, 100, 1_000, 1_024, 1_027] {
            let rules = RecordRules { seed: 9, fields: FieldSizes::new(bytes) };
            let (key, mut record) = (-77, Vec::new());
            rules.encode_loaded(key, &mut record);
            assert_eq!(record.len(), 8 + bytes);
            assert_eq!(rules.look_at(key, &record), Some((0, true)));
            assert_eq!(rules.look_at(key + 1, &record), Some((0, false)), "another record");
            for (version, field) in [(1, 0), (2, 9), (3, 4)] {
                let value = rules.value(key, field, 0x1234_5678_9abc);
                record = rules.updated(&record, field, &value).unwrap();
                assert_eq!(rules.look_at(key, &record), Some((version, true)));
            }
            let unchanged = [&0_i64.to_le_bytes(), &record[8..]].concat();
            let text = "values that were never written are seen by the version";
            assert_eq!(rules.look_at(key, &unchanged), Some((0, false)), "{text}");
            assert_eq!(rules.look_at(key, &record[1..]), None);
            record[20] ^= 1;
            assert_eq!(rules.look_at(key, &record), Some((3, false)));
        }
    }
}
