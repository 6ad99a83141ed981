//! Who may execute verbs on a node's memory: guests that are invited, connections that were
//! admitted, and incarnations that never will be again. No input or output happens here.
//!
//! A guest's key is looked at first: who has none, or another, learns nothing, and is not taken for
//! the guest in anything that follows.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::config::Admission;
use super::hello::Hello;
use super::key::AccessKey;
use crate::access::Domain;
use crate::error::Refusal;
use crate::id::PeerId;

/// On what terms a guest is admitted: the key it has to show, and what it may do then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invitation {
    key: AccessKey,
    /// `None` is everything.
    domain: Option<Arc<Domain>>,
}

impl Invitation {
    /// Lets the guest that shows `key` do everything.
    pub fn new(key: AccessKey) -> Self {
        Self { key, domain: None }
    }

    /// Lets it do no more than the domain allows.
    #[must_use]
    pub fn within(self, domain: impl Into<Arc<Domain>>) -> Self {
        Self { domain: Some(domain.into()), ..self }
    }
}

impl From<AccessKey> for Invitation {
    fn from(key: AccessKey) -> Self {
        Self::new(key)
    }
}

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

    /// The first to come as `of` is not meant any more.
    pub(super) fn forget_unseen(&mut self, of: PeerId) {
        self.unseen.remove(&of);
    }

    /// Whether who comes as `of` is to stay out.
    fn keeps_out(&mut self, of: PeerId, incarnation: u64) -> bool {
        if self.unseen.remove(&of) {
            self.incarnations.insert((of, incarnation));
        }
        self.incarnations.contains(&(of, incarnation))
    }
}

/// A connection that was admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Admitted {
    pub(super) token: u64,
    /// `None` is everything.
    pub(super) domain: Option<Arc<Domain>>,
}

/// The connections of one node; `C` is what stands for one.
pub(super) struct Guests<C> {
    admitted: HashMap<u64, (PeerId, u64, Arc<C>)>,
    next_token: u64,
    /// The latest incarnation of each peer that came.
    latest: HashMap<PeerId, u64>,
    revoked: Revoked,
    admission: Admission,
    invitations: HashMap<PeerId, Invitation>,
    /// Keys of the latest invitations that a revocation withdrew.
    withdrawn: HashMap<PeerId, AccessKey>,
    is_closed: bool,
}

impl<C> Guests<C> {
    pub(super) fn new(admission: Admission) -> Self {
        Self {
            admitted: HashMap::new(),
            next_token: 0,
            latest: HashMap::new(),
            revoked: Revoked::default(),
            admission,
            invitations: HashMap::new(),
            withdrawn: HashMap::new(),
            is_closed: false,
        }
    }

