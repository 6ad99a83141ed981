//! Tasks of an engine: a panic in one ends the node, rather than leave it half dead.

use std::any::Any;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use selkie_fabric::env::TaskHandle;

use crate::EngineError;
use crate::core::Core;

/// How often a node that has ended tries to tell the pool.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(10);

impl Core {
    /// Runs a task of this engine in the background. If it panics the node ends, with
    /// [`EngineError::TaskPanicked`] for all callers; the environment is told of the panic too.
    pub(crate) fn spawn(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> TaskHandle {
        let core = self.this.clone();
        self.env.spawn(name, async move {
            // What the task has left half changed is served by no node: this one ends.
            if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
                if let Some(core) = core.upgrade() {
                    core.end_by_panic(name, &*panic);
                }
                resume_unwind(panic);
            }
        })
    }

    /// Ends the node as a part of it has panicked. Does not wait, and takes no lock, so that it may
    /// be called with locks held.
    pub(crate) fn end_by_panic(&self, task: &'static str, panic: &(dyn Any + Send)) {
        let error = EngineError::TaskPanicked { task, message: message_of(panic) };
        if !self.lifecycle.fail_by_panic(error) {
            return;
        }
        let Some(core) = self.this.upgrade() else { return };
        drop(self.env.spawn("end", async move { core.end_and_give_up().await }));
    }

    /// Ends all waits, and tells the pool, so that the others recover as from a death.
    async fn end_and_give_up(self: Arc<Self>) {
        if let Some(error) = self.lifecycle.failure() {
            self.end_with(error.clone());
        }
        let core = Arc::downgrade(&self);
        let (env, pool, node) = (self.env.clone(), Arc::clone(&self.pool), self.index());
        let Some(incarnation) = self.lifecycle.incarnation() else { return };
        drop(self);
        // When the last handle is dropped the engine itself gives up.
        while core.strong_count() > 0 {
            match pool.give_up(node, incarnation).await {
                Ok(()) => return,
                Err(error) => tracing::debug!(%error, "cannot tell that this node has failed"),
            }
            env.sleep(TRY_AGAIN_AFTER).await;
        }
    }
}

/// The message of a panic.
fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
