//! What the endpoints of one process share.

use parking_lot::Mutex;

use super::config::TcpConfig;
use super::guests::Revoked;
use super::others::Handlers;
use crate::env::Env;

/// Locked in this order: `fenced`, the directory of the fabric, the guests of an endpoint.
pub(super) struct Common {
    pub(super) config: TcpConfig,
    pub(super) env: Env,
    /// Who is admitted at no endpoint, those included that join later.
    pub(super) fenced: Mutex<Revoked>,
    pub(super) handlers: Handlers,
}

impl Common {
    pub(super) fn new(config: TcpConfig, env: Env) -> Self {
        Self { config, env, fenced: Mutex::default(), handlers: Handlers::default() }
    }
}
