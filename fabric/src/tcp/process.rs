//! State that all endpoints of one process share.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::config::TcpConfig;
use super::server::admissions::{Invitation, RevokedIncarnations};
use super::server::port_mux::ProtocolHandlers;
use crate::env::Env;
use crate::id::PeerId;

/// Lock order: `cards`, `fenced`, the directory of the fabric, the admissions of an endpoint.
pub(super) struct ProcessState {
    pub(super) config: TcpConfig,
    pub(super) env: Env,
    /// Incarnations that no endpoint admits, also no endpoint that joins later.
    pub(super) fenced: Mutex<RevokedIncarnations>,
    pub(super) handlers: ProtocolHandlers,
    /// Invitations of the peers whose access cards are known, for endpoints that join later.
    pub(super) cards: Mutex<HashMap<PeerId, Invitation>>,
}

impl ProcessState {
    pub(super) fn new(config: TcpConfig, env: Env) -> Self {
        Self {
            config,
            env,
            fenced: Mutex::default(),
            handlers: ProtocolHandlers::default(),
            cards: Mutex::default(),
        }
    }
}
