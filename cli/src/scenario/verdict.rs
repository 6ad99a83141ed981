//! Whether all went as it must.

use std::time::Duration;

use selkie::pool::control::MAX_LOST_PAGES;
use selkie_tpcc::check::CONDITIONS;

use super::ends::{ExpectedEnd, ExpectedError};
use super::observed::{Observed, ObservedDriver, ObservedMemoryNode, ProcessEnd};
use super::plan::{FaultTarget, Plan, PlannedFault};
use super::series::{self, ThroughputRecovery, ThroughputTrack};

/// What was found.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
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

impl Verdict {
    pub(crate) fn holds(&self) -> bool {
        self.checks.iter().all(|check| check.holds)
    }
}

/// Judges what was seen.
pub(crate) fn judge(plan: &Plan, outcome: &Observed) -> Verdict {
    let mut checks = vec![faults(plan, outcome)];
    for driver in &outcome.drivers {
        checks.push(end(plan, driver));
        if driver.expected == ExpectedEnd::Well {
            checks.push(conditions(plan, driver));
            checks.push(journal(plan, outcome, driver));
            checks.push(losses(plan, outcome, driver));
        }
    }
    let memory = outcome.memory.iter().enumerate();
    checks.extend(memory.map(|(position, memory)| end_of_memory(outcome, position, memory)));
    let recoveries = recoveries(plan, outcome);
    if plan.file.expect.recovers.0.0 > 0.0 {
        checks.extend(recoveries.iter().map(|recovered| comes_back(plan, recovered)));
    } else if plan.loses_drivers() && plan.memory_is_lost().is_none() {
        checks.extend(untouched(outcome).map(|driver| goes_on(outcome, driver)));
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
    Verdict { checks, recoveries }
}

/// A fault whose target had ended before is no fault.
fn faults(plan: &Plan, outcome: &Observed) -> VerdictCheck {
    let missed = outcome.faults.iter().filter(|fault| fault.missed);
    let missed: Vec<_> = missed
        .map(|fault| {
            let (name, at) = (plan.name_of(fault.due.target), fault.done_at.as_secs_f64());
            format!("{} at {at:.1} s: {name} had ended before", fault.due.action.name())
        })
        .collect();
    let (done, due) = (outcome.faults.len(), plan.faults.len());
    let found = if missed.is_empty() { format!("{done} of {due}") } else { missed.join(", ") };
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
    let (what, holds) = match driver.expected {
        ExpectedEnd::Well => {
            (format!("{name} ends well"), *ended == ProcessEnd::Code(0) && driver.track.is_some())
        }
        ExpectedEnd::Killed => (format!("{name} is killed"), *ended == ProcessEnd::Signal(9)),
        ExpectedEnd::Error(failure) => (by_error(failure), has_error(plan, driver, failure)),
        ExpectedEnd::ErrorOrKilled(failure) => (
            format!("{}, or is fenced", by_error(failure)),
            has_error(plan, driver, failure) || *ended == ProcessEnd::Signal(9),
        ),
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

fn end_of_memory(outcome: &Observed, position: usize, memory: &ObservedMemoryNode) -> VerdictCheck {
    let target = FaultTarget::Memory(position);
    let is_killed = outcome.faults.iter().any(|fault| fault.due.target == target);
    let expected = if is_killed { ProcessEnd::Signal(9) } else { ProcessEnd::Code(0) };
    let ObservedMemoryNode { name, ended, panic } = memory;
    let found = match panic {
        Some(panic) => format!("{ended}; {panic}"),
        None => ended.to_string(),
    };
    let what = format!("{name} ends {}", how(expected));
    VerdictCheck { what, holds: *ended == expected && panic.is_none(), found }
}

/// Where no node died all must hold; else what can be read, which must be something.
fn conditions(plan: &Plan, driver: &ObservedDriver) -> VerdictCheck {
    let value = |pointer: &str| driver.report.as_ref().and_then(|report| report.pointer(pointer));
    let found = value("/consistency").cloned().unwrap_or_default();
    let judged = driver.number("/lost/judged");
    let may_lose = plan.loses_drivers();
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

fn show(number: Option<u64>) -> String {
    number.map_or("?".to_owned(), |number| number.to_string())
}

fn journal(plan: &Plan, outcome: &Observed, driver: &ObservedDriver) -> VerdictCheck {
    let keys = ["committed", "looked_for", "found", "on_lost_pages", "missing"];
    let numbers = keys.map(|key| driver.number(&format!("/journal/{key}")));
    let [committed, looked_for, found, on_lost_pages, missing] =
        numbers.map(Option::unwrap_or_default);
    // One whose home is lost altogether commits nothing.
    let all_lost = plan.loses_drivers() && driver.number("/lost/transactions") > Some(0);
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

/// What a driver takes for lost, the pool must know to be lost; and where no node died that is
/// nothing.
fn losses(plan: &Plan, outcome: &Observed, driver: &ObservedDriver) -> VerdictCheck {
    let (given_up, pages) = (driver.number("/lost/transactions"), driver.number("/lost/pages"));
    let found = format!("{} pages, {} transactions given up", show(pages), show(given_up));
    if !plan.loses_drivers() {
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
        if !fault.due.kills || matches!(fault.due.target, FaultTarget::Memory(_)) {
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
    let mut targets = outcome.faults.iter().map(|fault| fault.due.target);
    targets.all(|target| target != FaultTarget::Driver(driver.driver))
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

/// Where nothing is said about throughput, those to whom nothing happened still do something after
/// the last fault, be it in vain.
fn goes_on(outcome: &Observed, driver: &ObservedDriver) -> VerdictCheck {
    let last = outcome.faults.iter().map(|fault| fault.done_at).max().unwrap_or_default();
    let track = driver.track.as_ref();
    let done = track.map_or(0.0, |track| track.committed(last.as_secs_f64(), f64::INFINITY));
    let given_up = driver.number("/lost/transactions");
    VerdictCheck {
        what: format!("{} goes on after the last fault", driver.name),
        holds: done > 0.0 || given_up > Some(0),
        found: format!("{done:.0} transactions, {} given up in all", show(given_up)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::file::ScenarioFile;
    use super::super::observed::{ObservedFault, ObservedMemoryNode, PoolNode, PoolStatus};
    use super::*;

    const KILL: &str = "[[fault]]\nat = \"10s\"\ndo = \"kill\"\ntarget = \"driver-2\"\n";
    const KILL_MEMORY: &str = "[[fault]]\nat = \"10s\"\ndo = \"kill\"\ntarget = \"memory-1\"\n";
    const PAUSE: &str = "[[fault]]\nat = \"10s\"\ndo = \"stop\"\ntarget = \"driver-2\"\n\
        [[fault]]\nat = \"20s\"\ndo = \"continue\"\ntarget = \"driver-2\"\n";

    fn plan(faults: &str) -> Plan {
        let text = format!(
            "name = \"x\"\nfabric = \"shm\"\nduration = \"30s\"\n[memory]\nnodes = 1\nsize = \"1G\"\n\
             [[driver]]\n[[driver]]\n{faults}"
        );
        Plan::of(ScenarioFile::parse("f", &text).unwrap(), None).unwrap()
    }

    /// All went as it must, and the faults were done in time.
    fn outcome(plan: &Plan, survivor: &[u64]) -> Observed {
        let dies = plan.loses_drivers();
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
                ExpectedEnd::Error(failure) | ExpectedEnd::ErrorOrKilled(failure) => {
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
            memory: vec![ObservedMemoryNode { name: "memory-1".to_owned(), ended, panic: None }],
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
        for faults in ["", KILL, KILL_MEMORY, PAUSE] {
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
        assert_eq!(failed(&plan, &outcome), ["driver-1 goes on after the last fault"]);
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
