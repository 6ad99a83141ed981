//! The end of a relay that serves: calls of processes elsewhere are passed on to the plane that
//! this process uses.
//!
//! ```text
//! RemotePlane == connection ==> Relay ----> FilePlane, EtcdPlane
//! ```
//! Each connection has a thread of the caller: it reads a request, waits for the plane, answers. An
//! error of a connection ends that connection and no other. The relay keeps no state: the plane
//! recognises a repeated change, at this relay or another one of the pool, by its number.
//!
//! # Who may do what
//! A client that shows a certificate may do what its role allows ([`rights`](super::rights)): a
//! change is judged by the state that it would replace and the state that it would leave. A client
//! without certificate has to prove that it has the token of the pool, and may then do everything,
//! as nothing tells it from others. A pool without a token lets all in: it trusts its
//! network.
//!
//! A relay whose own plane is behind another relay shows its own certificate there, and would be
//! judged by its own role. So it does not pass on what clients with certificates ask, but tells
//! them where the memory nodes of the pool are: one of them has the plane.
//!
//! Until a client is let in it is a newcomer ([`Stream::let_in`]), and is told nothing of
//! the pool but its name.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use selkie_fabric::{NodeCertificate, Stream};

use super::error::ControlError;
use super::plane::{Beat, Change, ControlPlane, Version, Versioned};
use super::relay::{
    Asked, Elsewhere, FRAME_LIMIT, IDLE_LIMIT, RelayError, RelayVerdict, Request, Response,
    Welcome, encode, receive_magic, receive_next, receive_proof, receive_version, reply, send,
};
use super::rights::{self, Refused};
use crate::document::PoolState;
use crate::error::PoolError;
use crate::token::{Challenge, TokenVerifier};

/// Connections, each with a thread, that a relay serves at once.
const MAX_CONNECTIONS: usize = 256;
/// Bound of a call to the plane, which has bounds of its own.
const PLANE_LIMIT: Duration = Duration::from_secs(10);
/// Most bytes of a pool's name.
const MAX_NAME_BYTES: usize = 255;

/// Passes calls from elsewhere on to a control plane.
pub struct Relay {
    plane: Arc<dyn ControlPlane>,
    name: String,
    connections: AtomicUsize,
}

impl Relay {
    /// A relay to `plane`, which keeps the pool called `name` (1 to 255 bytes).
    ///
    /// # Errors
    /// [`PoolError::Config`] for a name that is not allowed.
    pub fn new(plane: Arc<dyn ControlPlane>, name: &str) -> Result<Self, PoolError> {
        if !(1..=MAX_NAME_BYTES).contains(&name.len()) || name.contains(char::is_control) {
            let allowed = format!("1 to {MAX_NAME_BYTES} bytes without control characters");
            return Err(PoolError::Config { key: "pool", value: name.to_owned(), allowed });
        }
        Ok(Self { plane, name: name.to_owned(), connections: AtomicUsize::new(0) })
    }

    /// Serves one connection, and returns when it is over: the other end has closed it, or has not
    /// asked anything for 60 s. Blocks its thread. The first word of the connection must have been
    /// read already, and have been [`RELAY_MAGIC`](super::RELAY_MAGIC).
    ///
    /// # Errors
    /// The error of the connection.
    pub fn serve(&self, mut stream: impl Stream) -> Result<(), RelayError> {
        self.serve_from_version(&mut stream)
    }

    /// As [`Relay::serve`], for a port where only relays' connections come: reads the first word
    /// too.
    ///
    /// # Errors
    /// As [`Relay::serve`].
    pub fn serve_from_start(&self, mut stream: impl Stream) -> Result<(), RelayError> {
        receive_magic(&mut stream, soon())?;
        self.serve_from_version(&mut stream)
    }

