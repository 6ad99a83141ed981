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
    let [looked_for, found, on_lost_pages, missing] =
        ["looked_for", "found", "on_lost_pages", "missing"].map(number);
    let show = |number: Option<u64>| number.map_or("?".to_owned(), |number| number.to_string());
    Check {
        what: format!("nothing that {} committed is missing", driver.name),
        holds: missing == Some(0) && looked_for > Some(0),
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
