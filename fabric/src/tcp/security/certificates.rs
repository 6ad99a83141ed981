//! `Security`: the certificates of a node, and what it demands of the certificates of others.
//!
//! A pool has one *authority*. Every node has its certificate; a process that has its key can make
//! nodes. Both sides of a connection show a certificate that the authority signed, for the one name
//! [`NODE_NAME`] and for that of one role (`roles`). The name of the node in the pool and its
//! access keys say which node it is. TLS 1.3 only. No session is resumed, so an expired certificate
//! opens no further connection.
//!
//! The calendar of the system decides whether a certificate is valid now: clocks of environments
//! have no dates.

use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
};

use super::roles::{ClientRoles, NODE_NAME, ServerRoles, certificate_of};
use super::tls::{Tls, tls_error};
use crate::role::NodeCertificate;
use crate::stream::Stream;
use crate::tcp::transport::blocking::Blocking;
use crate::tls_error::{CertificateOwner, TlsError};

/// File of [`Security::load`]: the certificate of the authority.
pub const AUTHORITY_FILE: &str = "ca.pem";
/// File of [`Security::load`]: the certificate of the node.
pub const CERTIFICATE_FILE: &str = "node.pem";
/// File of [`Security::load`]: the private key of the node.
pub const KEY_FILE: &str = "node.key";

/// Most bytes that are read of a file.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Permission bits of a file for all users but its owner.
const NOT_OWNER: u32 = 0o077;

/// How a node secures its connections. A value equals only itself.
pub struct Security {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    /// What the certificate of this node says; `None` if it says no role.
    own: Option<NodeCertificate>,
}

/// Why connections cannot be secured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecurityError {
    /// A file cannot be read.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Users other than its owner can read the key.
    #[error("{path} can be read by others: chmod 600 {path}")]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// A file does not hold what it should.
    #[error("{what} {why}")]
    Content {
        /// The file, or what it would be.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// Other nodes of the pool would not trust this node.
    #[error("{path}: {why}")]
    Untrusted {
        /// The file.
        path: PathBuf,
        /// What is wrong with the certificate in it.
        why: TlsError,
    },
}

impl Security {
    /// Reads the files `ca.pem`, `node.pem` and `node.key` of a directory, in PEM, and checks
    /// whether other nodes of the pool would trust this node now. Blocks for the reads.
    ///
    /// # Errors
    /// [`SecurityError`], with the file.
    pub fn load(directory: &Path) -> Result<Arc<Self>, SecurityError> {
        let [authority, certificate, key] =
            [AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE].map(|file| directory.join(file));
        check_private(&key)?;
        let files = PemFiles {
            authority: read(&authority)?,
            certificate: read(&certificate)?,
            key: read(&key)?,
            names: [&authority, &certificate, &key].map(|path| path.display().to_string()),
        };
        let (security, verifiers, chain) = files.assemble()?;
        verifiers
            .check(&chain)
            .map_err(|why| SecurityError::Untrusted { path: certificate, why })?;
        Ok(Arc::new(security))
    }

    /// Takes the certificate of the authority, the certificate of this node, and its key, all in
    /// PEM. Peers of this node check whether they are valid.
    ///
    /// # Errors
    /// [`SecurityError::Content`].
    pub fn from_pem(
        authority: &[u8],
        certificate: &[u8],
        key: &[u8],
    ) -> Result<Arc<Self>, SecurityError> {
        let names = ["the authority", "the certificate", "the key"].map(str::to_owned);
        let [authority, certificate, key] = [authority, certificate, key].map(<[u8]>::to_vec);
        let (security, ..) = PemFiles { authority, certificate, key, names }.assemble()?;
        Ok(Arc::new(security))
    }

    /// Connects to `addr` and does the handshake, all within `limit`; for protocols that a
    /// [`ProtocolHandler`](crate::tcp::ProtocolHandler) serves. Blocks. The other side may still
    /// refuse this node's certificate: the next read then fails.
    ///
    /// # Errors
    /// The error of the system, `TimedOut` or `WouldBlock` after `limit`, or a [`TlsError`] of kind
    /// `InvalidData`.
    pub fn connect(&self, addr: SocketAddr, limit: Duration) -> io::Result<Box<dyn Stream>> {
        let tls = self.client().map_err(io::Error::other)?;
        Ok(Box::new(Blocking::connect(addr, tls, limit)?))
    }

    /// What the certificate of this node says. `None` if it says no role: no peer trusts it then.
    pub fn certificate(&self) -> Option<NodeCertificate> {
        self.own
    }

    /// What the certificate of a peer says; `None` if it is that of this node: a peer that shows it
    /// has the rights of this process.
    pub(crate) fn of_another(&self, shown: Option<NodeCertificate>) -> Option<NodeCertificate> {
        shown.filter(|_| shown != self.own)
    }

    /// A new connecting side.
    pub(crate) fn client(&self) -> Result<Tls, TlsError> {
        let name = ServerName::try_from(NODE_NAME).map_err(|_| TlsError::Broken)?;
        let connection = ClientConnection::new(Arc::clone(&self.client), name);
        let connection = connection.map_err(|error| tls_error(&error, true))?;
        Ok(Tls::new(Connection::Client(connection)))
    }

