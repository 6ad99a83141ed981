//! Plans a scenario from its file, and refuses faults without a meaning.
//!
//! A target is in one of these states, and a fault that has no meaning in it is refused before
//! anything starts:
//! ```text
//! running --kill--> dead --restart--> running          running --cut--> cut --heal--> running
//! running --stop--> stopped --continue--> running
//! ```
//! A cut between two processes has a state of its own. A driver that is stopped or cut off for less
//! than half a lease continues. After more than one and a half leases it is declared dead, and must
//! find that out itself. In between chance decides, as for a memory node that is silent for more
//! than half a lease and for two that do not reach each other: then any of these ends is right.

use std::collections::BTreeMap;
use std::time::Duration;

use super::file::{
    DriverSection, FabricKind, FaultAction, FaultSection, NetworkKind, ScenarioFile,
};
use super::fit;
use super::plan::{Death, FaultTarget, Plan, PlannedDriver, PlannedFault};

/// Processes of a scenario, at most.
const MAX_PROCESSES: usize = 100;
/// How long the drivers may take after their time is over.
const CHECK: Duration = Duration::from_secs(600);
/// Faults, at most.
const MAX_FAULTS: usize = 10_000;

impl Plan {
    /// Plans the scenario of a file. A `duration` scales all times but leases.
    pub(crate) fn of(file: ScenarioFile, duration: Option<Duration>) -> Result<Self, String> {
        let written = file.duration.0.0;
        if written < Duration::from_secs(1) {
            return Err("duration: must be at least 1s".to_owned());
        }
        let duration = duration.unwrap_or(written);
        let factor = duration.as_secs_f64() / written.as_secs_f64();
        let scaled = |time: Duration| time.mul_f64(factor);
        let mut plan =
            Self { duration, check: CHECK, drivers: Vec::new(), faults: Vec::new(), file };
        plan.check_file()?;
        for (at, driver) in plan.file.drivers.iter().enumerate() {
            let name = driver.name.clone().unwrap_or_else(|| format!("driver-{}", at + 1));
            let delay = driver.start_delay.map_or(Duration::ZERO, |delay| scaled(delay.0.0));
            if delay >= duration {
                return Err(format!("{name}: start-delay: must be less than the duration"));
            }
            if !is_name(&name) {
                return Err(format!("driver {name:?}: {NAMES}"));
            }
            if plan.drivers.iter().any(|other| other.name == name) || name.starts_with("memory-") {
                return Err(format!("driver {name:?}: others have names like that"));
            }
            plan.drivers.push(PlannedDriver { name, delay, driver: driver.clone() });
        }
        for fault in &plan.file.faults {
            for time in 0..fault.times {
                if plan.faults.len() >= MAX_FAULTS {
                    return Err(format!("more than {MAX_FAULTS} faults"));
                }
                let apart = fault.every.map_or(Duration::ZERO, |every| every.0.0);
                let at = scaled(fault.at.0.0 + apart * time);
                let due = plan.due(fault, at)?;
                plan.faults.push(due);
            }
        }
        plan.faults.sort_by_key(|due| due.at);
        plan.check_faults()?;
        fit::check_chances(&plan)?;
        fit::check(&plan)?;
        Ok(plan)
    }

    fn check_file(&self) -> Result<(), String> {
        let ScenarioFile { name, fabric, network, memory, drivers, faults, .. } = &self.file;
        if !is_name(name) {
            return Err(format!("name {name:?}: {NAMES}"));
        }
        if self.duration < Duration::from_secs(1) {
            return Err("duration: must be at least 1s".to_owned());
        }
        if memory.nodes == 0 || drivers.is_empty() {
            return Err("there must be a memory node and a driver".to_owned());
        }
        if memory.nodes + drivers.len() > MAX_PROCESSES {
            return Err(format!("more than {MAX_PROCESSES} memory nodes and drivers"));
        }
        if *network == NetworkKind::Namespaces && *fabric != FabricKind::Tcp {
            return Err("network = \"namespaces\" is for fabric = \"tcp\"".to_owned());
        }
        if let Some(fault) = faults.iter().find(|fault| fault.times > 1 && fault.every.is_none()) {
            return Err(format!("fault {} times: every how long?", fault.times));
        }
        if faults.iter().any(|fault| fault.times == 0) {
            return Err("fault 0 times: must be at least once".to_owned());
        }
        if *fabric == FabricKind::Mem {
            return self.check_mem();
        }
        Ok(())
    }

