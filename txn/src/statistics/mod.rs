//! What the values of a table are like, found from a sample of its leaves.
//!
//! [`Database::analyze`](crate::Database::analyze) reads where the leaves of a table begin, and of
//! leaves that it draws at random all rows, at one snapshot. What it finds is kept in the
//! catalogue, as a JSON document in pieces. It is for callers that choose between ways to read a
//! table; nothing here rests on it.

mod analyze;
mod estimate;
mod table_statistics;

pub use analyze::AnalyzeOptions;
pub use table_statistics::{ColumnStatistics, CommonValue, TableStatistics};
