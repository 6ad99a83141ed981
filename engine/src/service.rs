//! Background tasks of an engine: the mail, and the housekeeping of waits and epochs.

use std::sync::{Arc, Weak};
use std::time::Duration;

use selkie_channels::Mailbox;
use selkie_fabric::env::yield_now;
use selkie_fabric::{Buf, Chain, RemoteAddr, Verb};
use selkie_memnode::{ComputeIndex, Pool, layout};

use crate::EngineError;
use crate::coherence::word::ComputeId;
use crate::core::Core;

/// Messages handled before other tasks get a turn.
const MAIL_BUDGET: usize = 64;

/// Answers the requests of the nodes that write to a mailbox until the engine is gone or a peer
/// breaks the protocol.
pub(crate) async fn run_mail(core: Weak<Core>, mailbox: Arc<Mailbox>) {
    let Some(stop) = core.upgrade().map(|c| c.stop_bell.clone()) else { return };
    let mut since_turn = 0;
    loop {
        {
            let Some(core) = core.upgrade() else { return };
            if core.failed.get().is_some() {
                return;
            }
            let mut broken = None;
            let polled = mailbox.poll(MAIL_BUDGET, &mut |from, bytes| {
                if let Err(error) = core.receive(from, bytes) {
                    broken.get_or_insert(error);
                }
            });
            if let Some(error) = broken {
                let _ = core.failed.set(error);
                core.fail_all_waits();
            }
            match polled {
                Ok(taken) => {
                    since_turn += taken;
                    if since_turn >= MAIL_BUDGET {
                        since_turn = 0;
                        drop(core);
                        yield_now().await;
                        continue;
                    }
                    // All has been taken; what came meanwhile ends the wait at once.
                }
                Err(source) => {
                    let me = core.me.index();
                    let _ = core.failed.set(EngineError::Message { to: me, source });
                    core.fail_all_waits();
                    return;
                }
            }
        }
        either(mailbox.wait_mail(), async {
            stop.wait_past(0).await;
        })
        .await;
    }
}

/// The memory node that has the epochs: the first, or in a coded pool the first that lives and is
/// to stay.
pub(crate) fn epoch_node(pool: &Pool) -> Option<usize> {
    let state = pool.state();
    let stays = |node: &usize| pool.descriptor().coding.is_plain() || state.stays(*node as u16);
    (0..state.memory_nodes.len()).find(stays)
}

