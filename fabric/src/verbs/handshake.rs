//! How a queue pair is set up, and how it learns where the regions of its peer are: requests over
//! its session. Only set-ups take processor time of the peer.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::connection::{Connection, STAGING_BYTES, State};
use super::ffi::{
    Capacity, DeviceMemory, LinkParameters, ProtectionDomain, RcQueuePair, Registration, Route,
};
use super::hub::Hub;
use super::remote::RemoteRegion;
use super::setup::{self, ANSWER_BYTES, Offer, Request, SetupFault};
use crate::api::QueuePair;
use crate::buf::Buf;
use crate::domain::Rights;
use crate::error::FabricError;
use crate::id::{PeerId, RegionKey, RemoteAddr};
use crate::mem::words::{PAGE_BYTES, Words};
use crate::tcp::client::queue_pair::TcpQueuePair;
use crate::tcp::server::setup::SETUP_REGION;
use crate::verb::Verb;

/// Bytes that a request carries itself, where the device takes so many: a latch word and a few
/// words more.
const INLINE_BYTES: u32 = 64;

/// What both sides take of what they offer.
pub(super) fn agree(hub: &Hub, own: &Offer, peer: &Offer) -> LinkParameters {
    let reads = |reads: u32| u8::try_from(reads).unwrap_or(u8::MAX).max(1);
    LinkParameters {
        port: hub.device.info.port,
        gid_index: hub.device.info.gid_index,
        mtu: own.mtu.min(peer.mtu),
        source_reads: hub.device.info.outstanding_reads.min(reads(peer.reads)),
        target_reads: hub.device.info.outstanding_reads,
        ack_timeout: ack_timeout(hub.times.dead_after),
    }
}

/// The wait for an acknowledgement, as its exponent over 4.096 us, with which all attempts together
/// last about half as long as silence takes to be death.
fn ack_timeout(dead_after: Duration) -> u8 {
    let attempts = 8;
    let all = |exponent: u8| Duration::from_nanos((attempts * 4096) << exponent);
    (10..=20).rev().find(|exponent| all(*exponent) <= dead_after / 2).unwrap_or(10)
}

/// What this side offers for a queue pair.
pub(super) fn offer(hub: &Hub, queue_pair: &RcQueuePair) -> Offer {
    let device = &hub.device;
    let first_packet = (hub.env.random_u64() & 0x00ff_ffff) as u32;
    Offer {
        route: Route {
            lid: device.lid,
            gid: device.gid,
            queue_pair: queue_pair.number(),
            first_packet,
        },
        mtu: device.mtu,
        reads: u32::from(device.info.outstanding_reads),
        is_ethernet: device.info.is_ethernet,
    }
}

impl Connection {
    /// A connection over `session`, whose set-up has begun.
    pub(super) fn begin(
        hub: &Arc<Hub>,
        peer: PeerId,
        session: TcpQueuePair,
    ) -> Result<Arc<Self>, FabricError> {
        let failed = |what: &str| {
            let (peer, what) = (hub.id(), what.to_owned());
            move |why: std::io::Error| FabricError::Network { peer, what: format!("{what}: {why}") }
        };
        let no_memory = FabricError::OutOfMemory { bytes: STAGING_BYTES as u64 };
        let staging = Words::zeroed(STAGING_BYTES / PAGE_BYTES).ok_or(no_memory)?;
        let staging: Arc<dyn DeviceMemory> = Arc::new(staging);
        let domain =
            ProtectionDomain::new(hub.context()).map_err(failed("no protection domain"))?;
        let staging = Registration::new(&domain, staging, 0..STAGING_BYTES, Rights::default())
            .map_err(failed(
                "the RDMA device could not register the memory of a queue pair; if the limit of \
                 locked memory is low, raise it (`ulimit -l unlimited`, or LimitMEMLOCK=infinity)",
            ))?;
        let capacity = Capacity { sends: hub.sends(), receives: 1, inline: INLINE_BYTES };
        let queues = (&hub.sends, &hub.receives);
        let no_queue_pair = "the RDMA device has no room for another queue pair (`max_qp` in \
                             `ibv_devinfo -v`)";
        let queue_pair = RcQueuePair::new(&domain, queues, capacity, Some(staging))
            .map_err(failed(no_queue_pair))?;
        queue_pair
            .initialise(hub.device.info.port, false)
            .map_err(failed("a queue pair cannot be prepared"))?;
        let id = hub.new_id();
        let state = Mutex::new(State::new(hub.sends()));
        let hub_of = Arc::clone(hub);
        let connection = Arc::new(Self { id, peer, hub: hub_of, session, queue_pair, state });
        if !hub.enter(id, &connection) {
            let most = hub.most_connections();
            let what = format!("it has {most} queue pairs, as many as a node may have");
            return Err(FabricError::Network { peer: hub.id(), what });
        }
        let watched = Arc::downgrade(&connection);
        connection.session.link().on_end(Box::new(move |error| {
            if let Some(connection) = Weak::upgrade(&watched) {
                connection.end(&error);
            }
        }));
        let guard = SetupGuard(Arc::clone(&connection), true);
        drop(hub.env.spawn("verbs-setup", async move {
            let done = guard.0.set_up().await;
            guard.finish(done);
        }));
        Ok(connection)
    }

