//! Shape of a mailbox: its configuration, its descriptor, and the layout of its region.
//!
//! ```text
//! 0      credit   u64 x 64   word i: bytes that peer i has consumed of what this node sent to it
//! 512    ring 0              records from peer 0
//! ...    ring 1, 2, ...      ring_bytes each
//! ```
//! Every word and every ring has exactly one remote writer: the peer of that index.

use crate::error::ChannelError;
use crate::record::MAX_RECORD_BYTES;
use selkie_fabric::{PeerId, RegionKey};

/// Most peers of a mailbox.
pub const MAX_PEERS: usize = 64;
/// Smallest ring, in bytes.
pub const MIN_RING_BYTES: usize = 32 << 10;
/// Largest ring, in bytes.
pub const MAX_RING_BYTES: usize = 1 << 30;
/// Largest outbox, in messages.
pub const MAX_OUTBOX: usize = 1 << 20;

const CREDIT_BYTES: u64 = 8;
const RINGS_AT: u64 = CREDIT_BYTES * MAX_PEERS as u64;

/// A receiver returns credit once it owes this share of the ring ...
pub(crate) const BUSY_CREDIT_SHARE: u64 = 4;
/// ... or when it finds the ring empty and owes more than this share.
pub(crate) const IDLE_CREDIT_SHARE: u64 = 16;

// No sender stalls for ever: with only the idle share unreturned, the largest record fits even if
// the rest of the lap, shorter than that record, has to be skipped first.
const _: () =
    assert!(MIN_RING_BYTES - MIN_RING_BYTES / IDLE_CREDIT_SHARE as usize > 2 * MAX_RECORD_BYTES);

/// Shape of a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailboxConfig {
    /// Slots for senders, this node's own index included: 1 to [`MAX_PEERS`].
    pub peers: usize,
    /// Bytes of each sender's ring: a power of two, [`MIN_RING_BYTES`] to [`MAX_RING_BYTES`]. The
    /// memory is not committed before it is used.
    pub ring_bytes: usize,
    /// Messages kept for a receiver whose ring is full: 1 to [`MAX_OUTBOX`].
    pub outbox_limit: usize,
}

impl MailboxConfig {
    /// Checks every field, and that `me` has a slot.
    ///
    /// # Errors
    /// [`ChannelError::Config`] with the key, the value and what is allowed.
    pub fn validate(&self, me: usize) -> Result<(), ChannelError> {
        check("peers", self.peers as u64, (1..=MAX_PEERS).contains(&self.peers), || {
            format!("1 to {MAX_PEERS}")
        })?;
        check_ring_bytes(self.ring_bytes as u64)?;
        let limit = self.outbox_limit;
        check("outbox_limit", limit as u64, (1..=MAX_OUTBOX).contains(&limit), || {
            format!("1 to {MAX_OUTBOX}")
        })?;
        check("me", me as u64, me < self.peers, || format!("below peers = {}", self.peers))
    }

    pub(crate) fn region_bytes(&self) -> usize {
        // At most 64 GiB by the bounds of the two factors.
        RINGS_AT as usize + self.peers * self.ring_bytes
    }
}

/// How to reach a mailbox; exchanged out of band before [`crate::Mailbox::connect`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailboxDescriptor {
    /// The node that receives.
    pub peer: PeerId,
    /// Its mailbox region.
    pub region: RegionKey,
    /// Bytes of each ring in it.
    pub ring_bytes: u64,
    /// Sender slots in it.
    pub peers: u32,
}

impl MailboxDescriptor {
    /// Checks the ring size, and that `sender` has a slot.
    pub(crate) fn validate(&self, sender: usize) -> Result<(), ChannelError> {
        check_ring_bytes(self.ring_bytes)?;
        let peers = self.peers;
        check(
            "peers",
            u64::from(peers),
            sender < peers as usize && peers <= MAX_PEERS as u32,
            || format!("{} (the sender's slot) to {MAX_PEERS}", sender + 1),
        )
    }
}

