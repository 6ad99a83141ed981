//! The adapter of a node: three queues that serve in order of arrival, and the threads that take
//! messages in.

use std::time::Duration;

/// When each queue of an adapter has served all its entries, and how long it was busy.
#[derive(Default)]
pub(super) struct Adapter {
    sends: u64,
    receives: u64,
    atomics: u64,
    /// The threads that poll the mailboxes of the node.
    mail: Vec<MailThread>,
    busy: AdapterBusy,
}

/// A thread that takes messages in.
#[derive(Clone, Default)]
struct MailThread {
    free_at: u64,
    busy: u64,
}

/// How long each queue of an adapter was busy so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AdapterBusy {
    /// Sending.
    pub sends: Duration,
    /// Receiving.
    pub receives: Duration,
    /// Executing atomics.
    pub atomics: Duration,
    /// The busiest of the threads that take messages in.
    pub mail: Duration,
}

impl Adapter {
    pub(super) fn busy(&self) -> AdapterBusy {
        self.busy
    }

    /// Serves an entry of the sending queue that is ready at `ready` and takes `took`. Returns when
    /// its last byte is out.
    pub(super) fn send(&mut self, ready: u64, took: u64) -> u64 {
        self.sends = self.sends.max(ready) + took;
        self.busy.sends += Duration::from_nanos(took);
        self.sends
    }

    /// Serves an entry of the receiving queue. Returns when its last byte is in.
    pub(super) fn receive(&mut self, ready: u64, took: u64) -> u64 {
        self.receives = self.receives.max(ready) + took;
        self.busy.receives += Duration::from_nanos(took);
        self.receives
    }

    /// Serves an atomic. Returns when it executes.
    pub(super) fn atomic(&mut self, ready: u64, took: u64) -> u64 {
        self.atomics = self.atomics.max(ready) + took;
        self.busy.atomics += Duration::from_nanos(took);
        self.atomics
    }

    /// Takes in a message of sender number `sender`, by one of `threads` threads. Returns when it
    /// is taken in.
    pub(super) fn take_message(
        &mut self,
        sender: usize,
        threads: usize,
        ready: u64,
        took: u64,
    ) -> u64 {
        self.mail.resize_with(threads, MailThread::default);
        #[expect(clippy::indexing_slicing, reason = "the remainder is below the count of threads")]
        let thread = &mut self.mail[sender % threads];
        thread.free_at = ready.max(thread.free_at) + took;
        thread.busy += took;
        self.busy.mail = self.busy.mail.max(Duration::from_nanos(thread.busy));
        thread.free_at
    }
}
