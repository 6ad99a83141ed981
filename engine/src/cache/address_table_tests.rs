//! Tests of the address table by one thread; the interleavings of several are searched in
//! `tests/loom`.

use std::collections::HashMap;

use super::address_table::AddressTable;
use super::frame::FrameId;
use super::frames::Frames;
use crate::GAddr;

#[test]
fn agrees_with_a_map_over_long_random_churn() {
    const FRAMES: usize = 2048;
    let frames = Frames::new(FRAMES, 512, 0);
    let table = AddressTable::new(FRAMES, 512);
    let mut oracle: HashMap<u64, FrameId> = HashMap::new();
    let mut random = 0x1234_5678_u64;
    for step in 0..200_000u64 {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let addr = ((random >> 33) % 4096 + 1) * 512;
        if let Some(id) = oracle.remove(&addr) {
            table.remove(&frames, GAddr::from_u64(addr), id);
            frames.get(id).set_addr(GAddr::NULL);
            frames.give_back(id);
        } else if let Some(id) = frames.take_free() {
            frames.get(id).set_addr(GAddr::from_u64(addr));
            assert!(table.insert(GAddr::from_u64(addr), id));
            oracle.insert(addr, id);
        }
        let probe = GAddr::from_u64((step % 4096 + 1) * 512);
        assert_eq!(table.lookup(&frames, probe), oracle.get(&probe.to_u64()).copied());
    }
    for addr in (1..=4096u64).map(|i| i * 512) {
        let found = table.lookup(&frames, GAddr::from_u64(addr));
        assert_eq!(found, oracle.get(&addr).copied());
    }
}

#[test]
fn sequential_addresses_spread_over_all_shards() {
    let table = AddressTable::new(1 << 17, 2048);
    let mut load = vec![0usize; table.shards()];
    for line in 0..1u64 << 17 {
        load[table.shard_of(GAddr::from_u64(line * 2048))] += 1;
    }
    let mean = (1 << 17) / table.shards();
    assert!(load.iter().all(|l| *l < mean * 3 / 2), "{load:?}");
}
