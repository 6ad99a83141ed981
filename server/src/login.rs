//! Letting a client in: as anyone as long as there are no roles, else as the role that it proves
//! to be.

use std::time::Duration;

use bytes::Bytes;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::startup::Authentication;
use selkie_sql::{
    Clock, LogIn, ProvenRole, RoleLogIn, Session, SqlError, SqlResult, SqlState, log_in,
};
use selkie_txn::Database;

use crate::frames::{FrameError, Frames};
use crate::frontend::{Fields, violation};
use crate::output::Output;
use crate::scram::{Exchange, PLAIN, PLUS, nonce};

/// How long a client waits that has not shown a password, before it is told so.
const PAUSE: Duration = Duration::from_millis(500);

/// What is known of a client that has not been let in.
pub(crate) struct Newcomer<'c> {
    pub(crate) user: &'c str,
    /// Whether it comes from this machine.
    pub(crate) is_local: bool,
    /// The hash of our certificate, if the connection is secured and it has one that can be bound
    /// to.
    pub(crate) certificate: Option<&'c [u8]>,
}

/// The session of a client that is let in.
pub(crate) async fn let_in(
    database: &Database,
    clock: Clock,
    newcomer: &Newcomer<'_>,
    frames: &mut Frames,
    output: &Output,
) -> Result<Session, FrameError> {
    let wanted = log_in(database, newcomer.user, clock()).await.map_err(FrameError::Broken)?;
    let role = match wanted {
        LogIn::Open if newcomer.is_local => {
            return Session::new(database, newcomer.user, clock).map_err(FrameError::Broken);
        }
        LogIn::Open => {
            let message = "there are no roles yet, so clients of this machine only are let in";
            let error = SqlError::new(SqlState::INVALID_AUTHORIZATION, message);
            return Err(FrameError::Broken(error));
        }
        LogIn::Role(role) => role,
    };
    match prove(&role, newcomer, frames, output).await {
        Ok(role) => Session::of_role(database, &role, clock).map_err(FrameError::Broken),
        Err(FrameError::Broken(error)) => {
            // In a task of its own, as each connection is: nobody else waits.
            tokio::time::sleep(PAUSE).await;
            Err(FrameError::Broken(error))
        }
        Err(gone) => Err(gone),
    }
}

/// Lets the client prove that it is a role.
async fn prove(
    role: &RoleLogIn,
    newcomer: &Newcomer<'_>,
    frames: &mut Frames,
    output: &Output,
) -> Result<ProvenRole, FrameError> {
    let offered = [newcomer.certificate.map(|_| PLUS), Some(PLAIN)];
    let offered = offered.into_iter().flatten().map(str::to_owned).collect();
    send(output, Authentication::SASL(offered)).await?;
    let first = frames.password().await?;
    let (mechanism, data) = initial_response(first).map_err(FrameError::Broken)?;
    let own_nonce = nonce().map_err(FrameError::Broken)?;
    let begun =
        Exchange::begin(role.verifier(), &mechanism, &data, newcomer.certificate, &own_nonce);
    let exchange = begun.map_err(FrameError::Broken)?;
    let answer = Bytes::copy_from_slice(exchange.server_first().as_bytes());
    send(output, Authentication::SASLContinue(answer)).await?;
    let last = frames.password().await?;
    let proof = exchange.finish(&last).map_err(FrameError::Broken)?;
    let proven = role.check(proof.auth_message.as_bytes(), &proof.proof);
    let proven = proven.map_err(FrameError::Broken)?;
    // It goes out with what follows.
    let answer = Authentication::SASLFinal(Bytes::from(exchange.server_final(&proof)));
    output.send(&PgWireBackendMessage::Authentication(answer));
    Ok(proven)
}

async fn send(output: &Output, message: Authentication) -> Result<(), FrameError> {
    output.send(&PgWireBackendMessage::Authentication(message));
    Ok(output.write().await?)
}

/// The mechanism that a client has chosen, and its first message.
fn initial_response(body: Bytes) -> SqlResult<(String, Bytes)> {
    let mut fields = Fields(body);
    let mechanism = fields.text()?;
    if mechanism != PLAIN && mechanism != PLUS {
        return Err(violation("client selected an invalid SASL authentication mechanism"));
    }
    let length = fields.i32()?;
    let rest = fields.0;
    match usize::try_from(length) {
        Ok(length) if length == rest.len() => Ok((mechanism, rest)),
        // The mechanism lets the client speak first.
        _ => Err(violation("malformed SASL initial response")),
    }
}
