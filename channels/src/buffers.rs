//! A small pool of send buffers, so that sending allocates nothing once it is warm.
//!
//! Buffers come in the few lengths that a ring writes: one word, and multiples of the record
//! alignment. What is kept is bounded in bytes.

use crate::record::{MAX_RECORD_BYTES, RECORD_ALIGN};
use selkie_fabric::{Buf, Chain, Verb, WORD_BYTES};

/// Bytes of idle buffers kept for one receiver; more are freed.
const IDLE_BYTES: usize = 128 << 10;
const _: () = assert!(IDLE_BYTES >= 2 * MAX_RECORD_BYTES);

/// Idle buffers by length: shelf 0 for words, shelf i for i * [`RECORD_ALIGN`] bytes.
pub(crate) struct BufferPool {
    shelves: Vec<Vec<Buf>>,
    idle_bytes: usize,
}

impl BufferPool {
    pub(crate) fn new() -> Self {
        let shelves = (0..=MAX_RECORD_BYTES / RECORD_ALIGN).map(|_| Vec::new()).collect();
        Self { shelves, idle_bytes: 0 }
    }

    /// A buffer of `bytes` bytes with unspecified content.
    pub(crate) fn take(&mut self, bytes: usize) -> Buf {
        match self.shelf(bytes).and_then(Vec::pop) {
            Some(buf) => {
                self.idle_bytes -= bytes;
                buf
            }
            None => Buf::zeroed(bytes),
        }
    }

    /// A buffer with one word, little-endian.
    pub(crate) fn take_word(&mut self, word: u64) -> Buf {
        let mut buf = self.take(WORD_BYTES);
        buf.copy_from_slice(&word.to_le_bytes());
        buf
    }

    /// A buffer of `bytes` bytes: the parts one behind the other, then zeros.
    pub(crate) fn take_filled(&mut self, bytes: usize, parts: [&[u8]; 2]) -> Buf {
        let mut buf = self.take(bytes);
        let mut rest = &mut *buf;
        for part in parts {
            let (to, behind) = rest.split_at_mut(part.len());
            to.copy_from_slice(part);
            rest = behind;
        }
        rest.fill(0);
        buf
    }

    /// Keeps the buffers of a chain that is done.
    pub(crate) fn recycle(&mut self, chain: Chain) {
        for buf in chain.verbs.into_iter().filter_map(Verb::into_buf) {
            let bytes = buf.len();
            if self.idle_bytes + bytes <= IDLE_BYTES
                && let Some(shelf) = self.shelf(bytes)
            {
                shelf.push(buf);
                self.idle_bytes += bytes;
            }
        }
    }

    fn shelf(&mut self, bytes: usize) -> Option<&mut Vec<Buf>> {
        match bytes {
            WORD_BYTES => self.shelves.first_mut(),
            _ if bytes.is_multiple_of(RECORD_ALIGN) => self.shelves.get_mut(bytes / RECORD_ALIGN),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use selkie_fabric::{RegionKey, RemoteAddr};

    fn chain(bufs: Vec<Buf>) -> Chain {
        let mut chain = Chain::new();
        for from in bufs {
            chain.push(Verb::write(RemoteAddr::new(RegionKey::from_raw(0), 0), from));
        }
        chain
    }

    #[test]
    fn a_recycled_buffer_is_handed_out_again_for_its_length_only() {
        let mut pool = BufferPool::new();
        for bytes in [8, 64, MAX_RECORD_BYTES] {
            let buf = pool.take(bytes);
            assert_eq!(buf.len(), bytes);
            let memory = buf.as_ptr();
            pool.recycle(chain(vec![buf]));
            let other = pool.take(if bytes == 64 { 128 } else { 64 });
            assert_ne!(other.as_ptr(), memory);
            assert_eq!(pool.take(bytes).as_ptr(), memory);
        }
    }

    #[test]
    fn filled_buffers_end_with_zeros_whatever_they_held() {
        let mut pool = BufferPool::new();
        let mut buf = pool.take(64);
        buf.fill(0xFF);
        pool.recycle(chain(vec![buf]));
        let buf = pool.take_filled(64, [b"abc", b"defgh"]);
        assert_eq!(&buf[..8], b"abcdefgh");
        assert_eq!(buf[8..], [0; 56]);
    }

    #[test]
    fn idle_bytes_are_bounded() {
        let mut pool = BufferPool::new();
        for _ in 0..3 {
            let bufs = (0..100).map(|_| Buf::zeroed(4096)).collect();
            pool.recycle(chain(bufs));
            let kept: usize = pool.shelves.iter().flatten().map(|buf| buf.len()).sum();
            assert_eq!(kept, IDLE_BYTES);
            assert_eq!(kept, pool.idle_bytes);
            drop(pool.take(4096));
            pool.recycle(chain(vec![Buf::zeroed(4096)]));
        }
    }
}
