//! The beginning of a connection: TLS, who the user is, and the parameters of the session.

use std::cell::Cell;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{
    ChannelBinding as Binding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256,
};
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;
use selkie_server::tls_server_end_point;

use super::address::{Address, ChannelBinding, Host, Secret, SslMode};
use super::link::{Link, Look, Stream, WireError, Wish, dialed, goes_on, is_wait};
use super::password::Passwords;
use super::report::Report;
use super::secured::{Secured, of_handshake, secured};

/// A connection whose session has begun.
pub(super) struct Opened {
    pub(super) link: Link,
    pub(super) host: Host,
    /// What a request to cancel names.
    pub(super) process: i32,
    pub(super) secret: i32,
    pub(super) version: String,
    pub(super) notices: Vec<Report>,
}

/// Connects to the first server that lets the user in. One that answers and refuses the user is the
/// last that is asked, as it is for libpq: the next would only be shown the same password.
///
/// # Errors
/// [`WireError`].
pub(super) fn open(
    address: &Address,
    passwords: &mut Passwords,
    look: Look<'_>,
) -> Result<Opened, WireError> {
    let mut failed = Vec::new();
    for host in &address.hosts {
        match open_at(address, host, passwords, look) {
            Ok(opened) => return Ok(opened),
            Err(error @ (WireError::Left | WireError::Terminal(_))) => return Err(error),
            Err(error) => {
                let is_last = refuses_user(&error);
                failed.push(error);
                if is_last {
                    break;
                }
            }
        }
    }
    let only = if failed.len() == 1 { failed.pop() } else { None };
    Err(only.unwrap_or(WireError::Each(failed)))
}

/// Whether a server has refused the user, and not a connection.
fn refuses_user(error: &WireError) -> bool {
    match error {
        // The class of SQLSTATE of all that is wrong with a user or a password.
        WireError::Denied { report, .. } => report.state.starts_with("28"),
        WireError::NoPassword { .. } | WireError::Login(_) => true,
        _ => false,
    }
}

/// Looks around, and has no more patience than it was given.
struct Patience<'l> {
    look: std::cell::RefCell<Look<'l>>,
    since: Cell<Instant>,
    within: Duration,
}

impl Patience<'_> {
    fn look(&self) -> Wish {
        let is_over = self.since.get().elapsed() > self.within;
        match (self.look.borrow_mut())() {
            // There is no statement that could be cancelled.
            Wish::Cancel | Wish::Leave => Wish::Leave,
            Wish::Wait if is_over => Wish::Leave,
            Wish::Wait => Wish::Wait,
        }
    }

    /// That it left for no signal, but because it was over.
    fn named(&self, error: WireError, host: &Host) -> WireError {
        match error {
            WireError::Left if self.since.get().elapsed() > self.within => {
                WireError::Silent { host: host.clone(), after: self.within }
            }
            error => error,
        }
    }
}

fn open_at(
    address: &Address,
    host: &Host,
    passwords: &mut Passwords,
    look: Look<'_>,
) -> Result<Opened, WireError> {
    let patience = Patience {
        look: std::cell::RefCell::new(look),
        since: Cell::new(Instant::now()),
        within: address.connect_timeout,
    };
    let opened = linked(address, host, &mut || patience.look())
        .and_then(|link| begun(link, address, host, passwords, &patience));
    opened.map_err(|error| patience.named(error, host))
}

/// A connection, secured as the address wants it.
///
/// # Errors
/// [`WireError`].
pub(super) fn linked(address: &Address, host: &Host, look: Look<'_>) -> Result<Link, WireError> {
    let mut stream = dialed(host, address.connect_timeout, look)?;
    if address.ssl == SslMode::Disable {
        return Ok(Link::new(Stream::Clear(stream)));
    }
    let mut request = BytesMut::new();
    frontend::ssl_request(&mut request);
    stream.write_all(&request).map_err(WireError::Lost)?;
    // No byte behind the answer is read, so that nothing in the clear is taken for secured.
    match byte(&mut stream, look)? {
        b'S' => {
            let failed = |error| WireError::Tls { host: host.clone(), error: Box::new(error) };
            let mut stream = secured(address, &host.name, stream).map_err(failed)?;
            shake_hands(&mut stream, look).map_err(|error| match error {
                WireError::Lost(error) => match of_handshake(&error) {
                    Some(error) => failed(error),
                    None => WireError::Lost(error),
                },
                error => error,
            })?;
            Ok(Link::new(Stream::Secured(Box::new(stream))))
        }
        b'N' if address.ssl == SslMode::Prefer => Ok(Link::new(Stream::Clear(stream))),
        b'N' => Err(WireError::NoTls(host.clone())),
        _ => Err(WireError::Garbled("no answer to a request for TLS".to_owned())),
    }
}

