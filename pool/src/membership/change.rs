//! Changes of the document by compare-and-swap.

use std::sync::Arc;

use crate::control::{ControlPlane, Versioned};
use crate::document::PoolState;
use crate::error::PoolError;

/// How often a change is tried while others change the state too.
pub const ATTEMPTS: usize = 1_000;

/// Changes the state that `plane` keeps by compare-and-swap, again if others were faster.
pub async fn change_state<T>(
    plane: &dyn ControlPlane,
    change: impl Fn(&mut PoolState) -> Result<T, PoolError>,
) -> Result<(Versioned, T), PoolError> {
    for _ in 0..ATTEMPTS {
        let now = plane.load().await?;
        let mut state = PoolState::clone(&now.state);
        let value = change(&mut state)?;
        if state == *now.state {
            return Ok((now, value));
        }
        if let Some(version) = plane.replace(now.version, state.clone()).await? {
            return Ok((Versioned { version, state: Arc::new(state) }, value));
        }
    }
    Err(PoolError::Contended { attempts: ATTEMPTS })
}
