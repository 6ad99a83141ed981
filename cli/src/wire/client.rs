//! A session at a server: statements, what they give, and their end before time.
//!
//! Statements go by the simple protocol, as those of psql do: a text may have several, which are
//! one transaction, and COPY may be among them. What they give goes to a [`Receiver`] as it comes.
//!
//! A connection that is lost is not made again by itself: the session is gone, with its settings
//! and its transaction. Its user asks for [`Client::reconnect`].

#![expect(clippy::result_large_err, reason = "one error a statement, which is shown then")]

use std::cell::Cell;
use std::time::{Duration, Instant};

use postgres_protocol::message::frontend;
use selkie_sql::TransactionState;

use super::address::{Address, Host};
use super::link::{Link, Look, WireError, Wish};
use super::password::Passwords;
use super::report::Report;
use super::startup::{Opened, linked, open};
use super::talk::{Talk, is_read_over, read_over};

/// A request to cancel is made again after so long: it may have come before its statement.
const CANCEL_AGAIN: Duration = Duration::from_secs(1);
/// How long a request to cancel may take in all.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a server is waited for that has been told good-bye.
const END_TIMEOUT: Duration = Duration::from_millis(200);

/// How long a server has to let in a session that nobody waits for.
const BESIDE_TIMEOUT: Duration = Duration::from_secs(5);

/// A cell is text; `None` is NULL.
pub(crate) type Row = Vec<Option<String>>;

/// Who takes what statements give.
pub(crate) trait Receiver {
    /// A statement gives rows of these columns: their names and the numbers of their types.
    fn described(&self, columns: &[(String, u32)]);

    /// Takes rows.
    ///
    /// # Errors
    /// If it cannot: the statement is cancelled then.
    fn given(&self, rows: Vec<Row>) -> Result<(), Report>;

    /// The statement is `COPY FROM STDIN`.
    ///
    /// # Errors
    /// If there is no data for it.
    fn asked_for_data(&self, is_binary: bool) -> Result<(), Report>;

    /// The next of that data; `None` at its end.
    ///
    /// # Errors
    /// If it cannot be had: the statement fails then.
    fn next_data(&self) -> Result<Option<Vec<u8>>, Report>;

    /// Takes data of `COPY TO STDOUT`.
    ///
    /// # Errors
    /// If it cannot: the statement is cancelled then.
    fn copied(&self, data: Vec<u8>) -> Result<(), Report>;

    /// Takes a message that is no error.
    fn noticed(&self, notice: &Report);

    /// The statement has done what its tag says.
    fn ended(&self, tag: &str);
}

/// Why statements were not run to their end.
#[derive(Debug)]
pub(crate) enum NotRun {
    /// One has failed, or the connection is lost.
    Failed(Report),
    /// Nobody waits any more.
    Left,
}

/// A session at a server.
pub(crate) struct Client {
    address: Address,
    passwords: Passwords,
    /// `None` when it is lost.
    link: Option<Link>,
    /// An answer is still to come that nobody waits for: that of a statement that was left.
    is_owed: bool,
    host: Host,
    process: i32,
    secret: i32,
    version: String,
    notices: Vec<Report>,
    state: TransactionState,
}

impl Client {
    /// Connects to the first server of an address that lets the user in.
    ///
    /// # Errors
    /// [`WireError`].
    pub(crate) fn connect(
        address: Address,
        mut passwords: Passwords,
        look: Look<'_>,
    ) -> Result<Self, WireError> {
        let opened = open(&address, &mut passwords, look)?;
        let Opened { link, host, process, secret, version, notices } = opened;
        Ok(Self {
            address,
            passwords,
            link: Some(link),
            is_owed: false,
            host,
            process,
            secret,
            version,
            notices,
            state: TransactionState::Idle,
        })
    }

    /// Connects again: to the same server, or to the next of the address.
    ///
    /// # Errors
    /// [`WireError`].
    pub(crate) fn reconnect(&mut self, look: Look<'_>) -> Result<(), WireError> {
        let opened = open(&self.address, &mut self.passwords, look)?;
        let Opened { link, host, process, secret, version, notices } = opened;
        (self.link, self.host, self.version) = (Some(link), host, version);
        (self.process, self.secret, self.notices) = (process, secret, notices);
        (self.state, self.is_owed) = (TransactionState::Idle, false);
        Ok(())
    }

