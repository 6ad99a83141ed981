//! The exchange of SCRAM-SHA-256, without input and output (RFC 5802, RFC 7677, RFC 5929).
//!
//! ```text
//! client-first   n,,n=,r=NONCE                 p=tls-server-end-point,, with channel binding
//! server-first   r=NONCE+OURS,s=SALT,i=ITERATIONS
//! client-final   c=HEADER,r=NONCE+OURS,p=PROOF
//! server-final   v=SIGNATURE
//! ```
//! With channel binding the client says which certificate it has seen, and that is under its proof:
//! who stands between the two with another certificate is found out. A client that could do that,
//! and was told that the server cannot (`y`), is refused if the server can: the offer was taken out
//! on the way.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::rand::{SecureRandom, SystemRandom};
use selkie_sql::{SqlError, SqlResult, SqlState, Verifier};

use crate::frontend::violation;

/// The mechanism without channel binding.
pub(crate) const PLAIN: &str = "SCRAM-SHA-256";
/// With it.
pub(crate) const PLUS: &str = "SCRAM-SHA-256-PLUS";

/// The kind of channel binding.
const BINDING: &str = "tls-server-end-point";
/// Bytes of our part of the nonce.
const NONCE_BYTES: usize = 18;

/// An exchange whose first message has come.
#[derive(Debug)]
pub(crate) struct Exchange<'v> {
    verifier: &'v Verifier,
    /// What the client has to say of the channel.
    binding: Vec<u8>,
    client_first_bare: String,
    server_first: String,
    nonce: String,
}

/// What a client has said to prove that it knows the password. Whether it does is for the role to
/// say.
#[derive(Debug)]
pub(crate) struct Proof {
    pub(crate) auth_message: String,
    pub(crate) proof: Vec<u8>,
}

/// Our part of a nonce.
pub(crate) fn nonce() -> SqlResult<String> {
    let mut bytes = [0; NONCE_BYTES];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| violation("the system gives no randomness"))?;
    Ok(BASE64.encode(bytes))
}

impl<'v> Exchange<'v> {
    /// Reads the first message of a client that has chosen a mechanism. `certificate` is the hash
    /// of ours, if channel binding was offered.
    pub(crate) fn begin(
        verifier: &'v Verifier,
        mechanism: &str,
        message: &[u8],
        certificate: Option<&[u8]>,
        own_nonce: &str,
    ) -> SqlResult<Self> {
        let message = std::str::from_utf8(message).map_err(|_| malformed())?;
        let mut parts = message.splitn(3, ',');
        let (Some(flag), Some(identity), Some(bare)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed());
        };
        if !identity.is_empty() {
            let message = "client uses authorization identity, but it is not supported";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        let mut binding = format!("{flag},,").into_bytes();
        match (flag, mechanism, certificate) {
            ("n", PLAIN, _) | ("y", PLAIN, None) => {}
            ("y", PLAIN, Some(_)) => {
                let message = "SCRAM channel binding negotiation error: the client supports it and was told that the server does not";
                return Err(SqlError::new(SqlState::INVALID_AUTHORIZATION, message));
            }
            (_, PLUS, Some(hash)) if flag.strip_prefix("p=") == Some(BINDING) => {
                binding.extend_from_slice(hash);
            }
            _ => return Err(malformed()),
        }
        let mut fields = bare.split(',');
        // The name is that of the start-up packet; what stands here is not looked at.
        fields.next().filter(|own| own.starts_with("n=")).ok_or_else(malformed)?;
        let nonce = fields.next().and_then(|own| own.strip_prefix("r=")).ok_or_else(malformed)?;
        let is_printable = |byte: u8| (0x21..=0x7e).contains(&byte);
        if nonce.is_empty() || !nonce.bytes().all(is_printable) {
            return Err(malformed());
        }
        let nonce = format!("{nonce}{own_nonce}");
        let (salt, iterations) = (BASE64.encode(verifier.salt()), verifier.iterations());
        let server_first = format!("r={nonce},s={salt},i={iterations}");
        Ok(Self { verifier, binding, client_first_bare: bare.to_owned(), server_first, nonce })
    }

    /// Our first message.
    pub(crate) fn server_first(&self) -> &str {
        &self.server_first
    }

    /// Reads the last message of the client.
    pub(crate) fn finish(&self, message: &[u8]) -> SqlResult<Proof> {
        let message = std::str::from_utf8(message).map_err(|_| malformed())?;
        let (without_proof, proof) = message.rsplit_once(",p=").ok_or_else(malformed)?;
        let mut fields = without_proof.split(',');
        let binding = fields.next().and_then(|own| own.strip_prefix("c=")).ok_or_else(malformed)?;
        let nonce = fields.next().and_then(|own| own.strip_prefix("r=")).ok_or_else(malformed)?;
        // Extensions that have to be understood.
        if fields.any(|own| own.starts_with("m=")) {
            return Err(malformed());
        }
        if BASE64.decode(binding).ok().as_ref() != Some(&self.binding) {
            let message = "SCRAM channel binding check failed";
            return Err(SqlError::new(SqlState::INVALID_AUTHORIZATION, message));
        }
        if nonce != self.nonce {
            return Err(violation("invalid SCRAM response: the nonce does not match"));
        }
        let proof = BASE64.decode(proof).map_err(|_| malformed())?;
        let (first, server) = (&self.client_first_bare, &self.server_first);
        let auth_message = format!("{first},{server},{without_proof}");
        Ok(Proof { auth_message, proof })
    }

