//! What is said about a scenario that ran: tables for people, an object for programs.

use std::fmt::Write;

use comfy_table::{Table, presets::UTF8_BORDERS_ONLY};
use selkie_tpcc::units;
use serde_json::{Value, json};

use super::observed::{Observed, ObservedDriver};
use super::plan::Plan;
use super::series;
use super::verdict::{FaultRecovery, ScenarioVerdict, survivors};

/// Seconds shown before a fault, and after the end of the lease and what is allowed on top.
const MARGIN: f64 = 3.0;

/// One object.
pub(crate) fn json(plan: &Plan, outcome: &Observed, verdict: &ScenarioVerdict) -> Value {
    let drivers = outcome.drivers.iter().map(|driver| {
        json!({
            "name": driver.name,
            "ended": driver.ended.to_string(),
            "ended_at": driver.ended_at.as_secs_f64(),
            "error": driver.error,
            "began": driver.track.as_ref().map(|track| track.began),
            "report": driver.report,
        })
    });
    let memory = outcome.memory.iter();
    let memory = memory.map(|node| json!({ "name": node.name, "ended": node.ended.to_string() }));
    let faults = outcome.faults.iter().map(|fault| {
        json!({
            "at": fault.due.at.as_secs_f64(),
            "done_at": fault.done_at.as_secs_f64(),
            "do": fault.due.action.name(),
            "target": plan.name_of(fault.due.target),
            "from": fault.due.from.map(|from| plan.name_of(from)),
            "one_way": fault.due.one_way,
            "missed": fault.missed,
        })
    });
    let recoveries = verdict.recoveries.iter().map(|recovered| {
        let recovery = recovered.recovery.as_ref().ok().map(|recovery| {
            json!({
                "before": recovery.before, "lowest": recovery.lowest, "back_after": recovery.back_after,
            })
        });
        json!({
            "at": recovered.due.at.as_secs_f64(),
            "do": recovered.due.action.name(),
            "target": recovered.name,
            "throughput": recovery,
            "seconds": around(plan, outcome, recovered)
                .into_iter()
                .map(|(second, rate)| json!([second, rate]))
                .collect::<Vec<_>>(),
        })
    });
    let checks = verdict
        .checks
        .iter()
        .map(|check| json!({ "what": check.what, "holds": check.holds, "found": check.found }));
    json!({
        "name": plan.file.name,
        "holds": verdict.holds(),
        "duration_s": plan.duration.as_secs_f64(),
        "lost_pages": lost_pages(outcome),
        "drivers": drivers.collect::<Vec<_>>(),
        "memory": memory.collect::<Vec<_>>(),
        "faults": faults.collect::<Vec<_>>(),
        "verified": outcome.verified.as_ref().map(|verified| {
            json!({
                "ended": verified.ended.to_string(),
                "error": verified.error,
                "report": verified.report,
            })
        }),
        "recoveries": recoveries.collect::<Vec<_>>(),
        "checks": checks.collect::<Vec<_>>(),
    })
}

/// Tables.
pub(crate) fn text(plan: &Plan, outcome: &Observed, verdict: &ScenarioVerdict) -> String {
    let mut text = format!("{}\n", drivers(outcome));
    for recovered in &verdict.recoveries {
        let (action, name) = (recovered.due.action.name(), &recovered.name);
        // Writing to a string cannot fail.
        let _ = write!(text, "survivors around {action} {name}, transactions a second:");
        for (second, rate) in around(plan, outcome, recovered) {
            let _ = write!(text, " {second:+.0}s {}", whole(rate));
        }
        text.push('\n');
    }
    if lost_pages(outcome) > 0 {
        let pages = units::plural(lost_pages(outcome) as u64, "page");
        let _ = writeln!(text, "lost with nodes that died: {pages}");
    }
    for check in &verdict.checks {
        let mark = if check.holds { "ok    " } else { "FAILED" };
        let _ = writeln!(text, "{mark} {}: {}", check.what, check.found);
    }
    let result = if verdict.holds() { "ok" } else { "FAILED" };
    let _ = writeln!(text, "scenario {}: {result}", plan.file.name);
    text
}

fn lost_pages(outcome: &Observed) -> usize {
    outcome.pool.as_ref().map_or(0, |pool| pool.lost_pages.len())
}

fn drivers(outcome: &Observed) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY);
    table.set_header([
        "driver",
        "ended",
        "per second",
        "lost",
        "consistency",
        "lost pages",
        "hits",
    ]);
    for driver in &outcome.drivers {
        let number = |pointer: &str| driver.number(pointer).map_or_else(String::new, units::count);
        table.add_row([
            driver.name.clone(),
            format!("{} at {:.1} s", driver.ended, driver.ended_at.as_secs_f64()),
            value(driver, "tps").as_f64().map_or_else(String::new, whole),
            number("/lost/transactions"),
            match value(driver, "consistency") {
                Value::Null => String::new(),
                Value::String(text) => text,
                _ => "BROKEN".to_owned(),
            },
            number("/lost/pages"),
            value(driver, "hit_ratio")
                .as_f64()
                .map_or_else(String::new, |ratio| format!("{:.1} %", 100.0 * ratio)),
        ]);
    }
    table
}

fn whole(rate: f64) -> String {
    units::count(rate.round() as u64)
}

fn value(driver: &ObservedDriver, key: &str) -> Value {
    driver.report.as_ref().map(|report| report[key].clone()).unwrap_or_default()
}

/// The survivors' throughput in the seconds around a fault, each by its beginning relative to the
/// fault.
fn around(plan: &Plan, outcome: &Observed, recovered: &FaultRecovery) -> Vec<(f64, f64)> {
    let tracks = survivors(outcome);
    let fault = outcome.faults.iter().find(|fault| fault.due == recovered.due);
    let at = fault.map_or(recovered.due.at, |fault| fault.done_at).as_secs_f64();
    let after = plan.file.pool.lease.0.0 + plan.file.expect.within.0.0;
    let last = (after.as_secs_f64() + MARGIN).ceil() as i32;
    let seconds = (-(MARGIN as i32)..last).map(f64::from);
    let ended = tracks.iter().map(|track| track.ended).fold(f64::INFINITY, f64::min);
    let seconds = seconds.filter(|second| at + second >= 0.0 && at + second + 1.0 <= ended);
    seconds.map(|second| (second, series::rate(&tracks, at + second, at + second + 1.0))).collect()
}
