//! Protection domains and registered memory.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rdma_mummy_sys as sys;

use super::context::Context;
use crate::buf::WORD_BYTES;
use crate::domain::Rights;
use crate::mem::node::MemRegion;
use crate::mem::words::Words;

/// Memory that a device may be given: it stays where it is, and all its accesses are atomics.
pub(in crate::verbs) trait DeviceMemory: Send + Sync {
    fn words(&self) -> &[AtomicU64];
}

impl DeviceMemory for Words {
    fn words(&self) -> &[AtomicU64] {
        self
    }
}

impl DeviceMemory for MemRegion {
    fn words(&self) -> &[AtomicU64] {
        self.all_words()
    }
}

/// What queue pairs and registrations belong to: no queue pair reaches memory of another domain,
/// whatever keys it knows.
pub(in crate::verbs) struct ProtectionDomain {
    pub(super) raw: NonNull<sys::ibv_pd>,
    _context: Arc<Context>,
}

// SAFETY: the library may be called from any thread.
unsafe impl Send for ProtectionDomain {}
// SAFETY: as above, at the same time.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    pub(in crate::verbs) fn new(context: &Arc<Context>) -> io::Result<Arc<Self>> {
        // SAFETY: the context is open.
        let raw = unsafe { sys::ibv_alloc_pd(context.raw.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Arc::new(Self { raw, _context: Arc::clone(context) }))
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: all objects of the domain own it, so they are gone.
        unsafe { sys::ibv_dealloc_pd(self.raw.as_ptr()) };
    }
}

/// Memory that a device may access. It is pinned as long as this lives.
pub(in crate::verbs) struct Registration {
    raw: NonNull<sys::ibv_mr>,
    memory: Arc<dyn DeviceMemory>,
    /// The first byte of the memory that is registered.
    start: usize,
    _domain: Arc<ProtectionDomain>,
}

// SAFETY: the library may be called from any thread, and the memory is made of atomics.
unsafe impl Send for Registration {}
// SAFETY: as above, at the same time.
unsafe impl Sync for Registration {}

impl Registration {
    /// Registers these bytes of `memory`, which have to be in it.
    pub(in crate::verbs) fn new(
        domain: &Arc<ProtectionDomain>,
        memory: Arc<dyn DeviceMemory>,
        bytes: Range<usize>,
        rights: Rights,
    ) -> io::Result<Self> {
        let words = memory.words();
        let is_inside = bytes.start < bytes.end && bytes.end <= words.len() * WORD_BYTES;
        if !is_inside {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // The device's own writes to it are those of reads, and of the atomics of others.
        let mut access = sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE;
        if rights.read {
            access |= sys::ibv_access_flags::IBV_ACCESS_REMOTE_READ;
        }
        if rights.write {
            access |= sys::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE;
        }
        if rights.atomic {
            access |= sys::ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC;
        }
        let first = words.as_ptr().cast::<u8>().cast_mut();
        // SAFETY: checked to be inside the words.
        let first = unsafe { first.add(bytes.start) };
        let (length, access) = (bytes.end - bytes.start, access.0 as i32);
        // SAFETY: the words live as long as `memory`, which this object owns until the registration
        // is gone; all their accesses are atomic, so that those of the device are no data races.
        let raw = unsafe { sys::ibv_reg_mr(domain.raw.as_ptr(), first.cast(), length, access) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { raw, memory, start: bytes.start, _domain: Arc::clone(domain) })
    }

    /// The key by which peers name the memory.
    pub(in crate::verbs) fn remote_key(&self) -> u32 {
        // SAFETY: the registration lives.
        unsafe { self.raw.as_ref() }.rkey
    }

    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: the registration lives.
        unsafe { self.raw.as_ref() }.lkey
    }

    /// The address of its first byte, as peers name it.
    pub(in crate::verbs) fn address(&self) -> u64 {
        self.memory.words().as_ptr() as u64 + self.start as u64
    }

    /// Its length.
    pub(in crate::verbs) fn bytes(&self) -> usize {
        // SAFETY: the registration lives.
        unsafe { self.raw.as_ref() }.length
    }

    /// The memory.
    pub(in crate::verbs) fn words(&self) -> &[AtomicU64] {
        self.memory.words()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: registered once, and released once; the memory goes after that.
        unsafe { sys::ibv_dereg_mr(self.raw.as_ptr()) };
    }
}
