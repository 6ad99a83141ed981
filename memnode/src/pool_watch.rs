//! Whether the pool is still there while memory for it is populated: the thread that would ask is
//! busy, so it asks between two pieces, and does not wait for the answer.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use selkie_fabric::BoxFuture;
use selkie_fabric::env::Env;
use selkie_pool::control::{ControlError, ControlPlane, Versioned};

type Answer = Result<Versioned, ControlError>;

/// Looks for the end of a pool.
pub(crate) struct PoolWatch {
    plane: Arc<dyn ControlPlane>,
    /// The pool's id: another of its name is not the one that is joined.
    pool: u64,
    every: Duration,
    env: Env,
    asked_at: Duration,
    /// What was asked, until it is answered.
    asked: Option<BoxFuture<'static, Answer>>,
}

impl PoolWatch {
    /// Of a pool that was there just now; it is asked for at this interval.
    pub(crate) fn new(
        plane: &Arc<dyn ControlPlane>,
        env: &Env,
        pool: u64,
        every: Duration,
    ) -> Self {
        let (plane, env) = (Arc::clone(plane), env.clone());
        Self { plane, pool, every, asked_at: env.now(), env, asked: None }
    }

    /// Whether it is known by now that the pool was destroyed. Does not block for another process.
    pub(crate) fn is_gone(&mut self) -> bool {
        let now = self.env.now();
        if self.asked.is_none() && now.saturating_sub(self.asked_at) >= self.every {
            let plane = Arc::clone(&self.plane);
            self.asked = Some(Box::pin(async move { plane.load().await }));
            self.asked_at = now;
        }
        let Some(asked) = &mut self.asked else { return false };
        match asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => false,
            Poll::Ready(answer) => {
                self.asked = None;
                // That a plane is silent says nothing.
                match answer {
                    Ok(found) => found.state.id != self.pool,
                    Err(error) => matches!(error, ControlError::NoPool { .. }),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use selkie_fabric::sim::{World, WorldConfig};
    use selkie_pool::control::{Identity, LocalPlane, PoolState, Timing};
    use selkie_pool::{Coding, PoolConfig};

    use super::*;

    const EVERY: Duration = Duration::from_millis(100);

    fn pool(id: u64) -> PoolState {
        let config = PoolConfig {
            memory_nodes: 1,
            bytes_per_node: 2 << 20,
            gcl_bytes: 512,
            range_bytes: 1 << 19,
            max_compute_nodes: 4,
            coding: Coding::PLAIN,
            log_bytes: 0,
        };
        PoolState::new(Identity { name: "test", id, fabric: "mem" }, Timing::default(), &config)
    }

    #[test]
    fn the_end_of_a_pool_and_its_replacement_are_seen_at_the_next_look() {
        let world = World::new(WorldConfig::new(1));
        let env = world.env();
        let local = Arc::new(LocalPlane::of(pool(7)));
        let plane: Arc<dyn ControlPlane> = Arc::clone(&local) as _;
        let mut watch = PoolWatch::new(&plane, &env, 7, EVERY);
        let seen = world.run(Duration::from_secs(60), async move {
            let mut seen = Vec::new();
            env.sleep(EVERY).await;
            seen.push(watch.is_gone());
            local.destroy().await.unwrap();
            seen.push(watch.is_gone());
            env.sleep(EVERY).await;
            seen.push(watch.is_gone());
            local.create(pool(8)).await.unwrap();
            env.sleep(EVERY).await;
            seen.push(watch.is_gone());
            seen
        });
        assert_eq!(seen.unwrap(), [false, false, true, true]);
    }
}
