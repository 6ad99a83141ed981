//! A session at a server: statements, what they give, and their end before time.
//!
//! Statements go by the simple protocol, as those of psql do: a text may have several, which are
//! one transaction, and COPY may be among them. What they give goes to a [`Receiver`] as it comes.
//!
//! A connection that is lost is not made again by itself: the session is gone, with its settings
//! and its transaction. Its user asks for [`Client::reconnect`].

#![expect(clippy::result_large_err, reason = "one error a statement, which is shown then")]

use std::time::{Duration, Instant};

use bytes::BufMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{DataRowBody, Message, RowDescriptionBody};
use postgres_protocol::message::frontend;
use selkie_sql::TransactionState;

use super::address::{Address, Host};
use super::link::{Link, Look, WireError, Wish};
use super::password::Passwords;
use super::report::Report;
use super::startup::{Opened, linked, open};

/// Rows that are given at a time.
const ROWS_AT_A_TIME: usize = 512;
/// A request to cancel is made again after so long: it may have come before its statement.
const CANCEL_AGAIN: Duration = Duration::from_secs(1);
/// How long a request to cancel may take.
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
        let (link, state) = (Some(link), TransactionState::Idle);
        Ok(Self { address, passwords, link, host, process, secret, version, notices, state })
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
        self.state = TransactionState::Idle;
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

    /// Runs statements.
    ///
    /// # Errors
    /// [`NotRun`].
    pub(crate) fn run(
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
                cancel.send();
                cancelled = Some(Instant::now());
            }
            wish
        };
        let mut talk = Talk { receiver, failed: None, own: None, is_void: false };
        let ended = talk.run(&mut link, &cancel, &mut looking);
        let lost = match ended {
            Ok(state) => {
                (self.state, self.link) = (state, Some(link));
                // What has failed on this side is why it was cancelled.
                let failed = talk.own.or(talk.failed);
                return failed.map_or(Ok(()), |report| Err(NotRun::Failed(report)));
            }
            Err(WireError::Left) => None,
            Err(error) => Some(error),
        };
        self.state = TransactionState::Idle;
        let Some(error) = lost else { return Err(NotRun::Left) };
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
                link.until_closed(END_TIMEOUT);
            }
        }
    }
}

/// Asks a server to cancel what a session runs, by a connection of its own.
struct CancelRequest {
    address: Address,
    host: Host,
    process: i32,
    secret: i32,
}

impl CancelRequest {
    /// Sends it. Nothing is answered: the statement that is cancelled says so, or goes on.
    fn send(&self) {
        let until = Instant::now() + CANCEL_TIMEOUT;
        let mut look = || if Instant::now() < until { Wish::Wait } else { Wish::Leave };
        if let Ok(mut link) = linked(&self.address, &self.host, &mut look) {
            frontend::cancel_request(self.process, self.secret, &mut link.unsent);
            if link.send(&mut look).is_ok() {
                link.until_closed(CANCEL_TIMEOUT);
            }
        }
    }
}

/// What comes of a text of statements.
struct Talk<'r> {
    receiver: &'r dyn Receiver,
    /// The first error of the server.
    failed: Option<Report>,
    /// The first error of the receiver.
    own: Option<Report>,
    /// Nothing more is given to the receiver.
    is_void: bool,
}

