//! Work on a range of numbers (warehouses, accounts, subscribers), shared by tasks on all compute
//! nodes.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::progress::Progress;
use super::tasks::join_unless_interrupted;
use crate::cluster::{Node, TableSet};
use crate::error::TpccError;

/// How a range of numbers is shared.
pub(crate) struct Pieces {
    /// The numbers.
    pub(crate) numbers: Range<i32>,
    /// Numbers of a piece, at most.
    pub(crate) size: i32,
    /// Tasks of each compute node.
    pub(crate) tasks_per_node: usize,
}

/// Does `work` for all pieces, each once, on whichever node has a task for it first.
///
/// # Errors
/// The first error, once all tasks are over; pieces not begun then are left. `Interrupted` if the
/// run is, soon after.
pub(crate) async fn in_pieces<T, F>(
    nodes: &[Arc<Node<T>>],
    name: &'static str,
    pieces: Pieces,
    progress: &Arc<dyn Progress>,
    work: impl Fn(Arc<Node<T>>, Range<i32>) -> F + Send + Sync + 'static,
) -> Result<(), TpccError>
where
    T: TableSet,
    F: Future<Output = Result<(), TpccError>> + Send + 'static,
{
    let Some(env) = nodes.first().map(|node| node.engine.env().clone()) else { return Ok(()) };
    let Pieces { numbers, size, tasks_per_node } = pieces;
    let next = Arc::new(Mutex::new(batches(numbers, size)));
    let (work, abandoned) = (Arc::new(work), Arc::new(AtomicBool::new(false)));
    let mut tasks = Vec::new();
    for node in nodes.iter().flat_map(|node| std::iter::repeat_n(node, tasks_per_node)) {
        let (node, next) = (Arc::clone(node), Arc::clone(&next));
        let (work, abandoned) = (Arc::clone(&work), Arc::clone(&abandoned));
        tasks.push(async move {
            while !abandoned.load(Ordering::Relaxed) {
                let Some(piece) = next.lock().next() else { break };
                let done = work(Arc::clone(&node), piece).await;
                if done.is_err() {
                    abandoned.store(true, Ordering::Relaxed);
                    return done;
                }
            }
            Ok(())
        });
    }
    join_unless_interrupted(&env, progress, name, tasks).await
}

/// `all` in pieces of at most `size`.
pub(crate) fn batches(all: Range<i32>, size: i32) -> impl Iterator<Item = Range<i32>> + Send {
    let end = all.end;
    let step = size.unsigned_abs().max(1) as usize;
    all.step_by(step).map(move |start| start..start.saturating_add(size).min(end))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::benchmark::Benchmark;
    use crate::benchmark::tests::{on_loaded, one_node};
    use crate::error::missing;
    use crate::run::Silent;
    use crate::smallbank::Config;

    /// Lets three tasks work on the pieces of ten of 0 to 99, each for so many microseconds, and
    /// fail or not. Returns which were done, in the order of their ends, and what came of all.
    fn done(work: fn(i32) -> (u64, Result<(), TpccError>)) -> (Vec<i32>, Result<(), TpccError>) {
        let config =
            Config { accounts: 2, hot_accounts: 1, setup: one_node(), ..Config::default() };
        let ledger = config.ledger();
        let (ended, mut result) = (Arc::new(Mutex::new(Vec::new())), Ok(()));
        on_loaded(config, async |nodes| {
            let pieces = Pieces { numbers: 0..100, size: 10, tasks_per_node: 3 };
            let (env, log) = (nodes[0].engine.env().clone(), Arc::clone(&ended));
            let work = move |_, piece: Range<i32>| {
                let (env, log) = (env.clone(), Arc::clone(&log));
                async move {
                    let (micros, result) = work(piece.start);
                    env.sleep(Duration::from_micros(micros)).await;
                    log.lock().push(piece.start);
                    result
                }
            };
            let silent: Arc<dyn Progress> = Arc::new(Silent);
            result = in_pieces(nodes, "pieces", pieces, &silent, work).await;
            ledger
        });
        let ended = ended.lock().clone();
        (ended, result)
    }

    #[test]
    fn each_piece_is_done_once() {
        let (mut ended, result) = done(|piece| (1 + (piece as u64 * 7) % 40, Ok(())));
        ended.sort_unstable();
        assert_eq!(ended, (0..10).map(|piece| 10 * piece).collect::<Vec<_>>());
        result.unwrap();
    }

    #[test]
    fn the_first_error_is_that_of_all_once_begun_pieces_are_over() {
        let (ended, result) = done(|piece| match piece {
            // Two tasks work on these when the third meets the first error.
            10 => (30, Err(missing("later", piece))),
            20 => (40, Ok(())),
            30 => (1, Err(missing("first", piece))),
            _ => (1, Ok(())),
        });
        assert_eq!(ended, [0, 30, 10, 20], "the others are left");
        assert!(matches!(result, Err(TpccError::Missing { table: "first", .. })), "{result:?}");
    }

    #[test]
    fn batches_cover_everything_once() {
        assert_eq!(batches(1..8, 3).collect::<Vec<_>>(), [1..4, 4..7, 7..8]);
        assert_eq!(batches(1..1, 3).count(), 0);
    }
}
