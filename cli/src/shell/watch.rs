//! How far a server is with an index that it builds: asked beside the statement that waits for it,
//! by a session of its own, as that statement says nothing before its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::backend::Kept;
use super::busy::Busy;
use super::statements::first_word;
use crate::wire::{Client, Wish};

/// How often it is asked. What is over sooner is not asked of at all.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Words of a statement, with those of a comment before it, among which INDEX is looked for.
const FIRST_WORDS: usize = 8;
/// How often it is looked whether the statement is over.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Asks until it is dropped.
pub(super) struct Watch {
    is_over: Arc<AtomicBool>,
}

impl Watch {
    /// Watches a statement that a session is about to run, if it may build an index. Where a server
    /// lets in no second session, or the system gives no thread, nothing is shown.
    pub(super) fn begin(text: &str, client: &Client, busy: &Arc<Busy>) -> Option<Self> {
        if !builds_index(text) {
            return None;
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let own = Self { is_over: Arc::clone(&is_over) };
        let (connect, process, busy) = (client.beside(), client.process(), Arc::clone(busy));
        let watch = move || {
            if waits(&is_over)
                && let Ok(mut client) = connect()
            {
                while ask(&mut client, process, &busy, &is_over) && waits(&is_over) {}
            }
        };
        // Nobody waits for it: it ends by itself, soon after the statement.
        thread::Builder::new().name("watch".to_owned()).spawn(watch).ok()?;
        Some(own)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Whether a text is CREATE INDEX, as far as its first words tell.
fn builds_index(text: &str) -> bool {
    let is_index = |word: &str| word.eq_ignore_ascii_case("index");
    first_word(text) == "create" && text.split_whitespace().take(FIRST_WORDS).any(is_index)
}

/// Waits until it is time to ask; whether the statement still runs then.
fn waits(is_over: &AtomicBool) -> bool {
    let until = Instant::now() + ASK_EVERY;
    while !is_over.load(Ordering::Relaxed) {
        if Instant::now() >= until {
            return true;
        }
        thread::sleep(LOOK_EVERY);
    }
    false
}

/// Asks once. Whether it makes sense to ask again.
fn ask(client: &mut Client, process: i32, busy: &Busy, is_over: &AtomicBool) -> bool {
    let sql = format!(
        "SELECT tuples_done, tuples_total FROM pg_catalog.pg_stat_progress_create_index \
         WHERE pid = {process} AND tuples_total > 0"
    );
    let kept = Kept::default();
    let mut look = || if is_over.load(Ordering::Relaxed) { Wish::Leave } else { Wish::Wait };
    if client.run(&sql, &kept, &mut look).is_err() {
        return false;
    }
    for row in kept.into_answer().rows {
        let number = |at: usize| row.get(at)?.as_deref()?.parse().ok();
        if let (Some(done), Some(total)) = (number(0), number(1)) {
            busy.count_rows(done, total);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_builds_an_index_is_told_by_its_first_words() {
        for text in [
            "create index on t (a)",
            "CREATE UNIQUE\n INDEX i on t (a)",
            "/* so */ create index i on t(a)",
        ] {
            assert!(builds_index(text), "{text}");
        }
        for text in ["create table t (index int)", "select 'create index'", "drop index i"] {
            assert!(!builds_index(text), "{text}");
        }
    }
}
