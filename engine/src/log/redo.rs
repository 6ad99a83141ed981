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
//! Who died before it had acknowledged another's death may have had pages that this one granted, with changes that are in
//! the log of this one only. So logs count until no recovery is under way, also when that of their node is over.
//!
//! A recovery that is cut short is begun anew by others: a page is home before its word is free, and what was made once may
//! be made again. All go by the same log: where it ends is said before a page is made of it ([`LogStore::end_at`]).
//!
//! [`home_first`]: crate::coherence::machine::Rules::home_first

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use parking_lot::Mutex;
use selkie_fabric::env::Env;
use selkie_fabric::{Buf, Chain, Verb};

use super::scan::LogEnd;
use super::store::{LogError, LogOwner, LogStore, Part, ReadError, read_log};
use super::{Discord, Lsn, Record, Redo};
use crate::buffer::dirty::Dirty;
use crate::coding::placed::placed;
use crate::coding::{Image, Mended};
use crate::coherence::word::ComputeId;
use crate::core::{Core, LineHasher};
use crate::service::all_of;
use crate::{EngineError, GAddr};

/// How often a log that cannot be read is tried.
const TRIES: u32 = 20;
/// Pages that are made again at the same time.
const AT_ONCE: usize = 64;
/// Parts of a log that are read at the same time: putting changes together takes longer than reading them.
const PARTS: usize = 2;

/// Changes of a page that follow each other, put together: of each piece what the last of them has made of it.
struct Stretch {
    /// The page's number before the first, and after the last.
    first: u64,
    end: u64,
    /// The first is a beginning: it repeats what may be in the log of whoever has made the change, and has the whole page.
    repeats: bool,
    pieces: Dirty,
    line: Box<[u8]>,
}

impl Stretch {
    fn of(redo: &Redo<'_>, repeats: bool, line_bytes: usize) -> Self {
        let line = vec![0; line_bytes].into_boxed_slice();
        let (first, pieces) = (redo.psn(), Dirty::NONE);
        let mut stretch = Self { first, end: first, repeats, pieces, line };
        stretch.add(redo);
        stretch
    }

    fn add(&mut self, redo: &Redo<'_>) {
        redo.apply(&mut self.line);
        self.pieces = self.pieces.union(redo.pieces());
        self.end = redo.psn() + 1;
    }

    /// Makes of a line what it was after the last of the changes.
    fn apply(&self, line: &mut [u8]) {
        for run in self.pieces.stretches(line.len(), 0) {
            if let (Some(place), Some(bytes)) = (line.get_mut(run.clone()), self.line.get(run)) {
                place.copy_from_slice(bytes);
            }
        }
        if let Some(psn) = line.first_chunk_mut() {
            *psn = self.end.to_le_bytes();
        }
    }
}

/// Changes of some pages, from one log or several.
pub(crate) struct Changes {
    line_bytes: usize,
    /// There are no other logs that could have what is missing between changes: only the last ones are of use.
    alone: bool,
    /// Of each page, as the logs tell of it.
    pages: HashMap<u64, Vec<Stretch>, BuildHasherDefault<LineHasher>>,
    /// Pages of which two changes begin with the same number, and that.
    forks: HashMap<GAddr, u64>,
}

impl Changes {
    /// None yet, of these pages; those of others are passed over. `alone`: from one log.
    pub(crate) fn of(
        pages: impl IntoIterator<Item = GAddr>,
        line_bytes: usize,
        alone: bool,
    ) -> Self {
        let pages = pages.into_iter().map(|addr| (addr.to_u64(), Vec::new())).collect();
        Self { line_bytes, alone, pages, forks: HashMap::new() }
    }

    /// Takes a record's changes in.
    pub(crate) fn add(&mut self, record: &Record<'_>) {
        for redo in record.pages() {
            let Some(page) = self.pages.get_mut(&redo.addr().to_u64()) else { continue };
            let (last, psn) = (page.last_mut(), redo.psn());
            match last {
                Some(last) if psn == last.end && !record.begins() => last.add(&redo),
                // It is in there.
                Some(last) if psn < last.end && record.begins() => {}
                Some(last) if psn < last.end => drop(self.forks.insert(redo.addr(), psn)),
                last => {
                    if last.is_some_and(|last| psn > last.end) && self.alone {
                        page.clear();
                    }
                    page.push(Stretch::of(&redo, record.begins(), self.line_bytes));
                }
            }
        }
    }

