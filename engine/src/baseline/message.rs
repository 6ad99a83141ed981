//! Messages between compute nodes and directories.
//!
//! ```text
//! byte 0     1       2..8   8..16   16..
//!      +-----+-------+------+-------+---------------------+
//!      | tag | flags | zero | gaddr | page, where it says |
//!      +-----+-------+------+-------+---------------------+
//! ```
//! flags: 1 exclusive (or keep), 2 nowait, 4 the page follows. Tags are none of SELCC's.

use crate::GAddr;

/// Bytes before the page.
pub(crate) const HEADER_BYTES: usize = 16;

const EXCLUSIVE: u8 = 1;
const NOWAIT: u8 = 2;
const PAGE: u8 = 4;

/// From a node to the directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum FromNode {
    /// The node wants the page.
    Ask {
        /// For writing.
        exclusive: bool,
        /// The caller takes Busy rather than a wait for latches of other nodes.
        nowait: bool,
    },
    /// Answer to a Recall that keeps: the owner is a sharer now; the page follows.
    Kept,
    /// Answer to a Recall: the node has no copy any more. An owner's page follows.
    Gave {
        /// The page follows.
        page: bool,
    },
    /// Answer to a Recall: the node has no copy; it evicted it before.
    NotHeld,
    /// Answer to a Recall that does not wait: the copy is latched.
    Busy,
    /// The node has no copy any more. An owner's page follows.
    Evict {
        /// The page follows.
        page: bool,
    },
}

/// From the directory to a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ToNode {
    /// The node may use the page.
    Grant {
        /// For writing.
        exclusive: bool,
        /// The page follows; a sharer that upgrades has it already.
        page: bool,
    },
    /// The request is answered with Busy.
    Refused,
    /// The node must give its copy up.
    Recall {
        /// It may keep it to read.
        keep: bool,
        /// It answers Busy rather than wait for a latch.
        nowait: bool,
    },
}

impl FromNode {
    /// Whether the page follows.
    pub(crate) const fn carries_page(self) -> bool {
        matches!(
            self,
            FromNode::Kept | FromNode::Gave { page: true } | FromNode::Evict { page: true }
        )
    }

    const fn parts(self) -> (u8, u8) {
        let page = if self.carries_page() { PAGE } else { 0 };
        match self {
            FromNode::Ask { exclusive, nowait } => {
                (32, (exclusive as u8 * EXCLUSIVE) | (nowait as u8 * NOWAIT))
            }
            FromNode::Kept => (33, page),
            FromNode::Gave { .. } => (34, page),
            FromNode::NotHeld => (35, 0),
            FromNode::Busy => (36, 0),
            FromNode::Evict { .. } => (37, page),
        }
    }
}

impl ToNode {
    /// Whether the page follows.
    pub(crate) const fn carries_page(self) -> bool {
        matches!(self, ToNode::Grant { page: true, .. })
    }

    const fn parts(self) -> (u8, u8) {
        match self {
            ToNode::Grant { exclusive, page } => {
                (48, (exclusive as u8 * EXCLUSIVE) | (page as u8 * PAGE))
            }
            ToNode::Refused => (49, 0),
            ToNode::Recall { keep, nowait } => {
                (50, (keep as u8 * EXCLUSIVE) | (nowait as u8 * NOWAIT))
            }
        }
    }
}

fn header(addr: GAddr, (tag, flags): (u8, u8)) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let [a, b, c, d, e, f, g, h] = addr.to_u64().to_le_bytes();
    header[8..].copy_from_slice(&[a, b, c, d, e, f, g, h]);
    header[0] = tag;
    header[1] = flags;
    header
}

/// Header of a message to a directory.
pub(crate) fn encode_from(addr: GAddr, message: FromNode) -> [u8; HEADER_BYTES] {
    header(addr, message.parts())
}

/// Header of a message to a node.
pub(crate) fn encode_to(addr: GAddr, message: ToNode) -> [u8; HEADER_BYTES] {
    header(addr, message.parts())
}

