//! Whether all went as it must.

use std::time::Duration;

use super::outcome::{DriverSeen, Ended, Outcome};
use super::plan::{Due, End, Plan, Target};
use super::series::{self, Recovery, Track};

/// What was found.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) checks: Vec<Check>,
    pub(crate) recoveries: Vec<Recovered>,
}

/// Something that must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) what: String,
    pub(crate) holds: bool,
    pub(crate) found: String,
}

/// How the survivors fared after a fault.
#[derive(Clone, Debug)]
pub(crate) struct Recovered {
    pub(crate) due: Due,
    pub(crate) name: String,
    /// `None` if there is too little before or after it to tell.
    pub(crate) recovery: Option<Recovery>,
}

impl Verdict {
    pub(crate) fn holds(&self) -> bool {
        self.checks.iter().all(|check| check.holds)
    }
}

/// Judges what was seen.
pub(crate) fn judge(plan: &Plan, outcome: &Outcome) -> Verdict {
    let mut checks = Vec::new();
    for driver in &outcome.drivers {
        checks.push(end(driver));
        if driver.expected == End::Well {
            checks.push(conditions(plan, driver));
            checks.push(journal(driver));
        }
    }
    let survives = outcome.drivers.iter().any(|driver| driver.ended == Ended::Code(0));
    for memory in &outcome.memory {
        let expected = if memory.was_killed { Ended::Signal(9) } else { Ended::Code(0) };
        checks.push(Check {
            what: format!("{} ends {}", memory.name, how(expected)),
            holds: memory.ended == expected,
            found: memory.ended.to_string(),
        });
    }
    let recoveries = recoveries(plan, outcome);
    checks.extend(recoveries.iter().filter_map(|recovered| comes_back(plan, recovered)));
    if survives && plan.file.fabric != super::file::Fabric::Mem {
        checks.push(Check {
            what: "no compute node is left in the pool".to_owned(),
            holds: outcome.left_in_pool.is_empty(),
            found: format!("{:?}", outcome.left_in_pool),
        });
    }
    let left = &outcome.leftovers;
    checks.push(Check {
        what: "nothing is left behind".to_owned(),
        holds: left.is_empty(),
        found: if left.is_empty() { "nothing".to_owned() } else { left.join(", ") },
    });
    Verdict { checks, recoveries }
}

fn how(ended: Ended) -> String {
    match ended {
        Ended::Code(0) => "well".to_owned(),
        other => format!("by {other}"),
    }
}

/// An end with an error is one that says what is wrong, in time.
fn end(driver: &DriverSeen) -> Check {
    let DriverSeen { name, ended, ended_at, error, .. } = driver;
    let said = error.as_deref().unwrap_or("it said nothing");
    let found = match ended {
        Ended::Code(0) | Ended::Signal(_) | Ended::Not => ended.to_string(),
        Ended::Code(_) => format!("{ended} after {:.1} s, {said}", ended_at.as_secs_f64()),
    };
    let (what, holds) = match driver.expected {
        End::Well => (format!("{name} ends well"), *ended == Ended::Code(0)),
        End::Killed => (format!("{name} is killed"), *ended == Ended::Signal(9)),
        End::Error(by) => (
            format!("{name} ends with an error of its own by {:.1} s", by.as_secs_f64()),
            has_error(driver, by),
        ),
        End::ErrorOrKilled(by) => (
            format!("{name} ends with an error of its own by {:.1} s, or fenced", by.as_secs_f64()),
            has_error(driver, by) || *ended == Ended::Signal(9),
        ),
    };
    Check { what, holds: holds && !driver.panicked, found }
}

fn has_error(driver: &DriverSeen, by: Duration) -> bool {
    driver.ended == Ended::Code(1) && driver.error.is_some() && driver.ended_at <= by
}

/// Where no node died all must hold; else what can be read.
fn conditions(plan: &Plan, driver: &DriverSeen) -> Check {
    let found = driver.report.as_ref().map(|report| report["consistency"].clone());
    let found = found.unwrap_or_default();
    let may_lose = plan.loses_drivers();
    let allowed = if may_lose { &["ok", "partial"][..] } else { &["ok"] };
    Check {
        what: format!(
            "the conditions hold at {}{}",
            driver.name,
            if may_lose { ", on what can be read" } else { "" }
        ),
        holds: found.as_str().is_some_and(|found| allowed.contains(&found)),
        found: found.to_string(),
    }
}

fn journal(driver: &DriverSeen) -> Check {
    let number = |key: &str| driver.number(&format!("/journal/{key}"));
    let [committed, looked_for, found, on_lost_pages, missing] =
        ["committed", "looked_for", "found", "on_lost_pages", "missing"].map(number);
    let show = |number: Option<u64>| number.map_or("?".to_owned(), |number| number.to_string());
    Check {
        what: format!("nothing that {} committed is missing", driver.name),
        // One whose home is lost altogether commits nothing.
        holds: missing == Some(0) && (looked_for > Some(0) || committed == Some(0)),
        found: format!(
            "of {} looked for {} found, {} on lost pages, {} missing",
            show(looked_for),
            show(found),
            show(on_lost_pages),
            show(missing)
        ),
    }
}

