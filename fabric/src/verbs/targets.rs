//! The side of a node that serves guests: a queue pair for each session, and for each guest a
//! protection domain with registrations of its own.
//!
//! Keys of registrations work only on queue pairs of their protection domain. So a guest can use no
//! key of another guest, and one that is fenced can use none: its sessions are closed, and with
//! each its queue pair is destroyed before the fence returns. The registrations go with the last of
//! them. A successor gets other keys.
//!
//! A guest within a [`Domain`](crate::Domain) has a registration for each range of it, with the
//! rights of the range; its card then enforces what `tcp` checks in software. Memory is registered
//! for a guest when it first asks for the region.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::ffi::{Capacity, DeviceMemory, ProtectionDomain, RcQueuePair, Registration};
use super::handshake::{agree, offer};
use super::hub::{Hub, RECEIVES};
use super::setup::{self, MAX_WINDOWS, Offer, Request, SetupFault, Window};
use crate::domain::{Domain, Rights};
use crate::id::{PeerId, RegionKey, RemoteAddr};
use crate::mem::node::{MemRegion, Node};
use crate::tcp::server::setup::{Guest, SetupService, SetupSession};

/// Most windows of one region for one guest.
const MOST_WINDOWS: usize = 4096;

/// Guests by name and incarnation: all that have the same domain share what they have.
type Guests = HashMap<(PeerId, u64), Weak<GuestMemory>>;

/// What a node serves.
pub(super) struct Targets {
    hub: Arc<Hub>,
    guests: Mutex<Guests>,
}

impl Targets {
    pub(super) fn new(hub: Arc<Hub>) -> Self {
        Self { hub, guests: Mutex::default() }
    }

    /// The memory of a guest, which its other sessions may have already.
    fn memory_of(&self, guest: &Guest) -> Result<Arc<GuestMemory>, SetupFault> {
        let mut guests = self.guests.lock();
        guests.retain(|_, memory| memory.strong_count() > 0);
        let name = (guest.peer, guest.incarnation);
        let known = guests.get(&name).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| known.bounds == guest.domain) {
            return Ok(known);
        }
        let domain =
            ProtectionDomain::new(self.hub.context()).map_err(|_| SetupFault::QueuePair)?;
        let bounds = guest.domain.clone();
        let memory = Arc::new(GuestMemory { domain, bounds, regions: Mutex::default() });
        guests.insert(name, Arc::downgrade(&memory));
        Ok(memory)
    }
}

impl SetupService for Targets {
    fn open(&self, guest: Guest) -> Box<dyn SetupSession> {
        let (hub, memory) = (Arc::clone(&self.hub), self.memory_of(&guest));
        let guest = guest.peer;
        Box::new(TargetSession { hub, guest, memory, target: None, answer: Vec::new() })
    }
}

/// The windows of a region, with what makes them so.
type Registered = Arc<[(Registration, Window)]>;

/// What one guest may access.
struct GuestMemory {
    domain: Arc<ProtectionDomain>,
    /// `None` allows everything.
    bounds: Option<Arc<Domain>>,
    regions: Mutex<HashMap<RegionKey, Registered>>,
}

impl GuestMemory {
    /// The windows of a region, registered if they are not yet.
    fn windows(&self, region: &Arc<MemRegion>) -> Result<Registered, SetupFault> {
        let key = region.key();
        let mut regions = self.regions.lock();
        if let Some(known) = regions.get(&key) {
            return Ok(Arc::clone(known));
        }
        let ranges = ranges_within(self.bounds.as_deref(), region.bytes());
        if ranges.len() > MOST_WINDOWS {
            return Err(SetupFault::TooManyWindows);
        }
        let windows = ranges.into_iter().map(|(bytes, rights)| {
            let memory = Arc::clone(region) as Arc<dyn DeviceMemory>;
            let (offset, length) = (bytes.start as u64, bytes.len() as u64);
            let registration =
                Registration::new(&self.domain, memory, bytes, rights).map_err(|error| {
                    tracing::warn!(%error, length, "memory cannot be registered for a guest");
                    SetupFault::Memory
                })?;
            let (address, key) = (registration.address(), registration.remote_key());
            Ok((registration, Window { offset, bytes: length, address, key, rights }))
        });
        let windows: Arc<[_]> = windows.collect::<Result<Vec<_>, _>>()?.into();
        regions.insert(key, Arc::clone(&windows));
        Ok(windows)
    }
}

