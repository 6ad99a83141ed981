//! A buffer of received bytes. Whole frames are taken off its front.
//!
//! It grows with the received bytes, not with the claimed length of a frame: at most to twice their
//! count, and never beyond the frame.

/// Capacity at first, and capacity that is kept after a longer frame.
const KEPT_BYTES: usize = 64 << 10;

pub(crate) struct FrameBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl FrameBuffer {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; KEPT_BYTES], start: 0, end: 0 }
    }

    /// The received bytes that were not taken.
    pub(crate) fn data(&self) -> &[u8] {
        #[expect(
            clippy::indexing_slicing,
            reason = "`received` and `take` check start <= end <= len"
        )]
        &self.bytes[self.start..self.end]
    }

    /// The space to receive into, never empty. The frame at the front has `frame_bytes` bytes.
    pub(crate) fn room(&mut self, frame_bytes: usize) -> &mut [u8] {
        let held = self.end - self.start;
        if held == 0 {
            (self.start, self.end) = (0, 0);
            if self.bytes.len() > KEPT_BYTES {
                self.bytes.truncate(KEPT_BYTES);
                self.bytes.shrink_to_fit();
            }
        }
        let wanted = frame_bytes.clamp(held + 1, 2 * held.max(KEPT_BYTES));
        if self.start + wanted > self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, held);
            if wanted > self.bytes.len() {
                self.bytes.resize(wanted, 0);
            }
        }
        #[expect(clippy::indexing_slicing, reason = "`received` checks end <= len")]
        &mut self.bytes[self.end..]
    }

    /// `count` bytes were received into the space that [`FrameBuffer::room`] returned.
    pub(crate) fn received(&mut self, count: usize) {
        self.end += count;
        assert!(self.end <= self.bytes.len(), "more was received than there was room for");
    }

    /// Forgets what was received.
    pub(crate) fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// Takes `count` bytes off the front.
    pub(crate) fn take(&mut self, count: usize) {
        self.start += count;
        assert!(self.start <= self.end, "more was taken than had come");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_alone_does_not_make_it_grow() {
        let mut buffer = FrameBuffer::new();
        let room = buffer.room(1 << 30).len();
        assert!(room <= 2 * KEPT_BYTES, "{room}");
        buffer.received(room);
        let more = buffer.room(1 << 30).len();
        assert!(more >= 1 && more <= room, "{more}");
    }

    #[test]
    fn long_frames_pass_and_their_room_is_given_back() {
        let mut buffer = FrameBuffer::new();
        let frame: Vec<u8> = (0..1_000_003_u32).map(|n| (n % 251) as u8).collect();
        for _ in 0..3 {
            let mut left = &frame[..];
            buffer.room(16)[0] = 7;
            buffer.received(1);
            while !left.is_empty() {
                let room = buffer.room(1 + frame.len());
                let count = room.len().min(left.len()).min(70_001);
                room[..count].copy_from_slice(&left[..count]);
                buffer.received(count);
                left = &left[count..];
            }
            assert_eq!(buffer.data()[0], 7);
            assert_eq!(buffer.data()[1..], frame);
            buffer.take(1 + frame.len());
            assert_eq!(buffer.room(16).len(), KEPT_BYTES);
        }
    }
}
