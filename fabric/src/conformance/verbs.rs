//! Checks of each verb by itself, and of regions.

use super::check::{Check, CheckFailure, CheckResult, CheckSubject};
use super::testbed::{REGION_BYTES, Testbed, equal, filled, word_read, write_word};
use crate::buf::Buf;
use crate::id::RemoteAddr;
use crate::verb::{Chain, Verb};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "regions are zero and page-sized", run: |s| Box::pin(fresh_regions(s)) },
    Check { name: "read fetches what the owner wrote", run: |s| Box::pin(read(s)) },
    Check { name: "write changes its bytes and no others", run: |s| Box::pin(write(s)) },
    Check { name: "compare-and-swap swaps on equality only", run: |s| Box::pin(swap(s)) },
    Check { name: "fetch-and-add returns the old value and wraps", run: |s| Box::pin(add(s)) },
    Check { name: "an empty chain and an empty payload complete", run: |s| Box::pin(empty(s)) },
    Check { name: "a chain may be longer than its inline room", run: |s| Box::pin(long_chain(s)) },
    Check { name: "try_take gives the outcome once", run: |s| Box::pin(try_take(s)) },
    Check { name: "a dropped completion's chain executes", run: |s| Box::pin(dropped(s)) },
    Check { name: "a node can connect to itself", run: |s| Box::pin(self_access(s)) },
    Check { name: "discarded bytes are zero, and no others", run: |s| Box::pin(discard(s)) },
    Check { name: "regions of one node are apart", run: |s| Box::pin(two_regions(s)) },
];

async fn fresh_regions(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    let region = testbed.memory.register(5000)?;
    equal("length rounded up", region.len(), 8192)?;
    let at = RemoteAddr::new(region.key(), 0);
    let chain = testbed.post([Verb::read(at, filled(1024, u64::MAX))]).await?;
    let zeros = chain.buf(0).is_some_and(|buf| buf.len() == 8192 && buf.iter().all(|b| *b == 0));
    equal("a fresh region reads as zeros", zeros, true)
}

async fn discard(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    // Pages, parts of pages, less than a page, nothing.
    for bytes in [4096..16384, 4000..12480, 8192..8256, 4104..4096 * 2, 512..512] {
        let mut expected = vec![0xee; REGION_BYTES];
        testbed.region.write(0, &expected);
        testbed.region.discard(bytes.clone());
        expected.get_mut(bytes.clone()).ok_or_else(|| CheckFailure::new("range"))?.fill(0);
        let mut found = vec![0; REGION_BYTES];
        testbed.region.read(0, &mut found);
        let first = found.iter().zip(&expected).position(|(one, other)| one != other);
        equal(&format!("first wrong byte after {bytes:?}, at the owner"), first, None)?;
        let chain = testbed.post([Verb::read(testbed.at(0), filled(REGION_BYTES / 8, 1))]).await?;
        let found = chain.buf(0).map(|buf| buf.to_vec()).unwrap_or_default();
        let first = found.iter().zip(&expected).position(|(one, other)| one != other);
        equal(&format!("first wrong byte after {bytes:?}, at a peer"), first, None)?;
        // It can be used as before.
        testbed.region.restore(bytes.clone())?;
        let at = bytes.start as u64;
        testbed.post([Verb::write(testbed.at(at), Buf::copy_of(&[7; 8]))]).await?;
        testbed.settle().await?;
        equal("a word written after it", testbed.region.load(bytes.start), 0x0707_0707_0707_0707)?;
    }
    Ok(())
}

async fn read(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    let bytes: Vec<u8> = (0..2048_u32).map(|index| (index * 7 % 251) as u8).collect();
    testbed.region.write(4096, &bytes);
    testbed.region.store(8, 42);
    let verbs = [
        Verb::read(testbed.at(4096), Buf::zeroed(2048)),
        Verb::read(testbed.at(8), Buf::zeroed(8)),
        Verb::read(testbed.at(4104), Buf::zeroed(16)),
    ];
    let chain = testbed.post(verbs).await?;
    equal("a page", chain.buf(0).map(|buf| buf.to_vec()), Some(bytes.clone()))?;
    equal("a word", word_read(&chain, 1)?, 42)?;
    equal("two words inside", chain.buf(2).map(|buf| buf.to_vec()), bytes.get(8..24).map(Vec::from))
}

