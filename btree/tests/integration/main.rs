//! Trees on one node, and on several at once.

mod ahead;
mod building_blocks;
mod bulk;
mod common;
mod many_nodes;
mod merging;
mod one_node;
