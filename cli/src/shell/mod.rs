//! The SQL shell, `selkie sql`: statements and commands that begin with a backslash, as psql has
//! them.
//!
//! [`session`](run) reads pieces of text and runs them. What a piece is, is found by
//! [`statements`]; where the text comes from, by [`input`], which on a terminal asks the editor
//! ([`editor`], with [`complete`], [`highlight`] and [`history`]). Statements give their rows to
//! [`output`], which shows them by [`table`] or in lines for programs. [`meta`] reads commands, and
//! [`commands`] runs them; [`describe`] and [`listing`] ask `pg_catalog` as psql does.
//! [`backend`] is what statements are run by: a session of this process on a pool, or one at a
//! server, of whose [`connection`] the shell takes care.

mod arguments;
mod backend;
mod busy;
mod commands;
mod complete;
mod connection;
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
mod watch;
mod words;

pub(crate) use backend::Backend;
pub(crate) use error::ShellError;
pub(crate) use history::HistoryChoice;
pub(crate) use run::{Flow, Shell, ShellOptions};
pub(crate) use view::Format;
