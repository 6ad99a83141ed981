//! The end of a scenario: what became of its processes, and whether all that was made is removed.

use std::time::{Duration, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::Value;

use super::super::error::ScenarioError;
use super::super::observed::{
    Observed, ObservedDriver, ObservedMemoryNode, PoolStatus, ProcessEnd,
};
use super::super::processes::Process;
use super::super::series::ThroughputTrack;
use super::{START, STOP, ScenarioRun, interrupted};

impl ScenarioRun<'_> {
    /// What became of the drivers.
    pub(super) fn see_drivers(&mut self, outcome: &mut Observed) -> Result<(), ScenarioError> {
        let Some((began, began_at)) = self.began else { return Ok(()) };
        let began_ms = began_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as f64;
        for running in &mut self.drivers {
            let process = &mut running.process;
            let ended_at = process.end()?.map(|end| end.at);
            let said = process.said()?;
            let complained = process.complained()?;
            let report: Option<Value> = serde_json::from_str(&said).ok();
            let track = report.as_ref().and_then(|report| track(report, began_ms));
            outcome.drivers.push(ObservedDriver {
                driver: running.driver,
                name: process.name.clone(),
                expected: self.plan.end_of(running.driver, running.incarnation),
                ended: how(process, running.hung),
                ended_at: ended_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(began)),
                error: last_error(&complained),
                panic: panic_in(&complained),
                report,
                track,
            });
        }
        Ok(())
    }

    /// Stops the memory nodes, removes all that was made, and looks for what is left. What cannot
    /// be done is noted; the rest is done all the same.
    ///
    /// # Errors
    /// [`ScenarioError::Interrupted`].
    pub(super) fn take_down(&mut self, outcome: &mut Observed) -> Result<(), ScenarioError> {
        let mut troubles = Vec::new();
        if !self.is_mem() {
            let seen = self.see_pool(outcome);
            noted(seen, &mut troubles)?;
        }
        for position in 0..self.memory.len() {
            let seen = self.stop_memory(position);
            outcome.memory.extend(noted(seen, &mut troubles)?);
        }
        if !self.is_mem() {
            let destroyed = self.command("destroy", &["pool", "destroy", "--force"]);
            self.created = noted(destroyed, &mut troubles)?.is_none();
        }
        let directory = self.pool_directory();
        if directory.exists() {
            outcome.leftovers.push(format!("directory {}", directory.display()));
        }
        match self.network.take() {
            // In a namespace an address is not reached from here.
            Some(mut network) => {
                let left = network.remove().into_iter();
                outcome.leftovers.extend(left.map(|name| format!("namespace {name}")));
            }
            None => outcome.leftovers.extend(self.sockets()),
        }
        outcome.troubles = troubles;
        Ok(())
    }

    /// The pool when all drivers have ended, and what they left there.
    fn see_pool(&mut self, outcome: &mut Observed) -> Result<(), ScenarioError> {
        let status = self.command("status", &["pool", "status", "--json"])?;
        let unknown = |what| ScenarioError::Process { name: "status".to_owned(), what };
        let seen = PoolStatus::of_status(&status).map_err(unknown)?;
        // Of a node that has just died they may be there still: the others remove them in the next
        // heartbeat.
        let died = outcome.drivers.iter().filter(|driver| driver.ended != ProcessEnd::Code(0));
        let died = died.filter_map(|driver| self.plan.drivers.get(driver.driver));
        let died = died.map(|role| role.driver.compute_nodes).sum();
        outcome.pool = Some(seen.clone());
        let leaked = seen.leaked(self.segments_of_drivers()?, died);
        outcome.leftovers.extend(leaked.iter().map(|node| format!("segment cn{node}")));
        Ok(())
    }

    /// The compute nodes that have segments in the pool's directory.
    fn segments_of_drivers(&self) -> Result<Vec<u64>, ScenarioError> {
        let directory = self.pool_directory();
        let unreadable = |source| ScenarioError::io(directory.display(), source);
        let mut nodes = Vec::new();
        for entry in std::fs::read_dir(&directory).map_err(unreadable)? {
            let name = entry.map_err(unreadable)?.file_name();
            let node =
                name.to_string_lossy().strip_prefix("cn").and_then(|node| node.parse::<u64>().ok());
            nodes.extend(node);
        }
        Ok(nodes)
    }

    fn stop_memory(&mut self, position: usize) -> Result<ObservedMemoryNode, ScenarioError> {
        let Some(process) = self.memory.get_mut(position) else {
            let (name, what) = (format!("memory-{}", position + 1), "it is not there".to_owned());
            return Err(ScenarioError::Process { name, what });
        };
        process.signal(Signal::TERM)?;
        let signals = &mut self.signals;
        let hung = match process.wait(STOP, &mut || interrupted(signals)) {
            Ok(_) => false,
            Err(ScenarioError::Process { .. }) => true,
            Err(error) => return Err(error),
        };
        if hung {
            process.signal(Signal::KILL)?;
            process.wait(STOP, &mut || interrupted(signals))?;
        }
        let complained = process.complained()?;
        let (error, panic) = (last_error(&complained), panic_in(&complained));
        let (name, ended) = (process.name.clone(), how(process, hung));
        Ok(ObservedMemoryNode { name, ended, error, panic })
    }

    /// Addresses of memory nodes at which a process still listens.
    fn sockets(&self) -> Vec<String> {
        let patience = Duration::from_millis(200);
        let addresses = self.addresses.iter().filter_map(|address| address.parse().ok());
        let listens = |address: &_| std::net::TcpStream::connect_timeout(address, patience).is_ok();
        addresses.filter(listens).map(|address| format!("socket {address}")).collect()
    }

    /// Runs a command on the pool to its end.
    fn command(&mut self, name: &str, words: &[&str]) -> Result<String, ScenarioError> {
        let mut arguments = super::words(words);
        arguments.insert(2, self.pool.clone());
        let signals = &mut self.signals;
        self.launcher.run(name, &arguments, START, &mut || interrupted(signals))
    }
}

