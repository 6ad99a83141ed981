//! The TLS of one connection, as bytes: received bytes are opened, bytes to be sent are sealed.
//! Nothing here does input or output: the owner of the socket does.

use std::io::{self, ErrorKind, IoSlice, Read, Write};

use rustls::{AlertDescription, CertificateError, Connection, Error, InvalidMessage};

use super::roles::certificate_of;
use crate::role::NodeCertificate;
use crate::tls_error::{CertificateFault, CertificateOwner, TlsError};

/// Sealed bytes received at once.
const SEALED_BYTES: usize = 64 << 10;
/// Content type and major version of the first record of a TLS client.
const CLIENT_HELLO_PREFIX: [u8; 2] = [0x16, 0x03];
/// The fatal alert `no_application_protocol`: the answer of a node without TLS to a node with TLS.
pub(crate) const NO_TLS_ALERT: [u8; 7] = [0x15, 0x03, 0x03, 0, 2, 2, 120];

/// Whether these are the first bytes of a TLS client.
pub(crate) fn is_client_hello(received: &[u8]) -> bool {
    received.starts_with(&CLIENT_HELLO_PREFIX)
}

/// One side of a connection.
pub(crate) struct Tls {
    connection: Connection,
    /// Received sealed bytes. Those from `start` to `end` are not opened yet.
    sealed: Box<[u8]>,
    start: usize,
    end: usize,
    /// The caller's buffer was too short for all opened bytes.
    holds_back: bool,
}

impl Tls {
    pub(crate) fn new(connection: Connection) -> Self {
        let sealed = vec![0; SEALED_BYTES].into_boxed_slice();
        Self { connection, sealed, start: 0, end: 0, holds_back: false }
    }

    /// Whether the handshake is over, as far as this side knows.
    pub(crate) fn is_established(&self) -> bool {
        !self.connection.is_handshaking()
    }

    /// What the certificate of the other side says, once the handshake is over.
    pub(crate) fn certificate(&self) -> Option<NodeCertificate> {
        self.connection.peer_certificates()?.first().and_then(certificate_of)
    }

    /// Whether opened bytes wait for a buffer.
    pub(crate) fn holds_back(&self) -> bool {
        self.holds_back
    }

    /// The space to receive sealed bytes into. All earlier ones must be opened.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        assert!(self.start == self.end, "sealed bytes that were not opened would be lost");
        (self.start, self.end) = (0, 0);
        &mut self.sealed
    }

    /// `count` bytes were received into the space that [`Tls::room`] returned.
    pub(crate) fn received(&mut self, count: usize) {
        assert!(count <= self.sealed.len(), "more was received than there was room for");
        self.end = count;
    }

    /// Opens received bytes into `room`, which must not be empty. `None` if more sealed bytes are
    /// needed, 0 once the other side has ended the connection.
    pub(crate) fn open(&mut self, room: &mut [u8]) -> Result<Option<usize>, TlsError> {
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
                Err(_) => return Err(TlsError::Broken),
            }
            if self.start == self.end {
                return Ok((opened > 0).then_some(opened));
            }
            self.take_in()?;
        }
        self.holds_back = true;
        Ok(Some(opened))
    }

    /// Continues the handshake with the received bytes. Opens nothing behind it.
    pub(crate) fn shake_hands(&mut self) -> Result<(), TlsError> {
        while !self.is_established() && self.start < self.end {
            self.take_in()?;
        }
        Ok(())
    }

    fn take_in(&mut self) -> Result<(), TlsError> {
        #[expect(
            clippy::indexing_slicing,
            reason = "`received` checks end <= len, and start <= end"
        )]
        let mut sealed = &self.sealed[self.start..self.end];
        match self.connection.read_tls(&mut sealed) {
            // The connection takes no more input.
            Ok(0) => self.start = self.end,
            Ok(count) => self.start += count,
            Err(_) => return Err(TlsError::Broken),
        }
        let is_handshake = !self.is_established();
        let processed = self.connection.process_new_packets();
        processed.map(drop).map_err(|error| tls_error(&error, is_handshake))
    }

    /// Seals as much of `bytes` as there is space for. [`Tls::flush`] sends it, once the handshake
    /// is over. Returns how many bytes were sealed.
    pub(crate) fn seal(&mut self, bytes: &[u8]) -> usize {
        // The writer fails only after it was closed; then no bytes are sealed.
        self.connection.writer().write(bytes).unwrap_or(0)
    }

    /// Whether there are bytes to flush.
    pub(crate) fn wants_flush(&self) -> bool {
        self.connection.wants_write()
    }

    /// Sends sealed bytes, until all are sent or `send` fails.
    pub(crate) fn flush(
        &mut self,
        send: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<()> {
        let mut sink = SendSink(send);
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

/// A writer of sealed bytes.
struct SendSink<F>(F);

impl<F: FnMut(&[IoSlice<'_>]) -> io::Result<usize>> Write for SendSink<F> {
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

/// Translates an error of the TLS library.
pub(crate) fn tls_error(error: &Error, is_handshake: bool) -> TlsError {
    let theirs = |fault| TlsError::Certificate { owner: CertificateOwner::Theirs, fault };
    match error {
        Error::InvalidMessage(InvalidMessage::InvalidContentType) if is_handshake => {
            TlsError::PeerIsPlain
        }
        Error::NoCertificatesPresented => theirs(CertificateFault::Missing),
        Error::InvalidCertificate(why) => theirs(certificate_fault(why)),
        Error::AlertReceived(alert) => alert_error(*alert),
        _ => TlsError::Broken,
    }
}

fn certificate_fault(why: &CertificateError) -> CertificateFault {
    use CertificateError as E;
    match why {
        E::Expired | E::ExpiredContext { .. } => CertificateFault::Expired,
        E::NotValidYet | E::NotValidYetContext { .. } => CertificateFault::NotYetValid,
        // Also an authority of the same name with another key.
        E::UnknownIssuer | E::BadSignature => CertificateFault::Foreign,
        E::ApplicationVerificationFailure => CertificateFault::NoRole,
        _ => CertificateFault::Unfit,
    }
}

/// Translates an alert: the other side's view of this side.
fn alert_error(alert: AlertDescription) -> TlsError {
    use AlertDescription as A;
    let ours = |fault| TlsError::Certificate { owner: CertificateOwner::Ours, fault };
    match alert {
        A::NoApplicationProtocol => TlsError::PeerIsPlain,
        A::CertificateRequired => ours(CertificateFault::Missing),
        // The other side found no signature of its authority, or a false one.
        A::UnknownCA | A::DecryptError => ours(CertificateFault::Foreign),
        A::AccessDenied => ours(CertificateFault::NoRole),
        A::CertificateExpired => ours(CertificateFault::OutOfDate),
        A::BadCertificate | A::UnsupportedCertificate | A::CertificateUnknown => {
            ours(CertificateFault::Unfit)
        }
        _ => TlsError::Broken,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::super::certificates::Security;
    use super::super::roles::NODE_NAME;
    use super::super::roles::role_name;
    use super::*;
    use crate::role::Role;

    /// Two sides that trust each other, in a pool whose authority is its only node.
    fn sides() -> (Tls, Tls) {
        let key = KeyPair::generate().unwrap();
        let names = [NODE_NAME.to_owned(), role_name(Role::Memory)];
        let params = CertificateParams::new(names).unwrap();
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
