//! The file system of a control plane in files is full: nodes go on showing that they live, and
//! none is expelled; the pool changes again once there is room.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that meets something else has failed")]

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use selkie_engine::GAddr;
use selkie_fabric::Fabric;
use selkie_fabric::env::RealRuntime;
use selkie_fabric::mem::MemFabric;
use selkie_pool::ComputeIndex;
use selkie_pool::control::{Change, ControlError, ControlPlane, FilePlane};

use crate::common::processes::{Carded, Processes, value, write};
use crate::common::{engine_config, page, pool_config};

/// Set in the process that has a small file system; where that is.
const SMALL: &str = "SELKIE_TEST_SMALL_FILE_SYSTEM";
const LEASE: Duration = Duration::from_secs(1);

#[test]
fn no_node_is_expelled_while_the_file_system_of_the_plane_is_full() {
    if let Some(directory) = std::env::var_os(SMALL) {
        return fill(Path::new(&directory));
    }
    let directory = tempfile::TempDir::new().unwrap();
    let own = std::env::current_exe().unwrap();
    let in_small = |program: &str| {
        let script = format!("mount -t tmpfs -o size=512k none \"${SMALL}\" && exec {program}");
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", &script]);
        command.env(SMALL, directory.path()).output()
    };
    if !in_small("true").is_ok_and(|output| output.status.success()) {
        println!("not tested: nothing may be mounted here, not even in a namespace");
        return;
    }
    let name = "full_plane::no_node_is_expelled_while_the_file_system_of_the_plane_is_full";
    let output = in_small(&format!("{} --exact {name} --nocapture", own.display())).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
}

fn fill(directory: &Path) {
    let runtime = RealRuntime::new(2).unwrap();
    let env = runtime.env();
    runtime.block_on(async {
        let place = directory.join("pool");
        let plane: Arc<dyn ControlPlane> = Arc::new(FilePlane::at(&place));
        let network = MemFabric::new();
        let fabric = || -> Arc<dyn Fabric> { Arc::new(Carded(Arc::clone(&network) as _)) };
        let shape = (pool_config(2, 8 << 20), &engine_config());
        let processes = Processes::start_on(&env, &plane, shape, LEASE, fabric).await;
        let [one, two] = &processes.engines;
        let mut pages: Vec<GAddr> = Vec::new();
        for _ in 0..20 {
            pages.push(page(one).await);
        }
        env.sleep(LEASE).await;
        let filler = directory.join("filler");
        let mut file = OpenOptions::new().create_new(true).append(true).open(&filler).unwrap();
        for bytes in [4096, 1] {
            while file.write_all(&vec![7; bytes]).is_ok() {}
        }
        assert_eq!(file.write_all(b"7").unwrap_err().kind(), ErrorKind::StorageFull);
        let (full_since, found) = (env.now(), plane.load().await.unwrap());
        let mut number = 0;
        while env.now() - full_since < 4 * LEASE {
            number += 1;
            for addr in &pages {
                write(one, *addr, number).await;
                assert_eq!(value(two, *addr).await.unwrap(), number);
                one.until_durable(0).await.unwrap();
                two.until_durable(0).await.unwrap();
            }
            env.sleep(LEASE / 50).await;
        }
        // They have shown that they live all the while.
        for (beat, age) in plane.beats().await.unwrap() {
            assert!(age < LEASE, "{}: {age:?}", beat.node);
        }
        let pool = &processes.pools[0];
        assert!((0..2).all(|node| pool.is_member(ComputeIndex::new(node))));
        assert!((0..2).all(|node| !pool.is_memory_dead(node) && !pool.is_memory_suspected(node)));
        // Nothing of it can be changed, and attempts leave nothing behind.
        let files = || {
            let names = fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
            names.sort_unstable();
            names
        };
        for _ in 0..3 {
            let now = plane.load().await.unwrap();
            assert_eq!(now.version, found.version, "no change was made");
            let state = (*now.state).clone();
            let refused = plane.replace_as(Change::random(), now.version, state).await;
            assert!(matches!(refused, Err(ControlError::Unavailable { .. })), "{refused:?}");
            assert_eq!(files(), ["beats", "state.json", "state.lock"]);
        }
        drop(file);
        fs::remove_file(&filler).unwrap();
        let third = processes.start_third(&env).await;
        assert_eq!(value(&third, *pages.first().unwrap()).await.unwrap(), number);
        third.close().await.unwrap();
        processes.close().await;
    });
}
