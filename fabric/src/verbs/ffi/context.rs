//! Devices: their list, their limits, their ports and the events that are of no completion.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rdma_mummy_sys as sys;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::check;

/// The devices of this host.
pub(in crate::verbs) struct DeviceList {
    list: NonNull<*mut sys::ibv_device>,
    count: usize,
}

impl DeviceList {
    /// Asks the library. Without the library the error is `Unsupported`.
    pub(in crate::verbs) fn new() -> io::Result<Self> {
        let mut count = 0;
        // SAFETY: the call writes the count and returns a list of so many devices, or null.
        let list = unsafe { sys::ibv_get_device_list(&raw mut count) };
        let list = NonNull::new(list).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { list, count: usize::try_from(count).unwrap_or(0) })
    }

    /// Their names, in the library's order.
    pub(in crate::verbs) fn names(&self) -> Vec<String> {
        (0..self.count).map(|index| self.name(index)).collect()
    }

    fn device(&self, index: usize) -> *mut sys::ibv_device {
        assert!(index < self.count, "device {index} of {}", self.count);
        // SAFETY: the list has `count` entries.
        let entry = unsafe { self.list.add(index) };
        // SAFETY: as above; the library does not change it.
        unsafe { entry.read() }
    }

    fn name(&self, index: usize) -> String {
        // SAFETY: the device is of the list, which lives.
        let name = unsafe { sys::ibv_get_device_name(self.device(index)) };
        if name.is_null() {
            return String::new();
        }
        // SAFETY: names are C strings that live as long as the list.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }

    /// Opens the device of this name.
    pub(in crate::verbs) fn open(&self, name: &str) -> io::Result<Context> {
        let index = (0..self.count).find(|index| self.name(*index) == name);
        let index = index.ok_or(io::ErrorKind::NotFound)?;
        // SAFETY: the device is of the list, which lives during the call.
        let context = unsafe { sys::ibv_open_device(self.device(index)) };
        let raw = NonNull::new(context).ok_or_else(io::Error::last_os_error)?;
        let context = Context { raw };
        // A reader of events looks for readiness first, and must never block.
        let flags = fcntl_getfl(context.async_fd())?;
        fcntl_setfl(context.async_fd(), flags | OFlags::NONBLOCK)?;
        Ok(context)
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: the library made the list; open devices do not need it.
        unsafe { sys::ibv_free_device_list(self.list.as_ptr()) }
    }
}

/// What a device can do.
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) struct DeviceLimits {
    pub(in crate::verbs) has_atomics: bool,
    pub(in crate::verbs) ports: u8,
    /// Work requests of a queue.
    pub(in crate::verbs) queue_requests: u32,
    /// Entries of a completion queue.
    pub(in crate::verbs) completions: u32,
    /// Reads and atomics of one queue pair that are under way, as their target.
    pub(in crate::verbs) target_reads: u8,
    /// As above, as their source.
    pub(in crate::verbs) source_reads: u8,
}

/// What a port is like.
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) struct PortInfo {
    pub(in crate::verbs) is_active: bool,
    /// As the library numbers the states.
    pub(in crate::verbs) state: u32,
    pub(in crate::verbs) is_ethernet: bool,
    pub(in crate::verbs) lid: u16,
    /// As the library numbers the units: 1 is 256 bytes, 5 is 4096.
    pub(in crate::verbs) mtu: u32,
    pub(in crate::verbs) gids: u32,
}

/// An address of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::verbs) struct GidEntry {
    pub(in crate::verbs) index: u8,
    pub(in crate::verbs) gid: [u8; 16],
    /// Whether it is of RoCE version 2.
    pub(in crate::verbs) is_routable: bool,
}

/// An event that belongs to no completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::verbs) enum AsyncEvent {
    /// The device is lost.
    DeviceFatal,
    /// A completion queue had no room.
    CompletionQueue,
    /// A queue pair of this number failed.
    QueuePair(u32),
    PortDown(u32),
    PortUp(u32),
    /// One that changes nothing here.
    Other,
}

/// An open device.
pub(in crate::verbs) struct Context {
    pub(super) raw: NonNull<sys::ibv_context>,
}

// SAFETY: the library may be called from any thread.
unsafe impl Send for Context {}
// SAFETY: as above, at the same time.
unsafe impl Sync for Context {}