fn recoveries(plan: &Plan, outcome: &Outcome) -> Vec<Recovered> {
    let tracks = survivors(outcome);
    let mut recoveries = Vec::new();
    for (position, fault) in outcome.faults.iter().enumerate() {
        if !fault.due.kills || matches!(fault.due.target, Target::Memory(_)) {
            continue;
        }
        let seconds = |at: Duration| at.as_secs_f64();
        let before = outcome.faults.iter().take(position).next_back();
        let after = outcome.faults.get(position + 1);
        let since = before.map_or(0.0, |fault| seconds(fault.done_at));
        let until = after.map_or(f64::INFINITY, |fault| seconds(fault.done_at));
        let span = (since, seconds(fault.done_at), until);
        let recovery = series::recovery(&tracks, span, plan.file.expect.recovers.0.0);
        let name = plan.name_of(fault.due.target);
        recoveries.push(Recovered { due: fault.due, name, recovery });
    }
    recoveries
}

/// What those counted to whom nothing happened.
pub(crate) fn survivors(outcome: &Outcome) -> Vec<&Track> {
    let is_touched = |driver: &DriverSeen| {
        let mut targets = outcome.faults.iter().map(|fault| fault.due.target);
        targets.any(|target| target == Target::Driver(driver.driver))
    };
    let untouched = outcome.drivers.iter().filter(|driver| !is_touched(driver));
    untouched.filter_map(|driver| driver.track.as_ref()).collect()
}