    async fn set_up(self: &Arc<Self>) -> Result<(), FabricError> {
        let own = offer(&self.hub, &self.queue_pair);
        let answer = self.ask(&Request::Connect(own)).await?;
        let peer = setup::decode_offer(&answer).map_err(|fault| self.refused(fault))?;
        let link = agree(&self.hub, &own, &peer);
        self.queue_pair.connect(own.route.first_packet, &peer.route, &link).map_err(|why| {
            let what = format!("its queue pair cannot be connected: {why}");
            FabricError::Network { peer: self.peer, what }
        })?;
        self.connected();
        Ok(())
    }

    /// Looks a region up in the background.
    pub(super) fn look_up(self: &Arc<Self>, region: RegionKey) {
        let guard = SetupGuard(Arc::clone(self), true);
        drop(self.hub.env.spawn("verbs-look-up", async move {
            let found = guard.0.windows(region).await;
            let done = found.map(|found| guard.0.found(region, found));
            guard.finish(done);
        }));
    }

    /// The windows of a region of the peer; `None` if it has no such region.
    async fn windows(&self, region: RegionKey) -> Result<Option<RemoteRegion>, FabricError> {
        let mut found = RemoteRegion::default();
        loop {
            let first = found.windows.len() as u32;
            let answer = self.ask(&Request::LookUp { region, first }).await?;
            let windows = match setup::decode_windows(&answer, u64::from(first)) {
                Err(SetupFault::UnknownRegion) => return Ok(None),
                windows => windows.map_err(|fault| self.refused(fault))?,
            };
            found.bytes = windows.region_bytes;
            found.windows.extend(&windows.page);
            if windows.page.is_empty() || found.windows.len() as u64 >= windows.count {
                break;
            }
        }
        found.windows.sort_by_key(|window| window.offset);
        Ok(Some(found))
    }

    /// Sends a request over the session, and waits for the answer.
    async fn ask(&self, request: &Request) -> Result<Buf, FabricError> {
        let at = RemoteAddr::new(SETUP_REGION, 0);
        let request = Verb::write(at, Buf::copy_of(&request.encode()));
        let chain = [request, Verb::read(at, Buf::zeroed(ANSWER_BYTES))];
        match self.session.post(chain.into()).await {
            Ok(mut chain) => {
                let answer = chain.verbs.pop().and_then(Verb::into_buf);
                answer.ok_or(FabricError::Interrupted)
            }
            Err(failed) => Err(match failed.error {
                FabricError::UnknownRegion { peer, .. } => {
                    let what = "it serves its memory over TCP, and not over RDMA".to_owned();
                    FabricError::Network { peer, what }
                }
                error => error,
            }),
        }
    }

    fn refused(&self, fault: SetupFault) -> FabricError {
        FabricError::Network { peer: self.peer, what: format!("no queue pair: {fault}") }
    }
}

/// Ends a connection whose set-up the environment drops.
struct SetupGuard(Arc<Connection>, bool);

impl SetupGuard {
    fn finish(mut self, done: Result<(), FabricError>) {
        self.1 = false;
        if let Err(error) = done {
            self.0.end(&error);
        }
    }
}

impl Drop for SetupGuard {
    fn drop(&mut self) {
        if self.1 {
            self.0.end(&FabricError::Stopped { peer: self.0.peer });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_attempts_last_half_as_long_as_silence_takes_to_be_death() {
        let timeout = |ms| ack_timeout(Duration::from_millis(ms));
        assert_eq!([timeout(1), timeout(5000), timeout(10_000)], [10, 16, 17]);
        assert_eq!(timeout(10_000_000), 20);
    }
}
