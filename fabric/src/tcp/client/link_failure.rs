//! Why a send or a receive ends its connection, or its link.

use rustix::io::Errno;

use crate::error::Refusal;
use crate::id::PeerId;
use crate::role::NodeCertificate;
use crate::tcp::security::certificates::Security;
use crate::tcp::transport::pipe::{Pipe, ReceiveError};
use crate::tcp::wire::error::WireError;
use crate::tls_error::{CertificateFault, CertificateOwner, TlsError};

/// Why a connection, or with it the link, ends.
pub(crate) enum LinkFailure {
    /// The connection is closed or broken, or the link has ended already. The session may go on
    /// over another connection.
    Closed,
    /// No process listens where the peer is.
    NotListening,
    Refused(Refusal),
    Tls(TlsError),
    Wire(WireError),
}

impl LinkFailure {
    /// Of a send that failed for good.
    pub(crate) fn of_send(error: Errno) -> Self {
        if error == Errno::CONNREFUSED { Self::NotListening } else { Self::Closed }
    }
}

impl From<WireError> for LinkFailure {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

impl From<ReceiveError> for LinkFailure {
    fn from(lost: ReceiveError) -> Self {
        match lost {
            ReceiveError::Closed => Self::Closed,
            ReceiveError::NotListening => Self::NotListening,
            ReceiveError::Tls(why) => Self::Tls(why),
        }
    }
}

/// Refuses a peer whose certificate is not of a role that it can have.
pub(crate) fn check_role(
    security: Option<&Security>,
    pipe: &Pipe,
    peer: PeerId,
) -> Result<(), LinkFailure> {
    match security.and_then(|own| own.of_another(pipe.certificate())) {
        Some(NodeCertificate { role, .. }) if !role.may_be(peer) => {
            let fault = CertificateFault::WrongRole(role);
            let owner = CertificateOwner::Theirs;
            Err(LinkFailure::Tls(TlsError::Certificate { owner, fault }))
        }
        _ => Ok(()),
    }
}
