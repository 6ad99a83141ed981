//! The attendant of a node: a thread that sleeps until a peer rings a doorbell somebody waits for,
//! and now and then looks whether the processes of the peers still live.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::control::Control;
use super::fabric::Own;
use crate::error::FabricError;

/// How often the peers are looked after.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const _: () = assert!(LOOK_EVERY.as_secs() == 0);

/// Starts the attendant of a node; it ends with the node.
pub(super) fn start(own: &Arc<Own>, control: &Arc<Control>) -> Result<(), FabricError> {
    let (own, control) = (Arc::downgrade(own), Arc::clone(control));
    let attendant = move || attend(&own, &control);
    match thread::Builder::new().name("shm-attendant".into()).spawn(attendant) {
        Ok(_) => Ok(()),
        Err(error) => {
            let (path, what) = ("thread shm-attendant".to_owned(), error.to_string());
            Err(FabricError::Segment { path, what })
        }
    }
}

fn attend(own: &Weak<Own>, control: &Control) {
    let mut looked = Instant::now();
    loop {
        let seen = control.calls();
        {
            let Some(own) = own.upgrade() else { return };
            own.wake_rung();
            if looked.elapsed() >= LOOK_EVERY {
                own.look_after_peers();
                looked = Instant::now();
            }
        }
        let rest = LOOK_EVERY.saturating_sub(looked.elapsed());
        control.sleep(seen, rest.subsec_nanos());
    }
}
