//! The versions of the splits of a page, as they lie in the page's header and in messages.

use selkie_fabric::{Buf, Chain};
use selkie_pool::layout::{self, MAX_SPLITS};

use super::tag::{Version, Versions};
use crate::addressing::executed::read_at;

/// The size of the versions of a page, in bytes.
pub(crate) const VERSIONS_BYTES: usize = 4 * MAX_SPLITS;

/// Versions as they lie in a header and in a message.
pub(crate) fn versions_bytes(versions: &Versions) -> [u8; VERSIONS_BYTES] {
    let mut bytes = [0; VERSIONS_BYTES];
    for (to, version) in bytes.as_chunks_mut().0.iter_mut().zip(versions) {
        *to = version.to_bits().to_le_bytes();
    }
    bytes
}

/// Versions that this node must read at home.
pub(crate) fn unknown_versions() -> Versions {
    [Version::LOST; MAX_SPLITS]
}

/// Versions from the bytes of a header.
pub(crate) fn versions_from(bytes: &[u8]) -> Versions {
    let mut versions = Versions::default();
    for (version, bytes) in versions.iter_mut().zip(bytes.as_chunks().0) {
        *version = Version::from_bits(u32::from_le_bytes(*bytes));
    }
    versions
}

pub(super) fn versions_buf(versions: &Versions) -> Buf {
    Buf::copy_of(&versions_bytes(versions))
}

/// The versions in the header that the last verb of a chain read.
///
/// # Panics
/// If the last verb is no read of a header.
#[track_caller]
pub(super) fn found_versions(chain: &Chain) -> Versions {
    let header = read_at(chain, chain.verbs.len() - 1);
    versions_from(header.split_at(layout::SPLIT_VERSION_AT as usize).1)
}
