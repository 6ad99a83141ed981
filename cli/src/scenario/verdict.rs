//! Whether all went as it must.

use std::time::Duration;

use selkie::pool::control::MAX_LOST_PAGES;
use selkie_tpcc::check::CONDITIONS;
use selkie_tpcc::units;

use super::ends::{ErrorCause, ExpectedEnd, ExpectedError, IS_LOST, OpenEnd};
use super::observed::{
    Observed, ObservedDriver, ObservedFault, ObservedMemoryNode, ObservedVerification, ProcessEnd,
};
use super::plan::{Death, FaultTarget, Plan, PlannedFault};
use super::series::{self, ThroughputRecovery, ThroughputTrack};

/// What was found.
#[derive(Clone, Debug)]
pub(crate) struct ScenarioVerdict {
    pub(crate) checks: Vec<VerdictCheck>,
    pub(crate) recoveries: Vec<FaultRecovery>,
}

/// Something that must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VerdictCheck {
    pub(crate) what: String,
    pub(crate) holds: bool,
    pub(crate) found: String,
}

/// How the survivors fared after a fault.
#[derive(Clone, Debug)]
pub(crate) struct FaultRecovery {
    pub(crate) due: PlannedFault,
    pub(crate) name: String,
    /// Or why nothing can be said about it.
    pub(crate) recovery: Result<ThroughputRecovery, String>,
}

impl ScenarioVerdict {
    pub(crate) fn holds(&self) -> bool {
        self.checks.iter().all(|check| check.holds)
    }
}

/// Judges what was seen.
pub(crate) fn judge(plan: &Plan, outcome: &Observed) -> ScenarioVerdict {
    let mut checks = vec![faults(plan, outcome)];
    for driver in &outcome.drivers {
        checks.push(end(plan, driver));
        if driver.expected == ExpectedEnd::Well || ended_well(driver) {
            checks.push(conditions(plan, driver));
            checks.push(journal(plan, outcome, driver));
            checks.push(losses(plan, outcome, driver));
        }
    }
    checks.extend(outcome.verified.as_ref().map(|verified| verified_commits(plan, verified)));
    let memory = outcome.memory.iter().enumerate();
    checks.extend(memory.map(|(position, memory)| end_of_memory(plan, position, memory)));
    let recoveries = recoveries(plan, outcome);
    if plan.file.expect.recovers.0.0 > 0.0 {
        checks.extend(recoveries.iter().map(|recovered| comes_back(plan, recovered)));
    }
    if let Some(over) = outcome.faults.iter().map(|fault| fault.over()).max() {
        let lives = |driver: &&ObservedDriver| ended_well(driver) && driver.track.is_some();
        checks.extend(outcome.drivers.iter().filter(lives).filter_map(|d| goes_on(plan, over, d)));
    }
    checks.extend(left_in_pool(outcome));
    let nothing = |what: &str, found: &[String]| VerdictCheck {
        what: what.to_owned(),
        holds: found.is_empty(),
        found: if found.is_empty() { "nothing".to_owned() } else { found.join(", ") },
    };
    checks.push(nothing("nothing is left behind", &outcome.leftovers));
    if !outcome.troubles.is_empty() {
        checks.push(nothing("all can be looked at and removed", &outcome.troubles));
    }
    ScenarioVerdict { checks, recoveries }
}

fn ended_well(driver: &ObservedDriver) -> bool {
    driver.expected.may_be_well() && driver.ended == ProcessEnd::Code(0)
}

/// A fault whose target had ended before is no fault, unless chance could end it.
fn faults(plan: &Plan, outcome: &Observed) -> VerdictCheck {
    let missed = outcome.faults.iter().filter(|fault| fault.missed);
    let (excused, missed): (Vec<&ObservedFault>, Vec<_>) = missed.partition(|fault| {
        let by = fault.due.at;
        let targets = [Some(fault.due.target), fault.due.from].into_iter().flatten();
        targets.into_iter().any(|target| plan.may_have_ended(target, by))
    });
    let missed: Vec<_> = missed
        .iter()
        .map(|fault| {
            let (what, at) = (plan.say(&fault.due), fault.done_at.as_secs_f64());
            format!("{what} at {at:.1} s: it had ended before")
        })
        .collect();
    let (done, due) = (outcome.faults.len(), plan.faults.len());
    let found = match (missed.is_empty(), excused.len()) {
        (true, 0) => format!("{done} of {due}"),
        (true, excused) => format!("{done} of {due}, {excused} when it may have ended"),
        (false, _) => missed.join(", "),
    };
    let what = "every fault meets its target".to_owned();
    VerdictCheck { what, holds: missed.is_empty() && done == due, found }
}

fn how(ended: ProcessEnd) -> String {
    match ended {
        ProcessEnd::Code(0) => "well".to_owned(),
        other => format!("by {other}"),
    }
}

