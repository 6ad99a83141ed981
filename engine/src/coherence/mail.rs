//! The mail of a node: a task for each mailbox feeds what arrives to the lines.

use std::sync::{Arc, Weak};

use selkie_channels::Mailbox;
use selkie_fabric::env::yield_now;

use crate::EngineError;
use crate::core::Core;
use crate::join::either;

/// Messages handled before other tasks get a turn.
const MAIL_BUDGET: usize = 64;

/// Answers the requests of the nodes that write to a mailbox until the engine is gone or a peer
/// breaks the protocol.
pub(crate) async fn run_mail(core: Weak<Core>, mailbox: Arc<Mailbox>) {
    let Some(stop) = core.upgrade().map(|c| c.lifecycle.stop_bell().clone()) else { return };
    let mut since_turn = 0;
    loop {
        {
            let Some(core) = core.upgrade() else { return };
            if core.lifecycle.has_failed() {
                return;
            }
            let mut broken = None;
            let polled = mailbox.poll(MAIL_BUDGET, &mut |from, bytes| {
                core.panic_if_planted("mail");
                if let Err(error) = core.receive(from, bytes) {
                    broken.get_or_insert(error);
                }
            });
            if let Some(error) = broken {
                core.lifecycle.fail(error);
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
                    core.lifecycle.fail(EngineError::Message { to: me, source });
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
