//! Calls of the functions of advisory locks.

use super::Expr;

/// A call of such a function, as a row of its value.
#[derive(Clone, Debug)]
pub(crate) struct AdvisoryCall {
    pub(crate) function: AdvisoryFunction,
    /// A number of 64 bits, or two of 32, over no input row, as it is below a
    /// [`Plan::Apply`](super::Plan::Apply): columns are those of outer rows.
    pub(crate) arguments: Vec<Expr>,
}

/// A function of advisory locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdvisoryFunction {
    Lock {
        is_shared: bool,
        /// Else it says whether it has the lock.
        waits: bool,
        /// Whether the lock is given back when the transaction ends.
        is_of_transaction: bool,
    },
    Unlock {
        is_shared: bool,
    },
    UnlockAll,
}

impl AdvisoryFunction {
    /// The function of a name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("pg_")?;
        let (rest, waits) = rest.strip_prefix("try_").map_or((rest, true), |rest| (rest, false));
        let rest = rest.strip_prefix("advisory_")?;
        let (rest, is_of_transaction) =
            rest.strip_prefix("xact_").map_or((rest, false), |rest| (rest, true));
        let (rest, is_shared) =
            rest.strip_suffix("_shared").map_or((rest, false), |rest| (rest, true));
        Some(match rest {
            "lock" => Self::Lock { is_shared, waits, is_of_transaction },
            "unlock" if waits && !is_of_transaction => Self::Unlock { is_shared },
            "unlock_all" if waits && !is_of_transaction && !is_shared => Self::UnlockAll,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::AdvisoryFunction::{self, Lock, Unlock, UnlockAll};

    #[test]
    fn functions_are_known_by_their_names() {
        let lock = |is_shared, waits, is_of_transaction| {
            Some(Lock { is_shared, waits, is_of_transaction })
        };
        for (name, function) in [
            ("pg_advisory_lock", lock(false, true, false)),
            ("pg_advisory_xact_lock", lock(false, true, true)),
            ("pg_try_advisory_lock_shared", lock(true, false, false)),
            ("pg_try_advisory_xact_lock_shared", lock(true, false, true)),
            ("pg_advisory_unlock", Some(Unlock { is_shared: false })),
            ("pg_advisory_unlock_shared", Some(Unlock { is_shared: true })),
            ("pg_advisory_unlock_all", Some(UnlockAll)),
            ("pg_try_advisory_unlock", None),
            ("pg_advisory_xact_unlock", None),
            ("pg_advisory_unlock_all_shared", None),
            ("advisory_lock", None),
            ("pg_lock", None),
        ] {
            assert_eq!(AdvisoryFunction::named(name), function, "{name}");
        }
    }
}