    /// Takes in what another log says of the same pages.
    fn join(&mut self, other: Self) {
        self.forks.extend(other.forks);
        for (addr, stretches) in other.pages {
            if let Some(page) = self.pages.get_mut(&addr) {
                page.extend(stretches);
            }
        }
    }

    #[cfg(feature = "planted")]
    fn forget_last(&mut self) {
        self.pages.values_mut().for_each(|page| drop(page.pop()));
    }

    /// Makes of home's page what it became; whether that is another.
    ///
    /// # Errors
    /// [`Discord`] if changes are missing, or there are too many.
    pub(crate) fn redo(&self, addr: GAddr, line: &mut [u8]) -> Result<bool, Discord> {
        if let Some(psn) = self.forks.get(&addr) {
            return Err(Discord::Fork { addr, psn: *psn });
        }
        let mut all: Vec<&Stretch> = self.pages.get(&addr.to_u64()).into_iter().flatten().collect();
        // What repeats comes after what it repeats.
        all.sort_by_key(|stretch| (stretch.first, stretch.repeats));
        // The last that follow each other, and the number after them.
        let (mut run, mut end) = (Vec::new(), 0);
        for stretch in all {
            let Stretch { first, repeats, .. } = *stretch;
            if run.is_empty() || first > end {
                run = vec![stretch];
            } else if first == end || repeats && first + 1 == end {
                run.push(stretch);
            } else if !(repeats && stretch.end == first + 1) {
                return Err(Discord::Fork { addr, psn: first });
            }
            end = end.max(stretch.end);
        }
        let Some(Stretch { first, .. }) = run.first() else { return Ok(false) };
        let has = line.first_chunk().map_or(0, |psn| u64::from_le_bytes(*psn));
        if end < has {
            // It has been elsewhere since, and come back as it is.
            return Ok(false);
        }
        if *first > has {
            return Err(Discord::Gap { addr, has, next: *first });
        }
        run.iter().for_each(|stretch| stretch.apply(line));
        Ok(true)
    }
}

/// What a log tells of pages, and where it ends; parts of it are read at the same time.
async fn read_in_parts(
    env: &Env,
    store: &Arc<dyn LogStore>,
    owner: LogOwner,
    none: impl Fn() -> Changes,
) -> Result<Option<(Changes, Lsn)>, ReadError> {
    let cuts = store.cuts(owner, PARTS).await?;
    let tos = cuts.iter().copied().map(Some).chain([None]);
    let parts = [None].into_iter().chain(cuts.iter().copied().map(Some)).zip(tos);
    let tasks: Vec<_> = parts
        .map(|(from, to)| {
            let (store, mut changes) = (Arc::clone(store), none());
            let result = Arc::new(Mutex::new(None));
            let done = Arc::clone(&result);
            let task = env.spawn("redo", async move {
                let mut add = |record: Record<'_>| changes.add(&record);
                let read = store.read(owner, Part { from, to }, &mut add).await;
                *done.lock() = Some(read.map(|end| end.map(|LogEnd { lsn, .. }| (changes, lsn))));
            });
            (task, result, to)
        })
        .collect();
    let (mut all, mut end) = (none(), None);
    for (task, result, to) in tasks {
        let _ = task.join().await;
        let gone = || LogError::new("read", "a log", std::io::ErrorKind::BrokenPipe.into());
        let read = result.lock().take().ok_or_else(gone)?;
        match read? {
            Some((changes, lsn)) if to.is_none_or(|to| to == lsn) => {
                all.join(changes);
                end = Some(lsn);
            }
            // It is not here, or ends there, and what was found behind is none of it.
            _ => {
                let mut changes = none();
                let read = read_log(&**store, owner, |record| changes.add(&record)).await?;
                return Ok(read.map(|LogEnd { lsn, .. }| (changes, lsn)));
            }
        }
    }
    Ok(end.map(|lsn| (all, lsn)))
}

/// What the log of a dead node tells of pages, which is all that it will ever tell anybody: it may still be added to, as the
/// node may only stand still.
async fn read_to_end(
    env: &Env,
    store: &Arc<dyn LogStore>,
    owner: LogOwner,
    none: impl Fn() -> Changes,
) -> Result<Option<Changes>, ReadError> {
    // Once more if another said meanwhile where it ends.
    for _ in 0..2 {
        let Some((changes, lsn)) = read_in_parts(env, store, owner, &none).await? else {
            return Ok(None);
        };
        if store.end_at(owner, lsn).await? == lsn {
            return Ok(Some(changes));
        }
    }
    let place = format!("the log of compute node {}-{}", owner.node, owner.incarnation).into();
    let what = "where it ends is said in two ways".to_owned();
    Err(ReadError::Place { place, what })
}