impl Context {
    pub(in crate::verbs) fn limits(&self) -> io::Result<DeviceLimits> {
        let mut attr = MaybeUninit::<sys::ibv_device_attr>::zeroed();
        // SAFETY: the context is open, and the call fills the attributes.
        check(unsafe { sys::ibv_query_device(self.raw.as_ptr(), attr.as_mut_ptr()) })?;
        // SAFETY: filled by the call that succeeded; all fields are numbers.
        let attr = unsafe { attr.assume_init() };
        let count = |value: i32| u32::try_from(value).unwrap_or(0);
        let small = |value: i32| u8::try_from(value.clamp(0, 128)).unwrap_or(0);
        Ok(DeviceLimits {
            has_atomics: attr.atomic_cap != sys::ibv_atomic_cap::IBV_ATOMIC_NONE,
            ports: attr.phys_port_cnt,
            queue_requests: count(attr.max_qp_wr),
            completions: count(attr.max_cqe),
            target_reads: small(attr.max_qp_rd_atom),
            source_reads: small(attr.max_qp_init_rd_atom),
        })
    }

    pub(in crate::verbs) fn port(&self, port: u8) -> io::Result<PortInfo> {
        let mut attr = MaybeUninit::<sys::ibv_port_attr>::zeroed();
        // SAFETY: the context is open, and the call fills the attributes.
        check(unsafe { sys::ibv_query_port(self.raw.as_ptr(), port, attr.as_mut_ptr()) })?;
        // SAFETY: zeroed, then filled; all fields are numbers.
        let attr = unsafe { attr.assume_init() };
        Ok(PortInfo {
            is_active: attr.state == sys::ibv_port_state::IBV_PORT_ACTIVE,
            state: attr.state,
            is_ethernet: attr.link_layer == LINK_LAYER_ETHERNET,
            lid: attr.lid,
            mtu: attr.active_mtu,
            gids: u32::try_from(attr.gid_tbl_len).unwrap_or(0),
        })
    }

    /// The address of this index; `None` if there is none.
    pub(in crate::verbs) fn gid(&self, port: u8, index: u8) -> Option<GidEntry> {
        let mut entry = MaybeUninit::<sys::ibv_gid_entry>::zeroed();
        let (raw, port, at) = (self.raw.as_ptr(), u32::from(port), u32::from(index));
        // SAFETY: the context is open, and the call fills the entry.
        let code = unsafe { sys::ibv_query_gid_ex(raw, port, at, entry.as_mut_ptr(), 0) };
        check(code).ok()?;
        // SAFETY: zeroed, then filled; all fields are numbers.
        let entry = unsafe { entry.assume_init() };
        // SAFETY: every part of the union is made of plain bytes.
        let gid = unsafe { entry.gid.raw };
        let is_routable = entry.gid_type == sys::IBV_GID_TYPE_ROCE_V2;
        (gid != [0; 16]).then_some(GidEntry { index, gid, is_routable })
    }

    /// Is readable when there is an event.
    pub(in crate::verbs) fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open.
        let fd = unsafe { self.raw.as_ref() }.async_fd;
        // SAFETY: the descriptor is open as long as the context.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// Takes an event, if there is one. Does not block.
    pub(in crate::verbs) fn next_event(&self) -> Option<AsyncEvent> {
        let mut event = MaybeUninit::<sys::ibv_async_event>::zeroed();
        // SAFETY: the context is open, and the call fills the event.
        let code = unsafe { sys::ibv_get_async_event(self.raw.as_ptr(), event.as_mut_ptr()) };
        check(code).ok()?;
        // SAFETY: filled by the call that succeeded.
        let mut event = unsafe { event.assume_init() };
        let found = understand(&event);
        // SAFETY: the event was taken above, and is acknowledged once.
        unsafe { sys::ibv_ack_async_event(&raw mut event) };
        Some(found)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: all objects of the context own it, so they are gone.
        unsafe { sys::ibv_close_device(self.raw.as_ptr()) };
    }
}

/// `IBV_LINK_LAYER_ETHERNET`, which the library has in an enum without a name.
const LINK_LAYER_ETHERNET: u8 = 2;

fn understand(event: &sys::ibv_async_event) -> AsyncEvent {
    use sys::ibv_event_type as Kind;
    let queue_pair = || {
        // SAFETY: events of queue pairs carry one, which is not destroyed before the event is
        // acknowledged.
        let qp = unsafe { event.element.qp };
        // SAFETY: as above.
        AsyncEvent::QueuePair(unsafe { (*qp).qp_num })
    };
    let port = || {
        // SAFETY: events of ports carry their number.
        u32::try_from(unsafe { event.element.port_num }).unwrap_or(0)
    };
    match event.event_type {
        Kind::IBV_EVENT_DEVICE_FATAL => AsyncEvent::DeviceFatal,
        Kind::IBV_EVENT_CQ_ERR => AsyncEvent::CompletionQueue,
        Kind::IBV_EVENT_QP_FATAL | Kind::IBV_EVENT_QP_REQ_ERR | Kind::IBV_EVENT_QP_ACCESS_ERR => {
            queue_pair()
        }
        Kind::IBV_EVENT_PORT_ERR => AsyncEvent::PortDown(port()),
        Kind::IBV_EVENT_PORT_ACTIVE => AsyncEvent::PortUp(port()),
        _ => AsyncEvent::Other,
    }
}
