//! Running tasks side by side, and how patiently they meet conflicts.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::env::Env;
use selkie_txn::RetryPolicy;

use crate::error::TpccError;

/// How long a transaction is tried again: conflicts end when the other transaction does, so many
/// attempts only mean many others. Several seconds before it is an error.
pub(crate) const PATIENCE: RetryPolicy =
    RetryPolicy { attempts: 2_000, base: Duration::from_micros(10), cap: Duration::from_millis(4) };

/// Waits for `future`, but not longer than that; `None` if it was not ready by then.
pub(crate) async fn within<F: Future>(
    env: &Env,
    patience: Duration,
    future: F,
) -> Option<F::Output> {
    let (mut future, mut over) = (pin!(future), env.sleep(patience));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => over.as_mut().poll(context).map(|()| None),
    })
    .await
}

/// Runs `tasks` in the background and waits for all of them.
///
/// # Errors
/// The first error of a task, once all are over.
pub(crate) async fn join_all<F>(
    env: &Env,
    name: &'static str,
    tasks: Vec<F>,
) -> Result<(), TpccError>
where
    F: Future<Output = Result<(), TpccError>> + Send + 'static,
{
    let first = Arc::new(Mutex::new(None));
    let mut handles = Vec::with_capacity(tasks.len());
    for task in tasks {
        let first = Arc::clone(&first);
        handles.push(env.spawn(name, async move {
            if let Err(error) = task.await {
                first.lock().get_or_insert(error);
            }
        }));
    }
    let mut lost = None;
    for handle in handles {
        if let Err(error) = handle.join().await {
            lost.get_or_insert(error);
        }
    }
    if let Some(error) = first.lock().take() {
        return Err(error);
    }
    lost.map_or(Ok(()), |error| Err(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use selkie_fabric::RealRuntime;

    #[test]
    fn what_does_not_come_is_not_waited_for() {
        let runtime = RealRuntime::new(1).unwrap();
        let env = runtime.env();
        let never = within(&env, Duration::from_millis(1), std::future::pending::<()>());
        assert_eq!(runtime.block_on(never), None);
        let ready = within(&env, Duration::from_secs(60), async { 7 });
        assert_eq!(runtime.block_on(ready), Some(7));
    }
}