async fn write(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    let last = (REGION_BYTES - 2048) as u64;
    for (offset, bytes) in [(64, 8_usize), (64, 16), (512, 2048), (last, 2048)] {
        testbed.region.write(0, &vec![0xee; REGION_BYTES]);
        let payload: Vec<u8> = (0..bytes).map(|index| (index % 13) as u8).collect();
        testbed.post([Verb::write(testbed.at(offset), Buf::copy_of(&payload))]).await?;
        testbed.settle().await?;
        let mut expected = vec![0xee; REGION_BYTES];
        let range = offset as usize..offset as usize + bytes;
        let target = expected.get_mut(range).ok_or_else(|| CheckFailure::new("range"))?;
        target.copy_from_slice(&payload);
        let mut found = vec![0; REGION_BYTES];
        testbed.region.read(0, &mut found);
        let first = found.iter().zip(&expected).position(|(one, other)| one != other);
        equal(&format!("first wrong byte after {bytes} bytes at {offset}"), first, None)?;
    }
    Ok(())
}

async fn swap(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    testbed.region.store(16, 5);
    let chain = testbed.post([Verb::compare_and_swap(testbed.at(16), 4, 9)]).await?;
    equal("old value of a failed swap", chain.old(0), Some(5))?;
    equal("memory after a failed swap", testbed.region.load(16), 5)?;
    let chain = testbed.post([Verb::compare_and_swap(testbed.at(16), 5, u64::MAX)]).await?;
    equal("old value of a swap", chain.old(0), Some(5))?;
    equal("memory after a swap", testbed.region.load(16), u64::MAX)
}

async fn add(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    testbed.region.store(24, u64::MAX - 1);
    for (delta, old, new) in [(3, u64::MAX - 1, 1), (1_u64.wrapping_neg(), 1, 0)] {
        let chain = testbed.post([Verb::fetch_and_add(testbed.at(24), delta)]).await?;
        equal("old value", chain.old(0), Some(old))?;
        equal("memory after adding", testbed.region.load(24), new)?;
    }
    Ok(())
}

async fn empty(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    equal("verbs of an empty chain", testbed.post(Chain::new()).await?.verbs.len(), 0)?;
    let nothing = Verb::read(testbed.at(REGION_BYTES as u64), Buf::default());
    let chain = testbed.post([nothing]).await?;
    equal("payload of an empty read", chain.buf(0).map(|buf| buf.len()), Some(0))
}

async fn long_chain(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    let mut chain = Chain::new();
    for _ in 0..20 {
        chain.push(Verb::fetch_and_add(testbed.at(0), 1));
    }
    let chain = testbed.post(chain).await?;
    for index in 0..20 {
        equal("old value", chain.old(index), Some(index as u64))?;
    }
    Ok(())
}

async fn try_take(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    let mut completion = testbed.queue_pair.post(Chain::from(write_word(testbed.at(0), 3)));
    let result = loop {
        if let Some(result) = completion.try_take() {
            break result;
        }
        testbed.env.yield_now().await;
    };
    equal("verbs that came back", result?.verbs.len(), 1)?;
    equal("a second outcome", completion.try_take().is_some(), false)?;
    testbed.settle().await?;
    equal("memory", testbed.region.load(0), 3)
}

async fn dropped(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    for _ in 0..50 {
        drop(testbed.queue_pair.post(Chain::from(Verb::fetch_and_add(testbed.at(0), 1))));
    }
    // No further post drives the queue pair: the dropped chains must get there by themselves.
    while testbed.region.load(0) != 50 {
        testbed.env.yield_now().await;
    }
    Ok(())
}

async fn self_access(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    let queue_pair = testbed.memory.connect(testbed.memory.id())?;
    equal("peer", queue_pair.peer(), testbed.memory.id())?;
    let add = Verb::fetch_and_add(testbed.at(0), 2);
    let chain = queue_pair.post(Chain::from([write_word(testbed.at(0), 5), add])).await?;
    equal("old value", chain.old(1), Some(5))?;
    equal("memory", testbed.region.load(0), 7)
}

async fn two_regions(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    let other = testbed.memory.register(4096)?;
    equal("the keys are the same", other.key() == testbed.region.key(), false)?;
    let at = RemoteAddr::new(other.key(), 0);
    testbed.post([write_word(at, 1), write_word(testbed.at(0), 2)]).await?;
    testbed.settle().await?;
    equal("one region", other.load(0), 1)?;
    equal("the other", testbed.region.load(0), 2)
}
