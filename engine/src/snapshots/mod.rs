//! Snapshots: states of the pool that transactions read while others change it.
//!
//! A snapshot is a value S of the pool's clock. It has every commit whose stamp is up to S, and no
//! other. A page carries the stamp of its last change, `write`, and a link to its image before:
//!
//! ```text
//! page         write 9 | link --+
//!                               v
//! image        [5, 9)  | link --+        in the arena of the node that committed 9
//!                               v
//! image        [2, 5)  | none            in the arena of the node that committed 5
//! ```
//!
//! *Commit.* It latches the pages that it changes, draws its stamp c, and learns which snapshots
//! may be active ([`Engine::draw_stamp`](crate::Engine::draw_stamp)). It keeps an image `[write,
//! c)` of each page that one of them may want, sets `write` to c, changes the page, and lets go.
//!
//! *Reader at S.* It latches the page shared. If `write` is up to S, it reads the page. Else it
//! follows links to the image with S in its interval.
//!
//! Why it finds that: a snapshot is published before it reads the clock, and a commit learns what
//! is published after it has drawn. If c > S, the clock was read before c was drawn, so the commit
//! learnt of the snapshot. If c <= S, the commit had latched its pages before S was read, so the
//! reader waits for the change. A commit that was acknowledged before had drawn c before S was read
//! from the same clock, so c <= S.
//!
//! ```text
//! begin    WRITE slot -> FAA mask -> READ clock: S
//! commit   latch -> FAA clock: c -> READ mask -> READ slots -> keep images -> change -> let go
//! ```
//!
//! What is lost or late costs an image, and then the reader learns that the snapshot is too old. It
//! never gets a wrong page: an image says for which interval it is valid, and which one it is.
//!
//! | file | what |
//! |---|---|
//! | `registry.rs` | the snapshots of a node, and what of them it publishes: pure |
//! | `slot.rs`, `publishing.rs` | the words by which others learn of them |
//! | `clock.rs`, `drawing.rs` | reads of the clock; stamps, what a commit learns, the horizon |
//! | `images.rs` | which images are kept, which are freed: pure |
//! | `arena.rs` | the memory of images |
//! | `reading.rs`, `remote_arenas.rs` | images of other nodes; their arenas |
//! | `model/` | the model check, on the same registry and images |
//!
//! docs/decisions/0090-snapshots.md has what was rejected. Not done here: what a link in a page
//! means when pages are split or merged is the transaction layer's. Two halves may share a link.

mod active;
mod api;
mod arena;
mod clock;
mod drawing;
mod images;
mod link;
#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, reason = "a model")]
mod model;
mod publishing;
mod reading;
mod registry;
mod remote_arenas;
mod slot;
mod stamp;
pub(crate) mod state;

pub use active::ActiveSnapshots;
pub use link::ImageLink;
pub use stamp::Stamp;
pub use state::Snapshot;

pub(crate) use arena::least_image_bytes;