/// An end with an error is one that says what is wrong, in time.
fn end(plan: &Plan, driver: &ObservedDriver) -> VerdictCheck {
    let ObservedDriver { name, ended, ended_at, error, panic, .. } = driver;
    let said = error.as_deref().unwrap_or("it said nothing");
    let mut found = match ended {
        ProcessEnd::Code(0) if driver.track.is_none() => format!("{ended}, without a report"),
        ProcessEnd::Code(0) | ProcessEnd::Signal(_) | ProcessEnd::Not => ended.to_string(),
        ProcessEnd::Code(_) => format!("{ended} after {:.1} s, {said}", ended_at.as_secs_f64()),
    };
    if let Some(panic) = panic {
        found = format!("{found}; {panic}");
    }
    let by_error = |failure: ExpectedError| {
        let (by, says) = (failure.by.as_secs_f64(), plan.says(failure.cause).join("` or `"));
        format!("{name} ends with the error `{says}` by {by:.1} s")
    };
    let is_well = *ended == ProcessEnd::Code(0) && driver.track.is_some();
    let is_killed = *ended == ProcessEnd::Signal(9);
    let (what, holds) = match driver.expected {
        ExpectedEnd::Well => (format!("{name} ends well"), is_well),
        ExpectedEnd::Killed => (format!("{name} is killed"), is_killed),
        ExpectedEnd::Error(failure) => (by_error(failure), has_error(plan, driver, failure)),
        ExpectedEnd::ErrorOrKilled(failure) => (
            format!("{}, or is fenced", by_error(failure)),
            has_error(plan, driver, failure) || is_killed,
        ),
        ExpectedEnd::Open(OpenEnd { error, well, killed }) => {
            let or = |is_allowed: bool, what| if is_allowed { what } else { "" };
            let (or_well, or_killed) = (or(well, ", or well"), or(killed, ", or is ended"));
            (
                format!("{}{or_well}{or_killed}", by_error(error)),
                well && is_well || killed && is_killed || has_error(plan, driver, error),
            )
        }
    };
    VerdictCheck { what, holds: holds && panic.is_none(), found }
}

fn has_error(plan: &Plan, driver: &ObservedDriver, failure: ExpectedError) -> bool {
    let ExpectedError { cause, from, by } = failure;
    let said = driver.error.as_deref().unwrap_or_default();
    driver.ended == ProcessEnd::Code(1)
        && plan.says(cause).iter().any(|says| said.contains(says))
        && (from..=by).contains(&driver.ended_at)
}

/// A memory node ends when it is told to, unless it was killed, or knows that it was taken for
/// dead.
fn end_of_memory(plan: &Plan, position: usize, memory: &ObservedMemoryNode) -> VerdictCheck {
    let target = FaultTarget::Memory(position);
    let own = plan.faults.iter().filter(|due| due.touches(target));
    let death = own.map(|due| due.death).max().unwrap_or(Death::Never);
    let ObservedMemoryNode { name, ended, error, panic } = memory;
    let mut found = match error {
        Some(error) => format!("{ended}, {error}"),
        None => ended.to_string(),
    };
    if let Some(panic) = panic {
        found = format!("{found}; {panic}");
    }
    let says = format!("declared mem{position} dead");
    let knows =
        *ended == ProcessEnd::Code(1) && error.as_ref().is_some_and(|error| error.contains(&says));
    let (what, holds) = match death {
        Death::Never => {
            let well = ProcessEnd::Code(0);
            (format!("{name} ends {}", how(well)), *ended == well)
        }
        Death::Surely => {
            let killed = ProcessEnd::Signal(9);
            (format!("{name} ends {}", how(killed)), *ended == killed)
        }
        Death::Perhaps => (
            format!("{name} ends well, or with the error `{says}`"),
            *ended == ProcessEnd::Code(0)
                || knows
                || plan.is_shm() && *ended == ProcessEnd::Signal(9),
        ),
    };
    VerdictCheck { what, holds: holds && panic.is_none(), found }
}

/// Where no page may be lost all must hold; else what can be read, which must be something.
fn conditions(plan: &Plan, driver: &ObservedDriver) -> VerdictCheck {
    let value = |pointer: &str| driver.report.as_ref().and_then(|report| report.pointer(pointer));
    let found = value("/consistency").cloned().unwrap_or_default();
    let judged = driver.number("/lost/judged");
    let may_lose = plan.may_lose_pages();
    let allowed = if may_lose { &["ok", "partial"][..] } else { &["ok"] };
    let mut seen = format!("{found}, {} of {CONDITIONS} judged", show(judged));
    if let Some(unjudged) = value("/lost/unjudged").and_then(|unjudged| unjudged.as_object())
        && !unjudged.is_empty()
    {
        let not = unjudged.iter().map(|(condition, keys)| format!("{condition} for {keys}"));
        seen += &format!(", not judged: {}", not.collect::<Vec<_>>().join(", "));
    }
    let readable = if may_lose { ", on what can be read" } else { "" };
    VerdictCheck {
        what: format!("the conditions hold at {}{readable}", driver.name),
        holds: found.as_str().is_some_and(|found| allowed.contains(&found)) && judged > Some(0),
        found: seen,
    }
}

