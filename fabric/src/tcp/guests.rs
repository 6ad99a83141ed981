//! Who may execute verbs on a node's memory: connections that were admitted, and incarnations that never
//! will be again. No input or output happens here.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::wire::Hello;
use crate::error::Refusal;
use crate::id::PeerId;

/// Most connections a node serves.
pub const MAX_CONNECTIONS: usize = 1024;

/// Incarnations that are never admitted again.
#[derive(Default)]
pub(super) struct Revoked {
    /// Grows by a word with each revocation.
    incarnations: HashSet<(PeerId, u64)>,
    /// Revoked before they were ever seen: the first incarnation to come is the one that was meant.
    unseen: HashSet<PeerId>,
}

impl Revoked {
    /// Adds the incarnations of `of`, all that are known.
    pub(super) fn add(&mut self, of: PeerId, known: &[u64]) {
        if known.is_empty() {
            self.unseen.insert(of);
        }
        self.incarnations.extend(known.iter().map(|incarnation| (of, *incarnation)));
    }

    /// Whether who comes as `of` is to stay out.
    fn keeps_out(&mut self, of: PeerId, incarnation: u64) -> bool {
        if self.unseen.remove(&of) {
            self.incarnations.insert((of, incarnation));
        }
        self.incarnations.contains(&(of, incarnation))
    }
}

/// The connections of one node; `C` is what stands for one.
pub(super) struct Guests<C> {
    admitted: HashMap<u64, (PeerId, u64, Arc<C>)>,
    next_token: u64,
    /// The latest incarnation of each peer that came.
    latest: HashMap<PeerId, u64>,
    revoked: Revoked,
    is_closed: bool,
}

impl<C> Guests<C> {
    pub(super) fn new() -> Self {
        Self {
            admitted: HashMap::new(),
            next_token: 0,
            latest: HashMap::new(),
            revoked: Revoked::default(),
            is_closed: false,
        }
    }

    /// Admits a connection, under the number returned, unless its node is among the revoked, here or in
    /// `fenced`; `None` if the node takes no more at all.
    pub(super) fn admit(
        &mut self,
        hello: &Hello,
        connection: &Arc<C>,
        fenced: &mut Revoked,
    ) -> Option<Result<u64, Refusal>> {
        if self.is_closed {
            return None;
        }
        let (from, incarnation) = (hello.from, hello.incarnation);
        let (revoked, fenced) = (
            self.revoked.keeps_out(from, incarnation), // Both, as both may have waited for it.
            fenced.keeps_out(from, incarnation),
        );
        // Of those that stay out as well: who revokes them again does not mean the next.
        self.latest.insert(from, incarnation);
        if revoked || fenced {
            return Some(Err(Refusal::Revoked));
        }
        if self.admitted.len() >= MAX_CONNECTIONS {
            return Some(Err(Refusal::Full));
        }
        let token = self.next_token;
        self.next_token += 1;
        self.admitted.insert(token, (from, incarnation, Arc::clone(connection)));
        Some(Ok(token))
    }

    pub(super) fn leave(&mut self, token: u64) {
        self.admitted.remove(&token);
    }

    /// The incarnations of `of` that are connected, and the latest that came.
    pub(super) fn known(&self, of: PeerId) -> Vec<u64> {
        let connected = self.admitted.values().filter(|(from, ..)| *from == of);
        let mut known: Vec<_> = connected.map(|(_, incarnation, _)| *incarnation).collect();
        known.extend(self.latest.get(&of));
        known
    }

    /// The connections of `of`, to be closed.
    pub(super) fn of(&self, of: PeerId) -> Vec<Arc<C>> {
        let theirs = self.admitted.values().filter(|(from, ..)| *from == of);
        theirs.map(|(.., connection)| Arc::clone(connection)).collect()
    }

    /// Admits no more of `of` as it is, which is the incarnation `known`, or what is known here. Returns its
    /// connections, to be closed.
    pub(super) fn revoke(&mut self, of: PeerId, known: Option<u64>) -> Vec<Arc<C>> {
        let mut meant = self.known(of);
        meant.extend(known);
        self.revoked.add(of, &meant);
        self.of(of)
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
        guests.admit(&hello, &Arc::new(incarnation), &mut Revoked::default())
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

        assert!(guests.revoke(TWO, None).len() == 1, "the one that came as another");
        assert_eq!(admit(&mut guests, TWO, 21), Some(Err(Refusal::Revoked)));

        let three = PeerId::compute(3);
        assert!(guests.revoke(three, Some(30)).is_empty());
        assert_eq!(admit(&mut guests, three, 30), Some(Err(Refusal::Revoked)));
        assert!(admit(&mut guests, three, 31).unwrap().is_ok());
    }

    #[test]
    fn revoking_again_who_stayed_out_does_not_mean_the_next() {
        let mut guests = Guests::new();
        for _ in 0..2 {
            assert!(guests.revoke(ONE, None).is_empty());
        }
        assert_eq!(admit(&mut guests, ONE, 10), Some(Err(Refusal::Revoked)));
        assert!(guests.revoke(ONE, None).is_empty());
        assert!(admit(&mut guests, ONE, 11).unwrap().is_ok());
    }

    #[test]
    fn the_fenced_stay_out_everywhere_and_the_first_is_the_one_meant_once() {
        let (mut here, mut there, mut fenced) = (Guests::new(), Guests::new(), Revoked::default());
        fenced.add(ONE, &[]);
        fenced.add(TWO, &[20]);
        let mut admit = |guests: &mut Guests<u64>, from, incarnation| {
            let to = PeerId::memory(0);
            let hello = Hello { version: 1, keepalive_ms: 1, pool: 0, from, to, incarnation };
            guests.admit(&hello, &Arc::new(incarnation), &mut fenced).unwrap().is_ok()
        };
        assert!(!admit(&mut here, ONE, 10) && !admit(&mut there, ONE, 10));
        assert!(admit(&mut there, ONE, 11) && admit(&mut here, ONE, 11));
        assert!(!admit(&mut here, TWO, 20) && admit(&mut here, TWO, 21));
        assert_eq!((here.known(TWO), there.known(TWO)), (vec![21, 21], vec![]));
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
