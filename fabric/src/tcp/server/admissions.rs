//! Which peers may execute verbs on the memory of a node: invitations, admitted sessions, and
//! revoked incarnations. Nothing here does input or output.
//!
//! The key of a connection is checked first. A peer without the right key learns nothing else, and
//! does not count as the guest whose name it gave.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::domain::Domain;
use crate::error::Refusal;
use crate::id::PeerId;
use crate::role::Role;
use crate::tcp::config::Admission;
use crate::tcp::security::key::{AccessKey, KeyHash};
use crate::tcp::wire::hello::Hello;

/// The terms on which a guest is admitted: the key it has to show, and its domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invitation {
    key: KeyHash,
    /// `None` allows everything.
    domain: Option<Arc<Domain>>,
}

impl Invitation {
    /// Admits the guest that shows `key`, without a domain.
    pub fn new(key: AccessKey) -> Self {
        Self::by_hash(key.hash())
    }

    pub(crate) fn by_hash(key: KeyHash) -> Self {
        Self { key, domain: None }
    }

    /// Bounds the guest to the domain.
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

/// Most sessions of peers, which have one connection each, that a node serves.
pub const MAX_CONNECTIONS: usize = 1024;
/// Connections that each peer may have in any case. It may have more as long as at least half of
/// all places are free.
const SHARE: usize = 16;

const _: () = assert!(64 * SHARE <= MAX_CONNECTIONS, "a pool has up to 58 compute nodes");

/// Incarnations that are never admitted again.
#[derive(Default)]
pub(crate) struct RevokedIncarnations {
    /// It grows by one entry with each revocation.
    incarnations: HashSet<(PeerId, u64)>,
    /// Peers that were revoked before they connected: the first incarnation that connects is the
    /// revoked one.
    unseen: HashSet<PeerId>,
}

impl RevokedIncarnations {
    /// Adds the known incarnations of `of`.
    pub(crate) fn add(&mut self, of: PeerId, known: &[u64]) {
        if known.is_empty() {
            self.unseen.insert(of);
        }
        self.incarnations.extend(known.iter().map(|incarnation| (of, *incarnation)));
    }

    /// The first incarnation of `of` that connects is not the revoked one any more.
    pub(crate) fn forget_unseen(&mut self, of: PeerId) {
        self.unseen.remove(&of);
    }

    /// Whether this incarnation of `of` is revoked.
    fn is_revoked(&mut self, of: PeerId, incarnation: u64) -> bool {
        if self.unseen.remove(&of) {
            self.incarnations.insert((of, incarnation));
        }
        self.incarnations.contains(&(of, incarnation))
    }
}

/// Names a session: its node, the incarnation of the node, and the number that it gave.
pub(crate) type SessionName = (PeerId, u64, u64);

/// What [`Admissions::admit`] gives for an admitted connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AdmittedConnection<S> {
    pub(crate) name: SessionName,
    pub(crate) session: Arc<S>,
    /// `None` allows everything.
    pub(crate) domain: Option<Arc<Domain>>,
}

/// The invitations and sessions of one node. `S` stands for a session.
pub(crate) struct Admissions<S> {
    admitted: HashMap<SessionName, Arc<S>>,
    /// The latest incarnation of each peer that connected.
    latest: HashMap<PeerId, u64>,
    revoked: RevokedIncarnations,
    admission: Admission,
    invitations: HashMap<PeerId, Invitation>,
    /// The keys of invitations that a revocation withdrew, the latest of each peer.
    withdrawn: HashMap<PeerId, KeyHash>,
    is_closed: bool,
}

impl<S> Admissions<S> {
    pub(crate) fn new(admission: Admission) -> Self {
        Self {
            admitted: HashMap::new(),
            latest: HashMap::new(),
            revoked: RevokedIncarnations::default(),
            admission,
            invitations: HashMap::new(),
            withdrawn: HashMap::new(),
            is_closed: false,
        }
    }

