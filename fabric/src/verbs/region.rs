//! Regions of a node on RDMA devices.

use std::ops::Range;
use std::sync::Arc;

use crate::api::{LocalRegion, zero};
use crate::doorbell::Doorbell;
use crate::error::FabricError;
use crate::id::RegionKey;
use crate::mem::node::MemRegion;

/// A region whose memory stays where it is: cards of guests know its pages.
pub(super) struct VerbsRegion(pub(super) Arc<MemRegion>);

impl LocalRegion for VerbsRegion {
    fn key(&self) -> RegionKey {
        self.0.key()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn load(&self, offset: usize) -> u64 {
        self.0.load(offset)
    }

    fn store(&self, offset: usize, value: u64) {
        self.0.store(offset, value);
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        self.0.read(offset, into);
    }

    fn write(&self, offset: usize, from: &[u8]) {
        self.0.write(offset, from);
    }

    fn doorbell(&self) -> &Doorbell {
        LocalRegion::doorbell(&*self.0)
    }

    /// Makes the bytes zero. Their memory is not given back: the page that this process would find
    /// there then would not be the one that cards write to.
    fn discard(&self, bytes: Range<usize>) -> bool {
        zero(self, bytes);
        false
    }

    fn restore(&self, bytes: Range<usize>) -> Result<(), FabricError> {
        self.0.restore(bytes)
    }
}
