//! Other databases, as child processes: a statement is a line of their input, and the answer is
//! what they write up to a mark.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use super::answer::Answer;

const MARK: &str = "<<end of the answer>>";

/// Between two columns.
const BETWEEN: char = '\u{1f}';

/// Where Debian has the programs of PostgreSQL 15.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

/// What Python runs: `sqlite3` is a module of its standard library, so that it is wherever Python
/// is, which the program `sqlite3` is not.
const SQLITE: &str = r#"
import sqlite3, sys
db = sqlite3.connect(":memory:", isolation_level=None)
db.execute("pragma case_sensitive_like = on")
sys.stdin.reconfigure(encoding="utf-8"); sys.stdout.reconfigure(encoding="utf-8")
for line in sys.stdin:
    try:
        for row in db.execute(line).fetchall():
            print("\x1f".join("NULL" if v is None else str(v) for v in row))
    except Exception as error:
        print("ERROR:  SQLITE", str(error).replace("\n", " "))
    print("<<end of the answer>>", flush=True)
"#;

/// One that answers.
pub(crate) struct Oracle {
    pub(crate) name: &'static str,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// The server behind it.
    server: Option<Server>,
}

impl Oracle {
    fn start(name: &'static str, mut command: Command, server: Option<Server>) -> Option<Self> {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().ok()?;
        let (input, output) = (child.stdin.take()?, BufReader::new(child.stdout.take()?));
        let mut own = Self { name, child, input, output, server };
        match own.ask("select 1") {
            Answer::Rows(rows) if rows.len() == 1 => Some(own),
            answer => {
                eprintln!("{name} is not compared: it says {answer:?}");
                None
            }
        }
    }

    /// SQLite in a Python of this machine.
    pub(crate) fn sqlite() -> Option<Self> {
        let mut command = Command::new("python3");
        command.args(["-c", SQLITE]);
        let own = Self::start("SQLite", command, None);
        let Some(mut own) = own else {
            eprintln!("SQLite is not compared: there is no python3 with the module sqlite3");
            return None;
        };
        // Older ones lack RIGHT JOIN, FULL JOIN and IS DISTINCT FROM.
        let Answer::Rows(rows) = own.ask("select sqlite_version()") else { return None };
        let mut parts = rows[0][0].split('.').map(|part| part.parse().unwrap_or(0));
        let version: (u32, u32) = (parts.next()?, parts.next()?);
        if version < (3, 39) {
            eprintln!("SQLite is not compared: {} is older than 3.39", rows[0][0]);
            return None;
        }
        Some(own)
    }

    /// PostgreSQL 15 with a directory of its own.
    pub(crate) fn postgres() -> Option<Self> {
        let server = Server::start()?;
        let mut command = Command::new("sh");
        command
            .args(["-c", "exec \"$0\" \"$@\" 2>&1"])
            .arg(Path::new(PROGRAMS).join("psql"))
            .args(["-X", "-q", "-A", "-t", "-h"])
            .arg(&server.directory)
            .args(["-U", "tester", "-d", "postgres", "-v", "VERBOSITY=sqlstate"])
            .args(["-P", "null=NULL", "-F", &BETWEEN.to_string()])
            .env("PGOPTIONS", "-c client_min_messages=error")
            .env("PGTZ", "UTC");
        Self::start("PostgreSQL", command, Some(server))
    }

    /// Its answer to a statement.
    pub(crate) fn ask(&mut self, sql: &str) -> Answer {
        let sql = sql.replace('\n', " ");
        let line = match self.server.is_some() {
            true => format!("{sql};\n\\echo '{MARK}'\n"),
            false => format!("{sql}\n"),
        };
        let written = self.input.write_all(line.as_bytes()).and_then(|()| self.input.flush());
        if let Err(error) = written {
            return Answer::Lost(format!("{} is gone: {error}", self.name));
        }
        let mut rows = Vec::new();
        let mut failed = None;
        let mut line = String::new();
        loop {
            line.clear();
            match self.output.read_line(&mut line) {
                Ok(0) | Err(_) => return Answer::Lost(format!("{} has ended", self.name)),
                Ok(_) => {}
            }
            let text = line.trim_end_matches('\n');
            if text == MARK {
                break;
            }
            match text.strip_prefix("ERROR:  ") {
                Some(code) => failed = Some(code.to_owned()),
                None => rows.push(text.split(BETWEEN).map(str::to_owned).collect()),
            }
        }
        failed.map_or(Answer::Rows(rows), Answer::Error)
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        drop(self.server.take());
    }
}

/// A server of PostgreSQL, which ends with this.
struct Server {
    process: Child,
    directory: PathBuf,
}

impl Server {
    fn start() -> Option<Self> {
        let programs = Path::new(PROGRAMS);
        if !programs.join("postgres").exists() || !programs.join("initdb").exists() {
            eprintln!("PostgreSQL is not compared: there is none in {PROGRAMS}");
            return None;
        }
        let directory = std::env::temp_dir().join(format!("compare{}", std::process::id()));
        std::fs::create_dir_all(&directory).ok()?;
        // It refuses to be run by root.
        let is_root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
        let user = ["postgres", "nobody"].into_iter().find(|user| {
            is_root && Command::new("id").arg(user).output().is_ok_and(|id| id.status.success())
        });
        if let Some(user) = user {
            Command::new("chown").arg(user).arg(&directory).status().ok()?;
        }
        let run = |program: &str| {
            let program = programs.join(program);
            let Some(user) = user else { return Command::new(program) };
            // `setpriv` does not fork: the child is the server itself.
            let mut command = Command::new("setpriv");
            command.args(["--reuid", user, "--clear-groups", "--"]).arg(program);
            command
        };
        let data = directory.join("data");
        let made = run("initdb")
            .current_dir("/")
            .args(["-A", "trust", "-U", "tester", "-E", "UTF8", "--locale=C", "--no-sync", "-D"])
            .arg(&data)
            .output();
        match made {
            Ok(made) if made.status.success() => {}
            other => {
                eprintln!("PostgreSQL is not compared: initdb fails: {other:?}");
                let _ = std::fs::remove_dir_all(&directory);
                return None;
            }
        }
        let socket = format!("unix_socket_directories={}", directory.display());
        let process = run("postgres")
            .current_dir("/")
            .arg("-D")
            .arg(&data)
            .args(["-c", "listen_addresses=", "-c", &socket, "-c", "fsync=off"])
            .args(["-c", "full_page_writes=off", "-c", "timezone=UTC", "-c", "jit=off"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut own = Self { process, directory };
        let until = Instant::now() + Duration::from_secs(60);
        let ready = own.directory.join(".s.PGSQL.5432");
        while !ready.exists() {
            let has_ended = !matches!(own.process.try_wait(), Ok(None));
            if has_ended || Instant::now() > until {
                eprintln!("PostgreSQL is not compared: its server does not start");
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // The socket is there a moment before the first client is let in.
        while Instant::now() < until {
            let mut asked = Command::new(programs.join("pg_isready"));
            asked.args(["-q", "-h"]).arg(&own.directory);
            if asked.status().is_ok_and(|status| status.success()) {
                return Some(own);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGQUIT ends its own children, too.
        let _ = Command::new("kill").args(["-QUIT", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
