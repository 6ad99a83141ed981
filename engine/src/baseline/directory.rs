//! What a directory does about one page: messages in, messages out, no I/O.
//!
//! The directory serves one request for a page at a time. It recalls the copies that are in the
//! way, waits for every answer, and then grants or refuses. Requests that come meanwhile wait,
//! oldest first. A `nowait` request is refused at once instead: the request that is served may wait
//! for a latch that the `nowait` caller holds.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::message::{FromNode, ToNode};
use crate::coherence::word::{ComputeId, NodeSet};

/// A request for a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct PageRequest {
    from: ComputeId,
    exclusive: bool,
    nowait: bool,
}

/// The request that is served.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct ServedRequest {
    request: PageRequest,
    /// Nodes that have not answered their recall yet.
    awaited: NodeSet,
    /// A node has answered Busy.
    refused: bool,
}

/// What a directory knows of one page.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct DirectoryEntry {
    owner: Option<ComputeId>,
    sharers: NodeSet,
    served: Option<ServedRequest>,
    waiting: VecDeque<PageRequest>,
}

/// What the directory sends, in order. Where a page is to follow it is the one in memory.
pub(crate) type Answers = SmallVec<[(ComputeId, ToNode); 4]>;

/// A message that the state excludes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message:?} from {from} does not follow from what was asked of it")]
pub(crate) struct UnexpectedMessage {
    from: ComputeId,
    message: FromNode,
}

impl DirectoryEntry {
    /// Whether the entry says the same as a new one.
    pub(crate) fn is_blank(&self) -> bool {
        self.owner.is_none()
            && self.sharers.is_empty()
            && self.served.is_none()
            && self.waiting.is_empty()
    }

    /// Takes one message. A page that came with it is in memory by now.
    pub(crate) fn receive(
        &mut self,
        from: ComputeId,
        message: FromNode,
    ) -> Result<Answers, UnexpectedMessage> {
        let mut out = Answers::new();
        let unexpected = UnexpectedMessage { from, message };
        match message {
            FromNode::Ask { exclusive, nowait } => {
                let request = PageRequest { from, exclusive, nowait };
                if self.served.is_none() {
                    self.begin(request, &mut out);
                } else if nowait {
                    out.push((from, ToNode::Refused));
                } else {
                    self.waiting.push_back(request);
                }
            }
            FromNode::Evict { page } => {
                if page != (self.owner == Some(from)) || !page && !self.sharers.contains(from) {
                    return Err(unexpected);
                }
                self.drop_copy(from);
            }
            FromNode::Kept | FromNode::Gave { .. } | FromNode::NotHeld | FromNode::Busy => {
                self.answered(from, message).ok_or(unexpected)?;
                self.finish_served(&mut out);
            }
        }
        Ok(out)
    }

    fn drop_copy(&mut self, node: ComputeId) {
        if self.owner == Some(node) {
            self.owner = None;
        }
        self.sharers = self.sharers.without(node);
    }

    fn begin(&mut self, request: PageRequest, out: &mut Answers) {
        let recall = |keep| ToNode::Recall { keep, nowait: request.nowait };
        let mut awaited = NodeSet::EMPTY;
        if let Some(owner) = self.owner.filter(|owner| *owner != request.from) {
            awaited = awaited.with(owner);
            out.push((owner, recall(!request.exclusive)));
        }
        if request.exclusive {
            for sharer in self.sharers.without(request.from).iter() {
                awaited = awaited.with(sharer);
                out.push((sharer, recall(false)));
            }
        }
        self.served = Some(ServedRequest { request, awaited, refused: false });
        self.finish_served(out);
    }

    fn answered(&mut self, from: ComputeId, message: FromNode) -> Option<()> {
        let served = self.served.as_mut().filter(|served| served.awaited.contains(from))?;
        served.awaited = served.awaited.without(from);
        match message {
            FromNode::Busy => served.refused = true,
            FromNode::Kept if self.owner == Some(from) => {
                self.owner = None;
                self.sharers = self.sharers.with(from);
            }
            FromNode::Kept => return None,
            _ => self.drop_copy(from),
        }
        Some(())
    }

