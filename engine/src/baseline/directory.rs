//! What a directory does about one page: messages in, messages out, no I/O.
//!
//! One question (a *job*) is served at a time. A job recalls what is in the way, waits for every
//! answer, and then grants or refuses. Questions that come meanwhile wait, oldest first; those that
//! do not wait are refused at once, as the job may wait for a latch that its own asker holds.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::message::{FromNode, ToNode};
use crate::coherence::word::{ComputeId, NodeSet};

/// A question.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Ask {
    from: ComputeId,
    exclusive: bool,
    nowait: bool,
}

/// A question under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Job {
    ask: Ask,
    /// Nodes whose answer is still to come.
    awaited: NodeSet,
    /// One of them was busy.
    refused: bool,
}

/// One page.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Entry {
    owner: Option<ComputeId>,
    sharers: NodeSet,
    job: Option<Job>,
    waiting: VecDeque<Ask>,
}

/// What the directory sends, in order. Where a page is to follow it is the one in memory.
pub(crate) type Answers = SmallVec<[(ComputeId, ToNode); 4]>;

/// A message that the state excludes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message:?} from {from} does not follow from what was asked of it")]
pub(crate) struct Unexpected {
    from: ComputeId,
    message: FromNode,
}

impl Entry {
    /// Whether nothing is known about the page that a new entry would not say.
    pub(crate) fn is_blank(&self) -> bool {
        self.owner.is_none()
            && self.sharers.is_empty()
            && self.job.is_none()
            && self.waiting.is_empty()
    }

    /// Takes one message. A page that came with it is in memory by now.
    pub(crate) fn receive(
        &mut self,
        from: ComputeId,
        message: FromNode,
    ) -> Result<Answers, Unexpected> {
        let mut out = Answers::new();
        let unexpected = Unexpected { from, message };
        match message {
            FromNode::Ask { exclusive, nowait } => {
                let ask = Ask { from, exclusive, nowait };
                if self.job.is_none() {
                    self.begin(ask, &mut out);
                } else if nowait {
                    out.push((from, ToNode::Refused));
                } else {
                    self.waiting.push_back(ask);
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
                self.go_on(&mut out);
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

    fn begin(&mut self, ask: Ask, out: &mut Answers) {
        let recall = |keep| ToNode::Recall { keep, nowait: ask.nowait };
        let mut awaited = NodeSet::EMPTY;
        if let Some(owner) = self.owner.filter(|owner| *owner != ask.from) {
            awaited = awaited.with(owner);
            out.push((owner, recall(!ask.exclusive)));
        }
        if ask.exclusive {
            for sharer in self.sharers.without(ask.from).iter() {
                awaited = awaited.with(sharer);
                out.push((sharer, recall(false)));
            }
        }
        self.job = Some(Job { ask, awaited, refused: false });
        self.go_on(out);
    }

    fn answered(&mut self, from: ComputeId, message: FromNode) -> Option<()> {
        let job = self.job.as_mut().filter(|job| job.awaited.contains(from))?;
        job.awaited = job.awaited.without(from);
        match message {
            FromNode::Busy => job.refused = true,
            FromNode::Kept if self.owner == Some(from) => {
                self.owner = None;
                self.sharers = self.sharers.with(from);
            }
            FromNode::Kept => return None,
            _ => self.drop_copy(from),
        }
        Some(())
    }

    /// Ends the job when every answer is there, and begins the next.
    fn go_on(&mut self, out: &mut Answers) {
        while let Some(Job { ask, awaited, refused }) = self.job {
            if !awaited.is_empty() {
                return;
            }
            self.job = None;
            let Ask { from, exclusive, .. } = ask;
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

    /// Who says what, and what is sent to whom then.
    type Step<'s> = (usize, FromNode, &'s [(usize, ToNode)]);

    /// Feeds messages and compares what is sent.
    fn script(entry: &mut Entry, steps: &[Step<'_>]) {
        for (from, message, expected) in steps {
            let sent = entry.receive(id(*from), *message).unwrap();
            let expected: Answers =
                expected.iter().map(|(to, message)| (id(*to), *message)).collect();
            assert_eq!(sent, expected, "after {message:?} from {from}");
        }
    }

    #[test]
    fn readers_share_and_a_writer_waits_for_all_of_them() {
        let mut entry = Entry::default();
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
                // Who has the page needs only the right.
                (3, WRITE, &[(2, recall(false, false))]),
                (2, FromNode::Gave { page: false }, &[(3, grant(true, false))]),
                (3, FromNode::Evict { page: true }, &[]),
            ],
        );
        assert!(entry.is_blank());
    }

    #[test]
    fn an_eviction_that_crosses_a_recall_is_no_answer_to_it() {
        let mut entry = Entry::default();
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
    fn those_who_do_not_wait_are_refused() {
        let mut entry = Entry::default();
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
        let mut entry = Entry::default();
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
