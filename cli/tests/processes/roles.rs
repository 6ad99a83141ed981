//! Roles, passwords and TLS of `selkie server`, as psql and ill-meaning clients meet them.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use crate::harness::{Pool, Process, Setup, output, refused, succeeds, text};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn pool(test: &str) -> Pool {
    Pool::start(&Setup { test, memory_nodes: 1, memory: "500M", ..Setup::default() })
}

/// A server of a pool, and where it listens.
pub(crate) fn start(pool: &str, more: &[&str]) -> (Process, SocketAddr) {
    let listen: &[&str] =
        if more.contains(&"--listen") { &[] } else { &["--listen", "127.0.0.1:0"] };
    let server = Process::start(&[&["server", "--pool", pool], listen, more].concat());
    let line = server.finds("serving ");
    let addr: SocketAddr = line.rsplit_once(" at ").unwrap().1.parse().unwrap();
    (server, SocketAddr::from(([127, 0, 0, 1], addr.port())))
}

/// Runs psql as a user with a password.
fn psql(addr: SocketAddr, (user, password): (&str, &str), options: &str, sql: &str) -> Output {
    let host = if options.contains("host=") { "" } else { "host=127.0.0.1" };
    let port = addr.port();
    let mut command = Command::new("psql");
    command
        .args(["-X", "-At", "-v", "ON_ERROR_STOP=1", "-c", sql])
        .arg(format!("{host} port={port} user={user} dbname=selkie {options}"))
        .env("PGPASSWORD", password)
        .env("PGCONNECT_TIMEOUT", "30");
    output(&mut command)
}