/// Offset of the ring of sender `slot` in a mailbox region.
pub(crate) const fn ring_offset(slot: usize, ring_bytes: u64) -> u64 {
    RINGS_AT + slot as u64 * ring_bytes
}

/// Offset of the word by which receiver `slot` returns credit to the owner of the region.
pub(crate) const fn credit_offset(slot: usize) -> u64 {
    slot as u64 * CREDIT_BYTES
}

fn check_ring_bytes(bytes: u64) -> Result<(), ChannelError> {
    let range = MIN_RING_BYTES as u64..=MAX_RING_BYTES as u64;
    check("ring_bytes", bytes, bytes.is_power_of_two() && range.contains(&bytes), || {
        format!("a power of two in {MIN_RING_BYTES} to {MAX_RING_BYTES}")
    })
}

fn check(
    key: &'static str,
    value: u64,
    good: bool,
    allowed: impl FnOnce() -> String,
) -> Result<(), ChannelError> {
    if good { Ok(()) } else { Err(ChannelError::Config { key, value, allowed: allowed() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: MailboxConfig =
        MailboxConfig { peers: 3, ring_bytes: MIN_RING_BYTES, outbox_limit: 8 };

    #[track_caller]
    fn assert_refused(result: Result<(), ChannelError>, key: &str, value: u64, allowed: &str) {
        match result {
            Err(ChannelError::Config { key: k, value: v, allowed: a }) => {
                assert_eq!((k, v, a.as_str()), (key, value, allowed));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn limits_are_accepted() {
        for peers in [1, MAX_PEERS] {
            MailboxConfig { peers, ..GOOD }.validate(peers - 1).unwrap();
        }
        for ring_bytes in [MIN_RING_BYTES, MAX_RING_BYTES] {
            MailboxConfig { ring_bytes, ..GOOD }.validate(0).unwrap();
        }
        for outbox_limit in [1, MAX_OUTBOX] {
            MailboxConfig { outbox_limit, ..GOOD }.validate(0).unwrap();
        }
    }

    #[test]
    fn bad_values_name_key_value_and_what_is_allowed() {
        for peers in [0, 65] {
            let config = MailboxConfig { peers, ..GOOD };
            assert_refused(config.validate(0), "peers", peers as u64, "1 to 64");
        }
        for ring_bytes in [0, MIN_RING_BYTES / 2, MIN_RING_BYTES + 64, MAX_RING_BYTES * 2] {
            let config = MailboxConfig { ring_bytes, ..GOOD };
            let allowed = "a power of two in 32768 to 1073741824";
            assert_refused(config.validate(0), "ring_bytes", ring_bytes as u64, allowed);
        }
        for outbox_limit in [0, MAX_OUTBOX + 1] {
            let config = MailboxConfig { outbox_limit, ..GOOD };
            assert_refused(config.validate(0), "outbox_limit", outbox_limit as u64, "1 to 1048576");
        }
        assert_refused(GOOD.validate(3), "me", 3, "below peers = 3");
    }

    #[test]
    fn a_descriptor_without_a_slot_for_the_sender_is_refused() {
        let region = RegionKey::from_raw(0);
        let descriptor = MailboxDescriptor {
            peer: PeerId::compute(0),
            region,
            ring_bytes: MIN_RING_BYTES as u64,
            peers: 3,
        };
        descriptor.validate(2).unwrap();
        assert_refused(descriptor.validate(3), "peers", 3, "4 (the sender's slot) to 64");
        let odd = MailboxDescriptor { ring_bytes: 40_000, ..descriptor };
        assert!(matches!(odd.validate(0), Err(ChannelError::Config { key: "ring_bytes", .. })));
    }

    #[test]
    fn words_and_rings_tile_the_region() {
        assert_eq!(credit_offset(0), 0);
        assert_eq!(credit_offset(MAX_PEERS - 1) + 8, ring_offset(0, 1 << 15));
        assert_eq!(ring_offset(0, 1 << 15), 512);
        assert_eq!(ring_offset(2, 1 << 15), 512 + (2 << 15));
        assert_eq!(GOOD.region_bytes() as u64, ring_offset(3, MIN_RING_BYTES as u64));
    }
}
