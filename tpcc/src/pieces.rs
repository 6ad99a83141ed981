//! Work on a range of numbers (warehouses, accounts, subscribers), shared by tasks on all compute nodes.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::cluster::{Node, TableSet};
use crate::error::TpccError;
use crate::tasks::join_all;

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
/// The first error, once all tasks are over; pieces not begun then are left.
pub(crate) async fn in_pieces<T, F>(
    nodes: &[Arc<Node<T>>],
    name: &'static str,
    pieces: Pieces,
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
    join_all(&env, name, tasks).await
}

/// `all` in pieces of at most `size`.
pub(crate) fn batches(all: Range<i32>, size: i32) -> impl Iterator<Item = Range<i32>> + Send {
    let end = all.end;
    let step = size.unsigned_abs().max(1) as usize;
    all.step_by(step).map(move |start| start..start.saturating_add(size).min(end))
}

#[cfg(test)]
mod tests {
    use super::batches;

    #[test]
    fn batches_cover_everything_once() {
        assert_eq!(batches(1..8, 3).collect::<Vec<_>>(), [1..4, 4..7, 7..8]);
        assert_eq!(batches(1..1, 3).count(), 0);
    }
}