/// Waits for all of some futures; what came of each, in their order.
pub(crate) async fn all_of<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut under_way: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|cx| {
        for (future, output) in under_way.iter_mut().filter(|(_, output)| output.is_none()) {
            if let std::task::Poll::Ready(done) = future.as_mut().poll(cx) {
                *output = Some(done);
            }
        }
        let is_over = under_way.iter().all(|(_, output)| output.is_some());
        if is_over { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    under_way.into_iter().filter_map(|(_, output)| output).collect()
}

/// Waits for the first of two futures.
pub(crate) async fn either(a: impl Future<Output = ()>, b: impl Future<Output = ()>) {
    let mut a = std::pin::pin!(a);
    let mut b = std::pin::pin!(b);
    std::future::poll_fn(|cx| {
        if a.as_mut().poll(cx).is_ready() || b.as_mut().poll(cx).is_ready() {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
}

/// Ends overdue waits and moments that are over, and moves reclamation on, every tick.
pub(crate) async fn run_housekeeping(core: Weak<Core>, tick: Duration) {
    let Some(env) = core.upgrade().map(|c| c.env.clone()) else { return };
    let mut published = None;
    loop {
        env.sleep(tick).await;
        let Some(core) = core.upgrade() else { return };
        core.expire_waits();
        core.end_moment();
        if let Some(log) = &core.log {
            log.want();
        }
        if core.closed.load(std::sync::atomic::Ordering::Relaxed) {
            continue;
        }
        // A memory node that cannot be reached stops reclamation, nothing else; accesses to it
        // report the error to those who make them.
        let _ = core.move_epochs(&mut published).await;
    }
}

impl Core {
    pub(crate) fn fail_all_waits(&self) {
        let Some(error) = self.failed.get() else { return };
        for shard in self.all_shards() {
            for active in shard.lock().values_mut() {
                active.waiters.fail_all(error);
            }
        }
    }

    /// A word of the epochs, and the memory node that has them.
    fn epoch_word(&self, offset: u64) -> Option<(usize, RemoteAddr)> {
        let node = epoch_node(&self.pool)?;
        Some((node, self.memory_at(node, offset).ok()?))
    }

    /// Global epoch, and the oldest epoch that any node has published.
    async fn read_epochs(&self) -> Result<Option<(u64, u64)>, EngineError> {
        let nodes = self.pool.descriptor().max_compute_nodes;
        let bytes = (layout::NODE_EPOCHS_AT - layout::GLOBAL_EPOCH_AT) as usize + 8 * nodes;
        let Some((node, at)) = self.epoch_word(layout::GLOBAL_EPOCH_AT) else { return Ok(None) };
        let chain = Chain::from([Verb::read(at, Buf::zeroed(bytes))]);
        let done = self.queue_pair(node).post(chain).await.map_err(|e| e.error)?;
        let Some(words) = done.buf(0).map(Buf::words) else { return Ok(None) };
        let global = words.first().map_or(0, |w| u64::from_le(*w));
        let published = words.iter().skip(1).map(|w| u64::from_le(*w));
        // A published epoch is stored plus one: 0 is an absent node, or one that has not published
        // here yet.
        let is_member = |index: usize| self.pool.is_member(ComputeIndex::new(index as u16));
        let missing = |(index, epoch): (usize, u64)| epoch == 0 && is_member(index);
        if published.clone().enumerate().any(missing) {
            return Ok(Some((global, 0)));
        }
        let present = published.filter(|epoch| *epoch != 0);
        Ok(Some((global, present.min().map_or(global, |e| e - 1))))
    }

    /// Publishes this node's epoch (plus one), or its absence (0).
    pub(crate) async fn publish_epoch(&self, stored: u64) -> Result<(), EngineError> {
        self.publish_epoch_of(self.me, stored).await
    }

    /// As [`Core::publish_epoch`], for a node that is not there to do it.
    pub(crate) async fn publish_epoch_of(
        &self,
        node: ComputeId,
        stored: u64,
    ) -> Result<(), EngineError> {
        let offset = layout::node_epoch_offset(node.index());
        let Some((node, at)) = self.epoch_word(offset) else { return Ok(()) };
        let chain = Chain::from([Verb::write(at, Buf::copy_of(&stored.to_le_bytes()))]);
        self.queue_pair(node).post(chain).await.map_err(|e| e.error)?;
        Ok(())
    }

    /// Follows, publishes, ripens freed lines and, if it waits for some, moves the global epoch.
    pub(crate) async fn move_epochs(
        &self,
        published: &mut Option<(usize, u64)>,
    ) -> Result<(), EngineError> {
        let Some((node, at)) = self.epoch_word(layout::GLOBAL_EPOCH_AT) else { return Ok(()) };
        let Some((global, _)) = self.read_epochs().await? else { return Ok(()) };
        let own = self.epochs.follow(global);
        if *published != Some((node, own)) {
            self.publish_epoch(own + 1).await?;
            *published = Some((node, own));
        }
        if global < own {
            // The memory node that had the epochs is lost: here they go on from where they were.
            let chain = Chain::from([Verb::compare_and_swap(at, global, own)]);
            self.queue_pair(node).post(chain).await.map_err(|e| e.error)?;
            return Ok(());
        }
        if !self.allocator.has_limbo() {
            return Ok(());
        }
        let Some((global, oldest)) = self.read_epochs().await? else { return Ok(()) };
        self.allocator.ripen(oldest);
        if oldest == global {
            let chain = Chain::from([Verb::compare_and_swap(at, global, global + 1)]);
            // Somebody else may have moved it; that is as good.
            self.queue_pair(node).post(chain).await.map_err(|e| e.error)?;
        }
        Ok(())
    }
}
