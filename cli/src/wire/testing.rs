//! A server of one connection for tests, which lets a client in and then does what a test says.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use super::address::Address;
use super::client::{Client, Receiver, Row};
use super::link::{WireError, Wish};
use super::password::Passwords;
use super::report::Report;
use crate::support::signals::Interrupt;

/// How long a wait may take that would not end if the code were wrong.
pub(super) const BOUND: Duration = Duration::from_secs(60);

/// Keeps what it is given, and gives data as long as it has some, the last first.
#[derive(Default)]
pub(super) struct Kept {
    told: Mutex<Vec<String>>,
    data: Mutex<Vec<Vec<u8>>>,
}

impl Kept {
    pub(super) fn with(data: Vec<Vec<u8>>) -> Self {
        Self { data: Mutex::new(data), ..Self::default() }
    }

    /// What it was given.
    pub(super) fn told(&self) -> Vec<String> {
        self.told.lock().unwrap().clone()
    }

    /// How many parts of its data nobody has taken.
    pub(super) fn left(&self) -> usize {
        self.data.lock().unwrap().len()
    }

    fn keep(&self, what: String) {
        self.told.lock().unwrap().push(what);
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
        Ok(self.data.lock().unwrap().pop())
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

/// A message of this kind.
pub(super) fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind][..], &length.to_be_bytes(), body].concat()
}

/// The next message of a client: its kind and what is in it.
pub(super) fn heard(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut kind = [0];
    stream.read_exact(&mut kind).unwrap();
    (kind[0], packet(stream))
}

/// What is behind a length.
fn packet(stream: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut body = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap() - 4];
    stream.read_exact(&mut body).unwrap();
    body
}

/// Accepts a connection of the user `me`, without TLS, which is told nothing yet.
pub(super) fn accepted(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    stream.set_write_timeout(Some(BOUND)).unwrap();
    let packet = packet(&mut stream);
    assert!(packet.windows(8).any(|own| own == b"user\0me\0"), "{packet:?}");
    stream
}

/// Lets a client in.
pub(super) fn let_in(stream: &mut TcpStream) {
    let begun = [
        frame(b'R', &[0; 4]),
        frame(b'S', b"server_version\x0015.0\0"),
        frame(b'K', &[0, 0, 0, 7, 0, 0, 0, 9]),
        frame(b'Z', b"I"),
    ];
    stream.write_all(&begun.concat()).unwrap();
}

/// Connects the user `me` to the first of these servers that lets it in.
pub(super) fn connect(servers: &[SocketAddr]) -> Result<Client, WireError> {
    let hosts: Vec<String> = servers.iter().map(ToString::to_string).collect();
    let text = format!("postgres://me@{}/selkie?sslmode=disable", hosts.join(","));
    let address = Address::read(&text, &|_| None).unwrap();
    Client::connect(address, Passwords::new(&Interrupt::default()), &mut || Wish::Wait)
}

/// A server that lets one client in without a password, and then does this with its connection and
/// with others that come.
pub(super) fn server(
    then: impl FnOnce(TcpStream, TcpListener) + Send + 'static,
) -> (Client, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let serve = move || {
        let mut stream = accepted(&listener);
        let_in(&mut stream);
        then(stream, listener);
    };
    let server = spawn(serve);
    (connect(&[at]).unwrap(), server)
}
