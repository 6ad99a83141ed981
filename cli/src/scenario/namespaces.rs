//! A network of namespaces: each process in one of its own, all on a bridge in another.
//!
//! ```text
//! ...-hub: bridge --+-- port 1 === eth0 of ...-1, 10.99.0.1
//!                   +-- port 2 === eth0 of ...-2, 10.99.0.2
//! ```
//! Their names are `selkie-net-NAMESPACE-PID-...`, with the number of the harness and of the
//! namespace of processes in which that is its number. To cut a process off is to take its port of
//! the bridge down: what it sends and what is sent to it vanishes, as with a cable that is pulled.
//! To cut one way between two is to have the sender take a card that no node has for the other's:
//! what it sends there vanishes. All of it goes with the namespaces when the value is dropped. A
//! harness that is killed leaves them behind; [`Namespaces::make`] removes those of processes that
//! are gone.

use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::error::ScenarioError;
use super::processes::LOOK_EVERY;

/// What all names begin with.
const PREFIX: &str = "selkie-net-";
/// Most processes: numbers of one byte.
const MAX: usize = 200;

/// The address of a card that no node has.
const NO_CARD: &str = "02:00:00:00:ff:ff";

/// How long the tool may take for one change.
const PATIENCE: Duration = Duration::from_secs(20);

/// The network of one scenario.
pub(crate) struct Namespaces {
    hub: String,
    made: Vec<String>,
}

impl Namespaces {
    /// Makes a network for so many processes.
    pub(crate) fn make(processes: usize) -> Result<Self, ScenarioError> {
        assert!(processes <= MAX, "the plan allows fewer");
        remove_orphans();
        let hub = format!("{}hub", own());
        let mut network = Self { hub: hub.clone(), made: Vec::new() };
        network.add(&hub)?;
        ip(&["-n", &hub, "link", "add", "bridge", "type", "bridge"])?;
        ip(&["-n", &hub, "link", "set", "bridge", "up"])?;
        for position in 0..processes {
            let name = name(position);
            network.add(&name)?;
            let port = port(position);
            let pair = ["link", "add", "eth0", "netns", &name, "type", "veth"];
            ip(&[&pair[..], &["peer", "name", &port, "netns", &hub]].concat())?;
            ip(&["-n", &hub, "link", "set", &port, "master", "bridge", "up"])?;
            let address = format!("{}/24", address(position));
            ip(&["-n", &name, "address", "add", &address, "dev", "eth0"])?;
            ip(&["-n", &name, "link", "set", "lo", "up"])?;
            ip(&["-n", &name, "link", "set", "eth0", "up"])?;
        }
        Ok(network)
    }

    fn add(&mut self, name: &str) -> Result<(), ScenarioError> {
        // It may be made though the tool fails.
        self.made.push(name.to_owned());
        ip(&["netns", "add", name])
    }

    /// Takes a process's link down, or up.
    pub(crate) fn set_link(&self, position: usize, up: bool) -> Result<(), ScenarioError> {
        let state = if up { "up" } else { "down" };
        ip(&["-n", &self.hub, "link", "set", &port(position), state])
    }

    /// Has what one process sends to another vanish, or arrive again.
    pub(crate) fn set_way(
        &self,
        (from, to): (usize, usize),
        arrives: bool,
    ) -> Result<(), ScenarioError> {
        let (name, to) = (name(from), address(to).to_string());
        let neighbour = ["-n", &name, "neighbour"];
        let change = if arrives {
            ["del", &to, "dev", "eth0"].to_vec()
        } else {
            ["replace", &to, "lladdr", NO_CARD, "dev", "eth0", "nud", "permanent"].to_vec()
        };
        ip(&[&neighbour[..], &change].concat())
    }

    /// Removes all of it; what remains, by name.
    pub(crate) fn remove(&mut self) -> Vec<String> {
        self.made.retain(|name| ip(&["netns", "delete", name]).is_err());
        let own = own();
        named().into_iter().filter(|name| name.starts_with(&own)).collect()
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        let _left = self.remove();
    }
}

/// The namespace of the process of this position.
pub(crate) fn name(position: usize) -> String {
    format!("{}{}", own(), position + 1)
}

/// Its address there.
pub(crate) fn address(position: usize) -> Ipv4Addr {
    // The assertion above keeps it within a byte.
    Ipv4Addr::new(10, 99, 0, u8::try_from(position + 1).unwrap_or(u8::MAX))
}

fn port(position: usize) -> String {
    format!("port{}", position + 1)
}

/// What the names of this process begin with.
fn own() -> String {
    format!("{PREFIX}{}-{}-", process_namespace(), std::process::id())
}

/// The namespace in which this process has its number, as the system numbers these; 0 if it does
/// not tell.
fn process_namespace() -> u64 {
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let digits = link.to_string_lossy().replace(|c: char| !c.is_ascii_digit(), "");
    digits.parse().unwrap_or(0)
}

/// The process that made a namespace of this name, if it is one of `namespace` of processes, and
/// the name one of those that are given here.
fn maker(name: &str, namespace: u64) -> Option<u32> {
    let (of, rest) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let (process, part) = rest.split_once('-')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    if of != namespace.to_string() || !is_number(process) || !(part == "hub" || is_number(part)) {
        return None;
    }
    process.parse().ok()
}

/// The network namespaces of this host that have a name.
fn named() -> Vec<String> {
    let output = run_ip(&["netns", "list"]);
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_default();
    text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// Removes what harnesses left that were killed, and what an earlier scenario of this one could not
/// remove, as it had no memory: the names are to be used again.
fn remove_orphans() {
    let namespace = process_namespace();
    for name in named() {
        let is_left = maker(&name, namespace).is_some_and(|maker| {
            let process = std::path::Path::new("/proc").join(maker.to_string());
            maker == std::process::id() || !process.exists()
        });
        if is_left {
            let _ = ip(&["netns", "delete", &name]);
        }
    }
}

fn ip(arguments: &[&str]) -> Result<(), ScenarioError> {
    let failed = |error: &str, needs: &str| ScenarioError::Network {
        what: format!(
            "ip {}: {error}; network = \"namespaces\" needs {needs}",
            arguments.join(" ")
        ),
    };
    let output =
        run_ip(arguments).map_err(|error| failed(&error.to_string(), "the tool ip of iproute2"))?;
    if output.status.success() {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(failed(&error, "the rights of root"))
}

/// Runs the tool, and ends it if it takes too long.
fn run_ip(arguments: &[&str]) -> std::io::Result<Output> {
    let mut child = Command::new("ip")
        .args(arguments)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let started = Instant::now();
    while child.try_wait()?.is_none() {
        if started.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(LOOK_EVERY / 10);
    }
    child.wait_with_output()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_are_given_here_are_of_harnesses() {
        for name in ["selkie-net-7-123-hub", "selkie-net-7-123-14"] {
            assert_eq!(maker(name, 7), Some(123));
        }
        for other in [
            "selkie-lab",
            "selkie-123-1",
            "selkie-net-8-123-1",
            "selkie-net-7-123",
            "selkie-net-7-123-",
            "selkie-net-7-lab-1",
            "selkie-net-7-123-lab",
            "selkie-net-7--1",
            "selkie-net-7-123-1-2",
            "x-selkie-net-7-123-1",
        ] {
            assert_eq!(maker(other, 7), None, "{other}");
        }
        assert_eq!(maker(&name(0), process_namespace()), Some(std::process::id()));
    }
}
