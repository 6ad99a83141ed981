//! Lines that are free for all: a node that can lease none looks for them in the headers.
//!
//! ```text
//! headers, some at a time --> a mark that is for all, no holder --> the page has its number?
//!    --no--> clear the mark: the line is in use, and looked at no more
//!    --yes--> latch it, look again, change the page: the line is as if this node had freed it
//! ```
//! The exclusive latch and the change make sure that a line is taken once, also by nodes that look
//! at the same time. A line that was adopted is held for an epoch, as the last owner may have freed
//! it just before.
//!
//! A search goes on where the last one ended, and takes a bounded time. A node that has looked at
//! all headers in vain looks again only when lines were given to all, or a node has gone.
//!
//! A node that finds nothing asks the others by a counter beside the epochs, which they read with
//! every tick: they give what they do not need soon.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use selkie_fabric::{Buf, Chain, RemoteAddr, Verb};
use selkie_pool::layout::{FREE_MARK_AT, FreeMark, HEADER_BYTES, LineOwner, SHORT_OF_LINES_AT};

use super::executed::word_at;
use super::line_search::{ASKS_EVERY, Occasion, UnderWay};
use super::locations::HeaderTable;
use crate::access::acquire::Access;
use crate::access::guard::ExclusiveGuard;
use crate::access::waiters::WaitPolicy;
use crate::coherence::word::LatchWord;
use crate::core::Core;
use crate::{EngineError, GAddr};

/// Lines that one search takes, at most.
const ADOPT_LINES: usize = 256;
/// Headers that a search reads at once.
const HEADERS_AT_ONCE: u64 = 1024;
/// How long one search takes.
const SEARCHES_FOR: Duration = Duration::from_millis(100);
/// A search that saw all in vain, but met lines in use for now, is repeated after this.
const LOOKS_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A piece of a header table.
pub(super) struct Piece {
    pub(super) table: HeaderTable,
    pub(super) first: u64,
    pub(super) count: u64,
}

/// Lines with a mark that is for all, and whether there may be more of them.
#[derive(Default)]
struct FoundLines {
    lines: Vec<(GAddr, FreeMark)>,
    /// One is held by a node, or could not be looked at.
    is_unsure: bool,
}

/// What became of a line.
enum Claim {
    /// It is this node's.
    Taken,
    /// It is in use.
    InUse,
    /// It could not be had just now.
    Busy,
}

impl Core {
    fn occasion(&self) -> Occasion {
        let state = self.pool.state();
        Occasion {
            given: self.allocator.search.given.load(Ordering::Relaxed),
            entered: state.incarnations.values().map(|count| u64::from(*count)).sum(),
            present: state.compute_nodes.len() + state.lost.len(),
        }
    }

    /// Takes over lines that are for all, to be held for an epoch.
    pub(super) async fn adopt_lines(&self) -> Result<(), EngineError> {
        let (search, occasion) = (&self.allocator.search, self.occasion());
        {
            let mut progress = search.state.lock();
            let is_exhausted = |(of, until)| of == occasion && self.env.now() < until;
            if progress.is_under_way || progress.exhausted.is_some_and(is_exhausted) {
                return Ok(());
            }
            progress.is_under_way = true;
            if progress.occasion != occasion || progress.exhausted.take().is_some() {
                (progress.occasion, progress.in_vain) = (occasion, 0);
                progress.is_unsure = false;
            }
        }
        let _under_way = UnderWay(search);
        let (pieces, until) = (self.pieces(), self.env.now() + SEARCHES_FOR);
        let mut found = 0;
        while found < ADOPT_LINES && self.env.now() <= until {
            let piece = {
                let mut progress = search.state.lock();
                if progress.in_vain >= pieces.len() {
                    let lasts = if progress.is_unsure { LOOKS_AGAIN_AFTER } else { Duration::MAX };
                    let until = self.env.now().saturating_add(lasts);
                    progress.exhausted = Some((progress.occasion, until));
                    break;
                }
                let next = progress.next % pieces.len();
                (progress.next, progress.in_vain) = (next + 1, progress.in_vain + 1);
                pieces.get(next)
            };
            let Some(piece) = piece else { break };
            let (taken, is_unsure) = self.adopt_from(piece, ADOPT_LINES - found).await?;
            let mut progress = search.state.lock();
            progress.is_unsure |= is_unsure;
            if taken > 0 {
                progress.in_vain = 0;
                // There may be more.
                progress.next -= usize::from(found + taken >= ADOPT_LINES);
            }
            found += taken;
        }
        Ok(())
    }

