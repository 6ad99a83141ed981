//! Certificates of pools over TCP: an authority, and the nodes that it vouches for.
//!
//! ```text
//! DIR/ca.pem        the authority, to be known by all nodes       selkie cert init DIR
//! DIR/ca.key        makes nodes: keep it where no node is
//! DIR/NAME/ca.pem   the same                                      selkie cert node DIR NAME
//! DIR/NAME/node.pem shown by the node
//! DIR/NAME/node.key its owner's only
//! ```
//! The directory of a node is what [`Security::load`](selkie::fabric::tcp::Security::load) takes.
//! What is made appears as a whole or not at all: files are written to a directory beside, which is
//! then renamed.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData,
};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;

use selkie::fabric::Role;
use selkie::fabric::tcp::{
    AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE, NODE_NAME, SecurityError, check_private, role_name,
};
use selkie::shared::PoolName;

/// The authority's key.
const AUTHORITY_KEY_FILE: &str = "ca.key";
/// Days that the certificate of a node is valid by default.
const NODE_DAYS: u32 = 365;
/// Most days that a certificate is valid.
pub(crate) const MAX_DAYS: u32 = 36_500;
/// Certificates are valid a little before they are made, for hosts whose clocks are behind.
const BEFORE: Duration = Duration::hours(1);
/// Longer files hold no certificates.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CertError {
    /// Nothing is overwritten.
    #[error("{path} is there already, and nothing is overwritten")]
    Exists {
        /// What is there.
        path: PathBuf,
    },
    /// A file or directory cannot be read or made.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A key is not kept as it should.
    #[error(transparent)]
    Key(#[from] SecurityError),
    /// A file does not hold what it should.
    #[error("{path} {why}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A certificate would be valid for no time, or for too long.
    #[error("{days} days: must be 1 to {MAX_DAYS}")]
    Days {
        /// The days asked for.
        days: u32,
    },
    /// A node would outlast its authority.
    #[error(
        "{days} days: the authority in {path} ends at {end}; ask for fewer days, or make a new authority"
    )]
    Outlasts {
        /// The days asked for.
        days: u32,
        /// The authority.
        path: PathBuf,
        /// Its end.
        end: String,
    },
    /// It could not be made.
    #[error("no certificate can be made: {source}")]
    Make {
        /// Why.
        #[from]
        source: rcgen::Error,
    },
}

/// What a certificate says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    /// Whose it is.
    pub(crate) subject: String,
    /// What its holder may do in a pool; `None` if it does not say, as that of an authority.
    pub(crate) role: Option<String>,
    /// Who vouches for that.
    pub(crate) issuer: String,
    /// Since when it is valid.
    pub(crate) from: String,
    /// When that ends.
    pub(crate) until: String,
    /// Whether it is valid now.
    pub(crate) state: Validity,
}

/// Whether a certificate is valid now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Validity {
    /// It is.
    Valid,
    /// It was.
    Expired,
    /// It will be.
    NotYet,
}

/// Makes the authority of `pool` in `directory`, which must not be there, or be empty.
///
/// # Errors
/// If something is in the way, and nothing was made then.
pub(crate) fn make_authority(
    directory: &Path,
    pool: &PoolName,
    days: u32,
) -> Result<(), CertError> {
    let mut params = params(days)?;
    let key = KeyPair::generate()?;
    // Authorities of one name can be told apart.
    let digits: String =
        key.der_bytes().iter().rev().take(4).map(|byte| format!("{byte:02x}")).collect();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, format!("authority {digits} of {pool}"));
    let certificate = params.self_signed(&key)?;
    let files = [
        (AUTHORITY_FILE, certificate.pem(), 0o644),
        (AUTHORITY_KEY_FILE, key.serialize_pem(), 0o600),
    ];
    place(directory, &files)
}

/// Makes certificate and key of a node of the authority in `directory`, for one role, in a
/// directory there that has the node's name. Returns that. They are valid for a year unless said
/// otherwise, or as long as the authority.
///
/// # Errors
/// If there is no authority, its key can be read by others, or something is in the way; nothing was
/// made then.
pub(crate) fn make_node(
    directory: &Path,
    name: &PoolName,
    role: Role,
    days: Option<u32>,
) -> Result<PathBuf, CertError> {
    let mut params = params(days.unwrap_or(NODE_DAYS))?;
    let [authority, authority_key] =
        [AUTHORITY_FILE, AUTHORITY_KEY_FILE].map(|file| directory.join(file));
    check_private(&authority_key)?;
    let unusable =
        |path: &Path, why: &str| CertError::Content { path: path.to_owned(), why: why.to_owned() };
    let pem = read(&authority)?;
    let parsed = Pem::iter_from_buffer(pem.as_bytes()).next().and_then(Result::ok);
    let parsed = parsed.ok_or_else(|| unusable(&authority, "holds no certificate in PEM"))?;
    let root = parsed.parse_x509().map_err(|_| unusable(&authority, "holds no certificate"))?;
    let key = KeyPair::from_pem(&read(&authority_key)?)
        .map_err(|_| unusable(&authority_key, "holds no key in PEM"))?;
    if root.public_key().raw != key.subject_public_key_info() {
        return Err(unusable(
            &authority_key,
            &format!("is not the key of {}", authority.display()),
        ));
    }
    let end = root.validity().not_after.to_datetime();
    match days {
        Some(days) if params.not_after > end => {
            return Err(CertError::Outlasts { days, path: authority, end: date(end) });
        }
        _ => params.not_after = params.not_after.min(end),
    }
    let issuer = Issuer::from_ca_cert_pem(&pem, key)?;

    let names = [NODE_NAME.to_owned(), role_name(role)];
    let names = names.into_iter().map(|name| Ok(rcgen::SanType::DnsName(name.try_into()?)));
    params.subject_alt_names = names.collect::<Result<_, rcgen::Error>>()?;
    params.distinguished_name.push(DnType::CommonName, name.as_str());
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    let own_key = KeyPair::generate()?;
    let certificate = params.signed_by(&own_key, &issuer)?;
    let files = [
        (AUTHORITY_FILE, pem, 0o644),
        (CERTIFICATE_FILE, certificate.pem(), 0o644),
        (KEY_FILE, own_key.serialize_pem(), 0o600),
    ];
    let own = directory.join(name.as_str());
    place(&own, &files)?;
    Ok(own)
}