    /// Ends the served request when every answer is there, and begins the next.
    fn finish_served(&mut self, out: &mut Answers) {
        while let Some(ServedRequest { request, awaited, refused }) = self.served {
            if !awaited.is_empty() {
                return;
            }
            self.served = None;
            let PageRequest { from, exclusive, .. } = request;
            if refused {
                out.push((from, ToNode::Refused));
            } else {
                let page = !self.sharers.contains(from);
                if exclusive {
                    self.sharers = NodeSet::EMPTY;
                    self.owner = Some(from);
                } else {
                    self.sharers = self.sharers.with(from);
                }
                out.push((from, ToNode::Grant { exclusive, page }));
            }
            if let Some(next) = self.waiting.pop_front() {
                self.begin(next, out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(node: usize) -> ComputeId {
        ComputeId::new(node).unwrap()
    }

    const READ: FromNode = FromNode::Ask { exclusive: false, nowait: false };
    const WRITE: FromNode = FromNode::Ask { exclusive: true, nowait: false };
    const TRY: FromNode = FromNode::Ask { exclusive: true, nowait: true };

    fn grant(exclusive: bool, page: bool) -> ToNode {
        ToNode::Grant { exclusive, page }
    }

    fn recall(keep: bool, nowait: bool) -> ToNode {
        ToNode::Recall { keep, nowait }
    }

    /// A sender, its message, and the messages that the directory sends then.
    type ScriptLine<'s> = (usize, FromNode, &'s [(usize, ToNode)]);

    /// Feeds messages and compares what is sent.
    fn script(entry: &mut DirectoryEntry, steps: &[ScriptLine<'_>]) {
        for (from, message, expected) in steps {
            let sent = entry.receive(id(*from), *message).unwrap();
            let expected: Answers =
                expected.iter().map(|(to, message)| (id(*to), *message)).collect();
            assert_eq!(sent, expected, "after {message:?} from {from}");
        }
    }

    #[test]
    fn readers_share_and_a_writer_waits_for_all_of_them() {
        let mut entry = DirectoryEntry::default();
        script(
            &mut entry,
            &[
                (0, READ, &[(0, grant(false, true))]),
                (1, READ, &[(1, grant(false, true))]),
                (2, WRITE, &[(0, recall(false, false)), (1, recall(false, false))]),
                (3, READ, &[]),
                (1, FromNode::Gave { page: false }, &[]),
                (
                    0,
                    FromNode::Gave { page: false },
                    &[(2, grant(true, true)), (2, recall(true, false))],
                ),
                (2, FromNode::Kept, &[(3, grant(false, true))]),
                // A sharer needs the right only.
                (3, WRITE, &[(2, recall(false, false))]),
                (2, FromNode::Gave { page: false }, &[(3, grant(true, false))]),
                (3, FromNode::Evict { page: true }, &[]),
            ],
        );
        assert!(entry.is_blank());
    }

    #[test]
    fn an_eviction_that_crosses_a_recall_is_no_answer_to_it() {
        let mut entry = DirectoryEntry::default();
        script(
            &mut entry,
            &[
                (0, WRITE, &[(0, grant(true, true))]),
                (1, WRITE, &[(0, recall(false, false))]),
                (0, FromNode::Evict { page: true }, &[]),
                (0, WRITE, &[]),
                (0, FromNode::NotHeld, &[(1, grant(true, true)), (1, recall(false, false))]),
                (1, FromNode::Gave { page: true }, &[(0, grant(true, true))]),
            ],
        );
    }

    #[test]
    fn nowait_requests_are_refused() {
        let mut entry = DirectoryEntry::default();
        script(
            &mut entry,
            &[
                (0, WRITE, &[(0, grant(true, true))]),
                (1, TRY, &[(0, recall(false, true))]),
                (2, TRY, &[(2, ToNode::Refused)]),
                (0, FromNode::Busy, &[(1, ToNode::Refused)]),
                (0, FromNode::Evict { page: true }, &[]),
            ],
        );
        assert!(entry.is_blank());
    }

    #[test]
    fn answers_to_nothing_are_refused() {
        let mut entry = DirectoryEntry::default();
        for message in
            [FromNode::Kept, FromNode::NotHeld, FromNode::Busy, FromNode::Gave { page: true }]
        {
            assert!(entry.receive(id(0), message).is_err(), "{message:?}");
        }
        assert!(entry.receive(id(0), FromNode::Evict { page: false }).is_err());
        script(&mut entry, &[(0, READ, &[(0, grant(false, true))])]);
        assert!(entry.receive(id(0), FromNode::Evict { page: true }).is_err(), "no owner");
        assert!(entry.receive(id(1), FromNode::Evict { page: false }).is_err(), "no sharer");
    }
}
