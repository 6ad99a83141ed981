//! Checks of refused verbs: typed errors, nothing executed, buffers back, queue pair still usable.

use super::check::{Check, CheckFailure, CheckResult, CheckSubject};
use super::testbed::{MEMORY, NODE, REGION_BYTES, Testbed, equal, filled, write_word};
use crate::buf::Buf;
use crate::error::FabricError;
use crate::id::{PeerId, RegionKey, RemoteAddr};
use crate::verb::{Chain, Verb};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "accesses out of bounds are refused", run: |s| Box::pin(out_of_bounds(s)) },
    Check { name: "misaligned accesses are refused", run: |s| Box::pin(misaligned(s)) },
    Check { name: "unknown regions are refused", run: |s| Box::pin(unknown_region(s)) },
    Check { name: "unknown peers are refused", run: |s| Box::pin(unknown_peer(s)) },
    Check { name: "a name can be taken once", run: |s| Box::pin(taken_name(s)) },
    Check { name: "an empty region is refused", run: |s| Box::pin(empty_region(s)) },
];

/// Every verb, at `at`, with payloads of `bytes`.
fn every_verb(at: RemoteAddr, bytes: usize) -> Vec<Verb> {
    vec![
        Verb::read(at, Buf::zeroed(bytes)),
        Verb::write(at, filled(bytes / 8, 7)),
        Verb::write_with_doorbell(at, filled(bytes / 8, 7)),
        Verb::compare_and_swap(at, 0, 7),
        Verb::fetch_and_add(at, 7),
    ]
}

/// Posts [good write, `bad`, write that must not execute] and checks everything about the failure
/// but its error, which it returns.
async fn refused(testbed: &Testbed, bad: Verb) -> Result<FabricError, CheckFailure> {
    let what = format!("{bad:?}");
    let payload = bad.buf().map(|buf| buf.to_vec());
    let before: Vec<u64> = (0..REGION_BYTES).step_by(8).map(|at| testbed.region.load(at)).collect();
    let rung = testbed.region.doorbell().count();
    let chain = Chain::from([write_word(testbed.at(0), 1), bad, write_word(testbed.at(8), 1)]);
    let Err(error) = testbed.queue_pair.post(chain).await else {
        return Err(CheckFailure::new(format!("{what} was executed")));
    };
    equal(&format!("verbs executed before {what}"), error.executed, 1)?;
    equal("verbs that came back", error.chain.verbs.len(), 3)?;
    let returned = error.chain.buf(1).map(|buf| buf.to_vec());
    equal(&format!("payload of {what}, when it came back"), returned, payload)?;
    testbed.settle().await?;
    equal("word written before the bad verb", testbed.region.load(0), 1)?;
    let after = (8..REGION_BYTES).step_by(8).map(|at| testbed.region.load(at));
    let changed = after.zip(before.into_iter().skip(1)).position(|(new, old)| new != old);
    equal(&format!("a word changed by {what} or behind it"), changed, None)?;
    equal(&format!("doorbell after {what}"), testbed.region.doorbell().count(), rung)?;
    testbed.region.store(0, 0);
    Ok(error.error)
}

async fn out_of_bounds(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    let region_bytes = REGION_BYTES as u64;
    for offset in [region_bytes, region_bytes + 4096, 1 << 40, u64::MAX - 7] {
        for bad in every_verb(testbed.at(offset), 8) {
            let expected =
                FabricError::OutOfBounds { at: testbed.at(offset), bytes: 8, region_bytes };
            equal("error", refused(&testbed, bad).await?, expected)?;
        }
    }
    // The first words are inside.
    let at = testbed.at(region_bytes - 16);
    for bad in every_verb(at, 64).into_iter().filter(|verb| verb.buf().is_some()) {
        let expected = FabricError::OutOfBounds { at, bytes: 64, region_bytes };
        equal("error", refused(&testbed, bad).await?, expected)?;
    }
    testbed.post([write_word(testbed.at(region_bytes - 8), 5)]).await?;
    testbed.settle().await?;
    equal("the last word, later on the same queue pair", testbed.region.load(REGION_BYTES - 8), 5)
}

async fn misaligned(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    for offset in [1, 4, 4097] {
        for bad in every_verb(testbed.at(offset), 8) {
            let expected = FabricError::Misaligned { at: testbed.at(offset) };
            equal("error", refused(&testbed, bad).await?, expected)?;
        }
    }
    Ok(())
}

async fn unknown_region(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    let foreign = testbed.node.register(4096)?.key();
    let made_up = RegionKey::from_raw(testbed.region.key().to_raw() ^ 0x0000_01ff);
    for region in [foreign, made_up, RegionKey::from_raw(u32::MAX)] {
        for bad in every_verb(RemoteAddr::new(region, 0), 8) {
            let expected = FabricError::UnknownRegion { peer: MEMORY, region };
            equal("error", refused(&testbed, bad).await?, expected)?;
        }
    }
    Ok(())
}

async fn unknown_peer(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    let peer = PeerId::memory(77);
    let error = testbed.node.connect(peer).err();
    equal("error", error, Some(FabricError::UnknownPeer { peer }))?;
    let joined = testbed.fabric.join(peer)?;
    equal("connected once it has joined", testbed.node.connect(peer)?.peer(), joined.id())
}

async fn taken_name(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    let error = testbed.fabric.join(NODE).err();
    equal("error", error, Some(FabricError::AlreadyJoined { peer: NODE }))?;
    equal("the first keeps its name", testbed.node.id(), NODE)
}

async fn empty_region(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    let error = testbed.memory.register(0).err();
    let refused = matches!(error, Some(FabricError::RegionBytes { bytes: 0, .. }));
    equal("refused", refused, true)
}
