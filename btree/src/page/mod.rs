//! One page of the tree: a slotted page over plain bytes, with no latch and no I/O.
//!
//! Everything here is a function of bytes, so it is tested without an engine. An edit of a page
//! reports the bytes that it changes. Leaves and inner pages share the format; an inner entry's
//! value is the child's address (8 bytes). Slot 0 of an inner page carries the page's own low
//! fence, so entry `i` covers `[key i, key i + 1)` and the last one ends at the high fence: there
//! is no special first child. Its bytes behind the head are not stored again: bit 15 of the suffix
//! length says that they are those of the low fence.
//!
//! # Byte map (little-endian)
//!
//! ```text
//!  0  u16  magic               14  u16  high fence length
//!  2  u8   level               16  u64  right
//!  3  u8   flags               24  u32  extra
//!  4  u16  count               28  u64  read
//!  6  u16  heap                36  u64  write
//!  8  u16  garbage             44  slots ..
//! 10  u16  prefix length
//! 12  u16  low fence length
//!
//! slot, 8 bytes    | head u32 | cell offset u16 | suffix length u16 |
//! cell             | value length u16 | suffix from its 5th byte on | value |
//! page             [ header 44 | slots -> | free | <- cells (heap) | low fence | high fence ]
//! ```
//!
//! * `level`: 0 for a leaf. `flags`: bit 0 is *dead*: unlinked, kept for readers that still have
//!   its address; bit 1, of a leaf: *rows of its range may be locked*, which both halves of a
//!   split have, and what a merge makes of two if one has it.
//! * `heap`: offset of the lowest cell. `garbage`: bytes in the heap no slot points to.
//! * The fences stand whole at the end of the page: low is inclusive and empty means minus
//!   infinity, high is exclusive and empty means plus infinity. Every key of the page starts with
//!   the common prefix of the two fences, which is therefore not stored again: slots and cells
//!   hold the *suffix* after it.
//! * `head`: the first four bytes of the suffix as a big-endian integer, padded with zeros. They
//!   are not repeated in the cell. Heads order most keys without touching a cell.
//! * `right`: address of the right neighbour, 0 exactly when the high fence is infinite.
//! * `extra`: in a leaf, the most rows it may hold; in an inner page, a count that grows whenever a
//!   separator is removed from its range (see [`crate::post`]).
//! * `read`, `write`: in a leaf, two timestamps of the transaction layer (see [`Stamps`]); in an
//!   inner page 0.
//!
//! # Damage
//!
//! [`PageView::parse`] checks the header in constant time; every later access goes through checked
//! slicing. A damaged page yields [`Damage`], never a panic and never a byte outside the page.

mod cut;
mod edit;
mod layout;
mod merge;
mod order;
mod rebuild;
mod stamps;
mod view;
mod write;

#[cfg(test)]
mod tests;

pub use layout::{HEADER, max_key, max_value};
pub use stamps::Stamps;

pub(crate) use cut::choose_cut;
pub(crate) use edit::{
    NoRoomOr, bump_removals, insert, mark_dead, mark_locked, remove, replace, stamp,
};
pub(crate) use layout::{CHILD, Damage, MAX_PAGE, MIN_PAGE, entry_bytes};
pub(crate) use merge::{Joint, absorb, has_room_instead, joint, share, underfill};
pub(crate) use rebuild::{PageSpec, format, split, split_into};
pub(crate) use view::{PageView, Placement, Target};
#[cfg(test)]
pub(crate) use write::PageMut;
