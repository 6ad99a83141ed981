//! `selkie top`.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use selkie::fabric::RealRuntime;
use selkie::pool::control::{Beat, ControlError};
use selkie::shared::{Place, SharedPool, SharedPoolError};

use super::plain;
use super::screen::Screen;
use super::snapshot::{PoolWatch, Snapshot};
use crate::options::network::TlsArguments;
use crate::support::exit;
use crate::support::stderr::complain;

/// Nodes with their state, rates and memory, and the pages that they miss or take from each other
/// most. Keys: q, Esc or Ctrl-C end it.
///
/// Rates come from what nodes report once a second; a node that does not report has none. Exit code
/// 1: there is no such pool, or it is gone.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Pool to look at: `NAME` on this host, `tcp:HOST:PORT,...` by its memory nodes, or
    /// `etcd:HOST:PORT,.../NAME`
    #[arg(value_name = "POOL")]
    name: Place,
    /// Print one table, as soon as all nodes have reported twice, or after 2.5 s, and stop
    #[arg(long)]
    once: bool,
    /// With --once: print one JSON object instead
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tls: TlsArguments,
}

/// How often the view is renewed.
const REFRESH: Duration = Duration::from_secs(1);
/// How long reports are waited for with --once, and how often they are looked for.
const ONCE_PATIENCE: Duration = Duration::from_millis(2500);
const ONCE_LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long the view continues while the control plane cannot be read.
const PLANE_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
enum TopError {
    #[error("{0}")]
    Pool(#[from] SharedPoolError),
    #[error("pool {0} is gone")]
    Vanished(Place),
    #[error("no terminal to draw on: use --once")]
    NoTerminal,
    #[error("terminal: {0}")]
    Terminal(std::io::Error),
    #[error("stdout: {0}")]
    Stdout(std::io::Error),
    #[error("{0}")]
    Runtime(std::io::Error),
}

/// Looks for values that do not go together.
pub(crate) fn check(arguments: &Arguments) -> Result<(), exit::Refusal> {
    if arguments.json && !arguments.once {
        return Err(exit::Refusal::new("json", "", "goes with --once only"));
    }
    Ok(())
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if let Err(exit::Refusal { what, .. }) = check(arguments) {
        complain!("error: --{what}");
        return ExitCode::from(exit::USAGE);
    }
    let result = if arguments.once { once(arguments) } else { live(arguments) };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::fail(&error),
    }
}

/// The view of a pool.
struct View {
    name: Place,
    pool: SharedPool,
    runtime: RealRuntime,
    watch: PoolWatch,
    started: Instant,
    /// The last snapshot, and its time.
    latest: Option<(Snapshot, Instant)>,
}

impl View {
    fn open(Arguments { name, tls, .. }: &Arguments) -> Result<Self, TopError> {
        let runtime = RealRuntime::new(1).map_err(TopError::Runtime)?;
        let pool = SharedPool::at(name, tls.credentials()?)?;
        let (watch, started) = (PoolWatch::default(), Instant::now());
        Ok(Self { name: name.clone(), pool, runtime, watch, started, latest: None })
    }

    /// The pool as it is now, or the last snapshot while the control plane is away for a short
    /// time.
    fn look(&mut self) -> Result<Snapshot, TopError> {
        let plane = self.pool.plane();
        let looked = self.runtime.block_on(async {
            let (state, beats) = (plane.load().await?.state, plane.beats().await?);
            // Also by processes of this host, where memory is shared: as `pool status` has it.
            let living = self.pool.living().await;
            Ok::<_, ControlError>((state, beats, living))
        });
        let now = Instant::now();
        let error = match looked {
            Ok((state, beats, living)) => {
                // The plane may have gone away meanwhile.
                let fresh = |(beat, age): &(Beat, Duration)| {
                    (*age <= state.timing.lease).then_some(beat.node)
                };
                let living: BTreeSet<_> = living.map_or_else(
                    |_| beats.iter().filter_map(fresh).collect(),
                    |living| living.into_iter().collect(),
                );
                let health = state.health(|node| living.contains(&node));
                let at = now - self.started;
                let seen = self.watch.look(&self.name.to_string(), at, &state, &beats, &health);
                self.latest = Some((seen.clone(), now));
                return Ok(seen);
            }
            Err(error) => error,
        };
        match &self.latest {
            Some(_) if matches!(error, ControlError::NoPool { .. }) => {
                Err(TopError::Vanished(self.name.clone()))
            }
            Some((seen, at)) if error.is_retryable() && now - *at < PLANE_PATIENCE => {
                Ok(seen.clone())
            }
            _ => Err(self.pool.explain(error).into()),
        }
    }
}

fn once(arguments: &Arguments) -> Result<(), TopError> {
    let mut view = View::open(arguments)?;
    let snapshot = loop {
        let snapshot = view.look()?;
        if view.watch.is_complete(&snapshot) || view.started.elapsed() >= ONCE_PATIENCE {
            break snapshot;
        }
        std::thread::sleep(ONCE_LOOK_EVERY);
    };
    let text = if arguments.json {
        let json = serde_json::to_string(&snapshot);
        json.map_err(|error| TopError::Stdout(error.into()))? + "\n"
    } else {
        plain::text(&snapshot)
    };
    std::io::stdout().write_all(text.as_bytes()).map_err(TopError::Stdout)
}

fn live(arguments: &Arguments) -> Result<(), TopError> {
    let mut view = View::open(arguments)?;
    // An error of the pool is printed before the terminal changes.
    let mut snapshot = view.look()?;
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(TopError::NoTerminal);
    }
    let mut screen = Screen::open().map_err(TopError::Terminal)?;
    loop {
        screen.show(&snapshot).map_err(TopError::Terminal)?;
        if screen.wait(REFRESH, &snapshot).map_err(TopError::Terminal)? {
            return Ok(());
        }
        snapshot = view.look()?;
    }
}