/// The value; an error is noted, but for that the scenario is to stop.
fn noted<T>(
    result: Result<T, ScenarioError>,
    troubles: &mut Vec<String>,
) -> Result<Option<T>, ScenarioError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error @ ScenarioError::Interrupted(_)) => Err(error),
        Err(error) => {
            troubles.push(error.to_string());
            Ok(None)
        }
    }
}

pub(super) fn how(process: &Process, hung: bool) -> ProcessEnd {
    match (hung, process.code(), process.signal_of_end()) {
        (false, Some(code), _) => ProcessEnd::Code(code),
        (false, None, Some(signal)) => ProcessEnd::Signal(signal),
        _ => ProcessEnd::Not,
    }
}

/// The last error that a process told.
pub(super) fn last_error(complained: &str) -> Option<String> {
    let mut errors = complained.lines().filter(|line| line.starts_with("error: "));
    errors.next_back().map(str::to_owned)
}

/// Where a process panicked, and what it said then.
fn panic_in(complained: &str) -> Option<String> {
    let mut lines = complained.lines();
    let place = lines.find(|line| line.contains("panicked at"))?;
    Some(format!("{place} {}", lines.next().unwrap_or_default()).trim_end().to_owned())
}

/// When a report's seconds were, by the scenario's time.
fn track(report: &Value, began_ms: f64) -> Option<ThroughputTrack> {
    let began = (report["began_unix_ms"].as_f64()? - began_ms) / 1000.0;
    let whole = report["per_second"].as_array()?.iter().filter_map(Value::as_u64);
    let partial = report.pointer("/partial_second/transactions").and_then(Value::as_u64);
    let counts = whole.chain(partial).collect();
    Some(ThroughputTrack { began, counts, ended: began + report["seconds"].as_f64()? })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::support::signals::Interrupted;

    #[test]
    fn a_panic_is_found_with_what_it_says() {
        let said =
            "load: 0 %\n\nthread 'main' (7) panicked at src/x.rs:3:5:\nno such page\nnote: run";
        let found = panic_in(said).unwrap();
        assert_eq!(found, "thread 'main' (7) panicked at src/x.rs:3:5: no such page");
        assert_eq!(panic_in("error: peer mem0 is dead\n"), None);
    }

    #[test]
    fn tracks_are_in_the_scenarios_time() {
        let report = json!({
            "began_unix_ms": 5_500, "per_second": [3], "seconds": 1.5,
            "partial_second": { "seconds": 0.5, "transactions": 4 },
        });
        let expected = ThroughputTrack { began: 0.5, counts: vec![3, 4], ended: 2.0 };
        assert_eq!(track(&report, 5_000.0), Some(expected));
        for key in ["began_unix_ms", "per_second", "seconds"] {
            let mut report = report.clone();
            report.as_object_mut().unwrap().remove(key);
            assert_eq!(track(&report, 5_000.0), None, "{key}");
        }
    }

    #[test]
    fn troubles_do_not_end_the_work_but_an_interruption_does() {
        let mut troubles = Vec::new();
        let trouble = ScenarioError::Network { what: "ip: gone".to_owned() };
        assert!(matches!(noted::<()>(Err(trouble), &mut troubles), Ok(None)));
        assert_eq!(troubles, ["ip: gone"]);
        let interrupted = ScenarioError::Interrupted(Interrupted::by(15));
        assert!(noted::<()>(Err(interrupted), &mut troubles).is_err());
        assert!(matches!(noted(Ok(1), &mut troubles), Ok(Some(1))));
    }
}
