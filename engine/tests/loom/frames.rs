//! Stands in for the engine's module of the same name.

use crate::frame::{Frame, FrameId};

pub(crate) struct Frames(Vec<Frame>);

impl Frames {
    pub(crate) fn new(count: usize) -> Self {
        Self((0..count).map(|_| Frame::default()).collect())
    }

    pub(crate) fn get(&self, id: FrameId) -> &Frame {
        &self.0[id.0 as usize]
    }
}