    /// Another session at the same server, for what is asked beside a statement that runs: what
    /// connects to it, in any thread. It asks no user for anything.
    pub(crate) fn beside(&self) -> impl FnOnce() -> Result<Self, WireError> + Send + use<> {
        let address = Address {
            hosts: vec![self.host.clone()],
            connect_timeout: BESIDE_TIMEOUT,
            ..self.address.clone()
        };
        let passwords = self.passwords.silent();
        move || Self::connect(address, passwords, &mut || Wish::Wait)
    }

    /// The number of the session at its server, as `pg_stat_activity` has it.
    pub(crate) fn process(&self) -> i32 {
        self.process
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    pub(crate) fn state(&self) -> TransactionState {
        self.state
    }

    pub(crate) fn database(&self) -> &str {
        &self.address.database
    }

    /// The server that it is at.
    pub(crate) fn host(&self) -> String {
        self.host.to_string()
    }

    /// Where it is, and what answers there.
    pub(crate) fn place(&self) -> String {
        let (user, host, version) = (&self.address.user, &self.host, &self.version);
        let tls = if self.link.as_ref().is_some_and(Link::is_secured) { ", TLS" } else { "" };
        format!("{host} as {user} (PostgreSQL {version}{tls})")
    }

    /// What the server has said at the beginning, once.
    pub(crate) fn take_notices(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.notices)
    }

    /// Runs statements. Who leaves them leaves the connection.
    ///
    /// # Errors
    /// [`NotRun`].
    pub(crate) fn run(
        &mut self,
        sql: &str,
        receiver: &dyn Receiver,
        look: Look<'_>,
    ) -> Result<(), NotRun> {
        let ran = self.run_keeping(sql, receiver, look);
        if matches!(ran, Err(NotRun::Left)) {
            (self.link, self.state) = (None, TransactionState::Idle);
        }
        ran
    }

    /// Runs one statement that only reads, outside of a transaction. It can be left, and the
    /// session goes on: what is still to come is read over before the next statement. Nothing is
    /// asked of a server that has not answered the last such statement.
    ///
    /// # Errors
    /// [`NotRun`].
    pub(crate) fn glance(
        &mut self,
        sql: &str,
        receiver: &dyn Receiver,
        look: Look<'_>,
    ) -> Result<(), NotRun> {
        if self.is_owed {
            self.is_owed = !self.link.as_mut().is_some_and(is_read_over);
        }
        if self.is_owed { Err(NotRun::Left) } else { self.run_keeping(sql, receiver, look) }
    }

    /// Runs statements. If they are left when all was sent the connection stays.
    fn run_keeping(
        &mut self,
        sql: &str,
        receiver: &dyn Receiver,
        look: Look<'_>,
    ) -> Result<(), NotRun> {
        let Some(mut link) = self.link.take() else {
            let message = "there is no connection to a server";
            return Err(NotRun::Failed(Report::error("08003", message)));
        };
        if frontend::query(sql, &mut link.unsent).is_err() {
            link.unsent.clear();
            self.link = Some(link);
            let message = "invalid byte sequence for encoding \"UTF8\": 0x00";
            return Err(NotRun::Failed(Report::error("22021", message)));
        }
        let cancel = self.cancel_request(&link);
        let mut cancelled = None::<Instant>;
        let mut looking = || {
            let wish = look();
            if wish != Wish::Wait && cancelled.is_none_or(|at| at.elapsed() >= CANCEL_AGAIN) {
                cancel.send(receiver);
                cancelled = Some(Instant::now());
            }
            wish
        };
        let mut talk = Talk::new(receiver);
        let settled = if self.is_owed { read_over(&mut link, &mut looking) } else { Ok(()) };
        let ended = settled.and_then(|()| {
            self.is_owed = false;
            talk.run(&mut link, &cancel, &mut looking)
        });
        let error = match ended {
            Ok(state) => {
                (self.state, self.link) = (state, Some(link));
                // What has failed on this side is why it was cancelled.
                let failed = talk.own.or(talk.failed);
                return failed.map_or(Ok(()), |report| Err(NotRun::Failed(report)));
            }
            Err(WireError::Left) => {
                // A message of which a part was sent cannot be taken back.
                if link.unsent.is_empty() {
                    (self.link, self.is_owed) = (Some(link), true);
                }
                return Err(NotRun::Left);
            }
            Err(error) => error,
        };
        self.state = TransactionState::Idle;
        // Why a server ends a connection it may have said before.
        while let Ok(Some(message)) = link.buffered() {
            talk.heard(&message);
        }
        let report = talk.failed.unwrap_or_else(|| Report::error("08006", error.to_string()));
        Err(NotRun::Failed(report))
    }

