//! Why a receive ends its link.

use crate::error::FabricError;
use crate::tcp::transport::pipe::ReceiveError;
use crate::tcp::wire::error::WireError;
use crate::tls_error::TlsError;

/// Why a link ends.
pub(crate) enum LinkFailure {
    /// The peer closed the connection, or the link has ended already.
    Closed,
    Refused(FabricError),
    Tls(TlsError),
    Wire(WireError),
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
            ReceiveError::Tls(why) => Self::Tls(why),
        }
    }
}
