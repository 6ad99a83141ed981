//! The queue pairs of the `mem` fabric: they execute verbs inside `post`.

use std::sync::Arc;

use super::execute::apply;
use super::node::{Node, NodeGuard};
use crate::api::QueuePair;
use crate::completion::Completion;
use crate::error::FabricError;
use crate::id::PeerId;
use crate::verb::{Chain, Verb};

pub(crate) struct MemQueuePair {
    owner: Arc<Node>,
    _guard: Arc<NodeGuard>,
    target: Arc<Node>,
}

impl MemQueuePair {
    pub(crate) fn new(owner: Arc<Node>, guard: Arc<NodeGuard>, target: Arc<Node>) -> Self {
        Self { owner, _guard: guard, target }
    }

    #[inline]
    fn execute(&self, verb: &mut Verb) -> Result<(), FabricError> {
        self.target.check_alive()?;
        self.owner.check_alive()?;
        let region = apply(&self.target, verb)?;
        if matches!(verb, Verb::WriteWithDoorbell { .. }) {
            region.doorbell().ring();
        }
        Ok(())
    }
}

impl QueuePair for MemQueuePair {
    fn peer(&self) -> PeerId {
        self.target.id()
    }

    fn post(&self, mut chain: Chain) -> Completion {
        let _executing = self.owner.begin_chain();
        let mut executed = 0;
        let mut failure = None;
        for verb in &mut chain.verbs {
            match self.execute(verb) {
                Ok(()) => executed += 1,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        match failure {
            None => Completion::ready(Ok(chain)),
            Some(error) => Completion::failed(chain, executed, error),
        }
    }
}
