//! Telling somebody how far a long stage is.

/// Is told of the stages of a run: `load`, `run`, `check`. One stage at a time.
pub trait Progress: Send + Sync {
    /// A stage of `total` steps begins.
    fn begin(&self, stage: &'static str, total: u64);
    /// So many more steps are done.
    fn advance(&self, steps: u64);
    /// The stage is over.
    fn end(&self);
    /// Something worth a line of its own.
    fn note(&self, line: &str);
}

/// Tells nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _stage: &'static str, _total: u64) {}
    fn advance(&self, _steps: u64) {}
    fn end(&self) {}
    fn note(&self, _line: &str) {}
}
