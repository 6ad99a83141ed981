//! What a dead node had changed of pages that nobody else has: made again from its log, on top of what home has.
//!
//! ```text
//! sweep: words that name the dead node --> its log, and those of others that died --> for each page:
//!    home's page, mended --> the changes since --> home, with its latch word free
//! ```
//! A page that is handed over dirty goes home before the one who gets it is confirmed ([`home_first`]). So home has all
//! of the page but what its last holder has changed, which is in that one's log without a gap; unless the one who gave it
//! died as well, whose log has the rest then. The number of home's page may be that of a write-back that was cut short, so
//! all changes of that stretch are made again, from its beginning: what a later one changes as well is changed last.
//!
//! A recovery that is cut short is begun anew by others: a page is home before its word is free, and what was made once may
//! be made again.
//!
//! [`home_first`]: crate::coherence::machine::Rules::home_first

use std::collections::{BTreeMap, BTreeSet, HashMap};

use selkie_fabric::{Buf, Chain, Verb};

use super::store::{LogOwner, ReadError, read_log};
use super::{Discord, Record, Redo};
use crate::coding::{Image, Mended};
use crate::coherence::word::ComputeId;
use crate::core::Core;
use crate::service::all_of;
use crate::{EngineError, GAddr};

/// Pages that are made again at the same time.
const AT_ONCE: usize = 64;

/// The changes of a page, by its number before each: which pieces, and their bytes.
type ChangesOfPage = BTreeMap<u64, (u64, Box<[u8]>)>;

/// Changes of some pages, from several logs.
pub(crate) struct Changes {
    line_bytes: usize,
    pages: HashMap<GAddr, ChangesOfPage>,
}

impl Changes {
    /// None yet, of these pages; those of others are passed over.
    pub(crate) fn of(pages: impl IntoIterator<Item = GAddr>, line_bytes: usize) -> Self {
        Self { line_bytes, pages: pages.into_iter().map(|addr| (addr, BTreeMap::new())).collect() }
    }

    /// Takes a record's changes in.
    ///
    /// # Errors
    /// [`Discord::Fork`].
    pub(crate) fn add(&mut self, record: &Record<'_>) -> Result<(), Discord> {
        for redo in record.pages() {
            let Some(page) = self.pages.get_mut(&redo.addr()) else { continue };
            let (pieces, bytes) = redo.parts();
            if page.insert(redo.psn(), (pieces, bytes.into())).is_some() {
                return Err(Discord::Fork { addr: redo.addr(), psn: redo.psn() });
            }
        }
        Ok(())
    }

    /// Makes of home's page what it became; whether that is another.
    ///
    /// # Errors
    /// [`Discord::Gap`] if changes are missing.
    pub(crate) fn redo(&self, addr: GAddr, line: &mut [u8]) -> Result<bool, Discord> {
        let Some(changes) = self.pages.get(&addr) else { return Ok(false) };
        let has = line.first_chunk().map_or(0, |psn| u64::from_le_bytes(*psn));
        // The last changes that follow each other.
        let mut first = None;
        for psn in changes.keys().rev() {
            if first.is_some_and(|first| psn + 1 != first) {
                break;
            }
            first = Some(*psn);
        }
        let Some(first) = first else { return Ok(false) };
        let end = changes.last_key_value().map_or(first, |(psn, _)| psn + 1);
        if end < has {
            // It has been elsewhere since, and come back as it is.
            return Ok(false);
        }
        if first > has {
            return Err(Discord::Gap { addr, has, next: first });
        }
        for (psn, (pieces, bytes)) in changes.range(first..) {
            Redo::of(addr, *psn, *pieces, bytes, self.line_bytes).apply(line);
        }
        Ok(true)
    }
}

