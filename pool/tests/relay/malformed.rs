//! Bytes that are not of the protocol, sent to a plane and to a relay.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

use selkie_pool::control::{
    ControlError, ControlPlane, RELAY_MAGIC, RelayError, RemotePlane, Version,
};

use crate::common::{LONG, block_on, pool, remote, replace, version_of};
use crate::relay_server::RelayServer;

#[test]
fn what_is_no_relay_is_passed_over_and_named() {
    let magic = u64::from_le_bytes(*b"SELKCTL!").to_le_bytes();
    let ours = version_of_messages().to_le_bytes();
    let start = [&magic[..], &ours].concat();
    let welcome = [&start[..], &0_u32.to_le_bytes()].concat();
    let cases = [
        (b"HTTP/1.1 400 Bad Request".to_vec(), "not of a relay"),
        (Vec::new(), "ended in the middle"),
        (magic.to_vec(), "ended in the middle"),
        ([&start[..], &9_u32.to_le_bytes()].concat(), "a verdict 9"),
        ([&start[..], &2_u32.to_le_bytes()].concat(), "no room"),
        (
            [&start[..], &4_u32.to_le_bytes(), &2_u32.to_le_bytes(), b"{}"].concat(),
            "not understood",
        ),
        ([&start[..], &4_u32.to_le_bytes()].concat(), "ended in the middle"),
        ([&welcome[..], &(16_u32 << 20 | 1).to_le_bytes()].concat(), "16777217 bytes"),
        ([&welcome[..], &2_u32.to_le_bytes(), b"{}"].concat(), "not understood"),
        ([&welcome[..], &9_u32.to_le_bytes(), b"{}"].concat(), "ended in the middle"),
    ];
    let servers: Vec<_> = cases.iter().map(|(says, _)| Canned::start(says.clone())).collect();
    let mut endpoints: Vec<String> = servers.iter().map(|server| server.endpoint.clone()).collect();
    let error = block_on(remote(&endpoints).load()).unwrap_err();
    assert!(matches!(error, ControlError::Unavailable { .. }), "{error}");
    for (endpoint, (_, wrong)) in endpoints.iter().zip(&cases) {
        let said = error.to_string();
        let said = said.split(": given up").nth(1).unwrap();
        let said = said.split("; ").find(|said| said.contains(endpoint)).unwrap();
        assert!(said.contains(wrong), "{said}");
    }
    let real = RelayServer::start(pool(1), "test");
    endpoints.push(real.endpoint());
    assert_eq!(block_on(remote(&endpoints).load()).unwrap().version, 1);

    let theirs = [&magic[..], &77_u32.to_le_bytes(), &1_u32.to_le_bytes()].concat();
    let other = Canned::start(theirs);
    let error = block_on(remote(std::slice::from_ref(&other.endpoint)).load()).unwrap_err();
    assert!(matches!(error, ControlError::Damaged { .. }), "{error}");
    let said = error.to_string();
    assert!(said.contains(&other.endpoint) && said.contains("version 0x4d"), "{said}");
}

/// Says the same to every client that says hello.
struct Canned {
    endpoint: String,
}

impl Canned {
    fn start(says: Vec<u8>) -> Canned {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        // It ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                stream.set_read_timeout(Some(LONG)).unwrap();
                if stream.read_exact(&mut [0; 12]).is_ok() {
                    let _ = stream.write_all(&says);
                    let _ = stream.shutdown(Shutdown::Write);
                }
            }
        });
        Canned { endpoint }
    }
}

/// As a relay tells it to a client that says another one.
fn version_of_messages() -> u32 {
    let server = RelayServer::start(pool(1), "test");
    let mut stream = connect(&server);
    stream.write_all(&[&RELAY_MAGIC.to_le_bytes()[..], &[0xff; 4]].concat()).unwrap();
    let mut number = || {
        let mut number = [0; 4];
        stream.read_exact(&mut number).unwrap();
        u32::from_le_bytes(number)
    };
    let [_, _, version, verdict] = [(); 4].map(|()| number());
    assert_eq!(verdict, 1);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the verdict and no more");
    version
}

fn connect(server: &RelayServer) -> TcpStream {
    let stream = TcpStream::connect(server.endpoint()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// Reads until the other end closes the connection.
fn is_closed(mut stream: TcpStream) {
    match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}"),
    }
}

/// A connection with a request at work that others must not disturb.
struct Witness {
    remote: RemotePlane,
    server: RelayServer,
    seen: Version,
}

impl Witness {
    fn new() -> Witness {
        let server = RelayServer::start(pool(1), "test");
        let remote = remote(&[server.endpoint()]);
        let seen = version_of(&remote);
        Witness { remote, server, seen }
    }

