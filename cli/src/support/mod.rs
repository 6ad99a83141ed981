//! What commands stand on: configuration files, exit codes, listeners, the log, metrics, progress,
//! signals, certificates, stdout, stderr.

pub(crate) mod activity;
pub(crate) mod certificates;
pub(crate) mod config_file;
pub(crate) mod exit;
pub(crate) mod listener;
pub(crate) mod log;
pub(crate) mod metrics;
pub(crate) mod population;
pub(crate) mod progress;
pub(crate) mod server_metrics;
pub(crate) mod signals;
pub(crate) mod stderr;
pub(crate) mod stdout;
pub(crate) mod waiting;