/// What all drivers have committed is there, also what those did that died.
fn verified_commits(plan: &Plan, verified: &ObservedVerification) -> VerdictCheck {
    let number = |pointer: &str| verified.report.as_ref()?.pointer(pointer)?.as_u64();
    let keys = ["looked_for", "found", "on_lost_pages", "missing"];
    let [looked_for, found, on_lost_pages, missing] =
        keys.map(|key| number(&format!("/journal/{key}")));
    let may_lose = plan.may_lose_pages();
    let is_there = missing == Some(0) && (may_lose || on_lost_pages == Some(0));
    let error = verified.error.as_deref().unwrap_or_default();
    // Then nothing can be looked for: a page may be lost without which the database cannot be read.
    let is_lost = may_lose && error.contains(IS_LOST);
    let memory_is_lost = plan.memory_may_be_lost().is_some()
        && plan.says(ErrorCause::Fault).iter().any(|says| error.contains(says))
        || plan.memory_may_be_lost().is_some() && error.contains("memory node");
    let numbers = format!(
        "{}: of {} looked for {} found, {} on lost pages, {} missing",
        verified.ended,
        show(looked_for),
        show(found),
        show(on_lost_pages),
        show(missing)
    );
    VerdictCheck {
        what: "nothing that a driver has committed is missing, whatever became of it".to_owned(),
        holds: verified.ended == ProcessEnd::Code(0) && is_there || memory_is_lost || is_lost,
        found: if error.is_empty() { numbers } else { format!("{numbers}, {error}") },
    }
}

fn show(number: Option<u64>) -> String {
    number.map_or("?".to_owned(), units::count)
}

fn journal(plan: &Plan, outcome: &Observed, driver: &ObservedDriver) -> VerdictCheck {
    let keys = ["committed", "looked_for", "found", "on_lost_pages", "missing"];
    let numbers = keys.map(|key| driver.number(&format!("/journal/{key}")));
    let [committed, looked_for, found, on_lost_pages, missing] =
        numbers.map(Option::unwrap_or_default);
    // One whose home is lost altogether commits nothing.
    let all_lost = plan.may_lose_pages() && driver.number("/lost/transactions") > Some(0);
    let looked = looked_for > 0 || committed == 0 && all_lost;
    // Where work is to go on, some of it must be there to be found.
    let must_find = plan.file.expect.recovers.0.0 > 0.0 && is_untouched(outcome, driver);
    let holds = !numbers.contains(&None)
        && missing == 0
        && looked
        && found + on_lost_pages == looked_for
        && (found > 0 || !must_find);
    let [_, looked_for, found, on_lost_pages, missing] = numbers.map(show);
    VerdictCheck {
        what: format!("nothing that {} committed is missing", driver.name),
        holds,
        found: format!(
            "of {looked_for} looked for {found} found, {on_lost_pages} on lost pages, {missing} missing"
        ),
    }
}

/// What a driver takes for lost, the pool must know to be lost; and where none died without a log
/// that is nothing.
fn losses(plan: &Plan, outcome: &Observed, driver: &ObservedDriver) -> VerdictCheck {
    let (given_up, pages) = (driver.number("/lost/transactions"), driver.number("/lost/pages"));
    let found = format!("{} pages, {} transactions given up", show(pages), show(given_up));
    if !plan.may_lose_pages() {
        let on_lost_pages = driver.number("/journal/on_lost_pages");
        let holds = [given_up, pages, on_lost_pages] == [Some(0); 3];
        return VerdictCheck { what: format!("nothing is lost at {}", driver.name), holds, found };
    }
    let known = outcome.pool.as_ref().map_or(0, |pool| pool.lost_pages.len());
    // The pool's list is cut off there.
    let is_known = pages.is_some_and(|pages| pages <= known as u64 || known >= MAX_LOST_PAGES);
    VerdictCheck {
        what: format!("what is lost at {} is lost in the pool", driver.name),
        holds: is_known && given_up.is_some(),
        found: format!("{found}; {known} pages in the pool"),
    }
}

/// Where a driver lives on, those that died are recovered from.
fn left_in_pool(outcome: &Observed) -> Option<VerdictCheck> {
    let pool = outcome.pool.as_ref()?;
    outcome.drivers.iter().find(|driver| driver.ended == ProcessEnd::Code(0))?;
    let nodes: Vec<u64> = pool.compute_nodes.iter().map(|node| node.node).collect();
    let recovering = &pool.recovering_from;
    Some(VerdictCheck {
        what: "no compute node is left in the pool, or still recovered from".to_owned(),
        holds: nodes.is_empty() && recovering.is_empty(),
        found: format!("{nodes:?}, {recovering:?}"),
    })
}

fn recoveries(plan: &Plan, outcome: &Observed) -> Vec<FaultRecovery> {
    let tracks = survivors(outcome);
    let mut recoveries = Vec::new();
    for (position, fault) in outcome.faults.iter().enumerate() {
        if !fault.due.kills_a_driver() {
            continue;
        }
        let seconds = |at: Duration| at.as_secs_f64();
        let before = outcome.faults.iter().take(position).next_back();
        let after = outcome.faults.get(position + 1);
        let since = before.map_or(0.0, |fault| seconds(fault.done_at));
        let until = after.map_or(f64::INFINITY, |fault| seconds(fault.done_at));
        let span = (since, seconds(fault.done_at), until);
        let expected = (plan.file.expect.recovers.0.0, seconds(patience(plan)));
        let recovery = series::recovery(&tracks, span, expected);
        let name = plan.name_of(fault.due.target);
        recoveries.push(FaultRecovery { due: fault.due, name, recovery });
    }
    recoveries
}

