//! Values that are not in the bytes of a row.
//!
//! Where a row has no room for the value of a variable column, it has a pointer there, 12 bytes,
//! and bit 15 of the column's end says so:
//!
//! ```text
//! id u64 | length of the value u32
//! ```
//! A value that is stored has an id with the highest bit set, of its pieces
//! ([`long_values`](crate::access::long_values)). In a row that is being made, long values are
//! beside its bytes, under small ids, until they are stored.

use crate::catalogue::column_type::{MAX_COLUMN_BYTES, MAX_COLUMNS};

/// Bytes of a pointer in a row.
pub(crate) const POINTER_BYTES: usize = 12;

/// Most variable bytes of a row in memory, beside pointers: their ends have 15 bits.
pub(crate) const MOST_IN_ROW: usize = 31_000;
const _: () = {
    let pointers = MAX_COLUMNS * POINTER_BYTES;
    assert!(MOST_IN_ROW + pointers < 1 << 15);
};

/// Set in the ids of values that are stored.
const STORED: u64 = 1 << 63;

/// What a row has in place of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValuePointer {
    pub(crate) id: u64,
    /// Length of the value.
    pub(crate) bytes: u32,
}

impl ValuePointer {
    /// Of a value that is to be stored.
    pub(crate) fn of_new_value(random: u64, bytes: u32) -> Self {
        Self { id: random | STORED, bytes }
    }

    /// `None` if the bytes are no pointer.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (id, length) = bytes.split_first_chunk()?;
        let bytes = u32::from_le_bytes(length.try_into().ok()?);
        // No column takes a longer one.
        let pointer = Self { id: u64::from_le_bytes(*id), bytes };
        (bytes <= MAX_COLUMN_BYTES).then_some(pointer)
    }

    pub(crate) fn encode(self) -> [u8; POINTER_BYTES] {
        let mut bytes = [0; POINTER_BYTES];
        let (id, length) = bytes.split_at_mut(size_of::<u64>());
        id.copy_from_slice(&self.id.to_le_bytes());
        length.copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    /// Whether the value is in the database, and not of a row that is being made.
    pub(crate) fn is_stored(self) -> bool {
        self.id & STORED != 0
    }
}

/// Values that rows have pointers to: new ones, and stored ones that were read.
#[derive(Clone, Debug, Default)]
pub(crate) struct MovedValues {
    values: Vec<(u64, Vec<u8>)>,
}

impl MovedValues {
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.values.clear();
    }

    /// Adds a value that is not stored yet.
    pub(crate) fn add(&mut self, value: &[u8]) -> ValuePointer {
        let id = self.values.len() as u64;
        self.values.push((id, value.to_vec()));
        // Columns take no longer ones.
        ValuePointer { id, bytes: u32::try_from(value.len()).unwrap_or(u32::MAX) }
    }

    /// Adds a value that was read.
    pub(crate) fn add_stored(&mut self, pointer: ValuePointer, value: Vec<u8>) {
        self.values.push((pointer.id, value));
    }

    pub(crate) fn get(&self, pointer: ValuePointer) -> Option<&[u8]> {
        let found = self.values.iter().find(|(id, _)| *id == pointer.id);
        found.map(|(_, value)| value.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_come_back_and_values_are_found_by_them() {
        let mut values = MovedValues::default();
        let (first, second) = (values.add(b"one"), values.add(b"second"));
        let stored = ValuePointer::of_new_value(1, 6);
        values.add_stored(stored, b"stored".to_vec());
        for (pointer, value) in [(first, "one"), (second, "second"), (stored, "stored")] {
            let decoded = ValuePointer::decode(&pointer.encode()).unwrap();
            assert_eq!(decoded, pointer);
            assert_eq!(decoded.bytes as usize, value.len());
            assert_eq!(values.get(decoded), Some(value.as_bytes()));
        }
        assert!(stored.is_stored() && !second.is_stored());
        assert_eq!(values.get(ValuePointer::of_new_value(2, 6)), None);
        assert_eq!(ValuePointer::decode(&[0; POINTER_BYTES - 1]), None);
        let too_long = ValuePointer::of_new_value(1, MAX_COLUMN_BYTES + 1);
        assert_eq!(ValuePointer::decode(&too_long.encode()), None);
        assert_eq!(ValuePointer::decode(&[0; POINTER_BYTES + 1]), None);
    }
}
