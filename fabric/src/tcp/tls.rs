//! TLS of one connection, as bytes: what came is opened, what is to go is sealed. No input or
//! output happens here; who has the socket does it.

use std::io::{self, ErrorKind, IoSlice, Read, Write};

use rustls::{AlertDescription, CertificateError, Connection, Error, InvalidMessage};

use crate::distrust::{Distrust, Fault, Whose};

/// Sealed bytes received at once.
const SEALED_BYTES: usize = 64 << 10;
/// Content type and major version of the record a client of TLS begins with.
const CLIENT_BEGINS: [u8; 2] = [0x16, 0x03];
/// The fatal alert `no_application_protocol`: what a node without TLS answers to one with it, in
/// its language.
pub(super) const NOTHING_OVER_TLS: [u8; 7] = [0x15, 0x03, 0x03, 0, 2, 2, 120];

/// Whether these are the first bytes of a node that speaks TLS and connects.
pub(super) fn is_client_hello(heard: &[u8]) -> bool {
    heard.starts_with(&CLIENT_BEGINS)
}

/// One side of a connection.
pub(super) struct Tls {
    connection: Connection,
    /// Sealed bytes that came; those from `start` to `end` are not opened yet.
    sealed: Box<[u8]>,
    start: usize,
    end: usize,
    /// There was no room for all that was opened.
    holds_back: bool,
}

impl Tls {
    pub(super) fn new(connection: Connection) -> Self {
        let sealed = vec![0; SEALED_BYTES].into_boxed_slice();
        Self { connection, sealed, start: 0, end: 0, holds_back: false }
    }

    /// Whether both sides have shown who they are, as far as this side can know.
    pub(super) fn is_established(&self) -> bool {
        !self.connection.is_handshaking()
    }

    /// Whether something that has come waits for room.
    pub(super) fn holds_back(&self) -> bool {
        self.holds_back
    }

    /// Where to receive sealed bytes to, once all that came before are opened.
    pub(super) fn room(&mut self) -> &mut [u8] {
        assert!(self.start == self.end, "sealed bytes that were not opened would be lost");
        (self.start, self.end) = (0, 0);
        &mut self.sealed
    }

    /// So many bytes were received into the room.
    pub(super) fn received(&mut self, count: usize) {
        assert!(count <= self.sealed.len(), "more was received than there was room for");
        self.end = count;
    }