    /// Admits a connection unless its node has no invitation, or is among the
    /// revoked, here or in `fenced`; `None` if the node takes no more at all.
    pub(super) fn admit(
        &mut self,
        hello: &Hello,
        connection: &Arc<C>,
        fenced: &mut Revoked,
    ) -> Option<Result<Admitted, Refusal>> {
        if self.is_closed {
            return None;
        }
        let (from, incarnation) = (hello.from, hello.incarnation);
        let domain = match self.admission {
            Admission::Anyone => None,
            Admission::Invited | Admission::Met => match self.invitations.get(&from) {
                Some(invitation) if hello.key == Some(invitation.key) => invitation.domain.clone(),
                _ => return Some(Err(Refusal::Key)),
            },
        };
        // Both, as both may have waited for it.
        let revoked = self.revoked.keeps_out(from, incarnation);
        let fenced = fenced.keeps_out(from, incarnation);
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
        Some(Ok(Admitted { token, domain }))
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

    /// Invites `guest` on these terms and no others. Returns its connections that came on others,
    /// to be closed, and whether the invitation tells the guest from one that was revoked before it
    /// was seen.
    pub(super) fn invite(&mut self, guest: PeerId, invitation: Invitation) -> (Vec<Arc<C>>, bool) {
        if self.invitations.get(&guest) == Some(&invitation) {
            return (Vec::new(), false);
        }
        let key = invitation.key;
        self.invitations.insert(guest, invitation);
        if self.admission == Admission::Anyone {
            return (Vec::new(), false);
        }
        // Who was revoked has the other key; who was never invited here cannot come.
        let is_another = self.withdrawn.get(&guest) != Some(&key);
        if is_another {
            self.withdrawn.remove(&guest);
            self.revoked.forget_unseen(guest);
        }
        (self.of(guest), is_another)
    }

    /// Withdraws the invitation of `guest`. Returns its connections, to be closed.
    pub(super) fn uninvite(&mut self, guest: PeerId) -> Vec<Arc<C>> {
        self.invitations.remove(&guest);
        self.of(guest)
    }

    /// Withdraws the invitation of `of`, which is being revoked. Returns its connections, to be
    /// closed.
    pub(super) fn dismiss(&mut self, of: PeerId) -> Vec<Arc<C>> {
        if let Some(withdrawn) = self.invitations.remove(&of) {
            self.withdrawn.insert(of, withdrawn.key);
        }
        self.of(of)
    }

    fn of(&self, of: PeerId) -> Vec<Arc<C>> {
        let theirs = self.admitted.values().filter(|(from, ..)| *from == of);
        theirs.map(|(.., connection)| Arc::clone(connection)).collect()
    }

    /// Admits no more of `of` as it is, which is the incarnation `known`, or what is known here,
    /// and withdraws its invitation. Returns its connections, to be closed.
    pub(super) fn revoke(&mut self, of: PeerId, known: Option<u64>) -> Vec<Arc<C>> {
        let mut meant = self.known(of);
        meant.extend(known);
        self.revoked.add(of, &meant);
        self.dismiss(of)
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
    use crate::access::Rights;

    const ONE: PeerId = PeerId::compute(1);
    const TWO: PeerId = PeerId::compute(2);

    fn admit(
        guests: &mut Guests<u64>,
        from: PeerId,
        incarnation: u64,
    ) -> Option<Result<Admitted, Refusal>> {
        let to = PeerId::memory(0);
        let hello =
            Hello { version: 1, keepalive_ms: 1, pool: 0, from, to, incarnation, key: None };
        guests.admit(&hello, &Arc::new(incarnation), &mut Revoked::default())
    }

    #[test]
    fn the_revoked_stay_out_and_others_stay_in() {
        let mut guests = Guests::new(Admission::Anyone);
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
        let mut guests = Guests::new(Admission::Anyone);
        let token = admit(&mut guests, ONE, 10).unwrap().unwrap().token;
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
        let mut guests = Guests::new(Admission::Anyone);
        for _ in 0..2 {
            assert!(guests.revoke(ONE, None).is_empty());
        }
        assert_eq!(admit(&mut guests, ONE, 10), Some(Err(Refusal::Revoked)));
        assert!(guests.revoke(ONE, None).is_empty());
        assert!(admit(&mut guests, ONE, 11).unwrap().is_ok());
    }

    #[test]
    fn the_fenced_stay_out_everywhere_and_the_first_is_the_one_meant_once() {
        let (mut here, mut there, mut fenced) =
            (Guests::new(Admission::Anyone), Guests::new(Admission::Anyone), Revoked::default());
        fenced.add(ONE, &[]);
        fenced.add(TWO, &[20]);
        let mut admit = |guests: &mut Guests<u64>, from, incarnation| {
            let to = PeerId::memory(0);
            let hello =
                Hello { version: 1, keepalive_ms: 1, pool: 0, from, to, incarnation, key: None };
            guests.admit(&hello, &Arc::new(incarnation), &mut fenced).unwrap().is_ok()
        };
        assert!(!admit(&mut here, ONE, 10) && !admit(&mut there, ONE, 10));
        assert!(admit(&mut there, ONE, 11) && admit(&mut here, ONE, 11));
        assert!(!admit(&mut here, TWO, 20) && admit(&mut here, TWO, 21));
        assert_eq!((here.known(TWO), there.known(TWO)), (vec![21, 21], vec![]));
    }

    #[test]
    fn a_full_and_a_closed_node_admit_nobody() {
        let mut guests = Guests::new(Admission::Anyone);
        for _ in 0..MAX_CONNECTIONS {
            assert!(admit(&mut guests, ONE, 10).unwrap().is_ok());
        }
        assert_eq!(admit(&mut guests, TWO, 20), Some(Err(Refusal::Full)));
        guests.leave(5);
        assert!(admit(&mut guests, TWO, 20).unwrap().is_ok());
        assert_eq!(guests.close().len(), MAX_CONNECTIONS);
        assert_eq!(admit(&mut guests, TWO, 20), None);
    }

    fn show(
        guests: &mut Guests<u64>,
        from: PeerId,
        key: Option<AccessKey>,
    ) -> Result<Admitted, Refusal> {
        let to = PeerId::memory(0);
        let hello = Hello { version: 2, keepalive_ms: 1, pool: 0, from, to, incarnation: 10, key };
        guests.admit(&hello, &Arc::new(10), &mut Revoked::default()).unwrap()
    }

    #[test]
    fn guests_show_the_key_they_were_given() {
        let [one, two, other] = [(); 3].map(|()| AccessKey::random().unwrap());
        let mut guests = Guests::new(Admission::Invited);
        assert_eq!(show(&mut guests, ONE, None), Err(Refusal::Key));
        guests.invite(ONE, one.into());
        guests.invite(TWO, two.into());
        for (from, key) in [(ONE, None), (ONE, Some(two)), (ONE, Some(other)), (TWO, Some(one))] {
            assert_eq!(show(&mut guests, from, key), Err(Refusal::Key));
        }
        assert!(show(&mut guests, ONE, Some(one)).is_ok());
        assert!(show(&mut guests, TWO, Some(two)).is_ok());
        assert!(guests.invite(ONE, one.into()).0.is_empty(), "the same terms as before");
        assert_eq!(guests.invite(ONE, other.into()).0.len(), 1);
        assert_eq!(show(&mut guests, ONE, Some(one)), Err(Refusal::Key));
        let domain = Domain::new([(0..8, Rights::READ)]).unwrap();
        let within = Invitation::new(other).within(domain.clone());
        assert_eq!(guests.invite(ONE, within.clone()).0.len(), 1, "other rights are other terms");
        assert!(guests.invite(ONE, within).0.is_empty());
        let admitted = show(&mut guests, ONE, Some(other)).unwrap();
        assert_eq!(admitted.domain.as_deref(), Some(&domain));
        assert_eq!(guests.uninvite(TWO).len(), 1);
        assert_eq!(show(&mut guests, TWO, Some(two)), Err(Refusal::Key));
        guests.invite(TWO, two.into());
        assert!(show(&mut guests, TWO, Some(two)).is_ok(), "nobody said it was dead");
    }

    #[test]
    fn who_does_not_show_the_key_is_not_taken_for_who_was_revoked() {
        let [old, new] = [(); 2].map(|()| AccessKey::random().unwrap());
        let mut guests = Guests::new(Admission::Invited);
        guests.invite(ONE, old.into());
        guests.revoke(ONE, None);
        assert_eq!(show(&mut guests, ONE, Some(old)), Err(Refusal::Key));
        // Somebody who has not heard of it yet invites it as it was.
        assert!(!guests.invite(ONE, old.into()).1);
        assert_eq!(show(&mut guests, ONE, Some(new)), Err(Refusal::Key));
        assert_eq!(show(&mut guests, ONE, Some(old)), Err(Refusal::Revoked));
        assert!(guests.known(ONE).contains(&10));

        guests.invite(TWO, old.into());
        guests.revoke(TWO, None);
        assert!(guests.invite(TWO, new.into()).1, "with another key it is another");
        assert!(show(&mut guests, TWO, Some(new)).is_ok());
    }
}