    /// Admits a connection, to its session or to the `new` one, unless its node has no invitation
    /// or is revoked, here or in `fenced`. `role` is that of its certificate: the memory of a
    /// memory node is open to readers within a domain only. `None` if this node is closed.
    pub(crate) fn admit(
        &mut self,
        hello: &Hello,
        role: Option<Role>,
        new: &Arc<S>,
        fenced: &mut RevokedIncarnations,
    ) -> Option<Result<AdmittedConnection<S>, Refusal>> {
        if self.is_closed {
            return None;
        }
        let (from, incarnation) = (hello.from, hello.incarnation);
        let domain = match self.admission {
            Admission::Anyone => None,
            Admission::Invited | Admission::ByCard => match self.invitations.get(&from) {
                Some(invitation) if hello.key.is_some_and(|key| key.hash() == invitation.key) => {
                    invitation.domain.clone()
                }
                _ => return Some(Err(Refusal::Key)),
            },
        };
        if role == Some(Role::Reader) && hello.to.is_memory() && domain.is_none() {
            return Some(Err(Refusal::Role));
        }
        // Ask both: each may be waiting for the first incarnation of this peer.
        let revoked = self.revoked.is_revoked(from, incarnation);
        let fenced = fenced.is_revoked(from, incarnation);
        // Also of a revoked incarnation: a second revocation then means this one, not its
        // successor.
        self.latest.insert(from, incarnation);
        if revoked || fenced {
            return Some(Err(Refusal::Revoked));
        }
        let name = (from, incarnation, hello.session.id);
        let own = self.admitted.keys().filter(|(admitted, ..)| *admitted == from).count();
        let limit = if own < SHARE { MAX_CONNECTIONS } else { MAX_CONNECTIONS / 2 };
        let is_full = self.admitted.len() >= limit;
        let session = match self.admitted.get(&name) {
            Some(session) => Arc::clone(session),
            None if hello.session.resumes => return Some(Err(Refusal::Session)),
            None if is_full => return Some(Err(Refusal::Full)),
            None => {
                self.admitted.insert(name, Arc::clone(new));
                Arc::clone(new)
            }
        };
        Some(Ok(AdmittedConnection { name, session, domain }))
    }

    /// The session is over.
    pub(crate) fn leave(&mut self, name: SessionName) {
        self.admitted.remove(&name);
    }

