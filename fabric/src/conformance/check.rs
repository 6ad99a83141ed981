//! A check: its subject, its outcome, and one run of it with a time limit.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::api::Fabric;
use crate::env::{BoxFuture, Env, RealRuntime, TaskError};
use crate::error::FabricError;
use crate::id::PeerId;
use crate::verb::ChainError;

/// A check that takes longer than this hangs.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);

/// Declares a peer of the fabric of a subject dead.
pub type Kill = Box<dyn Fn(PeerId) + Send + Sync>;

/// A fresh fabric without nodes, and what else a check needs.
pub struct Subject {
    /// The fabric to be checked.
    pub fabric: Arc<dyn Fabric>,
    /// Where tasks run.
    pub env: Env,
    /// Kills a peer of `fabric`.
    pub kill: Kill,
    /// Runs a check to its end.
    pub block_on: Box<dyn Fn(BoxFuture<'static, CheckResult>) -> CheckResult>,
}

impl Subject {
    /// A subject that runs on real threads.
    pub fn real(runtime: RealRuntime, make: impl FnOnce(&Env) -> (Arc<dyn Fabric>, Kill)) -> Self {
        let env = runtime.env();
        let (fabric, kill) = make(&env);
        let block_on = Box::new(move |check| runtime.block_on(check));
        Self { fabric, env, kill, block_on }
    }
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct CheckFailure {
    what: String,
}

impl CheckFailure {
    /// A finding in words.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }
}

impl From<FabricError> for CheckFailure {
    fn from(error: FabricError) -> Self {
        Self::new(format!("unexpected error: {error}"))
    }
}

impl From<Box<ChainError>> for CheckFailure {
    fn from(error: Box<ChainError>) -> Self {
        Self::new(format!("unexpected error: {error}: {}", error.error))
    }
}

impl From<TaskError> for CheckFailure {
    fn from(error: TaskError) -> Self {
        Self::new(error.to_string())
    }
}

/// Outcome of a check.
pub type CheckResult = Result<(), CheckFailure>;

/// One named check of the contract.
#[derive(Clone, Copy)]
pub struct Check {
    /// The claim that is checked.
    pub name: &'static str,
    pub(super) run: fn(CheckSubject) -> BoxFuture<'static, CheckResult>,
}

/// The part of a [`Subject`] that checks see.
pub(super) struct CheckSubject {
    pub(super) fabric: Arc<dyn Fabric>,
    pub(super) env: Env,
    pub(super) kill: Kill,
}

impl Check {
    /// Runs this check on `subject`. A panic and a hang are failures.
    pub fn run(&self, subject: Subject) -> CheckResult {
        let Subject { fabric, env, kill, block_on } = subject;
        let limit = env.sleep(CHECK_TIMEOUT);
        let check = (self.run)(CheckSubject { fabric, env, kill });
        let limited = Box::pin(within(check, limit));
        let result = catch_unwind(AssertUnwindSafe(|| block_on(limited)));
        result.unwrap_or_else(|_| Err(CheckFailure::new("the check panicked")))
    }
}

async fn within(
    mut check: BoxFuture<'static, CheckResult>,
    mut limit: BoxFuture<'static, ()>,
) -> CheckResult {
    poll_fn(|context| {
        if let Poll::Ready(result) = check.as_mut().poll(context) {
            return Poll::Ready(result);
        }
        limit.as_mut().poll(context).map(|()| {
            Err(CheckFailure::new(format!(
                "not done after {} s: it hangs",
                CHECK_TIMEOUT.as_secs()
            )))
        })
    })
    .await
}
