//! The command: plays the demo, and says how it ended.

use std::process::ExitCode;

use clap::Args;
use selkie::shared::PoolName;

use super::stage::Stage;
use super::story;
use crate::options::values;
use crate::scenario::error::ScenarioError;
use crate::scenario::processes::OutputDirectory;
use crate::support::exit;
use crate::support::signals::Interrupt;
use crate::support::stderr::complain;

/// Shows in about half a minute what a pool is. Three memory nodes hold a database, coded so that
/// any one of them may be lost, and two drivers work on it. One memory node is killed with kill -9;
/// the drivers go on. Another one joins, and what was lost is made anew on it. In the end each
/// driver looks for all that it has committed.
///
/// All of these are processes of this host, which share about 600 MiB of memory (`shm`). They end
/// with the demo, however it ends, and the pool is removed. The demo tells what happens on stdout,
/// and shows once what `selkie top` does, which shows the pool meanwhile in another terminal. For
/// programs there is `selkie scenario run --json`.
///
/// Exit code 0: every commit was found, and the pool was healed; 1: not so, or the demo could not
/// be played; 2: the arguments are wrong, and nothing was started; 129, 130 or 143: SIGHUP, SIGINT
/// or SIGTERM ended it.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Name of the pool that it makes and removes; refused if there is one already
    #[arg(long, value_name = "NAME", default_value = "selkie-demo")]
    pool: PoolName,
    /// Seconds for which the drivers work apart from the healing, 3 to 3600
    #[arg(long, value_name = "SECONDS", default_value_t = 18, value_parser = values::seconds)]
    duration: u64,
}

/// Looks for values out of range.
pub(crate) fn check(arguments: &Arguments) -> Result<(), exit::Refusal> {
    if (3..=3600).contains(&arguments.duration) {
        return Ok(());
    }
    let value = arguments.duration.to_string();
    Err(exit::Refusal::new("duration", &value, "must be 3 to 3600"))
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if let Err(refusal) = check(arguments) {
        return exit::refuse(&exit::Refusal { what: format!("--{}", refusal.what), ..refusal });
    }
    let interrupt = match Interrupt::mind() {
        Ok(interrupt) => interrupt,
        Err(error) => return exit::fail(&error),
    };
    let mut output = match OutputDirectory::make("demo") {
        Ok(output) => output,
        Err(error) => return exit::fail(&error),
    };
    let code = match Stage::new(&arguments.pool, output.directory(), &interrupt) {
        Ok(mut stage) => play(&mut stage, arguments),
        Err(error) => exit::fail(&error),
    };
    let is_over = code == ExitCode::SUCCESS || interrupt.signal().is_some();
    // A name that is in use says all there is to say.
    if !is_over && output.directory().join("mem0.stdout").exists() {
        output.keep();
        complain!("the output of all processes is in {}", output.directory().display());
    }
    code
}

fn play(stage: &mut Stage<'_>, arguments: &Arguments) -> ExitCode {
    match story::play(stage, arguments.duration) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(ScenarioError::Interrupted(interrupted)) => {
            // Said when all is removed.
            stage.clear();
            interrupted.end()
        }
        Err(error) => exit::fail(&error),
    }
}