    /// Our last message, to a client whose proof is good.
    pub(crate) fn server_final(&self, proof: &Proof) -> String {
        let signature = self.verifier.server_signature(proof.auth_message.as_bytes());
        format!("v={}", BASE64.encode(signature))
    }
}

fn malformed() -> SqlError {
    violation("malformed SCRAM message")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    /// Of the password and the salt of the example of RFC 7677.
    fn verifier() -> Verifier {
        let text = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
            WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
        Verifier::parse(text).unwrap()
    }

    const OURS: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";

    #[test]
    fn the_example_of_the_standard_goes_through() {
        let verifier = verifier();
        let first = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
        let exchange = Exchange::begin(&verifier, PLAIN, first, None, OURS).unwrap();
        assert_eq!(
            exchange.server_first(),
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        let last = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
            p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        let proof = exchange.finish(last).unwrap();
        assert!(verifier.accepts(proof.auth_message.as_bytes(), &proof.proof));
        let last = exchange.server_final(&proof);
        assert_eq!(last, "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn who_takes_the_offer_of_channel_binding_out_is_found_out() {
        let verifier = verifier();
        let begin = |mechanism, first: &[u8], certificate: Option<&[u8]>| {
            let begun = Exchange::begin(&verifier, mechanism, first, certificate, OURS);
            begun.err().map(|error| error.state())
        };
        let hash = Some(&b"hash"[..]);
        assert_eq!(begin(PLAIN, b"n,,n=,r=a", hash), None);
        assert_eq!(begin(PLAIN, b"y,,n=,r=a", None), None);
        assert_eq!(begin(PLAIN, b"y,,n=,r=a", hash), Some(SqlState::INVALID_AUTHORIZATION));
        assert_eq!(begin(PLUS, b"p=tls-server-end-point,,n=,r=a", hash), None);
        let wrong = Some(SqlState::PROTOCOL_VIOLATION);
        assert_eq!(begin(PLUS, b"p=tls-server-end-point,,n=,r=a", None), wrong);
        assert_eq!(begin(PLUS, b"p=tls-unique,,n=,r=a", hash), wrong);
        assert_eq!(begin(PLUS, b"n,,n=,r=a", hash), wrong);
        assert_eq!(begin(PLUS, b"y,,n=,r=a", hash), wrong);
        assert_eq!(begin(PLAIN, b"p=tls-server-end-point,,n=,r=a", hash), wrong);
    }

    #[test]
    fn the_certificate_that_the_client_has_seen_has_to_be_ours() {
        let verifier = verifier();
        let first = b"p=tls-server-end-point,,n=,r=a";
        let exchange = Exchange::begin(&verifier, PLUS, first, Some(b"ours"), "b").unwrap();
        let finish = |seen: &str, nonce: &str| {
            let header = BASE64.encode(format!("p=tls-server-end-point,,{seen}"));
            let last = format!("c={header},r={nonce},p={}", BASE64.encode([0; 32]));
            exchange.finish(last.as_bytes()).err().map(|error| error.state())
        };
        assert_eq!(finish("ours", "ab"), None);
        assert_eq!(finish("theirs", "ab"), Some(SqlState::INVALID_AUTHORIZATION));
        assert_eq!(finish("", "ab"), Some(SqlState::INVALID_AUTHORIZATION));
        assert_eq!(finish("ours", "a"), Some(SqlState::PROTOCOL_VIOLATION));
        assert_eq!(finish("ours", "abc"), Some(SqlState::PROTOCOL_VIOLATION));
    }

    #[test]
    fn no_message_makes_it_panic() {
        let verifier = verifier();
        let parts = [
            "",
            "n",
            "y",
            "p=",
            "p=tls-server-end-point",
            ",",
            "n=",
            "r=",
            "a",
            "c=",
            "=",
            "m=x",
            "\u{e4}",
        ];
        let exchange = Exchange::begin(&verifier, PLAIN, b"n,,n=,r=a", None, "b").unwrap();
        for first in parts {
            for second in parts {
                for third in parts {
                    let text = format!("{first},{second},{third},p=");
                    for mechanism in [PLAIN, PLUS] {
                        let bytes = text.as_bytes();
                        drop(Exchange::begin(&verifier, mechanism, bytes, Some(b"x"), "b"));
                        drop(Exchange::begin(&verifier, mechanism, bytes, None, "b"));
                    }
                    assert!(exchange.finish(text.as_bytes()).is_err(), "{text}");
                }
            }
        }
    }
}