/// The parts of a region of so many bytes that a guest within a domain may access.
fn ranges_within(domain: Option<&Domain>, region_bytes: usize) -> Vec<(Range<usize>, Rights)> {
    let Some(domain) = domain else { return vec![(0..region_bytes, Rights::ALL)] };
    let clip = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(region_bytes);
    let clipped =
        domain.ranges().iter().map(|(range, rights)| (clip(range.start)..clip(range.end), *rights));
    clipped.filter(|(range, _)| !range.is_empty()).collect()
}

/// The queue pair of one session.
struct TargetSession {
    hub: Arc<Hub>,
    guest: PeerId,
    memory: Result<Arc<GuestMemory>, SetupFault>,
    target: Option<(u32, Arc<RcQueuePair>)>,
    answer: Vec<u8>,
}

impl TargetSession {
    fn connect(&mut self, peer: &Offer) -> Result<Vec<u8>, SetupFault> {
        let (hub, memory) = (&self.hub, self.memory.as_ref().map_err(|fault| *fault)?);
        if self.target.is_some() {
            return Err(SetupFault::Request);
        }
        if peer.is_ethernet != hub.device.info.is_ethernet {
            return Err(SetupFault::Layer);
        }
        let full = |error: std::io::Error| {
            tracing::warn!(guest = %self.guest, %error, "no queue pair for a guest");
            SetupFault::QueuePair
        };
        let capacity = Capacity { sends: 1, receives: RECEIVES, inline: 0 };
        let queues = (&hub.sends, &hub.receives);
        let target = RcQueuePair::new(&memory.domain, queues, capacity, None).map_err(full)?;
        let target = Arc::new(target);
        let id = hub.new_id();
        target.initialise(hub.device.info.port, true).map_err(full)?;
        for _ in 0..RECEIVES {
            target.post_receive(u64::from(id)).map_err(full)?;
        }
        let own = offer(hub, &target);
        let link = agree(hub, &own, peer);
        target.connect(own.route.first_packet, &peer.route, &link).map_err(|error| {
            tracing::warn!(guest = %self.guest, %error, "a guest is not connected");
            SetupFault::Connection
        })?;
        if !hub.enter_target(id, &target) {
            return Err(SetupFault::QueuePair);
        }
        self.target = Some((id, target));
        Ok(setup::encode_offer(&own))
    }

    fn look_up(&self, node: &Node, key: RegionKey, first: u32) -> Result<Vec<u8>, SetupFault> {
        let memory = self.memory.as_ref().map_err(|fault| *fault)?;
        let known = node.region(RemoteAddr::new(key, 0)).is_ok();
        let region = node.regions().find(|region| known && region.key() == key);
        let region = region.ok_or(SetupFault::UnknownRegion)?;
        let windows = memory.windows(region)?;
        let page = windows.iter().skip(first as usize).take(MAX_WINDOWS);
        let page: Vec<_> = page.map(|(_, window)| *window).collect();
        Ok(setup::encode_windows(windows.len() as u64, region.bytes() as u64, &page))
    }
}

impl SetupSession for TargetSession {
    fn ask(&mut self, node: &Node, request: &[u8]) {
        self.hub.counting.served.fetch_add(1, Ordering::Relaxed);
        let answer = match Request::decode(request) {
            _ if node.is_dead() => Err(SetupFault::Request),
            Some(Request::Connect(peer)) => self.connect(&peer),
            Some(Request::LookUp { region, first }) => self.look_up(node, region, first),
            None => Err(SetupFault::Request),
        };
        self.answer = answer.unwrap_or_else(setup::encode_fault);
    }

    fn answer(&mut self, into: &mut [u8]) {
        for (to, from) in into.iter_mut().zip(&self.answer) {
            *to = *from;
        }
    }
}

impl Drop for TargetSession {
    fn drop(&mut self) {
        if let Some((id, target)) = self.target.take() {
            self.hub.leave_target(id);
            target.destroy();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_gets_the_parts_of_its_domain_that_are_in_the_region() {
        assert_eq!(ranges_within(None, 4096), [(0..4096, Rights::ALL)]);
        let readers = Rights { atomic: true, ..Rights::READ };
        let domain = Domain::new([(0..u64::MAX, Rights::READ), (64..128, Rights::ATOMIC)]);
        let expected = [(0..64, Rights::READ), (64..128, readers), (128..4096, Rights::READ)];
        assert_eq!(ranges_within(Some(&domain.unwrap()), 4096), expected);
        let beyond = Domain::new([(8192..9000, Rights::READ)]).unwrap();
        assert_eq!(ranges_within(Some(&beyond), 4096), []);
    }
}