/// How long the throughput may take to come back.
fn patience(plan: &Plan) -> Duration {
    plan.file.pool.lease.0.0 + plan.file.expect.within.0.0
}

/// What those counted to whom nothing happened.
pub(crate) fn survivors(outcome: &Observed) -> Vec<&ThroughputTrack> {
    untouched(outcome).filter_map(|driver| driver.track.as_ref()).collect()
}

fn untouched(outcome: &Observed) -> impl Iterator<Item = &ObservedDriver> {
    outcome.drivers.iter().filter(|driver| is_untouched(outcome, driver))
}

fn is_untouched(outcome: &Observed, driver: &ObservedDriver) -> bool {
    let target = FaultTarget::Driver(driver.driver);
    !outcome.faults.iter().any(|fault| fault.due.touches(target))
}

/// Whether the survivors' throughput came back in time.
fn comes_back(plan: &Plan, recovered: &FaultRecovery) -> VerdictCheck {
    let share = plan.file.expect.recovers.0.0;
    let bound = patience(plan).as_secs_f64();
    let (holds, found) = match &recovered.recovery {
        Err(why) => (false, format!("cannot be judged: {why}")),
        Ok(ThroughputRecovery { before, lowest, back_after }) => {
            let back = match back_after {
                Some(after) => format!("back after {after:.2} s"),
                None => "not back".to_owned(),
            };
            let found =
                format!("{before:.0} a second before, {lowest:.0} in the worst second, {back}");
            (back_after.is_some_and(|after| after <= bound), found)
        }
    };
    VerdictCheck {
        what: format!(
            "{:.0} % of the survivors' throughput is back {bound:.1} s after {} {} at {:.1} s",
            100.0 * share,
            recovered.due.action.name(),
            recovered.name,
            recovered.due.at.as_secs_f64(),
        ),
        holds,
        found,
    }
}

