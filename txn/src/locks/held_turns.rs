//! The turns of one transaction, and the pages that other nodes are kept from meanwhile.

use std::time::Duration;

use selkie_engine::{Engine, GAddr, SharedGuard};
use selkie_fabric::env::Env;

use super::turns::{RowName, Turns};

/// A page is held for a row no longer than this.
const LONGEST_HOLD: Duration = Duration::from_millis(2);

/// Most turns of one transaction: one that changes many rows is not one of many at each.
const MOST_TURNS: usize = 16;

/// The turns of one transaction.
pub(crate) struct HeldTurns<'t> {
    turns: &'t Turns,
    engine: &'t Engine,
    /// When it took its first turn.
    since: Duration,
    /// It has taken a turn, and not read the row since.
    wants_page: bool,
    takes_none: bool,
    /// The pages that others are kept from.
    pages: Vec<GAddr>,
    /// Its number, of no other transaction; drawn when it is needed.
    owner: Option<u64>,
    names: Vec<RowName>,
}

impl<'t> HeldTurns<'t> {
    pub(crate) fn new(turns: &'t Turns, engine: &'t Engine) -> Self {
        let (since, wants_page, takes_none) = (Duration::ZERO, false, false);
        let (pages, names) = (Vec::new(), Vec::new());
        Self { turns, engine, since, wants_page, takes_none, pages, owner: None, names }
    }

    /// Whether the page that is read next is that of a row at which the transaction has its turn.
    #[inline]
    pub(crate) fn wants_page(&self) -> bool {
        self.wants_page
    }

    /// A row was read, to be changed. Keeps other nodes from its page if it is the transaction's
    /// turn there, and the page itself was read.
    #[inline]
    pub(crate) fn has_read(&mut self, page: Option<&SharedGuard<'_>>) {
        if std::mem::take(&mut self.wants_page)
            && let Some(page) = page
        {
            page.hold_for((2 * self.turns.typical()).min(LONGEST_HOLD));
            self.pages.push(page.addr());
        }
    }

    /// Of a transaction that takes none.
    pub(crate) fn none(turns: &'t Turns, engine: &'t Engine) -> Self {
        let mut none = Self::new(turns, engine);
        none.takes_none = true;
        none
    }

    /// Takes a turn at a row. Waits for it if the transaction `may_wait`; goes on without it
    /// otherwise.
    pub(crate) async fn take(
        &mut self,
        env: &Env,
        name: RowName,
        may_wait: bool,
        number: impl FnOnce() -> u64,
    ) {
        let has_enough = self.takes_none || self.names.len() >= MOST_TURNS;
        if has_enough || self.names.contains(&name) {
            return;
        }
        let owner = *self.owner.get_or_insert_with(number);
        if !self.turns.take(env, name, owner, may_wait).await {
            return;
        }
        if self.names.is_empty() {
            self.since = env.now();
        }
        self.names.push(name);
        self.wants_page = true;
    }

    /// Keeps the pages from other nodes no longer.
    pub(crate) fn end_holds(&mut self) {
        self.wants_page = false;
        self.pages.drain(..).for_each(|page| self.engine.end_hold(page));
    }

    /// Lets others have their turns.
    #[inline]
    pub(crate) fn give_back(&mut self) {
        let Some(owner) = self.owner else { return };
        let now = self.engine.env().now();
        if !self.names.is_empty() {
            self.turns.note_length(now - self.since);
        }
        self.end_holds();
        self.names.drain(..).for_each(|name| self.turns.pass_on(now, name, owner));
    }
}

impl Drop for HeldTurns<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}
