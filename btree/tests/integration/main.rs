//! Trees on one node, and on several at once.

mod common;
mod many_nodes;
mod one_node;