/// What the certificates in a file say.
///
/// # Errors
/// If it cannot be read, or holds none.
pub(crate) fn show(path: &Path) -> Result<Vec<Shown>, CertError> {
    let unusable = |why: &str| CertError::Content { path: path.to_owned(), why: why.to_owned() };
    let text = read(path)?;
    let mut all = Vec::new();
    for pem in Pem::iter_from_buffer(text.as_bytes()) {
        let pem = pem.map_err(|_| unusable("is damaged"))?;
        if pem.label != "CERTIFICATE" {
            continue;
        }
        let certificate = pem.parse_x509().map_err(|_| unusable("holds a damaged certificate"))?;
        let (from, until) = {
            let validity = certificate.validity();
            (validity.not_before.to_datetime(), validity.not_after.to_datetime())
        };
        let now = OffsetDateTime::now_utc();
        let state = match () {
            () if now > until => Validity::Expired,
            () if now < from => Validity::NotYet,
            () => Validity::Valid,
        };
        all.push(Shown {
            subject: certificate.subject().to_string(),
            role: role_of(&certificate),
            issuer: certificate.issuer().to_string(),
            from: date(from),
            until: date(until),
            state,
        });
    }
    if all.is_empty() { Err(unusable("holds no certificate in PEM")) } else { Ok(all) }
}

/// The roles in a certificate; nodes have one.
fn role_of(certificate: &X509Certificate<'_>) -> Option<String> {
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.iter().flat_map(|names| &names.value.general_names);
    let has = |role: &Role| {
        let wanted = role_name(*role);
        names.clone().any(|name| matches!(name, GeneralName::DNSName(found) if *found == wanted))
    };
    let roles: Vec<_> = Role::ALL.into_iter().filter(has).map(Role::name).collect();
    (!roles.is_empty()).then(|| roles.join(", "))
}

fn params(days: u32) -> Result<CertificateParams, CertError> {
    if !(1..=MAX_DAYS).contains(&days) {
        return Err(CertError::Days { days });
    }
    let now = OffsetDateTime::now_utc();
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    (params.not_before, params.not_after) = (now - BEFORE, now + Duration::days(days.into()));
    Ok(params)
}

fn date(moment: OffsetDateTime) -> String {
    let whole = moment.replace_nanosecond(0).unwrap_or(moment);
    whole.format(&Rfc3339).unwrap_or_else(|_| whole.unix_timestamp().to_string())
}

fn read(path: &Path) -> Result<String, CertError> {
    let file = |source| CertError::File { path: path.to_owned(), source };
    let mut text = String::new();
    let opened = File::open(path).map_err(file)?;
    opened.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(file)?;
    Ok(text)
}

/// Makes a directory with files of these names, contents and rights, all at once.
fn place(directory: &Path, files: &[(&str, String, u32)]) -> Result<(), CertError> {
    let exists = || CertError::Exists { path: directory.to_owned() };
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| CertError::File { path, source }
    };
    match std::fs::read_dir(directory).map(|mut entries| entries.next().is_none()) {
        Ok(false) => return Err(exists()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Err(exists()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed(directory)(error));
        }
        _ => {}
    }
    // The name without a slash behind it, also of `.`.
    let directory = &std::path::absolute(directory).map_err(failed(directory))?;
    let Some(name) = directory.file_name() else { return Err(exists()) };
    let mut new = name.to_owned();
    new.push(format!(".new-{}", std::process::id()));
    let beside = directory.with_file_name(new);
    DirBuilder::new().mode(0o700).create(&beside).map_err(failed(&beside))?;
    let mut made = Made { path: &beside, is_placed: false };
    for (name, content, mode) in files {
        let path = beside.join(name);
        let write = || {
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(*mode).open(&path)?;
            file.write_all(content.as_bytes())?;
            file.sync_all()
        };
        write().map_err(failed(&path))?;
    }
    match std::fs::rename(&beside, directory) {
        Ok(()) => made.is_placed = true,
        // Another process was faster.
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => return Err(exists()),
        Err(error) => return Err(failed(directory)(error)),
    }
    Ok(())
}

/// A directory that goes with the value unless it got its place.
struct Made<'p> {
    path: &'p Path,
    is_placed: bool,
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        if !self.is_placed {
            // The caller reports the error that led here.
            let _ = std::fs::remove_dir_all(self.path);
        }
    }
}