    /// In one process all drivers are equal, and no fault can hit one of them.
    fn check_mem(&self) -> Result<(), String> {
        if !self.file.faults.is_empty() {
            return Err(
                "fabric = \"mem\" is one process: there are no faults in it; use shm or tcp"
                    .to_owned(),
            );
        }
        let same = |value: fn(&DriverSection) -> Option<u64>| {
            let mut values = self.file.drivers.iter().map(value);
            let first = values.next();
            values.all(|value| Some(value) == first)
        };
        let alike = same(|driver| Some(driver.workers as u64))
            && same(|driver| Some(u64::from(driver.think)))
            && same(|driver| driver.cache.map(|cache| cache.0.0))
            && same(|driver| driver.threads.map(|threads| threads as u64))
            && self.file.drivers.iter().all(|driver| driver.start_delay.is_none());
        if alike {
            return Ok(());
        }
        Err("fabric = \"mem\" is one process: its drivers must have the same workers, think, cache and \
            threads, and no start-delay"
            .to_owned())
    }

    fn due(&self, fault: &FaultSection, at: Duration) -> Result<PlannedFault, String> {
        let FaultSection { action, target: name, .. } = fault;
        let said = format!("{} {name} at {at:?}", action.name());
        let target = self.target(name).ok_or_else(|| {
            format!("{said}: there is no {name}; there are {}", self.names().join(", "))
        })?;
        if at >= self.duration {
            return Err(format!("{said}: the scenario is over by then"));
        }
        let is_memory = matches!(target, FaultTarget::Memory(_));
        if is_memory && *action == FaultAction::Restart {
            return Err(format!("{said}: what a memory node held is gone when it is dead"));
        }
        let is_link = matches!(action, FaultAction::Cut | FaultAction::Heal);
        if is_link && self.file.network != NetworkKind::Namespaces {
            return Err(format!("{said}: needs network = \"namespaces\""));
        }
        if is_link && self.file.pool.lease.0.0 < Duration::from_millis(500) {
            return Err(format!("{said}: needs a lease of at least 500ms"));
        }
        let from = fault.from.as_ref().map(|name| {
            let unknown =
                format!("{said}: there is no {name}; there are {}", self.names().join(", "));
            self.target(name).filter(|from| *from != target).ok_or(unknown)
        });
        let from = from.transpose()?;
        if (from.is_some() || fault.one_way) && !is_link {
            return Err(format!("{said}: `from` and `one-way` are of cut and heal"));
        }
        if fault.one_way && from.is_none() {
            return Err(format!("{said}: one way from whom?"));
        }
        let is_kill = *action == FaultAction::Kill;
        let death = if is_kill { Death::Surely } else { Death::Never };
        let (action, one_way) = (*action, fault.one_way);
        Ok(PlannedFault { at, action, target, from, one_way, death, over: at })
    }

