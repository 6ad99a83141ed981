//! The operations of a transaction on rows: from a key to its leaf, and from there to the row.
//!
//! [`leaf`] finds and latches the leaf of a key, [`walk`] goes from leaf to leaf. [`read`] has the
//! reads, [`some_columns`] those of a part of a row, [`get_many`] those of many keys, [`kept`]
//! those that have to stay true, [`cursor`] the cursors, which do not see [`own_additions`] and may
//! show [`entries`] of indexes without their rows;
//! [`read_ahead`] fetches pages early. [`locked`] locks rows, and [`insist`] whatever is read.
//! [`write`] has the changes of rows with the entries of their indexes. A change reaches a held
//! leaf through [`leaf_write`], or the write set through [`deferred`]. [`row_size`] says which
//! values are stored apart from a row, [`long_values`] how, and [`whole_row`] has the operations on
//! them. [`snapshot_read`] reads leaves as they were, and records what is read; [`validate`]
//! compares that with what is there.

pub(crate) mod cursor;
pub(crate) mod deferred;
pub(crate) mod entries;
mod get_many;
pub(crate) mod insist;
mod kept;
pub(crate) mod leaf;
pub(crate) mod leaf_write;
mod locked;
pub(crate) mod long_values;
pub(crate) mod own_additions;
pub(crate) mod read;
pub(crate) mod read_ahead;
pub(crate) mod row_size;
pub(crate) mod snapshot_read;
mod some_columns;
pub(crate) mod table_use;
pub(crate) mod validate;
pub(crate) mod walk;
pub(crate) mod walk_state;
pub(crate) mod whole_row;
pub(crate) mod write;
