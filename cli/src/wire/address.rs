//! Which server, as which user: what is typed, and the variables of the environment that all
//! clients of PostgreSQL take.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The port of a server that names none.
const PORT: u16 = 5432;
/// The database of a server that names none: that of every pool.
const DATABASE: &str = "selkie";
/// How long a server has to take a connection, unless `connect_timeout` says so.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// What may stand behind the `?`.
const PARAMETERS: &str = "user, password, dbname, host, port, sslmode, sslrootcert, \
    channel_binding, connect_timeout, application_name, options";

/// Whether a connection is secured, and whom it believes to be the server, as libpq has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SslMode {
    Disable,
    /// If the server can.
    Prefer,
    /// Always; any certificate is believed, unless that of an authority is there.
    Require,
    /// The server shows a certificate that the authority has signed.
    VerifyCa,
    /// The server shows a certificate that the authority has signed for the server's name.
    VerifyFull,
}

/// Whether the password is proved for this very connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChannelBinding {
    Disable,
    Prefer,
    Require,
}

/// What nobody is shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(super) name: String,
    pub(super) port: u16,
    /// Where it was reached. Other connections to the same server go there: the name may by then
    /// stand for another.
    pub(super) at: Option<SocketAddr>,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.contains(':') {
            true => write!(f, "[{}]:{}", self.name, self.port),
            false => write!(f, "{}:{}", self.name, self.port),
        }
    }
}

/// Where servers are, and as whom they are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// One is asked after the other until one answers.
    pub(super) hosts: Vec<Host>,
    pub(crate) user: String,
    pub(crate) database: String,
    pub(super) password: Option<Secret>,
    pub(super) ssl: SslMode,
    pub(super) root: Option<PathBuf>,
    pub(super) binding: ChannelBinding,
    pub(super) connect_timeout: Duration,
    pub(super) application: String,
    pub(super) options: Option<String>,
}

/// Why that is no address of a server.
///
/// Nothing of what was typed is in it: where that is wrong, any part of it may be the password.
/// `postgres://u:pass/word@h` has `pass` where a port is looked for, and `word@h` as its database.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AddressError {
    #[error(
        "a pool is given by --pool; a server is HOST:PORT or postgres://USER@HOST:PORT/DATABASE"
    )]
    Pool,
    #[error(
        "this is no address of a server: it is HOST:PORT or postgres://USER@HOST:PORT/DATABASE"
    )]
    Form,
    #[error(
        "this is no address of a server: an @ behind a / or ? is written %40, and a / or ? in a user or a password %2F or %3F"
    )]
    At,
    #[error("this is no address of a server: a % in it is written %25")]
    Percent,
    #[error("the port of a server is a number from 1 to 65535")]
    Port,
    #[error("servers are reached by TCP only, not by a Unix socket")]
    Socket,
    #[error("a parameter of a server is not known; there are {PARAMETERS}")]
    Unknown,
    #[error("the parameter {name} of a server is {allowed}")]
    Value { name: &'static str, allowed: &'static str },
}

/// What the variables of the environment say.
pub(crate) type Environment<'e> = &'e dyn Fn(&str) -> Option<String>;

impl Address {
    /// Reads what a user has typed: `HOST[:PORT]` or a URL as libpq takes it. What it does not say
    /// the environment may.
    ///
    /// # Errors
    /// [`AddressError`].
    pub(crate) fn read(text: &str, environment: Environment<'_>) -> Result<Self, AddressError> {
        if ["shm:", "tcp:", "embedded:"].iter().any(|pool| text.starts_with(pool)) {
            return Err(AddressError::Pool);
        }
        let mut parts = Parts::default();
        match text.split_once("://") {
            Some(("postgres" | "postgresql", rest)) => parts.url(rest)?,
            Some(_) => return Err(AddressError::Form),
            None if text.contains(['/', '=', '@', '?']) || text.is_empty() => {
                return Err(AddressError::Form);
            }
            None => parts.hosts = text.to_owned(),
        }
        parts.address(environment)
    }
}

