//! The control plane of a pool whose hosts share no files: keys in etcd, which replicates them.
//!
//! ```text
//! selkie/<pool>/state     {"change": n, "state": {...}}; the version is the key's mod_revision
//! selkie/<pool>/beats/cn3 the newest beat of compute node 3, bound to a lease of that node
//! ```
//! The state is replaced by a transaction that compares the mod_revision, so the version of another
//! state never returns. A state that has not changed since the plane read it is not sent again.
//!
//! # Age of a beat
//! A beat renews its node's lease, and writes the key only if it says something new: nodes in a
//! quiet pool write nothing. The age is the part of the lease that is over, by the clock of etcd's
//! leader, which grants, renews and measures it. No host's clock takes part. etcd tells the rest in
//! whole seconds, so ages are rounded down to whole seconds. A leader that is new extends all
//! leases: a beat may then seem younger than it is, never older, and a dead process is found out
//! later by no more than that lease. Beats whose lease has run out are not there.
//!
//! # Bounds
//! Every call ends within [`PATIENCE`], and is tried again until then, so that it survives the
//! election of a leader and an endpoint that is away. An attempt at a change whose answer was
//! lost may have been made: the state carries a random number of the change that wrote it, by which
//! the next attempt knows its own. Only if others have changed the state since, or time runs out,
//! the call ends in `Unavailable` and may have been made or not; an attempt that found no
//! connection was not made. A call whose future is dropped may be made too. An attempt that arrives
//! late does no harm, because the mod_revision that it expects is over.
//!
//! The client needs tokio's network, which the environment of compute nodes does not have, so the
//! plane runs it on a thread of its own.
//!
//! Not done: TLS and passwords, so the network between hosts and etcd must be trusted; states
//! larger than etcd's limit of a request (1.5 MiB unless it is told otherwise).

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, DeleteOptions, Error, GetOptions, KeyValue,
    PutOptions, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use selkie_fabric::{BoxFuture, PeerId};
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::error::{ControlError, unavailable_at};
use super::plane::{Beat, Change, ControlPlane, Version, Versioned};
use crate::document::{FORMAT, PoolState, Timing};
use crate::error::PoolError;
use crate::units;

/// Bound of every call.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bound of one attempt.
const ATTEMPT: Duration = Duration::from_secs(1);
/// Between two attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// The least time for which a beat is kept. etcd may grant more, never less.
const MIN_LEASE_SECONDS: u64 = 5;
/// Of the pool's leases, how many a beat is kept for: a dead process is found out by its last beat.
const LEASES_KEPT: u64 = 2;
/// A connection that says nothing for so long is asked whether it lives; etcd refuses to be asked
/// oftener than every 5 s.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
/// Most characters of a pool's name.
const MAX_NAME: usize = 64;

const _: () = {
    assert!(ATTEMPT.as_millis() < PATIENCE.as_millis(), "an attempt leaves time for another");
    assert!(LEASES_KEPT > 1, "a beat is there until its process is taken for dead");
};

/// Keeps the state of one pool in etcd.
pub struct EtcdPlane {
    shared: Arc<Shared>,
    handle: Handle,
    /// `None` only while the plane is dropped.
    runtime: Option<Runtime>,
}

struct Shared {
    client: Client,
    /// For messages.
    endpoints: String,
    state_key: String,
    beats_prefix: String,
    /// The state that was read last.
    known: parking_lot::Mutex<Option<Versioned>>,
    /// Of the nodes that beat through this plane. Locked during a beat, so that what is here is
    /// what is stored.
    leases: tokio::sync::Mutex<BTreeMap<PeerId, Lease>>,
}

/// A node's lease, and the beat stored under it.
struct Lease {
    id: i64,
    beat: Beat,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    /// What wrote this.
    change: Change,
    state: PoolState,
}

