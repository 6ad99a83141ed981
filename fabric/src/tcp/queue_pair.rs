//! Queue pairs and their completions.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::fabric::Own;
use super::link::Link;
use super::slot::Slot;
use crate::api::QueuePair;
use crate::completion::{Completion, Outstanding};
use crate::id::PeerId;
use crate::verb::{Chain, ChainResult};

pub(super) struct TcpQueuePair {
    /// The node is there while its queue pairs are.
    _own: Arc<Own>,
    link: Arc<Link>,
}

impl TcpQueuePair {
    pub(super) fn new(own: Arc<Own>, link: Arc<Link>) -> Self {
        Self { _own: own, link }
    }
}

impl QueuePair for TcpQueuePair {
    fn peer(&self) -> PeerId {
        self.link.peer()
    }

    fn post(&self, chain: Chain) -> Completion {
        match self.link.post(chain) {
            Ok(slot) => {
                let link = Arc::clone(&self.link);
                let stage = Stage::Fresh;
                Completion::outstanding(Box::new(Waiting { link, slot, stage }))
            }
            Err(error) => Completion::ready(Err(error)),
        }
    }
}

impl Drop for TcpQueuePair {
    fn drop(&mut self) {
        self.link.retire();
    }
}

/// The completion of a chain.
struct Waiting {
    link: Arc<Link>,
    slot: Arc<Slot>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Not polled yet.
    Fresh,
    Polled,
    /// The outcome was handed out.
    Taken,
}

impl Waiting {
    fn take(&mut self) -> Option<ChainResult> {
        let result = self.slot.take();
        if result.is_some() {
            self.stage = Stage::Taken;
        }
        result
    }

    /// Receives what has come; if the chain is alone under way, for a bounded time.
    fn take_now(&self) -> Option<ChainResult> {
        let driver = self.link.driver();
        if !driver.one_is_alone() {
            self.link.drive();
            return self.slot.take();
        }
        let (poll_for, block) = (driver.config().poll_for, driver.config().block_alone);
        if !poll_for.is_zero() {
            let until = driver.now() + poll_for;
            while driver.now() < until {
                std::hint::spin_loop();
                self.link.ask(&self.slot);
                if let Some(result) = self.slot.take() {
                    return Some(result);
                }
            }
        }
        if block.is_zero() {
            return None;
        }
        let until = driver.now() + block;
        let mut rest = block;
        while !rest.is_zero() && self.link.block_alone(&self.slot, rest) {
            if let Some(result) = self.slot.take() {
                return Some(result);
            }
            rest = until.saturating_sub(driver.now());
        }
        None
    }
}

impl Outstanding for Waiting {
    fn poll_result(&mut self, context: &mut Context<'_>) -> Poll<ChainResult> {
        if let Some(result) = self.take() {
            return Poll::Ready(result);
        }
        if self.stage == Stage::Fresh {
            // Others may have chains to post, which then go out together with this one.
            self.stage = Stage::Polled;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.link.flush();
        let taken = match self.take_now() {
            Some(result) => Some(result),
            None => self.slot.take_or_enlist(context.waker()),
        };
        if let Some(result) = taken {
            self.stage = Stage::Taken;
            return Poll::Ready(result);
        }
        self.link.arm();
        Poll::Pending
    }

    fn try_result(&mut self) -> Option<ChainResult> {
        if let Some(result) = self.take() {
            return Some(result);
        }
        if self.stage == Stage::Fresh {
            self.link.ask(&self.slot);
        } else {
            // Its waker may be enlisted, and then the driver has to look.
            self.link.flush();
            self.link.drive();
        }
        self.take()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.stage != Stage::Taken {
            self.slot.strike();
            self.link.flush();
            self.link.arm();
        }
    }
}
