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
use selkie_fabric::Role;
use selkie_fabric::tcp::{NODE_NAME, Security, role_name};

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

    /// Certificate and key for a name, in PEM; for that of all nodes, of a compute node.
    pub fn issue(&self, name: &str, valid: Valid) -> (String, String) {
        let role = (name == NODE_NAME).then(|| role_name(Role::Compute));
        self.issue_for(&[&[name.to_owned()], role.as_slice()].concat(), valid)
    }

    /// Certificate and key for some names, in PEM.
    pub fn issue_for(&self, names: &[String], valid: Valid) -> (String, String) {
        let mut params = CertificateParams::new(names).unwrap();
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

    /// A compute node of a pool of this authority.
    pub fn node(&self) -> Arc<Security> {
        self.node_of(&[Role::Compute])
    }

    /// A node of a pool of this authority, whose certificate says these roles.
    pub fn node_of(&self, roles: &[Role]) -> Arc<Security> {
        let names = roles.iter().map(|role| role_name(*role));
        let names: Vec<String> = [NODE_NAME.to_owned()].into_iter().chain(names).collect();
        let (certificate, key) = self.issue_for(&names, Valid::Now);
        let authority = self.0.pem();
        Security::from_pem(authority.as_bytes(), certificate.as_bytes(), key.as_bytes()).unwrap()
    }

    pub fn certificate(&self) -> String {
        self.0.pem()
    }
}
