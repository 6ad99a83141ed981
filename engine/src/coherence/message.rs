//! Wire format of the messages between compute nodes.
//!
//! ```text
//! byte 0     1       2          3       4..8     8..16   16..24   24..
//!      +-----+-------+----------+-------+--------+-------+--------+------------------+
//!      | tag | flags | priority | hint+1| (zero) | gaddr | dirty  | page, grants only|
//!      +-----+-------+----------+-------+--------+-------+--------+------------------+
//! ```
//! In a coded pool the versions of the page's splits at home, 48 bytes, precede the page of a
//! GrantModified.
//!
//! Little-endian. flags bit 0: nowait. Of a GrantModified, dirty says which pieces of the page
//! differ from home.

use crate::GAddr;
use crate::coherence::machine::{Message, Request, RequestKind};
use crate::coherence::word::ComputeId;
use selkie_wal::Dirty;

/// Bytes before the page.
pub(crate) const HEADER_BYTES: usize = 24;

const NOWAIT: u8 = 1;

const TAG_READ: u8 = 1;
const TAG_WRITE: u8 = 2;
const TAG_RELEASE: u8 = 3;
const TAG_GRANT_SHARED: u8 = 4;
const TAG_GRANT_MODIFIED: u8 = 5;
const TAG_RELEASED: u8 = 6;
const TAG_NOT_HELD: u8 = 7;
const TAG_BUSY: u8 = 8;
const TAG_CONFIRM: u8 = 9;

/// Message header, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Envelope {
    pub(crate) addr: GAddr,
    pub(crate) message: Message,
    /// What of a GrantModified's page differs from home.
    pub(crate) dirty: Dirty,
}

/// Whether the page travels with this message.
pub(crate) fn carries_page(message: Message) -> bool {
    matches!(message, Message::GrantShared | Message::GrantModified)
}

/// The header of a message.
pub(crate) fn encode(addr: GAddr, message: Message, dirty: Dirty) -> [u8; HEADER_BYTES] {
    let (mut flags, mut priority, mut hint) = (0, 0, 0);
    let tag = match message {
        Message::Request(request) => {
            priority = request.priority;
            if request.nowait {
                flags = NOWAIT;
            }
            match request.kind {
                RequestKind::Read => TAG_READ,
                RequestKind::Write => TAG_WRITE,
                RequestKind::Release => TAG_RELEASE,
            }
        }
        Message::GrantShared => TAG_GRANT_SHARED,
        Message::GrantModified => TAG_GRANT_MODIFIED,
        Message::Released => TAG_RELEASED,
        Message::NotHeld { holder } => {
            hint = holder.map_or(0, |h| h.index() as u8 + 1);
            TAG_NOT_HELD
        }
        Message::Busy => TAG_BUSY,
        Message::Confirm => TAG_CONFIRM,
    };
    let mut header = [0; HEADER_BYTES];
    let (first, words) = header.split_at_mut(8);
    first.copy_from_slice(&[tag, flags, priority, hint, 0, 0, 0, 0]);
    for (to, word) in words.as_chunks_mut().0.iter_mut().zip([addr.to_u64(), dirty.bits()]) {
        *to = word.to_le_bytes();
    }
    header
}

/// Header, and what follows it, of a received message: a page, before which `more` bytes go with
/// the right to write it. The error says what is damaged.
pub(crate) fn decode(
    bytes: &[u8],
    gcl_bytes: usize,
    more: usize,
) -> Result<(Envelope, &[u8], &[u8]), &'static str> {
    let Some((header, page)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err("shorter than a header");
    };
    let [first, addr, dirty] = header.as_chunks::<8>().0 else {
        return Err("shorter than a header");
    };
    let [tag, flags, priority, hint, zeros @ ..] = *first;
    if flags & !NOWAIT != 0 || zeros != [0; 4] {
        return Err("unknown flags");
    }
    let request = |kind| Message::Request(Request { kind, nowait: flags & NOWAIT != 0, priority });
    let message = match tag {
        TAG_READ => request(RequestKind::Read),
        TAG_WRITE => request(RequestKind::Write),
        TAG_RELEASE => request(RequestKind::Release),
        TAG_GRANT_SHARED => Message::GrantShared,
        TAG_GRANT_MODIFIED => Message::GrantModified,
        TAG_RELEASED => Message::Released,
        TAG_NOT_HELD if hint == 0 => Message::NotHeld { holder: None },
        TAG_NOT_HELD => match ComputeId::new(usize::from(hint) - 1) {
            Some(holder) => Message::NotHeld { holder: Some(holder) },
            None => return Err("names no possible compute node"),
        },
        TAG_BUSY => Message::Busy,
        TAG_CONFIRM => Message::Confirm,
        _ => return Err("unknown tag"),
    };
    let more = if message == Message::GrantModified { more } else { 0 };
    let whole = if carries_page(message) { gcl_bytes } else { 0 };
    let Some((more, page)) = page.split_at_checked(more).filter(|(_, page)| page.len() == whole)
    else {
        return Err("wrong length of the page");
    };
    let addr = GAddr::from_u64(u64::from_le_bytes(*addr));
    let dirty = Dirty::from_bits(u64::from_le_bytes(*dirty));
    Ok((Envelope { addr, message, dirty }, more, page))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages() -> Vec<Message> {
        let mut all = vec![
            Message::GrantShared,
            Message::GrantModified,
            Message::Released,
            Message::Busy,
            Message::Confirm,
            Message::NotHeld { holder: None },
        ];
        for node in (0..58).filter_map(ComputeId::new) {
            all.push(Message::NotHeld { holder: Some(node) });
        }
        for kind in [RequestKind::Read, RequestKind::Write, RequestKind::Release] {
            for nowait in [false, true] {
                for priority in [0, 7, 255] {
                    all.push(Message::Request(Request { kind, nowait, priority }));
                }
            }
        }
        all
    }

    #[test]
    fn every_message_survives_the_wire() {
        for message in messages() {
            let page = if carries_page(message) { vec![7; 8192] } else { vec![] };
            for dirty in [Dirty::NONE, Dirty::ALL, Dirty::from_bits(1 << 63 | 5)] {
                let addr = GAddr::from_u64(0xFEDC_BA98_7654_3210);
                let mut bytes = encode(addr, message, dirty).to_vec();
                bytes.extend(&page);
                let (envelope, _, got) = decode(&bytes, 8192, 0).unwrap();
                assert_eq!(envelope, Envelope { addr, message, dirty });
                assert_eq!(got, page);
            }
        }
    }

    #[test]
    fn damage_is_refused() {
        let whole = encode(GAddr::from_u64(512), Message::Busy, Dirty::NONE);
        assert!(decode(&whole[..23], 512, 0).is_err(), "short");
        assert!(
            decode(&[&whole[..], &[0; 512]].concat(), 512, 0).is_err(),
            "page on a message without"
        );
        let grant = encode(GAddr::from_u64(512), Message::GrantShared, Dirty::NONE);
        assert!(decode(&grant, 512, 0).is_err(), "no page on a grant");
        for (at, value) in [(0, 0), (0, 10), (1, 2), (3, 59), (4, 1), (7, 1), (1, 4)] {
            let mut bad =
                encode(GAddr::from_u64(512), Message::NotHeld { holder: None }, Dirty::NONE);
            bad[at] = value;
            assert!(decode(&bad, 512, 0).is_err(), "byte {at} = {value}");
        }
    }
}
