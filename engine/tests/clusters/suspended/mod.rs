//! A node that cannot show that it lives: hits wait, then resume or fail, and none is stale. In
//! virtual time.

mod cut_off;
mod plane_away;
mod reader;
mod suspected;
