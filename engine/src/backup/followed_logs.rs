//! Reading what is added to the logs of all nodes while a backup is made.
//!
//! What is read of a log is written to the backup record by record, with places of its own: there
//! it begins where every log does, and has no full-page images.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use selkie_pool::control::PoolState;
use selkie_wal::{FIRST_LSN, LogObjects, LogOwner, LogStore};

use super::barrier::{Announced, latest};
use super::error::BackupError;
use super::followed_log::{FollowedLog, PAUSE};
use super::manifest::BackedUpLog;
use crate::core::Core;
use crate::join::all_of;

/// The logs of all nodes but this one.
pub(super) struct FollowedLogs {
    to: LogObjects,
    followed: Vec<FollowedLog>,
    /// The nodes of each number that are known, or were there before.
    known: BTreeMap<u16, u32>,
}

impl FollowedLogs {
    /// Notes where the logs of the nodes in the pool end.
    ///
    /// # Errors
    /// [`BackupError::NoLog`] if a node has no log that can be read.
    pub(super) async fn begin(core: &Core, to: &LogObjects) -> Result<Self, BackupError> {
        let state = core.pool.state();
        let mut logs =
            Self { to: to.clone(), followed: Vec::new(), known: state.incarnations.clone() };
        let me = core.index().get();
        let others = state.compute_nodes.iter().filter(|(node, _)| **node != me);
        for (node, member) in others.filter(|(node, _)| !state.only_recovers(**node)) {
            let owner = core.owner_of(*node, member.incarnation);
            let store = core.log_store().ok_or(BackupError::NoLog { node: *node })?;
            let started = core.env.now();
            // A node that has just joined may be about to open its log. It says that it keeps one
            // as soon as it is in, so one that has not said so for a lease keeps none.
            let last = loop {
                if let Some(last) = store.pieces(owner).await?.last() {
                    break *last;
                }
                let keeps_one = core.pool.state().keeps_log(*node, member.incarnation);
                let bound =
                    if keeps_one { core.config.request_timeout } else { state.timing.lease };
                if core.env.now() - started > bound {
                    return Err(BackupError::NoLog { node: *node });
                }
                core.env.sleep(PAUSE).await;
            };
            let mut log = FollowedLog::new(owner, last, to.create(owner).await?);
            log.read(core, &*store, false).await?;
            log.start = log.at;
            logs.followed.push(log);
        }
        Ok(logs)
    }

    /// Reads added records, also of nodes that have joined.
    ///
    /// # Errors
    /// [`BackupError::Cut`], or that something cannot be read or written.
    pub(super) async fn follow(&mut self, core: &Core) -> Result<(), BackupError> {
        self.note_who_came(core, &core.pool.state()).await?;
        self.read_on(core).await
    }

    async fn read_on(&mut self, core: &Core) -> Result<(), BackupError> {
        let Some(store) = core.log_store() else { return self.check_alone() };
        let (to, open) = (&self.to, self.followed.iter_mut().filter(|log| !log.is_read()));
        let all = all_of(open.map(|log| log.follow(core, &*store, to))).await;
        all.into_iter().collect()
    }

    /// Reads the logs up to a snapshot barrier that all nodes mark, and those of nodes that are
    /// gone to their ends.
    ///
    /// # Errors
    /// As [`FollowedLogs::follow`]; [`BackupError::NoSnapshotBarrier`] if they do not mark one
    /// together within the request timeout.
    pub(super) async fn end(&mut self, core: &Core) -> Result<(), BackupError> {
        let (started, bound) = (core.env.now(), core.pool.state().timing.barrier_bound());
        loop {
            self.follow(core).await?;
            // One that has not begun its log may be long about it, and others would wait for that.
            let is_late = |log: &&FollowedLog| !log.is_over && !log.has_begun;
            let late = self.followed.iter().find(is_late).map(|log| log.owner.node);
            if late.is_none() && self.read_to_barrier(core).await? {
                break;
            }
            let waited = core.env.now() - started;
            if waited > core.config.request_timeout {
                return Err(late.map_or_else(
                    || BackupError::NoSnapshotBarrier { node: self.unmarked(), waited },
                    |node| BackupError::NoLog { node },
                ));
            }
            // Others go on for longer than they had to wait.
            core.env.sleep(if late.is_none() { 2 * bound } else { PAUSE }).await;
        }
        for log in &mut self.followed {
            log.write(core).await?;
        }
        Ok(())
    }