    /// All header tables in use, in pieces.
    pub(super) fn pieces(&self) -> Vec<Piece> {
        let nodes = 0..self.memory.node_count();
        let tables = nodes.flat_map(|node| self.memory.placement.header_tables(node));
        let pieces = |table: HeaderTable| {
            let firsts = (0..table.headers).step_by(HEADERS_AT_ONCE as usize);
            firsts.map(move |first| {
                let count = HEADERS_AT_ONCE.min(table.headers - first);
                Piece { table, first, count }
            })
        };
        tables.flat_map(pieces).collect()
    }

    /// Takes at most `most` lines over of those in a piece of a table. Returns how many, and
    /// whether there may be more.
    async fn adopt_from(&self, piece: &Piece, most: usize) -> Result<(usize, bool), EngineError> {
        let mut taken = 0;
        let FoundLines { lines, mut is_unsure } = self.free_for_all(piece).await?;
        for (addr, mark) in lines {
            if taken == most {
                break;
            }
            match self.claim(addr, mark).await? {
                Claim::Taken => taken += 1,
                Claim::InUse => {}
                Claim::Busy => is_unsure = true,
            }
        }
        Ok((taken, is_unsure))
    }

    /// Lines with a mark that is for all, whose page at home has the number of the mark. What a
    /// memory node had that cannot be reached is left out.
    async fn free_for_all(&self, piece: &Piece) -> Result<FoundLines, EngineError> {
        let unsure = || Ok(FoundLines { is_unsure: true, ..FoundLines::default() });
        // As in `mark_lines`: this does not wait either.
        let _begun = self.memory.quiesced.unlatched.begin();
        if !self.pool.state().rebuilds.is_empty() {
            return unsure();
        }
        let _using = self.memory.placement.using();
        let Ok(headers) = self.headers_of(piece).await else { return unsure() };
        let state = self.pool.state();
        let is_for_all = |mark: FreeMark| match mark.owner {
            LineOwner::All => true,
            #[cfg(feature = "planted")]
            LineOwner::Node { .. } if self.config.planted == crate::Planted::ForgottenLines => {
                false
            }
            LineOwner::Node { node, incarnation } => state.is_gone(node.get(), incarnation),
        };
        let is_held = |(_, latch, mark): &(u64, LatchWord, u64)| {
            let is_meant = FreeMark::from_word(*mark).is_some_and(is_for_all);
            is_meant && latch.holder() != Ok(None)
        };
        let is_unsure = headers.iter().any(is_held);
        let marked = self.marked_of(piece, &headers, is_for_all);
        let lines = self.unused_of(&piece.table, marked, true).await?;
        Ok(FoundLines { lines, is_unsure })
    }

    /// Lines that no node holds, with a mark that `is_meant`, and where the mark is.
    pub(super) fn marked_of(
        &self,
        piece: &Piece,
        headers: &[(u64, LatchWord, u64)],
        is_meant: impl Fn(FreeMark) -> bool,
    ) -> Vec<(GAddr, FreeMark, RemoteAddr)> {
        let table = &piece.table;
        let marked = headers.iter().filter_map(|(header, latch, mark)| {
            let mark = FreeMark::from_word(*mark).filter(|mark| is_meant(*mark))?;
            let addr = self.memory.placement.addr_of(table, *header)?;
            let at = table.at.offset + header * HEADER_BYTES + FREE_MARK_AT;
            let at = RemoteAddr::new(table.at.region, at);
            (latch.holder() == Ok(None)).then_some((addr, mark, at))
        });
        marked.collect()
    }

