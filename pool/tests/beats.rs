//! Beats of a control plane in files.
#![expect(clippy::unwrap_used, reason = "test code")]
#![cfg(target_os = "linux")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use selkie_fabric::{PeerId, RealRuntime};
use selkie_pool::control::{Beat, ControlPlane, FilePlane, Identity, Timing};
use selkie_pool::{Coding, PoolConfig};
use tempfile::TempDir;

const CONFIG: PoolConfig = PoolConfig {
    memory_nodes: 2,
    bytes_per_node: 2 << 20,
    gcl_bytes: 512,
    range_bytes: 1 << 19,
    max_compute_nodes: 4,
    coding: Coding::PLAIN,
    log_bytes: 0,
};

fn block_on<F: Future>(future: F) -> F::Output {
    RealRuntime::new(1).unwrap().block_on(future)
}

/// A plane with a pool.
fn plane_in(directory: &TempDir) -> FilePlane {
    let plane = FilePlane::at(directory.path());
    let identity = Identity { name: "test", id: 1, fabric: "mem" };
    block_on(selkie_pool::create(&plane, identity, &CONFIG, Timing::default())).unwrap();
    plane
}

fn beat_of(node: u16, seen: u64, report: String) -> Beat {
    Beat { node: PeerId::compute(node), host: 9, seen, report }
}

/// It made all of them unreadable: no node could be told from a dead one.
#[test]
fn a_beat_that_is_damaged_hides_no_other() {
    let directory = TempDir::new().unwrap();
    let plane = plane_in(&directory);
    for node in 0..3 {
        block_on(plane.beat(beat_of(node, 5, "report".repeat(200)))).unwrap();
    }
    let path = |file: usize| {
        directory.path().join("beats").join(format!("{}.{file}.json", PeerId::compute(1)))
    };
    let good = std::fs::read(path(0)).unwrap();
    let nodes = || {
        let beats = block_on(plane.beats()).unwrap();
        let mut nodes: Vec<_> = beats.iter().map(|(beat, _)| beat.node.index()).collect();
        nodes.sort_unstable();
        nodes
    };
    let mut flipped = good.clone();
    flipped[100] ^= 1;
    for bad in [&good[..200], b"", b"{}", &flipped, &b"zzzzzzzzzzzzzzzz"[..], &[0; 64]] {
        std::fs::write(path(0), bad).unwrap();
        assert_eq!(nodes(), [0, 2]);
    }
    // The next beat of the node is in its other file, and the next but one is written over this.
    for seen in [6, 7, 8] {
        block_on(plane.beat(beat_of(1, seen, String::new()))).unwrap();
        let beats = block_on(plane.beats()).unwrap();
        assert_eq!(beats.len(), 3);
        assert!(beats.iter().any(|(beat, _)| (beat.node, beat.seen) == (PeerId::compute(1), seen)));
    }
    // A beat that is written half leaves the one before it.
    std::fs::write(path(1), &good[..100]).unwrap();
    let beats = block_on(plane.beats()).unwrap();
    assert!(beats.iter().any(|(beat, _)| (beat.node, beat.seen) == (PeerId::compute(1), 7)));
    // Nor does what cannot be read at all hide others.
    for file in 0..2 {
        std::fs::remove_file(path(file)).unwrap();
        std::fs::create_dir(path(file)).unwrap();
    }
    assert_eq!(nodes(), [0, 2]);
}

/// Beats are written in place, so a reader may meet one half-way.
#[test]
fn a_beat_is_read_whole_while_it_is_written() {
    let directory = TempDir::new().unwrap();
    let plane = plane_in(&directory);
    let beat = |number: u64| {
        beat_of(0, number, format!("{number} ").repeat(1 + number as usize * 37 % 900))
    };
    block_on(plane.beat(beat(0))).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..3_000 {
                block_on(plane.beat(beat(number))).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        let (mut last, mut reads) = (0, 0);
        while !done.load(Ordering::Relaxed) || last < 2_999 {
            let beats = block_on(plane.beats()).unwrap();
            let [(now, age)] = &beats[..] else { panic!("{beats:?}") };
            assert_eq!(*now, beat(now.seen));
            assert!(now.seen >= last && *age < Duration::from_secs(60), "{age:?}");
            (last, reads) = (now.seen, reads + 1);
        }
        assert!(reads > 100, "{reads}");
    });
}
