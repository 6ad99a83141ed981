//! Wakes the waiters of this node when a lock is released on it.
//!
//! Releases on other nodes ring nothing here: a waiter looks again after a while in any case, so a
//! ring that it misses costs time only.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::env::Env;

use crate::locks::entry::LockName;

/// The waiters of this node, by the locks that they wait for.
#[derive(Default)]
pub(crate) struct LockBell(Mutex<BTreeMap<(LockName, u64), Waker>>);

/// A waiter, which is forgotten when it waits no more.
struct Listener<'d> {
    bell: &'d LockBell,
    at: (LockName, u64),
}

impl Drop for Listener<'_> {
    fn drop(&mut self) {
        self.bell.0.lock().remove(&self.at);
    }
}

impl LockBell {
    /// Wakes those who wait for a lock.
    pub(crate) fn ring(&self, name: LockName) {
        let mut waiters = self.0.lock();
        let rung: Vec<_> = waiters.range((name, 0)..=(name, u64::MAX)).map(|(at, _)| *at).collect();
        let woken: Vec<_> = rung.iter().filter_map(|at| waiters.remove(at)).collect();
        drop(waiters);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Waits for a ring, at most so long. `number` is of no other waiter.
    pub(crate) async fn wait(&self, env: &Env, name: LockName, number: u64, most: Duration) {
        let listener = Listener { bell: self, at: (name, number) };
        let (mut timer, mut listens) = (env.sleep(most), false);
        poll_fn(|cx| {
            let mut waiters = listener.bell.0.lock();
            if listens && !waiters.contains_key(&listener.at) {
                return Poll::Ready(());
            }
            listens = true;
            waiters.insert(listener.at, cx.waker().clone());
            drop(waiters);
            timer.as_mut().poll(cx)
        })
        .await;
    }
}
