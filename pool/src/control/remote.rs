//! The control plane of a process that shares neither files nor an etcd with the pool: it asks
//! relays.
//!
//! ```text
//! call -> queue -> thread == one connection ==> the relay that answered last, else the next one
//!   ^-- answer ----'
//! ```
//! A thread of the plane owns the connection and does one call after the other, so that no task of
//! the caller blocks. A state that has not changed since the plane read it is not sent again. Ages
//! of beats come as ages, so that no clock is compared with another: a beat may seem younger than
//! it is, by the time that the answer took, never older.
//!
//! # Bounds
//! Every call ends within [`PATIENCE`]. Until then it is tried at one relay after the other; one
//! attempt, with a new connection if it takes one, lasts at most [`FIRST_ATTEMPT`] at first, and
//! later [`ATTEMPT`]. An attempt at a change whose answer was lost may have been made: the next one
//! has the same number, by which the plane behind the relay knows it. Only if others have changed
//! the state since, or time runs out, the call ends in `Unavailable` and may have been made or not;
//! an attempt that found no connection was not made. A call whose future is dropped may be made
//! too. What a relay that hung does late does little harm: the version that a change expects is
//! over, and a beat may be taken for a younger one, so that a dead process is found out later by
//! the length of a lease.
//!
//! # Which pool
//! Every relay says which pool it serves. The first one that the plane is let in to is its pool
//! from then on, also where [`Expectation`] leaves that open; relays of other pools are passed
//! over.
//!
//! # Trust
//! On a connection with certificates the other end has to be a memory node, and the role in this
//! process's certificate says what the relay lets it do. On one without, the relay asks for the
//! token of its pool ([`FindToken`]), if the pool has one. A relay that asks another relay itself
//! does not serve processes with certificates: it names the memory nodes of the pool, which are
//! tried as well from then on. A relay that does not let this process in
//! is passed over; what a role does not allow is refused by every relay, and not tried again.
//!
//! Not done: making pools. A pool is made where it is kept.

use std::fmt;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use selkie_fabric::{BoxFuture, Stream, TlsError};

use super::error::{ControlError, unavailable_at};
use super::plane::{Beat, Change, ControlPlane, Version, Versioned};
use super::promise::promise;
use super::relay::{
    FRAME_LIMIT, IDLE_LIMIT, RelayError, Request, Response, Welcome, encode, greet, receive, send,
};
use super::target::{Connect, Target, Unreached, bad_endpoint};
use crate::document::PoolState;
use crate::error::PoolError;
use crate::token::Token;
use crate::units;
use crate::wait_notice::{NOTICE, WaitNotice};

/// Finds the token of the pool of a name.
pub type FindToken = Arc<dyn Fn(&str) -> Option<Token> + Send + Sync>;

/// Bound of every call.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bound of one attempt.
const ATTEMPT: Duration = Duration::from_secs(2);
/// Bound of an attempt while others have not been tried: a relay that hangs must not keep its
/// clients' beats back until they are taken for dead.
const FIRST_ATTEMPT: Duration = Duration::from_millis(300);
/// Of it, bound of finding the relay and connecting to it.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);
/// Between two rounds of attempts.
const ROUND_PAUSE: Duration = Duration::from_millis(50);
/// Relays that are tried: those that were given, and those that they name.
const MAX_TARGETS: usize = 1024;
/// Calls that wait for their turn.
const MAX_CALLS: usize = 1024;
/// A connection that was not used for longer is not used again: the relay may be about to close it.
const STALE: Duration = Duration::from_secs(IDLE_LIMIT.as_secs() / 2);

const _: () = {
    assert!(CONNECT_LIMIT.as_millis() < ATTEMPT.as_millis(), "a connection leaves time to ask");
    assert!(2 * ATTEMPT.as_millis() < PATIENCE.as_millis(), "an attempt leaves time for another");
    assert!(FIRST_ATTEMPT.as_millis() < ATTEMPT.as_millis());
    assert!(ATTEMPT.as_millis() < FRAME_LIMIT.as_millis(), "the relay waits for a slow client");
};

/// Which pool is meant; `None` for any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expectation {
    /// Its name; see [`Relay::new`](super::Relay::new).
    pub name: Option<String>,
    /// [`PoolState::id`].
    pub id: Option<u64>,
}

impl Expectation {
    fn is_met_by(&self, pool: &Welcome) -> bool {
        self.name.as_ref().is_none_or(|name| *name == pool.name)
            && self.id.is_none_or(|id| id == pool.id)
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "pool {name:?}")?,
            None => f.write_str("a pool")?,
        }
        self.id.map_or(Ok(()), |id| write!(f, " of id {id:#x}"))
    }
}

