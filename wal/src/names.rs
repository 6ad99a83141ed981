//! Names that logs in files and logs in objects share.

/// Extension of files and objects with records.
pub(crate) const SUFFIX: &str = "slog";
/// Name of the file or object that says where a log ends.
pub(crate) const ENDED: &str = "ended";
/// Name of the file or object with the pool's labels, beside its logs.
pub(crate) const LABELS: &str = "labels.json";
