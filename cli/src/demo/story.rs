//! What happens in the demo, and what is said of it.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use selkie_tpcc::units;

use super::stage::Stage;
use super::verdict::DemoVerdict;
use super::view::Look;
use crate::commands::pool_verdict::advice;
use crate::scenario::error::ScenarioError;
use crate::top::plain;

/// The memory node that is killed.
const VICTIM: u16 = 1;
/// How long the others may take to notice a death, and to heal.
const NOTICE: Duration = Duration::from_secs(60);
const HEAL: Duration = Duration::from_secs(180);
/// How often a line says how the pool is.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// Plays the demo, whose drivers work for so long apart from the healing; whether all is well.
pub(super) fn play(stage: &mut Stage<'_>, seconds: u64) -> Result<bool, ScenarioError> {
    let act = Duration::from_secs(seconds) / 3;
    set_up(stage)?;
    watch(stage, act, |_| false)?;
    kill(stage)?;
    watch(stage, act, |_| false)?;
    show_top(stage)?;
    heal(stage)?;
    watch(stage, act, |_| false)?;
    stage.say("both drivers are told to stop, and look for all that they have committed")?;
    let verdict = DemoVerdict::of(&stage.end_drivers()?);
    let did = units::count(verdict.transactions);
    stage.say(&format!(
        "{did} transactions in all, before memory was lost, without it, and after"
    ))?;
    stage.say(&verdict.text())?;
    stage.clear();
    stage.say("all processes have ended, the pool is removed")?;
    Ok(verdict.holds())
}

fn set_up(stage: &mut Stage<'_>) -> Result<(), ScenarioError> {
    stage.make_pool()?;
    let place = stage.place().to_string();
    stage.say(&format!(
        "pool {place}: each page is cut in two halves, and a parity is added (coding 2+1)"
    ))?;
    let mut processes = Vec::new();
    for _ in 0..3 {
        processes.push(stage.lend()?.to_string());
    }
    let processes = processes.join(", ");
    stage.say(&format!(
        "three memory nodes, processes {processes}, lend memory and compute nothing"
    ))?;
    stage.load()?;
    stage.say("a TPC-C database is loaded: each page lies on all three, and any two suffice")?;
    let drivers = [stage.drive()?, stage.drive()?].map(|process| process.to_string()).join(", ");
    stage
        .say(&format!("two drivers, processes {drivers}, both change all of the same database"))?;
    stage.say(&format!("(in another terminal, `selkie top {place}` shows the pool at work)"))
}

/// Shows what `top` does.
fn show_top(stage: &mut Stage<'_>) -> Result<(), ScenarioError> {
    let look = stage.look()?;
    let place = stage.place().to_string();
    stage.say(&format!("`selkie top --once {place}` shows, with one memory node dead:"))?;
    stage.show(&plain::text(&look.seen))
}

fn kill(stage: &mut Stage<'_>) -> Result<(), ScenarioError> {
    let Some(victim) = stage.memory.get_mut(usize::from(VICTIM)) else {
        panic!("memory node {VICTIM} was not started");
    };
    let process = victim.id();
    victim.signal(Signal::KILL)?;
    stage.say(&format!(
        "kill -9 {process}: memory node mem{VICTIM} is dead, and a third of all memory gone"
    ))?;
    let look = until(stage, NOTICE, "its death is not noticed", |look| look.misses(VICTIM))?;
    stage.say(&look.line())?;
    stage.say("no driver fails: a half that is gone is computed from the other half and the parity")
}

/// Does what `pool status` advises.
fn heal(stage: &mut Stage<'_>) -> Result<(), ScenarioError> {
    let look = stage.look()?;
    let place = stage.place().clone();
    if let Some(advice) = advice(&look.health, &look.state, &place).first() {
        stage.say(&format!("pool status says: {advice}"))?;
    }
    let began = Instant::now();
    let process = stage.lend()?;
    stage
        .say(&format!("another memory node joins, process {process}: the drivers rebuild on it"))?;
    let look = until(stage, HEAL, "the pool is not healed", Look::is_healthy)?;
    let took = began.elapsed().as_secs_f64();
    stage.say(&look.line())?;
    stage.say(&format!("healed in {took:.1} s: any one memory node may be lost again"))
}

/// Tells how the pool is for so long.
fn watch(
    stage: &mut Stage<'_>,
    time: Duration,
    is_over: impl Fn(&Look) -> bool,
) -> Result<Option<Look>, ScenarioError> {
    let (began, mut told) = (Instant::now(), Instant::now());
    while began.elapsed() < time {
        let look = stage.look()?;
        if is_over(&look) {
            return Ok(Some(look));
        }
        if told.elapsed() >= TELL_EVERY {
            stage.say(&look.line())?;
            told = Instant::now();
        }
        stage.pause("the demo", "", began, Duration::MAX)?;
    }
    Ok(None)
}

/// Tells how the pool is until something holds.
fn until(
    stage: &mut Stage<'_>,
    patience: Duration,
    what: &str,
    holds: impl Fn(&Look) -> bool,
) -> Result<Look, ScenarioError> {
    watch(stage, patience, holds)?.ok_or_else(|| {
        let what = format!("{what} after {} s", patience.as_secs());
        ScenarioError::Process { name: "the pool".to_owned(), what }
    })
}
