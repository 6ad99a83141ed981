//! Securing the connections of clients by TLS 1.3.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, version};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Why a certificate or its key is of no use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or does not hold what it should.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: String,
    },
    /// The certificate and the key do not fit, or are of a kind that cannot be used.
    #[error("{certificate} with {key}: {error}")]
    Pair {
        /// The certificate.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
        /// What is wrong.
        error: rustls::Error,
    },
}

/// What clients are shown.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    binding: Option<Arc<[u8]>>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Tls {
    /// Of two files in PEM: the certificate, with those between it and its authority behind it, and
    /// its key.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let failed = |path: &Path, error: String| TlsError::File { path: path.into(), error };
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| failed(certificate, error.to_string()))?;
        let Some(own) = chain.first() else {
            return Err(failed(certificate, "there is no certificate in it".to_owned()));
        };
        let binding = tls_server_end_point(own);
        let secret = PrivateKeyDer::from_pem_file(key);
        let secret = secret.map_err(|error| failed(key, error.to_string()))?;
        let pair =
            |error| TlsError::Pair { certificate: certificate.into(), key: key.into(), error };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])
            .map_err(pair)?
            .with_no_client_auth()
            .with_single_cert(chain, secret)
            .map_err(pair)?;
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), binding })
    }

    /// What channel binding is to: the hash of the certificate (RFC 5929 §4).
    pub(crate) fn binding(&self) -> Option<&[u8]> {
        self.binding.as_deref()
    }

    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.acceptor.accept(stream).await
    }
}

/// What channel binding is to on both sides: the hash of the certificate of the server, by that
/// with which it is signed, SHA-256 instead of one that is weaker. `None` for a signature without a
/// hash of its own, as Ed25519, and for what is no certificate.
#[must_use]
pub fn tls_server_end_point(certificate: &[u8]) -> Option<Arc<[u8]>> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let algorithm = match &*parsed.signature_algorithm.algorithm.to_id_string() {
        // RSA and ECDSA, with MD5, SHA-1 and SHA-256.
        "1.2.840.113549.1.1.4"
        | "1.2.840.113549.1.1.5"
        | "1.2.840.113549.1.1.11"
        | "1.2.840.10045.4.1"
        | "1.2.840.10045.4.3.2" => &ring::digest::SHA256,
        "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" => &ring::digest::SHA384,
        "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" => &ring::digest::SHA512,
        _ => return None,
    };
    Some(ring::digest::digest(algorithm, certificate).as_ref().into())
}
