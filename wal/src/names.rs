//! Names that files and objects of a log share.

/// Of files and objects with records.
pub(crate) const SUFFIX: &str = "slog";
/// Says where a log ends.
pub(crate) const ENDED: &str = "ended";
/// The pool's labels, beside its logs.
pub(crate) const LABELS: &str = "labels.json";