/// What was said, as texts.
#[derive(Default)]
struct Parts {
    hosts: String,
    user: Option<String>,
    password: Option<String>,
    database: Option<String>,
    parameters: Vec<(String, String)>,
}

impl Parts {
    /// What stands behind `postgres://`.
    fn url(&mut self, rest: &str) -> Result<(), AddressError> {
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        // Else a part of a password would be taken for a host, a database or a parameter.
        if database.contains('@') || query.contains('@') {
            return Err(AddressError::At);
        }
        let (who, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = match who.split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (who, None),
        };
        let some =
            |text: &str| decoded(text).map(|text| Some(text).filter(|text| !text.is_empty()));
        (self.user, self.database) = (some(user)?, some(database)?);
        self.password = password.map(decoded).transpose()?;
        self.hosts = decoded(hosts)?;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            self.parameters.push((decoded(name)?, decoded(value)?));
        }
        Ok(())
    }

    fn address(self, environment: Environment<'_>) -> Result<Address, AddressError> {
        let set = |name: &str| environment(name).filter(|value| !value.is_empty());
        let mut given = Self { parameters: Vec::new(), ..self };
        let mut own = Address {
            hosts: Vec::new(),
            user: String::new(),
            database: String::new(),
            password: None,
            ssl: SslMode::Prefer,
            root: set("PGSSLROOTCERT").map(PathBuf::from),
            binding: ChannelBinding::Prefer,
            connect_timeout: CONNECT_TIMEOUT,
            application: "selkie sql".to_owned(),
            options: set("PGOPTIONS"),
        };
        let mut port = set("PGPORT");
        let from = [
            ("PGSSLMODE", "sslmode"),
            ("PGCHANNELBINDING", "channel_binding"),
            ("PGCONNECT_TIMEOUT", "connect_timeout"),
        ];
        let from = from.into_iter().filter_map(|(of, name)| Some((name.to_owned(), set(of)?)));
        // What is typed comes behind what is set, and so is what holds.
        for (name, value) in from.chain(self.parameters) {
            match &*name {
                "user" => given.user = Some(value),
                "password" => given.password = Some(value),
                "dbname" => given.database = Some(value),
                "host" => given.hosts = value,
                "port" => port = Some(value),
                "sslmode" => own.ssl = ssl_mode(&value)?,
                "sslrootcert" => own.root = Some(value.into()),
                "channel_binding" => own.binding = binding(&value)?,
                "connect_timeout" => own.connect_timeout = timeout(&value)?,
                "application_name" => own.application = value,
                "options" => own.options = Some(value),
                _ => return Err(AddressError::Unknown),
            }
        }
        let hosts = Some(given.hosts).filter(|hosts| !hosts.is_empty()).or_else(|| set("PGHOST"));
        let port = port.as_deref().map_or(Ok(PORT), port_of)?;
        let hosts = hosts.as_deref().unwrap_or("localhost").split(',').map(|one| host(one, port));
        own.hosts = hosts.collect::<Result<_, _>>()?;
        let user = given.user.or_else(|| set("PGUSER")).or_else(|| user_of_system(environment));
        own.user = user.unwrap_or_else(|| "postgres".to_owned());
        let database = given.database.or_else(|| set("PGDATABASE"));
        own.database = database.unwrap_or_else(|| DATABASE.to_owned());
        own.password = given.password.or_else(|| environment("PGPASSWORD")).map(Secret::new);
        Ok(own)
    }
}

fn host(text: &str, port: u16) -> Result<Host, AddressError> {
    if text.starts_with('/') {
        return Err(AddressError::Socket);
    }
    let (name, own) = match text.strip_prefix('[') {
        Some(rest) => {
            let (name, behind) = rest.split_once(']').ok_or(AddressError::Form)?;
            match behind {
                "" => (name, None),
                _ => (name, Some(behind.strip_prefix(':').ok_or(AddressError::Form)?)),
            }
        }
        None => match text.split_once(':') {
            // An address of IPv6 needs its brackets if a port is behind it.
            Some((_, port)) if port.contains(':') => (text, None),
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        },
    };
    let port = own.map_or(Ok(port), port_of)?;
    let name = if name.is_empty() { "localhost" } else { name };
    match name.contains(char::is_whitespace) {
        true => Err(AddressError::Form),
        false => Ok(Host { name: name.to_owned(), port, at: None }),
    }
}

