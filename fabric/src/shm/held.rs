//! Nodes that are held by their files, which may be removed meanwhile: to end them in the order
//! of the caller that removes a whole fabric.

use std::fs::File;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::control_page::ControlPage;
use super::segment::Segment;
use crate::error::FabricError;
use crate::id::PeerId;

/// How long a fence waits for an executing verb.
const FENCE_PATIENCE: Duration = Duration::from_millis(200);
/// The pause of [`HeldNode::fence_patiently`] between two checks.
const FENCE_PAUSE: Duration = Duration::from_micros(50);

/// A node of the fabric that is held open. It keeps the memory of the node, also when the files
/// are removed and all processes that had mapped it are gone: the drop frees it.
pub struct HeldNode {
    peer: PeerId,
    segment: Segment,
    control: ControlPage,
    regions: Vec<File>,
}

impl HeldNode {
    /// The node without its memory, as one that is to be fenced is opened.
    pub(super) fn new(peer: PeerId, (segment, control): (Segment, ControlPage)) -> Self {
        Self { peer, segment, control, regions: Vec::new() }
    }

    /// Holds the memory, too.
    pub(super) fn with_memory(mut self) -> Result<Self, FabricError> {
        self.regions = self.segment.region_files()?;
        Ok(self)
    }

    /// Whether the process of the node is gone, or the node has left.
    ///
    /// # Errors
    /// `Segment` if its files cannot be read.
    pub fn owner_is_gone(&self) -> Result<bool, FabricError> {
        self.segment.owner_is_gone()
    }

    /// Declares the node dead, and returns once it can execute nothing more; a process that stands
    /// still in the middle of a verb is killed.
    ///
    /// # Errors
    /// As [`ShmFabric::fence_patiently`](super::ShmFabric::fence_patiently).
    pub fn fence(&self) -> Result<(), FabricError> {
        match self.fence_patiently(FENCE_PATIENCE) {
            Err(FabricError::StillExecuting { process, .. }) => {
                tracing::warn!(node = %self.peer, process, "end a process that stands still in a verb");
                kill(process);
                self.fence_patiently(FENCE_PATIENCE)?;
            }
            fenced => fenced?,
        }
        tracing::debug!(node = %self.peer, "fenced");
        Ok(())
    }

    pub(super) fn fence_patiently(&self, patience: Duration) -> Result<(), FabricError> {
        self.control.mark_dead();
        let until = Instant::now() + patience;
        while self.control.is_executing() && !self.segment.owner_is_gone()? {
            if Instant::now() >= until {
                let (peer, process) = (self.peer, self.control.process());
                return Err(FabricError::StillExecuting { peer, process });
            }
            thread::sleep(FENCE_PAUSE);
        }
        Ok(())
    }
}

fn kill(process: u64) {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    // It may have ended already.
    let _ = process.map(|process| kill_process(process, Signal::KILL));
}
