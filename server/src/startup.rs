//! The beginning of a connection: what the client asks for before it may send statements.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::startup::{
    Authentication, BackendKeyData, NegotiateProtocolVersion, ParameterStatus, SecretKey,
};
use selkie_sql::{Session, SqlError, SqlResult, SqlState};

use crate::frames::FrameError;
use crate::frontend::{Fields, violation};
use crate::output::Output;
use crate::registry::{Place, Registry};
use crate::tls::Tls;
use crate::transport::Transport;

/// How long a client may take to say what it wants: it needs nobody for that.
pub(crate) const PACKET_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a client may take until it is let in: it may ask its user for a password.
pub(crate) const LOGIN_TIMEOUT: Duration = Duration::from_secs(60);

const _: () = assert!(PACKET_TIMEOUT.as_secs() < LOGIN_TIMEOUT.as_secs());

/// The version of the protocol that there is, as clients name it: 3.0.
const VERSION: i32 = 3 << 16;

/// Longest packet of a startup, in bytes.
const LONGEST_PACKET: usize = 10_000;

/// Most packets that ask for a secure connection before the one that begins a session.
const MOST_REQUESTS: usize = 4;

/// The name of the database.
const DATABASE: &str = "selkie";

const CANCEL: i32 = 80_877_102;
const TLS: i32 = 80_877_103;
const GSS: i32 = 80_877_104;

/// What a client wants.
pub(crate) enum Wanted {
    /// A session, with parameters.
    Session(Startup),
    /// That the statement of another connection is cancelled.
    Cancel { number: i32, secret: i32 },
}

/// What a client says about itself and the session that it wants.
pub(crate) struct Startup {
    pub(crate) user: String,
    /// Names and values.
    parameters: Vec<(String, String)>,
    /// If the client speaks a later version: what it wants that there is not.
    unknown_options: Option<Vec<String>>,
}

/// Reads what a client wants, from a connection that is secured if the client asks for it and can
/// be.
pub(crate) async fn wanted(
    connection: &mut Option<Transport>,
    tls: Option<&Tls>,
) -> Result<Wanted, FrameError> {
    for _ in 0..MOST_REQUESTS {
        let Some(transport) = connection else { break };
        let mut packet = transport.packet(LONGEST_PACKET).await?;
        // It has four bytes at least.
        let code = packet.get_i32();
        match code {
            TLS => match tls.filter(|_| !transport.is_secured()) {
                None => transport.answer(b'N').await?,
                Some(tls) => {
                    transport.answer(b'S').await?;
                    if let Some(clear) = connection.take() {
                        *connection = Some(clear.secured(tls).await?);
                    }
                }
            },
            GSS => transport.answer(b'N').await?,
            CANCEL => {
                let mut fields = Fields(packet);
                let (number, secret) = (fields.i32().map_err(FrameError::Broken)?, fields.i32());
                let secret = secret.map_err(FrameError::Broken)?;
                return Ok(Wanted::Cancel { number, secret });
            }
            version => {
                let (major, minor) = (version >> 16, version & 0xffff);
                if major != 3 {
                    let message = format!(
                        "unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.0"
                    );
                    let error = SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message);
                    return Err(FrameError::Broken(error));
                }
                let startup = Startup::read(packet, minor > 0);
                return startup.map(Wanted::Session).map_err(FrameError::Broken);
            }
        }
    }
    Err(FrameError::Broken(violation("too many requests for a secure connection")))
}

impl Startup {
    fn read(packet: Bytes, is_later: bool) -> SqlResult<Self> {
        let mut fields = Fields(packet);
        let (mut user, mut database, mut parameters) = (String::new(), None, Vec::new());
        let mut unknown = Vec::new();
        loop {
            let name = fields.text()?;
            if name.is_empty() {
                break;
            }
            let value = fields.text()?;
            match &*name {
                "user" => user = value,
                "database" => database = Some(value),
                "replication" if matches!(&*value, "false" | "off" | "no" | "0") => {}
                "replication" => return Err(SqlError::unsupported("replication")),
                "options" => parameters.extend(options(&value)?),
                _ if name.starts_with("_pq_.") => unknown.push(name),
                _ => parameters.push((name, value)),
            }
        }
        if user.is_empty() {
            let message = "no PostgreSQL user name specified in startup packet";
            return Err(SqlError::new(SqlState::INVALID_AUTHORIZATION, message));
        }
        // Without one the client means that of its own name: there is one database only.
        let is_known = |name: &String| [DATABASE, "postgres", &user].contains(&name.as_str());
        if let Some(name) = database.filter(|name| !is_known(name)) {
            let message = format!("database \"{name}\" does not exist");
            return Err(SqlError::new(SqlState::INVALID_CATALOG_NAME, message)
                .hint(format!("The pool has one database, \"{DATABASE}\".")));
        }
        let unknown_options = (is_later || !unknown.is_empty()).then_some(unknown);
        Ok(Self { user, parameters, unknown_options })
    }