fn port_of(text: &str) -> Result<u16, AddressError> {
    let port = text.parse().ok().filter(|port| *port > 0);
    port.ok_or(AddressError::Port)
}

fn ssl_mode(text: &str) -> Result<SslMode, AddressError> {
    Ok(match text {
        "disable" => SslMode::Disable,
        // The other way round it would be in the clear where it need not be.
        "allow" | "prefer" => SslMode::Prefer,
        "require" => SslMode::Require,
        "verify-ca" => SslMode::VerifyCa,
        "verify-full" => SslMode::VerifyFull,
        _ => {
            let allowed = "disable, allow, prefer, require, verify-ca or verify-full";
            return Err(AddressError::Value { name: "sslmode", allowed });
        }
    })
}

fn binding(text: &str) -> Result<ChannelBinding, AddressError> {
    Ok(match text {
        "disable" => ChannelBinding::Disable,
        "prefer" => ChannelBinding::Prefer,
        "require" => ChannelBinding::Require,
        _ => {
            let allowed = "disable, prefer or require";
            return Err(AddressError::Value { name: "channel_binding", allowed });
        }
    })
}

/// Seconds; 0 is no bound in libpq, and a day here.
fn timeout(text: &str) -> Result<Duration, AddressError> {
    const DAY_S: u64 = 86_400;
    match text.parse::<u64>() {
        Ok(0) => Ok(Duration::from_secs(DAY_S)),
        Ok(seconds) if seconds <= DAY_S => Ok(Duration::from_secs(seconds)),
        _ => Err(AddressError::Value { name: "connect_timeout", allowed: "0 to 86400 seconds" }),
    }
}

