//! New homes for the headers of a memory node that was lost, or of a slab that leaves one: this
//! node's part in it (docs/design.md, Coded pages).
//!
//! ```text
//! memory node declared dead, or headers to leave
//!    --> quiesce its lines, wait for outstanding operations                      [quiet]
//!    --> [all quiet] one node moves the header tables:
//!        versions from the splits' tags, words free                              [moved]
//!    --> handle the mail that others had sent, enter this node's lines in words  [entered]
//!    --> [all entered] resume
//! ```
//! `machine::home` has the transitions of a line that is quiesced and resumed; they are model
//! checked. Cached pages are read and written meanwhile, by callers whose rights suffice. Callers
//! that need another right wait.
//!
//! If the memory node lives, the versions come from its headers, which no node changes any more.
//! The old words also say which lines a node held that died before it could enter them.
//!
//! Contents: `quiesce` (the steps in their order, and the lines that are quiesced), `headers`,
//! `entries`, `unclaimed` (lines that no survivor has entered).

mod entries;
mod headers;
mod quiesce;
mod suspects;
mod unclaimed;
