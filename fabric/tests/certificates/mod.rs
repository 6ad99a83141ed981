//! Authorities and nodes' certificates for tests and benches.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each user needs some of it, and cannot continue without it"
)]

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use selkie_fabric::tcp::{NODE_NAME, Security};

/// An authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// When a certificate is valid.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Valid {
    Now,
    Once,
    Later,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, name);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Certificate and key of a node, in PEM.
    pub fn issue(&self, name: &str, valid: Valid) -> (String, String) {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        let years = match valid {
            Valid::Now => (1980, 4000),
            Valid::Once => (1980, 1990),
            Valid::Later => (3990, 4000),
        };
        (params.not_before, params.not_after) =
            (date_time_ymd(years.0, 1, 1), date_time_ymd(years.1, 1, 1));
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    /// A node that trusts `trusted`, and shows a certificate of this authority.
    pub fn node_trusting(&self, trusted: &Authority, name: &str, valid: Valid) -> Arc<Security> {
        let (certificate, key) = self.issue(name, valid);
        let trusted = trusted.0.pem();
        Security::from_pem(trusted.as_bytes(), certificate.as_bytes(), key.as_bytes()).unwrap()
    }

    /// A node of a pool of this authority.
    pub fn node(&self) -> Arc<Security> {
        self.node_trusting(self, NODE_NAME, Valid::Now)
    }

    pub fn certificate(&self) -> String {
        self.0.pem()
    }
}