#[track_caller]
fn gives(addr: SocketAddr, user: (&str, &str), options: &str, sql: &str, expected: &str) {
    let output = psql(addr, user, options, sql);
    let (said, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{user:?} {options}: {error}");
    assert_eq!(said, expected, "{user:?} {options} {sql}");
}

#[track_caller]
fn fails(addr: SocketAddr, user: (&str, &str), options: &str, sql: &str, expected: &str) {
    let output = psql(addr, user, options, sql);
    let error = text(&output.stderr);
    assert!(!output.status.success(), "{user:?} {options}: {}", text(&output.stdout));
    assert!(error.contains(expected), "{user:?} {options} {sql}: {error}");
}

const ADMIN: (&str, &str) = ("admin", "open sesame");

/// Makes the first superuser, as its operator does.
pub(crate) fn make_admin(pool: &Pool) {
    let sql = "create role admin superuser login password 'open sesame'";
    succeeds(&["sql", "--pool", &pool.url, "-c", sql]);
}

#[test]
fn roles_log_in_at_every_server_of_the_pool_and_nobody_else_does() {
    let pool = pool("roles");
    let (_first, one) = start(&pool.url, &[]);
    let (_second, two) = start(&pool.url, &[]);
    // As long as there are no roles anybody is let in, and may make the first.
    let anybody = ("anybody", "");
    gives(
        two,
        anybody,
        "",
        "create table t (a int); insert into t values (7)",
        "CREATE TABLE\nINSERT 0 1\n",
    );
    gives(
        one,
        anybody,
        "",
        "create role admin superuser login password 'open sesame'",
        "CREATE ROLE\n",
    );
    for addr in [one, two] {
        gives(addr, ADMIN, "", "select current_user, session_user", "admin|admin\n");
        let wrong = "password authentication failed for user \"admin\"";
        fails(addr, ("admin", "wrong"), "", "select 1", wrong);
        let unknown = "password authentication failed for user \"anybody\"";
        fails(addr, ("anybody", "x"), "", "select 1", unknown);
    }
    gives(one, ADMIN, "", "create user app password 'a'", "CREATE ROLE\n");
    let app = ("app", "a");
    fails(two, app, "", "select a from t", "permission denied for table t");
    gives(one, ADMIN, "", "grant select on t to app", "GRANT\n");
    gives(two, app, "", "select a from t", "7\n");
    fails(two, app, "", "insert into t values (1)", "permission denied for table t");
    fails(two, app, "", "create role x", "permission denied to create role");
    fails(one, app, "", "drop table t", "must be owner of table t");
    gives(two, ADMIN, "", "revoke select on t from app", "REVOKE\n");
    fails(one, app, "", "select a from t", "permission denied for table t");
    gives(two, ADMIN, "", "alter role app nologin", "ALTER ROLE\n");
    fails(one, app, "", "select 1", "role \"app\" is not permitted to log in");
    gives(two, ADMIN, "", "alter role app login password null", "ALTER ROLE\n");
    fails(one, app, "", "select 1", "password authentication failed for user \"app\"");
    // What psql shows.
    gives(
        one,
        ADMIN,
        "",
        "create table u (a int); grant select on u to app",
        "CREATE TABLE\nGRANT\n",
    );
    gives(one, ADMIN, "", "\\dp u", "public|u|table|admin=arwdDxt/admin\napp=r/admin||\n");
    let roles = "admin|Superuser|{}\napp||{}\npostgres|Superuser, Create role, Create DB, \
        Cannot login, Replication, Bypass RLS|{}\n";
    gives(one, ADMIN, "", "\\du", roles);
}

/// An authority and a certificate of it for names.
pub(crate) struct Certificates {
    place: TempDir,
}

impl Certificates {
    pub(crate) fn new(names: &[&str]) -> Self {
        let place = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: String| std::fs::write(place.path().join(name), text).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, format!("authority of {names:?}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        write("ca.pem", params.self_signed(&key).unwrap().pem());
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let own = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        write("server.pem", own.pem());
        write("server.key", key.serialize_pem());
        Self { place }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.place.path().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn options(&self) -> [String; 4] {
        let [certificate, key] = ["server.pem", "server.key"].map(|name| self.path(name));
        ["--tls-cert".to_owned(), certificate, "--tls-key".to_owned(), key]
    }
}

#[test]
fn connections_are_secured_and_clients_can_tell_by_whom() {
    let pool = pool("roles-tls");
    make_admin(&pool);
    let (own, other) = (Certificates::new(&["127.0.0.1", "localhost"]), Certificates::new(&["x"]));
    let options = own.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let (_server, addr) = start(&pool.url, &options);
    let root = |own: &Certificates| format!("sslrootcert={}", own.path("ca.pem"));
    gives(addr, ADMIN, "sslmode=require", "select 1", "1\n");
    gives(addr, ADMIN, "sslmode=disable", "select 1", "1\n");
    gives(addr, ADMIN, &format!("sslmode=verify-full {}", root(&own)), "select 1", "1\n");
    let bound = format!("sslmode=verify-full channel_binding=require {}", root(&own));
    gives(addr, ADMIN, &bound, "select 1", "1\n");
    fails(addr, ("admin", "wrong"), &bound, "select 1", "password authentication failed");
    let unknown = format!("sslmode=verify-full {}", root(&other));
    fails(addr, ADMIN, &unknown, "select 1", "certificate verify failed");
    // A certificate for another name.
    let options = other.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let (_other, elsewhere) = start(&pool.url, &[&options[..], &["--require-tls"]].concat());
    let wrong = "does not match host name \"127.0.0.1\"";
    fails(elsewhere, ADMIN, &unknown, "select 1", wrong);
    fails(elsewhere, ADMIN, "sslmode=disable", "select 1", "takes secured connections only");
    gives(elsewhere, ADMIN, "sslmode=require", "select 1", "1\n");
    // Rows of many records.
    let output = psql(
        addr,
        ADMIN,
        "sslmode=require",
        "select repeat('x', 1000) from generate_series(1, 20000)",
    );
    assert_eq!(output.stdout.len(), 20_000 * 1_001);
}

#[test]
fn a_statement_is_cancelled_over_tls() {
    let pool = pool("roles-cancel");
    let own = Certificates::new(&["127.0.0.1"]);
    let options = own.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let (_server, addr) = start(&pool.url, &options);
    let mut session = Raw::connect(addr);
    session.write_all(&startup("anybody")).unwrap();
    let (_, key) = session.until(b'K');
    session.until(b'Z');
    session
        .write_all(&frame(b'Q', b"select count(*) from generate_series(1, 100000000000)\0"))
        .unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let request = [&16_i32.to_be_bytes()[..], &80_877_102_i32.to_be_bytes(), &key].concat();
    let mut openssl = Command::new("openssl")
        .args(["s_client", "-quiet", "-starttls", "postgres", "-connect", &addr.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = openssl.stdin.take().unwrap();
    stdin.write_all(&request).unwrap();
    stdin.flush().unwrap();
    let (kind, body) = session.until(b'E');
    assert_eq!(kind, b'E');
    assert!(text(&body).contains("57014"), "{}", text(&body));
    drop(stdin);
    let _ = openssl.kill();
    let _ = openssl.wait();
}

#[test]
fn a_server_listens_beyond_loopback_only_with_passwords_and_tls() {
    let everywhere = ["--listen", "0.0.0.0:0"];
    let server = |pool: &str, more: &[&str], expected: &str| {
        refused(&[&["server", "--pool", pool], &everywhere[..], more].concat(), 1, expected);
    };
    server("embedded:", &[], "no role can log in with a password");
    server("embedded:", &["--allow-cleartext"], "no role can log in with a password");
    let pool = pool("roles-listen");
    succeeds(&["sql", "--pool", &pool.url, "-c", "create role app login password 'a'"]);
    server(&pool.url, &["--allow-cleartext"], "no role can log in with a password");
    succeeds(&["sql", "--pool", &pool.url, "-c", "create role boss superuser login"]);
    server(&pool.url, &[], "beyond loopback a certificate is needed");
    let own = Certificates::new(&["127.0.0.1"]);
    let options = own.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let missing = own.path("nothing");
    server(&pool.url, &["--tls-cert", &missing, "--tls-key", options[3]], "nothing");
    let other = Certificates::new(&["127.0.0.1"]);
    let mixed = ["--tls-cert", &own.path("server.pem"), "--tls-key", &other.path("server.key")];
    server(&pool.url, &mixed, "server.key");
    let (_server, addr) = start(&pool.url, &[&everywhere[..], &options].concat());
    gives(addr, ("app", "a"), "sslmode=require", "select 1", "1\n");
    let (_server, addr) = start(&pool.url, &[&everywhere[..], &["--allow-cleartext"]].concat());
    gives(addr, ("app", "a"), "sslmode=disable", "select 1", "1\n");
    if let Some(own) = own_address() {
        // By that address the client is none of this machine's loopback.
        let (_server, addr) = start(&pool.url, &[&everywhere[..], &options].concat());
        let (clear, secured) =
            (format!("host={own} sslmode=disable"), format!("host={own} sslmode=require"));
        fails(addr, ("app", "a"), &clear, "select 1", "takes secured connections only");
        gives(addr, ("app", "a"), &secured, "select 1", "1\n");
    }
}

/// An address of this machine that is none of loopback.
fn own_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

/// A message with its kind.
fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = i32::try_from(body.len() + 4).unwrap();
    [&[kind][..], &length.to_be_bytes(), body].concat()
}

fn startup(user: &str) -> Vec<u8> {
    let body = format!("user\0{user}\0database\0selkie\0\0");
    let length = i32::try_from(body.len() + 8).unwrap();
    [&length.to_be_bytes()[..], &196_608_i32.to_be_bytes(), body.as_bytes()].concat()
}

fn initial(mechanism: &str, data: &[u8]) -> Vec<u8> {
    let length = i32::try_from(data.len()).unwrap();
    frame(b'p', &[mechanism.as_bytes(), b"\0", &length.to_be_bytes(), data].concat())
}

/// A connection whose bytes the test writes itself.
struct Raw {
    stream: TcpStream,
}

impl Raw {
    fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream }
    }

    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    fn read(&mut self) -> (u8, Vec<u8>) {
        let mut header = [0; 5];
        self.stream.read_exact(&mut header).unwrap();
        let length = u32::from_be_bytes(header[1..].try_into().unwrap()) as usize;
        let mut body = vec![0; length - 4];
        self.stream.read_exact(&mut body).unwrap();
        (header[0], body)
    }

    /// Reads up to a message of a kind.
    fn until(&mut self, kind: u8) -> (u8, Vec<u8>) {
        loop {
            let (found, body) = self.read();
            if found == kind {
                return (found, body);
            }
        }
    }
}

/// What a server answers to bytes, up to its end.
fn answer(addr: SocketAddr, bytes: &[&[u8]]) -> String {
    let mut raw = Raw::connect(addr);
    for part in bytes {
        raw.write_all(part).unwrap();
    }
    let _ = raw.stream.shutdown(Shutdown::Write);
    let mut all = Vec::new();
    let _ = raw.stream.read_to_end(&mut all);
    text(&all)
}

#[test]
fn what_is_no_proof_is_refused_and_leaves_nothing_behind() {
    let pool = pool("roles-raw");
    make_admin(&pool);
    let (_server, addr) = start(&pool.url, &["--max-connections", "2"]);
    let hello = startup("admin");
    let scram = "SCRAM-SHA-256";
    let first = initial(scram, b"n,,n=,r=abc");
    for (said, expected) in [
        // Something else than a password.
        (frame(b'Q', b"select 1\0"), "08P01"),
        (frame(b'P', b"\0select 1\0\0\0"), "08P01"),
        // One that says that it is long is not waited for.
        ([&b"Q"[..], &(200_i32 << 20).to_be_bytes()].concat(), "08P01"),
        ([&b"p"[..], &(200_i32 << 20).to_be_bytes()].concat(), "08P01"),
        (vec![0xff; 64], "08P01"),
        (frame(b'p', b"open sesame\0"), "08P01"),
        (frame(b'p', b""), "08P01"),
        (initial("SCRAM-SHA-1", b"n,,n=,r=abc"), "08P01"),
        (initial("SCRAM-SHA-256-PLUS", b"p=tls-server-end-point,,n=,r=abc"), "08P01"),
        (initial(scram, b"p=tls-server-end-point,,n=,r=abc"), "08P01"),
        (initial(scram, b""), "08P01"),
        (initial(scram, b"n,,"), "08P01"),
        (initial(scram, b"n,,n=,r="), "08P01"),
        (initial(scram, b"n,,n=,r=\xff\xfe"), "08P01"),
        (initial(scram, b"n,,m=x,n=,r=abc"), "08P01"),
        (initial(scram, b"n,a=boss,n=,r=abc"), "0A000"),
        (frame(b'p', b"SCRAM-SHA-256\0\xff\xff\xff\xff"), "08P01"),
        (frame(b'p', b"SCRAM-SHA-256\0\0\0\0\x09n,,n=,r=abc"), "08P01"),
        ([first.clone(), frame(b'p', b"")].concat(), "08P01"),
        ([first.clone(), frame(b'p', b"c=biws,r=abc,p=AAAA")].concat(), "08P01"),
        ([first.clone(), frame(b'p', b"c=eSws,r=abc,p=AAAA")].concat(), "28000"),
        ([first.clone(), frame(b'Q', b"select 1\0")].concat(), "08P01"),
    ] {
        let found = answer(addr, &[&hello, &said]);
        assert!(found.contains(expected) && !found.contains("28P01"), "{said:?}: {found:?}");
        assert!(!found.contains("server_version"), "{said:?}: {found:?}");
    }
    // Cut anywhere.
    for end in 0..first.len() {
        let found = answer(addr, &[&hello, &first[..end]]);
        assert!(!found.contains("server_version"), "{end}: {found:?}");
    }
    // A role that is not there is asked as one that is.
    let asked = |user: &str| {
        let mut raw = Raw::connect(addr);
        raw.write_all(&[startup(user), first.clone()].concat()).unwrap();
        let offered = raw.read();
        let (_, body) = raw.read();
        let message = text(&body[4..]);
        let salt = message.split(",s=").nth(1).unwrap().to_owned();
        let nonce = message.strip_prefix("r=").unwrap().split(',').next().unwrap().to_owned();
        // Its proof is of the right form, and wrong.
        let last = format!("c=biws,r={nonce},p={}=", "A".repeat(43));
        raw.write_all(&frame(b'p', last.as_bytes())).unwrap();
        let (_, error) = raw.read();
        (offered, message.len(), salt, text(&error).replace(user, "USER"))
    };
    let (known, unknown) = (asked("admin"), asked("nobody"));
    assert_eq!((&known.0, known.1, &known.3), (&unknown.0, unknown.1, &unknown.3));
    assert!(known.3.contains("28P01"), "{}", known.3);
    assert_eq!(unknown.2, asked("nobody").2);
    assert_ne!(unknown.2, asked("unknown").2);
    // Those that stop half-way hold no place of a session.
    let idle: Vec<Raw> = (0..20)
        .map(|_| {
            let mut raw = Raw::connect(addr);
            raw.write_all(&hello).unwrap();
            raw
        })
        .collect();
    gives(addr, ADMIN, "", "select 1", "1\n");
    drop(idle);
    gives(addr, ADMIN, "", "select 1", "1\n");
}

#[test]
fn nothing_that_came_in_the_clear_is_taken_after_a_handshake() {
    let pool = pool("roles-clear");
    make_admin(&pool);
    let own = Certificates::new(&["127.0.0.1"]);
    let options = own.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let (_server, addr) = start(&pool.url, &options);
    let request = [&8_i32.to_be_bytes()[..], &80_877_103_i32.to_be_bytes()].concat();
    // A start-up packet right behind the request: it has to be TLS then, and is not.
    let found = answer(addr, &[&request, &startup("admin")]);
    assert!(found.starts_with('S') && !found.contains("SCRAM"), "{found:?}");
    // TLS without a request.
    let found = answer(addr, &[&[0x16, 3, 1, 2, 0, 1, 0]]);
    assert!(found.contains("08P01"), "{found:?}");
    // A request within a request is refused, and so is a secured connection by GSSAPI.
    let gss = [&8_i32.to_be_bytes()[..], &80_877_104_i32.to_be_bytes()].concat();
    let found = answer(addr, &[&gss, &startup("admin")]);
    assert!(found.starts_with('N') && found.contains("SCRAM-SHA-256"), "{found:?}");
    assert!(!found.contains("PLUS"), "{found:?}");
    gives(addr, ADMIN, "sslmode=require", "select 1", "1\n");
}