impl Core {
    /// Makes pages again that were lost with a dead node, as far as its log is to be had here; those that stay lost.
    ///
    /// # Errors
    /// If memory or the control plane cannot be reached; it is to be begun anew then.
    pub(crate) async fn redo(
        &self,
        dead: ComputeId,
        lost: Vec<u64>,
        images: &[Image],
    ) -> Result<Vec<u64>, EngineError> {
        let Some(store) = self.log_store() else { return Ok(lost) };
        if lost.is_empty() {
            return Ok(lost);
        }
        self.redone.lock().insert(self.log_of(dead.index() as u16));
        let started = self.env.now();
        let pages: Vec<GAddr> = lost.iter().copied().map(GAddr::from_u64).collect();
        let mut changes = Changes::of(pages.iter().copied(), self.gcl_bytes);
        let mut has_own = false;
        for owner in self.logs_of_the_dead() {
            let mut discord = Ok(());
            let read = read_log(&*store, owner, |record| {
                if discord.is_ok() {
                    discord = changes.add(&record);
                }
            });
            let read = read.await;
            match (read, discord) {
                (Ok(None), _) => {}
                (Ok(Some(_)), Ok(())) => has_own |= usize::from(owner.node) == dead.index(),
                (read, discord) => {
                    let error = read.err().map(|error: ReadError| error.to_string());
                    let error = error.or_else(|| discord.err().map(|discord| discord.to_string()));
                    let error = error.unwrap_or_default();
                    tracing::error!(dead = dead.index(), %error, pages = pages.len(), "a log cannot be relied on: pages stay lost");
                    return Ok(lost);
                }
            }
        }
        if !has_own {
            tracing::warn!(
                dead = dead.index(),
                pages = pages.len(),
                "the log of a dead node is not here"
            );
            return Ok(lost);
        }
        let mut still = Vec::new();
        for some in pages.chunks(AT_ONCE) {
            let done =
                all_of(some.iter().map(|addr| self.redo_page(*addr, dead, &changes, images)));
            for (addr, done) in some.iter().zip(done.await) {
                if !done? {
                    still.push(addr.to_u64());
                }
            }
        }
        let took = self.env.now() - started;
        tracing::info!(
            dead = dead.index(),
            pages = pages.len(),
            lost = still.len(),
            ?took,
            "made pages again from the log"
        );
        Ok(still)
    }

    /// Begins the recovery from nodes anew with which pages were lost, if their logs are here and nothing was made of
    /// them yet: whoever had recovered from them did not reach these.
    ///
    /// # Errors
    /// If the control plane cannot be reached.
    pub(crate) async fn recover_again(&self) -> Result<(), EngineError> {
        let Some(store) = self.log_store() else { return Ok(()) };
        for node in self.pool.dead() {
            let owner = self.log_of(node.get());
            if !self.redone.lock().insert(owner) {
                continue;
            }
            match store.pieces(owner).await {
                Ok(pieces) if pieces.is_empty() => {}
                Ok(_) => self.pool.recover_again(node).await?,
                Err(error) => {
                    tracing::warn!(node = node.get(), %error, "the log of a dead node cannot be read")
                }
            }
        }
        Ok(())
    }

    /// The logs that changes of lost pages may be in.
    fn logs_of_the_dead(&self) -> Vec<LogOwner> {
        let state = self.pool.state();
        let nodes: BTreeSet<u16> = state.lost.keys().chain(&state.dead).copied().collect();
        nodes.into_iter().map(|node| self.log_of(node)).collect()
    }

    /// `false`: the page stays lost.
    async fn redo_page(
        &self,
        addr: GAddr,
        dead: ComputeId,
        changes: &Changes,
        images: &[Image],
    ) -> Result<bool, EngineError> {
        let Some(mut line) = self.home_line(addr, images).await? else { return Ok(false) };
        match changes.redo(addr, &mut line) {
            Ok(true) => self.put_home(addr, &line).await?,
            Ok(false) => {}
            Err(error) => {
                tracing::error!(%error, "a page stays lost");
                return Ok(false);
            }
        }
        let Some(home) = self.placement.home(addr) else { return Ok(false) };
        self.free_word(home.node, home.latch, dead).await?;
        Ok(true)
    }

    /// The line as home has it, which nobody changes meanwhile; `None` if too little is left of it.
    async fn home_line(
        &self,
        addr: GAddr,
        images: &[Image],
    ) -> Result<Option<Vec<u8>>, EngineError> {
        if self.coded.is_some() {
            return Ok(match self.mend(addr, images).await? {
                Mended::Page(line) => Some(line),
                Mended::Lost | Mended::Nothing => None,
            });
        }
        let Some(home) = self.placement.home(addr) else { return Ok(None) };
        let read = Verb::read(home.page, Buf::zeroed(self.gcl_bytes));
        let done = self.queue_pair(home.node).post(Chain::from(read)).await;
        let done = done.map_err(|error| error.error)?;
        Ok(done.buf(0).map(|line| line.to_vec()))
    }

