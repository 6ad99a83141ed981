//! `selkie cert`.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::support::certificates::{self, CertError, MAX_DAYS, Validity};
use crate::support::exit;
use crate::support::stdout::tell;
use clap::{Args, Subcommand};
use comfy_table::{Table, presets};
use selkie::fabric::Role;
use selkie::shared::PoolName;
use serde_json::json;

/// Certificates of the nodes of pools over TCP, which then need --tls.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Makes the authority of a pool: DIR/ca.pem and DIR/ca.key
    Init {
        /// Directory to make
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// Name of the authority: 1 to 64 letters, digits, `-` or `_`
        #[arg(long, value_name = "POOL", default_value = "selkie")]
        name: PoolName,
        /// Days of validity, 1 to 36500
        #[arg(long, value_name = "N", default_value_t = 3650)]
        days: u32,
    },
    /// Makes what a node of the pool needs, for its --tls: DIR/NAME with ca.pem, node.pem and
    /// node.key
    Node {
        /// Directory of the authority
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// Name of the node's certificate: 1 to 64 letters, digits, `-` or `_`
        #[arg(value_name = "NAME")]
        name: PoolName,
        /// What the node may do: `memory` lends memory and passes requests on; `compute` reads and
        /// writes pages; `reader` reads pages; `operator` looks at the pool and drains memory nodes
        #[arg(long, value_name = "ROLE", default_value = "compute")]
        role: Role,
        /// Days of validity, 1 to 36500, not beyond the authority [default: 365, or as long as
        /// the authority]
        #[arg(long, value_name = "N")]
        days: Option<u32>,
    },
    /// Shows the subject, the role, the issuer and the validity of certificates in files
    Show {
        /// Files with certificates in PEM
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
        /// Print one JSON object instead of a table
        #[arg(long)]
        json: bool,
    },
}

/// Looks for values out of range.
pub(crate) fn check(arguments: &Arguments) -> Result<(), exit::Refusal> {
    let days = match &arguments.command {
        Command::Init { days, .. } => Some(*days),
        Command::Node { days, .. } => *days,
        Command::Show { .. } => None,
    };
    match days {
        Some(days) if !(1..=MAX_DAYS).contains(&days) => {
            let allowed = format!("must be 1 to {MAX_DAYS}");
            Err(exit::Refusal::new("days", &days.to_string(), &allowed))
        }
        _ => Ok(()),
    }
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if let Err(refusal) = check(arguments) {
        return exit::refuse(&refusal);
    }
    let done = match &arguments.command {
        Command::Init { dir, name, days } => {
            certificates::make_authority(dir, name, *days).map(|()| {
                tell!(
                    "{} vouches for nodes of {name}: selkie cert node {} NAME",
                    dir.join("ca.pem").display(),
                    dir.display()
                );
            })
        }
        Command::Node { dir, name, role, days } => certificates::make_node(dir, name, *role, *days)
            .map(|own| tell!("{name} is ready, of role {role}: --tls {}", own.display())),
        Command::Show { files, json } => show(files, *json),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::fail(&error),
    }
}

fn show(files: &[PathBuf], as_json: bool) -> Result<(), CertError> {
    let mut all = Vec::new();
    for path in files {
        all.extend(certificates::show(path)?.into_iter().map(|shown| (path.display(), shown)));
    }
    let word = |state| match state {
        Validity::Valid => "valid",
        Validity::Expired => "expired",
        Validity::NotYet => "not yet valid",
    };
    if as_json {
        let all: Vec<_> = all
            .iter()
            .map(|(file, shown)| {
                json!({
                    "file": file.to_string(), "subject": shown.subject, "role": shown.role,
                    "issuer": shown.issuer,
                    "from": shown.from, "until": shown.until, "state": word(shown.state),
                })
            })
            .collect();
        tell!("{}", json!({ "certificates": all }));
        return Ok(());
    }
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_header(["file", "subject", "role", "issuer", "from", "until", "state"]);
    for (file, shown) in all {
        table.add_row([
            file.to_string(),
            shown.subject,
            shown.role.unwrap_or_else(|| "-".to_owned()),
            shown.issuer,
            shown.from,
            shown.until,
            word(shown.state).to_owned(),
        ]);
    }
    tell!("{table}");
    Ok(())
}