/// Connects over TCP, and secures nothing.
#[must_use]
pub fn plain_connect() -> Connect {
    Arc::new(|_, address, limit| {
        let stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    })
}

/// Asks relays for the state of one pool.
pub struct RemotePlane {
    jobs: SyncSender<Job>,
    /// For messages.
    endpoints: String,
}

type Job = Box<dyn FnOnce(&mut RelayLine) + Send>;

impl RemotePlane {
    /// The plane behind the relays at `endpoints`, written `HOST:PORT`, which are of one pool. They
    /// are not contacted before the first call, and names are looked up whenever a connection is
    /// made.
    ///
    /// # Errors
    /// [`PoolError::Config`] for an endpoint that is not allowed, [`PoolError::Control`] if the
    /// system refuses a thread.
    pub fn new(endpoints: &[impl AsRef<str>], pool: Expectation) -> Result<Self, PoolError> {
        Self::over(endpoints, pool, plain_connect(), Arc::new(|_: &str| None))
    }

    /// As [`RemotePlane::new`], over connections made by `connect`, with the tokens that `token`
    /// finds.
    ///
    /// # Errors
    /// As [`RemotePlane::new`].
    pub fn over(
        endpoints: &[impl AsRef<str>],
        pool: Expectation,
        connect: Connect,
        token: FindToken,
    ) -> Result<Self, PoolError> {
        let targets = endpoints.iter().map(|text| Target::parse(text.as_ref()));
        let targets = targets.collect::<Result<Vec<_>, _>>()?;
        if targets.is_empty() {
            return Err(bad_endpoint(""));
        }
        let names: Vec<&str> = targets.iter().map(|target| target.endpoint()).collect();
        let endpoints = names.join(", ");
        let (open, known, names) = (None, None, endpoints.clone());
        let mut line = RelayLine { endpoints: names, targets, connect, token, pool, open, known };
        let (jobs, queue) = mpsc::sync_channel::<Job>(MAX_CALLS);
        let work = move || queue.iter().for_each(|job| job(&mut line));
        // It ends when the plane is dropped, after the call it is at.
        let started = thread::Builder::new().name("selkie-remote".into()).spawn(work);
        started.map_err(|error| unavailable_at(&endpoints, &error))?;
        Ok(Self { jobs, endpoints })
    }

    /// Does a call in the plane's thread, on whatever thread the future is polled.
    fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut RelayLine, Instant) -> Result<T, ControlError> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, ControlError>> {
        Box::pin(async move {
            let until = Instant::now() + PATIENCE;
            let (answer, outcome) = promise();
            let job = Box::new(move |line: &mut RelayLine| answer.give(call(line, until)));
            let why = match self.jobs.try_send(job) {
                Ok(()) => match outcome.await {
                    Some(outcome) => return outcome,
                    None => "the plane's thread has ended",
                },
                Err(TrySendError::Full(_)) => "too many calls wait for their turn",
                Err(TrySendError::Disconnected(_)) => "the plane's thread has ended",
            };
            Err(unavailable_at(&self.endpoints, why))
        })
    }
}

impl ControlPlane for RemotePlane {
    fn load(&self) -> BoxFuture<'_, Result<Versioned, ControlError>> {
        self.run(RelayLine::load)
    }

    fn create(&self, _: PoolState) -> BoxFuture<'_, Result<Version, ControlError>> {
        let what = "a pool is made where it is kept, not through a relay".to_owned();
        let place = self.endpoints.clone();
        Box::pin(async { Err(ControlError::Refused { place, what }) })
    }

    fn replace_as(
        &self,
        change: Change,
        expected: Version,
        state: PoolState,
    ) -> BoxFuture<'_, Result<Option<Version>, ControlError>> {
        let request = Request::Replace { change, expected, state: Box::new(state) };
        self.run(move |line, until| line.replace(&request, until))
    }

    fn beat(&self, beat: Beat) -> BoxFuture<'_, Result<(), ControlError>> {
        self.run(move |line, until| {
            let noted = |response| matches!(response, Response::Noted).then_some(());
            line.insist(&Request::Beat(beat), until, noted).map(|((), _)| ())
        })
    }

    fn beats(&self) -> BoxFuture<'_, Result<Vec<(Beat, Duration)>, ControlError>> {
        self.run(|line, until| {
            let beats = |response| match response {
                Response::Beats(beats) => Some(beats),
                _ => None,
            };
            line.insist(&Request::Beats, until, beats).map(|(beats, _)| beats)
        })
    }

    fn is_relayed(&self) -> bool {
        true
    }

    fn pace(&self) -> Duration {
        Duration::from_millis(50)
    }

    fn destroy(&self) -> BoxFuture<'_, Result<(), ControlError>> {
        let what = "a pool is removed where it is kept, not through a relay".to_owned();
        let place = self.endpoints.clone();
        Box::pin(async { Err(ControlError::Refused { place, what }) })
    }
}

