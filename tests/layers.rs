//! Which crate may depend on which: no cycles, no upward edges.

use std::collections::HashMap;

use cargo_metadata::{DependencyKind, MetadataCommand};

/// The packages that each package may depend on.
const LAYERS: &[(&str, &[&str])] = &[
    ("selkie-fabric", &[]),
    ("selkie-channels", &["selkie-fabric"]),
    ("selkie-erasure", &[]),
    ("selkie-pool", &["selkie-fabric", "selkie-channels"]),
    ("selkie-memnode", &["selkie-fabric", "selkie-channels", "selkie-pool"]),
    ("selkie-wal", &["selkie-fabric", "selkie-channels", "selkie-pool"]),
    (
        "selkie-engine",
        &["selkie-fabric", "selkie-channels", "selkie-erasure", "selkie-pool", "selkie-wal"],
    ),
    (
        "selkie-btree",
        &[
            "selkie-fabric",
            "selkie-channels",
            "selkie-erasure",
            "selkie-pool",
            "selkie-wal",
            "selkie-engine",
        ],
    ),
    (
        "selkie-txn",
        &[
            "selkie-fabric",
            "selkie-channels",
            "selkie-erasure",
            "selkie-pool",
            "selkie-wal",
            "selkie-engine",
            "selkie-btree",
        ],
    ),
    ("selkie-sql", &["selkie-fabric", "selkie-txn"]),
    ("selkie-server", &["selkie-fabric", "selkie-txn", "selkie-sql"]),
    (
        "selkie-tpcc",
        &[
            "selkie-fabric",
            "selkie-channels",
            "selkie-erasure",
            "selkie-pool",
            "selkie-memnode",
            "selkie-wal",
            "selkie-engine",
            "selkie-btree",
            "selkie-txn",
        ],
    ),
    (
        "selkie-sim",
        &[
            "selkie-fabric",
            "selkie-channels",
            "selkie-erasure",
            "selkie-pool",
            "selkie-memnode",
            "selkie-wal",
            "selkie-engine",
            "selkie-btree",
            "selkie-txn",
            "selkie-tpcc",
        ],
    ),
    (
        "selkie",
        &[
            "selkie-fabric",
            "selkie-channels",
            "selkie-pool",
            "selkie-memnode",
            "selkie-engine",
            "selkie-btree",
            "selkie-txn",
            "selkie-sql",
        ],
    ),
    ("selkie-capi", &["selkie"]),
    ("selkie-cli", &["selkie", "selkie-server", "selkie-sim", "selkie-sql", "selkie-tpcc"]),
];

/// Packages that may read the clock themselves: they stand above the simulated environment.
/// The server has sockets and a runtime of its own.
const ABOVE_THE_ENVIRONMENT: [&str; 3] = ["selkie", "selkie-cli", "selkie-server"];

#[test]
fn crates_depend_downwards_only() {
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();
    let allowed: HashMap<&str, &[&str]> = LAYERS.iter().copied().collect();
    let mut seen = 0;
    for package in &metadata.packages {
        let name = package.name.as_str();
        let allowed = allowed.get(name).unwrap_or_else(|| panic!("{name} has no layer: add it"));
        seen += 1;
        for dependency in &package.dependencies {
            let own = dependency.name.starts_with("selkie");
            // Tests may look at everything below the top.
            if own && dependency.kind == DependencyKind::Normal {
                assert!(
                    allowed.contains(&dependency.name.as_str()),
                    "{name} must not depend on {}",
                    dependency.name
                );
            }
            // Who wants tables only takes no SQL.
            if name == "selkie" && dependency.name == "selkie-sql" {
                assert!(dependency.optional, "SQL is a feature of the facade");
            }
        }
        if name == "selkie" {
            continue;
        }
        let folder = package.manifest_path.parent().and_then(|p| p.file_name()).unwrap();
        assert_eq!(name, format!("selkie-{folder}"), "packages are named after their folder");
    }
    assert_eq!(seen, LAYERS.len(), "every layer exists");
}

/// Folders that may look at the clock: the environment, and what stands between processes, whose
/// time is the hosts' own.
const KEEPERS_OF_TIME: [&str; 5] = ["env", "shm", "tcp", "control", "objects"];

#[test]
fn only_the_environment_calls_the_runtime_or_reads_the_clock() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut checked = 0;
    let below = |package: &&str| !ABOVE_THE_ENVIRONMENT.contains(package);
    for package in LAYERS.iter().map(|(package, _)| *package).filter(below) {
        let folder = root.join(package.trim_start_matches("selkie-")).join("src");
        let mut pending = vec![folder];
        while let Some(path) = pending.pop() {
            if path.is_dir() {
                pending.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
                continue;
            }
            let part = |c: std::path::Component<'_>| c.as_os_str().to_string_lossy().into_owned();
            if path.components().map(part).any(|c| KEEPERS_OF_TIME.contains(&c.as_str())) {
                continue;
            }
            checked += 1;
            let text = std::fs::read_to_string(&path).unwrap();
            for forbidden in ["tokio::", "Instant::now", "SystemTime::now", "thread::sleep"] {
                let product = text.split("#[cfg(test)]").next().unwrap_or_default();
                assert!(!product.contains(forbidden), "{}: {forbidden}", path.display());
            }
        }
    }
    assert!(checked > 20, "only {checked} files were looked at");
}