impl EtcdPlane {
    /// The plane of a pool (1 to 64 letters, digits, `-` or `_`) in the etcd whose members serve
    /// clients at `endpoints`, written `http://HOST:PORT`. They are not contacted before the first
    /// call.
    ///
    /// # Errors
    /// [`PoolError::Config`] for an endpoint or a name that is not allowed, [`PoolError::Control`]
    /// if the system refuses a thread.
    pub fn at(endpoints: &[impl AsRef<str>], pool: &str) -> Result<Self, PoolError> {
        let endpoints: Vec<String> = endpoints.iter().map(|url| url.as_ref().to_owned()).collect();
        check_pool(pool)?;
        check_endpoints(&endpoints)?;
        let place = endpoints.join(", ");
        let started = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("selkie-etcd")
            .enable_all()
            .build();
        let runtime = started.map_err(|error| unavailable_at(&place, &error))?;
        let shared = Shared {
            client: client(&runtime, endpoints, &place)?,
            endpoints: place,
            state_key: format!("selkie/{pool}/state"),
            beats_prefix: format!("selkie/{pool}/beats/"),
            known: parking_lot::Mutex::default(),
            leases: tokio::sync::Mutex::default(),
        };
        let handle = runtime.handle().clone();
        Ok(Self { shared: Arc::new(shared), handle, runtime: Some(runtime) })
    }

    /// Runs a call on the plane's own thread, on whatever thread the future is polled.
    fn run<T, F>(
        &self,
        call: impl FnOnce(Arc<Shared>) -> F,
    ) -> BoxFuture<'_, Result<T, ControlError>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ControlError>> + Send + 'static,
    {
        let call = call(Arc::clone(&self.shared));
        Box::pin(async move {
            let ended = self.handle.spawn(call).await;
            ended.unwrap_or_else(|error| Err(unavailable_at(&self.shared.endpoints, &error)))
        })
    }
}

impl Drop for EtcdPlane {
    fn drop(&mut self) {
        // Not by dropping it, which would wait, and must not be done inside a task.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl ControlPlane for EtcdPlane {
    fn load(&self) -> BoxFuture<'_, Result<Versioned, ControlError>> {
        self.run(|shared| async move { shared.load().await })
    }

    fn create(&self, state: PoolState) -> BoxFuture<'_, Result<Version, ControlError>> {
        self.run(|shared| async move {
            let absent = Compare::mod_revision(shared.state_key.as_str(), CompareOp::Equal, 0);
            let made = shared.put_state(vec![absent], Change::random(), state).await?;
            made.ok_or_else(|| ControlError::PoolExists { place: shared.place() })
        })
    }

    fn replace_as(
        &self,
        change: Change,
        expected: Version,
        state: PoolState,
    ) -> BoxFuture<'_, Result<Option<Version>, ControlError>> {
        self.run(move |shared| async move {
            let (key, expected) = (shared.state_key.as_str(), expected.cast_signed());
            let compares = vec![
                Compare::mod_revision(key, CompareOp::Equal, expected),
                // Revision 0 is that of a key which is not there.
                Compare::create_revision(key, CompareOp::Greater, 0),
            ];
            shared.put_state(compares, change, state).await
        })
    }

    fn beat(&self, beat: Beat) -> BoxFuture<'_, Result<(), ControlError>> {
        self.run(move |shared| async move {
            let write = |client| write_beat(Arc::clone(&shared), client, beat.clone());
            shared.insist(write).await
        })
    }

    fn beats(&self) -> BoxFuture<'_, Result<Vec<(Beat, Duration)>, ControlError>> {
        self.run(|shared| async move {
            let read = |client| read_beats(shared.beats_prefix.clone(), client);
            let found = shared.insist(read).await?;
            // One that cannot be read hides no other: its node alone counts as silent.
            let read = |(stored, age): &(KeyValue, Duration)| match decode_beat(stored) {
                Ok(beat) => Some((beat, *age)),
                Err(error) => {
                    tracing::warn!(%error, "a beat cannot be read");
                    None
                }
            };
            Ok(found.iter().filter_map(read).collect())
        })
    }

    fn pace(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn destroy(&self) -> BoxFuture<'_, Result<(), ControlError>> {
        self.run(|shared| async move {
            let remove = |mut client: Client| {
                let all = DeleteOptions::new().with_prefix();
                let (state, beats) = (shared.state_key.clone(), shared.beats_prefix.clone());
                async move {
                    // The state first: no process is to find a pool whose nodes seem silent.
                    client.delete(state, None).await?;
                    client.delete(beats, Some(all)).await
                }
            };
            shared.insist(remove).await.map(drop)
        })
    }
}