impl Core {
    /// Makes pages again that were lost with a dead node, as far as its log is to be had here; those that stay lost.
    ///
    /// # Errors
    /// If memory, a log or the control plane cannot be reached; it is to be begun anew then, a few times.
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
        let started = self.env.now();
        let pages: Vec<GAddr> = lost.iter().copied().map(GAddr::from_u64).collect();
        let logs = self.logs_with(dead);
        let none = || Changes::of(pages.iter().copied(), self.gcl_bytes, logs.len() == 1);
        let (mut changes, mut has_own) = (none(), false);
        for owner in logs.iter().copied() {
            let is_own = usize::from(owner.node) == dead.index();
            match read_to_end(&self.env, &store, owner, none).await {
                Ok(None) => continue,
                Ok(Some(own)) => changes.join(own),
                Err(ReadError::Log(error)) if self.may_try_again(owner) => {
                    return Err(EngineError::Log(error));
                }
                // Where the log of another would be needed there is a gap.
                Err(error) => {
                    tracing::error!(node = owner.node, %error, "the log of a dead node cannot be relied on");
                    continue;
                }
            }
            has_own |= is_own;
        }
        self.redone.lock().insert(self.log_of(dead.index() as u16), TRIES);
        if !has_own {
            tracing::warn!(
                dead = dead.index(),
                pages = pages.len(),
                "without its log, pages stay lost"
            );
            return Ok(lost);
        }
        #[cfg(feature = "planted")]
        if self.config.planted == crate::Planted::ShortRedo {
            changes.forget_last();
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
            if !self.may_try_again(owner) {
                continue;
            }
            match store.pieces(owner).await {
                Ok(pieces) if pieces.is_empty() => {}
                Ok(_) => self.pool.recover_again(node).await?,
                Err(error) => {
                    tracing::warn!(node = node.get(), %error, "the log of a dead node cannot be read");
                    continue;
                }
            }
            self.redone.lock().insert(owner, TRIES);
        }
        Ok(())
    }

    /// Whether a log is to be tried once more, which counts as such.
    fn may_try_again(&self, owner: LogOwner) -> bool {
        let mut redone = self.redone.lock();
        let tries = redone.entry(owner).or_insert(0);
        *tries += u32::from(*tries < TRIES);
        *tries < TRIES
    }

    /// The logs that changes of pages may be in that a dead node had: its own, and those of others that died with it, who may
    /// have granted it the page, or have been granted it.
    fn logs_with(&self, dead: ComputeId) -> Vec<LogOwner> {
        let state = self.pool.state();
        let line_bytes = self.gcl_bytes as u32;
        let of = |(node, incarnation)| LogOwner { pool: state.id, node, incarnation, line_bytes };
        state.fallen_with(dead.index() as u16).into_iter().map(of).collect()
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

    /// Writes a whole line home, which nobody reads or writes meanwhile; it is in place then.
    pub(super) async fn put_home(&self, addr: GAddr, line: &[u8]) -> Result<(), EngineError> {
        let home = self.placement.home(addr).ok_or(EngineError::BadAddress { addr })?;
        let write = if self.coded.is_some() {
            self.put_coded(addr, line).await?;
            // What was written last is the header, which is in place when it can be read.
            Chain::from(Verb::read(home.latch, Buf::zeroed(8)))
        } else {
            placed(home.page, Buf::copy_of(line))
        };
        let done = self.queue_pair(home.node).post(write).await;
        done.map(drop).map_err(|error| error.error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::dirty::Dirty;
    use crate::log::record::{Change, Format, encode, encode_as};

    /// Its pieces are longer than the number at its front.
    const LINE: usize = 1024;
    const FORMAT: Format = Format { line_bytes: LINE, salt: 0 };
    const ADDR: GAddr = GAddr::from_u64(4 * LINE as u64);

    /// The page after each of its changes, and the change as a record.
    fn history(changes: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut line = vec![0xAB; LINE];
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

    /// A record of the page as it was after that change, as a beginning.
    fn beginning(all: &[(Vec<u8>, Vec<u8>)], number: usize) -> (Vec<u8>, Vec<u8>) {
        let (mut bytes, line) = (Vec::new(), &all[number].0);
        let change = Change { addr: ADDR, psn: number as u64, pieces: Dirty::ALL, line };
        encode_as(&mut bytes, 0, (0, 0), (&[change], true));
        (line.clone(), bytes)
    }

    fn changes(records: &[(Vec<u8>, Vec<u8>)]) -> Changes {
        let mut changes = Changes::of([ADDR], LINE, false);
        for (_, bytes) in records {
            changes.add(&Record::decode(bytes, 0, FORMAT).unwrap());
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

    /// Of one log only the last changes that follow each other are kept.
    #[test]
    fn what_lies_before_a_gap_is_of_no_use_alone() {
        let all = history(30);
        let mut changes = Changes::of([ADDR], LINE, true);
        for (_, bytes) in all[2..5].iter().chain(&all[7..9]).chain(&all[20..]) {
            changes.add(&Record::decode(bytes, 0, FORMAT).unwrap());
        }
        assert_eq!(changes.pages[&ADDR.to_u64()].len(), 1);
        let mut line = all[22].0.clone();
        assert_eq!(changes.redo(ADDR, &mut line), Ok(true));
        assert_eq!(line, all[29].0);
    }

    #[test]
    fn a_page_that_came_back_as_it_is_stays_so() {
        let all = history(30);
        let changes = changes(&all[2..5]);
        let mut line = all[12].0.clone();
        assert!(!changes.redo(ADDR, &mut line).unwrap());
        assert_eq!(line, all[12].0);
        assert!(!Changes::of([ADDR], LINE, false).redo(ADDR, &mut line).unwrap());
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
        both.join(changes(&all[7..8]));
        assert_eq!(both.redo(ADDR, &mut line), Err(fork));
    }

    /// A dead node may have recorded a page that another had changed, for who makes another pool.
    #[test]
    fn a_beginning_repeats_a_change_and_is_no_other() {
        let all = history(30);
        let begins = |number| beginning(&all, number);
        let repeated = [begins(12), begins(17)];
        for own_first in [true, false] {
            let mut both = changes(if own_first { &all[10..20] } else { &repeated });
            both.join(changes(if own_first { &repeated } else { &all[10..20] }));
            let mut line = all[11].0.clone();
            assert!(both.redo(ADDR, &mut line).unwrap());
            assert_eq!(line, all[19].0);
        }
    }

    /// Whoever says what of it, in whatever order the logs are read.
    #[test]
    fn logs_go_together_in_any_order() {
        let all = history(40);
        let begins = |number| beginning(&all, number);
        let log = |parts: &[(Option<usize>, std::ops::Range<usize>)]| {
            let mut records = Vec::new();
            for (begun, range) in parts {
                records.extend(begun.map(begins));
                records.extend_from_slice(&all[range.clone()]);
            }
            records
        };
        let logs = [
            log(&[(None, 5..10), (None, 20..25), (Some(24), 33..36)]),
            log(&[(Some(9), 10..15), (Some(24), 25..30), (Some(35), 36..40)]),
            log(&[(None, 15..20), (Some(24), 0..0), (Some(29), 30..33), (Some(39), 0..0)]),
        ];
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut joined = Changes::of([ADDR], LINE, false);
            for log in order {
                joined.join(changes(&logs[log]));
            }
            for home in [4, 5, 17, 38, 39] {
                let mut line = all[home].0.clone();
                assert_eq!(joined.redo(ADDR, &mut line), Ok(true), "{order:?}, home had {home}");
                assert_eq!(line, all[39].0, "{order:?}, home had {home}");
            }
            let gap = Discord::Gap { addr: ADDR, has: 4, next: 5 };
            assert_eq!(joined.redo(ADDR, &mut all[3].0.clone()), Err(gap));
            // Of a change by another in between there is a beginning, and that one's log as well.
            let between = log(&[(None, 5..10), (Some(10), 11..13)]);
            for with in [false, true] {
                let mut joined = changes(&between);
                if with {
                    joined.join(changes(&all[10..11]));
                }
                let mut line = all[7].0.clone();
                assert_eq!(joined.redo(ADDR, &mut line), Ok(true));
                assert_eq!(line, all[12].0);
            }
            // Another change of a number that one of them has.
            for psn in [5, 12, 39] {
                let mut forked = changes(&logs[0]);
                forked.join(changes(&logs[1]));
                forked.join(changes(&logs[2]));
                forked.join(changes(&all[psn..=psn]));
                let fork = Err(Discord::Fork { addr: ADDR, psn: psn as u64 });
                assert_eq!(forked.redo(ADDR, &mut all[39].0.clone()), fork);
            }
        }
    }
}
