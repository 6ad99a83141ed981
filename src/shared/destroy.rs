//! The end of a pool.
//!
//! ```text
//! hold the nodes --> remove the pool --> nodes find that out --> fence those that have not
//!                                        --> processes end --> free the memory
//! ```
//! A node that is fenced first would meet the effects before the cause, and would tell of a log
//! that cannot be written. And whichever process ends last frees the memory of the pool, which may
//! take seconds. That is not to be a driver, so the command that destroys the pool holds it.

use std::thread;
use std::time::{Duration, Instant};

use crate::fabric::shm::HeldNode;
use crate::fabric::{BoxFuture, FabricError};
use crate::pool::PoolError;
use crate::pool::control::ControlError;

use super::credentials;
use super::error::SharedPoolError;
use super::network::FabricKind;
use super::pool::SharedPool;

/// How often the nodes are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How long nodes may take to find that their pool is gone: they look every 20 ms.
const FOUND_WITHIN: Duration = Duration::from_millis(200);

/// How long their processes may take to end. A program that embeds a node does not end with it.
const ENDED_WITHIN: Duration = Duration::from_secs(1);

impl SharedPool {
    /// Removes the pool with all it holds. Unless forced, only if none of its nodes lives; nodes
    /// that live then fail. Blocks the calling thread until they have ended, for a second at most.
    ///
    /// # Errors
    /// If there is no such pool, it is in use, or it cannot be removed.
    pub fn destroy(&self, force: bool) -> BoxFuture<'_, Result<(), SharedPoolError>> {
        Box::pin(async move {
            let living = self.living().await;
            let mut held = Vec::new();
            match (living, force) {
                (Ok(living), false) => {
                    if let Some(peer) = living.first() {
                        return Err(SharedPoolError::InUse { what: peer.to_string() });
                    }
                }
                (Ok(living), true) => {
                    let state = self.load().await?;
                    if self.kind_of(&state)? == FabricKind::Shm {
                        let shm = self.shm(&state)?;
                        for peer in living {
                            held.extend(shm.hold(peer)?);
                        }
                    }
                }
                // A damaged pool can be removed, too.
                (
                    Err(SharedPoolError::Pool(PoolError::Control {
                        source: ControlError::Damaged { .. },
                    })),
                    true,
                ) => {}
                (Err(error), _) => return Err(error),
            }
            self.plane.destroy().await?;
            let ended = end(&held);
            self.directory().map_or(Ok(()), |directory| credentials::remove_token(&directory))?;
            Ok(ended?)
        })
    }
}

/// Ends the nodes of a pool that is removed. They free their part of its memory before this does.
fn end(held: &[HeldNode]) -> Result<(), FabricError> {
    wait(held, FOUND_WITHIN)?;
    for node in held {
        node.fence()?;
    }
    wait(held, ENDED_WITHIN)
}

/// Waits until all are gone, no longer than that.
fn wait(held: &[HeldNode], bound: Duration) -> Result<(), FabricError> {
    let until = Instant::now() + bound;
    for node in held {
        while !node.owner_is_gone()? && Instant::now() < until {
            thread::sleep(LOOK_EVERY);
        }
    }
    Ok(())
}
