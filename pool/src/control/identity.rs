//! The numbers of processes, which entries of the document carry: on secured connections they are
//! made from the process's certificate, so that a relay can tell whose an entry is.
//!
//! ```text
//! host   40 bits  random, chosen by the process
//!        24 bits  of SHA-256(fingerprint of the certificate, random)
//! ```
//! A process cannot choose a number that is another's and its own: the random bits of the other's
//! are given, and its certificate is signed. One certificate in 2^24 fits by chance.

use ring::digest::{Context, SHA256};
use selkie_fabric::NodeCertificate;

/// Bits of a number that follow from the others.
const TAG_BITS: u32 = 24;

/// The number of a process that shows `certificate`, from random bits.
#[must_use]
pub fn host_number(certificate: &NodeCertificate, random: u64) -> u64 {
    let chosen = random >> TAG_BITS;
    chosen << TAG_BITS | tag(certificate, chosen)
}

/// Whether a number is one of a process that shows `certificate`.
#[must_use]
pub fn is_host_of(certificate: &NodeCertificate, host: u64) -> bool {
    host_number(certificate, host) == host
}

fn tag(certificate: &NodeCertificate, chosen: u64) -> u64 {
    let mut context = Context::new(&SHA256);
    context.update(&certificate.fingerprint);
    context.update(&chosen.to_le_bytes());
    let digest = context.finish();
    let tag = digest.as_ref().iter().take(TAG_BITS as usize / 8);
    tag.fold(0, |tag, byte| tag << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use selkie_fabric::Role;
    use selkie_fabric::env::SplitMix;

    use super::*;

    #[test]
    fn a_number_is_of_the_certificate_it_was_made_from_and_of_no_other() {
        let of = |byte| NodeCertificate { role: Role::Compute, fingerprint: [byte; 32] };
        let random = SplitMix::new(1);
        for _ in 0..1_000 {
            let host = host_number(&of(1), random.next_u64());
            assert!(is_host_of(&of(1), host));
            assert!(!is_host_of(&of(2), host), "{host:#x}");
            assert!(!is_host_of(&of(1), host ^ 1) && !is_host_of(&of(1), host ^ 1 << 63));
        }
    }
}