impl Shared {
    /// For messages.
    fn place(&self) -> String {
        format!("{} in etcd at {}", self.state_key, self.endpoints)
    }

    /// How long beats are kept in this pool. Ages are rounded down, so there is a second more.
    fn lease_seconds(&self) -> i64 {
        let known = self.known.lock();
        let timing = known.as_ref().map_or_else(Timing::default, |known| known.state.timing);
        let kept = timing.lease.as_secs().saturating_mul(LEASES_KEPT).saturating_add(1);
        i64::try_from(kept.max(MIN_LEASE_SECONDS)).unwrap_or(i64::MAX)
    }

    /// Attempts something until it succeeds or [`PATIENCE`] is at its end.
    async fn insist<T, F>(&self, attempt: impl Fn(Client) -> F) -> Result<T, ControlError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.insist_doubting(attempt).await.map(|(value, _)| value)
    }

    /// As [`Shared::insist`]; says also whether an attempt before may have done its work.
    async fn insist_doubting<T, F>(
        &self,
        attempt: impl Fn(Client) -> F,
    ) -> Result<(T, bool), ControlError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let until = Instant::now() + PATIENCE;
        let mut last = None;
        let mut doubt = false;
        while Instant::now() < until {
            let attempt_until = until.min(Instant::now() + ATTEMPT);
            match timeout_at(attempt_until, attempt(self.client.clone())).await {
                Ok(Ok(value)) => return Ok((value, doubt)),
                Ok(Err(error)) => {
                    doubt |= !was_never_sent(&error);
                    last = Some(error.to_string());
                }
                // What was said before it fell silent tells more.
                Err(_) => doubt = true,
            }
            sleep_until(until.min(Instant::now() + RETRY_PAUSE)).await;
        }
        let last = last.unwrap_or_else(|| "no answer".to_owned());
        Err(unavailable_at(
            &self.endpoints,
            &format!("given up after {}: {last}", units::seconds(PATIENCE)),
        ))
    }

    async fn load(&self) -> Result<Versioned, ControlError> {
        let known = self.known.lock().clone();
        let after = known.as_ref().map_or(0, |known| known.version.cast_signed() + 1);
        let read = |client: Client| {
            let (key, options) = (self.state_key.clone(), GetOptions::new());
            let options = options.with_min_mod_revision(after);
            async move { client.kv_client().get(key, Some(options)).await }
        };
        let mut found = self.insist(read).await?;
        // What is older than `after` is counted, but not sent.
        let (count, stored) = (found.count(), found.take_kvs().pop());
        if let (None, 1.., Some(known)) = (&stored, count, known) {
            return Ok(known);
        }
        let (now, _) = self.decode(stored)?;
        *self.known.lock() = Some(now.clone());
        Ok(now)
    }

    /// Writes the state if all of `compares` hold: the version written, `None` if there is another
    /// state.
    async fn put_state(
        &self,
        compares: Vec<Compare>,
        change: Change,
        state: PoolState,
    ) -> Result<Option<Version>, ControlError> {
        let unavailable = |what: &dyn ToString| unavailable_at(&self.endpoints, &what.to_string());
        let value = serde_json::to_vec(&Stored { change, state });
        let value = value.map_err(|error| unavailable(&error))?;
        let key = self.state_key.as_str();
        let txn = Txn::new()
            .when(compares)
            .and_then([TxnOp::put(key, value, None)])
            .or_else([TxnOp::get(key, None)]);
        let attempt = |client: Client| {
            let txn = txn.clone();
            async move { client.kv_client().txn(txn).await }
        };
        let (done, doubt) = self.insist_doubting(attempt).await?;
        if done.succeeded() {
            let header = done.header().ok_or_else(|| unavailable(&"an answer without a header"))?;
            return Ok(Some(header.revision().cast_unsigned()));
        }
        // Damage is not another state.
        let (found, by) = self.decode(found_instead(&done))?;
        if by == change {
            return Ok(Some(found.version));
        }
        if doubt {
            return Err(unavailable(&"the state is another's by now, and may have been this one"));
        }
        Ok(None)
    }

    /// A state, and the change that wrote it.
    fn decode(&self, stored: Option<KeyValue>) -> Result<(Versioned, Change), ControlError> {
        let no_pool = || ControlError::NoPool { place: self.place() };
        let stored = stored.ok_or_else(no_pool)?;
        let damaged = |what: String| ControlError::Damaged { place: self.place(), what };
        let Stored { change, state } =
            serde_json::from_slice(stored.value()).map_err(|error| damaged(error.to_string()))?;
        if state.format != FORMAT {
            let format = state.format;
            return Err(damaged(format!("format {format}, this software writes {FORMAT}")));
        }
        let version = stored.mod_revision().cast_unsigned();
        Ok((Versioned { version, state: Arc::new(state) }, change))
    }
}

