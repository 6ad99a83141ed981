//! The responses of a session that its node may not have received: they are kept until the node
//! says that it has them, to be sent again over another connection.

use crate::tcp::wire::error::WireError;
use crate::tcp::wire::frames::{self, Request};
use crate::tcp::wire::limits::WINDOW_BYTES;

/// Capacity that is kept once all responses have been received.
const KEPT_BYTES: usize = 512 << 10;

/// See the module.
#[derive(Default)]
pub(super) struct Answers {
    /// Whole responses, the oldest one first. Those before `start` were received.
    bytes: Vec<u8>,
    start: usize,
    /// Where the responses begin that were not sent over the present connection.
    unsent: usize,
    /// The number of the first response at `start`.
    first: u64,
    /// How many chains were executed: the number of the next response.
    next: u64,
}

impl Answers {
    pub(super) fn executed(&self) -> u64 {
        self.next
    }

    /// Prepares for the response to `request`, and forgets those that the node has received.
    pub(super) fn begin(&mut self, request: &Request<'_>) -> Result<&mut Vec<u8>, WireError> {
        let (found, expected) = (request.sequence, self.next);
        if found != expected {
            return Err(WireError::Sequence { found, expected });
        }
        let received = found - u64::from(request.unanswered);
        if !self.forget_before(received) {
            let (unanswered, sequence) = (request.unanswered, request.sequence);
            return Err(WireError::Window { unanswered, sequence });
        }
        let kept = self.bytes.len() - self.start;
        if kept >= WINDOW_BYTES {
            return Err(WireError::WindowBytes { kept: kept as u64 });
        }
        self.next += 1;
        Ok(&mut self.bytes)
    }

    /// Forgets the responses before this one. `false`, and nothing is done, if some of those from
    /// it on are gone, or it was not made yet.
    pub(super) fn forget_before(&mut self, received: u64) -> bool {
        if !(self.first..=self.next).contains(&received) {
            return false;
        }
        while self.first < received {
            self.start += self.bytes.get(self.start..).map_or(0, frames::frame_bytes);
            self.first += 1;
        }
        self.unsent = self.unsent.max(self.start);
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT_BYTES);
            (self.start, self.unsent) = (0, 0);
        } else if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            (self.start, self.unsent) = (0, self.unsent - self.start);
        }
        true
    }

    /// All that is kept is to be sent again.
    pub(super) fn send_again(&mut self) {
        self.unsent = self.start;
    }

    pub(super) fn unsent(&self) -> &[u8] {
        self.bytes.get(self.unsent..).unwrap_or_default()
    }

    pub(super) fn all_sent(&mut self) {
        self.unsent = self.bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::Buf;
    use crate::id::{RegionKey, RemoteAddr};
    use crate::tcp::wire::frames::{Decoded, ResponseWriter};
    use crate::verb::{Chain, Verb};

    /// Executes a chain that is answered with `bytes` bytes.
    fn execute(
        answers: &mut Answers,
        sequence: u64,
        unanswered: u16,
        bytes: usize,
    ) -> Result<(), WireError> {
        let verb = Verb::read(RemoteAddr::new(RegionKey::from_raw(1), 0), Buf::zeroed(bytes));
        let mut frame = Vec::new();
        frames::encode_request(&mut frame, sequence, unanswered, &Chain::new());
        let Ok(Decoded::Whole(_, request)) = frames::decode_request(&frame) else { panic!() };
        let out = answers.begin(&request)?;
        let mut response = ResponseWriter::begin(out, sequence);
        response.result(&verb);
        response.end(None);
        Ok(())
    }

    fn unsent(answers: &Answers) -> Vec<u64> {
        let mut rest = answers.unsent();
        let mut found = Vec::new();
        while let Ok(Decoded::Whole(bytes, response)) = frames::decode_response(rest, 1 << 24) {
            found.push(response.sequence);
            rest = &rest[bytes..];
        }
        assert!(rest.is_empty());
        found
    }

    #[test]
    fn responses_are_kept_until_they_are_received() {
        let mut answers = Answers::default();
        for sequence in 0..10 {
            execute(&mut answers, sequence, sequence as u16, 8 * sequence as usize).unwrap();
        }
        assert_eq!(unsent(&answers), Vec::from_iter(0..10));
        answers.all_sent();
        execute(&mut answers, 10, 6, 8).unwrap();
        assert_eq!(unsent(&answers), [10]);
        answers.send_again();
        assert_eq!(unsent(&answers), [4, 5, 6, 7, 8, 9, 10]);
        assert!(
            answers.forget_before(9) && !answers.forget_before(8) && !answers.forget_before(12)
        );
        assert_eq!(unsent(&answers), [9, 10]);
        answers.all_sent();
        execute(&mut answers, 11, 0, 8).unwrap();
        assert_eq!((unsent(&answers), answers.start, answers.first), (vec![11], 0, 11));
        assert!(answers.forget_before(12));
        assert_eq!((answers.bytes.len(), answers.executed()), (0, 12));
    }

    #[test]
    fn what_a_node_has_not_received_is_bounded_and_no_number_is_made_up() {
        let mut answers = Answers::default();
        let expected = WireError::Sequence { found: 1, expected: 0 };
        assert_eq!(execute(&mut answers, 1, 0, 8), Err(expected));
        // With its header 8 bytes less than the window.
        execute(&mut answers, 0, 0, WINDOW_BYTES - 24).unwrap();
        execute(&mut answers, 1, 0, WINDOW_BYTES - 24).unwrap();
        let none_before = WireError::Window { unanswered: 2, sequence: 2 };
        assert_eq!(execute(&mut answers, 2, 2, 8), Err(none_before), "the first was received");
        execute(&mut answers, 2, 1, 8).unwrap();
        assert!(matches!(execute(&mut answers, 3, 2, 8), Err(WireError::WindowBytes { .. })));
        execute(&mut answers, 3, 1, 8).unwrap();
    }
}
