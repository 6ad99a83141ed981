//! What a node counts about itself: operations, for whom, hot lines, contention, activity of
//! ranges.

pub(crate) mod account;
pub(crate) mod activity;
pub(crate) mod activity_reporting;
pub(crate) mod contention;
pub(crate) mod counting;
pub(crate) mod hottest;
pub(crate) mod roster;
pub(crate) mod stats;
