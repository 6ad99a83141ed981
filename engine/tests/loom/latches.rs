//! The latch of a frame: who is in together, what they see, and who is told when it is free.

use std::sync::Arc;

use loom::sync::Notify;
use loom::thread;

use crate::coherence::machine::LocalUse;
use crate::frame::Page;
use crate::latch::{FrameLatch, Permissions, Released};
use crate::sync::Mutex;
use crate::{joined, model};

/// A frame that one line keeps, and what the line's shard has of it.
struct Line {
    latch: FrameLatch,
    page: Page,
    /// Whether the latch has a waiter.
    shard: Mutex<bool>,
    told: Notify,
}

impl Line {
    fn allowing(readable: bool, writable: bool) -> Arc<Self> {
        let (latch, page) = (FrameLatch::default(), Page::default());
        let _ = latch.publish(Permissions { readable, writable, pending: false });
        let line = Self { latch, page, shard: Mutex::default(), told: Notify::new() };
        Arc::new(line)
    }

    /// Adds one to the page. Whether the latch was free.
    fn write(&self) -> bool {
        let is_in = self.latch.try_exclusive_fast();
        if is_in {
            self.page.write(self.page.read() + 1);
            self.let_go(self.latch.unlock_exclusive());
        }
        is_in
    }

    /// Reads the page twice. Whether the latch let it in.
    fn read(&self) -> bool {
        let is_in = self.latch.try_shared_fast();
        if is_in {
            let before = self.page.read();
            assert_eq!(self.page.read(), before, "it has changed under a shared latch");
            self.let_go(self.latch.unlock_shared());
        }
        is_in
    }

    /// As guards do: the waiter is told under the lock of the shard.
    fn let_go(&self, released: Released) {
        if released == Released::Notify && *self.shard.lock() {
            self.told.notify();
        }
    }

    /// As callers on the slow path: latches the page, and waits for it if need be.
    fn acquire(&self, exclusive: bool) {
        loop {
            let mut waits = self.shard.lock();
            let _ = self.latch.seal();
            let is_in = self.latch.try_sealed(exclusive);
            *waits = !is_in;
            let to = Permissions { readable: true, writable: true, pending: !is_in };
            let now = self.latch.publish(to);
            drop(waits);
            if is_in {
                return;
            }
            // A holder that let go between seal and publish did not know of the waiter.
            if now != LocalUse::Idle {
                self.told.wait();
            }
        }
    }

    /// The holders are gone, all of them, and there is no waiter.
    fn assert_free(&self) {
        assert_eq!(self.latch.in_use(), LocalUse::Idle);
        assert!(self.latch.try_exclusive_fast(), "a count was lost");
    }
}

/// Runs this on a thread of its own.
fn on<T: 'static>(
    line: &Arc<Line>,
    body: impl FnOnce(&Line) -> T + 'static,
) -> thread::JoinHandle<T> {
    let line = Arc::clone(line);
    thread::spawn(move || body(&line))
}

#[test]
fn a_writer_is_alone_and_sees_what_others_wrote() {
    model(3, || {
        let line = Line::allowing(true, true);
        let (other, reader) = (on(&line, Line::write), on(&line, Line::read));
        let own = line.write();
        let other = other.join().unwrap();
        reader.join().unwrap();
        line.assert_free();
        assert_eq!(line.page.read(), u64::from(own) + u64::from(other));
    });
}

#[test]
fn readers_are_in_together_and_are_counted() {
    model(3, || {
        let line = Line::allowing(true, false);
        let others = [on(&line, Line::read), on(&line, Line::read)];
        assert!(line.read(), "there is no writer");
        assert!(joined(others).iter().all(|is_in| *is_in));
        assert_eq!(line.latch.in_use(), LocalUse::Idle);
    });
}

#[test]
fn a_reader_becomes_the_only_writer_and_a_reader_again() {
    model(3, || {
        let line = Line::allowing(true, true);
        let others = [on(&line, |line| line.read().into()), on(&line, |line| line.write().into())];
        let mut own = 0_u64;
        if line.latch.try_shared_fast() {
            let before = line.page.read();
            let shard = line.shard.lock();
            let _ = line.latch.seal();
            let is_alone = line.latch.try_upgrade_sealed();
            let to = Permissions { readable: true, writable: true, pending: false };
            let _ = line.latch.publish(to);
            drop(shard);
            assert_eq!(line.page.read(), before, "the shared latch was not kept");
            if is_alone {
                own = 1;
                line.page.write(before + own);
                line.let_go(line.latch.downgrade());
                assert_eq!(line.page.read(), before + own);
            }
            line.let_go(line.latch.unlock_shared());
        }
        let [_, other]: [u64; 2] = joined(others);
        line.assert_free();
        assert_eq!(line.page.read(), own + other);
    });
}

#[test]
fn a_page_that_was_fetched_is_seen_by_whoever_may_read_it() {
    model(3, || {
        let line = Line::allowing(false, false);
        let readers = [on(&line, Line::read), on(&line, Line::read)];
        {
            let _shard = line.shard.lock();
            assert_eq!(line.latch.seal(), LocalUse::Idle);
            line.page.write(1);
            let to = Permissions { readable: true, writable: false, pending: false };
            let _ = line.latch.publish(to);
        }
        joined(readers);
    });
}

#[test]
fn a_page_is_replaced_once_the_seal_finds_it_idle() {
    model(3, || {
        let line = Line::allowing(true, true);
        let others = [on(&line, Line::read), on(&line, Line::write)];
        {
            let _shard = line.shard.lock();
            if line.latch.seal() == LocalUse::Idle {
                line.page.write(7);
            }
            let to = Permissions { readable: true, writable: true, pending: false };
            let _ = line.latch.publish(to);
        }
        joined(others);
        line.assert_free();
    });
}

/// A waiter and two holders; a wake-up that is lost is a deadlock, which loom reports.
fn a_waiter_is_told(exclusive: bool, first: fn(&Line) -> bool, second: fn(&Line) -> bool) {
    model(3, move || {
        let line = Line::allowing(true, true);
        let others = [on(&line, first), on(&line, second)];
        line.acquire(exclusive);
        let value = line.page.read();
        let released = if exclusive {
            line.page.write(value + 1);
            line.latch.unlock_exclusive()
        } else {
            assert_eq!(line.page.read(), value, "it has changed under a shared latch");
            line.latch.unlock_shared()
        };
        line.let_go(released);
        joined(others);
        line.assert_free();
    });
}

#[test]
fn a_waiting_writer_is_told_by_the_last_of_two_readers() {
    a_waiter_is_told(true, Line::read, Line::read);
}

#[test]
fn a_waiting_writer_is_told_by_a_writer_or_a_reader() {
    a_waiter_is_told(true, Line::write, Line::read);
}

#[test]
fn a_waiting_reader_is_told_by_a_writer() {
    a_waiter_is_told(false, Line::write, Line::write);
}

#[test]
fn a_waiter_is_told_by_a_writer_that_becomes_a_reader() {
    let downgrades = |line: &Line| {
        let is_in = line.latch.try_exclusive_fast();
        if is_in {
            line.page.write(1);
            line.let_go(line.latch.downgrade());
            assert_eq!(line.page.read(), 1);
            line.let_go(line.latch.unlock_shared());
        }
        is_in
    };
    a_waiter_is_told(false, downgrades, Line::read);
}