    fn serve_from_version(&self, stream: &mut dyn Stream) -> Result<(), RelayError> {
        if let Err(error) = receive_version(stream, soon()) {
            if matches!(error, RelayError::Version { .. }) {
                reply(stream, &RelayVerdict::OtherVersion, soon())?;
            }
            return Err(error);
        }
        let Some(_seat) = Seat::take(&self.connections) else {
            reply(stream, &RelayVerdict::Full, soon())?;
            return Err(RelayError::Full);
        };
        let state = match wait(self.plane.load()) {
            Ok(found) => found.state,
            Err(error) => return reply(stream, &RelayVerdict::NotServed(error), soon()),
        };
        let (shown, id) = (stream.certificate(), state.id);
        if let (None, Some(token)) = (shown, &state.token) {
            self.ask_for_token(stream, token)?;
        }
        if shown.is_some() && self.plane.is_relayed() {
            return reply(stream, &RelayVerdict::Elsewhere(elsewhere(&state)), soon());
        }
        if !stream.let_in() {
            reply(stream, &RelayVerdict::Full, soon())?;
            return Err(RelayError::Full);
        }
        let welcome = Welcome { name: self.name.clone(), id };
        reply(stream, &RelayVerdict::Welcome(welcome), soon())?;
        let client = Client { id, shown };
        loop {
            match receive_next(stream, Instant::now() + IDLE_LIMIT) {
                Ok(Some(request)) => {
                    let answer = encode_answer(&self.answer(&client, request)?)?;
                    send(stream, &answer, soon())?;
                }
                Ok(None) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Lets the client in that proves to have the token.
    fn ask_for_token(
        &self,
        stream: &mut dyn Stream,
        token: &TokenVerifier,
    ) -> Result<(), RelayError> {
        let challenge = Challenge::random();
        let challenge =
            challenge.map_err(|error| RelayError::Content { what: error.to_string() })?;
        let asked = Asked { name: self.name.clone(), challenge };
        reply(stream, &RelayVerdict::Challenge(asked), soon())?;
        let proof = receive_proof(stream, soon()).map_err(|error| match error {
            // One without a token leaves when it is asked: nothing is wrong with the connection.
            RelayError::Cut | RelayError::Silent => {
                RelayError::TokenWithheld { pool: self.name.clone() }
            }
            error => error,
        })?;
        if token.accepts(&challenge, &proof) {
            return Ok(());
        }
        let what = "the token that was shown is not the one that the pool was made with".to_owned();
        let why = ControlError::Denied { place: format!("pool {}", self.name), what };
        reply(stream, &RelayVerdict::NotServed(why.clone()), soon())?;
        Err(RelayError::Denied { why })
    }

    /// The plane's answer.
    fn answer(&self, client: &Client, request: Request) -> Result<Response, RelayError> {
        let answer = match request {
            Request::Load { known } => self.load(client.id)?.map(|found| {
                let version = found.version;
                if Some(version) == known {
                    return Response::Unchanged;
                }
                Response::State { version, state: Box::new(PoolState::clone(&found.state)) }
            }),
            Request::Replace { change, expected, state } => self
                .load(client.id)?
                .and_then(|now| self.replace(client, &now, (change, expected), *state))
                .map(Response::Replaced),
            Request::Beat(beat) => {
                let now = self.load(client.id)?;
                now.and_then(|now| self.beat(client, &now, beat)).map(|()| Response::Noted)
            }
            Request::Beats => wait(self.plane.beats()).map(Response::Beats),
        };
        Ok(answer.unwrap_or_else(Response::Failed))
    }

    fn replace(
        &self,
        client: &Client,
        now: &Versioned,
        (change, expected): (Change, Version),
        state: PoolState,
    ) -> Result<Option<Version>, ControlError> {
        // A change of an earlier state replaces nothing, but may have been made before; one of a
        // later state than this relay finds is asked for again.
        if let Some(shown) = &client.shown
            && expected >= now.version
        {
            if expected > now.version {
                return Ok(None);
            }
            rights::may_change(shown, &now.state, &state).map_err(|why| self.denied(&why))?;
        }
        wait(self.plane.replace_as(change, expected, state))
    }

    fn beat(&self, client: &Client, now: &Versioned, beat: Beat) -> Result<(), ControlError> {
        if let Some(shown) = &client.shown {
            rights::may_beat(shown, &now.state, &beat).map_err(|why| self.denied(&why))?;
        }
        wait(self.plane.beat(beat))
    }

    fn denied(&self, why: &Refused) -> ControlError {
        ControlError::Denied { place: format!("pool {}", self.name), what: why.to_string() }
    }

    /// Versions of another pool mean nothing to a client of this one.
    fn load(&self, id: u64) -> Result<Result<Versioned, ControlError>, RelayError> {
        match wait(self.plane.load()) {
            Ok(found) if found.state.id != id => Err(RelayError::PoolReplaced),
            loaded => Ok(loaded),
        }
    }
}

/// A client that was let in.
struct Client {
    /// The pool of its connection.
    id: u64,
    /// What its certificate says, where connections are secured.
    shown: Option<NodeCertificate>,
}

/// The addresses of the living memory nodes.
fn elsewhere(state: &PoolState) -> Elsewhere {
    let living = state.memory_nodes.iter().flatten().filter(|member| !member.dead);
    let cards = living.filter_map(|member| state.cards.get(&member.descriptor.peer.to_raw()));
    let addresses = cards.filter_map(|card| card.card.split(' ').next());
    Elsewhere { endpoints: addresses.map(str::to_owned).collect() }
}

/// An answer that is too long is replaced by one that says so.
fn encode_answer(answer: &Response) -> Result<Vec<u8>, RelayError> {
    encode(answer).or_else(|error| {
        let (place, what) = ("a relay's answer".to_owned(), error.to_string());
        encode(&Response::Failed(ControlError::Refused { place, what }))
    })
}

fn soon() -> Instant {
    Instant::now() + FRAME_LIMIT
}

/// Room for a connection, for as long as it is kept.
struct Seat<'a>(&'a AtomicUsize);

impl<'a> Seat<'a> {
    fn take(taken: &'a AtomicUsize) -> Option<Self> {
        let seat = Self(taken);
        // Dropped if there is none.
        (taken.fetch_add(1, Ordering::Relaxed) < MAX_CONNECTIONS).then_some(seat)
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits in this thread for the answer of a plane.
fn wait<T>(call: impl Future<Output = Result<T, ControlError>>) -> Result<T, ControlError> {
    let mut call = pin!(call);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let until = Instant::now() + PLANE_LIMIT;
    loop {
        if let Poll::Ready(answer) = call.as_mut().poll(&mut Context::from_waker(&waker)) {
            return answer;
        }
        match until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => {
                let what = format!("no answer within {PLANE_LIMIT:?}");
                return Err(ControlError::Unavailable { place: "the relay's plane".into(), what });
            }
            left => thread::park_timeout(left),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Cursor, ErrorKind, Read, Write};

    use super::super::relay::VERSION;
    use super::super::{LocalPlane, Timing};
    use super::*;
    use crate::coding::Coding;
    use crate::config::PoolConfig;

    /// Says what it was given, then nothing, without a wait.
    struct Script {
        says: Cursor<Vec<u8>>,
        received: usize,
        limit: Duration,
        /// Of the reads that met silence.
        silent_for: Vec<Duration>,
    }

    impl Script {
        fn of(parts: &[&[u8]]) -> Self {
            let says = Cursor::new(parts.concat());
            Self { says, received: 0, limit: Duration::ZERO, silent_for: Vec::new() }
        }
    }

    impl Read for Script {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            match self.says.read(bytes)? {
                0 => {
                    self.silent_for.push(self.limit);
                    Err(ErrorKind::WouldBlock.into())
                }
                read => Ok(read),
            }
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.received += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Stream for Script {
        fn set_timeouts(&mut self, limit: Duration) -> io::Result<()> {
            self.limit = limit;
            Ok(())
        }
    }

    fn relay() -> Relay {
        let config = PoolConfig {
            memory_nodes: 1,
            bytes_per_node: 2 << 20,
            gcl_bytes: 512,
            range_bytes: 1 << 19,
            max_compute_nodes: 4,
            coding: Coding::PLAIN,
            log_bytes: 0,
        };
        let identity = super::super::Identity { name: "test", id: 7, fabric: "mem" };
        let state = PoolState::new(identity, Timing::default(), &config);
        Relay::new(Arc::new(LocalPlane::of(state)), "test").ok().unwrap()
    }

    #[test]
    fn silence_is_waited_for_as_long_as_its_place_allows() {
        let version = VERSION.to_le_bytes();
        let beats = encode(&Request::Beats).ok().unwrap();
        let (half, length) = (&beats[..beats.len() - 1], &beats[..4]);
        let cases: [(&[&[u8]], Duration, bool); 7] = [
            (&[], FRAME_LIMIT, false),
            (&[&version[..3]], FRAME_LIMIT, false),
            (&[&version], IDLE_LIMIT, true),
            (&[&version, &beats, &beats], IDLE_LIMIT, true),
            (&[&version, &beats[..1]], FRAME_LIMIT, false),
            (&[&version, length], FRAME_LIMIT, false),
            (&[&version, &beats, half], FRAME_LIMIT, false),
        ];
        for (says, limit, is_idle) in cases {
            let mut script = Script::of(says);
            let served = relay().serve_from_version(&mut script);
            match served {
                Ok(()) => assert!(is_idle, "{says:?}"),
                Err(RelayError::Silent) => assert!(!is_idle, "{says:?}"),
                Err(error) => panic!("{says:?}: {error}"),
            }
            let [silent_for] = script.silent_for[..] else { panic!("{:?}", script.silent_for) };
            assert!(silent_for <= limit && silent_for > limit / 2, "{says:?}: {silent_for:?}");
        }
    }

    #[test]
    fn a_relay_has_room_for_so_many_connections_and_for_others_when_those_have_ended() {
        let relay = relay();
        let hello = VERSION.to_le_bytes();
        let seats: Vec<_> = (0..MAX_CONNECTIONS).map(|_| Seat::take(&relay.connections)).collect();
        assert!(seats.iter().all(Option::is_some));
        for _ in 0..2 {
            let mut script = Script::of(&[&hello]);
            let served = relay.serve_from_version(&mut script);
            assert!(matches!(served, Err(RelayError::Full)), "{served:?}");
            assert!(script.received > 0, "it is told");
        }
        drop(seats);
        assert!(relay.serve_from_version(&mut Script::of(&[&hello])).is_ok());
    }

    #[test]
    fn names_that_cannot_be_read_are_refused() {
        let refused = |name: &str| Relay::new(Arc::new(LocalPlane::default()), name).is_err();
        let names = ["", "a\nb", &"x".repeat(256)].map(refused);
        assert_eq!(names, [true; 3]);
        assert_eq!(["a", "größer", &"x".repeat(255)].map(refused), [false; 3]);
    }
}