    fn cancel_request(&self, link: &Link) -> CancelRequest {
        let mut address = self.address.clone();
        address.connect_timeout = CANCEL_TIMEOUT;
        if !link.is_secured() {
            address.ssl = super::address::SslMode::Disable;
        }
        CancelRequest {
            address,
            host: self.host.clone(),
            process: self.process,
            secret: self.secret,
            has_failed: Cell::new(false),
        }
    }
}

impl Drop for Client {
    /// Says good-bye, so that the server takes it for no loss.
    fn drop(&mut self) {
        if let Some(link) = &mut self.link {
            frontend::terminate(&mut link.unsent);
            let until = Instant::now() + END_TIMEOUT;
            let mut look = || if Instant::now() < until { Wish::Wait } else { Wish::Leave };
            if link.send(&mut look).is_ok() {
                link.until_closed(Instant::now() + END_TIMEOUT);
            }
        }
    }
}

/// Asks a server to cancel what a session runs, by a connection of its own.
pub(super) struct CancelRequest {
    address: Address,
    host: Host,
    process: i32,
    secret: i32,
    /// That was told.
    has_failed: Cell<bool>,
}

impl CancelRequest {
    /// Sends it. Nothing is answered: the statement that is cancelled says so, or goes on. If it
    /// cannot be sent that is told, once.
    pub(super) fn send(&self, receiver: &dyn Receiver) {
        let Err(error) = self.sent() else { return };
        if !self.has_failed.replace(true) {
            let message = format!("the request to cancel the statement has failed: {error}");
            let level = "WARNING".to_owned();
            receiver.noticed(&Report { level, ..Report::error("08006", message) });
        }
    }

