//! The record of a run: a hash that two runs of one seed share, and readable lines.

use std::fmt;

use crate::error::FabricError;
use crate::id::{PeerId, RemoteAddr};
use crate::verb::Verb;

/// Takes the lines of a readable event log.
pub type TraceSink = Box<dyn FnMut(&str) + Send>;

/// What is recorded.
pub(super) enum TraceEvent<'a> {
    /// A chain's outcome reached the node that posted it.
    Completed { from: PeerId, to: PeerId, verbs: &'a [Verb], error: Option<&'a FabricError> },
    /// A doorbell rang.
    Ring { peer: PeerId, at: RemoteAddr },
    /// A change of a node or a link, or a note of the scenario.
    Note(&'a str),
}

/// The record of one run.
pub(super) struct Trace {
    hash: u64,
    sink: Option<TraceSink>,
}

impl Trace {
    pub(super) fn new(sink: Option<TraceSink>) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, sink }
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn record(&mut self, now: u64, event: &TraceEvent<'_>) {
        self.mix(now);
        match event {
            TraceEvent::Completed { from, to, verbs, error } => {
                self.mix(u64::from(from.to_raw()) << 32 | u64::from(to.to_raw()));
                for verb in *verbs {
                    self.mix(verb.at().offset);
                    // 0 for a verb without result; so are the first words below.
                    self.mix(verb.old().unwrap_or(0));
                    let first = verb.buf().and_then(|buf| buf.words().first().copied());
                    self.mix(first.unwrap_or_default());
                }
                self.mix(u64::from(error.is_some()));
            }
            TraceEvent::Ring { peer, at } => {
                self.mix(u64::from(peer.to_raw()));
                self.mix(at.offset);
            }
            TraceEvent::Note(text) => text.bytes().for_each(|byte| self.mix(u64::from(byte))),
        }
        if let Some(sink) = &mut self.sink {
            sink(&format!("{:>14.3} us  {event}", now as f64 / 1000.0));
        }
    }

    fn mix(&mut self, value: u64) {
        // One round of a multiplicative hash: any difference spreads over the rest of the run.
        let mixed = (self.hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.hash = mixed ^ (mixed >> 32);
    }
}

impl fmt::Display for TraceEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceEvent::Completed { from, to, verbs, error } => {
                write!(f, "{from} -> {to}:")?;
                for verb in *verbs {
                    let at = verb.at().offset;
                    // 0 if the verb has not executed.
                    let found = verb.old().unwrap_or(0);
                    match verb {
                        Verb::Read { into, .. } => write!(f, " READ {at:#x} {} B;", into.len())?,
                        Verb::Write { from, .. } => write!(f, " WRITE {at:#x} {} B;", from.len())?,
                        Verb::WriteWithDoorbell { from, .. } => {
                            write!(f, " WRITE+BELL {at:#x} {} B;", from.len())?;
                        }
                        Verb::CompareAndSwap { expected, desired, .. } => {
                            write!(
                                f,
                                " CAS {at:#x} {expected:#x}->{desired:#x} found {found:#x};"
                            )?;
                        }
                        Verb::FetchAndAdd { delta, .. } => {
                            write!(f, " FAA {at:#x} {:+} found {found:#x};", *delta as i64)?;
                        }
                    }
                }
                match error {
                    Some(error) => write!(f, " FAILED: {error}"),
                    None => Ok(()),
                }
            }
            TraceEvent::Ring { peer, at } => write!(f, "{peer}: bell of {at}"),
            TraceEvent::Note(text) => f.write_str(text),
        }
    }
}
