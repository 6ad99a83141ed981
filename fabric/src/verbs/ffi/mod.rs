//! libibverbs, as far as it is used here: owned objects, safe calls. All `unsafe` code of the
//! backend is in this folder.
//!
//! The library is loaded when the process starts, if it is there; without it every call fails with
//! `EOPNOTSUPP`. Objects own what they were made from, so that they are destroyed in the order that
//! the library asks for. The library may be called from any thread.
//!
//! Memory that a device accesses is words ([`Words`](crate::mem::words::Words)), which this process
//! accesses by atomics only: an access of the device is one more thread that races for them.
//!
//! Contents: `context` (devices), `memory` (protection domains, registrations), `completions`
//! (completion queues and their events), `queue_pair` (reliable connections).

mod completions;
mod context;
mod memory;
mod queue_pair;

pub(super) use completions::{Completed, CompletionQueue, EventChannel};
pub(super) use context::{AsyncEvent, Context, DeviceLimits, DeviceList, GidEntry, PortInfo};
pub(super) use memory::{DeviceMemory, ProtectionDomain, Registration};
pub(super) use queue_pair::{
    Capacity, LinkParameters, Operation, Payload, RcQueuePair, Route, WorkRequest,
};

use std::io;

/// The error of a call that returns an error number.
fn check(code: i32) -> io::Result<()> {
    match code {
        0 => Ok(()),
        // Some calls return -1 and set `errno`.
        -1 => Err(io::Error::last_os_error()),
        code => Err(io::Error::from_raw_os_error(code.abs())),
    }
}
