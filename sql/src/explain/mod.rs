//! EXPLAIN: plans as PostgreSQL shows them, a line a node, with what each of them did.

mod expr_text;
mod measured;
mod node_text;

pub(crate) use measured::measured;
pub(crate) use node_text::{Counted, lines};
