//! Making a backup: pages and logs are read at the same time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use selkie_fabric::BoxFuture;
use selkie_fabric::env::Env;
use selkie_wal::LogObjects;

use super::error::BackupError;
use super::followed_logs::FollowedLogs;
use super::image::BackupTask;
use super::manifest::{Image, Manifest};
use super::progress::{BackupReport, Watch};
use crate::access::engine::Engine;
use crate::core::Core;
use crate::error::EngineError;
use crate::join::all_of;

/// How often logs are read while pages are.
const FOLLOW_EVERY: Duration = Duration::from_millis(50);

impl Engine {
    /// Writes all pages of the pool, as they are together at a time between the call and the
    /// return, to a place in an object store that has nothing yet. Others go on. This node needs a
    /// log of the kind that the others have, unless it is alone in the pool, and must not change
    /// pages meanwhile.
    ///
    /// As many round trips as the pool has pages in use, 64 of them at a time, and for each node
    /// that has a log some every 50 ms. Takes memory for 16 MiB of pages, and 4 MiB for each log.
    ///
    /// # Errors
    /// [`BackupError`]: the place holds what was written until then, and no manifest.
    pub fn backup<'a>(
        &'a self,
        to: &'a LogObjects,
        watch: &'a dyn Watch,
    ) -> BoxFuture<'a, Result<BackupReport, BackupError>> {
        Box::pin(async move {
            let core = self.core();
            if !to.is_empty().await? {
                return Err(BackupError::Occupied { place: to.name().into() });
            }
            check_whole(core).await?;
            let started = core.env.now();
            let mut logs = FollowedLogs::begin(core, to).await?;
            let task = BackupTask { engine: self, to, is_over: AtomicBool::new(false) };
            let (image, followed) = task.read_both(&mut logs, watch).await;
            followed?;
            let image = image?;
            // Before the logs are read for the last time: what labels speak of is in them.
            let state = core.pool.state();
            logs.end(core).await?;
            let known = (core.pool.state().incarnations.clone(), state.labels.clone());
            let of = (state.id, core.cache.gcl_bytes());
            let manifest = Manifest::of(of, known, image, logs.parts());
            manifest.write(to).await?;
            let log_bytes = logs.parts().iter().map(|log| log.end - log.start).sum();
            Ok(BackupReport {
                pages: image.pages,
                image_bytes: image.bytes,
                logs: logs.parts().len(),
                log_bytes,
                took: core.env.now() - started,
            })
        })
    }
}

/// Waits until the recoveries from all dead nodes are over.
async fn check_whole(core: &Core) -> Result<(), BackupError> {
    let started = core.env.now();
    while !core.pool.lost().is_empty() {
        let waited = core.env.now() - started;
        if waited > core.config.request_timeout {
            return Err(BackupError::Recovering { waited });
        }
        core.env.sleep(core.config.tick).await;
    }
    match core.pool.lost_pages().len() {
        0 => Ok(()),
        pages => Err(BackupError::Lost { pages }),
    }
}

/// Sleeps, but not for long when it is over.
async fn sleep_unless(is_over: &AtomicBool, env: &Env, bound: Duration) {
    let until = env.now() + bound;
    while env.now() < until && !is_over.load(Ordering::Relaxed) {
        env.sleep(bound / 10).await;
    }
}

impl BackupTask<'_> {
    /// Reads pages and logs at the same time; whichever fails ends the other.
    async fn read_both(
        &self,
        logs: &mut FollowedLogs,
        watch: &dyn Watch,
    ) -> (Result<Image, BackupError>, Result<(), BackupError>) {
        let core = self.engine.core();
        let (mut image, mut followed) = (None, Ok(()));
        {
            let read: BoxFuture<'_, ()> = Box::pin(async {
                image = Some(self.read_image(watch).await);
                self.is_over.store(true, Ordering::Relaxed);
            });
            let follow: BoxFuture<'_, ()> = Box::pin(async {
                while followed.is_ok() && !self.is_over.load(Ordering::Relaxed) {
                    followed = logs.follow(core).await;
                    if followed.is_err() {
                        self.is_over.store(true, Ordering::Relaxed);
                    }
                    sleep_unless(&self.is_over, &core.env, FOLLOW_EVERY).await;
                }
            });
            all_of([read, follow].into_iter()).await;
        }
        (image.unwrap_or(Err(BackupError::Engine(EngineError::Closed))), followed)
    }
}
