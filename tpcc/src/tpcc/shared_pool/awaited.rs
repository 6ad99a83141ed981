//! What a driver waits for, in words, and what would help: the lines of its waits are made of them.

/// What a driver waits for, and what would help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AwaitedDriver {
    pub(super) what: &'static str,
    pub(super) helps: &'static str,
}

/// The one whose label it is, and that could not be set as others change it.
pub(super) const ANOTHER: AwaitedDriver = AwaitedDriver {
    what: "another driver",
    helps: "`selkie pool status` shows who is in the pool",
};
pub(super) const LOADER: AwaitedDriver = AwaitedDriver {
    what: "another driver, which loads the database",
    helps: "if that hangs, end it, and load with --reload",
};
pub(super) const REPLACER: AwaitedDriver = AwaitedDriver {
    what: "another driver, which is about to replace the database",
    helps: "if that hangs, end it: this one then goes on with what is there",
};
pub(super) const SILENT: AwaitedDriver = AwaitedDriver {
    what: "a sign of life of another driver that had the database open",
    helps: "if that is gone, this ends with its lease",
};

/// What a driver is waited for to end.
pub(super) const CHANGE: AwaitedDriver = AwaitedDriver {
    what: "its change of the phases",
    helps: "`selkie pool status` shows who is in the pool",
};
pub(super) const CHECK: AwaitedDriver = AwaitedDriver {
    what: "the check",
    helps: "a run changes what is checked; a signal to that driver ends it without a result",
};
pub(super) const RUN: AwaitedDriver = AwaitedDriver {
    what: "the run: a check needs the database at rest",
    helps: "a signal to that driver ends its run, and one to this driver ends it without a check",
};

/// So many drivers, where none that is known of may still be in the way.
pub(super) fn others(drivers: usize) -> String {
    match drivers {
        0 | 1 => "another driver".to_owned(),
        more => format!("{more} other drivers"),
    }
}
