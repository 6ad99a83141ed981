//! Running futures and tasks side by side.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::env::Env;

use crate::error::TpccError;

/// Waits for `future`, but no longer than `timeout`; `None` if it was not ready by then.
pub(crate) async fn within<F: Future>(
    env: &Env,
    timeout: Duration,
    future: F,
) -> Option<F::Output> {
    let (mut future, mut over) = (pin!(future), env.sleep(timeout));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => over.as_mut().poll(context).map(|()| None),
    })
    .await
}

/// Runs two futures side by side to the end of both.
pub(crate) async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut first, mut second) = (None, None);
    poll_fn(move |context| {
        if first.is_none()
            && let Poll::Ready(output) = a.as_mut().poll(context)
        {
            first = Some(output);
        }
        if second.is_none()
            && let Poll::Ready(output) = b.as_mut().poll(context)
        {
            second = Some(output);
        }
        if first.is_some() && second.is_some() {
            return Poll::Ready(first.take().zip(second.take()));
        }
        Poll::Pending
    })
    .await
    .unwrap_or_else(|| unreachable!("both are there"))
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
