//! Latches a page that is written anew, whatever it was.

use std::time::Duration;

use super::engine::Engine;
use super::guard::ExclusiveGuard;
use crate::{EngineError, GAddr};

/// The longest wait until a page that is lost with a dead node is given up, and the interval of
/// looks.
const GIVEN_UP_WITHIN: Duration = Duration::from_secs(5);
const GIVEN_UP_LOOK: Duration = Duration::from_millis(50);

impl Engine {
    /// As [`Engine::exclusive`], for a caller that writes the page anew, whatever it was: one that
    /// was lost for good is usable again, with bytes that it had at any time before.
    ///
    /// # Errors
    /// As [`Engine::shared`].
    pub async fn exclusive_anew(&self, addr: GAddr) -> Result<ExclusiveGuard<'_>, EngineError> {
        let core = self.core();
        let started = core.env.now();
        loop {
            match self.exclusive(addr).await {
                Err(EngineError::PageLost { node: None, .. }) => {
                    core.config.check_writes()?;
                    core.renew_lost(addr).await?;
                    return self.exclusive(addr).await;
                }
                // A recovery that is about to end may give it up, or bring it back.
                Err(EngineError::PageLost { .. }) if core.env.now() - started < GIVEN_UP_WITHIN => {
                    core.env.sleep(GIVEN_UP_LOOK).await;
                }
                latched => return latched,
            }
        }
    }
}
