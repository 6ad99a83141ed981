//! The command: looks, judges, prints.

use std::process::ExitCode;

use clap::Args;
use comfy_table::{Table, presets};
use serde_json::json;

use super::checks::{self, Check, Finding};
use super::host::Host;
use crate::support::exit;

/// Looks whether this host is fit for pools: kernel, cores, memory, shared memory, huge pages,
/// clock, limits of a process, RDMA devices. Says what to do where it is not. Nothing is changed.
///
/// Exit code 1: something that the guide shows will fail here.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let checks = checks::all(&Host::this());
    let worst = checks::worst(&checks);
    let text = if arguments.json {
        format!("{}\n", json!({ "verdict": worst, "checks": checks }))
    } else {
        table(&checks, worst)
    };
    exit::print(&text, worst < Finding::Problem)
}

fn table(checks: &[Check], worst: Finding) -> String {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED).set_header(["what", "verdict", "found"]);
    for check in checks {
        table.add_row([check.name, check.verdict.word(), &check.found]);
    }
    let verdict = match worst {
        Finding::Ok => "this host is fit for pools",
        Finding::Note => "this host is fit for pools; it could be better",
        Finding::Problem => "something will fail here",
    };
    let mut text = format!("{verdict}\n{table}\n");
    for Check { name, remedy, .. } in checks {
        if let Some(remedy) = remedy {
            text += &format!("{name}: {remedy}\n");
        }
    }
    text
}