fn byte(stream: &mut TcpStream, look: Look<'_>) -> Result<u8, WireError> {
    let mut byte = [0];
    loop {
        match stream.read(&mut byte) {
            Ok(0) => return Err(WireError::Lost(ErrorKind::UnexpectedEof.into())),
            Ok(_) => return Ok(byte[0]),
            Err(error) if is_wait(&error) => goes_on(look)?,
            Err(error) => return Err(WireError::Lost(error)),
        }
    }
}

fn shake_hands(stream: &mut Secured, look: Look<'_>) -> Result<(), WireError> {
    while stream.conn.is_handshaking() {
        match stream.conn.complete_io(&mut stream.sock) {
            Ok(_) => {}
            Err(error) if is_wait(&error) => goes_on(look)?,
            Err(error) => return Err(WireError::Lost(error)),
        }
    }
    Ok(())
}

/// A login that is under way.
struct Login<'a> {
    address: &'a Address,
    host: &'a Host,
    passwords: &'a mut Passwords,
    scram: Option<ScramSha256>,
    /// The server has proved that it knows the password, or was not asked to.
    is_proved: bool,
}

/// Tells who the user is, and waits until the session has begun.
fn begun(
    mut link: Link,
    address: &Address,
    host: &Host,
    passwords: &mut Passwords,
    patience: &Patience<'_>,
) -> Result<Opened, WireError> {
    let mut parameters = vec![
        ("user", address.user.as_str()),
        ("database", address.database.as_str()),
        ("application_name", address.application.as_str()),
        ("client_encoding", "UTF8"),
    ];
    parameters.extend(address.options.as_deref().map(|options| ("options", options)));
    let unfit = |error: io::Error| WireError::Login(error.to_string());
    frontend::startup_message(parameters, &mut link.unsent).map_err(unfit)?;
    let (mut process, mut secret, mut version) = (0, 0, String::new());
    let (mut notices, mut is_in) = (Vec::new(), false);
    let is_proved = address.binding != ChannelBinding::Require;
    let mut login = Login { address, host, passwords, scram: None, is_proved };
    let look = &mut || patience.look();
    let garbled = |error: io::Error| WireError::Garbled(error.to_string());
    loop {
        link.send(look)?;
        match link.next(look)? {
            Message::ErrorResponse(body) => {
                let report = Report::read(body.fields()).map_err(garbled)?;
                login.passwords.forget();
                return Err(WireError::Denied { host: host.clone(), report: report.into() });
            }
            Message::NoticeResponse(body) => {
                notices.push(Report::read(body.fields()).map_err(garbled)?);
            }
            Message::AuthenticationOk if login.is_proved => is_in = true,
            Message::AuthenticationOk => {
                let message = "the server lets in without the proof that was asked of it";
                return Err(WireError::Login(message.to_owned()));
            }
            Message::ParameterStatus(body) => {
                if body.name().map_err(garbled)? == "server_version" {
                    body.value().map_err(garbled)?.clone_into(&mut version);
                }
            }
            Message::BackendKeyData(body) => {
                (process, secret) = (body.process_id(), body.secret_key());
            }
            Message::ReadyForQuery(_) if is_in => break,
            message if !is_in => {
                login.answer(message, &mut link)?;
                // A user may have been asked.
                patience.since.set(Instant::now());
            }
            _ => return Err(WireError::Garbled("not in order".to_owned())),
        }
    }
    let host = Host { at: link.peer(), ..host.clone() };
    Ok(Opened { link, host, process, secret, version, notices })
}

