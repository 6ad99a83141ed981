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
//! and was told that the server cannot (`y`), is refused if the server can: somebody has taken the
//! offer out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::rand::{SecureRandom, SystemRandom};
use selkie_sql::{RoleLogIn, SqlError, SqlResult, SqlState};

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
pub(crate) struct Exchange<'r> {
    role: &'r RoleLogIn,
    /// What the client has to say of the channel.
    binding: Vec<u8>,
    client_first_bare: String,
    server_first: String,
    nonce: String,
}

/// Our part of a nonce.
pub(crate) fn nonce() -> SqlResult<String> {
    let mut bytes = [0; NONCE_BYTES];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| violation("the system gives no randomness"))?;
    Ok(BASE64.encode(bytes))
}

impl<'r> Exchange<'r> {
    /// Reads the first message of a client that has chosen a mechanism. `certificate` is the hash
    /// of ours, if channel binding was offered.
    pub(crate) fn begin(
        role: &'r RoleLogIn,
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
        let verifier = role.verifier();
        let (salt, iterations) = (BASE64.encode(verifier.salt()), verifier.iterations());
        let server_first = format!("r={nonce},s={salt},i={iterations}");
        Ok(Self { role, binding, client_first_bare: bare.to_owned(), server_first, nonce })
    }

    /// Our first message.
    pub(crate) fn server_first(&self) -> &str {
        &self.server_first
    }

    /// Reads the last message of the client. Our last one, if its proof is good.
    pub(crate) fn finish(&self, message: &[u8]) -> SqlResult<String> {
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
        self.role.check(auth_message.as_bytes(), &proof)?;
        let signature = self.role.verifier().server_signature(auth_message.as_bytes());
        Ok(format!("v={}", BASE64.encode(signature)))
    }
}

fn malformed() -> SqlError {
    violation("malformed SCRAM message")
}