/// Text in which `%` stands before the digits of a byte.
fn decoded(text: &str) -> Result<String, AddressError> {
    let wrong = || AddressError::Percent;
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        match (first, behind) {
            (b'%', [high, low, behind @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                let (high, low) = (digit(high).ok_or_else(wrong)?, digit(low).ok_or_else(wrong)?);
                bytes.push(u8::try_from(high * 16 + low).map_err(|_| wrong())?);
                rest = behind;
            }
            (b'%', _) => return Err(wrong()),
            (byte, behind) => {
                bytes.push(*byte);
                rest = behind;
            }
        }
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// The name of the user at this machine.
fn user_of_system(environment: Environment<'_>) -> Option<String> {
    let set = |name: &str| environment(name).filter(|value| !value.is_empty());
    set("USER").or_else(|| set("LOGNAME")).or_else(|| {
        let id = rustix::process::getuid().as_raw().to_string();
        let users = std::fs::read_to_string("/etc/passwd").ok()?;
        let mut lines = users.lines().map(|line| line.split(':'));
        lines.find_map(|mut fields| {
            let name = fields.next()?;
            (fields.nth(1)? == id).then(|| name.to_owned())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(name: &str) -> Option<String> {
        (name == "USER").then(|| "me".to_owned())
    }

    fn hosts(text: &str) -> Vec<String> {
        let own = Address::read(text, &none).unwrap();
        own.hosts.iter().map(Host::to_string).collect()
    }

    #[test]
    fn a_server_is_a_host_with_a_port_or_a_url() {
        assert_eq!(hosts("db"), ["db:5432"]);
        assert_eq!(hosts("127.0.0.1:5433"), ["127.0.0.1:5433"]);
        assert_eq!(hosts("[::1]:5433"), ["[::1]:5433"]);
        assert_eq!(hosts("::1"), ["[::1]:5432"]);
        assert_eq!(hosts("a:1,b:2"), ["a:1", "b:2"]);
        assert_eq!(hosts("postgres://"), ["localhost:5432"]);
        assert_eq!(hosts("postgres://a,b:7/d?port=6"), ["a:6", "b:7"]);
        let url = "postgresql://u%40x:p%3Aw@h:1/d?sslmode=verify-full&sslrootcert=ca.pem\
            &connect_timeout=3&application_name=a%20b&options=-c%20a%3D1&channel_binding=require";
        let own = Address::read(url, &none).unwrap();
        assert_eq!((own.user.as_str(), own.database.as_str()), ("u@x", "d"));
        assert_eq!((own.password, own.ssl), (Some(Secret::new("p:w")), SslMode::VerifyFull));
        assert_eq!(own.root, Some(PathBuf::from("ca.pem")));
        assert_eq!(
            (own.connect_timeout, own.application.as_str()),
            (Duration::from_secs(3), "a b")
        );
        assert_eq!(
            (own.options.as_deref(), own.binding),
            (Some("-c a=1"), ChannelBinding::Require)
        );
    }

    #[test]
    fn the_environment_says_what_is_not_typed() {
        let set = |name: &str| {
            let value = match name {
                "PGUSER" => "admin",
                "PGPASSWORD" => "sesame",
                "PGDATABASE" => "other",
                "PGPORT" => "99",
                "PGSSLMODE" => "require",
                _ => return None,
            };
            Some(value.to_owned())
        };
        let own = Address::read("h", &set).unwrap();
        assert_eq!((own.user.as_str(), own.database.as_str()), ("admin", "other"));
        assert_eq!((own.ssl, own.hosts[0].port), (SslMode::Require, 99));
        assert_eq!(own.password, Some(Secret::new("sesame")));
        let own = Address::read("postgres://u@h:1/d?sslmode=disable", &set).unwrap();
        assert_eq!((own.user.as_str(), own.database.as_str()), ("u", "d"));
        assert_eq!((own.ssl, own.hosts[0].port), (SslMode::Disable, 1));
        let own = Address::read("h", &none).unwrap();
        assert_eq!((own.user.as_str(), own.database.as_str()), ("me", "selkie"));
    }

    #[test]
    fn what_is_no_address_is_refused_without_its_password() {
        let said = |text: &str| Address::read(text, &none).unwrap_err().to_string();
        assert!(said("shm:demo").starts_with("a pool is given by --pool"));
        for text in ["h:0", "h:x", "h:70000", "postgres://h/d?port=x"] {
            assert!(said(text).starts_with("the port of a server is"), "{text}");
        }
        assert!(said("postgres://%2Ftmp/d").contains("not by a Unix socket"));
        let allowed = "the parameter sslmode of a server is disable, allow, prefer, ";
        assert!(said("postgres://h/d?sslmode=maybe").starts_with(allowed));
        assert!(said("postgres://h/d?colour=red").starts_with("a parameter of a server is not"));
        for wrong in ["mysql://u@h/d", "u@h", "postgres://u%@h", "", "a b", "[::1", "host=a"] {
            assert!(said(wrong).starts_with("this is no address of a server: "), "{wrong}");
        }
        // A / or ? splits the password, and each part stands where another thing is looked for.
        for wrong in [
            "host=a password=sesame",
            "host=a password = sesame",
            "u:sesame@h",
            "u:sesame/x",
            "u:sesame",
            "mysql://u:sesame/h",
            "postgres://u:sesame",
            "postgres://u:sesame%@h",
            "postgres://u:sesame/x@h",
            "postgres://u:5432/sesame@h",
            "postgres://u:x/sesame@h/d",
            "postgres://u:sesame?x@h/d",
            "postgres://u:5432?sesame@h/d",
            "postgres://u:5432?user=sesame@h/d",
            "postgres://u:x@/sesame@h",
            "postgres://h/d?password=a&sesame",
            "postgres://h/d?sslmode=require;password=sesame",
            "postgres://h/d?connect_timeout=1;sesame",
        ] {
            let error = Address::read(wrong, &none).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("sesame"), "{wrong}: {shown}");
        }
        let own = Address::read("postgres://u:x%2Fy%3Fz%40@h/a%40b", &none).unwrap();
        assert_eq!((own.password, own.hosts.len()), (Some(Secret::new("x/y?z@")), 1));
        assert_eq!(own.database, "a@b");
        let shown = format!("{:?}", Address::read("postgres://u:sesame@h", &none).unwrap());
        assert!(!shown.contains("sesame"), "{shown}");
    }
}
