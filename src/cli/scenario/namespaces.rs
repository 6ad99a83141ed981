//! A network of namespaces: each process in one of its own, all on a bridge in another.
//!
//! ```text
//! selkie-PID-hub: bridge --+-- port 1 === eth0 of selkie-PID-1, 10.99.0.1
//!                          +-- port 2 === eth0 of selkie-PID-2, 10.99.0.2
//! ```
//! To cut a process off is to take its port of the bridge down: what it sends and what is sent to it vanishes, as
//! with a cable that is pulled. All of it goes with the namespaces when the value is dropped. A harness that is
//! killed leaves them behind; their names say whose they are, and [`Namespaces::make`] removes those of processes
//! that are gone.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use super::ScenarioError;

/// What all names begin with.
const PREFIX: &str = "selkie-";
/// Most processes: numbers of one byte.
const MAX: usize = 200;

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
        let hub = format!("{PREFIX}{}-hub", std::process::id());
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
        ip(&["netns", "add", name])?;
        self.made.push(name.to_owned());
        Ok(())
    }

    /// Takes a process's link down, or up.
    pub(crate) fn set_link(&self, position: usize, up: bool) -> Result<(), ScenarioError> {
        let state = if up { "up" } else { "down" };
        ip(&["-n", &self.hub, "link", "set", &port(position), state])
    }

    /// Removes all of it; what remains, by name.
    pub(crate) fn remove(&mut self) -> Vec<String> {
        self.made.retain(|name| ip(&["netns", "delete", name]).is_err());
        let left = named();
        let own = format!("{PREFIX}{}-", std::process::id());
        left.into_iter().filter(|name| name.starts_with(&own)).collect()
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        let _left = self.remove();
    }
}

/// The namespace of the process of this position.
pub(crate) fn name(position: usize) -> String {
    format!("{PREFIX}{}-{}", std::process::id(), position + 1)
}

/// Its address there.
pub(crate) fn address(position: usize) -> Ipv4Addr {
    // The assertion above keeps it within a byte.
    Ipv4Addr::new(10, 99, 0, u8::try_from(position + 1).unwrap_or(u8::MAX))
}

fn port(position: usize) -> String {
    format!("port{}", position + 1)
}

/// The namespaces of scenarios.
fn named() -> Vec<String> {
    let output = Command::new("ip").args(["netns", "list"]).stdin(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_default();
    let names = text.lines().filter_map(|line| line.split_whitespace().next());
    names.filter(|name| name.starts_with(PREFIX)).map(str::to_owned).collect()
}

/// Removes what harnesses left that were killed.
fn remove_orphans() {
    for name in named() {
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let lives =
            process.is_none_or(|process| std::path::Path::new("/proc").join(process).exists());
        if !lives {
            let _ = ip(&["netns", "delete", &name]);
        }
    }
}

fn ip(arguments: &[&str]) -> Result<(), ScenarioError> {
    let said = || format!("ip {}", arguments.join(" "));
    let output = Command::new("ip").args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| ScenarioError::Network {
        what: format!(
            "{}: {error}; network = \"namespaces\" needs the tool ip of iproute2",
            said()
        ),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(ScenarioError::Network {
        what: format!("{}: {error}; network = \"namespaces\" needs the rights of root", said()),
    })
}
