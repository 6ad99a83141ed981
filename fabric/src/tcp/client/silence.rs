//! For how long a peer has shown no sign of life, and what follows from that.
//!
//! Silence alone says little: a peer that stands still for a while, or a network that is cut, comes
//! back. A connection that is silent is replaced, because the system waits longer and longer before
//! it sends lost bytes again. Only a silence that is longer than it takes others to find a dead
//! peer ends the link.

use std::time::Duration;

use crate::tcp::config::TcpConfig;

/// The silence of the peer of one link.
pub(super) struct Silence {
    /// The count of its signs of life at the last look.
    signs: u64,
    /// For how long it has owed one.
    silent: Duration,
    /// For how long the present connection has been silent.
    connection: Duration,
}

/// What to do about a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SilenceVerdict {
    /// Nothing.
    Lives,
    /// The peer owes nothing: ask it for a sign of life.
    Ask,
    /// Give the connection up, and make another.
    ConnectAgain,
    /// Give the peer up.
    Dead,
}

impl Silence {
    /// Of a link that has just been found.
    pub(super) fn new(signs: u64) -> Self {
        Self { signs, silent: Duration::ZERO, connection: Duration::ZERO }
    }

    /// Judges a link, by its count of signs of life and whether the peer owes one. The driver has
    /// looked before, and was awake for `since` after that.
    pub(super) fn look(
        &mut self,
        config: &TcpConfig,
        signs: u64,
        owes: bool,
        since: Duration,
    ) -> SilenceVerdict {
        if self.signs != signs {
            *self = Self::new(signs);
            return SilenceVerdict::Lives;
        }
        if !owes {
            *self = Self::new(signs);
            return SilenceVerdict::Ask;
        }
        self.silent += since;
        self.connection += since;
        if self.silent >= config.dead_after {
            return SilenceVerdict::Dead;
        }
        if self.connection >= config.silent_after {
            self.connection = Duration::ZERO;
            return SilenceVerdict::ConnectAgain;
        }
        SilenceVerdict::Lives
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_replaced_until_the_silence_is_that_of_the_dead() {
        let ms = Duration::from_millis;
        let config = TcpConfig { silent_after: ms(100), dead_after: ms(500), ..TcpConfig::new(1) };
        let mut silence = Silence::new(7);
        let mut look = |signs, owes| silence.look(&config, signs, owes, ms(50));
        assert_eq!(look(7, false), SilenceVerdict::Ask);
        assert_eq!(
            [look(7, true), look(7, true)],
            [SilenceVerdict::Lives, SilenceVerdict::ConnectAgain]
        );
        assert_eq!(look(8, true), SilenceVerdict::Lives, "it came late");
        for _ in 0..4 {
            assert_eq!(
                [look(8, true), look(8, true)],
                [SilenceVerdict::Lives, SilenceVerdict::ConnectAgain]
            );
        }
        assert_eq!([look(8, true), look(8, true)], [SilenceVerdict::Lives, SilenceVerdict::Dead]);
        assert_eq!(look(8, false), SilenceVerdict::Ask);
        assert_eq!(look(8, true), SilenceVerdict::Lives);
    }
}