    /// A new accepting side.
    pub(crate) fn server(&self) -> Result<Tls, TlsError> {
        let connection = ServerConnection::new(Arc::clone(&self.server));
        let connection = connection.map_err(|error| tls_error(&error, true))?;
        Ok(Tls::new(Connection::Server(connection)))
    }
}

impl PartialEq for Security {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self, other)
    }
}

impl Eq for Security {}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Security(secret)")
    }
}

/// The contents of the files, and their names in messages.
struct PemFiles {
    authority: Vec<u8>,
    certificate: Vec<u8>,
    key: Vec<u8>,
    names: [String; 3],
}

/// A certificate, and the certificates between it and the authority.
type CertificateChain = Vec<CertificateDer<'static>>;

impl PemFiles {
    fn assemble(self) -> Result<(Security, Verifiers, CertificateChain), SecurityError> {
        let [authority, certificate, key] = self.names;
        let bad = |what: &str, why: &dyn fmt::Display| SecurityError::Content {
            what: what.to_owned(),
            why: format!("is not usable: {why}"),
        };
        let mut roots = RootCertStore::empty();
        for root in certificates(&authority, &self.authority)? {
            roots.add(root).map_err(|error| bad(&authority, &error))?;
        }
        let chain = certificates(&certificate, &self.certificate)?;
        let own_key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| none("key", &key))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifiers = Verifiers::new(roots, &provider).map_err(|why| bad(&authority, &why))?;
        let versions: &[_] = &[&rustls::version::TLS13];

        let fits = |error: &rustls::Error| match error {
            rustls::Error::InconsistentKeys(_) => {
                bad(&key, &format_args!("it is not the key of {certificate}"))
            }
            error => bad(&key, error),
        };
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(|error| bad(&key, &error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&verifiers.server) as _)
            .with_client_auth_cert(chain.clone(), own_key.clone_key())
            .map_err(|error| fits(&error))?;
        client.resumption = Resumption::disabled();
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(|error| bad(&key, &error))?
            .with_client_cert_verifier(Arc::clone(&verifiers.client) as _)
            .with_single_cert(chain.clone(), own_key)
            .map_err(|error| fits(&error))?;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let own = chain.first().and_then(certificate_of);
        let security = Security { client: Arc::new(client), server: Arc::new(server), own };
        Ok((security, verifiers, chain))
    }
}

/// The checks of certificates.
struct Verifiers {
    server: Arc<ServerRoles>,
    client: Arc<ClientRoles>,
}

impl Verifiers {
    fn new(roots: RootCertStore, provider: &Arc<CryptoProvider>) -> Result<Self, String> {
        let roots = Arc::new(roots);
        let of = || (Arc::clone(&roots), Arc::clone(provider));
        let (own_roots, own_provider) = of();
        let server = WebPkiServerVerifier::builder_with_provider(own_roots, own_provider).build();
        let (own_roots, own_provider) = of();
        let client = WebPkiClientVerifier::builder_with_provider(own_roots, own_provider).build();
        match (server, client) {
            (Ok(server), Ok(client)) => Ok(Self {
                server: Arc::new(ServerRoles(server)),
                client: Arc::new(ClientRoles(client)),
            }),
            (Err(error), _) | (_, Err(error)) => Err(error.to_string()),
        }
    }

    /// Checks a certificate of this node as its peers will.
    fn check(&self, chain: &[CertificateDer<'_>]) -> Result<(), TlsError> {
        let name = ServerName::try_from(NODE_NAME).map_err(|_| TlsError::Broken)?;
        let Some((own, between)) = chain.split_first() else { return Err(TlsError::Broken) };
        let now = UnixTime::now();
        let as_server = self.server.verify_server_cert(own, between, &name, &[], now).map(drop);
        let as_client = || self.client.verify_client_cert(own, between, now).map(drop);
        as_server.and_then(|()| as_client()).map_err(|error| match tls_error(&error, true) {
            TlsError::Certificate { fault, .. } => {
                TlsError::Certificate { owner: CertificateOwner::Ours, fault }
            }
            other => other,
        })
    }
}

fn certificates(name: &str, pem: &[u8]) -> Result<CertificateChain, SecurityError> {
    let found: Result<CertificateChain, _> = CertificateDer::pem_slice_iter(pem).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or_else(|| none("certificate", name))
}

fn none(of: &str, name: &str) -> SecurityError {
    SecurityError::Content { what: name.to_owned(), why: format!("holds no {of} in PEM") }
}

/// Checks that only its owner can read a file.
///
/// # Errors
/// [`SecurityError::Exposed`], or [`SecurityError::File`].
pub fn check_private(path: &Path) -> Result<(), SecurityError> {
    let file = |source| SecurityError::File { path: path.to_owned(), source };
    if fs::metadata(path).map_err(file)?.mode() & NOT_OWNER != 0 {
        return Err(SecurityError::Exposed { path: path.to_owned() });
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, SecurityError> {
    use io::Read;
    let file = |source| SecurityError::File { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let opened = fs::File::open(path).map_err(file)?;
    opened.take(MAX_FILE_BYTES).read_to_end(&mut bytes).map_err(file)?;
    Ok(bytes)
}
