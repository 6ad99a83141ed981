//! The `selkie` command line.
fn main() {}
