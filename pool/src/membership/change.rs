//! Changes of the document by compare-and-swap.

use std::sync::Arc;

use selkie_fabric::BoxFuture;

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
        let (now, mut state) = load(plane).await?;
        let value = change(&mut state)?;
        if let Some(now) = replace(plane, now, state).await? {
            return Ok((now, value));
        }
    }
    Err(PoolError::Contended { attempts: ATTEMPTS })
}

/// The state that `plane` keeps, and a copy to change. Boxed, as `replace`, so that no other crate
/// compiles what copies and compares states.
fn load(plane: &dyn ControlPlane) -> BoxFuture<'_, Result<(Versioned, Box<PoolState>), PoolError>> {
    Box::pin(async move {
        let now = plane.load().await?;
        let state = Box::new(PoolState::clone(&now.state));
        Ok((now, state))
    })
}

/// Keeps `state` in place of `now`. `None`: another change was faster.
fn replace(
    plane: &dyn ControlPlane,
    now: Versioned,
    state: Box<PoolState>,
) -> BoxFuture<'_, Result<Option<Versioned>, PoolError>> {
    Box::pin(async move {
        if *state == *now.state {
            return Ok(Some(now));
        }
        let version = plane.replace(now.version, PoolState::clone(&state)).await?;
        Ok(version.map(|version| Versioned { version, state: Arc::from(state) }))
    })
}
