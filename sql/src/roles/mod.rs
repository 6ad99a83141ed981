//! Roles: who may log in, who is a member of whom, and who may do what.
//!
//! All roles of a database are one [document](document::Roles), which is the note of a table of the
//! system ([`store`]). It changes within transactions as definitions of tables do, and which
//! definition of that table a transaction sees tells whether a document that was read before is
//! still the right one. Rights of a table are in the note of that table; those of sequences, which
//! have no notes, and of the schema `public` are in the document.
//!
//! | file | duty |
//! |---|---|
//! | `acl.rs` | privileges, and who has them of an object |
//! | `grants.rs` | privileges that are granted further |
//! | `document.rs` | roles and their memberships |
//! | `verifier.rs` | what is kept of a password |
//! | `authority.rs` | what the role of a session may do |
//! | `needed.rs` | what a statement needs to be allowed |
//! | `store.rs` | reading and changing the document |
//! | `login.rs` | who is let in |

mod acl;
mod authority;
mod document;
mod grants;
mod login;
mod needed;
mod store;
mod verifier;

pub(crate) use acl::{EVERYONE, Grant, Kind, Mention, Privileges, Rights};
pub(crate) use authority::{Authority, Standing, denied, no_privilege};
pub(crate) use document::{BOOTSTRAP, BOOTSTRAP_NAME, Role, Roles, no_role};
pub use login::{LogIn, ProvenRole, RoleLogIn, have_password, log_in};
pub(crate) use needed::Needed;
pub(crate) use store::{KEY_PREFIX, RolesCache, change, load, load_fresh, maybe_changed};
pub use verifier::Verifier;
pub(crate) use verifier::is_md5;
