//! `selkie doctor`: whether this host is fit for pools, and what to do where it is not.

mod checks;
mod command;
mod host;

pub(crate) use command::{Arguments, run};
