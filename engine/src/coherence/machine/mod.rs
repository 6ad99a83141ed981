//! The coherence state machine of one global cache line at one compute node: events in, actions
//! out.
//!
//! The engine drives [`Line::step`] with local wants, completions and messages; the model checker
//! drives the very same function against a model of home and network. Nothing here does I/O.
//!
//! ```text
//!            want S                    holder 0
//!  Invalid ----------> AcquireShared ------------------------------------> Shared
//!     |                     | holder h         reset done           grant  ^  |
//!     |                     +--> ResetShared{h} --> WaitRead{h} -----------+  |
//!     |      want M                  word 0                                   | want M
//!     +--------------> AcquireExclusive --------> Modified <---- Upgrade <----+
//!                       |h       | readers R        ^   ^           | readers
//!                       v        v                  |   |           v
//!              WaitWrite{h}   Intent{R} --> WaitSharers{R} <-- UpgradeIntent{R}
//!                  grant --> Modified            | all answered, one Busy
//!                                                +--> CancelIntent --> Shared
//!  Modified --asked by writer--> HandOver{to} --> Invalid
//!  Modified --asked by reader--> Downgrade{to} --> Shared
//!  Modified --evicted--> ReleaseModified --> Invalid
//!  Modified --to go home--> WriteBack --> Modified
//!  Shared --evicted--> Lapsed --want S--> Refetch --> Shared       Lapsed --want M--> Upgrade
//!  Shared or Lapsed --asked by writer w--> Ceded{w} --want--> WaitRead{w}, WaitWrite{w}
//! ```
//! A `Look` or `UpgradeLook` at the word can go before AcquireShared, AcquireExclusive and Upgrade.
//! During a recovery it does, and `Join`, a swap of what the look has found, is in the place of
//! AcquireShared.
//!
//! # Rules (SELCC §4, made safe)
//! - R1: a node has at most one latch operation outstanding for a line
//!   ([`Phase::operation_outstanding`]). The driver posts all operations of a line on one queue
//!   pair.
//! - R2: a reader whose acquisition failed resets its bit and *waits for the reset* before it asks
//!   the holder.
//! - R3: a writer that finds only readers announces its intent in the holder field, then asks each
//!   reader to release.
//! - R4: an upgrade that lost to another holder stays Shared. The winner's release request is
//!   already on its way and takes the copy.
//! - R5: a holder sends a grant at once, changes the word afterwards, and sends `Confirm` when that
//!   change has completed. A grantee starts no global transition before the Confirm: with the
//!   published protocol (grant and forget) the borrow of a late add can show "no writer" while
//!   memory is stale.
//! - R6: a node with an operation outstanding, or unconfirmed, defers requests. Every request gets
//!   exactly one answer.
//! - R7: `Transition::request` says which requests a waiting node answers at once and which it
//!   defers.
//! - R8: eviction writes back and releases in one chain; requests that come meanwhile are deferred.
//! - R9: a `nowait` request is answered Busy where the page is locally latched. A writer gives up
//!   its intent once every reader that it asked has answered, and turns it into a reader's bit: no
//!   other node can be holder, and home is current, so the fetched copy stays valid.
//!
//! # Beyond the published protocol, R2, R3 and R5
//! - A cancelled intent ends in Shared rather than Invalid.
//! - `NotHeld` may name the node that the line was handed to. The requester asks that node once
//!   before it goes back to the word.
//! - A node that evicts its shared copy leaves its bit in the word (Lapsed). No node becomes holder
//!   before it has asked this one, so memory is current, and a READ suffices for a new copy.
//! - A reader that a writer asks to release leaves its bit in the word (Ceded). The writer clears
//!   the bit in the atomic by which it hands over, downgrades, evicts or gives its intent up
//!   ([`Line::carried`]). Until then the reader leaves the word alone: it asks the writer, which
//!   answers only between its operations (R6). After a grant the bit is set. After `NotHeld` the
//!   word tells: the writer has cleared the bit, or it has failed, and its death is still to come.
//!   A node that leaves first takes such a bit back, as a reader. Forgetting it would be unsafe: a
//!   bit that is added twice carries into the next one, and in the end into the holder's field.
//!
//! # Failures
//! `death` has the transitions that follow the death of another node, `home` those that follow the
//! loss of the line's home. The machine does not know that a coded page goes home in splits; the
//! model does (`model::coded`).
//!
//! Contents: `phase` (what a node has of a line), `message`, `event` (events and actions), `rules`,
//! `line` (the state), `transition` (one step), `transitions` (local wants and completions),
//! `peers` (requests and answers).

mod death;
mod event;
mod home;
mod line;
mod message;
mod peers;
mod phase;
mod rules;
mod transition;
mod transitions;

pub use event::{Action, Actions, Atomic, Event, LatchOperation, LocalUse, Violation, WordAccess};
pub use line::Line;
pub use message::{Deferred, Message, Request, RequestKind};
pub use phase::{Inquiry, Phase};
pub use rules::Rules;