/// A client of these endpoints. It connects when it is used.
fn client(runtime: &Runtime, endpoints: Vec<String>, place: &str) -> Result<Client, ControlError> {
    let options = ConnectOptions::new()
        .with_connect_timeout(ATTEMPT)
        .with_keep_alive(PROBE_INTERVAL, PATIENCE)
        .with_require_leader(true);
    // The caller may be inside another runtime, where it may not wait for a future of this one.
    let (sender, made) = mpsc::sync_channel(1);
    runtime.spawn(async move {
        let _ = sender.send(Client::connect(endpoints, Some(options)).await);
    });
    let made = made.recv().map_err(|error| unavailable_at(place, &error))?;
    made.map_err(|error| unavailable_at(place, &error))
}

/// Whether there was no connection to send the request on.
fn was_never_sent(error: &Error) -> bool {
    let Error::GRpcStatus(status) = error else { return false };
    let first = std::error::Error::source(status);
    let mut causes = std::iter::successors(first, |cause| cause.source());
    causes.any(|cause| cause.is::<tonic::ConnectError>())
}

/// What a transaction that did not apply read in its place.
fn found_instead(done: &TxnResponse) -> Option<KeyValue> {
    match done.op_responses().pop() {
        Some(TxnOpResponse::Get(mut found)) => found.take_kvs().pop(),
        _ => None,
    }
}

/// Renews the node's lease, and writes the beat if it differs from the one that is stored.
async fn write_beat(shared: Arc<Shared>, mut client: Client, beat: Beat) -> Result<(), Error> {
    let node = beat.node;
    let seconds = shared.lease_seconds();
    let mut leases = shared.leases.lock().await;
    // Out of the table until the beat succeeds: after a failure the next beat takes a new lease.
    let renewed = match leases.remove(&node) {
        Some(lease) => renew(&mut client, lease.id).await?.then_some(lease),
        None => None,
    };
    let (id, stored) = match renewed {
        Some(Lease { id, beat }) => (id, Some(beat)),
        None => (client.lease_grant(seconds, None).await?.id(), None),
    };
    if stored.as_ref() != Some(&beat) {
        let value =
            serde_json::to_vec(&beat).map_err(|error| Error::Internal(error.to_string()))?;
        let key = format!("{}{node}", shared.beats_prefix);
        client.put(key, value, Some(PutOptions::new().with_lease(id))).await?;
    }
    leases.insert(node, Lease { id, beat });
    Ok(())
}

