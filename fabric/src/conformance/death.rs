//! Checks of a peer's death: every outstanding and later operation gets an answer, and a dead node
//! changes nothing.

use std::sync::Arc;
use std::time::Duration;

use super::runner::{Check, CheckResult, CheckSubject, Failure};
use super::stage::{MEMORY, NODE, Stage, ensure, equal, filled, write_word};
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
    let stage = Stage::set(subject)?;
    let post = |index| {
        let verbs = [Verb::fetch_and_add(stage.at(0), 1), Verb::write(stage.at(64), filled(32, 1))];
        (index, stage.queue_pair.post(verbs.into()))
    };
    let mut posted: Vec<_> = (0..50).map(post).collect();
    (stage.kill)(MEMORY);
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
    let stage = Stage::set(subject)?;
    stage.post([write_word(stage.at(0), 1)]).await?;
    stage.settle().await?;
    (stage.kill)(MEMORY);
    let dead = FabricError::PeerDead { peer: MEMORY };
    for verb in [
        Verb::read(stage.at(0), Buf::zeroed(64)),
        Verb::write(stage.at(0), Buf::zeroed(8)),
        Verb::write_with_doorbell(stage.at(0), Buf::zeroed(8)),
        Verb::compare_and_swap(stage.at(0), 1, 2),
        Verb::fetch_and_add(stage.at(0), 1),
    ] {
        let Err(error) = stage.queue_pair.post(Chain::from(verb)).await else {
            return Err(Failure::new("a verb to a dead peer went well"));
        };
        equal("error", (error.executed, error.error), (0, dead.clone()))?;
        equal("verbs that came back", error.chain.verbs.len(), 1)?;
    }
    equal("memory of the dead", stage.region.load(0), 1)?;
    equal("connecting to the dead", stage.node.connect(MEMORY).err(), Some(dead))
}

async fn of_the_dead(subject: CheckSubject) -> CheckResult {
    let stage = Stage::set(subject)?;
    stage.post([write_word(stage.at(0), 1)]).await?;
    stage.settle().await?;
    (stage.kill)(NODE);
    let dead = Some(FabricError::PeerDead { peer: NODE });
    let posted = stage.queue_pair.post(write_word(stage.at(0), 2).into()).await;
    equal("a write of the dead", posted.err().map(|error| error.error), dead.clone())?;
    equal("connecting as the dead", stage.node.connect(MEMORY).err(), dead.clone())?;
    equal("registering as the dead", stage.node.register(4096).err(), dead)?;
    equal("memory of the living", stage.region.load(0), 1)
}

async fn fenced(subject: CheckSubject) -> CheckResult {
    let stage = Arc::new(Stage::set(subject)?);
    let poster = Arc::clone(&stage);
    let task = stage.env.spawn("conformance-poster", async move {
        while poster.post([Verb::fetch_and_add(poster.at(0), 1)]).await.is_ok() {
            poster.env.yield_now().await;
        }
    });
    while stage.region.load(0) < 10 {
        stage.env.sleep(Duration::from_micros(100)).await;
    }
    let reach = stage.fabric.fence(NODE)?;
    let before = stage.region.load(0);
    task.join().await?;
    stage.env.sleep(Duration::from_millis(1)).await;
    equal("adds after the fence", stage.region.load(0) - before, 0)?;
    let absent = PeerId::memory(99);
    equal("reach, of a peer that is not there", stage.fabric.fence(absent)?, reach)?;
    equal("reach, the second time", stage.fabric.fence(NODE)?, reach)
}

async fn fenced_target(subject: CheckSubject) -> CheckResult {
    let stage = Stage::set(subject)?;
    stage.post([write_word(stage.at(0), 1)]).await?;
    stage.settle().await?;
    let outstanding: Vec<_> =
        (0..20).map(|_| stage.queue_pair.post(write_word(stage.at(0), 1).into())).collect();
    let _reach = stage.fabric.fence(MEMORY)?;
    let dead = FabricError::PeerDead { peer: MEMORY };
    for completion in outstanding {
        if let Err(error) = completion.await {
            equal("error of what was outstanding", error.error, dead.clone())?;
        }
    }
    let later = stage.queue_pair.post(write_word(stage.at(0), 2).into()).await;
    equal("a later write", later.err().map(|error| error.error), Some(dead.clone()))?;
    equal("memory of the fenced", stage.region.load(0), 1)?;
    equal("connecting to the fenced", stage.node.connect(MEMORY).err(), Some(dead))
}

async fn others(subject: CheckSubject) -> CheckResult {
    let stage = Stage::set(subject)?;
    let bystander = stage.fabric.join(PeerId::memory(1))?;
    let region = bystander.register(4096)?;
    let queue_pair = stage.node.connect(bystander.id())?;
    (stage.kill)(MEMORY);
    let at = crate::RemoteAddr::new(region.key(), 0);
    let written = Verb::read(at, Buf::zeroed(8));
    queue_pair.post([write_word(at, 4), written].into()).await?;
    equal("memory of a bystander", region.load(0), 4)?;
    equal("connecting to a bystander", stage.node.connect(bystander.id())?.peer(), bystander.id())
}
