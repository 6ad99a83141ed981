//! The token of a pool: what a process shows to a relay where connections are not secured.
//!
//! The document has SHA-256 of the token, its *verifier*, so no document gives a token away. A
//! process shows that it has the token without sending it (the proof of SCRAM, RFC 5802):
//!
//! ```text
//! relay:    challenge, 32 random bytes
//! process:  proof = token XOR HMAC-SHA-256(verifier, challenge)
//! relay:    SHA-256(proof XOR HMAC-SHA-256(verifier, challenge)) == verifier
//! ```
//! A process that has the verifier and listens to a proof can make the token of both: members of
//! the pool trust each other where connections are not secured. Bytes that follow the proof are not
//! protected: that takes TLS.

use std::fmt;

use ring::digest::{SHA256, digest};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

/// Bytes of a token, a challenge, a proof and a verifier.
const BYTES: usize = 32;

/// 256 random bits that a pool was made with. They are never printed by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; BYTES]);

/// What tells whether a process has the token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct TokenVerifier([u8; BYTES]);

/// What a proof answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Challenge([u8; BYTES]);

/// The answer to a challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Proof([u8; BYTES]);

/// Why there is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The system gives no randomness.
    #[error("the system gives no randomness for a token")]
    NoRandomness,
    /// The text, which is not repeated, is none.
    #[error("a token is 64 hexadecimal digits in lower case")]
    Text,
}

impl Token {
    /// A new one.
    ///
    /// # Errors
    /// [`TokenError::NoRandomness`].
    pub fn random() -> Result<Self, TokenError> {
        random().map(Self)
    }

    /// Reads what [`Token::to_text`] has written; white space around it does not count.
    ///
    /// # Errors
    /// [`TokenError::Text`].
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        parse(text.trim()).map(Self)
    }

    /// 64 hexadecimal digits, to be kept secret.
    #[must_use]
    pub fn to_text(&self) -> String {
        to_text(&self.0)
    }

    /// What the document has of it.
    #[must_use]
    pub fn verifier(&self) -> TokenVerifier {
        TokenVerifier(hash(&self.0))
    }

    pub(crate) fn prove(&self, challenge: &Challenge) -> Proof {
        Proof(xor(self.0, self.verifier().mask(challenge)))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(secret)")
    }
}

impl TokenVerifier {
    /// Whether the token of this pool was proven.
    pub(crate) fn accepts(&self, challenge: &Challenge, proof: &Proof) -> bool {
        hash(&xor(proof.0, self.mask(challenge))) == self.0
    }

    fn mask(&self, challenge: &Challenge) -> [u8; BYTES] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        array(hmac::sign(&key, &challenge.0).as_ref())
    }
}

impl From<TokenVerifier> for String {
    fn from(verifier: TokenVerifier) -> Self {
        to_text(&verifier.0)
    }
}

impl TryFrom<String> for TokenVerifier {
    type Error = TokenError;

    fn try_from(text: String) -> Result<Self, TokenError> {
        parse(&text).map(Self)
    }
}

impl Challenge {
    pub(crate) fn random() -> Result<Self, TokenError> {
        random().map(Self)
    }
}

fn random() -> Result<[u8; BYTES], TokenError> {
    let mut bytes = [0; BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| TokenError::NoRandomness)?;
    Ok(bytes)
}

fn hash(bytes: &[u8; BYTES]) -> [u8; BYTES] {
    array(digest(&SHA256, bytes).as_ref())
}

fn array(bytes: &[u8]) -> [u8; BYTES] {
    let mut array = [0; BYTES];
    array.copy_from_slice(bytes);
    array
}

fn xor(mut bytes: [u8; BYTES], mask: [u8; BYTES]) -> [u8; BYTES] {
    bytes.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
    bytes
}

fn to_text(bytes: &[u8; BYTES]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse(text: &str) -> Result<[u8; BYTES], TokenError> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        _ => Err(TokenError::Text),
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != BYTES || !rest.is_empty() {
        return Err(TokenError::Text);
    }
    let mut bytes = [0; BYTES];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_proven_for_one_challenge_and_seen_nowhere() {
        let (token, other) = (Token::random().unwrap(), Token::random().unwrap());
        let (one, two) = (Challenge::random().unwrap(), Challenge::random().unwrap());
        let proof = token.prove(&one);
        let verifier = token.verifier();
        assert!(verifier.accepts(&one, &proof));
        assert!(!verifier.accepts(&two, &proof), "of another connection");
        assert!(!verifier.accepts(&one, &other.prove(&one)), "another token");
        assert!(
            !verifier.accepts(&one, &Proof(verifier.0)) && !verifier.accepts(&one, &Proof([0; 32]))
        );
        let mut changed = proof;
        changed.0[31] ^= 1;
        assert!(!verifier.accepts(&one, &changed));
        assert!(proof.0 != token.0 && verifier.0 != token.0);
        assert_eq!(format!("{token:?}"), "Token(secret)");
    }

    #[test]
    fn texts_are_read_as_they_were_written() {
        let token = Token::random().unwrap();
        assert_eq!(Token::parse(&format!(" {}\n", token.to_text())), Ok(token.clone()));
        let text = serde_json::to_string(&token.verifier()).unwrap();
        assert_eq!(serde_json::from_str::<TokenVerifier>(&text).unwrap(), token.verifier());
        let text = token.to_text();
        for bad in ["", &text[1..], &format!("{text}0"), &format!("{}é", &text[2..])] {
            assert_eq!(Token::parse(bad), Err(TokenError::Text), "{bad}");
        }
    }
}