    /// Opens what has come, as far as there is room, which must not be empty. `None` if it takes
    /// more sealed bytes; 0 once the other side has said that it is done.
    pub(super) fn open(&mut self, room: &mut [u8]) -> Result<Option<usize>, Distrust> {
        let mut opened = 0;
        self.holds_back = false;
        while let Some(rest) = room.get_mut(opened..).filter(|rest| !rest.is_empty()) {
            match self.connection.reader().read(rest) {
                Ok(0) => return Ok(Some(opened)),
                Ok(count) => {
                    opened += count;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Err(Distrust::Broken),
            }
            if self.start == self.end {
                return Ok((opened > 0).then_some(opened));
            }
            self.take_in()?;
        }
        self.holds_back = true;
        Ok(Some(opened))
    }

    /// Goes on with the handshake by what has come. Nothing of what follows it is opened.
    pub(super) fn shake_hands(&mut self) -> Result<(), Distrust> {
        while !self.is_established() && self.start < self.end {
            self.take_in()?;
        }
        Ok(())
    }

    fn take_in(&mut self) -> Result<(), Distrust> {
        let mut sealed = self.sealed.get(self.start..self.end).unwrap_or_default();
        match self.connection.read_tls(&mut sealed) {
            // It listens no more.
            Ok(0) => self.start = self.end,
            Ok(count) => self.start += count,
            Err(_) => return Err(Distrust::Broken),
        }
        let is_handshake = !self.is_established();
        let processed = self.connection.process_new_packets();
        processed.map(drop).map_err(|error| distrust(&error, is_handshake))
    }

    /// Seals as much of `bytes` as there is space for, to be flushed. During the handshake it waits
    /// for its end.
    pub(super) fn seal(&mut self, bytes: &[u8]) -> usize {
        // It only fails for writers that are done.
        self.connection.writer().write(bytes).unwrap_or(0)
    }

    /// Whether something is to be flushed.
    pub(super) fn wants_flush(&self) -> bool {
        self.connection.wants_write()
    }

    /// Sends what is sealed, until all has gone or `send` fails.
    pub(super) fn flush(
        &mut self,
        send: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<()> {
        let mut sink = Sink(send);
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut sink) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Where sealed bytes go.
struct Sink<F>(F);

impl<F: FnMut(&[IoSlice<'_>]) -> io::Result<usize>> Write for Sink<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0)(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        (self.0)(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What an error means.
pub(super) fn distrust(error: &Error, is_handshake: bool) -> Distrust {
    let theirs = |fault| Distrust::Certificate { whose: Whose::Theirs, fault };
    match error {
        Error::InvalidMessage(InvalidMessage::InvalidContentType) if is_handshake => {
            Distrust::PeerIsPlain
        }
        Error::NoCertificatesPresented => theirs(Fault::Missing),
        Error::InvalidCertificate(why) => theirs(fault(why)),
        Error::AlertReceived(alert) => alerted(*alert),
        _ => Distrust::Broken,
    }
}

fn fault(why: &CertificateError) -> Fault {
    use CertificateError as E;
    match why {
        E::Expired | E::ExpiredContext { .. } => Fault::Expired,
        E::NotValidYet | E::NotValidYetContext { .. } => Fault::NotYetValid,
        // An authority of the same name has another key.
        E::UnknownIssuer | E::BadSignature => Fault::Foreign,
        _ => Fault::Unfit,
    }
}

/// What the other side says of this one.
fn alerted(alert: AlertDescription) -> Distrust {
    use AlertDescription as A;
    let ours = |fault| Distrust::Certificate { whose: Whose::Ours, fault };
    match alert {
        A::NoApplicationProtocol => Distrust::PeerIsPlain,
        A::CertificateRequired => ours(Fault::Missing),
        // It has found no signature of its authority, or one that its authority did not make.
        A::UnknownCA | A::DecryptError => ours(Fault::Foreign),
        A::CertificateExpired => ours(Fault::OutOfDate),
        A::BadCertificate | A::UnsupportedCertificate | A::CertificateUnknown => ours(Fault::Unfit),
        _ => Distrust::Broken,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::super::security::{NODE_NAME, Security};
    use super::*;

    /// Two sides that trust each other, of a pool whose authority is its only node.
    fn sides() -> (Tls, Tls) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([NODE_NAME.to_owned()]).unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let key = key.serialize_pem();
        let security = Security::from_pem(pem.as_bytes(), pem.as_bytes(), key.as_bytes()).unwrap();
        (security.client().unwrap(), security.server().unwrap())
    }

    fn carry(from: &mut Tls, to: &mut Tls) {
        let mut sealed = Vec::new();
        from.flush(|parts| {
            parts.iter().for_each(|part| sealed.extend_from_slice(part));
            Ok(parts.iter().map(|part| part.len()).sum())
        })
        .unwrap();
        to.room()[..sealed.len()].copy_from_slice(&sealed);
        to.received(sealed.len());
    }

    #[test]
    fn what_has_no_room_is_held_back_until_there_is_some() {
        let (mut client, mut server) = sides();
        // It waits for the end of the handshake, and does not get in its way.
        assert_eq!(client.seal(b"hello"), 5);
        while !server.is_established() {
            carry(&mut client, &mut server);
            server.shake_hands().unwrap();
            carry(&mut server, &mut client);
            client.shake_hands().unwrap();
        }
        assert!(client.is_established());
        let mut room = [0; 1000];
        assert_eq!(server.open(&mut room), Ok(Some(5)));
        assert_eq!((&room[..5], server.holds_back()), (&b"hello"[..], false));

        let long: Vec<u8> = (0..30_500_u32).map(|n| (n % 251) as u8).collect();
        assert_eq!(client.seal(&long), long.len());
        carry(&mut client, &mut server);
        for part in long.chunks(room.len()) {
            assert_eq!(server.open(&mut room), Ok(Some(part.len())));
            assert_eq!(&room[..part.len()], part);
            assert_eq!(server.holds_back(), part.len() == room.len());
        }
        assert_eq!(server.open(&mut room), Ok(None));
        assert!(!server.wants_flush(), "no tickets");
    }
}