/// Whether a driver that lives did something in every three leases since the last fault was over;
/// where pages may be lost, be it in vain. Nothing can be said of one that was over sooner.
fn goes_on(plan: &Plan, over: Duration, driver: &ObservedDriver) -> Option<VerdictCheck> {
    let (patience, over) = (plan.patience().as_secs_f64(), over.as_secs_f64());
    let track = driver.track.as_ref()?;
    if track.ended < over + patience || track.began > over {
        return None;
    }
    let silence = track.longest_silence(over);
    let given_up = driver.number("/lost/transactions");
    let in_vain = plan.may_lose_pages() && given_up > Some(0);
    Some(VerdictCheck {
        what: format!(
            "{} is not stuck for more than {patience:.1} s after the last fault is over",
            driver.name
        ),
        holds: silence <= patience || in_vain,
        found: format!(
            "{silence:.1} s without a commit at most since {over:.1} s, {} given up in all",
            show(given_up)
        ),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::file::ScenarioFile;
    use super::super::observed::{ObservedFault, ObservedMemoryNode, PoolNode, PoolStatus};
    use super::*;

    /// Without logs.
    const KILL: &str = "[pool]\ndurability = \"none\"\n\
        [[fault]]\nat = \"10s\"\ndo = \"kill\"\ntarget = \"driver-2\"\n";
    const KILL_LOGGED: &str = "[[fault]]\nat = \"10s\"\ndo = \"kill\"\ntarget = \"driver-2\"\n";
    const PAUSE_MEMORY: &str = "[[fault]]\nat = \"10s\"\ndo = \"stop\"\ntarget = \"memory-1\"\n\
        [[fault]]\nat = \"12s\"\ndo = \"continue\"\ntarget = \"memory-1\"\n";
    /// Longer than links over TCP outlive.
    const LONG_PAUSE_OF_MEMORY: &str = "[[fault]]\nat = \"10s\"\ndo = \"stop\"\ntarget = \"memory-1\"\n\
        [[fault]]\nat = \"18s\"\ndo = \"continue\"\ntarget = \"memory-1\"\n";
    const KILL_MEMORY: &str = "[[fault]]\nat = \"10s\"\ndo = \"kill\"\ntarget = \"memory-1\"\n";
    const PAUSE: &str = "[[fault]]\nat = \"10s\"\ndo = \"stop\"\ntarget = \"driver-2\"\n\
        [[fault]]\nat = \"20s\"\ndo = \"continue\"\ntarget = \"driver-2\"\n";

    fn plan(faults: &str) -> Plan {
        plan_over("shm", 1, "plain", faults)
    }

    fn plan_over(fabric: &str, nodes: usize, coding: &str, faults: &str) -> Plan {
        // The faults may come with a section of the pool.
        let pool = match coding {
            "plain" => String::new(),
            coding => format!("[pool]\ncoding = \"{coding}\"\n"),
        };
        let text = format!(
            "name = \"x\"\nfabric = \"{fabric}\"\nduration = \"30s\"\n\
             [memory]\nnodes = {nodes}\nsize = \"1G\"\n{pool}[[driver]]\n[[driver]]\n{faults}"
        );
        Plan::of(ScenarioFile::parse("f", &text).unwrap(), None).unwrap()
    }

    /// All went as it must, and the faults were done in time.
    fn outcome(plan: &Plan, survivor: &[u64]) -> Observed {
        let dies = plan.may_lose_pages();
        let lost = if dies { 2 } else { 0 };
        let report = json!({
            "consistency": if dies { "partial" } else { "ok" },
            "lost": { "transactions": 7 * lost, "pages": lost, "unjudged": { "1": lost }, "judged": 11 },
            "journal": {
                "committed": 20, "looked_for": 10, "found": 10 - lost, "on_lost_pages": lost, "missing": 0,
            },
        });
        let driver = |driver: usize| {
            let expected = plan.end_of(driver, 0);
            let well = expected == ExpectedEnd::Well;
            let counts = survivor.to_vec();
            let ended = counts.len() as f64;
            let (how, at, error) = match expected {
                ExpectedEnd::Well => (ProcessEnd::Code(0), Duration::from_secs(31), None),
                ExpectedEnd::Killed => (ProcessEnd::Signal(9), Duration::from_secs(10), None),
                ExpectedEnd::Error(error)
                | ExpectedEnd::ErrorOrKilled(error)
                | ExpectedEnd::Open(OpenEnd { error, .. }) => {
                    let failure = error;
                    let says = plan.says(failure.cause).remove(0);
                    (ProcessEnd::Code(1), failure.by, Some(format!("error: {says}")))
                }
            };
            ObservedDriver {
                driver,
                name: format!("driver-{}", driver + 1),
                expected,
                ended: how,
                ended_at: at,
                error,
                panic: None,
                report: well.then(|| report.clone()),
                track: well.then_some(ThroughputTrack { began: 0.0, counts, ended }),
            }
        };
        let faults = plan.faults.iter();
        let is_killed = plan.memory_is_lost().is_some();
        let ended = if is_killed { ProcessEnd::Signal(9) } else { ProcessEnd::Code(0) };
        Observed {
            drivers: vec![driver(0), driver(1)],
            memory: vec![ObservedMemoryNode {
                name: "memory-1".to_owned(),
                ended,
                error: None,
                panic: None,
            }],
            verified: (plan.may_lose_drivers() && !is_killed).then(|| ObservedVerification {
                ended: ProcessEnd::Code(0),
                error: None,
                report: Some(report.clone()),
            }),
            faults: faults
                .map(|due| ObservedFault { due: *due, done_at: due.at, missed: false })
                .collect(),
            pool: Some(PoolStatus { lost_pages: vec![1; lost], ..PoolStatus::default() }),
            ..Observed::default()
        }
    }

    /// The checks that do not hold.
    fn failed(plan: &Plan, outcome: &Observed) -> Vec<String> {
        let verdict = judge(plan, outcome);
        let failed = verdict.checks.iter().filter(|check| !check.holds);
        let failed: Vec<_> = failed.map(|check| check.what.clone()).collect();
        assert_eq!(verdict.holds(), failed.is_empty());
        failed
    }

    /// What is wrong with the outcome of a run with these faults.
    fn after(faults: &str, change: impl FnOnce(&mut Observed)) -> Vec<String> {
        let plan = plan(faults);
        let mut outcome = outcome(&plan, &[100; 30]);
        change(&mut outcome);
        failed(&plan, &outcome)
    }

    fn report(outcome: &mut Observed, key: &str, value: Value) {
        let report = outcome.drivers[0].report.as_mut().unwrap();
        *report.pointer_mut(key).unwrap() = value;
    }

    #[test]
    fn what_went_well_holds() {
        for faults in ["", KILL, KILL_LOGGED, KILL_MEMORY, PAUSE, PAUSE_MEMORY] {
            assert_eq!(after(faults, |_| ()), [""; 0]);
        }
    }

    #[test]
    fn who_ends_otherwise_is_named() {
        let ends = ["driver-1 ends well"];
        assert_eq!(after(KILL, |o| o.drivers[0].ended = ProcessEnd::Code(1)), ends);
        assert_eq!(after("", |o| o.drivers[0].ended = ProcessEnd::Not), ends);
        assert_eq!(after("", |o| o.drivers[0].panic = Some("panicked at".to_owned())), ends);
        assert_eq!(after("", |o| o.drivers[0].track = None), ends, "without a report");
        assert_eq!(
            after(KILL, |o| o.drivers[1].ended = ProcessEnd::Code(1)),
            ["driver-2 is killed"]
        );
        let memory = ["memory-1 ends well"];
        assert_eq!(after("", |o| o.memory[0].ended = ProcessEnd::Code(1)), memory);
        assert_eq!(
            after("", |o| o.memory[0].ended = ProcessEnd::Signal(9)),
            memory,
            "no fault of the scenario killed it"
        );
        assert_eq!(after("", |o| o.memory[0].panic = Some("panicked at".to_owned())), memory);
        let killed = ["memory-1 ends by signal 9"];
        assert_eq!(after(KILL_MEMORY, |o| o.memory[0].ended = ProcessEnd::Signal(11)), killed);
        let missed = after(KILL, |o| o.faults[0].missed = true);
        assert_eq!(missed, ["every fault meets its target"]);
        assert_eq!(after(KILL, |o| o.faults.clear()), ["every fault meets its target"]);
    }

    #[test]
    fn a_panic_is_shown() {
        let plan = plan("");
        let mut outcome = outcome(&plan, &[100; 30]);
        outcome.drivers[0].panic = Some("panicked at x.rs:3: no".to_owned());
        outcome.memory[0].panic = Some("panicked at y.rs:4: no".to_owned());
        let verdict = judge(&plan, &outcome);
        for said in ["exit code 0; panicked at x.rs:3: no", "exit code 0; panicked at y.rs:4: no"] {
            assert!(verdict.checks.iter().any(|check| check.found == said), "{:?}", verdict.checks);
        }
    }

    #[test]
    fn what_was_committed_must_be_found() {
        let missing = ["nothing that driver-1 committed is missing"];
        assert_eq!(after(KILL, |o| report(o, "/journal/missing", json!(1))), missing);
        assert_eq!(after(KILL, |o| report(o, "/journal/missing", json!(null))), missing);
        assert_eq!(after(KILL, |o| report(o, "/journal/looked_for", json!(0))), missing);
        assert_eq!(after(KILL, |o| report(o, "/journal/found", json!(7))), missing);
        let all_lost = |o: &mut Observed| {
            report(o, "/journal/found", json!(0));
            report(o, "/journal/on_lost_pages", json!(10));
        };
        assert_eq!(after(KILL, all_lost), missing, "it can go on, but nothing is found");
        let nothing = |o: &mut Observed| {
            let numbers = json!({
                "committed": 0, "looked_for": 0, "found": 0, "on_lost_pages": 0, "missing": 0,
            });
            report(o, "/journal", numbers);
        };
        assert_eq!(after("", nothing), missing, "no process died, and nothing was done");
        assert_eq!(after(KILL, nothing), missing);
        // Where nothing is expected to go on, everything may be lost; but then it was tried.
        let hopeless = format!("{KILL}[expect]\nrecovers = 0\n");
        assert_eq!(after(&hopeless, nothing), [""; 0]);
        assert_eq!(after(&hopeless, all_lost), [""; 0]);
        let idle = |o: &mut Observed| {
            nothing(o);
            report(o, "/lost/transactions", json!(0));
        };
        assert_eq!(after(&hopeless, idle), missing);
    }

    #[test]
    fn the_conditions_must_hold_and_be_judged() {
        let (all, some) = ("the conditions hold at driver-1", ", on what can be read");
        let some = [format!("{all}{some}")];
        let broken = json!([{ "condition": 3 }]);
        assert_eq!(after(KILL, |o| report(o, "/consistency", broken)), some);
        assert_eq!(after(KILL, |o| report(o, "/lost/judged", json!(0))), some);
        assert_eq!(after(KILL, |o| report(o, "/lost/judged", json!(null))), some);
        assert_eq!(after("", |o| report(o, "/consistency", json!("partial"))), [all]);
        let none = after(KILL, |o| o.drivers[0].report = None);
        assert_eq!(none.len(), 3, "conditions, journal and losses: {none:?}");
    }

    #[test]
    fn what_is_lost_must_be_lost_with_somebody() {
        let unknown = ["what is lost at driver-1 is lost in the pool"];
        assert_eq!(after(KILL, |o| report(o, "/lost/pages", json!(3))), unknown);
        assert_eq!(after(KILL, |o| o.pool = None), unknown);
        let many = |o: &mut Observed| {
            report(o, "/lost/pages", json!(MAX_LOST_PAGES + 1));
            o.pool.as_mut().unwrap().lost_pages = vec![1; MAX_LOST_PAGES];
        };
        assert_eq!(after(KILL, many), [""; 0], "the pool knows no more");
        let nothing = ["nothing is lost at driver-1"];
        assert_eq!(after("", |o| report(o, "/lost/pages", json!(1))), nothing);
        assert_eq!(after("", |o| report(o, "/lost/transactions", json!(1))), nothing);
        let on_lost_pages = |o: &mut Observed| {
            report(o, "/journal/on_lost_pages", json!(1));
            report(o, "/journal/found", json!(9));
        };
        assert_eq!(after("", on_lost_pages), nothing);
    }

    #[test]
    fn what_is_left_is_named() {
        let left = ["no compute node is left in the pool, or still recovered from"];
        let pool =
            |change: fn(&mut PoolStatus)| move |o: &mut Observed| change(o.pool.as_mut().unwrap());
        let node = PoolNode { node: 3 };
        assert_eq!(after(KILL, pool(|_| ())), [""; 0]);
        assert_eq!(after(KILL, |o| o.pool.as_mut().unwrap().compute_nodes.push(node)), left);
        assert_eq!(after(KILL, pool(|pool| pool.recovering_from.push(3))), left);
        let leftover = |o: &mut Observed| o.leftovers.push("segment cn1".to_owned());
        assert_eq!(after("", leftover), ["nothing is left behind"]);
        let trouble = |o: &mut Observed| o.troubles.push("pool status: no".to_owned());
        assert_eq!(after("", trouble), ["all can be looked at and removed"]);
    }

    #[test]
    fn throughput_must_come_back_in_time() {
        let plan = plan(KILL);
        let judged = |counts: &[u64]| {
            let outcome = outcome(&plan, counts);
            let checks = judge(&plan, &outcome).checks;
            let check = checks.iter().find(|check| check.what.contains("throughput")).unwrap();
            (check.holds, check.found.clone(), failed(&plan, &outcome).len())
        };
        let slow = |until: usize| {
            let mut counts = vec![100; 30];
            counts.iter_mut().take(until).skip(10).for_each(|count| *count = 5);
            judged(&counts).0
        };
        // A lease of two seconds, and three.
        assert!(slow(15) && !slow(17) && !slow(30));
        let (holds, found, others) = judged(&[100; 12]);
        assert_eq!((holds, others), (false, 1), "{found}");
        assert_eq!(found, "cannot be judged: it was seen for 2.0 s, and takes 8.0 s to judge");
        assert_eq!(judged(&[0; 30]).1, "cannot be judged: nothing was committed before");
        let unknown = after(KILL, |o| o.drivers[0].track.as_mut().unwrap().began = 9.0);
        assert_eq!(unknown.len(), 1, "{unknown:?}");
    }

    #[test]
    fn without_a_throughput_to_come_back_to_something_must_go_on() {
        let hopeless = format!("{KILL}[expect]\nrecovers = 0\n");
        let plan = plan(&hopeless);
        let what: Vec<_> = judge(&plan, &outcome(&plan, &[100; 30])).checks;
        assert!(what.iter().all(|check| !check.what.contains("throughput")), "{what:?}");
        let stops = [vec![100; 10], vec![0; 20]].concat();
        let mut outcome = outcome(&plan, &stops);
        assert_eq!(failed(&plan, &outcome), [""; 0], "it tries, in vain");
        report(&mut outcome, "/lost/transactions", json!(0));
        let stuck = "driver-1 is not stuck for more than 6.0 s after the last fault is over";
        assert_eq!(failed(&plan, &outcome), [stuck]);
    }

    #[test]
    fn with_logs_nothing_may_be_lost_though_a_driver_dies() {
        let logged = format!("{KILL_LOGGED}[expect]\nrecovers = 0\n");
        let plan = plan(&logged);
        let run = |change: &dyn Fn(&mut Observed)| {
            let mut outcome = outcome(&plan, &[100; 30]);
            change(&mut outcome);
            failed(&plan, &outcome)
        };
        assert_eq!(run(&|_| ()), [""; 0]);
        let nothing = ["nothing is lost at driver-1"];
        for key in ["/lost/pages", "/lost/transactions"] {
            assert_eq!(run(&|o| report(o, key, json!(1))), nothing, "{key}");
        }
        let ok = ["the conditions hold at driver-1"];
        assert_eq!(run(&|o| report(o, "/consistency", json!("partial"))), ok);
        let there = ["nothing that a driver has committed is missing, whatever became of it"];
        let verified = |change: &dyn Fn(&mut ObservedVerification)| {
            run(&|o| change(o.verified.as_mut().unwrap()))
        };
        for key in ["/journal/missing", "/journal/on_lost_pages"] {
            let change = |v: &mut ObservedVerification| {
                *v.report.as_mut().unwrap().pointer_mut(key).unwrap() = json!(1);
            };
            assert_eq!(verified(&change), there, "{key}");
        }
        assert_eq!(verified(&|v| v.report = None), there);
        assert_eq!(verified(&|v| v.ended = ProcessEnd::Code(1)), there);
        assert_eq!(verified(&|v| v.ended = ProcessEnd::Not), there);
        // No driver is stuck, neither at once nor later.
        let stuck = ["driver-1 is not stuck for more than 6.0 s after the last fault is over"];
        for (from, to, holds) in [(10, 16, true), (10, 17, false), (20, 27, false), (24, 30, true)]
        {
            let mut counts = vec![100; 30];
            counts.iter_mut().take(to).skip(from).for_each(|count| *count = 0);
            let found = failed(&plan, &outcome(&plan, &counts));
            let expected: &[&str] = if holds { &[] } else { &stuck };
            assert_eq!(found, expected, "{from} to {to}");
        }
    }

    #[test]
    fn what_chance_decides_may_end_in_any_of_its_ends_and_in_no_other() {
        let plan = plan_over("tcp", 1, "plain", LONG_PAUSE_OF_MEMORY);
        let run = |change: &dyn Fn(&mut ObservedDriver)| {
            let mut outcome = outcome(&plan, &[100; 30]);
            change(&mut outcome.drivers[1]);
            failed(&plan, &outcome)
        };
        let seconds = Duration::from_secs;
        let error = |text: &'static str, at| {
            move |d: &mut ObservedDriver| {
                (d.ended, d.ended_at, d.error) =
                    (ProcessEnd::Code(1), seconds(at), Some(text.to_owned()));
            }
        };
        assert_eq!(run(&error("error: peer mem0 is dead", 12)), [""; 0]);
        assert_eq!(run(&error("error: cannot reach mem0", 17)), [""; 0]);
        assert_eq!(run(&error("error: declared dead by the others", 12)), [""; 0]);
        for wrong in [
            error("error: peer mem0 is dead", 9),
            error("error: peer mem0 is dead", 25),
            error("error: pool full", 12),
        ] {
            assert_eq!(run(&wrong).len(), 1);
        }
        assert_eq!(run(&|d| d.ended = ProcessEnd::Not).len(), 1, "it hung");
        assert_eq!(run(&|d| d.ended = ProcessEnd::Signal(9)).len(), 1, "no fault ends it");
        // A driver that ends well says so, and then all must hold.
        let well = |d: &mut ObservedDriver| {
            (d.ended, d.ended_at, d.error) = (ProcessEnd::Code(0), seconds(31), None);
        };
        assert!(run(&well).contains(&"the conditions hold at driver-2".to_owned()));
        let memory = |plan: &Plan, ended, error: Option<&str>| {
            let mut outcome = outcome(plan, &[100; 30]);
            (outcome.memory[0].ended, outcome.memory[0].error) = (ended, error.map(str::to_owned));
            failed(plan, &outcome).len()
        };
        let dead = Some("error: the pool has declared mem0 dead");
        let coded = plan_over("tcp", 4, "2+1", LONG_PAUSE_OF_MEMORY);
        for (plan, condemned) in [(&plan, 1), (&coded, 0)] {
            assert_eq!(memory(plan, ProcessEnd::Code(1), dead), condemned);
            assert_eq!(memory(plan, ProcessEnd::Code(1), Some("error: no memory")), 1);
            assert_eq!(memory(plan, ProcessEnd::Not, None), 1);
        }
    }

    /// Silence condemns no memory that cannot be spared, and none that is shared.
    #[test]
    fn memory_that_was_only_silent_is_not_lost() {
        let over_tcp = |coding| plan_over("tcp", 4, coding, LONG_PAUSE_OF_MEMORY);
        let shared = |coding| plan_over("shm", 4, coding, LONG_PAUSE_OF_MEMORY);
        for plan in [over_tcp("plain"), shared("plain"), shared("2+1")] {
            assert!(plan.memory_may_be_lost().is_none());
            let mut outcome = outcome(&plan, &[100; 30]);
            outcome.memory[0].ended = ProcessEnd::Signal(9);
            assert_eq!(failed(&plan, &outcome), ["memory-1 ends well"]);
            outcome.memory[0].ended = ProcessEnd::Code(0);
            outcome.verified = Some(ObservedVerification {
                ended: ProcessEnd::Code(1),
                error: Some("error: peer mem0 is dead".to_owned()),
                report: None,
            });
            let missing = "nothing that a driver has committed is missing, whatever became of it";
            assert_eq!(failed(&plan, &outcome), [missing]);
        }
        for plan in [shared("plain"), shared("2+1")] {
            assert_eq!(plan.end_of(0, 0), ExpectedEnd::Well);
        }
        assert!(over_tcp("plain").may_lose_drivers(), "their links end");
    }

    #[test]
    fn errors_must_be_told_and_in_time() {
        let run = |faults: &str, change: &dyn Fn(&mut ObservedDriver)| {
            after(faults, |outcome| change(&mut outcome.drivers[1]))
        };
        let seconds = Duration::from_secs;
        let memory = ["driver-2 ends with the error `peer mem0 is dead` by 17.0 s"];
        assert_eq!(run(KILL_MEMORY, &|d| d.ended_at = seconds(10)), [""; 0]);
        assert_eq!(run(KILL_MEMORY, &|d| d.ended_at = seconds(18)), memory);
        assert_eq!(run(KILL_MEMORY, &|d| d.ended_at = seconds(9)), memory, "before the fault");
        assert_eq!(run(KILL_MEMORY, &|d| d.error = None), memory, "it must say why");
        let other = "error: pool full".to_owned();
        assert_eq!(run(KILL_MEMORY, &|d| d.error = Some(other.clone())), memory);
        let another = "error: peer mem1 is dead".to_owned();
        assert_eq!(run(KILL_MEMORY, &|d| d.error = Some(another.clone())), memory);
        assert_eq!(run(KILL_MEMORY, &|d| d.ended = ProcessEnd::Code(0)), memory);
        assert_eq!(run(KILL_MEMORY, &|d| d.ended = ProcessEnd::Signal(9)), memory);

        let said = "driver-2 ends with the error `declared dead by the others` by 25.0 s";
        let fenced = [format!("{said}, or is fenced")];
        assert_eq!(run(PAUSE, &|d| d.ended = ProcessEnd::Signal(9)), [""; 0]);
        assert_eq!(run(PAUSE, &|d| d.ended = ProcessEnd::Code(0)), fenced);
        assert_eq!(run(PAUSE, &|d| d.ended_at = seconds(19)), fenced, "before it went on");
        assert_eq!(run(PAUSE, &|d| d.error = Some(other.clone())), fenced);
    }
}
