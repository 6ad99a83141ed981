//! Pools over TCP with certificates, and the certificates.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, Issuer, KeyPair, date_time_ymd};
use tempfile::TempDir;

use crate::harness::{
    Over, Pool, Process, Setup, output, prints, refused, run, selkie, succeeds, text,
};

/// A run as short as they are.
const TINY: [&str; 9] =
    ["tpcc", "--warehouses", "1", "--scale", "100", "--threads", "2", "--duration", "1"];

/// A pool of one memory node over TCP.
#[track_caller]
fn start(test: &str, lend: &[&str]) -> Pool {
    let test = format!("tls-{test}");
    let setup = Setup { test: &test, over: Over::Tcp, memory_nodes: 1, lend, ..Setup::default() };
    Pool::start(&Setup { memory: "400M", ..setup })
}

/// Authorities and their nodes, in a directory that goes with the value.
struct Certificates(TempDir);

impl Certificates {
    fn new() -> Certificates {
        Certificates(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn at(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// An authority with nodes of these names.
    fn pool(&self, authority: &str, nodes: &[&str]) {
        succeeds(&["cert", "init", &self.at(authority), "--name", "demo"]);
        for node in nodes {
            // Named after their roles, or compute nodes.
            let role = match *node {
                "memory" | "reader" | "operator" => node,
                _ => "compute",
            };
            succeeds(&["cert", "node", &self.at(authority), node, "--role", role]);
        }
    }

    /// Replaces the certificate of a node by one that was valid once.
    fn expire(&self, authority: &str, node: &str) {
        let read = |file: &str| fs::read_to_string(self.path(authority).join(file)).unwrap();
        let key = KeyPair::from_pem(&read("ca.key")).unwrap();
        let issuer = Issuer::from_ca_cert_pem(&read("ca.pem"), key).unwrap();
        let own = KeyPair::from_pem(&read(&format!("{node}/node.key"))).unwrap();
        let names = ["selkie-node", "compute.selkie-node"].map(str::to_owned);
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
        let expired = params.signed_by(&own, &issuer).unwrap();
        fs::write(self.path(authority).join(node).join("node.pem"), expired.pem()).unwrap();
    }
}

#[test]
fn drivers_and_memory_share_a_database_over_secured_connections() {
    let certificates = Certificates::new();
    certificates.pool("ca", &["memory", "first", "second"]);
    let tls = |node: &str| certificates.at(&format!("ca/{node}"));
    let pool = start("shared", &["--tls", &tls("memory")]);
    let drivers = ["first", "second"].map(|node| {
        let more = ["--json", "--pool", &pool.url, "--tls", &tls(node)];
        Process::start(&[&TINY[..], &more].concat())
    });
    for driver in drivers {
        let report = driver.reports();
        assert_eq!(report["consistency"], "ok");
        assert!(report["tps"].as_f64().unwrap() > 0.0);
    }
    // Through the relay, like the drivers.
    let status = prints(&["pool", "status", &pool.url, "--json", "--tls", &tls("first")]);
    assert_eq!(status["memory_nodes"][0]["lives"], true);
    succeeds(&["top", &pool.url, "--once", "--tls", &tls("first")]);
    let destroy = ["pool", "destroy", &pool.url, "--force", "--tls", &tls("first")];
    refused(&destroy, 1, "a pool is removed where it is kept");
}

#[test]
fn who_does_not_belong_to_a_secured_pool_is_told_what_is_wrong() {
    let certificates = Certificates::new();
    certificates.pool("ca", &["memory", "good", "old"]);
    certificates.pool("other", &["node", "memory"]);
    certificates.pool("twin", &["node"]);
    let pool = start("refused", &["--tls", &certificates.at("ca/memory")]);
    let tpcc = |url: &str, tls: Option<&str>, expected: &str| {
        let tls: Vec<&str> = tls.iter().flat_map(|tls| ["--tls", tls]).collect();
        refused(&[&TINY[..], &["--pool", url], &tls].concat(), 1, expected);
        refused(&[&["pool", "status", &pool.url][..], &tls].concat(), 1, expected);
        refused(&[&["top", &pool.url, "--once"][..], &tls].concat(), 1, expected);
    };
    // By the relay, and where only connections of the fabric are secured.
    for url in [&pool.url, &pool.name] {
        tpcc(url, None, "it speaks TLS, and this node does not: give --tls DIR");
        for other in ["other/node", "twin/node"] {
            let other = certificates.at(other);
            tpcc(url, Some(&other), "its certificate is not of this pool's authority: make one");
        }
    }
    // A client that trusts the pool's authority, and has a certificate of another.
    let liar = certificates.path("liar");
    fs::create_dir(&liar).unwrap();
    fs::copy(certificates.path("other/node/node.pem"), liar.join("node.pem")).unwrap();
    fs::copy(certificates.path("other/node/node.key"), liar.join("node.key")).unwrap();
    fs::copy(certificates.path("ca/ca.pem"), liar.join("ca.pem")).unwrap();
    let liar = liar.to_str().unwrap();
    tpcc(&pool.url, Some(liar), "node.pem: this node's certificate is not of this pool's");

    certificates.expire("ca", "old");
    let old = certificates.at("ca/old");
    tpcc(&pool.url, Some(&old), "node.pem: this node's certificate has expired: make another");
    refused(
        &["memnode", "--pool", &pool.name, "--memory", "10M", "--tls", &old],
        1,
        "this node's certificate has expired",
    );
    // Memory nodes are told before they are in.
    for (tls, expected) in [
        (&[][..], "it speaks TLS, and this node does not"),
        (&["--tls", &certificates.at("other/memory")], "its certificate is not of this pool's"),
    ] {
        let lend = [&["memnode", "--pool", &pool.name, "--memory", "10M"], tls].concat();
        refused(&lend, 1, expected);
    }
    // The pool is undamaged.
    let good = certificates.at("ca/good");
    succeeds(&[&TINY[..], &["--pool", &pool.url, "--tls", &good]].concat());
}

#[test]
fn who_secures_connections_does_not_talk_to_who_does_not() {
    let certificates = Certificates::new();
    certificates.pool("ca", &["node"]);
    let tls = certificates.at("ca/node");
    let pool = start("plain", &[]);
    for url in [&pool.url, &pool.name] {
        let tpcc = [&TINY[..], &["--pool", url, "--tls", &tls]].concat();
        refused(&tpcc, 1, "it does not speak TLS, and this node does: give --tls DIR to all");
    }
    let status = ["pool", "status", &pool.url, "--tls", &tls];
    refused(&status, 1, "it does not speak TLS, and this node does");
    succeeds(&["pool", "status", &pool.url]);
}

#[test]
fn options_that_contradict_or_have_no_meaning_are_refused() {
    let certificates = Certificates::new();
    certificates.pool("ca", &["node"]);
    let tls = certificates.at("ca/node");
    let lend = ["memnode", "--pool", "test-tls-none", "--memory", "1M"];
    let open = [&lend[..], &["--listen", "0.0.0.0:0", "--advertise", "127.0.0.1"]].concat();
    refused(&open, 2, "use the pool's memory; give --tls DIR, or allow that with --insecure");
    refused(&[&open[..], &["--tls", &tls]].concat(), 1, "no pool `");
    refused(&[&open[..], &["--insecure"]].concat(), 1, "no pool `");
    refused(&[&open[..], &["--insecure", "--tls", &tls]].concat(), 2, "contradicts --tls");
    refused(
        &[&TINY[..], &["--tls", &tls]].concat(),
        2,
        "--tls, --token and --insecure are for pools over",
    );

    let name = format!("test-tls-shm-{}", std::process::id());
    succeeds(&["pool", "create", &name, "--memory-nodes", "1"]);
    let lend = run(&["memnode", "--pool", &name, "--memory", "10M", "--tls", &tls]);
    succeeds(&["pool", "destroy", &name]);
    assert_eq!(lend.status.code(), Some(1));
    assert!(text(&lend.stderr).contains("are for pools over TCP"), "{}", text(&lend.stderr));

    let key = certificates.path("ca/node/node.key");
    fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
    let chmod = format!("chmod 600 {}", key.display());
    refused(&["pool", "status", "tcp:127.0.0.1:1", "--tls", &tls], 1, &chmod);
    fs::remove_file(&key).unwrap();
    let missing = format!("{}: No such file", key.display());
    refused(&["pool", "status", "tcp:127.0.0.1:1", "--tls", &tls], 1, &missing);
}

/// What is in a directory and below it.
fn files(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(path) = pending.pop() {
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(directory).unwrap().to_str().unwrap().to_owned();
            found.push(name);
            if path.is_dir() {
                pending.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn certificates_are_made_as_a_whole_once_and_for_their_owner() {
    let certificates = Certificates::new();
    let (root, ca) = (certificates.0.path(), certificates.at("ca"));
    succeeds(&["cert", "init", &format!("{ca}/"), "--name", "demo", "--days", "100"]);
    let said = succeeds(&["cert", "node", &ca, "memory-1", "--days", "99"]);
    assert_eq!(said, format!("memory-1 is ready, of role compute: --tls {ca}/memory-1\n"));
    let all = ["ca", "ca/ca.key", "ca/ca.pem", "ca/memory-1", "ca/memory-1/ca.pem"];
    let all = [&all[..], &["ca/memory-1/node.key", "ca/memory-1/node.pem"]].concat();
    assert_eq!(files(root), all);
    for key in ["ca/ca.key", "ca/memory-1/node.key"] {
        assert_eq!(fs::metadata(root.join(key)).unwrap().mode() & 0o777, 0o600, "{key}");
    }
    let read = |file: &str| fs::read(root.join(file)).unwrap();
    assert_eq!(read("ca/ca.pem"), read("ca/memory-1/ca.pem"));

    // Nothing is overwritten, and nothing half-made is left.
    let before: Vec<_> = all.iter().map(|file| fs::read(root.join(file)).ok()).collect();
    refused(&["cert", "init", &ca], 1, "is there already, and nothing is overwritten");
    refused(&["cert", "node", &ca, "memory-1"], 1, "is there already");
    refused(&["cert", "init", &format!("{ca}/ca.pem")], 1, "is there already");
    refused(&["cert", "init", &certificates.at("a/b")], 1, "No such file");
    refused(&["cert", "node", &certificates.at("none"), "a"], 1, "none/ca.key: No such file");
    refused(&["cert", "node", &ca, "late", "--days", "101"], 1, "101 days: the authority in");
    refused(&["cert", "init", &certificates.at("x"), "--days", "0"], 2, "days = 0: must be 1 to");
    let bad = run(&["cert", "node", &ca, "../up"]);
    assert_eq!(bad.status.code(), Some(2));
    fs::set_permissions(root.join("ca/ca.key"), Permissions::from_mode(0o644)).unwrap();
    refused(&["cert", "node", &ca, "b"], 1, &format!("chmod 600 {ca}/ca.key"));
    fs::set_permissions(root.join("ca/ca.key"), Permissions::from_mode(0o600)).unwrap();
    assert_eq!(files(root), all);
    let after: Vec<_> = all.iter().map(|file| fs::read(root.join(file)).ok()).collect();
    assert!(before == after, "something was changed");

    succeeds(&["cert", "init", &certificates.at("twin")]);
    fs::copy(root.join("twin/ca.key"), root.join("ca/ca.key")).unwrap();
    refused(&["cert", "node", &ca, "b"], 1, "ca.key is not the key of");
    // An empty directory does not matter.
    fs::create_dir(root.join("empty")).unwrap();
    let mut here = selkie(&["cert", "init", "."]);
    assert!(output(here.current_dir(root.join("empty"))).status.success());
    assert_eq!(files(&root.join("empty")), ["ca.key", "ca.pem"]);
}

#[test]
fn certificates_are_shown() {
    let certificates = Certificates::new();
    certificates.pool("ca", &["good", "old"]);
    certificates.expire("ca", "old");
    let [authority, good, old] =
        ["ca/ca.pem", "ca/good/node.pem", "ca/old/node.pem"].map(|file| certificates.at(file));
    let shown = prints(&["cert", "show", &authority, &good, &old, "--json"]);
    let all = shown["certificates"].as_array().unwrap();
    let of = |key: &str| all.iter().map(|c| c[key].as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(of("state"), ["valid", "valid", "expired"]);
    assert_eq!(of("file"), [&authority[..], &good, &old]);
    assert_eq!(of("subject")[1], "CN=good");
    let roles: Vec<_> = all.iter().map(|c| c["role"].as_str()).collect();
    assert_eq!(roles, [None, Some("compute"), Some("compute")]);
    assert!(of("subject")[0].ends_with(" of demo"), "{shown}");
    assert!(of("issuer").iter().all(|issuer| *issuer == of("subject")[0]));
    assert_eq!(of("until")[2], "2002-01-01T00:00:00Z");
    let table = succeeds(&["cert", "show", &good, &old]);
    assert!(table.contains("CN=good") && table.contains("expired"), "{table}");
    assert!(table.contains("role") && table.contains("compute"), "{table}");
    succeeds(&["cert", "node", &certificates.at("ca"), "boss", "--role", "operator"]);
    let boss = certificates.at("ca/boss/node.pem");
    assert_eq!(prints(&["cert", "show", &boss, "--json"])["certificates"][0]["role"], "operator");
    let bad = run(&["cert", "node", &certificates.at("ca"), "x", "--role", "root"]);
    assert_eq!(bad.status.code(), Some(2));
    assert!(text(&bad.stderr).contains("`memory`, `compute`, `reader` or `operator`"));

    let key = certificates.at("ca/good/node.key");
    refused(&["cert", "show", &good, &key], 1, "node.key holds no certificate in PEM");
    refused(&["cert", "show", &certificates.at("none")], 1, "none: No such file");
}

/// A coded pool of four memory nodes over TCP, which have certificates. All but the first join
/// through relays.
#[track_caller]
fn start_coded(test: &str, certificates: &Certificates) -> Pool {
    let memory = certificates.at("ca/memory");
    let lend = ["--tls", &memory];
    let (test, create) = (format!("tls-{test}"), ["--coding", "2+1"]);
    let setup = Setup { test: &test, over: Over::Tcp, memory_nodes: 4, ..Setup::default() };
    Pool::start(&Setup { memory: "200M", lend: &lend, create: &create, ..setup })
}

#[test]
fn roles_say_what_the_holder_of_a_certificate_may_do() {
    let certificates = Certificates::new();
    certificates.pool("ca", &["memory", "driver", "reader", "operator"]);
    let tls = |node: &str| certificates.at(&format!("ca/{node}"));
    let pool = start_coded("roles", &certificates);
    let lend = ["memnode", "--pool", &pool.url, "--memory", "10M", "--tls"];
    refused(&[&lend[..], &[&tls("driver")]].concat(), 1, "to lend memory takes role memory");
    // Also where the control plane is at hand, and does not judge.
    for url in [&pool.url, &pool.name] {
        let drive =
            |node: &str| [&TINY[..], &["--pool", url, "--tls", &tls(node)]].concat().join(" ");
        let drive = |node: &str, expected: &str| {
            let drive = drive(node);
            refused(&drive.split(' ').collect::<Vec<_>>(), 1, expected);
        };
        drive(
            "memory",
            "is of role memory, and to run a compute node takes role compute or reader",
        );
        drive("operator", "is of role operator, and to run a compute node takes role compute");
    }
    let reader = tls("reader");
    let by = |url: &str, expected: &str| {
        refused(&[&TINY[..], &["--pool", url, "--tls", &reader]].concat(), 1, expected);
    };
    by(&pool.url, "a certificate of role reader must not change labels");
    by(&pool.name, "peer mem0 refused the connection: the role in this node's certificate");
    assert!(pool.compute_nodes().is_empty(), "none of them was left behind");

    // All may look.
    for node in ["memory", "driver", "reader", "operator"] {
        let status = prints(&["pool", "status", &pool.url, "--json", "--tls", &tls(node)]);
        assert_eq!(status["memory_nodes"][3]["lives"], true);
        succeeds(&["top", &pool.url, "--once", "--tls", &tls(node)]);
    }
    let drain = |node: &str, memory: &str| {
        ["pool", "drain", &pool.url, memory, "--tls", &tls(node)].map(str::to_owned)
    };
    // Of a memory node that is not in the pool: those of the pool share a certificate here.
    succeeds(&["cert", "node", &certificates.at("ca"), "stranger", "--role", "memory"]);
    for (node, role) in [("reader", "reader"), ("stranger", "memory")] {
        let drain = drain(node, "mem3");
        let says = format!("a certificate of role {role} must not change mem");
        refused(&drain.each_ref().map(String::as_str), 1, &says);
    }
    let driver = tls("driver");
    // The reader's driver that wrote to the pool's files has said there that it loads.
    let more = ["--json", "--reload", "--pool", &pool.url, "--tls", &driver];
    assert_eq!(prints(&[&TINY[..], &more].concat())["consistency"], "ok");
    // It has to be there while the slabs move.
    let longer = [&TINY[..TINY.len() - 1], &["60", "--pool", &pool.url, "--tls", &driver]].concat();
    let mover = Process::start(&longer);
    succeeds(&drain("operator", "mem3").each_ref().map(String::as_str));
    let status = prints(&["pool", "status", &pool.url, "--json", "--tls", &tls("operator")]);
    assert_eq!(status["memory_nodes"][3]["left"], true);
    drop(mover);
}

#[test]
fn a_reader_reads_what_others_write_and_changes_nothing() {
    use selkie::{OpenError, PoolOptions, block_on};
    let certificates = Certificates::new();
    certificates.pool("ca", &["memory", "writer", "reader"]);
    let tls = |node: &str| PoolOptions::new().tls(certificates.path(&format!("ca/{node}")));
    let mut pool = start_coded("reader", &certificates);
    block_on(async {
        let writer = tls("writer").open(&pool.url).await.unwrap();
        let mut page = writer.engine().allocate().await.unwrap();
        let addr = page.addr();
        page.bytes_mut(0..5).copy_from_slice(b"hello");
        drop(page);

        let refused = tls("reader").open(&pool.url).await.map(drop).unwrap_err();
        assert!(matches!(refused, OpenError::Option { option: "reads_only", .. }), "{refused}");
        let reader = tls("reader").reads_only(true).open(&pool.url).await.unwrap();
        assert_eq!(&reader.engine().shared(addr).await.unwrap()[..5], b"hello");
        assert!(reader.engine().exclusive(addr).await.is_err());
        writer.engine().exclusive(addr).await.unwrap().bytes_mut(0..5).copy_from_slice(b"world");
        assert_eq!(&reader.engine().shared(addr).await.unwrap()[..5], b"world");
        assert_eq!(pool.compute_nodes().len(), 2);

        // Others declare a memory node dead that it misses.
        drop(pool.memory.pop());
        assert_eq!(&reader.engine().shared(addr).await.unwrap()[..5], b"world");
        writer.engine().exclusive(addr).await.unwrap().bytes_mut(0..5).copy_from_slice(b"again");
        assert_eq!(&reader.engine().shared(addr).await.unwrap()[..5], b"again");
        reader.close().await.unwrap();
        writer.close().await.unwrap();
    });
    assert!(pool.compute_nodes().is_empty());
}
