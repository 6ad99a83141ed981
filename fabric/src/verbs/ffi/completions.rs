//! Completion queues, and the channel of their events.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::check;
use super::context::Context;

/// Completions that are taken at once.
const BATCH: usize = 32;

/// Is readable when an armed completion queue has got a completion.
pub(in crate::verbs) struct EventChannel {
    raw: NonNull<sys::ibv_comp_channel>,
    context: Arc<Context>,
}

// SAFETY: the library may be called from any thread.
unsafe impl Send for EventChannel {}
// SAFETY: as above, at the same time.
unsafe impl Sync for EventChannel {}

impl EventChannel {
    pub(in crate::verbs) fn new(context: &Arc<Context>) -> io::Result<Arc<Self>> {
        // SAFETY: the context is open.
        let raw = unsafe { sys::ibv_create_comp_channel(context.raw.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        let channel = Self { raw, context: Arc::clone(context) };
        let flags = fcntl_getfl(channel.fd())?;
        fcntl_setfl(channel.fd(), flags | OFlags::NONBLOCK)?;
        Ok(Arc::new(channel))
    }

    pub(in crate::verbs) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel lives.
        let fd = unsafe { self.raw.as_ref() }.fd;
        // SAFETY: the descriptor is open as long as the channel.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// Takes all events. They say only that some queue is to be looked at. Does not block.
    pub(in crate::verbs) fn take_events(&self) {
        loop {
            let (mut cq, mut context) = (null_mut(), null_mut());
            // SAFETY: the channel lives, and the call fills both pointers.
            let code =
                unsafe { sys::ibv_get_cq_event(self.raw.as_ptr(), &raw mut cq, &raw mut context) };
            if check(code).is_err() {
                return;
            }
            // SAFETY: the event is of a queue that lives: queues own the channel, and the thread
            // that takes events owns the queues.
            unsafe { sys::ibv_ack_cq_events(cq, 1) };
        }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: the queues of the channel own it, so they are gone.
        unsafe { sys::ibv_destroy_comp_channel(self.raw.as_ptr()) };
    }
}

/// What is known of a work request that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::verbs) struct Completed {
    /// The number that the request was given.
    pub(in crate::verbs) id: u64,
    /// As the library numbers them; 0 is success.
    pub(in crate::verbs) status: u32,
    /// The number that came with a write, at its target.
    pub(in crate::verbs) immediate: Option<u32>,
}

/// A completion queue.
pub(in crate::verbs) struct CompletionQueue {
    pub(super) raw: NonNull<sys::ibv_cq>,
    _channel: Arc<EventChannel>,
}

// SAFETY: the library may be called from any thread.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above, at the same time.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// A queue with room for so many completions, which tells `channel` when it is armed.
    pub(in crate::verbs) fn new(channel: &Arc<EventChannel>, room: u32) -> io::Result<Arc<Self>> {
        let (context, room) = (channel.context.raw.as_ptr(), i32::try_from(room).unwrap_or(1));
        // SAFETY: context and channel live; the queue owns the channel.
        let raw = unsafe { sys::ibv_create_cq(context, room, null_mut(), channel.raw.as_ptr(), 0) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Arc::new(Self { raw, _channel: Arc::clone(channel) }))
    }

    /// The next completion tells the channel.
    pub(in crate::verbs) fn arm(&self) -> io::Result<()> {
        // SAFETY: the queue lives.
        check(unsafe { sys::ibv_req_notify_cq(self.raw.as_ptr(), 0) })
    }

    /// Takes what is there, up to a batch, and appends it. Returns whether there may be more.
    pub(in crate::verbs) fn poll(&self, into: &mut Vec<Completed>) -> io::Result<bool> {
        let mut batch = [const { MaybeUninit::<sys::ibv_wc>::uninit() }; BATCH];
        // The basic call, not the one of extended queues, which gives completions that never were
        // with `rxe` of rdma-core 44.
        // SAFETY: the queue lives, and the call writes at most so many entries.
        let count =
            unsafe { sys::ibv_poll_cq(self.raw.as_ptr(), BATCH as i32, batch.as_mut_ptr().cast()) };
        let Ok(count) = usize::try_from(count) else { return Err(io::Error::last_os_error()) };
        for entry in batch.iter().take(count) {
            // SAFETY: the call wrote the first `count` entries.
            let entry = unsafe { entry.assume_init_ref() };
            into.push(understand(entry));
        }
        Ok(count == BATCH)
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: its queue pairs own it, so they are gone; all events are acknowledged.
        unsafe { sys::ibv_destroy_cq(self.raw.as_ptr()) };
    }
}

fn understand(entry: &sys::ibv_wc) -> Completed {
    let is_done = entry.status == sys::ibv_wc_status::IBV_WC_SUCCESS;
    // Other fields than number and status are there after a success only.
    let is_ring = is_done && entry.opcode == sys::ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM;
    // SAFETY: such a completion carries the number; both parts of the union are plain numbers.
    let immediate =
        is_ring.then(|| u32::from_be(unsafe { entry.imm_data_invalidated_rkey_union.imm_data }));
    Completed { id: entry.wr_id, status: entry.status, immediate }
}
