//! Memory nodes that a verb finds dead: a node checks that such a memory node is dead for all
//! nodes, and not only disconnected from itself.

use selkie_fabric::{FabricError, PeerId};

use crate::EngineError;
use crate::core::Core;

impl Core {
    /// Ignores the error of a verb to a memory node that is dead for all nodes. If only this node
    /// does not reach it, the error stays.
    pub(super) async fn unless_memory_is_dead(
        &self,
        memory: usize,
        done: Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let peer = match &done {
            Err(EngineError::Fabric(FabricError::PeerDead { peer })) => *peer,
            _ => return done,
        };
        // An error of another memory node says nothing of this one.
        if peer != PeerId::memory(memory as u16) || !self.is_dead_for_all(memory).await? {
            return done;
        }
        // Before the recovery ends: its rebuild marks the lines that the dead compute node held.
        if self.memory.coded.is_some() {
            self.pool.declare_memory_dead(peer.index()).await?;
        }
        Ok(())
    }

    /// Whether a memory node is dead, and not only disconnected from this node: it was declared
    /// dead, or does not exist any more. Where the fabric cannot tell, waits until others miss it.
    async fn is_dead_for_all(&self, memory: usize) -> Result<bool, EngineError> {
        let peer = PeerId::memory(memory as u16);
        if self.pool.is_memory_dead(memory) {
            return Ok(true);
        }
        // Any other error says nothing of the memory node.
        let is_dead = |error| matches!(error, FabricError::PeerDead { peer: dead } if dead == peer);
        if self.endpoint.connect(peer).is_err_and(is_dead) {
            return Ok(true);
        }
        Ok(self.is_missed_by_all(memory).await? || self.is_unreached_by_all(memory).await?)
    }

    /// Has a memory node of a coded pool that others do not miss be given up, if none reaches it.
    /// If some do, that ends this node. Whether it is dead then.
    async fn is_unreached_by_all(&self, memory: usize) -> Result<bool, EngineError> {
        if self.memory.coded.is_none() {
            return Ok(false);
        }
        self.doubt_memory(PeerId::memory(memory as u16));
        while self.memory.quiesced.is_suspect(memory) && !self.pool.is_memory_dead(memory) {
            // The task that does so otherwise may be the one that waits here.
            self.declare_suspects().await?;
            self.lifecycle.check_failed()?;
            self.env.sleep(self.config.tick).await;
        }
        Ok(self.pool.is_memory_dead(memory))
    }

    /// Waits until others miss a memory node, if it is dead. Returns whether they did. The silence
    /// in which a queue pair to it has ended counts.
    async fn is_missed_by_all(&self, memory: usize) -> Result<bool, EngineError> {
        let Some(missed_within) = self.pool.missed_within(memory) else { return Ok(false) };
        let silent = self.endpoint.silence_of(PeerId::memory(memory as u16));
        let until = self.env.now() + missed_within.saturating_sub(silent);
        self.wait_until(|| self.pool.is_memory_dead(memory) || self.env.now() > until).await?;
        Ok(self.pool.is_memory_dead(memory))
    }

    /// As [`Core::confirm_memory_death`], for a step that cannot be begun again. As long as no node
    /// can say whether the memory node is dead, that is asked again: a page that was granted, and
    /// is on its way home, is not given up for that. The wait ends with the node at the latest.
    ///
    /// # Errors
    /// As there; the node's error, if it fails meanwhile.
    pub(crate) async fn until_memory_is_dead(&self, error: FabricError) -> Result<(), EngineError> {
        loop {
            match self.confirm_memory_death(error.clone()).await {
                Err(EngineError::Pool(unanswered)) if unanswered.is_retryable() => {}
                Err(EngineError::Fabric(FabricError::PeerDead { peer })) if peer.is_memory() => {
                    self.lifecycle.check_failed()?;
                    let memory = usize::from(peer.index());
                    if !self.may_be_unheard_of(memory) {
                        return Err(error.into());
                    }
                    self.until_heard_of(memory).await?;
                }
                confirmed => return confirmed,
            }
            self.lifecycle.check_failed()?;
            self.env.sleep(self.config.tick).await;
        }
    }

    /// Waits until a memory node is dead for all, or the news of its death would have come.
    async fn until_heard_of(&self, memory: usize) -> Result<(), EngineError> {
        let mut by = self.env.now();
        loop {
            by = self.news_by(by, !self.may_be_unheard_of(memory));
            if self.pool.is_memory_dead(memory) || self.env.now() >= by {
                return Ok(());
            }
            self.lifecycle.check_failed()?;
            self.env.sleep(self.config.tick).await;
        }
    }

    /// Whether a memory node that others do not miss may be dead all the same: the control plane
    /// does not hear of it, or this node not of the plane.
    pub(crate) fn may_be_unheard_of(&self, memory: usize) -> bool {
        self.pool.is_memory_suspected(memory) || !self.lifecycle.was_member_at(self.env.now())
    }

    /// Declares a memory node dead that a verb found dead, if it is dead for all nodes. Waits until
    /// that is known.
    ///
    /// # Errors
    /// The verb's error, if it is another one, or if only this node does not reach the memory node.
    pub(crate) async fn confirm_memory_death(&self, error: FabricError) -> Result<(), EngineError> {
        let FabricError::PeerDead { peer } = error else { return Err(error.into()) };
        let memory = usize::from(peer.index());
        if !peer.is_memory() {
            return Err(error.into());
        }
        if !self.is_dead_for_all(memory).await? {
            self.doubt_memory(peer);
            return Err(error.into());
        }
        if self.memory.coded.is_none() || self.pool.is_memory_dead(memory) {
            return Ok(());
        }
        match self.pool.declare_memory_dead(peer.index()).await {
            // A reader: those who may declare it miss it.
            Err(denied) if denied.is_denied() => match self.is_missed_by_all(memory).await? {
                true => Ok(()),
                false => Err(error.into()),
            },
            declared => Ok(declared?),
        }
    }
}
