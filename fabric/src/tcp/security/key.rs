//! `AccessKey`: the secret that a guest shows to be admitted; and its hash, by which a host knows
//! it.

use std::fmt;
use std::hint::black_box;
use std::io;

use ring::digest::{SHA256, digest};
use rustix::rand::{GetRandomFlags, getrandom};

/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 16;
/// Bytes of the hash of a key.
const HASH_BYTES: usize = 32;

/// 128 random bits that a node gives to a guest, and asks for when the guest connects. Any process
/// that has them can pass for the guest. So they are never printed, and a comparison takes the same
/// time wherever they differ.
#[derive(Clone, Copy)]
pub struct AccessKey([u8; KEY_BYTES]);

/// A text is no access key. The error does not repeat the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an access key is 32 hexadecimal digits in lower case")]
pub struct InvalidKeyText;

impl AccessKey {
    /// A random key of the operating system.
    ///
    /// # Errors
    /// If the system gives no randomness.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; KEY_BYTES];
        match getrandom(&mut bytes, GetRandomFlags::empty())? {
            KEY_BYTES => Ok(Self(bytes)),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    pub(crate) const fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn to_bytes(self) -> [u8; KEY_BYTES] {
        self.0
    }

    /// By what a host knows the key.
    pub(crate) fn hash(self) -> KeyHash {
        let mut hash = [0; HASH_BYTES];
        hash.copy_from_slice(digest(&SHA256, &self.0).as_ref());
        KeyHash(hash)
    }

    /// 32 hexadecimal digits. Keep them as secret as the key.
    pub fn to_text(self) -> String {
        to_text(&self.0)
    }

    /// Reads a text of [`AccessKey::to_text`].
    ///
    /// # Errors
    /// If the text is not 32 hexadecimal digits in lower case.
    pub fn parse(text: &str) -> Result<Self, InvalidKeyText> {
        parse(text).map(Self)
    }
}

/// SHA-256 of an access key. It tells whether a key is the right one, and the key cannot
/// be made of it: keys are random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyHash([u8; HASH_BYTES]);

impl KeyHash {
    /// 64 hexadecimal digits.
    pub(crate) fn to_text(self) -> String {
        to_text(&self.0)
    }

    /// Reads a text of [`KeyHash::to_text`].
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidKeyText> {
        parse(text).map(Self)
    }
}

fn to_text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse<const BYTES: usize>(text: &str) -> Result<[u8; BYTES], InvalidKeyText> {
    let digit = |byte: &u8| match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        _ => Err(InvalidKeyText),
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != BYTES || !rest.is_empty() {
        return Err(InvalidKeyText);
    }
    let mut bytes = [0; BYTES];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Ok(bytes)
}

impl PartialEq for AccessKey {
    /// Takes the same time wherever the keys differ.
    fn eq(&self, other: &Self) -> bool {
        let differing = self.0.iter().zip(&other.0).fold(0, |all, (a, b)| black_box(all | (a ^ b)));
        black_box(differing) == 0
    }
}

impl Eq for AccessKey {}

impl fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessKey(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_and_survive_their_text() {
        let (one, two) = (AccessKey::random().unwrap(), AccessKey::random().unwrap());
        assert_ne!(one, two);
        assert_eq!(AccessKey::parse(&one.to_text()), Ok(one));
        assert_ne!(AccessKey::parse(&one.to_text()), Ok(two));
        let known = AccessKey::from_bytes([0x0f; KEY_BYTES]);
        assert_eq!(known.to_text(), "0f".repeat(KEY_BYTES));
        let text = format!("{:?}", (one, Some(one)));
        assert!(!text.contains(&one.to_text()) && !text.contains(char::is_numeric), "{text}");
    }

    #[test]
    fn keys_that_differ_in_one_bit_are_not_equal() {
        let key = AccessKey::random().unwrap();
        for bit in 0..8 * KEY_BYTES {
            let mut bytes = key.to_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(AccessKey::from_bytes(bytes), key, "bit {bit}");
        }
    }

    #[test]
    fn a_hash_is_of_one_key_and_survives_its_text() {
        let (one, two) = (AccessKey::random().unwrap(), AccessKey::random().unwrap());
        assert!(one.hash() == one.hash() && one.hash() != two.hash());
        assert_eq!(KeyHash::parse(&one.hash().to_text()), Ok(one.hash()));
        assert_eq!(KeyHash::parse(&one.to_text()), Err(InvalidKeyText), "a key is no hash");
        // SHA-256 of sixteen zero bytes.
        let known = "374708fff7719dd5979ec875d56cd2286f6d3cf7ec317a3b25632aab28ec37bb";
        assert_eq!(AccessKey::from_bytes([0; KEY_BYTES]).hash().to_text(), known);
    }

    #[test]
    fn other_texts_are_no_keys() {
        let good = "0123456789abcdef0123456789abcdef";
        assert!(AccessKey::parse(good).is_ok());
        let longer = format!("{good}0");
        let cases = [
            "",
            &good[1..],
            &longer,
            &good.to_uppercase(),
            &good.replace('0', "+"),
            &good.replace("01", "é"),
        ];
        for text in cases {
            assert_eq!(AccessKey::parse(text), Err(InvalidKeyText), "{text}");
        }
    }
}
