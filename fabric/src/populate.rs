//! Memory that is lent gets its pages before it is lent: else the first seconds of every run pay
//! for them, page by page. And what is accessed here and there gets huge ones.
//!
//! It uses `unsafe` to advise the system of a range of addresses.

use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::ptr::NonNull;

use crate::error::FabricError;

/// Bytes that are populated before the caller is told of it: a fraction of a second.
#[cfg(target_os = "linux")]
const PIECE: usize = 64 << 20;
/// Bytes that are populated by one call: a huge page. Meanwhile the system lets no other thread of
/// the process map memory, as each new thread does: those that answer other processes would be
/// late.
#[cfg(target_os = "linux")]
const CALL: usize = 2 << 20;

#[cfg(target_os = "linux")]
const _: () = assert!(PIECE.is_multiple_of(CALL), "calls do not cross pieces");

/// Takes memory for `bytes` bytes at a page's start, in huge pages where the system gives them.
/// `told` is called before and after each piece with the bytes that have memory, and may break it
/// off. What the memory holds does not change. `false` if the system has no call for it, before
/// Linux 5.14.
#[cfg(target_os = "linux")]
pub(crate) fn populate(
    start: NonNull<u8>,
    bytes: usize,
    told: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<bool, FabricError> {
    use rustix::io::Errno;
    use rustix::mm::{Advice, madvise};

    // SAFETY: the advice does not change what the memory holds. The caller owns the range.
    let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
    for at in (0..bytes).step_by(CALL) {
        if at.is_multiple_of(PIECE) && told(at).is_break() {
            return Err(FabricError::Interrupted);
        }
        let piece = CALL.min(bytes - at);
        // SAFETY: inside the range.
        let first = unsafe { start.add(at) };
        // SAFETY: as above.
        let taken = unsafe { madvise(first.as_ptr().cast(), piece, Advice::LinuxPopulateWrite) };
        match taken {
            Ok(()) => {}
            Err(Errno::INVAL) if at == 0 => return Ok(false),
            // A file system that is full answers with FAULT.
            Err(Errno::NOMEM | Errno::FAULT | Errno::NOSPC) => {
                return Err(FabricError::OutOfMemory { bytes: bytes as u64 });
            }
            Err(error) => {
                let (path, what) = ("of a region".to_owned(), format!("populate: {error}"));
                return Err(FabricError::Segment { path, what });
            }
        }
    }
    let _over = told(bytes);
    Ok(true)
}

/// Where there is no such call, memory comes when it is touched.
#[cfg(not(target_os = "linux"))]
pub(crate) fn populate(
    _start: NonNull<u8>,
    _bytes: usize,
    _told: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<bool, FabricError> {
    Ok(false)
}

/// Asks the system for huge pages where whole ones lie in memory that was not touched yet: accesses
/// here and there in much memory then miss fewer translations of addresses. It may give none.
#[cfg(target_os = "linux")]
pub fn want_huge_pages<T>(memory: &mut [MaybeUninit<T>]) {
    use rustix::mm::{Advice, madvise};

    /// Bytes of a huge page.
    const HUGE: usize = 2 << 20;
    let range = memory.as_mut_ptr_range();
    let offset = range.start.cast::<u8>().align_offset(HUGE);
    let bytes = size_of_val(memory).saturating_sub(offset) / HUGE * HUGE;
    if bytes > 0 {
        let first = range.start.cast::<u8>().wrapping_add(offset);
        // SAFETY: the range lies in `memory`, and the advice does not change what that holds.
        let _ = unsafe { madvise(first.cast(), bytes, Advice::LinuxHugepage) };
    }
}

/// Other systems are not asked.
#[cfg(not(target_os = "linux"))]
pub fn want_huge_pages<T>(_memory: &mut [MaybeUninit<T>]) {}