    fn sent(&self) -> Result<(), WireError> {
        let until = Instant::now() + CANCEL_TIMEOUT;
        let mut look = || if Instant::now() < until { Wish::Wait } else { Wish::Leave };
        let sent = linked(&self.address, &self.host, &mut look).and_then(|mut link| {
            frontend::cancel_request(self.process, self.secret, &mut link.unsent);
            link.send(&mut look)?;
            // The server closes the connection when it has done what it can.
            if link.until_closed(until) { Ok(()) } else { Err(WireError::Left) }
        });
        let silent = || WireError::Silent { host: self.host.clone(), after: CANCEL_TIMEOUT };
        sent.map_err(|error| if matches!(error, WireError::Left) { silent() } else { error })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::sync::mpsc::channel;

    use super::super::testing::{BOUND, Kept, frame, heard, server};
    use super::*;

    #[test]
    fn what_statements_give_is_told_in_its_order() {
        let (mut client, server) = server(|mut stream, _| {
            assert_eq!(heard(&mut stream), (b'Q', b"select\0".to_vec()));
            let columns = b"\0\x01a\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0";
            let answer = [
                frame(b'T', columns),
                frame(b'D', b"\0\x01\0\0\0\x0242"),
                frame(b'N', b"SNOTICE\0Mso\0\0"),
                frame(b'D', b"\0\x01\xff\xff\xff\xff"),
                frame(b'C', b"SELECT 2\0"),
                frame(b'E', b"SERROR\0C22012\0Mdivision by zero\0P8\0\0"),
                frame(b'Z', b"E"),
            ]
            .concat();
            // In parts, so that no message comes as a whole.
            for part in answer.chunks(7) {
                stream.write_all(part).unwrap();
                stream.flush().unwrap();
            }
            assert_eq!(heard(&mut stream).0, b'X');
        });
        assert!(client.place().ends_with("as me (PostgreSQL 15.0)"), "{}", client.place());
        // Requests to cancel go to where it is, whatever its name stands for by then.
        let at = client.link.as_ref().and_then(Link::peer);
        assert_eq!(at.map(|at| at.port()), Some(client.host.port));
        let request = client.cancel_request(client.link.as_ref().unwrap());
        assert_eq!((client.host.at, request.host.at), (at, at));
        let kept = Kept::default();
        let ran = client.run("select", &kept, &mut || Wish::Wait);
        let Err(NotRun::Failed(report)) = ran else { panic!("{ran:?}") };
        assert_eq!((report.state.as_str(), report.position), ("22012", Some(8)));
        assert_eq!(client.state(), TransactionState::Failed);
        let expected = ["[(\"a\", 23)]", "[Some(\"42\")]", "NOTICE: so", "[None]", "SELECT 2"];
        assert_eq!(kept.told(), expected);
        drop(client);
        server.join().unwrap();
    }

    #[test]
    fn a_connection_that_is_lost_tells_why() {
        let (mut client, server) = server(|mut stream, _| {
            heard(&mut stream);
            let last = frame(b'E', b"SFATAL\0C57P01\0Mterminating connection\0\0");
            stream.write_all(&last).unwrap();
        });
        let ran = client.run("select 1", &Kept::default(), &mut || Wish::Wait);
        let Err(NotRun::Failed(report)) = ran else { panic!("{ran:?}") };
        assert_eq!((report.level.as_str(), report.state.as_str()), ("FATAL", "57P01"));
        assert!(!client.is_connected());
        server.join().unwrap();
        let again = client.run("select 1", &Kept::default(), &mut || Wish::Wait);
        let Err(NotRun::Failed(report)) = again else { panic!("{again:?}") };
        assert_eq!(report.state, "08003");
        // Nobody listens there any more.
        let error = client.reconnect(&mut || Wish::Wait).unwrap_err().to_string();
        assert!(error.contains("there is no server at 127.0.0.1:"), "{error}");
    }

    #[test]
    fn a_message_without_end_is_no_message() {
        let (mut client, server) = server(|mut stream, _| {
            heard(&mut stream);
            stream.write_all(b"D\x7f\xff\xff\xff\0\x01").unwrap();
        });
        let ran = client.run("select 1", &Kept::default(), &mut || Wish::Wait);
        let Err(NotRun::Failed(report)) = ran else { panic!("{ran:?}") };
        assert!(report.message.contains("no message of PostgreSQL's protocol"), "{report:?}");
        server.join().unwrap();
    }

    #[test]
    fn who_leaves_does_not_wait_for_the_server() {
        let (mut client, server) = server(|mut stream, _| {
            heard(&mut stream);
            // Until the client is gone.
            let _ = stream.read(&mut [0]);
        });
        let began = Instant::now();
        let mut look =
            || if began.elapsed() > Duration::from_millis(200) { Wish::Leave } else { Wish::Wait };
        let ran = client.run("select 1", &Kept::default(), &mut look);
        assert!(matches!(ran, Err(NotRun::Left)), "{ran:?}");
        drop(client);
        server.join().unwrap();
    }
    #[test]
    fn a_statement_is_left_and_its_answer_is_not_that_of_the_next() {
        let (told, tells) = channel();
        let (mut client, server) = server(move |mut stream, listener| {
            assert_eq!(heard(&mut stream), (b'Q', b"slow\0".to_vec()));
            drop(listener.accept().unwrap());
            // Not before the client has left.
            tells.recv_timeout(BOUND).unwrap();
            let late = [
                frame(b'D', b"\0\x01\0\0\0\x04late"),
                frame(b'C', b"SELECT 1\0"),
                frame(b'Z', b"I"),
            ];
            stream.write_all(&late.concat()).unwrap();
            assert_eq!(heard(&mut stream), (b'Q', b"next\0".to_vec()));
            let answer = [frame(b'C', b"SELECT 7\0"), frame(b'Z', b"I")];
            stream.write_all(&answer.concat()).unwrap();
            assert_eq!(heard(&mut stream).0, b'X');
        });
        let kept = Kept::default();
        for _ in 0..2 {
            // The second is not even sent.
            let left = client.glance("slow", &kept, &mut || Wish::Leave);
            assert!(matches!(left, Err(NotRun::Left)), "{left:?}");
            assert!(client.is_connected() && client.state() == TransactionState::Idle);
        }
        told.send(()).unwrap();
        client.run("next", &kept, &mut || Wish::Wait).unwrap();
        assert_eq!(kept.told(), ["SELECT 7"]);
        drop(client);
        server.join().unwrap();
    }

    #[test]
    fn a_request_to_cancel_that_fails_is_told_once() {
        let (told, tells) = channel();
        let (mut client, server) = server(move |mut stream, listener| {
            drop(listener);
            heard(&mut stream);
            tells.recv_timeout(BOUND).unwrap();
            let answer = [frame(b'C', b"SELECT 1\0"), frame(b'Z', b"I")];
            stream.write_all(&answer.concat()).unwrap();
            assert_eq!(heard(&mut stream).0, b'X');
        });
        let kept = Kept::default();
        let began = Instant::now();
        let mut look = || {
            // So that it is asked more than once.
            if began.elapsed() > 2 * CANCEL_AGAIN {
                let _ = told.send(());
            }
            Wish::Cancel
        };
        client.run("select 1", &kept, &mut look).unwrap();
        let said = kept.told();
        assert_eq!((said.len(), said[1].as_str()), (2, "SELECT 1"), "{said:?}");
        let expected =
            "WARNING: the request to cancel the statement has failed: there is no server";
        assert!(said[0].starts_with(expected), "{said:?}");
        drop(client);
        server.join().unwrap();
    }
}
