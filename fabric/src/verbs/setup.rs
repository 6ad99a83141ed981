//! The messages that set a queue pair up, as bytes. They are the payloads of writes and reads of
//! the region [`SETUP_REGION`](crate::tcp::SETUP_REGION) over the session of the queue pair.
//!
//! All numbers are little-endian.
//!
//! ```text
//! request                                  answer
//! 0   kind    u64  CONNECT or LOOK_UP      0   status  u64  0, or a reason
//! 8   body                                 8   count   u64  windows of the region; 0 for CONNECT
//!                                          16  body
//! body of CONNECT, in both                 body of LOOK_UP
//! 0   lid, mtu        u32, u32             request: key u32, first u32
//! 8   queue pair, first packet  u32, u32   answer:  windows from `first` on, at most MAX_WINDOWS
//! 16  gid             16 bytes             window
//! 32  reads, layer    u32, u32             0   offset, bytes     u64, u64  in the region
//!                                          16  address           u64
//!                                          24  key, rights       u32, u32
//!                                          answer, behind the windows: bytes of the region u64
//! ```

use super::ffi::Route;
use crate::domain::Rights;
use crate::id::RegionKey;

const CONNECT: u64 = 0x5345_4c4b_4945_0001;
const LOOK_UP: u64 = 0x5345_4c4b_4945_0002;
const WINDOW_BYTES: usize = 32;
const OFFER_BYTES: usize = 40;
const HEADER_BYTES: usize = 16;

/// Most windows in one answer.
pub(super) const MAX_WINDOWS: usize = 256;
/// Length of every answer.
pub(super) const ANSWER_BYTES: usize = HEADER_BYTES + MAX_WINDOWS * WINDOW_BYTES + 8;

/// Why a set-up is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[repr(u64)]
pub(super) enum SetupFault {
    #[error("it does not understand the request: is its program of the same version?")]
    Request = 1,
    #[error("its port is of another kind: one is of InfiniBand, the other of Ethernet")]
    Layer = 2,
    #[error("its device has no room for another queue pair: see `max_qp` in `ibv_devinfo -v`")]
    QueuePair = 3,
    #[error(
        "its device could not register the memory: raise the limit of locked memory of its process \
         (`ulimit -l unlimited`, or LimitMEMLOCK=infinity)"
    )]
    Memory = 4,
    #[error(
        "its queue pair could not be connected: do the addresses of both ports reach each other?"
    )]
    Connection = 5,
    #[error("no such region")]
    UnknownRegion = 6,
    #[error("the rights of this node have more ranges than a card takes")]
    TooManyWindows = 7,
}

impl SetupFault {
    const ALL: [Self; 7] = [
        Self::Request,
        Self::Layer,
        Self::QueuePair,
        Self::Memory,
        Self::Connection,
        Self::UnknownRegion,
        Self::TooManyWindows,
    ];
}

/// What one side says of its queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) route: Route,
    pub(super) mtu: u32,
    /// Reads and atomics that it takes at a time.
    pub(super) reads: u32,
    pub(super) is_ethernet: bool,
}

/// A part of a region, as the peer reaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    /// First byte in the region.
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// Where the peer has it.
    pub(super) address: u64,
    pub(super) key: u32,
    pub(super) rights: Rights,
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    Connect(Offer),
    LookUp { region: RegionKey, first: u32 },
}

/// A page of the windows of a region.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Windows {
    /// How many the region has.
    pub(super) count: u64,
    pub(super) region_bytes: u64,
    pub(super) page: Vec<Window>,
}

/// Numbers from the front of bytes.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

impl Offer {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(u32::from(self.route.lid).to_le_bytes());
        out.extend(self.mtu.to_le_bytes());
        out.extend(self.route.queue_pair.to_le_bytes());
        out.extend(self.route.first_packet.to_le_bytes());
        out.extend(self.route.gid);
        out.extend(self.reads.to_le_bytes());
        out.extend(u32::from(self.is_ethernet).to_le_bytes());
    }

    fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        let (lid, mtu) = (u16::try_from(fields.u32()?).ok()?, fields.u32()?);
        let (queue_pair, first_packet) = (fields.u32()?, fields.u32()?);
        let route = Route { lid, gid: fields.take()?, queue_pair, first_packet };
        let (reads, layer) = (fields.u32()?, fields.u32()?);
        let is_known = (1..=5).contains(&mtu) && layer <= 1 && first_packet < 1 << 24;
        is_known.then_some(Self { route, mtu, reads, is_ethernet: layer == 1 })
    }
}

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Connect(offer) => {
                out.extend(CONNECT.to_le_bytes());
                offer.encode(&mut out);
            }
            Self::LookUp { region, first } => {
                out.extend(LOOK_UP.to_le_bytes());
                out.extend(region.to_raw().to_le_bytes());
                out.extend(first.to_le_bytes());
            }
        }
        out
    }

    /// The request of these bytes; `None` if they are none.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let request = match fields.u64()? {
            CONNECT => Self::Connect(Offer::decode(&mut fields)?),
            LOOK_UP => {
                Self::LookUp { region: RegionKey::from_raw(fields.u32()?), first: fields.u32()? }
            }
            _ => return None,
        };
        fields.0.is_empty().then_some(request)
    }
}

/// The answer that refuses.
pub(super) fn encode_fault(fault: SetupFault) -> Vec<u8> {
    [(fault as u64).to_le_bytes(), [0; 8]].concat()
}

/// The answer to CONNECT.
pub(super) fn encode_offer(offer: &Offer) -> Vec<u8> {
    let mut out = vec![0; HEADER_BYTES];
    offer.encode(&mut out);
    out
}

