//! Damaged bytes of a log are found, and read from another copy.

use selkie_engine::change_together;
use selkie_engine::log::LogTo;
use selkie_fabric::{Buf, Fabric, PeerId, RemoteAddr, Verb};
use selkie_pool::ComputeIndex;

use super::cluster::{logged, logged_with, read, recovered, write};
use crate::common::page;

/// The record that tells of the damage begins behind a long one, anywhere about the end of what is
/// read at a time.
#[test]
fn what_tells_of_damage_may_lie_far_behind_it() {
    const READ_AT_ONCE: u64 = 64 << 10;
    for short in 0..6 {
        let cluster = logged_with(2, LogTo::Memory, "plain", 512 << 10);
        let [one, two] = &cluster.engines[..] else { panic!("two nodes") };
        cluster.runtime.block_on(async {
            let mut addrs = Vec::new();
            for _ in 0..150 {
                addrs.push(page(one).await);
            }
            // Changes so many bytes of each of some pages; where the record ends.
            let change = async |bytes: &[usize]| {
                let mut guards = Vec::new();
                for (addr, bytes) in addrs.iter().zip(bytes) {
                    let mut page = two.exclusive(*addr).await.unwrap();
                    page.bytes_mut(0..*bytes).fill(7);
                    guards.push(page);
                }
                let lsn = change_together(guards.iter_mut()).unwrap();
                drop(guards);
                two.until_durable(lsn).await.unwrap();
                lsn
            };
            let ends = [change(&[8]).await, change(&[8]).await, change(&[8, 8]).await];
            let (one_page, two_pages) = (ends[1] - ends[0], ends[2] - ends[1]);
            // All take as much as these, and of some more is changed.
            let least = one_page + (addrs.len() as u64 - 1) * (two_pages - one_page);
            let length = READ_AT_ONCE - 8 * short;
            let mut more = (length - least) as usize;
            let bytes = addrs.iter().map(|_| {
                let some = more.min(480);
                more -= some;
                8 + some
            });
            let bytes: Vec<usize> = bytes.collect();
            let begins = ends[2];
            assert_eq!(change(&bytes).await - begins, length);
            change(&bytes).await;
            cluster.fabric.kill(PeerId::compute(1));
            let at = cluster.pool.descriptor().geometry().log_offset(1) + 4096;
            let rogue = cluster.fabric.join(PeerId::compute(9)).unwrap();
            for memory in &cluster.pool.descriptor().memory_nodes {
                let queue_pair = rogue.connect(memory.peer).unwrap();
                let place = RemoteAddr::new(memory.region, at + begins + 64);
                let junk = Verb::write(place, Buf::copy_of(&[0xEE; 8]));
                queue_pair.post(junk.into()).await.unwrap();
            }
            cluster.pool.declare_dead(ComputeIndex::new(1)).await.unwrap();
            recovered(one, &cluster.pool).await;
            let lost = cluster.pool.lost_pages().len();
            assert_eq!(lost, addrs.len(), "{short} words before the end");
            one.close().await.unwrap();
        });
    }
}

/// One copy of a log that is damaged is as good as the other one up to there; if both are, what was
/// durable is missed, and said to be.
#[test]
fn a_damaged_copy_of_a_log_in_memory_does_not_matter_while_there_is_another() {
    for damaged in [1, 2] {
        let cluster = logged(2, LogTo::Memory, "2+1");
        let [one, two] = &cluster.engines[..] else { panic!("two nodes") };
        cluster.runtime.block_on(async {
            let mut addrs = Vec::new();
            for _ in 0..40 {
                addrs.push(page(one).await);
            }
            let mut lsn = 0;
            for addr in &addrs {
                write(two, *addr, 8).await;
                // What comes later says that it was.
                lsn = two.shared(*addr).await.unwrap().lsn();
                two.until_durable(lsn).await.unwrap();
            }
            cluster.fabric.kill(PeerId::compute(1));
            let at = cluster.pool.descriptor().geometry().log_offset(1);
            let rogue = cluster.fabric.join(PeerId::compute(9)).unwrap();
            let mut copies = 0;
            for memory in &cluster.pool.descriptor().memory_nodes {
                let queue_pair = rogue.connect(memory.peer).unwrap();
                let place = |offset| RemoteAddr::new(memory.region, at + offset);
                let head = queue_pair.post(Verb::read(place(0), Buf::zeroed(8)).into()).await;
                if head.unwrap().buf(0).unwrap().iter().all(|byte| *byte == 0) {
                    continue;
                }
                copies += 1;
                if copies <= damaged {
                    let middle = 4096 + lsn / 2 / 8 * 8;
                    let junk = Verb::write(place(middle), Buf::copy_of(&[0xEE; 8]));
                    queue_pair.post(junk.into()).await.unwrap();
                }
            }
            assert_eq!(copies, 2);
            cluster.pool.declare_dead(ComputeIndex::new(1)).await.unwrap();
            recovered(one, &cluster.pool).await;
            let lost = cluster.pool.lost_pages().len();
            assert_eq!(lost, if damaged == 1 { 0 } else { addrs.len() });
            for addr in addrs.iter().filter(|_| damaged == 1) {
                assert_eq!(read(one, *addr).await, 8);
            }
            one.close().await.unwrap();
        });
    }
}
