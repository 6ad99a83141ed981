//! Checkers: what a history of operations or transactions must look like.
