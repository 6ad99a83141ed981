//! The SQL shell, `selkie sql`: statements and commands that begin with a backslash, as psql has
//! them.
//!
//! [`session`](run) reads pieces of text and runs them. What a piece is, is found by
//! [`statements`]; where the text comes from, by [`input`], which on a terminal asks the editor
//! ([`editor`], with [`complete`], [`highlight`] and [`history`]). Statements give their rows to
//! [`output`], which shows them by [`table`] or in lines for programs. [`meta`] reads commands, and
//! [`commands`] runs them; [`describe`] and [`listing`] ask `pg_catalog` as psql does.

mod arguments;
mod busy;
mod commands;
mod complete;
mod copy;
mod describe;
mod editor;
mod error;
mod explain;
mod help;
mod highlight;
mod history;
mod input;
mod keywords;
mod listing;
mod meta;
mod output;
mod run;
mod sink;
mod statements;
mod table;
mod view;
mod words;

pub(crate) use error::ShellError;
pub(crate) use history::HistoryChoice;
pub(crate) use run::{Flow, Shell, ShellOptions};
pub(crate) use view::Format;
