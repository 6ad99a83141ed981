//! Coherence: the latch word, the state machine of a line, and its model check.
//!
//! `machine`, `word` and `model` are pure. A line is opened for a step (`open_line`, `opening`),
//! and an event is fed to its machine (`driving`). The actions that follow post latch operations
//! (`operations`, `chains`), whose completions are events again (`completion`), and send messages
//! (`exchange`, `message`, `messenger`); those of other nodes come by `mail`. `turns` says when a
//! line that is used here may go to another node.

pub(crate) mod chains;
mod completion;
mod driving;
mod exchange;
pub mod machine;
pub(crate) mod mail;
pub(crate) mod message;
pub(crate) mod messenger;
pub(crate) mod open_line;
mod opening;
mod operations;
mod turns;
pub mod word;

#[cfg(test)]
mod model;
#[cfg(test)]
mod table;
