//! `selkie figures`: the experiments of the papers, measured again in virtual time.
//!
//! Contents: `figure` (names), `catalogue` (for each figure its points, claims and tables),
//! `sweeps` (one module for each figure), `work` (what is run for a point), `point`, `measure`
//! (runs points on all cores), `table` (what is written of a figure), `plot` (SVG), `page` (CSV and
//! Markdown).

mod catalogue;
mod command;
mod figure;
mod measure;
mod page;
pub(crate) mod plot;
mod point;
mod sweeps;
pub(crate) mod table;
mod work;

pub(crate) use command::{Arguments, run};