/// Tag, flags, address and page of a message; the error says what is damaged.
fn parse(bytes: &[u8], gcl_bytes: usize) -> Result<(u8, u8, GAddr, &[u8]), &'static str> {
    let (header, page) =
        bytes.split_first_chunk::<HEADER_BYTES>().ok_or("shorter than a header")?;
    let [tag, flags, _, _, _, _, _, _, a, b, c, d, e, f, g, h] = *header;
    if flags & !(EXCLUSIVE | NOWAIT | PAGE) != 0 {
        return Err("unknown flags");
    }
    if page.len() != if flags & PAGE != 0 { gcl_bytes } else { 0 } {
        return Err("wrong length of the page");
    }
    Ok((tag, flags, GAddr::from_u64(u64::from_le_bytes([a, b, c, d, e, f, g, h])), page))
}

/// A message to a directory, and its page.
pub(crate) fn decode_from(
    bytes: &[u8],
    gcl_bytes: usize,
) -> Result<(GAddr, FromNode, &[u8]), &'static str> {
    let (tag, flags, addr, page) = parse(bytes, gcl_bytes)?;
    let has_page = flags & PAGE != 0;
    let message = match tag {
        32 => FromNode::Ask { exclusive: flags & EXCLUSIVE != 0, nowait: flags & NOWAIT != 0 },
        33 => FromNode::Kept,
        34 => FromNode::Gave { page: has_page },
        35 => FromNode::NotHeld,
        36 => FromNode::Busy,
        37 => FromNode::Evict { page: has_page },
        _ => return Err("unknown tag"),
    };
    if message.carries_page() != has_page {
        Err("page where none belongs")
    } else {
        Ok((addr, message, page))
    }
}

/// A message to a node, and its page.
pub(crate) fn decode_to(
    bytes: &[u8],
    gcl_bytes: usize,
) -> Result<(GAddr, ToNode, &[u8]), &'static str> {
    let (tag, flags, addr, page) = parse(bytes, gcl_bytes)?;
    let has_page = flags & PAGE != 0;
    let message = match tag {
        48 => ToNode::Grant { exclusive: flags & EXCLUSIVE != 0, page: has_page },
        49 => ToNode::Refused,
        50 => ToNode::Recall { keep: flags & EXCLUSIVE != 0, nowait: flags & NOWAIT != 0 },
        _ => return Err("unknown tag"),
    };
    if message.carries_page() != has_page {
        Err("page where none belongs")
    } else {
        Ok((addr, message, page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_they_were() {
        let addr = GAddr::from_u64(0x1234_5600);
        let bools = [false, true];
        let pairs = bools.into_iter().flat_map(|a| bools.into_iter().map(move |b| (a, b)));
        let mut from = vec![FromNode::Kept, FromNode::NotHeld, FromNode::Busy];
        let mut to = vec![ToNode::Refused];
        for (a, b) in pairs {
            from.extend([FromNode::Ask { exclusive: a, nowait: b }, FromNode::Gave { page: a }]);
            from.push(FromNode::Evict { page: b });
            to.extend([
                ToNode::Grant { exclusive: a, page: b },
                ToNode::Recall { keep: a, nowait: b },
            ]);
        }
        let with_page = |header: [u8; HEADER_BYTES], page: bool| {
            [&header[..], &[7; 512][..if page { 512 } else { 0 }]].concat()
        };
        for message in from {
            let bytes = with_page(encode_from(addr, message), message.carries_page());
            assert_eq!(decode_from(&bytes, 512), Ok((addr, message, &bytes[16..])));
            assert!(decode_from(&[&bytes[..], &[0]].concat(), 512).is_err(), "a byte too many");
        }
        for message in to {
            let bytes = with_page(encode_to(addr, message), message.carries_page());
            assert_eq!(decode_to(&bytes, 512), Ok((addr, message, &bytes[16..])));
            assert!(decode_from(&bytes, 512).is_err(), "not for a directory");
        }
        assert_eq!(decode_to(&[0; 15], 512), Err("shorter than a header"));
    }
}
