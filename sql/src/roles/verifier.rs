//! What is kept of a password: a verifier of SCRAM-SHA-256, which does not tell it.
//!
//! RFC 5802 §3, RFC 7677. The text is PostgreSQL's: `SCRAM-SHA-256$ITERATIONS:SALT$STORED:SERVER`.

use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};

use crate::error::{SqlError, SqlResult};

/// How often the hash of a new password is taken.
const ITERATIONS: NonZeroU32 = match NonZeroU32::new(4_096) {
    Some(iterations) => iterations,
    None => NonZeroU32::MIN,
};
/// Bytes of a new salt.
const SALT_BYTES: usize = 16;
/// Bytes of a hash.
const HASH_BYTES: usize = digest::SHA256_OUTPUT_LEN;
/// How a verifier begins.
const PREFIX: &str = "SCRAM-SHA-256$";

/// What is kept of a password, which a client proves to know.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    salt: Vec<u8>,
    iterations: NonZeroU32,
    stored_key: [u8; HASH_BYTES],
    server_key: [u8; HASH_BYTES],
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

impl Verifier {
    /// Of a password, with a salt of its own.
    pub(crate) fn of_password(password: &str) -> SqlResult<Self> {
        let mut salt = vec![0; SALT_BYTES];
        fill_random(&mut salt)?;
        Ok(Self::derived(password, salt))
    }

    fn derived(password: &str, salt: Vec<u8>) -> Self {
        // As PostgreSQL: what cannot be prepared is taken as it is.
        let prepared = stringprep::saslprep(password);
        let password = prepared.as_deref().unwrap_or(password);
        let mut salted = [0; HASH_BYTES];
        let algorithm = pbkdf2::PBKDF2_HMAC_SHA256;
        pbkdf2::derive(algorithm, ITERATIONS, &salt, password.as_bytes(), &mut salted);
        let client_key = mac(&salted, b"Client Key");
        let stored_key = hash(&client_key);
        Self { salt, iterations: ITERATIONS, stored_key, server_key: mac(&salted, b"Server Key") }
    }

    /// Of a text that is a verifier; `None` for any other.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(PREFIX)?;
        let (first, keys) = rest.split_once('$')?;
        let (iterations, salt) = first.split_once(':')?;
        let (stored, server) = keys.split_once(':')?;
        let key = |text: &str| BASE64.decode(text).ok()?.try_into().ok();
        Some(Self {
            salt: BASE64.decode(salt).ok()?,
            iterations: iterations.parse().ok()?,
            stored_key: key(stored)?,
            server_key: key(server)?,
        })
    }

    /// For a name of which there is no role, so that its log-in looks as that of any other. It is
    /// the same each time, as that of a role is, and no proof fits it.
    pub(crate) fn mock(secret: &[u8], name: &str) -> Self {
        let salt = mac(secret, name.as_bytes());
        let salt = salt.get(..SALT_BYTES).unwrap_or_default().to_vec();
        Self {
            salt,
            iterations: ITERATIONS,
            stored_key: [0; HASH_BYTES],
            server_key: [0; HASH_BYTES],
        }
    }

    /// As it is stored.
    pub(crate) fn to_text(&self) -> String {
        let iterations = self.iterations;
        let [salt, stored, server] =
            [&*self.salt, &self.stored_key, &self.server_key].map(|own| BASE64.encode(own));
        format!("{PREFIX}{iterations}:{salt}${stored}:{server}")
    }

    /// What a client hashes its password with.
    #[must_use]
    pub fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// How often it does so.
    #[must_use]
    pub fn iterations(&self) -> u32 {
        self.iterations.get()
    }

    /// Whether a client's proof shows that it knows the password (RFC 5802 §3).
    #[must_use]
    pub fn accepts(&self, auth_message: &[u8], proof: &[u8]) -> bool {
        let signature = mac(&self.stored_key, auth_message);
        if proof.len() != signature.len() {
            return false;
        }
        let client_key: Vec<u8> = proof.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        is_same(&hash(&client_key), &self.stored_key)
    }

    /// What shows the client that the server knows the verifier.
    #[must_use]
    pub fn server_signature(&self, auth_message: &[u8]) -> [u8; 32] {
        mac(&self.server_key, auth_message)
    }
}

/// Whether a password is the hash of one that PostgreSQL has made before SCRAM.
pub(crate) fn is_md5(password: &str) -> bool {
    let digits = password.strip_prefix("md5");
    digits.is_some_and(|own| own.len() == 32 && own.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Fills bytes with the randomness of the system.
pub(crate) fn fill_random(bytes: &mut [u8]) -> SqlResult<()> {
    let filled = SystemRandom::new().fill(bytes);
    filled.map_err(|_| SqlError::internal("the system gives no randomness"))
}

fn mac(key: &[u8], message: &[u8]) -> [u8; HASH_BYTES] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message);
    tag.as_ref().try_into().unwrap_or([0; HASH_BYTES])
}

fn hash(message: &[u8]) -> [u8; HASH_BYTES] {
    digest::digest(&digest::SHA256, message).as_ref().try_into().unwrap_or([0; HASH_BYTES])
}

/// Without telling by the time that it takes where they differ.
fn is_same(left: &[u8; HASH_BYTES], right: &[u8; HASH_BYTES]) -> bool {
    left.iter().zip(right).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    /// The exchange of RFC 7677 §3.
    #[test]
    fn the_example_of_the_standard_is_accepted() {
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = Verifier::derived("pencil", salt);
        let message = "n=user,r=rOprNGfwEbeRWgbNEkqO,\
            r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,\
            c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let proof = BASE64.decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=").unwrap();
        assert!(verifier.accepts(message.as_bytes(), &proof));
        let signature = BASE64.encode(verifier.server_signature(message.as_bytes()));
        assert_eq!(signature, "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        let mut other = proof.clone();
        *other.first_mut().unwrap() ^= 1;
        assert!(!verifier.accepts(message.as_bytes(), &other));
        assert!(!verifier.accepts(message.as_bytes(), proof.get(1..).unwrap()));
    }

    #[test]
    fn a_verifier_is_read_as_it_was_written() {
        let verifier = Verifier::of_password("secret").unwrap();
        assert_eq!(Verifier::parse(&verifier.to_text()), Some(verifier.clone()));
        assert_ne!(verifier, Verifier::of_password("secret").unwrap());
        for wrong in ["", "secret", "SCRAM-SHA-256$0:AA==$AA==:AA==", "SCRAM-SHA-256$4096:x"] {
            assert_eq!(Verifier::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn nobody_passes_for_a_role_that_is_not_there() {
        let mock = Verifier::mock(b"secret", "bob");
        assert_eq!(mock, Verifier::mock(b"secret", "bob"));
        assert_ne!(mock.salt(), Verifier::mock(b"secret", "eve").salt());
        assert_ne!(mock.salt(), Verifier::mock(b"other", "bob").salt());
        assert!(!mock.accepts(b"message", &[0; 32]));
    }
}
