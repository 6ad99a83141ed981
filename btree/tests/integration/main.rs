//! Trees on one node, and on several at once.

mod ahead;
mod building_blocks;
mod common;
mod many_nodes;
mod one_node;
