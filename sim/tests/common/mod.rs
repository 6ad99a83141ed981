//! The crate `adya`, an independent implementation of Elle, as a second opinion on histories of
//! ours.

#![allow(clippy::unwrap_used, reason = "test support: what goes wrong here shall panic")]

use adya::{History, Opts, Report, Workload};
use selkie_sim::check::serial::{Op, Status, Transaction};

/// What `adya` says of a history, all of it of one workload. Written values follow the reads of
/// their transactions.
pub(crate) fn adya(history: &[Transaction], workload: Workload, model: &str) -> Report {
    let options = Opts { models: vec![model.into()], wfr_keys: true, ..Opts::default() };
    adya::check(&History::from_json(&to_adya(history)).unwrap(), workload, &options)
}

/// Jepsen's format: one line for each invocation and each completion, in the order of time.
fn to_adya(history: &[Transaction]) -> String {
    let mut lines = Vec::new();
    for (process, transaction) in history.iter().enumerate() {
        let committed = transaction.status == Status::Committed;
        let (kind, returned) = match (transaction.status, transaction.returned) {
            (Status::Committed, returned) => ("ok", returned.unwrap_or(u64::MAX)),
            (Status::Aborted, returned) => ("fail", returned.unwrap_or(u64::MAX)),
            (Status::Unknown, _) => ("info", u64::MAX),
        };
        let value = |done: bool| {
            let ops = transaction.ops.iter().map(|op| match op {
                Op::Read { key, value: Some(value) } if done => format!(r#"["r",{key},{value}]"#),
                Op::ReadList { key, value } if done => format!(r#"["r",{key},{value:?}]"#),
                Op::Read { key, .. } | Op::ReadList { key, .. } => format!(r#"["r",{key},null]"#),
                Op::Write { key, value } => format!(r#"["w",{key},{value}]"#),
                Op::Append { key, value } => format!(r#"["append",{key},{value}]"#),
                Op::Scan { .. } => panic!("adya knows no scans"),
            });
            ops.collect::<Vec<_>>().join(",")
        };
        let line = |kind: &str, value| {
            format!(r#"{{"type":"{kind}","process":{process},"value":[{value}]}}"#)
        };
        // What completes at an instant does not precede what is invoked then.
        lines.push((transaction.invoked, false, line("invoke", value(false))));
        lines.push((returned, true, line(kind, value(committed))));
    }
    lines.sort();
    lines.into_iter().map(|(_, _, line)| line + "\n").collect()
}