/// Whether the lease was still there.
async fn renew(client: &mut Client, lease: i64) -> Result<bool, Error> {
    match client.lease_keep_alive(lease).await {
        Ok(_) => Ok(true),
        Err(Error::LeaseKeepAliveError(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The beats that are stored, and their ages.
async fn read_beats(prefix: String, client: Client) -> Result<Vec<(KeyValue, Duration)>, Error> {
    let options = GetOptions::new().with_prefix();
    let mut found = client.kv_client().get(prefix, Some(options)).await?;
    let mut asked = JoinSet::new();
    for stored in found.take_kvs() {
        let mut leases = client.lease_client();
        asked.spawn(async move {
            let lease = leases.time_to_live(stored.lease(), None).await?;
            Ok::<_, Error>((stored, age(lease.granted_ttl(), lease.ttl())))
        });
    }
    let mut beats = Vec::new();
    while let Some(answer) = asked.join_next().await {
        let (stored, age) = answer.map_err(|error| Error::IoError(io::Error::other(error)))??;
        beats.extend(age.map(|age| (stored, age)));
    }
    Ok(beats)
}

/// How long ago a lease was renewed, in whole seconds, rounded down; `None` if it has run out. The
/// rest is rounded down too.
fn age(granted_seconds: i64, rest_seconds: i64) -> Option<Duration> {
    if rest_seconds < 0 {
        return None;
    }
    let age = granted_seconds.saturating_sub(1).saturating_sub(rest_seconds);
    Some(Duration::from_secs(u64::try_from(age).unwrap_or(0)))
}

fn decode_beat(stored: &KeyValue) -> Result<Beat, ControlError> {
    let damaged = |error: serde_json::Error| ControlError::Damaged {
        place: String::from_utf8_lossy(stored.key()).into_owned(),
        what: error.to_string(),
    };
    serde_json::from_slice(stored.value()).map_err(damaged)
}

/// The name is a part of keys: others could reach into keys that are not the pool's.
fn check_pool(name: &str) -> Result<(), PoolError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if (1..=MAX_NAME).contains(&name.len()) && name.chars().all(allowed) {
        return Ok(());
    }
    let allowed = format!("1 to {MAX_NAME} letters, digits, `-` or `_`");
    Err(PoolError::Config { key: "pool", value: name.to_owned(), allowed })
}

fn check_endpoints(endpoints: &[String]) -> Result<(), PoolError> {
    let is_endpoint = |url: &String| {
        let address = url.strip_prefix("http://").and_then(|rest| rest.rsplit_once(':'));
        address.is_some_and(|(host, port)| {
            let plain = !host.is_empty() && !host.contains(['/', '@', '?', '#', ' ']);
            plain && port.parse::<u16>().is_ok_and(|port| port > 0)
        })
    };
    let bad = endpoints.iter().find(|url| !is_endpoint(url));
    if bad.is_none() && !endpoints.is_empty() {
        return Ok(());
    }
    let value = bad.cloned().unwrap_or_default();
    let allowed = "http://HOST:PORT of one or more members of etcd".to_owned();
    Err(PoolError::Config { key: "endpoints", value, allowed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_endpoints_that_are_not_allowed_are_refused() {
        let key = |endpoints: &[&str], pool: &str| match EtcdPlane::at(endpoints, pool) {
            Err(PoolError::Config { key, .. }) => key,
            Err(error) => panic!("{error}"),
            Ok(_) => "",
        };
        assert_eq!(
            key(&["http://127.0.0.1:1", "http://etcd-2:2379", "http://[::1]:3"], "a_B-1"),
            ""
        );
        for name in ["", "a/b", "a b", "é", &"x".repeat(65)] {
            assert_eq!(key(&["http://127.0.0.1:1"], name), "pool", "{name}");
        }
        assert_eq!(key(&[], "a"), "endpoints");
        for url in [
            "",
            "127.0.0.1:1",
            "https://h:1",
            "http://h",
            "http://:1",
            "http://h:0",
            "http://h:1/x",
        ] {
            assert_eq!(key(&["http://h:1", url], "a"), "endpoints", "{url}");
        }
    }

    #[test]
    fn ages_are_rounded_down_and_never_negative() {
        // Just renewed, 4.9 s are left of 5; then 4.0 s; then 0.2 s; then none.
        let seconds = |rest| age(5, rest).map(|age| age.as_secs());
        assert_eq!([4, 3, 0, -1].map(seconds), [Some(0), Some(1), Some(4), None]);
        assert_eq!(seconds(9), Some(0), "extended by a new leader");
    }
}