impl Login<'_> {
    fn password(&mut self) -> Result<Secret, WireError> {
        let found = self.passwords.find(self.address, self.host);
        found.map_err(WireError::Terminal)?.ok_or_else(|| WireError::NoPassword {
            host: self.host.clone(),
            user: self.address.user.clone(),
        })
    }

    /// Answers what a server asks of a user.
    fn answer(&mut self, message: Message, link: &mut Link) -> Result<(), WireError> {
        let wrong = |error: io::Error| WireError::Login(format!("the login has failed: {error}"));
        match message {
            Message::AuthenticationSasl(body) => {
                let offered = body.mechanisms().map(|own| Ok(own.to_owned())).collect::<Vec<_>>();
                let (mechanism, binding) = self.mechanism(&offered.map_err(wrong)?, link)?;
                let scram = ScramSha256::new(self.password()?.bytes(), binding);
                let first = scram.message();
                frontend::sasl_initial_response(mechanism, first, &mut link.unsent)
                    .map_err(wrong)?;
                (self.scram, self.is_proved) = (Some(scram), false);
                Ok(())
            }
            Message::AuthenticationSaslContinue(body) => {
                let scram = self.scram.as_mut().ok_or_else(unasked)?;
                scram.update(body.data()).map_err(wrong)?;
                frontend::sasl_response(scram.message(), &mut link.unsent).map_err(wrong)
            }
            Message::AuthenticationSaslFinal(body) => {
                let mut scram = self.scram.take().ok_or_else(unasked)?;
                scram.finish(body.data()).map_err(wrong)?;
                self.is_proved = true;
                Ok(())
            }
            Message::AuthenticationMd5Password(_) | Message::AuthenticationCleartextPassword
                if self.address.binding == ChannelBinding::Require =>
            {
                Err(self.no_binding())
            }
            Message::AuthenticationMd5Password(body) => {
                let password = self.password()?;
                let user = self.address.user.as_bytes();
                let hash = md5_hash(user, password.bytes(), body.salt());
                frontend::password_message(hash.as_bytes(), &mut link.unsent).map_err(wrong)
            }
            Message::AuthenticationCleartextPassword if link.is_secured() => {
                let password = self.password()?;
                frontend::password_message(password.bytes(), &mut link.unsent).map_err(wrong)
            }
            Message::AuthenticationCleartextPassword => Err(WireError::Login(format!(
                "{} asks for the password in the clear: it is given over TLS only",
                self.host
            ))),
            _ => Err(WireError::Login(format!(
                "{} asks for a way to log in that this client does not have",
                self.host
            ))),
        }
    }

    /// With channel binding a party between the two that has another certificate is found out.
    fn mechanism(
        &self,
        offered: &[String],
        link: &Link,
    ) -> Result<(&'static str, Binding), WireError> {
        let has = |name: &str| offered.iter().any(|own| own == name);
        let hash = link.certificate().and_then(tls_server_end_point);
        let hash = hash.filter(|_| self.address.binding != ChannelBinding::Disable);
        match hash {
            Some(hash) if has(SCRAM_SHA_256_PLUS) => {
                Ok((SCRAM_SHA_256_PLUS, Binding::tls_server_end_point(hash.to_vec())))
            }
            _ if self.address.binding == ChannelBinding::Require => Err(self.no_binding()),
            // The server finds out if its offer was taken out on the way.
            Some(_) if has(SCRAM_SHA_256) => Ok((SCRAM_SHA_256, Binding::unrequested())),
            None if has(SCRAM_SHA_256) => Ok((SCRAM_SHA_256, Binding::unsupported())),
            _ => Err(WireError::Login(format!(
                "{} offers no way to log in that this client has, but {}",
                self.host,
                offered.join(", ")
            ))),
        }
    }

    fn no_binding(&self) -> WireError {
        let host = self.host;
        WireError::Login(format!("{host} does not offer channel binding, which is required"))
    }
}

fn unasked() -> WireError {
    WireError::Garbled("an answer to no question".to_owned())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread::spawn;

    use super::super::testing::{accepted, connect, frame, let_in};
    use super::*;

    /// Connects to a server that answers this, and behind it to one that lets in.
    fn connects(answer: Vec<u8>) -> Result<(), String> {
        let [first, second] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let both = [&first, &second].map(|own| own.local_addr().unwrap());
        let answers = spawn(move || accepted(&first).write_all(&answer).unwrap());
        // It waits for a client that may not come, and nobody waits for it.
        spawn(move || let_in(&mut accepted(&second)));
        let connected = connect(&both);
        answers.join().unwrap();
        connected.map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn a_server_that_refuses_the_user_is_the_last_that_is_asked() {
        let refused =
            |state: &str| connects(frame(b'E', format!("SFATAL\0C{state}\0Mno\0\0").as_bytes()));
        for state in ["28P01", "28000"] {
            let error = refused(state).unwrap_err();
            assert!(error.contains(state), "{error}");
        }
        // It wants a password in the clear.
        let error = connects(frame(b'R', &[0, 0, 0, 3])).unwrap_err();
        assert!(error.contains("asks for the password in the clear"), "{error}");
        // What it refuses to all is no reason not to ask another.
        for state in ["53300", "57P03"] {
            assert_eq!(refused(state), Ok(()), "{state}");
        }
    }
}
