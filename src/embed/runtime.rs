//! The worker threads of a pool that is open.

use std::convert::Infallible;
use std::io;
use std::sync::mpsc;
use std::thread;

use crate::fabric::{Env, RealRuntime};

/// Worker threads that end after the last handle of the pool is dropped.
///
/// A thread of its own keeps them: the runtime below must not be dropped inside an asynchronous
/// task, but a handle of the pool may be.
pub(super) struct Runtime {
    env: Env,
    /// Tells the thread to end, by being dropped.
    _keeper: mpsc::Sender<Infallible>,
}

impl Runtime {
    pub(super) fn start(threads: usize) -> io::Result<Self> {
        let (keeper, dropped) = mpsc::channel::<Infallible>();
        let (started, answer) = mpsc::sync_channel(1);
        thread::Builder::new().name("selkie-runtime".to_owned()).spawn(move || {
            let runtime = match RealRuntime::new(threads) {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(error))),
            };
            drop(started.send(Ok(runtime.env())));
            // It never receives anything: it ends when the sender is dropped.
            let _ = dropped.recv();
        })?;
        let env = answer.recv().map_err(io::Error::other)??;
        Ok(Self { env, _keeper: keeper })
    }

    pub(super) fn env(&self) -> &Env {
        &self.env
    }
}
