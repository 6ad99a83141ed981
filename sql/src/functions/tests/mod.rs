//! What functions give, against what PostgreSQL 15 gives.

mod aggregates;
mod basics;
