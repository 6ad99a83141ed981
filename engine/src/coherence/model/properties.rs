//! The properties that hold in every state.

use stateright::Property;

use super::death::{lost_only_without_copies, swept};
use super::protocol::ProtocolModel;
use super::wire::id;
use super::world::{ModelFault, ModelWorld, NodeLife, StoredWorld};
use crate::coherence::machine::{LocalUse, Message, Phase};
use crate::coherence::word::{LatchDelta, LatchWord};

pub(super) const STALE_READ: &str = "no stale read";
pub(super) const TORN: &str = "no torn page";
pub(super) const TWO_WRITERS: &str = "single writer";
pub(super) const JUDGED: &str = "judges by fresh pages";

/// Safety: the properties that the published rules break.
pub(super) fn safety<const N: usize>() -> Vec<Property<ProtocolModel<N>>> {
    vec![
        Property::always(STALE_READ, |_, world: &StoredWorld<N>| {
            world.nodes.iter().all(|node| node.fresh || !node.line.readable())
        }),
        Property::always(TWO_WRITERS, |_, world: &StoredWorld<N>| single_writer(world)),
        Property::always("sweeps the dead", |_, world: &StoredWorld<N>| swept(world)),
        Property::always(JUDGED, |_, world: &StoredWorld<N>| {
            world.fault != Some(ModelFault::Judgement)
        }),
        Property::always(TORN, |_, world: &StoredWorld<N>| world.fault != Some(ModelFault::Torn)),
        Property::always("can be redone", |_, world: &StoredWorld<N>| {
            world.fault != Some(ModelFault::Unhomed)
        }),
        Property::always("loses no copy", |_, world: &StoredWorld<N>| {
            lost_only_without_copies(world)
        }),
    ]
}

/// Properties that need rules which keep the word correct.
pub(super) fn answers_and_rest<const N: usize>() -> Vec<Property<ProtocolModel<N>>> {
    vec![
        Property::always("no violation", |_, world: &StoredWorld<N>| {
            world.fault != Some(ModelFault::Violation)
        }),
        Property::always("no impossible action", |_, world: &StoredWorld<N>| {
            world.fault != Some(ModelFault::Action)
        }),
        Property::always("no lost right", |_, world: &StoredWorld<N>| {
            world.fault != Some(ModelFault::RightLost)
        }),
        Property::always("no lost wake-up", |_, world: &StoredWorld<N>| {
            world.fault != Some(ModelFault::WakeLost)
        }),
        Property::always("one answer a request", |_, world: &StoredWorld<N>| {
            world.fault.is_some() || one_answer(world)
        }),
        Property::always("comes to rest", |model: &ProtocolModel<N>, world: &StoredWorld<N>| {
            let latched = world.nodes.iter().any(|node| node.latch != LocalUse::Idle);
            world.fault.is_some() || latched || !quiet(world) || at_rest(model, world)
        }),
        Property::always(
            "nowait waits for no latch",
            |model: &ProtocolModel<N>, world: &StoredWorld<N>| {
                world.fault.is_some() || !quiet(world) || nowait_is_over(model, world)
            },
        ),
    ]
}

/// Whether only the application can move.
fn quiet<const N: usize>(world: &ModelWorld<N>) -> bool {
    ProtocolModel::is_over(world) && world.quiet()
}

fn single_writer<const N: usize>(world: &ModelWorld<N>) -> bool {
    let readable = world.nodes.iter().filter(|node| node.line.readable()).count();
    readable <= 1 || !world.nodes.iter().any(|node| node.line.writable())
}

/// For each pair of nodes: exactly one of request, deferred request and answer exists while the
/// asker counts on an answer, and none otherwise. Grants are answers.
fn one_answer<const N: usize>(world: &ModelWorld<N>) -> bool {
    let pairs = (0..N).flat_map(|asker| (0..N).map(move |asked| (asker, asked)));
    let both_run = |(asker, asked): &(usize, usize)| {
        ProtocolModel::runs(world, *asker) && ProtocolModel::runs(world, *asked)
    };
    pairs.filter(|(asker, asked)| asker != asked).filter(both_run).all(|(asker, asked)| {
        let line = &world.nodes[asker].line;
        let asks = |message| matches!(message, Message::Request(_));
        let answers = |message| !asks(message) && message != Message::Confirm;
        let requests = &world.wires[asker][asked];
        let replies = &world.wires[asked][asker];
        let other = &world.nodes[asked].line;
        let found = requests.packets().iter().filter(|p| asks(p.message)).count()
            + replies.packets().iter().filter(|p| answers(p.message)).count()
            + other.deferred.iter().filter(|d| d.from == id(asker)).count();
        let counted_on = match line.phase {
            Phase::WaitRead { holder } | Phase::WaitWrite { holder } => holder == id(asked),
            Phase::WaitSharers { pending, .. } => pending.contains(id(asked)),
            _ => false,
        };
        found == usize::from(counted_on)
    })
}

/// Without outstanding operations and latches every line is at rest, the word agrees with the
/// lines, and every local caller can be served or can start an acquisition.
fn at_rest<const N: usize>(model: &ProtocolModel<N>, world: &ModelWorld<N>) -> bool {
    let mut word = LatchWord::FREE;
    for (index, node) in world.nodes.iter().enumerate() {
        match node.line.phase {
            Phase::Shared | Phase::Lapsed => word = word.add(LatchDelta::add_reader(id(index))),
            Phase::Modified => {
                let held = word.bits() + LatchWord::held_by(id(index)).bits();
                word = LatchWord::from_bits(held);
                for reader in node.line.carried.iter() {
                    word = word.add(LatchDelta::add_reader(reader));
                }
            }
            _ => {}
        }
    }
    for lost in world.places(|node| node.life == NodeLife::Swept { lost: true }) {
        word = LatchWord::from_bits(word.bits() + LatchWord::held_by(id(lost)).bits());
    }
    let calls = [(false, false), (false, true), (true, false), (true, true)];
    world.word == word
        && world.nodes.iter().enumerate().all(|(index, node)| {
            let line = &node.line;
            line.phase.at_rest()
                && line.grantor.is_none()
                && (line.carried.is_empty() || line.phase == Phase::Modified)
                && line.deferred.is_empty()
                && !calls
                    .iter()
                    .any(|(x, nowait)| model.stuck(world.site(index), line, *x, *nowait))
        })
}

/// Without outstanding operations, while latches are held for ever, no `nowait` caller waits.
fn nowait_is_over<const N: usize>(model: &ProtocolModel<N>, world: &ModelWorld<N>) -> bool {
    world.nodes.iter().enumerate().all(|(index, node)| {
        let line = &node.line;
        let at = world.site(index);
        !model.stuck(at, line, false, true) && !model.stuck(at, line, true, true)
    })
}
