//! Who may execute verbs on a node's memory: connections that were admitted, and incarnations that never
//! will be again. No input or output happens here.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::wire::Hello;
use crate::error::Refusal;
use crate::id::PeerId;

/// Most connections a node serves.
pub const MAX_CONNECTIONS: usize = 1024;

/// The connections of one node; `C` is what stands for one.
pub(super) struct Guests<C> {
    admitted: HashMap<u64, (PeerId, u64, Arc<C>)>,
    next_token: u64,
    /// The latest incarnation of each peer that was admitted.
    latest: HashMap<PeerId, u64>,
    /// Grows by a word with each revocation.
    revoked: HashSet<(PeerId, u64)>,
    /// Revoked before they were ever seen: the first incarnation to come is the one that was meant.
    revoked_unseen: HashSet<PeerId>,
    is_closed: bool,
}

impl<C> Guests<C> {
    pub(super) fn new() -> Self {
        Self {
            admitted: HashMap::new(),
            next_token: 0,
            latest: HashMap::new(),
            revoked: HashSet::new(),
            revoked_unseen: HashSet::new(),
            is_closed: false,
        }
    }

    /// Admits a connection, under the number returned; `None` if the node takes no more at all.
    pub(super) fn admit(
        &mut self,
        hello: &Hello,
        connection: &Arc<C>,
    ) -> Option<Result<u64, Refusal>> {
        if self.is_closed {
            return None;
        }
        let name = (hello.from, hello.incarnation);
        if self.revoked_unseen.remove(&hello.from) {
            self.revoked.insert(name);
        }
        if self.revoked.contains(&name) {
            return Some(Err(Refusal::Revoked));
        }
        if self.admitted.len() >= MAX_CONNECTIONS {
            return Some(Err(Refusal::Full));
        }
        self.latest.insert(hello.from, hello.incarnation);
        let token = self.next_token;
        self.next_token += 1;
        self.admitted.insert(token, (hello.from, hello.incarnation, Arc::clone(connection)));
        Some(Ok(token))
    }

    pub(super) fn leave(&mut self, token: u64) {
        self.admitted.remove(&token);
    }

    /// Admits no more of `of` as it is, which is the incarnation `known`, or the latest. Returns its
    /// connections, to be closed.
    pub(super) fn revoke(&mut self, of: PeerId, known: Option<u64>) -> Vec<Arc<C>> {
        let theirs = |(from, ..): &&(PeerId, u64, Arc<C>)| *from == of;
        let before = self.revoked.len();
        let connected =
            self.admitted.values().filter(theirs).map(|(_, incarnation, _)| *incarnation);
        let meant = connected.chain(known).chain(self.latest.get(&of).copied());
        let meant: Vec<_> = meant.map(|incarnation| (of, incarnation)).collect();
        if meant.is_empty() && before == self.revoked.len() {
            self.revoked_unseen.insert(of);
        }
        self.revoked.extend(meant);
        self.admitted
            .values()
            .filter(theirs)
            .map(|(.., connection)| Arc::clone(connection))
            .collect()
    }

    /// Admits no more at all. Returns the connections, to be closed.
    pub(super) fn close(&mut self) -> Vec<Arc<C>> {
        self.is_closed = true;
        self.admitted.drain().map(|(_, (.., connection))| connection).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: PeerId = PeerId::compute(1);
    const TWO: PeerId = PeerId::compute(2);

    fn admit(
        guests: &mut Guests<u64>,
        from: PeerId,
        incarnation: u64,
    ) -> Option<Result<u64, Refusal>> {
        let to = PeerId::memory(0);
        let hello = Hello { version: 1, keepalive_ms: 1, pool: 0, from, to, incarnation };
        guests.admit(&hello, &Arc::new(incarnation))
    }

    #[test]
    fn the_revoked_stay_out_and_others_stay_in() {
        let mut guests = Guests::new();
        for (from, incarnation) in [(ONE, 10), (TWO, 20), (ONE, 10)] {
            assert!(admit(&mut guests, from, incarnation).unwrap().is_ok());
        }
        let closed: Vec<u64> = guests.revoke(ONE, None).iter().map(|c| **c).collect();
        assert_eq!(closed, [10, 10]);
        assert_eq!(admit(&mut guests, ONE, 10), Some(Err(Refusal::Revoked)));
        assert!(admit(&mut guests, ONE, 11).unwrap().is_ok());
        assert!(admit(&mut guests, TWO, 20).unwrap().is_ok());
        assert_eq!(guests.revoke(ONE, None).len(), 3, "the first two have not left");
        assert_eq!(admit(&mut guests, ONE, 11), Some(Err(Refusal::Revoked)));
    }

    #[test]
    fn who_has_left_or_never_came_is_revoked_as_well() {
        let mut guests = Guests::new();
        let token = admit(&mut guests, ONE, 10).unwrap().unwrap();
        guests.leave(token);
        assert!(guests.revoke(ONE, None).is_empty());
        assert_eq!(admit(&mut guests, ONE, 10), Some(Err(Refusal::Revoked)));

        assert!(guests.revoke(TWO, None).is_empty());
        assert_eq!(admit(&mut guests, TWO, 20), Some(Err(Refusal::Revoked)));
        assert_eq!(admit(&mut guests, TWO, 20), Some(Err(Refusal::Revoked)));
        assert!(admit(&mut guests, TWO, 21).unwrap().is_ok());

        let three = PeerId::compute(3);
        assert!(guests.revoke(three, Some(30)).is_empty());
        assert_eq!(admit(&mut guests, three, 30), Some(Err(Refusal::Revoked)));
        assert!(admit(&mut guests, three, 31).unwrap().is_ok());
    }

    #[test]
    fn a_full_and_a_closed_node_admit_nobody() {
        let mut guests = Guests::new();
        for _ in 0..MAX_CONNECTIONS {
            assert!(admit(&mut guests, ONE, 10).unwrap().is_ok());
        }
        assert_eq!(admit(&mut guests, TWO, 20), Some(Err(Refusal::Full)));
        guests.leave(5);
        assert!(admit(&mut guests, TWO, 20).unwrap().is_ok());
        assert_eq!(guests.close().len(), MAX_CONNECTIONS);
        assert_eq!(admit(&mut guests, TWO, 20), None);
    }
}