/// The survivors' throughput, if there is enough of it to tell.
fn comes_back(plan: &Plan, recovered: &Recovered) -> Option<Check> {
    let recovery = recovered.recovery?;
    let (expect, lease) = (&plan.file.expect, plan.file.pool.lease.0.0);
    let (share, within) = (expect.recovers.0.0, expect.within.0.0);
    let bound = (lease + within).as_secs_f64();
    let Recovery { before, lowest, back_after } = recovery;
    let back = match back_after {
        Some(after) => format!("back after {after:.2} s"),
        None => "not back".to_owned(),
    };
    Some(Check {
        what: format!(
            "{:.0} % of the survivors' throughput is back {bound:.1} s after {} {} at {:.1} s",
            100.0 * share,
            recovered.due.action.name(),
            recovered.name,
            recovered.due.at.as_secs_f64(),
        ),
        holds: back_after.is_some_and(|after| after <= bound),
        found: format!("{before:.0} a second before, {lowest:.0} in the worst second, {back}"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::file::File;
    use super::super::outcome::{FaultSeen, MemorySeen};
    use super::*;

    const KILL: &str = "[[fault]]\nat = \"10s\"\ndo = \"kill\"\ntarget = \"driver-2\"\n";

    fn plan(faults: &str) -> Plan {
        let text = format!(
            "name = \"x\"\nfabric = \"shm\"\nduration = \"30s\"\n[memory]\nnodes = 1\nsize = \"1G\"\n\
             [[driver]]\n[[driver]]\n{faults}"
        );
        Plan::of(File::parse("f", &text).unwrap(), None).unwrap()
    }

    /// All went well, and the faults were done in time.
    fn outcome(plan: &Plan, survivor: &[u64]) -> Outcome {
        let report = json!({
            "consistency": if plan.loses_drivers() { "partial" } else { "ok" },
            "journal": { "committed": 20, "looked_for": 10, "found": 8, "on_lost_pages": 2, "missing": 0 },
        });
        let driver = |driver: usize| {
            let expected = plan.end_of(driver, 0);
            let well = expected == End::Well;
            let counts = survivor.to_vec();
            let ended = counts.len() as f64;
            DriverSeen {
                driver,
                name: format!("driver-{}", driver + 1),
                expected,
                ended: if well { Ended::Code(0) } else { Ended::Signal(9) },
                ended_at: Duration::from_secs(31),
                error: None,
                panicked: false,
                report: well.then(|| report.clone()),
                track: well.then_some(Track { began: 0.0, counts, ended }),
            }
        };
        let done = plan.faults.iter().map(|due| FaultSeen { due: *due, done_at: due.at });
        let (name, ended) = ("memory-1".to_owned(), Ended::Code(0));
        Outcome {
            drivers: vec![driver(0), driver(1)],
            memory: vec![MemorySeen { name, ended, was_killed: false }],
            faults: done.collect(),
            ..Outcome::default()
        }
    }

    /// The checks that do not hold.
    fn failed(plan: &Plan, outcome: &Outcome) -> Vec<String> {
        let verdict = judge(plan, outcome);
        let failed = verdict.checks.iter().filter(|check| !check.holds);
        let failed: Vec<_> = failed.map(|check| check.what.clone()).collect();
        assert_eq!(verdict.holds(), failed.is_empty());
        failed
    }

    #[test]
    fn what_went_well_holds() {
        let quiet = plan("");
        assert_eq!(failed(&quiet, &outcome(&quiet, &[100; 30])), [""; 0]);
        let killed = plan(KILL);
        assert_eq!(failed(&killed, &outcome(&killed, &[100; 30])), [""; 0]);
    }

    /// What is wrong with the outcome of a run in which a driver is killed.
    fn after(change: impl FnOnce(&mut Outcome)) -> Vec<String> {
        let plan = plan(KILL);
        let mut outcome = outcome(&plan, &[100; 30]);
        change(&mut outcome);
        failed(&plan, &outcome)
    }

    #[test]
    fn what_went_wrong_is_named() {
        let report = |outcome: &mut Outcome, key: &str, value| {
            let report = outcome.drivers[0].report.as_mut().unwrap();
            *report.pointer_mut(key).unwrap() = value;
        };
        assert_eq!(after(|o| o.drivers[0].ended = Ended::Code(1)), ["driver-1 ends well"]);
        assert_eq!(after(|o| o.drivers[0].ended = Ended::Not), ["driver-1 ends well"]);
        assert_eq!(after(|o| o.drivers[0].panicked = true), ["driver-1 ends well"]);
        assert_eq!(after(|o| o.drivers[1].ended = Ended::Code(1)), ["driver-2 is killed"]);
        let missing = "nothing that driver-1 committed is missing";
        assert_eq!(after(|o| report(o, "/journal/missing", json!(1))), [missing]);
        assert_eq!(after(|o| report(o, "/journal/looked_for", json!(0))), [missing]);
        let nothing = |o: &mut Outcome| {
            report(o, "/journal/looked_for", json!(0));
            report(o, "/journal/committed", json!(0));
        };
        assert_eq!(after(nothing), [""; 0], "nothing was committed");
        let conditions = "the conditions hold at driver-1, on what can be read";
        assert_eq!(after(|o| report(o, "/consistency", json!([{ "condition": 3 }]))), [conditions]);
        assert_eq!(after(|o| o.drivers[0].report = None), [conditions, missing]);
        assert_eq!(after(|o| o.memory[0].ended = Ended::Code(1)), ["memory-1 ends well"]);
        let left = "no compute node is left in the pool";
        assert_eq!(after(|o| o.left_in_pool.push(3)), [left]);
        let leftover = |o: &mut Outcome| o.leftovers.push("segment cn1".to_owned());
        assert_eq!(after(leftover), ["nothing is left behind"]);
        // Where nobody died nothing may be unreadable.
        let quiet = plan("");
        let mut outcome = outcome(&quiet, &[100; 30]);
        report(&mut outcome, "/consistency", json!("partial"));
        assert_eq!(failed(&quiet, &outcome), ["the conditions hold at driver-1"]);
    }

    #[test]
    fn throughput_must_come_back_in_time() {
        let plan = plan(KILL);
        let rates = |until: usize| {
            let mut counts = vec![100; 30];
            counts.iter_mut().take(until).skip(10).for_each(|count| *count = 5);
            failed(&plan, &outcome(&plan, &counts))
        };
        // A lease of two seconds, and three.
        assert_eq!(rates(15), [""; 0]);
        let slow = "80 % of the survivors' throughput is back 5.0 s after kill driver-2 at 10.0 s";
        assert_eq!(rates(17), [slow]);
        assert_eq!(rates(30), [slow]);
    }

    #[test]
    fn errors_must_be_told_and_in_time() {
        let plan = plan("[[fault]]\nat = \"10s\"\ndo = \"kill\"\ntarget = \"memory-1\"\n");
        let run = |ended, seconds, error: Option<&str>| {
            let mut outcome = outcome(&plan, &[]);
            for driver in &mut outcome.drivers {
                driver.ended = Ended::Code(1);
                driver.ended_at = Duration::from_secs(12);
                driver.error = Some("error: peer mem0 is dead".to_owned());
            }
            let driver = &mut outcome.drivers[1];
            driver.ended = ended;
            driver.ended_at = Duration::from_secs(seconds);
            driver.error = error.map(str::to_owned);
            outcome.memory[0].ended = Ended::Signal(9);
            outcome.memory[0].was_killed = true;
            failed(&plan, &outcome)
        };
        let said = Some("error: peer mem0 is dead");
        assert_eq!(run(Ended::Code(1), 17, said), [""; 0]);
        let late = ["driver-2 ends with an error of its own by 17.0 s"];
        assert_eq!(run(Ended::Code(1), 18, said), late);
        assert_eq!(run(Ended::Code(1), 17, None), late, "it must say why");
        assert_eq!(run(Ended::Code(0), 17, said), late);
        assert_eq!(run(Ended::Signal(9), 17, said), late);
    }
}
