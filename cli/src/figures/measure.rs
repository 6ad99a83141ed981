//! Runs the points of figures on all cores, until all are done, one has failed, or a signal ends
//! the command. What was finished until then is kept.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use selkie_tpcc::{Progress, units};

use super::catalogue;
use super::figure::{Figure, Settings};
use super::point::{Measured, Point};
use super::work::cluster::RunError;
use super::work::experiment::ExperimentResult;
use crate::support::progress::Stderr;
use crate::support::signals::Interrupted;

/// How often a signal is looked for while runs go on.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The time that is left is told after the first run, and after each of so many parts of them.
const PARTS: usize = 10;

/// What came of the runs.
pub(super) struct Outcome {
    /// The figures of which a run was finished.
    pub(super) measured: Vec<Measured>,
    /// How many runs there were to be.
    pub(super) planned: usize,
    /// Why they were not all finished.
    pub(super) cut: Option<Cut>,
}

/// What ended the runs before all were finished.
pub(super) enum Cut {
    Interrupted(Interrupted),
    Failed(RunError),
}

/// A point that is to be measured; they are in the order of their numbers on the page.
struct Task {
    number: usize,
    figure: Figure,
    point: Point,
}

/// A task, how long it took, and what came of it.
struct Finished {
    task: Task,
    took: Duration,
    result: Result<ExperimentResult, RunError>,
}

/// Tasks that no thread has begun.
#[derive(Clone)]
struct Queue(Arc<Mutex<VecDeque<Task>>>);

impl Queue {
    fn tasks(&self) -> MutexGuard<'_, VecDeque<Task>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Task> {
        self.tasks().pop_front()
    }

    /// No further task is begun.
    fn abandon(&self) {
        self.tasks().clear();
    }
}

/// Runs all points of the figures. A signal does not wait for the runs that go on: they end with
/// the process.
pub(super) fn all(
    figures: &[Figure],
    settings: Settings,
    threads: usize,
    progress: &Stderr,
) -> Outcome {
    let tasks: VecDeque<Task> = figures
        .iter()
        .flat_map(|figure| catalogue::points(*figure).into_iter().map(|point| (*figure, point)))
        .enumerate()
        .map(|(number, (figure, point))| Task { number, figure, point })
        .collect();
    let planned = tasks.len();
    let runs = units::plural(planned as u64, "run");
    progress.note(&format!("{runs}, {threads} at a time; the first to finish tells how long"));
    progress.begin("runs", planned as u64);
    let queue = Queue(Arc::new(Mutex::new(tasks)));
    let (sender, finished) = mpsc::channel();
    for _ in 0..threads.min(planned) {
        let (queue, sender) = (queue.clone(), sender.clone());
        thread::spawn(move || {
            while let Some(task) = queue.take() {
                let began = Instant::now();
                let result = task.point.experiment.run(&settings);
                if result.is_err() {
                    queue.abandon();
                }
                // Nobody listens any more when the command was interrupted.
                let _ = sender.send(Finished { task, took: began.elapsed(), result });
            }
        });
    }
    drop(sender);
    let estimate = Estimate { planned, threads, spent: Duration::ZERO };
    let (mut results, cut) = collect(&queue, &finished, estimate, progress);
    progress.end();
    results.sort_by_key(|(task, _)| task.number);
    let mut measured: Vec<Measured> = Vec::new();
    for (Task { figure, point, .. }, result) in results {
        match measured.last_mut().filter(|last| last.figure == figure) {
            Some(last) => last.points.push((point, result)),
            None => {
                let planned = catalogue::points(figure).len();
                measured.push(Measured { figure, points: vec![(point, result)], planned });
            }
        }
    }
    Outcome { measured, planned, cut }
}

/// Waits for the runs; which of them succeeded, and what ended them early.
fn collect(
    queue: &Queue,
    finished: &Receiver<Finished>,
    mut estimate: Estimate,
    progress: &Stderr,
) -> (Vec<(Task, ExperimentResult)>, Option<Cut>) {
    let (mut results, mut cut) = (Vec::new(), None);
    loop {
        match finished.recv_timeout(LOOK_EVERY) {
            Ok(Finished { task, took, result: Ok(result) }) => {
                results.push((task, result));
                progress.advance(1);
                if let Some(left) = estimate.after(results.len(), took) {
                    progress.note(&left);
                }
            }
            Ok(Finished { task: Task { point, .. }, result: Err(error), .. }) => {
                let error = format!("{}, {}: {error}", point.series, point.x).into();
                cut = cut.or(Some(Cut::Failed(error)));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                if results.len() < estimate.planned && cut.is_none() {
                    cut = Some(Cut::Failed("a run panicked".into()));
                }
                return (results, cut);
            }
        }
        if let Some(interrupted) = progress.interrupt().signal() {
            queue.abandon();
            return (results, Some(Cut::Interrupted(interrupted)));
        }
    }
}

/// Tells from what the finished runs took how long the others may take.
struct Estimate {
    planned: usize,
    threads: usize,
    /// By all finished runs together.
    spent: Duration,
}

impl Estimate {
    /// A run that took so long was the last of `finished`; what there is to be told then.
    fn after(&mut self, finished: usize, took: Duration) -> Option<String> {
        self.spent += took;
        let left = self.planned.saturating_sub(finished);
        let part = |finished: usize| finished * PARTS / self.planned.max(1);
        let is_due = finished == 1 || part(finished) > part(finished - 1);
        if left == 0 || !is_due {
            return None;
        }
        // As many more each as those took, by as many threads as have one left.
        let each = self.spent.as_secs_f64() / finished as f64;
        let rest = each * left as f64 / self.threads.min(left) as f64;
        let runs = units::plural(self.planned as u64, "run");
        let (each, rest) = (told(each), told(rest));
        Some(format!("{finished} of {runs} finished, {each} each: the rest may take {rest}"))
    }
}

/// Seconds, as they are said: `12 s`, `7 min`.
fn told(seconds: f64) -> String {
    match seconds.ceil() {
        seconds if seconds < 120.0 => format!("{seconds} s"),
        seconds => format!("{} min", (seconds / 60.0).ceil()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_estimated_from_what_was_finished() {
        let s = Duration::from_secs;
        let mut estimate = Estimate { planned: 28, threads: 2, spent: Duration::ZERO };
        let first = estimate.after(1, s(90));
        assert_eq!(first.unwrap(), "1 of 28 runs finished, 90 s each: the rest may take 21 min");
        assert_eq!(estimate.after(2, s(30)), None);
        let tenth = estimate.after(3, s(30));
        assert_eq!(tenth.unwrap(), "3 of 28 runs finished, 50 s each: the rest may take 11 min");
        let mut last = Estimate { planned: 2, threads: 8, spent: Duration::ZERO };
        let first = last.after(1, s(3));
        assert_eq!(first.unwrap(), "1 of 2 runs finished, 3 s each: the rest may take 3 s");
        assert_eq!(last.after(2, s(3)), None, "nothing is left");
    }
}
