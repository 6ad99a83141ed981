//! Results of the verbs of a completed chain.
//!
//! A completed chain has the value that each atomic found, and the bytes of each read. A missing
//! result is a bug in the fabric. Read as 0 it would mean that a latch word is free, or that a
//! compare-and-swap succeeded, so it ends the caller.

use selkie_fabric::{Buf, Chain, Verb};

/// The value that the atomic at `index` found.
///
/// # Panics
/// If the chain has no executed atomic there.
#[track_caller]
pub(crate) fn found_at(chain: &Chain, index: usize) -> u64 {
    let Some(old) = chain.old(index) else {
        panic!("verb {index} of {chain:?} is no executed atomic");
    };
    old
}

/// The bytes of the read at `index`.
///
/// # Panics
/// If the chain has no read there.
#[track_caller]
pub(crate) fn read_at(chain: &Chain, index: usize) -> &Buf {
    let Some(buf) = chain.buf(index) else { panic!("verb {index} of {chain:?} is no read") };
    buf
}

/// The first word of the read at `index`.
///
/// # Panics
/// If the chain has no read of a word there.
#[track_caller]
pub(crate) fn word_at(chain: &Chain, index: usize) -> u64 {
    first_word(read_at(chain, index))
}

/// The first word of the bytes that a read returned.
///
/// # Panics
/// If there are fewer than 8 bytes.
#[track_caller]
pub(crate) fn first_word(bytes: &Buf) -> u64 {
    let Some(word) = bytes.words().first() else { panic!("a read of a word returned none") };
    u64::from_le(*word)
}

/// Takes the bytes of the only read of a chain.
///
/// # Panics
/// If the first verb is no read.
#[track_caller]
pub(crate) fn into_read(chain: Chain) -> Buf {
    let Some(buf) = chain.verbs.into_iter().next().and_then(Verb::into_buf) else {
        panic!("the first verb of a chain is no read");
    };
    buf
}
