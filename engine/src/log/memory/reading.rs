//! Reading a log from the copies of its ring.

use selkie_wal::ring::{HEAD_BYTES, RingHead, ring_place};
use selkie_wal::{
    LogDamage, LogEnd, LogOwner, Lsn, NoRecord, RECORD_HEADER_BYTES, ReadError, Record,
};

use super::rings::failed;
use crate::core::Core;
use crate::error::EngineError;
use crate::log::state::MAX_WAITING_BYTES;

/// The same where records are looked at as they come: what was read is still in the processor's
/// cache then.
const SCANNED_AT_ONCE: u64 = 64 << 10;
/// A log that is shorter is read in one go.
const LEAST_CUT: u64 = 64 << 10;
/// So far a record is looked for where one should be.
const LOOKED_FOR: u64 = 256 << 10;
/// Whether a log goes on behind something that is no record shows within so many bytes: what is
/// made when this was durable comes behind what was written with it, and what waited meanwhile, and
/// a caller that has pages already may go beyond that bound.
const WITNESSED: u64 = 3 * MAX_WAITING_BYTES as u64;

impl Core {
    /// Shows `visit` all records from `start` on, perhaps only up to where another begins, and
    /// reads no more than they take and what tells that no more follow: a copy to its end, and on
    /// with another that has more. Copies differ in what was written last, and one that is damaged,
    /// or whose memory node dies, is as good as others up to there.
    pub(super) async fn read_copies(
        &self,
        owner: LogOwner,
        copies: &[(usize, RingHead)],
        (start, to): (Lsn, Option<Lsn>),
        visit: &mut (dyn FnMut(Record<'_>) + Send),
    ) -> Result<LogEnd, ReadError> {
        let mut at = start;
        let mut copies: Vec<usize> = copies.iter().map(|(memory, _)| *memory).collect();
        // What those have behind it that have no more.
        let mut ends: Vec<(usize, _)> = Vec::new();
        let is_left =
            |memory: &usize, ends: &[(usize, _)]| ends.iter().all(|(ended, _)| ended != memory);
        while let Some(memory) = copies.iter().copied().find(|memory| is_left(memory, &ends)) {
            let (before, to) = (at, to.unwrap_or(start + self.ring_bytes()));
            let end = self.follow(owner, memory, (&mut at, to), visit).await;
            if at > before {
                ends.clear();
            }
            match end {
                Ok(end) => ends.push((memory, end)),
                Err(error) => {
                    let failed = |error| failed("read", ring_place(owner, memory), error);
                    let EngineError::Fabric(lost) = error else { return Err(failed(error).into()) };
                    // One that cannot be reached, and is not dead, may have more.
                    self.confirm_memory_death(lost).await.map_err(failed)?;
                    copies.retain(|own| *own != memory);
                }
            }
        }
        let mut last = None;
        for (memory, end) in ends {
            // Where one has what was made later, others lack it.
            let at = HEAD_BYTES + at % self.ring_bytes();
            let damaged =
                |damage| ReadError::Damaged { place: ring_place(owner, memory), at, damage };
            last = Some(end.map_err(damaged)?);
        }
        Ok(last.ok_or_else(|| failed("find", ring_place(owner, 0), "no copy is left"))?)
    }

    /// Finds where records begin that cut what a ring has into parts of about the same length.
    pub(super) async fn split_points_of_ring(
        &self,
        ring: (LogOwner, usize),
        start: Lsn,
        parts: u64,
    ) -> Result<Vec<Lsn>, EngineError> {
        // Records say where they are, so what has one is before the log's end.
        let (mut there, mut beyond) = (start, start + self.ring_bytes());
        while beyond - there > SCANNED_AT_ONCE {
            let middle = there + (beyond - there) / 2;
            match self.record_from(ring, middle).await? {
                Some(found) => there = found,
                None => beyond = middle,
            }
        }
        let mut cuts = Vec::new();
        if there - start >= LEAST_CUT {
            for part in 1..parts {
                cuts.extend(self.record_from(ring, start + (there - start) * part / parts).await?);
            }
        }
        cuts.dedup();
        Ok(cuts)
    }

    /// The first record of a ring that begins soon after a place.
    pub(super) async fn record_from(
        &self,
        (owner, memory): (LogOwner, usize),
        from: Lsn,
    ) -> Result<Option<Lsn>, EngineError> {
        let from = from.next_multiple_of(8);
        let bytes = self.read_ring(owner, memory, from, LOOKED_FOR).await?;
        let format = owner.format();
        let mut places = (0..bytes.len()).step_by(8);
        Ok(places.find_map(|at| {
            let (rest, lsn) = (bytes.get(at..)?, from + at as u64);
            Record::decode(rest, lsn, format).ok().map(|_| lsn)
        }))
    }

    /// Shows `visit` the records of a copy from `at` on, and no further than `to`; how they end.
    /// `at` is moved behind those that were shown, also if the rest cannot be read.
    pub(super) async fn follow(
        &self,
        owner: LogOwner,
        memory: usize,
        (at, to): (&mut Lsn, Lsn),
        visit: &mut (dyn FnMut(Record<'_>) + Send),
    ) -> Result<Result<LogEnd, LogDamage>, EngineError> {
        let (mut bytes, mut spare, format) = (Vec::new(), None, owner.format());
        loop {
            let mut used = 0;
            let why = loop {
                let rest = bytes.get(used..).unwrap_or_default();
                match Record::decode(rest, *at + used as u64, format) {
                    Ok(record) => {
                        used += record.bytes().len();
                        visit(record);
                    }
                    Err(why) => break why,
                }
            };
            bytes.drain(..used);
            *at += used as u64;
            let read_to = *at + bytes.len() as u64;
            // What is cut off is read to its end.
            let goes_on = matches!(why, NoRecord::End | NoRecord::CutOff);
            let more = to.saturating_sub(read_to).min(SCANNED_AT_ONCE);
            if !goes_on || more == 0 {
                let lsn = *at;
                let until = to.min(lsn + WITNESSED);
                let witness = self.witness(owner, memory, (lsn, until)).await?;
                return Ok(witness.map_or(Ok(LogEnd { lsn, then: why }), |(witness, durable)| {
                    Err(LogDamage { lsn, why, witness, durable })
                }));
            }
            self.read_on(owner, memory, (read_to, read_to + more), &mut bytes, &mut spare).await?;
        }
    }

    /// A whole record of a copy between two places, made when more was durable than comes before
    /// the first of them; where it is, and up to where that was.
    pub(super) async fn witness(
        &self,
        owner: LogOwner,
        memory: usize,
        (from, until): (Lsn, Lsn),
    ) -> Result<Option<(Lsn, Lsn)>, EngineError> {
        let (mut at, mut bytes, mut spare) = (from, Vec::new(), None);
        let format = owner.format();
        while at < until {
            // As much more as tells whether one begins at the end of that.
            let end = (at + SCANNED_AT_ONCE + RECORD_HEADER_BYTES as u64).min(until);
            bytes.clear();
            self.read_on(owner, memory, (at, end), &mut bytes, &mut spare).await?;
            for place in (0..bytes.len()).step_by(8) {
                let (rest, lsn) = (bytes.get(place..).unwrap_or_default(), at + place as u64);
                let Some(length) = Record::length_at(rest, lsn) else { continue };
                let length = length.min(until - lsn);
                let whole;
                let rest = if length as usize > rest.len() {
                    whole = self.read_ring(owner, memory, lsn, length).await?;
                    &whole
                } else {
                    rest
                };
                let record = Record::decode(rest, lsn, format).ok();
                if let Some(record) = record.filter(|record| record.durable() > from) {
                    return Ok(Some((lsn, record.durable())));
                }
            }
            at += SCANNED_AT_ONCE;
        }
        Ok(None)
    }
}
