//! The attendant of a node: a thread that sleeps until a peer rings a doorbell with a waiter. It
//! also checks regularly whether the processes of the peers still live.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::control_page::ControlPage;
use super::node::ShmNode;
use crate::error::FabricError;

/// How often the peers are checked.
const CHECK_EVERY: Duration = Duration::from_millis(100);
const _: () = assert!(CHECK_EVERY.as_secs() == 0);

/// Starts the attendant of a node; it ends with the node.
pub(super) fn start(node: &Arc<ShmNode>, control: &Arc<ControlPage>) -> Result<(), FabricError> {
    let (node, control) = (Arc::downgrade(node), Arc::clone(control));
    let attendant = move || run(&node, &control);
    match thread::Builder::new().name("shm-attendant".into()).spawn(attendant) {
        Ok(_) => Ok(()),
        Err(error) => {
            let (path, what) = ("thread shm-attendant".to_owned(), error.to_string());
            Err(FabricError::Segment { path, what })
        }
    }
}

fn run(node: &Weak<ShmNode>, control: &ControlPage) {
    let mut checked = Instant::now();
    loop {
        let seen = control.calls();
        {
            let Some(node) = node.upgrade() else { return };
            node.wake_rung();
            if checked.elapsed() >= CHECK_EVERY {
                node.check_peers();
                checked = Instant::now();
            }
        }
        let rest = CHECK_EVERY.saturating_sub(checked.elapsed());
        control.sleep(seen, rest.subsec_nanos());
    }
}
