//! A latch operation of a coded page, from its post to its result.

use selkie_fabric::{Buf, Chain, RemoteAddr, Verb};
use selkie_pool::layout;

use super::header_versions::{found_versions, versions_buf};
use super::late_binding::{LateBindingRead, MovedFrame};
use super::page_write::PageWrite;
use super::tag::{SplitSet, Versions};
use super::write_back::{PageAtHome, write_home};
use crate::addressing::executed::first_word;
use crate::addressing::locations::{Home, Written};
use crate::coherence::chains::push_word;
use crate::coherence::machine::{Atomic, LatchOperation, WordAccess};
use crate::coherence::word::LatchWord;
use crate::core::Core;
use crate::{EngineError, GAddr};

/// A latch operation of a coded line.
pub(super) struct CodedOperation {
    pub(super) addr: GAddr,
    pub(super) home: Home,
    pub(super) places: Written,
    pub(super) operation: LatchOperation,
    /// The header is read with the atomic: a node that gets the right to write must know the
    /// versions.
    pub(super) header: bool,
    pub(super) write: Option<PageWrite>,
    /// The operation fails if too much memory is lost for the page. Without it the word follows
    /// what the node has granted or given up: a word that names it still would be found by itself.
    pub(super) must_be_home: bool,
    /// Buffers of the data splits, if the page is read.
    pub(super) into: Option<Vec<(usize, Buf)>>,
}

/// The result of an operation.
pub(super) struct OperationResult {
    pub(super) old: LatchWord,
    /// The versions in the header, where they were read or written.
    pub(super) versions: Option<Versions>,
    /// The page was granted and cannot be reconstructed.
    pub(super) damaged: bool,
    /// Damaged splits.
    pub(super) corrupt: SplitSet,
}

/// An operation that has completed or failed.
pub(super) struct FinishedOperation {
    pub(super) done: Result<OperationResult, EngineError>,
    /// The page is in another frame than the one that it was read into.
    pub(super) moved: Option<MovedFrame>,
}

/// Whether an operation that found `old` in the word was granted the page.
fn is_granted(word: WordAccess, old: LatchWord) -> bool {
    match word {
        WordAccess::Change(Atomic::Swap { expected, .. }) => old == expected,
        WordAccess::Change(Atomic::Add(_)) => matches!(old.holder(), Ok(None)),
        WordAccess::Look | WordAccess::Skip => true,
    }
}

impl CodedOperation {
    pub(super) fn new(addr: GAddr, home: Home, places: Written, operation: LatchOperation) -> Self {
        let (header, must_be_home, write, into) = (false, true, None, None);
        Self { addr, home, places, operation, header, write, must_be_home, into }
    }

    pub(super) async fn run(self, core: &Core) -> FinishedOperation {
        let mut moved = None;
        let done = self.carry_out(core, &mut moved).await;
        FinishedOperation { done, moved }
    }

    async fn carry_out(
        self,
        core: &Core,
        moved: &mut Option<MovedFrame>,
    ) -> Result<OperationResult, EngineError> {
        let Some(coded) = &core.memory.coded else { return Err(EngineError::Closed) };
        let Self { addr, home, places, operation, header, write, must_be_home, into } = self;
        let mut chain = Chain::new();
        let header_at = |offset| {
            let at = home.latch.offset - layout::LATCH_AT + offset;
            RemoteAddr::new(home.latch.region, at)
        };
        let mut done = OperationResult {
            old: LatchWord::FREE,
            versions: None,
            damaged: false,
            corrupt: SplitSet::EMPTY,
        };
        // Kept until the operation completes: until then the image replaces the splits.
        let mut kept_image = None;
        if let Some(write) = write {
            let PageAtHome { versions, journal_slot, too_many_lost } =
                write_home(core, coded, addr, &places, (home, write)).await?;
            match too_many_lost {
                Some(error) if must_be_home => return Err(error),
                Some(error) => tracing::warn!(%addr, %error, "a page cannot be kept at home"),
                None => {}
            }
            kept_image = journal_slot;
            done.versions = Some(versions);
            chain.push(Verb::write(header_at(layout::SPLIT_VERSION_AT), versions_buf(&versions)));
        }
        push_word(&mut chain, home.latch, operation.word);
        if header {
            chain.push(Verb::read(header_at(0), Buf::zeroed(layout::HEADER_BYTES as usize)));
        }
        let at_home =
            (!chain.verbs.is_empty()).then(|| core.memory.queue_pair(home.node).post(chain));
        let reading =
            into.map(|into| LateBindingRead::begin(core, coded, addr, &places.splits, into));
        let found = match at_home {
            Some(at_home) => at_home.await.map_err(|error| error.error),
            None => Ok(Chain::new()),
        };
        if let Ok(chain) = &found {
            done.old = found_word(operation.word, chain);
            if header {
                done.versions = Some(found_versions(chain));
            }
        }
        if let Some(reading) = reading {
            let read = if found.is_ok() && is_granted(operation.word, done.old) {
                coded.errors.note_read();
                let Some(versions) = &done.versions else {
                    panic!("a page is read together with its header");
                };
                reading.finish(core, versions).await?
            } else {
                reading.give_up(core).await?
            };
            (*moved, done.damaged, done.corrupt) = (read.moved, read.damaged, read.corrupt);
        }
        found?;
        drop(kept_image);
        Ok(done)
    }
}

/// The word that the atomic, or the read of the word, of an executed chain found.
fn found_word(word: WordAccess, chain: &Chain) -> LatchWord {
    let bits = match word {
        WordAccess::Skip => return LatchWord::FREE,
        WordAccess::Look => chain.verbs.iter().find_map(Verb::buf).map(first_word),
        WordAccess::Change(_) => chain.verbs.iter().find_map(Verb::old),
    };
    let Some(bits) = bits else { panic!("{chain:?} has no result for {word:?}") };
    LatchWord::from_bits(bits)
}