    /// A node that has not marked the last announced barrier.
    fn unmarked(&self) -> Option<u16> {
        let is_unmarked = |log: &&FollowedLog| log.until.is_some() && !log.is_read();
        self.followed.iter().find(is_unmarked).map(|log| log.owner.node)
    }

    /// Announces a barrier, and reads the logs up to it. Returns whether that is one to which they
    /// all go together.
    async fn read_to_barrier(&mut self, core: &Core) -> Result<bool, BackupError> {
        let until = core.env.now() + core.pool.state().timing.barrier_bound();
        let Some((barrier, asked)) = Announced::begin(core).await? else { return Ok(false) };
        let were_over: BTreeSet<LogOwner> =
            self.followed.iter().filter(|log| log.is_over).map(|log| log.owner).collect();
        let is_read = self.until_marked(core, (barrier.number, &asked), until).await?;
        let (was_it, now) = (barrier.end().await?, latest(core).await?);
        let Some(now) = now.filter(|_| was_it && is_read) else { return Ok(false) };
        // What one has changed after its mark that died may have gone to others before they marked.
        let all_live =
            self.followed.iter().all(|log| were_over.contains(&log.owner) || log.lives(&now));
        let new_ones_live = now.incarnations.iter().all(|(node, last)| {
            asked.incarnations.get(node) == Some(last)
                || now.compute_nodes.get(node).is_some_and(|member| member.incarnation == *last)
        });
        Ok(all_live && new_ones_live)
    }

    /// Reads up to the marks of all nodes that were in the pool when they were asked for; whether
    /// they are there by then.
    async fn until_marked(
        &mut self,
        core: &Core,
        (number, asked): (u64, &PoolState),
        until: Duration,
    ) -> Result<bool, BackupError> {
        self.note_who_came(core, asked).await?;
        for log in &mut self.followed {
            log.until = Some(number);
        }
        loop {
            self.read_on(core).await?;
            let is_late = core.env.now() > until;
            if is_late || self.followed.iter().all(FollowedLog::is_read) {
                return Ok(!is_late);
            }
            core.env.sleep(PAUSE).await;
        }
    }

    /// What was read.
    pub(super) fn parts(&self) -> Vec<BackedUpLog> {
        let part = |log: &FollowedLog| BackedUpLog {
            node: log.owner.node,
            incarnation: log.owner.incarnation,
            start: FIRST_LSN,
            end: log.written,
            read_from: log.start,
            read_to: log.at,
        };
        self.followed.iter().map(part).collect()
    }

    /// Checks that no other node is in a pool without logs.
    fn check_alone(&self) -> Result<(), BackupError> {
        match self.followed.first() {
            Some(log) => Err(BackupError::NoLog { node: log.owner.node }),
            None => Ok(()),
        }
    }

    async fn note_who_came(&mut self, core: &Core, state: &PoolState) -> Result<(), BackupError> {
        let me = core.index().get();
        for (node, last) in state.incarnations.iter().filter(|(node, _)| **node != me) {
            let known = self.known.insert(*node, *last).unwrap_or_default();
            if state.only_recovers(*node) {
                continue;
            }
            for incarnation in known + 1..=*last {
                let owner = core.owner_of(*node, incarnation);
                let sink = self.to.create(owner).await?;
                self.followed.push(FollowedLog::new(owner, FIRST_LSN, sink));
            }
        }
        Ok(())
    }
}

impl Core {
    fn owner_of(&self, node: u16, incarnation: u32) -> LogOwner {
        let (pool, line_bytes) = (self.pool.state().id, self.cache.gcl_bytes() as u32);
        LogOwner { pool, node, incarnation, line_bytes }
    }
}