impl Talk<'_> {
    /// Sends what is to be sent and takes what comes of it, until the server is ready for more.
    fn run(
        &mut self,
        link: &mut Link,
        cancel: &CancelRequest,
        look: Look<'_>,
    ) -> Result<TransactionState, WireError> {
        link.send(look)?;
        let mut rows = Vec::new();
        loop {
            let message = match link.buffered()? {
                Some(message) => message,
                None => {
                    self.give(&mut rows, cancel);
                    link.next(look)?
                }
            };
            if let Message::DataRow(body) = message {
                rows.push(row_of(&body)?);
                if rows.len() >= ROWS_AT_A_TIME {
                    self.give(&mut rows, cancel);
                }
                continue;
            }
            self.give(&mut rows, cancel);
            match message {
                Message::RowDescription(body) => self.receiver.described(&columns_of(&body)?),
                Message::CommandComplete(body) if !self.is_void => {
                    self.receiver.ended(body.tag().map_err(garbled)?);
                }
                Message::CopyInResponse(body) => {
                    self.copy_in(link, body.format() != 0, look)?;
                }
                Message::CopyData(body) if !self.is_void => {
                    let taken = self.receiver.copied(body.data().to_vec());
                    self.settle(taken, cancel);
                }
                Message::ReadyForQuery(body) => {
                    return match body.status() {
                        b'I' => Ok(TransactionState::Idle),
                        b'T' => Ok(TransactionState::InTransaction),
                        b'E' => Ok(TransactionState::Failed),
                        other => Err(WireError::Garbled(format!("a state {other}"))),
                    };
                }
                other => self.heard(&other),
            }
        }
    }

    /// Takes a message that may come at any time.
    fn heard(&mut self, message: &Message) {
        match message {
            Message::ErrorResponse(body) => {
                if let Ok(report) = Report::read(body.fields()) {
                    self.failed.get_or_insert(report);
                }
            }
            Message::NoticeResponse(body) => {
                if let Ok(notice) = Report::read(body.fields()) {
                    self.receiver.noticed(&notice);
                }
            }
            _ => {}
        }
    }

    fn give(&mut self, rows: &mut Vec<Row>, cancel: &CancelRequest) {
        let rows = std::mem::take(rows);
        if !rows.is_empty() && !self.is_void {
            let taken = self.receiver.given(rows);
            self.settle(taken, cancel);
        }
    }

    /// What the receiver does not take is not to be sent.
    fn settle(&mut self, taken: Result<(), Report>, cancel: &CancelRequest) {
        if let Err(report) = taken {
            self.is_void = true;
            self.own.get_or_insert(report);
            cancel.send();
        }
    }

    /// Sends the data of a COPY, until its end or until the server has refused it.
    fn copy_in(
        &mut self,
        link: &mut Link,
        is_binary: bool,
        look: Look<'_>,
    ) -> Result<(), WireError> {
        let mut next = self.receiver.asked_for_data(is_binary).map(|()| Some(Vec::new()));
        loop {
            match next {
                Ok(Some(ref data)) => {
                    let length = i32::try_from(data.len() + 4);
                    let length =
                        length.map_err(|_| WireError::Garbled("too much data".to_owned()))?;
                    if !data.is_empty() {
                        link.unsent.put_u8(b'd');
                        link.unsent.put_i32(length);
                        link.unsent.put_slice(data);
                    }
                }
                Ok(None) => frontend::copy_done(&mut link.unsent),
                Err(report) => {
                    let message = report.message.replace('\0', " ");
                    frontend::copy_fail(&message, &mut link.unsent).map_err(garbled)?;
                    self.own.get_or_insert(report);
                    return link.send(look);
                }
            }
            let is_last = matches!(next, Ok(None));
            link.send(look)?;
            if is_last {
                return Ok(());
            }
            // Up to an error: what ends the statement comes right behind it, and is awaited later.
            while self.failed.is_none()
                && let Some(message) = link.arrived()?
            {
                self.heard(&message);
            }
            if self.failed.is_some() {
                // It takes no more, but its end.
                frontend::copy_done(&mut link.unsent);
                return link.send(look);
            }
            next = self.receiver.next_data();
        }
    }
}

fn garbled(error: std::io::Error) -> WireError {
    WireError::Garbled(error.to_string())
}

fn columns_of(body: &RowDescriptionBody) -> Result<Vec<(String, u32)>, WireError> {
    let columns = body.fields().map(|own| Ok((own.name().to_owned(), own.type_oid())));
    columns.collect().map_err(garbled)
}

