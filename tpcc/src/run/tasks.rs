//! Running futures and tasks side by side.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::env::Env;

use super::progress::Progress;
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

/// How long what is under way at the end of a run may take. A log that cannot be written, or a page
/// that no node gives up, would keep it for ten times the request timeout.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// How often tasks look whether their run is interrupted.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Waits for `work`, but not for long once the run is interrupted: what it has begun is dropped
/// then, which rolls it back.
///
/// # Errors
/// Those of `work`, and [`TpccError::Interrupted`].
pub(crate) async fn unless_interrupted<T>(
    env: &Env,
    progress: &dyn Progress,
    work: impl Future<Output = Result<T, TpccError>>,
) -> Result<T, TpccError> {
    if !progress.can_be_interrupted() {
        return work.await;
    }
    let (mut work, mut look, mut grace) = (pin!(work), env.sleep(LOOK_EVERY), None);
    poll_fn(|context| {
        if let Poll::Ready(done) = work.as_mut().poll(context) {
            return Poll::Ready(done);
        }
        while grace.is_none() && look.as_mut().poll(context).is_ready() {
            if progress.is_interrupted() {
                grace = Some(env.sleep(GRACE));
            }
            look = env.sleep(LOOK_EVERY);
        }
        match grace.as_mut().map(|grace| grace.as_mut().poll(context)) {
            Some(Poll::Ready(())) => Poll::Ready(Err(TpccError::Interrupted)),
            Some(Poll::Pending) | None => Poll::Pending,
        }
    })
    .await
}

/// As [`join_all`], but tasks that hang are dropped when the run is interrupted.
///
/// # Errors
/// As [`join_all`], and [`TpccError::Interrupted`].
pub(crate) async fn join_unless_interrupted<F>(
    env: &Env,
    progress: &Arc<dyn Progress>,
    name: &'static str,
    tasks: Vec<F>,
) -> Result<(), TpccError>
where
    F: Future<Output = Result<(), TpccError>> + Send + 'static,
{
    let watched = tasks.into_iter().map(|task| {
        let (own, progress) = (env.clone(), Arc::clone(progress));
        async move { unless_interrupted(&own, &*progress, task).await }
    });
    join_all(env, name, watched.collect()).await
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
    use selkie_fabric::sim::{World, WorldConfig};

    #[test]
    fn what_does_not_come_is_not_waited_for() {
        let runtime = RealRuntime::new(1).unwrap();
        let env = runtime.env();
        let never = within(&env, Duration::from_millis(1), std::future::pending::<()>());
        assert_eq!(runtime.block_on(never), None);
        let ready = within(&env, Duration::from_secs(60), async { 7 });
        assert_eq!(runtime.block_on(ready), Some(7));
    }

    /// Interrupted from a time on.
    struct Until(Env, Duration);

    impl Progress for Until {
        fn begin(&self, _stage: &'static str, _total: u64) {}
        fn advance(&self, _steps: u64) {}
        fn end(&self) {}
        fn note(&self, _line: &str) {}

        fn can_be_interrupted(&self) -> bool {
            true
        }

        fn is_interrupted(&self) -> bool {
            self.0.now() >= self.1
        }
    }

    /// A load waited for a full log as long as the engine allows, again and again, before it looked
    /// for a signal.
    #[test]
    fn tasks_that_hang_do_not_outlast_an_interrupt() {
        let world = World::new(WorldConfig::new(1));
        let env = world.env();
        let main = async {
            let (s, started) = (Duration::from_secs, env.now());
            let progress: Arc<dyn Progress> = Arc::new(Until(env.clone(), started + s(5)));
            let run = |long: Duration| {
                let (env, progress) = (env.clone(), Arc::clone(&progress));
                async move {
                    let own = env.clone();
                    let task = async move {
                        own.sleep(long).await;
                        Ok(())
                    };
                    let done = join_unless_interrupted(&env, &progress, "task", vec![task]).await;
                    (done, env.now() - started)
                }
            };
            // What ends by itself is awaited.
            let (done, ended) = run(s(6)).await;
            assert!(done.is_ok() && ended == s(6), "{done:?} after {ended:?}");
            let (done, ended) = run(s(100)).await;
            assert!(matches!(done, Err(TpccError::Interrupted)), "{done:?}");
            assert_eq!(ended, s(6) + LOOK_EVERY + GRACE);
        };
        world.run(Duration::from_secs(200), main).unwrap();
    }
}
