//! TLS 1.3 to a server, and whose certificate is believed.

use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme, StreamOwned, version,
};

use super::address::{Address, SslMode};

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("{}: {error}", path.display())]
    Root { path: PathBuf, error: String },
    #[error(
        "sslmode={0} needs the certificate of an authority: give sslrootcert=FILE, or keep it in ~/.postgresql/root.crt"
    )]
    NoRoot(&'static str),
    #[error("{0} is no name that a certificate can be for")]
    Name(String),
    #[error("its certificate is not believed: {}", wrong_with(.0))]
    Certificate(CertificateError),
    #[error(transparent)]
    Other(#[from] Error),
}

/// A connection that is secured.
pub(super) type Secured = StreamOwned<ClientConnection, TcpStream>;

/// Where libpq keeps the certificate of the authority.
fn root_of_user() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
    Some(PathBuf::from(home).join(".postgresql").join("root.crt")).filter(|file| file.exists())
}

/// The TLS of a connection that begins.
///
/// # Errors
/// [`TlsError`].
pub(super) fn secured(
    address: &Address,
    host: &str,
    stream: TcpStream,
) -> Result<Secured, TlsError> {
    let root = address.root.clone().or_else(root_of_user);
    let (root, checks_name) = match (address.ssl, root) {
        // A certificate that is given is meant.
        (SslMode::Require | SslMode::VerifyCa, Some(root)) => (Some(root), false),
        (SslMode::VerifyFull, Some(root)) => (Some(root), true),
        (SslMode::VerifyCa, None) => return Err(TlsError::NoRoot("verify-ca")),
        (SslMode::VerifyFull, None) => return Err(TlsError::NoRoot("verify-full")),
        _ => (None, false),
    };
    let believed = root.as_deref().map(Believed::load).transpose()?;
    let provider = Arc::new(ring::default_provider());
    let verifier =
        Verifier { believed, checks_name, algorithms: provider.signature_verification_algorithms };
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned());
    let name = name.map_err(|_| TlsError::Name(host.to_owned()))?;
    Ok(StreamOwned::new(ClientConnection::new(Arc::new(config), name)?, stream))
}

/// What the handshake has failed by.
pub(super) fn of_handshake(error: &io::Error) -> Option<TlsError> {
    let own = error.get_ref()?.downcast_ref::<Error>()?.clone();
    Some(match own {
        Error::InvalidCertificate(why) => TlsError::Certificate(why),
        own => TlsError::Other(own),
    })
}

/// What is wrong with a certificate.
fn wrong_with(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => "no authority that is given has signed it".to_owned(),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another name".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired".to_owned()
        }
        error => error.to_string(),
    }
}

/// The certificates of a file.
#[derive(Debug)]
struct Believed {
    /// What they have signed is believed.
    roots: RootCertStore,
    /// And they themselves: the certificate of a server may be its own authority.
    own: Vec<CertificateDer<'static>>,
}

impl Believed {
    fn load(path: &Path) -> Result<Self, TlsError> {
        let failed = |error: String| TlsError::Root { path: path.into(), error };
        let own = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| failed(error.to_string()))?;
        if own.is_empty() {
            return Err(failed("there is no certificate in it".to_owned()));
        }
        let mut roots = RootCertStore::empty();
        for certificate in &own {
            roots.add(certificate.clone()).map_err(|error| failed(error.to_string()))?;
        }
        Ok(Self { roots, own })
    }
}

/// Decides whether a certificate is believed.
#[derive(Debug)]
struct Verifier {
    /// `None`: whatever it is. Who listens on the way is kept out, who stands between is not.
    believed: Option<Believed>,
    checks_name: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(believed) = &self.believed else { return Ok(ServerCertVerified::assertion()) };
        let certificate = ParsedCertificate::try_from(end_entity)?;
        if !believed.own.iter().any(|own| **own == **end_entity) {
            let (roots, all) = (&believed.roots, self.algorithms.all);
            verify_server_cert_signed_by_trust_anchor(
                &certificate,
                roots,
                intermediates,
                now,
                all,
            )?;
        }
        if self.checks_name {
            verify_server_name(&certificate, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 was not offered".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