fn row_of(body: &DataRowBody) -> Result<Row, WireError> {
    let cell = |range: Option<std::ops::Range<usize>>| {
        let bytes = range.map(|range| body.buffer().get(range).unwrap_or_default());
        Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
    };
    body.ranges().map(cell).collect().map_err(garbled)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Mutex;
    use std::thread;

    use super::*;

    /// Keeps what it is given, and gives data as long as it has some.
    #[derive(Default)]
    struct Kept(Mutex<Vec<String>>, Mutex<Vec<Vec<u8>>>);

    impl Kept {
        fn keep(&self, what: String) {
            self.0.lock().unwrap().push(what);
        }
    }

    impl Receiver for Kept {
        fn described(&self, columns: &[(String, u32)]) {
            self.keep(format!("{columns:?}"));
        }
        fn given(&self, rows: Vec<Row>) -> Result<(), Report> {
            rows.iter().for_each(|row| self.keep(format!("{row:?}")));
            Ok(())
        }
        fn asked_for_data(&self, _is_binary: bool) -> Result<(), Report> {
            Ok(())
        }
        fn next_data(&self) -> Result<Option<Vec<u8>>, Report> {
            Ok(self.1.lock().unwrap().pop())
        }
        fn copied(&self, data: Vec<u8>) -> Result<(), Report> {
            self.keep(String::from_utf8(data).unwrap());
            Ok(())
        }
        fn noticed(&self, notice: &Report) {
            self.keep(format!("{}: {}", notice.level, notice.message));
        }
        fn ended(&self, tag: &str) {
            self.keep(tag.to_owned());
        }
    }

    fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[kind][..], &length.to_be_bytes(), body].concat()
    }

    fn heard(stream: &mut TcpStream) -> (u8, Vec<u8>) {
        let mut head = [0; 5];
        stream.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes(head[1..].try_into().unwrap());
        let mut body = vec![0; usize::try_from(length).unwrap() - 4];
        stream.read_exact(&mut body).unwrap();
        (head[0], body)
    }

    /// A server that lets one client in without a password, and then does this.
    fn server(then: impl FnOnce(TcpStream) + Send + 'static) -> (Client, thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let serve = move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut length = [0; 4];
            stream.read_exact(&mut length).unwrap();
            let mut packet = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap() - 4];
            stream.read_exact(&mut packet).unwrap();
            assert!(packet.windows(8).any(|own| own == b"user\0me\0"), "{packet:?}");
            let begun = [
                frame(b'R', &[0; 4]),
                frame(b'S', b"server_version\x0015.0\0"),
                frame(b'K', &[0, 0, 0, 7, 0, 0, 0, 9]),
                frame(b'Z', b"I"),
            ];
            stream.write_all(&begun.concat()).unwrap();
            then(stream);
        };
        let server = thread::spawn(serve);
        let text = format!("postgres://me@127.0.0.1:{port}/selkie?sslmode=disable");
        let address = Address::read(&text, &|_| None).unwrap();
        let passwords = Passwords::new(&crate::support::signals::Interrupt::default());
        let client = Client::connect(address, passwords, &mut || Wish::Wait).unwrap();
        (client, server)
    }

    #[test]
    fn what_statements_give_is_told_in_its_order() {
        let (mut client, server) = server(|mut stream| {
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
        let kept = Kept::default();
        let ran = client.run("select", &kept, &mut || Wish::Wait);
        let Err(NotRun::Failed(report)) = ran else { panic!("{ran:?}") };
        assert_eq!((report.state.as_str(), report.position), ("22012", Some(8)));
        assert_eq!(client.state(), TransactionState::Failed);
        let expected = ["[(\"a\", 23)]", "[Some(\"42\")]", "NOTICE: so", "[None]", "SELECT 2"];
        assert_eq!(*kept.0.lock().unwrap(), expected);
        drop(client);
        server.join().unwrap();
    }

    #[test]
    fn data_is_sent_until_the_server_wants_no_more() {
        let (mut client, server) = server(|mut stream| {
            heard(&mut stream);
            stream.write_all(&frame(b'G', b"\0\0\0")).unwrap();
            assert_eq!(heard(&mut stream), (b'd', b"second".to_vec()));
            assert_eq!(heard(&mut stream), (b'd', b"first".to_vec()));
            assert_eq!(heard(&mut stream).0, b'c');
            stream.write_all(&[frame(b'C', b"COPY 2\0"), frame(b'Z', b"I")].concat()).unwrap();
            heard(&mut stream);
            stream.write_all(&frame(b'G', b"\0\0\0")).unwrap();
            heard(&mut stream);
            let failed = frame(b'E', b"SERROR\0C22P04\0Mno\0\0");
            // A server waits for no end of the data that it has refused.
            stream.write_all(&[failed, frame(b'Z', b"I")].concat()).unwrap();
            while heard(&mut stream).0 != b'c' {}
            assert_eq!(heard(&mut stream).0, b'X');
        });
        let kept = Kept(Mutex::default(), Mutex::new(vec![b"first".to_vec(), b"second".to_vec()]));
        client.run("copy", &kept, &mut || Wish::Wait).unwrap();
        assert_eq!(*kept.0.lock().unwrap(), ["COPY 2"]);
        let endless = Kept(Mutex::default(), Mutex::new(vec![b"line\n".to_vec(); 1_000_000]));
        let ran = client.run("copy", &endless, &mut || Wish::Wait);
        let Err(NotRun::Failed(report)) = ran else { panic!("{ran:?}") };
        assert_eq!(report.state, "22P04");
        assert!(!endless.1.lock().unwrap().is_empty());
        drop(client);
        server.join().unwrap();
    }

    #[test]
    fn a_connection_that_is_lost_tells_why() {
        let (mut client, server) = server(|mut stream| {
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
        let (mut client, server) = server(|mut stream| {
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
        let (mut client, server) = server(|mut stream| {
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
}
