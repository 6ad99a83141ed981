//! Messages between two nodes about one line.

use crate::coherence::word::ComputeId;

/// The kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum RequestKind {
    /// The requester wants to read: the holder keeps a shared copy.
    Read,
    /// The requester wants to write: the holder gives the line up.
    Write,
    /// The requester is the holder and wants to write: the reader gives its copy up.
    Release,
}

/// A request from one compute node to another about one line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Request {
    /// The kind.
    pub kind: RequestKind,
    /// Answer Busy rather than wait for a local latch.
    pub nowait: bool,
    /// How often the requester has failed; the highest goes first among deferred requests.
    pub priority: u8,
}

/// A message between two compute nodes about one line. Grants carry the page beside it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Message {
    /// A request; gets exactly one of the answers below.
    Request(Request),
    /// Answer to Read: a shared copy.
    GrantShared,
    /// Answer to Write: the line itself.
    GrantModified,
    /// Answer to Release: the reader has no copy any more, and the writer clears its bit.
    Released,
    /// Answer to any request: the node is not the holder, or not a reader.
    NotHeld {
        /// The node the line was last handed to, if that is known.
        holder: Option<ComputeId>,
    },
    /// Answer to a `nowait` request: the page is locally latched.
    Busy,
    /// Follows a grant: the grantor's change of the word has completed.
    Confirm,
}

/// A request waiting for its answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Deferred {
    /// The requester.
    pub from: ComputeId,
    /// The request.
    pub request: Request,
}
