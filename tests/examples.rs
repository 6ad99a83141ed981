//! Runs the examples.

/// Has a test run an example.
macro_rules! runs {
    ($name:ident, $path:literal) => {
        #[path = $path]
        mod $name;

        #[test]
        fn $name() {
            $name::main().unwrap();
        }
    };
}

runs!(embed, "../examples/embed.rs");
runs!(shared_pool, "../examples/shared_pool.rs");
runs!(crash_and_recovery, "../examples/crash_and_recovery.rs");
runs!(backup, "../examples/backup.rs");
#[cfg(feature = "sql")]
runs!(sql, "../examples/sql.rs");
#[cfg(feature = "sql")]
runs!(line_server, "../examples/line_server.rs");