/// The state of the plane's thread: relays, and the connection to one of them.
struct RelayLine {
    /// For messages.
    endpoints: String,
    /// The first is connected to, or next to be tried.
    targets: Vec<Target>,
    connect: Connect,
    token: FindToken,
    pool: Expectation,
    open: Option<Open>,
    /// The state that was read last.
    known: Option<Versioned>,
}

struct Open {
    stream: Box<dyn Stream>,
    used_at: Instant,
}

/// Why an attempt failed.
enum Miss {
    /// Nothing was sent.
    Unsent(String),
    /// The call may have been done.
    Lost(String),
    /// This relay cannot be used: of another pool, of another version, or not trusted.
    Useless(ControlError),
    /// The plane behind the relay was asked, and the next relay would say the same.
    Final(ControlError),
}

impl RelayLine {
    fn load(&mut self, until: Instant) -> Result<Versioned, ControlError> {
        let known = self.known.clone();
        let request = Request::Load { known: known.as_ref().map(|known| known.version) };
        let state = |response| match response {
            Response::Unchanged => known.clone(),
            Response::State { version, state } => {
                Some(Versioned { version, state: Arc::new(*state) })
            }
            _ => None,
        };
        let (now, _) = self.insist(&request, until, state)?;
        self.known = Some(now.clone());
        Ok(now)
    }

    fn replace(
        &mut self,
        request: &Request,
        until: Instant,
    ) -> Result<Option<Version>, ControlError> {
        let replaced = |response| match response {
            Response::Replaced(version) => Some(version),
            _ => None,
        };
        match self.insist(request, until, replaced)? {
            (None, true) => Err(unavailable_at(
                &self.endpoints,
                "the state is another's by now, and may have been this one",
            )),
            (version, _) => Ok(version),
        }
    }

    /// Attempts something until it succeeds or `until` is reached; says also whether an attempt
    /// before may have done its work. `answer` is `None` for an answer to something else.
    fn insist<T>(
        &mut self,
        request: &Request,
        until: Instant,
        answer: impl Fn(Response) -> Option<T>,
    ) -> Result<(T, bool), ControlError> {
        let refused = |error: RelayError| ControlError::Refused {
            place: self.endpoints.clone(),
            what: error.to_string(),
        };
        let frame = encode(request).map_err(refused)?;
        self.targets.iter_mut().for_each(|target| target.said = None);
        let (mut doubt, mut limit) = (false, FIRST_ATTEMPT);
        let (began, mut notice) = (Instant::now(), WaitNotice::new(Duration::ZERO));
        loop {
            // One that has answered before may be away for a moment, which is others' to tell.
            if self.known.is_none() && notice.due(began.elapsed()).is_some() {
                let (who, most) = (&self.endpoints, units::seconds(PATIENCE));
                tracing::info!(target: NOTICE, "{who} does not answer; waits {most} at most");
            }
            let mut useless = 0;
            for _ in 0..self.targets.len() {
                let left = until.saturating_duration_since(Instant::now());
                if left <= ROUND_PAUSE {
                    return Err(self.given_up());
                }
                let attempt_until = Instant::now() + left.min(limit);
                let said = match self.attempt(&frame, attempt_until, &answer) {
                    Ok(value) => return Ok((value, doubt)),
                    Err(Miss::Final(error)) => return Err(error),
                    Err(Miss::Unsent(said)) => said,
                    Err(Miss::Lost(said)) => {
                        doubt = true;
                        said
                    }
                    Err(Miss::Useless(error)) => {
                        useless += 1;
                        if useless == self.targets.len() {
                            return Err(error);
                        }
                        error.to_string()
                    }
                };
                self.pass_on(said);
            }
            // All may be slow, and not one of them gone.
            limit = (2 * limit).min(ATTEMPT);
            thread::sleep(ROUND_PAUSE);
        }
    }

    /// Turns to the next relay.
    fn pass_on(&mut self, said: String) {
        self.open = None;
        if let Some(target) = self.targets.first_mut() {
            tracing::debug!(endpoint = target.endpoint(), said, "a relay is of no help");
            target.said = Some(said);
        }
        self.targets.rotate_left(1);
    }

    /// Each address is named once.
    fn given_up(&self) -> ControlError {
        let said = |target: &Target| target.said.clone().unwrap_or("was not asked".to_owned());
        let (place, said) = match &self.targets[..] {
            [only] => (self.endpoints.clone(), said(only)),
            all => {
                let all =
                    all.iter().map(|target| format!("{} {}", target.endpoint(), said(target)));
                ("the relays of the pool".to_owned(), all.collect::<Vec<_>>().join("; "))
            }
        };
        unavailable_at(&place, &format!("given up after {}: {said}", units::seconds(PATIENCE)))
    }

