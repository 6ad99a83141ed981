//! Checks of a peer's death: every outstanding and later operation gets an answer, and a dead node
//! changes nothing.

use std::sync::Arc;
use std::time::Duration;

use super::check::{Check, CheckFailure, CheckResult, CheckSubject};
use super::testbed::{MEMORY, NODE, Testbed, ensure, equal, filled, write_word};
use crate::buf::Buf;
use crate::error::FabricError;
use crate::id::PeerId;
use crate::verb::{Chain, Verb};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "operations outstanding at a death end", run: |s| Box::pin(outstanding(s)) },
    Check { name: "operations to the dead fail", run: |s| Box::pin(later(s)) },
    Check { name: "operations of the dead fail", run: |s| Box::pin(of_the_dead(s)) },
    Check { name: "a fenced node changes nothing more", run: |s| Box::pin(fenced(s)) },
    Check { name: "operations to a fenced node end", run: |s| Box::pin(fenced_target(s)) },
    Check { name: "other peers do not notice a death", run: |s| Box::pin(others(s)) },
];

async fn outstanding(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    let post = |index| {
        let verbs =
            [Verb::fetch_and_add(testbed.at(0), 1), Verb::write(testbed.at(64), filled(32, 1))];
        (index, testbed.queue_pair.post(verbs.into()))
    };
    let mut posted: Vec<_> = (0..50).map(post).collect();
    (testbed.kill)(MEMORY);
    posted.extend((50..60).map(post));
    for (index, completion) in posted {
        match completion.await {
            Ok(chain) => {
                ensure(index < 50, || format!("chain {index}, posted to a dead peer, went well"))?;
                equal("old value of a chain that went well", chain.old(0), Some(index))?;
            }
            Err(error) => {
                equal("error", error.error, FabricError::PeerDead { peer: MEMORY })?;
                let returned = error.chain.buf(1).map(|buf| buf.len());
                equal("payload that came back", returned, Some(256))?;
            }
        }
    }
    Ok(())
}

async fn later(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    testbed.post([write_word(testbed.at(0), 1)]).await?;
    testbed.settle().await?;
    (testbed.kill)(MEMORY);
    let dead = FabricError::PeerDead { peer: MEMORY };
    for verb in [
        Verb::read(testbed.at(0), Buf::zeroed(64)),
        Verb::write(testbed.at(0), Buf::zeroed(8)),
        Verb::write_with_doorbell(testbed.at(0), Buf::zeroed(8)),
        Verb::compare_and_swap(testbed.at(0), 1, 2),
        Verb::fetch_and_add(testbed.at(0), 1),
    ] {
        let Err(error) = testbed.queue_pair.post(Chain::from(verb)).await else {
            return Err(CheckFailure::new("a verb to a dead peer went well"));
        };
        equal("error", (error.executed, error.error), (0, dead.clone()))?;
        equal("verbs that came back", error.chain.verbs.len(), 1)?;
    }
    equal("memory of the dead", testbed.region.load(0), 1)?;
    equal("connecting to the dead", testbed.node.connect(MEMORY).err(), Some(dead))
}

async fn of_the_dead(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    testbed.post([write_word(testbed.at(0), 1)]).await?;
    testbed.settle().await?;
    (testbed.kill)(NODE);
    let dead = Some(FabricError::PeerDead { peer: NODE });
    let posted = testbed.queue_pair.post(write_word(testbed.at(0), 2).into()).await;
    equal("a write of the dead", posted.err().map(|error| error.error), dead.clone())?;
    equal("connecting as the dead", testbed.node.connect(MEMORY).err(), dead.clone())?;
    equal("registering as the dead", testbed.node.register(4096).err(), dead)?;
    equal("memory of the living", testbed.region.load(0), 1)
}

async fn fenced(subject: CheckSubject) -> CheckResult {
    let testbed = Arc::new(Testbed::new(subject)?);
    let poster = Arc::clone(&testbed);
    let task = testbed.env.spawn("conformance-poster", async move {
        while poster.post([Verb::fetch_and_add(poster.at(0), 1)]).await.is_ok() {
            poster.env.yield_now().await;
        }
    });
    while testbed.region.load(0) < 10 {
        testbed.env.sleep(Duration::from_micros(100)).await;
    }
    let reach = testbed.fabric.fence(NODE)?;
    let before = testbed.region.load(0);
    task.join().await?;
    testbed.env.sleep(Duration::from_millis(1)).await;
    equal("adds after the fence", testbed.region.load(0) - before, 0)?;
    let absent = PeerId::memory(99);
    equal("reach, of a peer that is not there", testbed.fabric.fence(absent)?, reach)?;
    equal("reach, the second time", testbed.fabric.fence(NODE)?, reach)
}

async fn fenced_target(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    testbed.post([write_word(testbed.at(0), 1)]).await?;
    testbed.settle().await?;
    let outstanding: Vec<_> =
        (0..20).map(|_| testbed.queue_pair.post(write_word(testbed.at(0), 1).into())).collect();
    let _reach = testbed.fabric.fence(MEMORY)?;
    let dead = FabricError::PeerDead { peer: MEMORY };
    for completion in outstanding {
        if let Err(error) = completion.await {
            equal("error of what was outstanding", error.error, dead.clone())?;
        }
    }
    let later = testbed.queue_pair.post(write_word(testbed.at(0), 2).into()).await;
    equal("a later write", later.err().map(|error| error.error), Some(dead.clone()))?;
    equal("memory of the fenced", testbed.region.load(0), 1)?;
    equal("connecting to the fenced", testbed.node.connect(MEMORY).err(), Some(dead))
}

async fn others(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    let bystander = testbed.fabric.join(PeerId::memory(1))?;
    let region = bystander.register(4096)?;
    let queue_pair = testbed.node.connect(bystander.id())?;
    (testbed.kill)(MEMORY);
    let at = crate::RemoteAddr::new(region.key(), 0);
    let written = Verb::read(at, Buf::zeroed(8));
    queue_pair.post([write_word(at, 4), written].into()).await?;
    equal("memory of a bystander", region.load(0), 4)?;
    equal("connecting to a bystander", testbed.node.connect(bystander.id())?.peer(), bystander.id())
}
