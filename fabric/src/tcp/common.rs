//! What the endpoints of one process share.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::config::TcpConfig;
use super::guests::{Invitation, Revoked};
use super::others::Handlers;
use crate::env::Env;
use crate::id::PeerId;

/// Locked in this order: `met`, `fenced`, the directory of the fabric, the guests of an endpoint.
pub(super) struct Common {
    pub(super) config: TcpConfig,
    pub(super) env: Env,
    /// Who is admitted at no endpoint, those included that join later.
    pub(super) fenced: Mutex<Revoked>,
    pub(super) handlers: Handlers,
    /// How peers in other processes that were met are let in, for endpoints that join later.
    pub(super) met: Mutex<HashMap<PeerId, Invitation>>,
}

impl Common {
    pub(super) fn new(config: TcpConfig, env: Env) -> Self {
        Self {
            config,
            env,
            fenced: Mutex::default(),
            handlers: Handlers::default(),
            met: Mutex::default(),
        }
    }
}