    /// Sets up the session and tells the client that it may begin.
    pub(crate) fn begin(
        self,
        mut session: Session,
        from: SocketAddr,
        registry: &Arc<Registry>,
        output: &Output,
    ) -> SqlResult<(Session, Place)> {
        if let Some(unknown) = self.unknown_options {
            output.send(&PgWireBackendMessage::NegotiateProtocolVersion(
                NegotiateProtocolVersion::new(VERSION, unknown),
            ));
        }
        for (name, value) in &self.parameters {
            session.set_parameter(name, value)?;
        }
        session.keep_parameters();
        let place = registry.enter(session.cancel_handle()).ok_or_else(too_many)?;
        let session = session.listed(registry.sessions(), place.number, Some(from));
        output.send(&PgWireBackendMessage::Authentication(Authentication::Ok));
        send_parameters(&session, output);
        let status = ("session_authorization", self.user);
        output.send(&parameter_status(status.0, status.1));
        output.send(&PgWireBackendMessage::BackendKeyData(BackendKeyData::new(
            place.number,
            SecretKey::I32(place.secret),
        )));
        Ok((session, place))
    }
}

/// That there is no place for a client.
pub(crate) fn too_many() -> SqlError {
    SqlError::new(SqlState::TOO_MANY_CONNECTIONS, "sorry, too many clients already")
}

/// Tells the client the parameters of its session.
pub(crate) fn send_parameters(session: &Session, output: &Output) {
    for (name, value) in session.reported_parameters() {
        output.send(&parameter_status(name, value));
    }
}

fn parameter_status(name: &str, value: String) -> PgWireBackendMessage {
    PgWireBackendMessage::ParameterStatus(ParameterStatus::new(name.to_owned(), value))
}

/// The parameters of options of the command line: `-c name=value`, `-cname=value` or
/// `--name=value`.
fn options(text: &str) -> SqlResult<Vec<(String, String)>> {
    let mut words = words(text).into_iter();
    let mut parameters = Vec::new();
    while let Some(word) = words.next() {
        let setting = match (word.strip_prefix("--"), word.strip_prefix("-c")) {
            (Some(setting), _) => Some(setting.replace('-', "_")),
            (None, Some("")) => words.next(),
            (None, setting) => setting.map(str::to_owned),
        };
        let parts = setting.as_ref().and_then(|setting| setting.split_once('='));
        let Some((name, value)) = parts else {
            let message = format!("invalid command-line argument for server process: {word}");
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        };
        parameters.push((name.to_owned(), value.to_owned()));
    }
    Ok(parameters)
}

/// Words between spaces; a backslash takes the next character as it is.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => word.extend(characters.next()),
            _ if character.is_whitespace() => words.push(std::mem::take(&mut word)),
            _ => word.push(character),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn options_are_parameters() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            options(r"-c a=1  -cb=x\ y --lock-timeout=5s").unwrap(),
            [pair("a", "1"), pair("b", "x y"), pair("lock_timeout", "5s")]
        );
        for wrong in ["-c", "x", "-c novalue", "-d 3"] {
            assert_eq!(options(wrong).unwrap_err().state(), SqlState::SYNTAX_ERROR, "{wrong}");
        }
    }

    #[test]
    fn a_startup_names_a_user_and_a_database_that_there_is() {
        let read = |packet: &'static [u8]| Startup::read(Bytes::from_static(packet), false);
        assert_eq!(read(b"user\0me\0database\0me\0\0").unwrap().user, "me");
        let state = |packet| read(packet).err().unwrap().state();
        assert_eq!(state(b"\0"), SqlState::INVALID_AUTHORIZATION);
        assert_eq!(state(b"user\0me\0database\0other\0\0"), SqlState::INVALID_CATALOG_NAME);
        assert_eq!(state(b"user\0me"), SqlState::PROTOCOL_VIOLATION);
        assert_eq!(state(b"user\0me\0replication\0true\0\0"), SqlState::FEATURE_NOT_SUPPORTED);
    }
}
