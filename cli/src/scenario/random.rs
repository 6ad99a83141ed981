//! Rounds of scenarios that are drawn at random: each is run and judged, and told of in a line.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use super::draw::{DrawLimits, DrawnScenario, draw};
use super::error::ScenarioError;
use super::file::{FabricKind, ScenarioFile};
use super::plan::Plan;
use super::processes::OutputDirectory;
use super::runner::{ScenarioRun, say};
use super::verdict::{self, VerdictCheck};
use crate::support::exit::print;
use crate::support::stdout::tell;

/// How long the drivers of a round may take when its time is over, before they count as stuck.
const CHECK: Duration = Duration::from_secs(60);

#[derive(Args)]
pub(super) struct RandomArguments {
    /// Rounds, each of 10 to 40 seconds, 1 to 1000000
    #[arg(long, value_name = "N", default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rounds: u64,
    /// Seed of the first round; the others have the numbers that follow
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Only this fabric, `shm` or `tcp` [default: shm and tcp]
    #[arg(long, value_name = "FABRIC", value_parser = fabric)]
    fabric: Option<FabricKind>,
    /// No cuts, for which processes over TCP are in network namespaces: these need the rights of
    /// root
    #[arg(long)]
    no_cuts: bool,
    /// Print one JSON object instead of lines
    #[arg(long)]
    json: bool,
    /// Keep the output of all processes of all rounds, not only where something does not hold
    #[arg(long)]
    keep: bool,
}

fn fabric(text: &str) -> Result<FabricKind, String> {
    match text {
        "shm" => Ok(FabricKind::Shm),
        "tcp" => Ok(FabricKind::Tcp),
        _ => Err("must be shm or tcp".to_owned()),
    }
}

/// A round that was run.
struct Round {
    seed: u64,
    drawn: DrawnScenario,
    took: Duration,
    /// What does not hold, or why it could not be run to its end.
    wrong: Vec<String>,
    /// Where the output of its processes is, if it was kept.
    output: Option<String>,
}

pub(super) fn run(arguments: &RandomArguments) -> ExitCode {
    let mut rounds = Vec::new();
    for number in 0..arguments.rounds {
        let seed = arguments.seed.wrapping_add(number);
        match play(arguments, seed) {
            Ok(round) => {
                if !arguments.json {
                    let mark = if round.wrong.is_empty() { "ok    " } else { "FAILED" };
                    let (took, what) = (round.took.as_secs_f64(), &round.drawn.what);
                    tell!("{mark} seed {seed}, {took:.1} s, {what}");
                }
                tell(arguments, &round);
                rounds.push(round);
            }
            Err(error) => return error.fail(),
        }
    }
    let failed = rounds.iter().filter(|round| !round.wrong.is_empty()).count();
    let held = rounds.len() - failed;
    let text = if arguments.json {
        let rounds: Vec<Value> = rounds.iter().map(|round| as_json(arguments, round)).collect();
        format!("{}\n", json!({ "rounds": rounds, "held": held, "failed": failed }))
    } else {
        format!("{held} of {} rounds went as they must, {failed} did not\n", rounds.len())
    };
    print(&text, failed == 0)
}

/// Runs the scenario of a seed, and judges it.
fn play(arguments: &RandomArguments, seed: u64) -> Result<Round, ScenarioError> {
    let limits = DrawLimits { fabric: arguments.fabric, cuts: !arguments.no_cuts };
    let drawn = draw(seed, limits);
    let wrong = |what: String| ScenarioError::Process { name: format!("seed {seed}"), what };
    let file = ScenarioFile::parse("drawn", &drawn.text).map_err(|e| wrong(e.to_string()))?;
    let mut plan = Plan::of(file, None).map_err(wrong)?;
    plan.check = CHECK;
    let mut output = OutputDirectory::make(&plan.file.name)?;
    let path = output.directory().join("scenario.toml");
    std::fs::write(&path, &drawn.text)
        .map_err(|source| ScenarioError::io(path.display(), source))?;
    say(&format!("seed {seed}: {}", drawn.what));
    let started = Instant::now();
    let wrong: Vec<String> = match ScenarioRun::play(&plan, &output) {
        Ok(outcome) => {
            let checks = verdict::judge(&plan, &outcome).checks;
            let broken = checks.into_iter().filter(|check| !check.holds);
            broken.map(|VerdictCheck { what, found, .. }| format!("{what}: {found}")).collect()
        }
        Err(error @ (ScenarioError::Interrupted(_) | ScenarioError::Network { .. })) => {
            return Err(error);
        }
        Err(error) => vec![error.to_string()],
    };
    let keeps = arguments.keep || !wrong.is_empty();
    if keeps {
        output.keep();
    }
    let directory = keeps.then(|| output.directory().display().to_string());
    Ok(Round { seed, drawn, took: started.elapsed(), wrong, output: directory })
}

/// What is wrong with a round, and how to run it again.
fn tell(arguments: &RandomArguments, round: &Round) {
    for wrong in &round.wrong {
        say(&format!("error: {wrong}"));
    }
    if let Some(directory) = &round.output {
        say(&format!("the output of all processes is in {directory}"));
    }
    if !round.wrong.is_empty() {
        say(&format!("again: {}", again(arguments, round)));
    }
}

fn again(arguments: &RandomArguments, round: &Round) -> String {
    let mut command = format!("selkie scenario random --rounds 1 --seed {}", round.seed);
    match arguments.fabric {
        Some(FabricKind::Shm) => command += " --fabric shm",
        Some(FabricKind::Tcp) => command += " --fabric tcp",
        Some(FabricKind::Mem) | None => {}
    }
    if arguments.no_cuts {
        command += " --no-cuts";
    }
    command
}

fn as_json(arguments: &RandomArguments, round: &Round) -> Value {
    json!({
        "seed": round.seed,
        "what": round.drawn.what,
        "scenario": round.drawn.text,
        "seconds": round.took.as_secs_f64(),
        "holds": round.wrong.is_empty(),
        "wrong": round.wrong,
        "output": round.output,
        "again": again(arguments, round),
    })
}