/// The answer to LOOK_UP, with as many windows as it takes.
pub(super) fn encode_windows(count: u64, region_bytes: u64, page: &[Window]) -> Vec<u8> {
    let mut out = vec![0; 8];
    out.extend(count.to_le_bytes());
    for window in page.iter().take(MAX_WINDOWS) {
        let Rights { read, write, atomic } = window.rights;
        let rights = u32::from(read) | u32::from(write) << 1 | u32::from(atomic) << 2;
        for field in [window.offset, window.bytes, window.address] {
            out.extend(field.to_le_bytes());
        }
        out.extend(window.key.to_le_bytes());
        out.extend(rights.to_le_bytes());
    }
    out.extend(region_bytes.to_le_bytes());
    out
}

fn body(bytes: &[u8]) -> Result<(u64, Fields<'_>), SetupFault> {
    let mut fields = Fields(bytes);
    let (status, count) = (fields.u64(), fields.u64());
    let status = status.ok_or(SetupFault::Request)?;
    if status != 0 {
        let known = SetupFault::ALL.into_iter().find(|fault| *fault as u64 == status);
        return Err(known.unwrap_or(SetupFault::Request));
    }
    Ok((count.ok_or(SetupFault::Request)?, fields))
}

/// The answer to CONNECT from the front of these bytes.
pub(super) fn decode_offer(bytes: &[u8]) -> Result<Offer, SetupFault> {
    let (_, mut fields) = body(bytes)?;
    Offer::decode(&mut fields).ok_or(SetupFault::Request)
}

/// The answer to LOOK_UP of the windows from `first` on, from the front of these bytes.
pub(super) fn decode_windows(bytes: &[u8], first: u64) -> Result<Windows, SetupFault> {
    let (count, mut fields) = body(bytes)?;
    let here = count.saturating_sub(first).min(MAX_WINDOWS as u64);
    let mut window = || {
        let (offset, bytes, address) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (key, bits) = (fields.u32()?, fields.u32()?);
        let rights = Rights { read: bits & 1 != 0, write: bits & 2 != 0, atomic: bits & 4 != 0 };
        offset.checked_add(bytes)?;
        Some(Window { offset, bytes, address, key, rights })
    };
    let page: Option<Vec<_>> = (0..here).map(|_| window()).collect();
    let page = page.ok_or(SetupFault::Request)?;
    let region_bytes = fields.u64().ok_or(SetupFault::Request)?;
    Ok(Windows { count, region_bytes, page })
}

const _: () = assert!(OFFER_BYTES + HEADER_BYTES <= ANSWER_BYTES);
const _: () = assert!(ANSWER_BYTES.is_multiple_of(8), "payloads are words");

#[cfg(test)]
mod tests {
    use super::*;

    const OFFER: Offer = Offer {
        route: Route { lid: 7, gid: [3; 16], queue_pair: 17, first_packet: 0x00ab_cdef },
        mtu: 5,
        reads: 16,
        is_ethernet: true,
    };

    #[test]
    fn requests_and_answers_arrive_and_others_are_refused() {
        let look_up = Request::LookUp { region: RegionKey::from_raw(9), first: 256 };
        for request in [Request::Connect(OFFER), look_up] {
            let bytes = request.encode();
            assert!(bytes.len().is_multiple_of(8));
            assert_eq!(Request::decode(&bytes), Some(request));
            for length in 0..bytes.len() {
                assert_eq!(Request::decode(&bytes[..length]), None, "{length} bytes");
            }
            assert_eq!(Request::decode(&[&bytes[..], &[0]].concat()), None);
        }
        for bad in [
            Offer { mtu: 6, ..OFFER },
            Offer { mtu: 0, ..OFFER },
            Offer { route: Route { first_packet: 1 << 24, ..OFFER.route }, ..OFFER },
        ] {
            assert_eq!(Request::decode(&Request::Connect(bad).encode()), None);
        }
        assert_eq!(decode_offer(&encode_offer(&OFFER)), Ok(OFFER));
        for fault in SetupFault::ALL {
            assert_eq!(decode_offer(&encode_fault(fault)), Err(fault));
            assert_eq!(decode_windows(&encode_fault(fault), 0), Err(fault));
        }
        assert_eq!(decode_offer(&[0; 20]), Err(SetupFault::Request));
        assert_eq!(decode_offer(&77_u64.to_le_bytes()), Err(SetupFault::Request));
    }

    #[test]
    fn windows_come_in_pages() {
        let window = |index: u64| Window {
            offset: 64 * index,
            bytes: 64,
            address: 1 << 40 | index,
            key: index as u32,
            rights: Rights {
                read: true,
                write: index.is_multiple_of(2),
                atomic: index.is_multiple_of(3),
            },
        };
        let all: Vec<_> = (0..300).map(window).collect();
        let first = encode_windows(300, 1 << 20, &all);
        assert_eq!(first.len(), ANSWER_BYTES);
        let first = decode_windows(&first, 0).unwrap();
        assert_eq!((first.count, first.region_bytes, first.page.len()), (300, 1 << 20, 256));
        let mut rest = encode_windows(300, 1 << 20, &all[256..]);
        rest.resize(ANSWER_BYTES, 0);
        let rest = decode_windows(&rest, 256).unwrap();
        assert_eq!([first.page, rest.page].concat(), all);
        let short = encode_windows(2, 64, &all[..1]);
        assert_eq!(decode_windows(&short, 0), Err(SetupFault::Request));
        let mut past = encode_windows(1, 64, &[Window { bytes: u64::MAX, ..all[1] }]);
        past.resize(ANSWER_BYTES, 0);
        assert_eq!(decode_windows(&past, 0), Err(SetupFault::Request), "it ends nowhere");
    }
}
