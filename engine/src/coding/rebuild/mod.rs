//! New homes for the headers of a memory node that was lost, or of a slab that is to leave one:
//! this node's part in it (DESIGN §7).
//!
//! ```text
//! memory node declared dead, or headers to leave
//!    --> come to a stop with its lines, wait for what is under way        [quiet]
//!    --> [all quiet] one moves the header tables: versions from the splits' tags, words free   [moved]
//!    --> hear the mail that others had sent, enter what this node has in the words             [entered]
//!    --> [all entered] go on
//! ```
//! What a line is to the coherence machine while it stands still, and what it is afterwards, is
//! `machine::home`, and model checked. Pages are read and written here all the while, where they
//! are in the cache with the right to do so; who needs another right waits.
//!
//! Where the memory node lives the versions come from the headers that are there, which nobody
//! changes any more; and they tell what those had who died before they could enter it.

mod entries;
mod headers;
mod quiesce;
mod unclaimed;