    /// With as many connections to the relay as there should be, that of the witness included.
    fn testifies(&mut self, connections: usize) {
        let known = block_on(self.remote.load()).unwrap();
        assert_eq!(known.version, self.seen);
        self.seen = replace(&self.remote, &known, 1).unwrap().unwrap();
        assert_eq!(self.server.accepted(), connections, "it is the same connection");
    }
}

#[test]
fn bytes_that_make_no_sense_close_their_connection_and_no_other() {
    let hello = [RELAY_MAGIC.to_le_bytes().to_vec(), version_of_messages().to_le_bytes().to_vec()];
    let hello = hello.concat();
    let frame = |text: &[u8]| {
        [&hello[..], &u32::try_from(text.len()).unwrap().to_le_bytes(), text].concat()
    };
    type Expected = fn(&RelayError) -> bool;
    let cases: [(Vec<u8>, Expected); 10] = [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), |error| matches!(error, RelayError::Magic { .. })),
        (vec![0; 64], |error| matches!(error, RelayError::Magic { found: 0 })),
        ([&hello[..8], &[9; 4]].concat(), |error| {
            matches!(error, RelayError::Version { theirs: 0x0909_0909, .. })
        }),
        ([&hello[..], &[0xff; 64]].concat(), |error| {
            matches!(error, RelayError::Length { bytes: 0xffff_ffff })
        }),
        ([&hello[..], &(16_u32 << 20 | 1).to_le_bytes()].concat(), |error| {
            matches!(error, RelayError::Length { bytes: 0x0100_0001 })
        }),
        (frame(b""), |error| matches!(error, RelayError::Content { .. })),
        (frame(b"\"Create\""), |error| matches!(error, RelayError::Content { .. })),
        (frame(b"{\"Load\":{\"known\":-1}}"), |error| matches!(error, RelayError::Content { .. })),
        (frame(b"\"Beats\" "), |_| false),
        (frame(&[b'['; 1 << 20]), |error| matches!(error, RelayError::Content { .. })),
    ];
    let mut witness = Witness::new();
    let ends = witness.server.ends();
    for (number, (bytes, expected)) in cases.iter().enumerate() {
        let mut stream = connect(&witness.server);
        // It may have been closed in the middle.
        let _ = stream.write_all(bytes);
        let is_good = bytes.ends_with(b"\"Beats\" ");
        if is_good {
            // What is right is answered, and closed by the client.
            let mut reply = [0; 16];
            stream.read_exact(&mut reply).unwrap();
            assert_eq!(reply[12..], [0; 4]);
            stream.shutdown(Shutdown::Write).unwrap();
        }
        is_closed(stream);
        match ends.recv_timeout(LONG).unwrap() {
            Ok(()) => assert!(is_good, "case {number}"),
            Err(error) => assert!(expected(&error), "case {number}: {error}"),
        }
        witness.testifies(number + 2);
    }
}

#[test]
fn half_a_frame_and_silence_close_their_connection_and_no_other() {
    let hello = [&RELAY_MAGIC.to_le_bytes()[..], &version_of_messages().to_le_bytes()].concat();
    let mut witness = Witness::new();
    let ends = witness.server.ends();
    let halves = [&hello[..5], &hello[..11], &[&hello[..], &[9, 0]].concat()];
    let streams = halves.map(|half| {
        let mut stream = connect(&witness.server);
        stream.write_all(half).unwrap();
        stream
    });
    streams.into_iter().for_each(is_closed);
    for _ in halves {
        let end = ends.recv_timeout(LONG).unwrap();
        assert!(matches!(end, Err(RelayError::Silent)), "{end:?}");
    }
    witness.testifies(4);
}

#[test]
fn random_bytes_close_their_connection_and_no_other() {
    const CONNECTIONS: usize = 200;
    let hello = [&RELAY_MAGIC.to_le_bytes()[..], &version_of_messages().to_le_bytes()].concat();
    let mut witness = Witness::new();
    let ends = witness.server.ends();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 16) % below
    };
    for number in 0..CONNECTIONS {
        let mut bytes = hello[..[0, 8, 12][number % 3]].to_vec();
        if number % 2 == 0 {
            // A length that is allowed.
            bytes.extend(u32::try_from(draw(64)).unwrap().to_le_bytes());
        }
        for _ in 0..draw(300) {
            bytes.push(u8::try_from(draw(256)).unwrap());
        }
        let mut stream = connect(&witness.server);
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        is_closed(stream);
    }
    let refused = (0..CONNECTIONS).filter(|_| ends.recv_timeout(LONG).unwrap().is_err()).count();
    assert!(refused > CONNECTIONS * 9 / 10, "{refused}");
    witness.testifies(CONNECTIONS + 1);
}
