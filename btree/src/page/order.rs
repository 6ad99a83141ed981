//! Comparing byte strings a word at a time: keys are short, and a call to compare a few bytes costs
//! more than the comparison.

use std::cmp::Ordering;

use super::layout::HEAD;

/// Bytes compared at once.
const WORD: usize = 8;

/// The head of a key suffix: its first four bytes as a big-endian integer, padded with zeros.
#[inline]
pub(crate) fn head_of(suffix: &[u8]) -> u32 {
    if let Some(head) = suffix.first_chunk::<HEAD>() {
        return u32::from_be_bytes(*head);
    }
    suffix.iter().zip([24, 16, 8]).fold(0, |head, (byte, shift)| head | u32::from(*byte) << shift)
}

/// The bytes of a key suffix that its cell holds: those after the head, if any.
#[inline]
pub(crate) fn rest_of(suffix: &[u8]) -> &[u8] {
    suffix.get(HEAD..).unwrap_or_default()
}

/// The first eight bytes as a big-endian integer, padded with zeros.
#[inline]
fn word_of(bytes: &[u8]) -> u64 {
    if let Some(word) = bytes.first_chunk::<WORD>() {
        return u64::from_be_bytes(*word);
    }
    let low = match bytes.last_chunk::<HEAD>() {
        // The last four bytes, less those that the head holds already.
        Some(last) => (u64::from(u32::from_be_bytes(*last)) << (8 * (WORD - bytes.len()))) as u32,
        None => 0,
    };
    u64::from(head_of(bytes)) << 32 | u64::from(low)
}

/// Orders byte strings as slices are ordered.
#[inline]
pub(crate) fn compare(mut a: &[u8], mut b: &[u8]) -> Ordering {
    loop {
        let order = word_of(a).cmp(&word_of(b));
        match (a.get(WORD..), b.get(WORD..)) {
            (Some(rest_of_a), Some(rest_of_b)) if order.is_eq() => (a, b) = (rest_of_a, rest_of_b),
            // Where padding made the words equal, one is a prefix of the other, the shorter one.
            _ => return order.then(a.len().cmp(&b.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_as_slices_do() {
        // All strings up to 3 bytes, and longer ones around every word edge, over 3 symbols.
        let mut strings = vec![Vec::new()];
        for base in [0, 3, 4, 6, 7, 8, 14, 15, 16] {
            for tail in 0..27_usize {
                for len in 0..=3 {
                    let mut string = vec![0; base];
                    string.extend([tail % 3, tail / 3 % 3, tail / 9].map(|s| [0, 1, 0xff][s]));
                    string.truncate(base + len);
                    strings.push(string.clone());
                    string.iter_mut().take(1).for_each(|first| *first = 0xff);
                    strings.push(string);
                }
            }
        }
        strings.sort();
        strings.dedup();
        assert!(strings.len() > 300);
        for a in &strings {
            for b in &strings {
                assert_eq!(compare(a, b), a.cmp(b), "{a:?} {b:?}");
                if head_of(a) != head_of(b) {
                    assert_eq!(head_of(a).cmp(&head_of(b)), a.cmp(b), "{a:?} {b:?}");
                }
            }
        }
    }
}
