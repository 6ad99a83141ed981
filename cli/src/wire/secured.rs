//! TLS 1.3 to a server, and whose certificate is believed.
//!
//! | `sslmode` | a file of authorities is named | none is named |
//! |---|---|---|
//! | `prefer`, where the server has TLS | one of them has signed | any certificate |
//! | `require` | one of them has signed | as `verify-ca` if the user keeps a file, else any |
//! | `verify-ca` | one of them has signed | the file of the user, which must be there |
//! | `verify-full` | the same, and the name is right | the same |
//!
//! That is what libpq does (its documentation, "SSL Support" and `sslrootcert`), but for two
//! things. With `prefer` libpq goes on in the clear when a certificate is not believed, which would
//! give to who stands between what the file is to keep from them; here the connection fails. And
//! with `prefer` the file that the user keeps, but has not named, is not read here: there the
//! server may be one for which it was never meant.

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
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, OtherError,
    RootCertStore, SignatureScheme, StreamOwned, version,
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
        (SslMode::Disable | SslMode::Prefer, _) => (address.root.clone(), false),
        (SslMode::Require | SslMode::VerifyCa, root @ Some(_)) => (root, false),
        (SslMode::VerifyFull, Some(root)) => (Some(root), true),
        (SslMode::VerifyCa, None) => return Err(TlsError::NoRoot("verify-ca")),
        (SslMode::VerifyFull, None) => return Err(TlsError::NoRoot("verify-full")),
        (SslMode::Require, None) => (None, false),
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
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet".to_owned()
        }
        CertificateError::Other(OtherError(error)) => error.to_string(),
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
        Self::of(own).map_err(|error| failed(error.to_string()))
    }

    fn of(own: Vec<CertificateDer<'static>>) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in &own {
            roots.add(certificate.clone())?;
        }
        Ok(Self { roots, own })
    }

    /// Those whose time it is, if there are others.
    fn roots_of_time(&self, now: UnixTime) -> Result<Option<RootCertStore>, Error> {
        let of_time = self.own.iter().filter(|own| is_of_time(own, now).is_ok());
        let of_time: Vec<_> = of_time.cloned().collect();
        match of_time.len() == self.own.len() {
            true => Ok(None),
            false => Self::of(of_time).map(|own| Some(own.roots)),
        }
    }
}

/// The authority that has signed a certificate has expired, or its time has not come.
#[derive(Debug, thiserror::Error)]
#[error("the authority that has signed it has expired or is not valid yet")]
struct OldAuthority;

/// Whether it is the time for which a certificate was made: to find it in the file does not tell.
fn is_of_time(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), CertificateError> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
        .map_err(|_| CertificateError::BadEncoding)?;
    let validity = parsed.validity();
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    match () {
        () if now < validity.not_before.timestamp() => Err(CertificateError::NotValidYet),
        () if now > validity.not_after.timestamp() => Err(CertificateError::Expired),
        () => Ok(()),
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

impl Verifier {
    fn verify_signed(
        &self,
        certificate: &ParsedCertificate<'_>,
        roots: &RootCertStore,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let all = self.algorithms.all;
        verify_server_cert_signed_by_trust_anchor(certificate, roots, intermediates, now, all)
    }
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
        if believed.own.iter().any(|own| **own == **end_entity) {
            is_of_time(end_entity, now)?;
        } else {
            self.verify_signed(&certificate, &believed.roots, intermediates, now)?;
            // What has signed a certificate is not looked at for its time there.
            if let Some(roots) = believed.roots_of_time(now)? {
                self.verify_signed(&certificate, &roots, intermediates, now)
                    .map_err(|_| CertificateError::Other(OtherError(Arc::new(OldAuthority))))?;
            }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{
        BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd,
    };

    use super::*;

    /// A certificate for `localhost`, valid in 2020, that has signed itself.
    fn own_of_2020() -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2020, 12, 31);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn in_year(year: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs((year - 1970) * 31_557_600 + 15_000_000))
    }

    fn verify(
        believed: Vec<CertificateDer<'static>>,
        shown: &CertificateDer<'_>,
        name: &'static str,
        now: UnixTime,
    ) -> Result<(), String> {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        let believed = Some(Believed::of(believed).unwrap());
        let verifier = Verifier { believed, checks_name: true, algorithms };
        let name = ServerName::try_from(name).unwrap();
        match verifier.verify_server_cert(shown, &[], &name, &[], now) {
            Ok(_) => Ok(()),
            Err(Error::InvalidCertificate(why)) => Err(wrong_with(&why)),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_certificate_that_is_in_the_file_is_believed_in_its_time_only() {
        let own = own_of_2020();
        let at = |year| verify(vec![own.clone()], &own, "localhost", in_year(year));
        assert_eq!(at(2020), Ok(()));
        assert_eq!(at(2021), Err("it has expired".to_owned()));
        assert_eq!(at(2019), Err("it is not valid yet".to_owned()));
        let named = verify(vec![own.clone()], &own, "elsewhere", in_year(2020));
        assert_eq!(named, Err("it is for another name".to_owned()));
    }

    #[test]
    fn a_certificate_that_an_authority_has_signed_is_believed() {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.not_after = date_time_ymd(2030, 1, 1);
        let root = params.self_signed(&key).unwrap().der().clone();
        let issuer = Issuer::new(params, key);
        let node = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let node = node.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().der().clone();
        let by = |roots, year| verify(roots, &node, "localhost", in_year(year));
        assert_eq!(by(vec![root.clone(), own_of_2020()], 2020), Ok(()));
        // Another one that is in the file is too old, and this one is not.
        assert_eq!(by(vec![root.clone(), own_of_2020()], 2021), Ok(()));
        let old = "the authority that has signed it has expired or is not valid yet";
        assert_eq!(by(vec![root], 2031), Err(old.to_owned()));
        assert_eq!(
            by(vec![own_of_2020()], 2020),
            Err("no authority that is given has signed it".to_owned())
        );
    }
}