    /// Checks the faults in their order, and finds out how long each lasts and whom it kills.
    fn check_faults(&mut self) -> Result<(), String> {
        // What last happened to each target, or between two, and its number.
        let mut states: BTreeMap<FaultPlace, (FaultAction, usize)> = BTreeMap::new();
        let mut silences = Vec::new();
        for (number, due) in self.faults.iter().enumerate() {
            let place = (due.target, due.from);
            let before = states.get(&place).copied();
            let said = format!("{} at {:?}", self.say(due), due.at);
            self.check_is_there(due, &states, &said)?;
            let after = match (due.action, before.map(|(action, _)| action)) {
                (FaultAction::Kill, None) => Some(FaultAction::Kill),
                (FaultAction::Stop, None) => Some(FaultAction::Stop),
                (FaultAction::Cut, None) => Some(FaultAction::Cut),
                (FaultAction::Restart, Some(FaultAction::Kill)) => None,
                (FaultAction::Continue, Some(FaultAction::Stop))
                | (FaultAction::Heal, Some(FaultAction::Cut)) => {
                    let (_, began) = before.unwrap_or((due.action, number));
                    let death = self.death_by_silence(began, due.at);
                    silences.push((began, due.at, death));
                    // A driver that was declared dead ends.
                    (death == Death::Surely).then_some(FaultAction::Heal)
                }
                (_, None) => return Err(format!("{said}: it is running then")),
                (_, Some(FaultAction::Kill)) => return Err(format!("{said}: it is dead by then")),
                (_, Some(FaultAction::Stop)) => return Err(format!("{said}: it is stopped then")),
                (_, Some(FaultAction::Cut)) => return Err(format!("{said}: it is cut off then")),
                (_, Some(_)) => return Err(format!("{said}: it has ended by then")),
            };
            match after {
                Some(action) => states.insert(place, (action, number)),
                None => states.remove(&place),
            };
        }
        // What is silent to the end.
        for (action, number) in states.values() {
            if matches!(action, FaultAction::Stop | FaultAction::Cut) {
                let death = self.death_by_silence(*number, self.duration);
                silences.push((*number, self.duration, death));
            }
        }
        for (number, over, death) in silences {
            if let Some(due) = self.faults.get_mut(number) {
                (due.over, due.death) = (over, death);
            }
        }
        Ok(())
    }

    /// Refuses what happens to a process before it has started, or between one that is dead and
    /// another.
    fn check_is_there(
        &self,
        due: &PlannedFault,
        states: &BTreeMap<FaultPlace, (FaultAction, usize)>,
        said: &str,
    ) -> Result<(), String> {
        for target in [Some(due.target), due.from].into_iter().flatten() {
            if let FaultTarget::Driver(position) = target
                && let Some(role) = self.drivers.get(position)
                && due.at < role.delay
            {
                return Err(format!("{said}: it has not started by then"));
            }
            let alone = states.get(&(target, None)).map(|(action, _)| action);
            let is_gone = matches!(alone, Some(FaultAction::Kill | FaultAction::Heal));
            if is_gone && due.action == FaultAction::Cut && due.from.is_some() {
                return Err(format!("{said}: {} has ended by then", self.name_of(target)));
            }
        }
        Ok(())
    }

    /// Whether a silence that began with a fault ends in a death.
    fn death_by_silence(&self, number: usize, over: Duration) -> Death {
        let Some(due) = self.faults.get(number) else { return Death::Never };
        let (silence, lease) = (over.saturating_sub(due.at), self.file.pool.lease.0.0);
        let is_driver = matches!(due.target, FaultTarget::Driver(_)) && due.from.is_none();
        // Shared memory outlives a pause of the process that lends it, and no silence condemns
        // memory that cannot be spared.
        let is_waited_for = self.is_shm() || self.file.pool.coding.is_plain();
        let is_of_memory = matches!(due.target, FaultTarget::Memory(_)) && due.from.is_none();
        let is_outlived = is_of_memory && is_waited_for && over < self.duration;
        if silence < lease / 2 || is_outlived {
            Death::Never
        } else if is_driver && silence > lease * 3 / 2 {
            Death::Surely
        } else {
            Death::Perhaps
        }
    }
}

/// A process, or two that do not reach each other.
type FaultPlace = (FaultTarget, Option<FaultTarget>);

const NAMES: &str = "a name is 1 to 30 letters, digits or `-`";

fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
    (1..=30).contains(&name.len()) && name.chars().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::ends::{ErrorCause, ExpectedEnd, ExpectedError, OpenEnd};

    fn plan(head: &str, faults: &[(&str, &str, &str)]) -> Result<Plan, String> {
        let mut text = format!(
            "name = \"x\"\nduration = \"60s\"\n{head}\n[memory]\nnodes = 2\nsize = \"1G\"\n\
             [[driver]]\n[[driver]]\nname = \"late\"\nstart-delay = \"5s\"\n[expect]\nrecovers = 0\n"
        );
        for (at, action, target) in faults {
            let (target, way) =
                target.split_once(", ").map_or((*target, ""), |(t, _)| (t, "one-way = true\n"));
            let (target, from) = target.split_once(" from ").unwrap_or((target, ""));
            let from = if from.is_empty() { String::new() } else { format!("from = \"{from}\"\n") };
            text += &format!(
                "[[fault]]\nat = \"{at}\"\ndo = \"{action}\"\ntarget = \"{target}\"\n{from}{way}"
            );
        }
        Plan::of(ScenarioFile::parse("f", &text).map_err(|error| error.to_string())?, None)
    }

    const SHM: &str = "fabric = \"shm\"";
    const NETS: &str = "fabric = \"tcp\"\nnetwork = \"namespaces\"";

    #[test]
    fn ends_follow_from_the_faults() {
        let seconds = Duration::from_secs;
        let quiet = plan(SHM, &[]).unwrap();
        assert_eq!(
            (quiet.end_of(0, 0), quiet.end_of(1, 0)),
            (ExpectedEnd::Well, ExpectedEnd::Well)
        );
        assert!(!quiet.may_lose_drivers());

        let killed = plan(
            SHM,
            &[
                ("30s", "restart", "driver-1"),
                ("20s", "kill", "driver-1"),
                ("40s", "kill", "driver-1"),
            ],
        )
        .unwrap();
        assert_eq!(killed.faults[0].at, seconds(20), "by time");
        let ends = [0, 1, 2].map(|incarnation| killed.end_of(0, incarnation));
        assert_eq!(ends, [ExpectedEnd::Killed, ExpectedEnd::Killed, ExpectedEnd::Well]);
        assert_eq!(killed.end_of(1, 0), ExpectedEnd::Well);
        assert!(killed.may_lose_drivers() && !killed.may_lose_pages());

        // Too short to be noticed, then far too long.
        let stopped = plan(
            SHM,
            &[
                ("10s", "stop", "late"),
                ("10500ms", "continue", "late"),
                ("20s", "stop", "late"),
                ("30s", "continue", "late"),
            ],
        )
        .unwrap();
        assert_eq!(
            stopped.faults.iter().map(|due| due.death).collect::<Vec<_>>(),
            [Death::Never, Death::Never, Death::Surely, Death::Never]
        );
        assert_eq!(stopped.faults[2].over, seconds(30));
        let expelled = |from, by| {
            let (from, by) = (seconds(from), seconds(by));
            ExpectedError { cause: ErrorCause::Expelled, from, by }
        };
        assert_eq!(stopped.end_of(1, 0), ExpectedEnd::ErrorOrKilled(expelled(30, 35)));
        assert_eq!(stopped.says(ErrorCause::Expelled), ["declared dead by the others"]);
        let stays = plan(SHM, &[("20s", "stop", "late")]).unwrap();
        assert_eq!(stays.end_of(1, 0), ExpectedEnd::Killed);

        let cut = plan(NETS, &[("20s", "cut", "late"), ("25s", "heal", "late")]).unwrap();
        assert_eq!(
            (cut.end_of(0, 0), cut.end_of(1, 0)),
            (ExpectedEnd::Well, ExpectedEnd::Error(expelled(20, 31)))
        );
        let long = plan(NETS, &[("20s", "cut", "late"), ("27s", "heal", "late")]).unwrap();
        assert_eq!(long.end_of(1, 0), ExpectedEnd::Error(expelled(20, 27)));

        let memory = plan(SHM, &[("20s", "kill", "memory-2")]).unwrap();
        let failure = ExpectedError { cause: ErrorCause::Memory, ..expelled(20, 27) };
        assert_eq!(memory.end_of(0, 0), ExpectedEnd::Error(failure));
        assert_eq!(memory.says(ErrorCause::Memory), ["peer mem1 is dead"]);
        assert!(memory.may_lose_drivers() && !memory.may_lose_pages());
    }

    #[test]
    fn what_has_no_meaning_is_refused() {
        let mem = "fabric = \"mem\"";
        for (head, faults, expected) in [
            (
                SHM,
                &[("5s", "kill", "driver-3")][..],
                "there are driver-1, late, memory-1, memory-2",
            ),
            (SHM, &[("60s", "kill", "driver-1")], "is over by then"),
            (SHM, &[("3s", "kill", "late")], "has not started by then"),
            (SHM, &[("5s", "restart", "driver-1")], "it is running then"),
            (SHM, &[("5s", "kill", "driver-1"), ("6s", "stop", "driver-1")], "it is dead by then"),
            (SHM, &[("5s", "stop", "driver-1"), ("6s", "kill", "driver-1")], "it is stopped then"),
            (SHM, &[("5s", "kill", "memory-1"), ("9s", "restart", "memory-1")], "is gone when it"),
            (SHM, &[("5s", "continue", "memory-1")], "it is running then"),
            (SHM, &[("5s", "stop", "driver-1 from memory-1")], "`from` and `one-way` are of cut"),
            (NETS, &[("5s", "cut", "late from memory-3")], "there is no memory-3"),
            (NETS, &[("5s", "cut", "late from late")], "there is no late"),
            (NETS, &[("5s", "cut", "driver-1, one way")], "one way from whom?"),
            (NETS, &[("5s", "heal", "late from memory-1")], "it is running then"),
            (NETS, &[("4s", "cut", "driver-1 from late")], "has not started by then"),
            (
                NETS,
                &[("5s", "kill", "driver-1"), ("6s", "cut", "late from driver-1")],
                "driver-1 has ended by then",
            ),
            (SHM, &[("5s", "cut", "driver-1")], "needs network = \"namespaces\""),
            (
                SHM,
                &[
                    ("5s", "stop", "driver-1"),
                    ("15s", "continue", "driver-1"),
                    ("16s", "kill", "driver-1"),
                ],
                "it has ended by then",
            ),
            (SHM, &[("20s", "kill", "memory-1"), ("30s", "kill", "driver-1")], "is dead by then"),
            (SHM, &[("20s", "kill", "memory-1"), ("20s", "stop", "driver-1")], "is dead by then"),
            (
                SHM,
                &[
                    ("10s", "kill", "driver-1"),
                    ("20s", "kill", "memory-1"),
                    ("30s", "restart", "driver-1"),
                ],
                "is dead by then",
            ),
            (SHM, &[("4s", "kill", "memory-1")], "late: start-delay: a memory node is dead"),
            (SHM, &[("57s", "kill", "driver-1")], "must be one and a half leases before the end"),
            (SHM, &[("57s", "kill", "memory-1")], "must be one and a half leases before the end"),
            (mem, &[("5s", "kill", "driver-1")], "there are no faults in it"),
            (mem, &[], "no start-delay"),
            ("fabric = \"shm\"\nnetwork = \"namespaces\"", &[], "is for fabric = \"tcp\""),
        ] {
            let error = plan(head, faults).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    /// Without a log, pages are lost with a driver that is killed: among them may be one without
    /// which no other opens the database. One that had it open goes on.
    #[test]
    fn a_driver_that_begins_again_without_a_log_may_miss_a_page() {
        let restarts = [("20s", "kill", "driver-1"), ("30s", "restart", "driver-1")];
        let plan = plan(&format!("{SHM}\n[pool]\ndurability = \"none\""), &restarts).unwrap();
        assert!(plan.may_lose_pages());
        let [from, by] = [30, 36].map(Duration::from_secs);
        let error = ExpectedError { cause: ErrorCause::FaultOrLost, from, by };
        let open = ExpectedEnd::Open(OpenEnd { error, well: true, killed: false });
        let ends = [plan.end_of(0, 0), plan.end_of(0, 1), plan.end_of(1, 0)];
        assert_eq!(ends, [ExpectedEnd::Killed, open, ExpectedEnd::Well]);
        let is_said = |says: &String| "error: gcl:0xd000 is lost: a node held it".contains(says);
        assert!(plan.says(ErrorCause::FaultOrLost).iter().any(is_said));
        assert!(!plan.says(ErrorCause::Fault).iter().any(is_said));
    }

    #[test]
    fn what_chance_decides_is_judged_by_what_holds_in_any_case() {
        let seconds = Duration::from_secs;
        let fault = |from, by| {
            let (from, by) = (seconds(from), seconds(by));
            ExpectedError { cause: ErrorCause::Fault, from, by }
        };
        let open = |error, well, killed| ExpectedEnd::Open(OpenEnd { error, well, killed });
        // A lease of two seconds.
        let long =
            plan(SHM, &[("10s", "stop", "driver-1"), ("12s", "continue", "driver-1")]).unwrap();
        assert_eq!((long.faults[0].death, long.faults[0].over), (Death::Perhaps, seconds(12)));
        assert_eq!(long.end_of(0, 0), open(fault(10, 18), true, true));
        assert_eq!(long.end_of(1, 0), ExpectedEnd::Well);
        assert!(long.may_lose_drivers() && !long.may_lose_pages());
        assert!(long.may_have_ended(FaultTarget::Driver(0), seconds(11)));
        assert!(!long.may_have_ended(FaultTarget::Driver(0), seconds(9)));
        assert!(!long.may_have_ended(FaultTarget::Driver(1), seconds(11)));
        assert_eq!(
            plan(SHM, &[("58500ms", "stop", "driver-1")]).unwrap().faults[0].over,
            seconds(60)
        );

        // A driver that was perhaps taken for dead is killed all the same.
        let both = [("10s", "cut", "late"), ("12s", "heal", "late"), ("20s", "kill", "late")];
        let both = plan(NETS, &both).unwrap();
        assert_eq!(both.end_of(1, 0), open(fault(10, 18), false, true));

        // Without redundancy all depends on a memory node.
        let memory = [("10s", "stop", "memory-2"), ("20s", "continue", "memory-2")];
        let memory = plan(NETS, &memory).unwrap();
        assert_eq!(memory.end_of(0, 0), open(fault(10, 26), true, false));
        assert!(memory.says(ErrorCause::Fault).contains(&"mem1".to_owned()));
        assert!(memory.may_lose_drivers() && !memory.may_lose_pages());
        let short = [("10s", "stop", "memory-2"), ("10900ms", "continue", "memory-2")];
        assert_eq!(plan(NETS, &short).unwrap().end_of(0, 0), ExpectedEnd::Well);

        // With redundancy, too, compute nodes wait four leases for one that lives and is cut off.
        let head = format!("{NETS}\n[pool]\ncoding = \"2+1\"");
        let cut = |over| {
            let mut text = String::from("name = \"x\"\nduration = \"60s\"\n");
            text += &format!("{head}\n[memory]\nnodes = 4\nsize = \"1G\"\n[[driver]]\n");
            text += "[expect]\nrecovers = 0\n";
            for (at, action) in [("10s", "cut"), (over, "heal")] {
                text += &format!("[[fault]]\nat = \"{at}\"\ndo = \"{action}\"\n");
                text += "target = \"memory-2\"\n";
            }
            Plan::of(ScenarioFile::parse("f", &text).unwrap(), None).unwrap()
        };
        assert_eq!(cut("18s").end_of(0, 0), open(fault(10, 24), true, false));
        assert_eq!(cut("16s").end_of(0, 0), ExpectedEnd::Well);

        // It was dead for sure before anything happened to the memory node.
        let faults = [
            ("10s", "stop", "late"),
            ("15s", "continue", "late"),
            ("20s", "stop", "memory-2"),
            ("28s", "continue", "memory-2"),
        ];
        assert_eq!(plan(NETS, &faults).unwrap().end_of(1, 0), open(fault(15, 34), false, false));

        let pair =
            [("10s", "cut", "late from memory-1, x"), ("14s", "heal", "late from memory-1, x")];
        let pair = plan(NETS, &pair).unwrap();
        assert_eq!(
            (pair.faults[0].from, pair.faults[0].one_way),
            (Some(FaultTarget::Memory(0)), true)
        );
        assert_eq!(pair.say(&pair.faults[0]), "cut late from memory-1, one way");
        assert_eq!(pair.end_of(1, 0), open(fault(10, 20), true, false));
        assert_eq!(pair.end_of(0, 0), ExpectedEnd::Well);
        assert!(pair.memory_may_be_lost().is_none());
    }

    #[test]
    fn deaths_of_memory_nodes_that_may_be_made_good_in_between_are_left_open() {
        let coded = |nodes: usize, coding: &str, deaths: &[&str]| {
            let mut text = format!(
                "name = \"x\"\nfabric = \"shm\"\nduration = \"60s\"\n[memory]\nnodes = {nodes}\nsize = \"2G\"\n\
                 [pool]\ncoding = \"{coding}\"\n[[driver]]\n[expect]\nrecovers = 0\n"
            );
            for (number, at) in (1..).zip(deaths) {
                text += &format!(
                    "[[fault]]\nat = \"{at}\"\ndo = \"kill\"\ntarget = \"memory-{number}\"\n"
                );
            }
            Plan::of(ScenarioFile::parse("f", &text).unwrap(), None)
        };
        let at = |seconds| Some(Duration::from_secs(seconds));
        for (nodes, coding, deaths, perhaps, surely) in [
            (4, "2+1", &["10s"][..], None, None),
            (4, "plain", &["10s"], at(10), at(10)),
            (6, "4+2", &["10s", "20s"], None, None),
            // There is nowhere to make again what the first had.
            (3, "2+1", &["10s", "20s"], at(20), at(20)),
            (4, "2+1", &["10s", "10s", "10s"], at(10), at(10)),
            (4, "2+1", &["10s", "20s"], at(20), None),
            (4, "2+1", &["10s", "20s", "30s"], at(20), at(30)),
            (8, "4+2", &["10s", "20s", "30s"], at(30), None),
        ] {
            let plan = coded(nodes, coding, deaths).unwrap();
            let may_be = plan.memory_may_be_lost().map(|due| due.at);
            assert_eq!((may_be, plan.memory_is_lost()), (perhaps, surely), "{coding} {deaths:?}");
            let end = plan.end_of(0, 0);
            let is_open = matches!(end, ExpectedEnd::Open(OpenEnd { well: true, .. }));
            assert_eq!(is_open, perhaps.is_some() && surely.is_none(), "{coding} {deaths:?}");
        }
    }

    #[test]
    fn faults_are_repeated_and_scaled_with_the_duration() {
        let text = "name = \"x\"\nfabric = \"shm\"\nduration = \"60s\"\n[memory]\nnodes = 1\nsize = \"1G\"\n\
            [[driver]]\n[[fault]]\nat = \"10s\"\nevery = \"20s\"\ntimes = 2\ndo = \"kill\"\ntarget = \"driver-1\"\n\
            [[fault]]\nat = \"20s\"\nevery = \"20s\"\ntimes = 2\ndo = \"restart\"\ntarget = \"driver-1\"\n\
            [expect]\nrecovers = 0\n";
        let plan = |duration| Plan::of(ScenarioFile::parse("f", text).unwrap(), duration).unwrap();
        let times = |plan: Plan| plan.faults.iter().map(|due| due.at.as_secs()).collect::<Vec<_>>();
        assert_eq!(times(plan(None)), [10, 20, 30, 40]);
        assert_eq!(times(plan(Some(Duration::from_secs(600)))), [100, 200, 300, 400]);
        let without_every = text.replace("every = \"20s\"\n", "");
        let error = Plan::of(ScenarioFile::parse("f", &without_every).unwrap(), None).unwrap_err();
        assert!(error.contains("every how long"), "{error}");
    }

    #[test]
    fn what_would_be_refused_at_the_start_is_refused_before() {
        const FILE: &str = "name = \"x\"\nfabric = \"FABRIC\"\nduration = \"60s\"\n[memory]\nnodes = 2\n\
            size = \"1G\"\n[database]\nscale = 10\n[pool]\nlease = \"2s\"\n[[driver]]\nworkers = 4\n";
        let refused = |fabric: &str, from: &str, to: &str| {
            let text = FILE.replace("FABRIC", fabric);
            assert!(text.contains(from), "{from}");
            Plan::of(ScenarioFile::parse("f", &text.replace(from, to)).unwrap(), None).map(drop)
        };
        assert_eq!(refused("shm", "x", "y"), Ok(()));
        for fabric in ["shm", "mem"] {
            for (from, to, expected) in [
                ("scale = 10", "scale = 500", "scale = 500: must be 1 to 100"),
                ("scale = 10", "scale = 0", "scale = 0: must be 1 to 100"),
                ("scale = 10", "warehouses = 0", "driver-1: warehouses = 0"),
                ("workers = 4", "workers = 0", "driver-1: workers = 0"),
                ("workers = 4", "threads = 0", "driver-1: threads = 0"),
                ("workers = 4", "compute-nodes = 0", "driver-1: compute-nodes = 0"),
                ("workers = 4", "cache = \"512K\"", "driver-1: cache-mb = 0"),
                ("lease = \"2s\"", "gcl = 100", "driver-1: gcl = 100"),
                ("size = \"1G\"", "size = \"1M\"", "memory-mb = 1"),
            ] {
                let error = refused(fabric, from, to).unwrap_err();
                assert!(error.contains(expected), "{error}");
            }
        }
        for (from, to, expected) in [
            ("workers = 4", "homes = \"4-5\"", "driver-1: homes = 4-5: must be a range within 1-4"),
            ("lease = \"2s\"", "lease = \"900ms\"", "pool: lease = 900ms"),
            ("lease = \"2s\"", "heartbeat = \"1ms\"", "pool: heartbeat = 1ms"),
            ("scale = 10", "warehouses = 400", "memory: 2.0 GiB in all: the database takes about"),
        ] {
            let error = refused("shm", from, to).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let many = "workers = 4\n[[fault]]\nat = \"1s\"\nevery = \"1s\"\ntimes = 50\ndo = \"kill\"\n\
            target = \"driver-1\"\n[[fault]]\nat = \"1500ms\"\nevery = \"1s\"\ntimes = 50\ndo = \"restart\"\n\
            target = \"driver-1\"\n[expect]\nrecovers = 0";
        assert_eq!(refused("shm", "workers = 4", many), Ok(()));
        let nodes = many.replace("workers = 4", "compute-nodes = 2");
        assert_eq!(refused("shm", "workers = 4", &nodes), Ok(()), "indices are used again");
        let without = format!("{nodes}\n[pool]\ndurability = \"none\"");
        let without = FILE.replace("[pool]\nlease = \"2s\"\n", "").replace("workers = 4", &without);
        let file = ScenarioFile::parse("f", &without.replace("FABRIC", "shm")).unwrap();
        let error = Plan::of(file, None).unwrap_err();
        assert!(error.contains("102 compute nodes, with those that die"), "{error}");
        let error = refused("shm", "workers = 4", "compute-nodes = 17").unwrap_err();
        assert!(error.contains("17 compute nodes: must be at most 16"), "{error}");
        let alone = many.replace("recovers = 0", "recovers = 0.1");
        let error = refused("shm", "workers = 4", &alone).unwrap_err();
        assert!(error.contains("something happens to every driver"), "{error}");
        for (from, to, expected) in [
            ("times = 50", "times = 0", "must be at least once"),
            ("times = 50", "times = 4294967295", "is over by then"),
        ] {
            let error = refused("shm", "workers = 4", &many.replace(from, to)).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn no_time_is_too_long_to_reckon_with() {
        let day = "86400s";
        let text = format!(
            "name = \"x\"\nfabric = \"shm\"\nduration = \"1s\"\n[memory]\nnodes = 1\nsize = \"1G\"\n\
             [[driver]]\nstart-delay = \"{day}\"\n[[fault]]\nat = \"{day}\"\nevery = \"{day}\"\ntimes = 10000\n\
             do = \"kill\"\ntarget = \"memory-1\"\n[expect]\nfails-within = \"{day}\"\nwithin = \"{day}\"\n"
        );
        for delay in [day, "0s"] {
            let text = text.replacen(day, delay, 1);
            let file = ScenarioFile::parse("f", &text).unwrap();
            let error = Plan::of(file, Some(Duration::from_secs(86_400))).unwrap_err();
            assert!(error.contains("start-delay") || error.contains("is over by then"), "{error}");
        }
        let short = text.replace("\"1s\"", "\"999ms\"");
        let error = Plan::of(ScenarioFile::parse("f", &short).unwrap(), None).unwrap_err();
        assert!(error.contains("duration: must be at least 1s"), "{error}");
    }
}
