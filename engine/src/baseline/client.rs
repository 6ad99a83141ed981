//! What a node does about one page under a directory: events in, actions out, no I/O.
//!
//! The node uses these phases of SELCC's machine: Invalid, WaitRead, WaitWrite, Shared, Upgrade
//! (has asked to write, is still a sharer) and Modified. A recall that meets a latch waits among
//! the line's deferred requests, so that γ and the order of local waiters are those of SELCC.

use smallvec::SmallVec;

use super::message::{FromNode, ToNode};
use crate::coherence::machine::{Deferred, Line, LocalUse, Phase, Request, RequestKind};
use crate::coherence::word::ComputeId;

/// What happens to a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClientEvent {
    /// A local access cannot be served by the present state.
    Want { exclusive: bool, nowait: bool },
    /// The buffer manager wants the frame.
    Evict,
    /// The local latch was let go while a recall waited.
    LocalFree,
    /// A message of the directory came.
    Told(ToNode),
}

/// What the driver must do, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClientAction {
    /// Send to the directory, with the page as it is where it belongs.
    Send(FromNode),
    /// The state changed: local waiters look again.
    Wake,
    /// The attempt of the `nowait` callers ended in Busy.
    Refuse,
}

pub(crate) type ClientActions = SmallVec<[ClientAction; 4]>;

/// A message of the directory that the state excludes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UnexpectedReply;

/// Takes one event. `local` is the present use of the local copy.
pub(crate) fn step(
    line: &mut Line,
    me: ComputeId,
    event: ClientEvent,
    local: LocalUse,
) -> Result<ClientActions, UnexpectedReply> {
    let mut out = ClientActions::new();
    match event {
        ClientEvent::Want { exclusive, nowait } => {
            let phase = match (line.phase, exclusive) {
                (Phase::Invalid, false) => Phase::WaitRead { holder: me },
                (Phase::Invalid, true) => Phase::WaitWrite { holder: me },
                (Phase::Shared, true) => Phase::Upgrade,
                _ => return Ok(out),
            };
            line.phase = phase;
            line.nowait = nowait;
            out.push(ClientAction::Send(FromNode::Ask { exclusive, nowait }));
        }
        ClientEvent::Evict => {
            let page = line.phase == Phase::Modified;
            let has_copy = page || line.phase == Phase::Shared;
            if has_copy && local == LocalUse::Idle && line.deferred.is_empty() {
                out.push(ClientAction::Send(FromNode::Evict { page }));
                line.phase = Phase::Invalid;
            }
        }
        ClientEvent::LocalFree => {
            for Deferred { request, .. } in std::mem::take(&mut line.deferred) {
                recalled(
                    line,
                    me,
                    request.kind == RequestKind::Read,
                    request.nowait,
                    local,
                    &mut out,
                );
            }
        }
        ClientEvent::Told(ToNode::Recall { keep, nowait }) => {
            recalled(line, me, keep, nowait, local, &mut out);
        }
        ClientEvent::Told(ToNode::Grant { exclusive, page }) => {
            line.phase = match (line.phase, exclusive, page) {
                (Phase::WaitRead { .. }, false, true) => Phase::Shared,
                (Phase::WaitWrite { .. }, true, true) | (Phase::Upgrade, true, false) => {
                    Phase::Modified
                }
                _ => return Err(UnexpectedReply),
            };
            line.nowait = false;
            out.push(ClientAction::Wake);
        }
        ClientEvent::Told(ToNode::Refused) => {
            line.phase = match line.phase {
                Phase::WaitRead { .. } | Phase::WaitWrite { .. } => Phase::Invalid,
                Phase::Upgrade => Phase::Shared,
                _ => return Err(UnexpectedReply),
            };
            line.nowait = false;
            out.extend([ClientAction::Refuse, ClientAction::Wake]);
        }
    }
    Ok(out)
}

fn recalled(
    line: &mut Line,
    me: ComputeId,
    keep: bool,
    nowait: bool,
    local: LocalUse,
    out: &mut ClientActions,
) {
    let in_use = match line.phase {
        // A local writer that is next has no use for a shared copy.
        Phase::Shared | Phase::Upgrade => !matches!(local, LocalUse::Idle | LocalUse::WriterNext),
        Phase::Modified if keep => matches!(local, LocalUse::Writer | LocalUse::WriterNext),
        Phase::Modified => local != LocalUse::Idle,
        _ => return out.push(ClientAction::Send(FromNode::NotHeld)),
    };
    if in_use && nowait {
        return out.push(ClientAction::Send(FromNode::Busy));
    }
    if in_use {
        let kind = if keep { RequestKind::Read } else { RequestKind::Write };
        let request = Request { kind, nowait, priority: 0 };
        return line.deferred.push(Deferred { from: me, request });
    }
    let page = line.phase == Phase::Modified;
    if page && keep {
        out.push(ClientAction::Send(FromNode::Kept));
        line.phase = Phase::Shared;
        return;
    }
    out.push(ClientAction::Send(FromNode::Gave { page }));
    // The right that was asked for now comes with the page.
    line.phase = match line.phase {
        Phase::Upgrade => Phase::WaitWrite { holder: me },
        _ => Phase::Invalid,
    };
    out.push(ClientAction::Wake);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(node: usize) -> ComputeId {
        ComputeId::new(node).unwrap()
    }

    fn sent(actions: &ClientActions) -> Vec<FromNode> {
        let message = |action: &ClientAction| match action {
            ClientAction::Send(message) => Some(*message),
            _ => None,
        };
        actions.iter().filter_map(message).collect()
    }

    #[test]
    fn an_upgrade_that_meets_a_recall_gives_the_copy_and_waits_for_the_page() {
        let mut line = Line::resting(Phase::Shared);
        let mut step = |event, local| step(&mut line, id(0), event, local).map(|a| sent(&a));
        let want = ClientEvent::Want { exclusive: true, nowait: false };
        let ask = FromNode::Ask { exclusive: true, nowait: false };
        assert_eq!(step(want, LocalUse::Idle), Ok(vec![ask]));
        let recall = ClientEvent::Told(ToNode::Recall { keep: false, nowait: false });
        assert_eq!(step(recall, LocalUse::Readers), Ok(vec![]), "readers are in");
        let gave = FromNode::Gave { page: false };
        assert_eq!(step(ClientEvent::LocalFree, LocalUse::WriterNext), Ok(vec![gave]));
        let grant = |page| ClientEvent::Told(ToNode::Grant { exclusive: true, page });
        assert_eq!(step(grant(false), LocalUse::Idle), Err(UnexpectedReply), "the copy is gone");
        assert_eq!(step(grant(true), LocalUse::Idle), Ok(vec![]));
        assert_eq!(line.phase, Phase::Modified);
    }

    #[test]
    fn copies_in_use_are_not_given() {
        for (phase, local, keep, free) in [
            (Phase::Modified, LocalUse::Readers, true, true),
            (Phase::Modified, LocalUse::Readers, false, false),
            (Phase::Modified, LocalUse::Writer, true, false),
            (Phase::Shared, LocalUse::Readers, false, false),
            (Phase::Shared, LocalUse::WriterNext, false, true),
        ] {
            let mut line = Line::resting(phase);
            let recall = ClientEvent::Told(ToNode::Recall { keep, nowait: true });
            let answer = sent(&step(&mut line, id(0), recall, local).unwrap());
            assert_eq!(answer == [FromNode::Busy], !free, "{phase:?} {local:?} keep {keep}");
            assert_eq!(line.phase == phase, !free);
        }
    }
}