    /// Those of the lines whose page at home has the number of the mark. The marks of the others
    /// are cleared if `clears`, unless they are other marks by now: so each is looked at once.
    pub(super) async fn unused_of(
        &self,
        table: &HeaderTable,
        marked: Vec<(GAddr, FreeMark, RemoteAddr)>,
        clears: bool,
    ) -> Result<Vec<(GAddr, FreeMark)>, EngineError> {
        let (mut unused, mut stale) = (Vec::new(), Chain::new());
        let mut by_node: BTreeMap<usize, (Chain, Vec<_>)> = BTreeMap::new();
        for (addr, mark, at) in marked {
            // The number is the first word of the line, and of its first split.
            let coded = self.memory.placement.splits(addr);
            let place = match coded.and_then(|splits| splits.first().copied().flatten()) {
                Some(split) => Some((split.node, split.at)),
                None => self.memory.placement.home(addr).map(|home| (home.node, home.page)),
            };
            let Some((node, page)) = place else { continue };
            let (chain, lines) = by_node.entry(node).or_default();
            chain.push(Verb::read(page, Buf::zeroed(8)));
            lines.push((addr, mark, at));
        }
        for (node, (chain, lines)) in by_node {
            let Ok(read) = self.memory.queue_pair(node).post(chain).await else {
                // The first split is lost: the latch brings the page from others.
                unused.extend(lines.into_iter().map(|(addr, mark, _)| (addr, mark)));
                continue;
            };
            for (index, (addr, mark, at)) in lines.into_iter().enumerate() {
                if word_at(&read, index) == mark.psn {
                    unused.push((addr, mark));
                } else {
                    stale.push(Verb::compare_and_swap(at, mark.to_word(), 0));
                }
            }
        }
        if clears && !stale.verbs.is_empty() {
            // If it fails they are looked at again.
            drop(self.memory.queue_pair(table.node).post(stale).await);
        }
        unused.sort_unstable_by_key(|(addr, _)| addr.to_u64());
        Ok(unused)
    }

    /// Makes a line this node's if its page still has the number of the mark. Does not wait for
    /// other users of the line.
    async fn claim(&self, addr: GAddr, mark: FreeMark) -> Result<Claim, EngineError> {
        let frame = match self.acquire(addr, Access::Exclusive, WaitPolicy::NoWait).await {
            Ok(frame) => frame,
            Err(EngineError::PageLost { .. } | EngineError::PageDamaged { .. }) => {
                return Ok(Claim::InUse);
            }
            Err(error) => {
                self.lifecycle.check_failed()?;
                tracing::debug!(%addr, %error, "a free line cannot be had just now");
                return Ok(Claim::Busy);
            }
        };
        let mut page = ExclusiveGuard::new(self, frame);
        if page.psn() != mark.psn {
            return Ok(Claim::InUse);
        }
        page.mark_changed();
        self.hold_freed(page);
        Ok(Claim::Taken)
    }

    /// Asks the others for lines. Returns whether it makes sense to wait for some.
    pub(super) async fn ask_for_lines(&self) -> Result<bool, EngineError> {
        if self.pool.members().len() < 2 {
            return Ok(false);
        }
        {
            let mut progress = self.allocator.search.state.lock();
            let now = self.env.now();
            if progress.asked_at.is_some_and(|at| now < at + ASKS_EVERY) {
                return Ok(false);
            }
            progress.asked_at = Some(now);
        }
        let Some((node, at)) = self.epoch_word(SHORT_OF_LINES_AT) else { return Ok(false) };
        let add = Chain::from(Verb::fetch_and_add(at, 1));
        self.memory.queue_pair(node).post(add).await.map_err(|failed| failed.error)?;
        Ok(true)
    }

    /// Lines that are free for all. Looks at all headers.
    pub(crate) async fn lines_for_all(&self) -> Result<Vec<GAddr>, EngineError> {
        let mut lines = Vec::new();
        for piece in self.pieces() {
            let found = self.free_for_all(&piece).await?;
            lines.extend(found.lines.into_iter().map(|(addr, _)| addr));
        }
        Ok(lines)
    }
}