    /// All sessions.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = (SessionName, &Arc<S>)> {
        self.admitted.iter().map(|(name, session)| (*name, session))
    }

    /// The connected incarnations of `of`, and the latest one.
    pub(crate) fn known(&self, of: PeerId) -> Vec<u64> {
        let connected = self.admitted.keys().filter(|(from, ..)| *from == of);
        let mut known: Vec<_> = connected.map(|(_, incarnation, _)| *incarnation).collect();
        known.extend(self.latest.get(&of));
        known
    }

    /// Invites `guest` on these terms only. Returns its sessions on other terms, to be closed,
    /// and whether the key tells the guest from an incarnation that was revoked before it
    /// connected.
    pub(crate) fn invite(&mut self, guest: PeerId, invitation: Invitation) -> (Vec<Arc<S>>, bool) {
        if self.invitations.get(&guest) == Some(&invitation) {
            return (Vec::new(), false);
        }
        let key = invitation.key;
        self.invitations.insert(guest, invitation);
        if self.admission == Admission::Anyone {
            return (Vec::new(), false);
        }
        // A revoked incarnation has the other key. A peer without an invitation cannot connect.
        let is_successor = self.withdrawn.get(&guest) != Some(&key);
        if is_successor {
            self.withdrawn.remove(&guest);
            self.revoked.forget_unseen(guest);
        }
        (self.take_sessions_of(guest), is_successor)
    }

    /// Withdraws the invitation of `guest`. Returns its sessions, to be closed.
    pub(crate) fn uninvite(&mut self, guest: PeerId) -> Vec<Arc<S>> {
        self.invitations.remove(&guest);
        self.take_sessions_of(guest)
    }

    /// Withdraws the invitation of `of`, which is being revoked. Returns its sessions, to be
    /// closed.
    pub(crate) fn dismiss(&mut self, of: PeerId) -> Vec<Arc<S>> {
        if let Some(withdrawn) = self.invitations.remove(&of) {
            self.withdrawn.insert(of, withdrawn.key);
        }
        self.take_sessions_of(of)
    }

    fn take_sessions_of(&mut self, of: PeerId) -> Vec<Arc<S>> {
        let theirs = self.admitted.extract_if(|(from, ..), _| *from == of);
        theirs.map(|(_, session)| session).collect()
    }

    /// Revokes `of`: the incarnation `known`, and those known here. Withdraws its invitation.
    /// Returns its sessions, to be closed.
    pub(crate) fn revoke(&mut self, of: PeerId, known: Option<u64>) -> Vec<Arc<S>> {
        let mut revoked = self.known(of);
        revoked.extend(known);
        self.revoked.add(of, &revoked);
        self.dismiss(of)
    }

    /// Refuses all further connections. Returns the present sessions, to be closed.
    pub(crate) fn close(&mut self) -> Vec<Arc<S>> {
        self.is_closed = true;
        self.admitted.drain().map(|(_, session)| session).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::domain::Rights;
    use crate::tcp::wire::hello::SessionHello;

    const ONE: PeerId = PeerId::compute(1);
    const TWO: PeerId = PeerId::compute(2);

    type Admitted = Result<AdmittedConnection<u64>, Refusal>;

    /// The hello of a session of its own.
    fn hello(from: PeerId, incarnation: u64, key: Option<AccessKey>) -> Hello {
        static SESSIONS: AtomicU64 = AtomicU64::new(1);
        let id = SESSIONS.fetch_add(1, Ordering::Relaxed);
        let session = SessionHello { id, received: 0, attempt: 1, resumes: false };
        let (version, keepalive_ms, pool, to) = (1, 1, 0, PeerId::memory(0));
        Hello { version, keepalive_ms, pool, from, to, incarnation, key, session }
    }

    fn admit(admissions: &mut Admissions<u64>, from: PeerId, incarnation: u64) -> Option<Admitted> {
        let hello = hello(from, incarnation, None);
        admissions.admit(&hello, None, &Arc::new(incarnation), &mut RevokedIncarnations::default())
    }

    #[test]
    fn a_session_is_resumed_by_its_node_alone_and_while_it_is_known() {
        let mut admissions = Admissions::new(Admission::Anyone);
        let mut ask = |hello: &Hello, new: u64| {
            let mut fenced = RevokedIncarnations::default();
            admissions
                .admit(hello, None, &Arc::new(new), &mut fenced)
                .unwrap()
                .map(|of| *of.session)
        };
        let first = hello(ONE, 10, None);
        let resumed = SessionHello { attempt: 2, resumes: true, ..first.session };
        let again = Hello { session: resumed, ..first };
        assert_eq!(ask(&again, 1), Err(Refusal::Session), "not known yet");
        assert_eq!([ask(&first, 1), ask(&first, 2), ask(&again, 3)], [Ok(1); 3]);
        for other in [Hello { from: TWO, ..again }, Hello { incarnation: 11, ..again }] {
            assert_eq!(ask(&other, 4), Err(Refusal::Session), "the same number, of another node");
        }
        assert_eq!(admissions.revoke(ONE, None).len(), 1);
        let mut fenced = RevokedIncarnations::default();
        let refused = admissions.admit(&again, None, &Arc::new(5), &mut fenced);
        assert_eq!(refused, Some(Err(Refusal::Revoked)));
    }

    #[test]
    fn the_revoked_stay_out_and_others_stay_in() {
        let mut admissions = Admissions::new(Admission::Anyone);
        for (from, incarnation) in [(ONE, 10), (TWO, 20), (ONE, 10)] {
            assert!(admit(&mut admissions, from, incarnation).unwrap().is_ok());
        }
        let closed: Vec<u64> = admissions.revoke(ONE, None).iter().map(|c| **c).collect();
        assert_eq!(closed, [10, 10]);
        assert_eq!(admit(&mut admissions, ONE, 10), Some(Err(Refusal::Revoked)));
        assert!(admit(&mut admissions, ONE, 11).unwrap().is_ok());
        assert!(admit(&mut admissions, TWO, 20).unwrap().is_ok());
        assert_eq!(admissions.revoke(ONE, None).len(), 1, "the first two are closed already");
        assert_eq!(admit(&mut admissions, ONE, 11), Some(Err(Refusal::Revoked)));
    }

    #[test]
    fn who_has_left_or_never_came_is_revoked_as_well() {
        let mut admissions = Admissions::new(Admission::Anyone);
        let name = admit(&mut admissions, ONE, 10).unwrap().unwrap().name;
        admissions.leave(name);
        assert!(admissions.revoke(ONE, None).is_empty());
        assert_eq!(admit(&mut admissions, ONE, 10), Some(Err(Refusal::Revoked)));

        assert!(admissions.revoke(TWO, None).is_empty());
        assert_eq!(admit(&mut admissions, TWO, 20), Some(Err(Refusal::Revoked)));
        assert_eq!(admit(&mut admissions, TWO, 20), Some(Err(Refusal::Revoked)));
        assert!(admit(&mut admissions, TWO, 21).unwrap().is_ok());

        assert!(admissions.revoke(TWO, None).len() == 1, "the one that came as another");
        assert_eq!(admit(&mut admissions, TWO, 21), Some(Err(Refusal::Revoked)));

        let three = PeerId::compute(3);
        assert!(admissions.revoke(three, Some(30)).is_empty());
        assert_eq!(admit(&mut admissions, three, 30), Some(Err(Refusal::Revoked)));
        assert!(admit(&mut admissions, three, 31).unwrap().is_ok());
    }

    #[test]
    fn revoking_again_who_stayed_out_does_not_mean_the_next() {
        let mut admissions = Admissions::new(Admission::Anyone);
        for _ in 0..2 {
            assert!(admissions.revoke(ONE, None).is_empty());
        }
        assert_eq!(admit(&mut admissions, ONE, 10), Some(Err(Refusal::Revoked)));
        assert!(admissions.revoke(ONE, None).is_empty());
        assert!(admit(&mut admissions, ONE, 11).unwrap().is_ok());
    }

    #[test]
    fn the_fenced_stay_out_everywhere_and_the_first_is_the_one_meant_once() {
        let (mut here, mut there, mut fenced) = (
            Admissions::new(Admission::Anyone),
            Admissions::new(Admission::Anyone),
            RevokedIncarnations::default(),
        );
        fenced.add(ONE, &[]);
        fenced.add(TWO, &[20]);
        let mut admit = |admissions: &mut Admissions<u64>, from, incarnation| {
            let hello = hello(from, incarnation, None);
            admissions.admit(&hello, None, &Arc::new(incarnation), &mut fenced).unwrap().is_ok()
        };
        assert!(!admit(&mut here, ONE, 10) && !admit(&mut there, ONE, 10));
        assert!(admit(&mut there, ONE, 11) && admit(&mut here, ONE, 11));
        assert!(!admit(&mut here, TWO, 20) && admit(&mut here, TWO, 21));
        assert_eq!((here.known(TWO), there.known(TWO)), (vec![21, 21], vec![]));
    }

    #[test]
    fn a_full_and_a_closed_node_admit_no_peer() {
        let mut admissions = Admissions::new(Admission::Anyone);
        let mut names = Vec::new();
        for _ in 0..MAX_CONNECTIONS / 2 {
            names.push(admit(&mut admissions, ONE, 10).unwrap().unwrap().name);
        }
        assert_eq!(admit(&mut admissions, ONE, 10), Some(Err(Refusal::Full)), "half is for others");
        let others = (2..).map(PeerId::compute).take(MAX_CONNECTIONS / 2 / SHARE);
        for other in others {
            for _ in 0..SHARE {
                assert!(admit(&mut admissions, other, 10).unwrap().is_ok());
            }
            assert_eq!(admit(&mut admissions, other, 10), Some(Err(Refusal::Full)), "its share");
        }
        assert_eq!(admit(&mut admissions, PeerId::compute(99), 20), Some(Err(Refusal::Full)));
        admissions.leave(names[5]);
        assert!(admit(&mut admissions, PeerId::compute(99), 20).unwrap().is_ok());
        assert_eq!(admissions.close().len(), MAX_CONNECTIONS);
        assert_eq!(admit(&mut admissions, TWO, 20), None);
    }

    fn show(admissions: &mut Admissions<u64>, from: PeerId, key: Option<AccessKey>) -> Admitted {
        let hello = hello(from, 10, key);
        admissions.admit(&hello, None, &Arc::new(10), &mut RevokedIncarnations::default()).unwrap()
    }

    #[test]
    fn a_reader_reaches_memory_within_a_domain_only() {
        let key = AccessKey::random().unwrap();
        let domain = Domain::new([(0..8, Rights::READ)]).unwrap();
        let (memory, node) = (PeerId::memory(0), PeerId::compute(9));
        let bounded = Invitation::new(key).within(domain);
        for (admission, invitation, role, to, expected) in [
            (Admission::ByCard, key.into(), Role::Reader, memory, Err(Refusal::Role)),
            (Admission::ByCard, key.into(), Role::Reader, node, Ok(())),
            (Admission::ByCard, key.into(), Role::Compute, memory, Ok(())),
            (Admission::ByCard, bounded.clone(), Role::Reader, memory, Ok(())),
            (Admission::Anyone, bounded, Role::Reader, memory, Err(Refusal::Role)),
        ] {
            let mut admissions = Admissions::new(admission);
            admissions.invite(ONE, invitation);
            let hello = Hello { to, ..hello(ONE, 10, Some(key)) };
            let mut fenced = RevokedIncarnations::default();
            let admitted = admissions.admit(&hello, Some(role), &Arc::new(1), &mut fenced);
            assert_eq!(admitted.unwrap().map(drop), expected, "{role} at {to}");
        }
    }

    #[test]
    fn guests_show_the_key_they_were_given() {
        let [one, two, other] = [(); 3].map(|()| AccessKey::random().unwrap());
        let mut admissions = Admissions::new(Admission::Invited);
        assert_eq!(show(&mut admissions, ONE, None), Err(Refusal::Key));
        admissions.invite(ONE, one.into());
        admissions.invite(TWO, two.into());
        for (from, key) in [(ONE, None), (ONE, Some(two)), (ONE, Some(other)), (TWO, Some(one))] {
            assert_eq!(show(&mut admissions, from, key), Err(Refusal::Key));
        }
        assert!(show(&mut admissions, ONE, Some(one)).is_ok());
        assert!(show(&mut admissions, TWO, Some(two)).is_ok());
        assert!(admissions.invite(ONE, one.into()).0.is_empty(), "the same terms as before");
        assert_eq!(admissions.invite(ONE, other.into()).0.len(), 1);
        assert_eq!(show(&mut admissions, ONE, Some(one)), Err(Refusal::Key));
        assert!(show(&mut admissions, ONE, Some(other)).is_ok());
        let domain = Domain::new([(0..8, Rights::READ)]).unwrap();
        let within = Invitation::new(other).within(domain.clone());
        assert_eq!(
            admissions.invite(ONE, within.clone()).0.len(),
            1,
            "other rights are other terms"
        );
        assert!(admissions.invite(ONE, within).0.is_empty());
        let admitted = show(&mut admissions, ONE, Some(other)).unwrap();
        assert_eq!(admitted.domain.as_deref(), Some(&domain));
        assert_eq!(admissions.uninvite(TWO).len(), 1);
        assert_eq!(show(&mut admissions, TWO, Some(two)), Err(Refusal::Key));
        admissions.invite(TWO, two.into());
        assert!(show(&mut admissions, TWO, Some(two)).is_ok(), "no process said it was dead");
    }

    #[test]
    fn who_does_not_show_the_key_is_not_taken_for_who_was_revoked() {
        let [old, new] = [(); 2].map(|()| AccessKey::random().unwrap());
        let mut admissions = Admissions::new(Admission::Invited);
        admissions.invite(ONE, old.into());
        admissions.revoke(ONE, None);
        assert_eq!(show(&mut admissions, ONE, Some(old)), Err(Refusal::Key));
        // A process that does not know of it yet invites it as it was.
        assert!(!admissions.invite(ONE, old.into()).1);
        assert_eq!(show(&mut admissions, ONE, Some(new)), Err(Refusal::Key));
        assert_eq!(show(&mut admissions, ONE, Some(old)), Err(Refusal::Revoked));
        assert!(admissions.known(ONE).contains(&10));

        admissions.invite(TWO, old.into());
        admissions.revoke(TWO, None);
        assert!(admissions.invite(TWO, new.into()).1, "with another key it is another");
        assert!(show(&mut admissions, TWO, Some(new)).is_ok());
    }
}
