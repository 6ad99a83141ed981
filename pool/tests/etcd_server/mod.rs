//! An etcd for tests: the one that `SELKIE_TEST_ETCD` names, or one that is started for them and
//! ends with them.

use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use etcd_client::{Client, DeleteOptions, Error};
use selkie_pool::control::EtcdPlane;
use tempfile::TempDir;

/// How long a server may take to start.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// How often other ports are tried, if others took the free ones.
const STARTS: usize = 5;

/// Endpoints of an etcd that is in use elsewhere too, with commas between them.
const VARIABLE: &str = "SELKIE_TEST_ETCD";

/// A server that this process started, ended with the value.
pub(crate) struct Server {
    directory: TempDir,
    ports: [u16; 2],
    child: Child,
}

impl Server {
    /// Starts a server and waits until it answers.
    pub(crate) fn start() -> Server {
        for _ in 0..STARTS {
            let directory = TempDir::new().unwrap();
            // Both at once, so that they differ.
            let free = [0, 0].map(|port| TcpListener::bind(("127.0.0.1", port)).unwrap());
            let ports = free.each_ref().map(|port| port.local_addr().unwrap().port());
            drop(free);
            let child = spawn(&directory, ports);
            let mut server = Server { directory, ports, child };
            if server.answers() {
                return server;
            }
        }
        panic!("etcd does not start");
    }

    /// Ends it as a crash would.
    #[allow(dead_code, reason = "not every test that uses this module ends its server")]
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again with what it kept.
    #[allow(dead_code, reason = "not every test that uses this module ends its server")]
    pub(crate) fn restart(&mut self) {
        self.child = spawn(&self.directory, self.ports);
        assert!(self.answers(), "etcd does not start again: {}", self.log());
    }

    /// Sends it a signal.
    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Has it stand still: a signal is there before all of its threads have stopped.
    #[allow(dead_code, reason = "not every test that uses this module stops its server")]
    pub(crate) fn stop(&self) {
        self.signal("-STOP");
        let tasks = format!("/proc/{}/task", self.child.id());
        let until = Instant::now() + START_PATIENCE;
        let has_stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let status = task.and_then(|task| std::fs::read_to_string(task.path().join("status")));
            status.is_ok_and(|status| status.contains("State:\tT"))
        };
        while !std::fs::read_dir(&tasks).unwrap().all(has_stopped) {
            assert!(Instant::now() < until, "it does not stand still");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Has it go on.
    #[allow(dead_code, reason = "not every test that uses this module stops its server")]
    pub(crate) fn resume(&self) {
        self.signal("-CONT");
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[0])
    }

    /// False if it ended, because others took its ports.
    fn answers(&mut self) -> bool {
        let until = Instant::now() + START_PATIENCE;
        while self.child.try_wait().unwrap().is_none() {
            let read = async |mut client: Client| client.get("ready", None).await;
            if ask(&[self.endpoint()], read).is_ok() {
                return true;
            }
            assert!(Instant::now() < until, "etcd does not answer: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(directory: &TempDir, ports: [u16; 2]) -> Child {
    let [clients, peers] = ports.map(|port| format!("http://127.0.0.1:{port}"));
    let log = File::create(directory.path().join("log")).unwrap();
    let child = Command::new("etcd")
        .arg("--data-dir")
        .arg(directory.path().join("data"))
        .args(["--name", "test", "--initial-cluster", &format!("test={peers}")])
        .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
        .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    match child {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => panic!(
            "these tests need an etcd: install Debian's etcd-server, so that `etcd` is on PATH, or name \
             the endpoints of one in {VARIABLE}, as in {VARIABLE}=http://127.0.0.1:2379"
        ),
        Err(error) => panic!("etcd: {error}"),
    }
}

/// Asks an etcd without the plane.
pub(crate) fn ask<T>(
    endpoints: &[String],
    question: impl AsyncFnOnce(Client) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(async {
        let asked = async { question(Client::connect(endpoints, None).await?).await };
        match tokio::time::timeout(Duration::from_secs(5), asked).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::Internal("no answer".to_owned())),
        }
    })
}

/// A pool's name that no other test uses, in an etcd that may be shared. Dropping it removes the
/// pool.
pub(crate) struct Place {
    pub(crate) endpoints: Vec<String>,
    pub(crate) pool: String,
    _server: Option<Arc<Server>>,
}

impl Place {
    /// A place in the etcd of the environment, or in one that the tests of this process share.
    pub(crate) fn new() -> Place {
        match std::env::var(VARIABLE) {
            Ok(named) => Place::of(named.split(',').map(str::to_owned).collect(), None),
            Err(_) => {
                let server = shared();
                Place::of(vec![server.endpoint()], Some(server))
            }
        }
    }

    pub(crate) fn of(endpoints: Vec<String>, server: Option<Arc<Server>>) -> Place {
        let pool = format!("test-{:016x}", RandomState::new().build_hasher().finish());
        Place { endpoints, pool, _server: server }
    }

    pub(crate) fn plane(&self) -> EtcdPlane {
        EtcdPlane::at(&self.endpoints, &self.pool).unwrap()
    }

    pub(crate) fn key(&self, rest: &str) -> String {
        format!("selkie/{}/{rest}", self.pool)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let (all, options) = (self.key(""), DeleteOptions::new().with_prefix());
        // The etcd may have been ended by the test.
        let _ = ask(&self.endpoints, async |mut client| client.delete(all, Some(options)).await);
    }
}

/// The server of the tests that run now; it ends with the last of them.
fn shared() -> Arc<Server> {
    static SERVER: Mutex<Weak<Server>> = Mutex::new(Weak::new());
    let mut server = match SERVER.lock() {
        Ok(server) => server,
        // The caller that failed to start one has said why.
        Err(poisoned) => poisoned.into_inner(),
    };
    if let Some(running) = server.upgrade() {
        return running;
    }
    let started = Arc::new(Server::start());
    *server = Arc::downgrade(&started);
    started
}
