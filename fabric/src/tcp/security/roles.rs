//! Roles in certificates: besides [`NODE_NAME`] a certificate carries one more name,
//! `ROLE.NODE_NAME`, as `memory.selkie-node`. Certificates without a role, or with several, are not
//! trusted.

use std::sync::Arc;

use ring::digest::{SHA256, digest};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use crate::role::{NodeCertificate, Role};

/// The name in the certificate of every node.
pub const NODE_NAME: &str = "selkie-node";

/// The name by which a certificate says that its holder has `role`.
#[must_use]
pub fn role_name(role: Role) -> String {
    format!("{role}.{NODE_NAME}")
}

/// What a certificate says of its holder; `None` if it says no role, or several. Its signature must
/// have been checked.
pub(crate) fn certificate_of(certificate: &CertificateDer<'_>) -> Option<NodeCertificate> {
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    let has = |role: &Role| {
        let name = ServerName::try_from(role_name(*role));
        name.is_ok_and(|name| verify_server_name(&parsed, &name).is_ok())
    };
    let mut roles = Role::ALL.into_iter().filter(has);
    let (role, None) = (roles.next()?, roles.next()) else { return None };
    let mut fingerprint = [0; 32];
    fingerprint.copy_from_slice(digest(&SHA256, certificate).as_ref());
    Some(NodeCertificate { role, fingerprint })
}

/// The refusal of a certificate without a role. It reaches the other side as the alert
/// `access_denied`.
fn check_role(certificate: &CertificateDer<'_>) -> Result<(), Error> {
    let has_role = certificate_of(certificate).is_some();
    has_role
        .then_some(())
        .ok_or(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
}

/// Checks of an accepting side's certificate, with its role.
#[derive(Debug)]
pub(crate) struct ServerRoles(pub(crate) Arc<WebPkiServerVerifier>);

/// Checks of a connecting side's certificate, with its role.
#[derive(Debug)]
pub(crate) struct ClientRoles(pub(crate) Arc<dyn ClientCertVerifier>);

impl ServerCertVerifier for ServerRoles {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        status: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.0.verify_server_cert(own, between, name, status, now)?;
        check_role(own).map(|()| verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, own, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, own, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

impl ClientCertVerifier for ClientRoles {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.0.verify_client_cert(own, between, now)?;
        check_role(own).map(|()| verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, own, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, own, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