    /// Writes a whole line home, which nobody reads or writes meanwhile.
    async fn put_home(&self, addr: GAddr, line: &[u8]) -> Result<(), EngineError> {
        if self.coded.is_some() {
            return self.put_coded(addr, line).await;
        }
        let home = self.placement.home(addr).ok_or(EngineError::BadAddress { addr })?;
        let write = Verb::write(home.page, Buf::copy_of(line));
        let done = self.queue_pair(home.node).post(Chain::from(write)).await;
        done.map(drop).map_err(|error| error.error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::dirty::Dirty;
    use crate::log::record::{Change, Format, encode};

    const LINE: usize = 512;
    const FORMAT: Format = Format { line_bytes: LINE, salt: 0 };
    const ADDR: GAddr = GAddr::from_u64(4 * LINE as u64);

    /// The page after each of its changes, and the change as a record.
    fn history(changes: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut line = vec![0; LINE];
        let all = (0..changes).map(|psn| {
            line[..8].copy_from_slice(&(psn + 1).to_le_bytes());
            let from = 8 + 8 * (psn as usize * 5 % 50);
            line[from..from + 24].fill(psn as u8 + 1);
            let pieces = Dirty::of(&(from..from + 24), LINE);
            let mut bytes = Vec::new();
            encode(&mut bytes, 0, (0, 0), &[Change { addr: ADDR, psn, pieces, line: &line }]);
            (line.clone(), bytes)
        });
        all.collect()
    }

    fn changes(records: &[(Vec<u8>, Vec<u8>)]) -> Changes {
        let mut changes = Changes::of([ADDR], LINE);
        for (_, bytes) in records {
            changes.add(&Record::decode(bytes, 0, FORMAT).unwrap()).unwrap();
        }
        changes
    }

    #[test]
    fn whatever_of_it_had_got_home_the_page_becomes_what_it_was() {
        let all = history(30);
        let last = &all[29].0;
        // The dead node had it from the tenth change on, and at some time before.
        let mut own = all[2..5].to_vec();
        own.extend_from_slice(&all[10..]);
        let changes = changes(&own);
        for home in 9..30 {
            let mut line = all[home].0.clone();
            assert!(changes.redo(ADDR, &mut line).unwrap());
            assert_eq!(&line, last, "home had {home}");
            // A write-back was cut short anywhere.
            for cut in (0..LINE).step_by(8) {
                for (front, back) in [(home, 9), (9, home)] {
                    let mut torn = all[back].0.clone();
                    torn[..cut].copy_from_slice(&all[front].0[..cut]);
                    changes.redo(ADDR, &mut torn).unwrap();
                    assert_eq!(&torn, last, "home had {front} up to byte {cut}, then {back}");
                }
            }
        }
    }

    #[test]
    fn a_page_that_came_back_as_it_is_stays_so() {
        let all = history(30);
        let changes = changes(&all[2..5]);
        let mut line = all[12].0.clone();
        assert!(!changes.redo(ADDR, &mut line).unwrap());
        assert_eq!(line, all[12].0);
        assert!(!Changes::of([ADDR], LINE).redo(ADDR, &mut line).unwrap());
    }

    #[test]
    fn what_others_changed_and_did_not_get_home_is_missed_but_for_their_logs() {
        let all = history(30);
        let mut line = all[6].0.clone();
        let gap = Discord::Gap { addr: ADDR, has: 7, next: 10 };
        assert_eq!(changes(&all[10..20]).redo(ADDR, &mut line), Err(gap));
        assert_eq!(line, all[6].0, "nothing is guessed at");
        let both = changes(&all[5..20]);
        assert!(both.redo(ADDR, &mut line).unwrap());
        assert_eq!(line, all[19].0);
        let fork = Discord::Fork { addr: ADDR, psn: 7 };
        let mut both = both;
        assert_eq!(both.add(&Record::decode(&all[7].1, 0, FORMAT).unwrap()), Err(fork));
    }
}