    /// Asks the relay in front.
    fn attempt<T>(
        &mut self,
        frame: &[u8],
        until: Instant,
        answer: impl Fn(Response) -> Option<T>,
    ) -> Result<T, Miss> {
        let (mut open, endpoint) = match self.open.take() {
            Some(open) if open.used_at.elapsed() < STALE => (open, self.endpoint()),
            _ => (self.open(until)?, self.endpoint()),
        };
        let stream = &mut *open.stream;
        let response = send(stream, frame, until).and_then(|()| receive(stream, until));
        let response = response.map_err(|error| Miss::Lost(format!("said nothing: {error}")))?;
        open.used_at = Instant::now();
        match response {
            Response::Failed(error @ ControlError::Unavailable { .. }) => {
                Err(Miss::Lost(format!("said: {error}")))
            }
            Response::Failed(error) => {
                self.open = Some(open);
                Err(Miss::Final(behind(&endpoint, error)))
            }
            response => {
                let nonsense = || Miss::Lost("answered another question".to_owned());
                let value = answer(response).ok_or_else(nonsense)?;
                self.open = Some(open);
                Ok(value)
            }
        }
    }

    fn endpoint(&self) -> String {
        self.targets.first().map_or_else(String::new, |target| target.endpoint().to_owned())
    }

    /// Tries these relays too from now on.
    fn add_targets(&mut self, endpoints: &[String]) {
        for endpoint in endpoints {
            let is_known = self.targets.iter().any(|target| target.endpoint() == endpoint);
            if is_known || self.targets.len() >= MAX_TARGETS {
                continue;
            }
            match Target::parse(endpoint) {
                Ok(target) => self.targets.push(target),
                Err(error) => tracing::warn!(%error, "a relay names one that cannot be"),
            }
        }
    }

    /// A connection to the relay in front, if it is one of the pool.
    fn open(&mut self, until: Instant) -> Result<Open, Miss> {
        let Some(target) = self.targets.first_mut() else {
            return Err(Miss::Unsent("is not there".to_owned()));
        };
        let connect_until = until.min(Instant::now() + CONNECT_LIMIT);
        let endpoint = target.endpoint().to_owned();
        let distrusted = |why: TlsError| {
            let (place, what) = (format!("the relay at {endpoint}"), why.to_string());
            Miss::Useless(ControlError::Refused { place, what })
        };
        let mut stream = match target.connect(&self.connect, connect_until) {
            Ok(stream) => stream,
            Err(Unreached::Distrusted(why)) => return Err(distrusted(why)),
            Err(Unreached::Lost(what)) => return Err(Miss::Unsent(what)),
        };
        let token = |name: &str| (self.token)(name);
        let pool = match greet(&mut *stream, token, until) {
            Ok(Ok(pool)) => pool,
            Ok(Err(error @ ControlError::Unavailable { .. })) => {
                return Err(Miss::Unsent(format!("said: {error}")));
            }
            Ok(Err(error @ ControlError::Denied { .. })) => {
                return Err(Miss::Useless(behind(&endpoint, error)));
            }
            Ok(Err(error)) => return Err(Miss::Final(behind(&endpoint, error))),
            Err(error @ (RelayError::Role { .. } | RelayError::NoToken { .. })) => {
                let (place, what) = (format!("the relay at {endpoint}"), error.to_string());
                return Err(Miss::Useless(ControlError::Denied { place, what }));
            }
            Err(RelayError::Elsewhere { endpoints }) => {
                self.add_targets(&endpoints);
                return Err(Miss::Unsent("asks another relay itself".to_owned()));
            }
            Err(error @ RelayError::Version { .. }) => {
                let (place, what) = (format!("the relay at {endpoint}"), error.to_string());
                return Err(Miss::Useless(ControlError::Damaged { place, what }));
            }
            Err(RelayError::Distrusted { why }) => return Err(distrusted(why)),
            Err(error) => return Err(Miss::Unsent(format!("does not let in: {error}"))),
        };
        let found = Expectation { name: Some(pool.name.clone()), id: Some(pool.id) };
        if !self.pool.is_met_by(&pool) {
            return Err(Miss::Useless(ControlError::OtherPool {
                place: format!("the relay at {endpoint}"),
                expected: self.pool.to_string(),
                found: found.to_string(),
            }));
        }
        self.pool = found;
        Ok(Open { stream, used_at: Instant::now() })
    }
}

fn behind(endpoint: &str, mut error: ControlError) -> ControlError {
    let place = error.place_mut();
    *place = format!("{place} behind the relay at {endpoint}");
    error
}
