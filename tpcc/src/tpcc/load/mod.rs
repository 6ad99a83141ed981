//! Loading the initial database (clause 4.3.3).
//!
//! The work is cut into jobs (`jobs`), each a run of rows that are neighbours in their tables.
//! Every compute node runs several tasks; a task takes the jobs of its node's warehouses first and
//! helps the other nodes then. A job inserts its rows in transactions of some dozens (`insert`).
//! Every row is made from the seed and its own key (`rows`), so the database is the same however
//! the work is shared.

mod insert;
mod jobs;
mod loader;
mod rows;

pub use loader::load;
