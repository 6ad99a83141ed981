//! Selkie: a multi-primary storage engine over disaggregated memory.
