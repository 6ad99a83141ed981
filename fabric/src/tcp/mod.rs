//! Backend `tcp`: soft RDMA between machines without an RDMA NIC.
//!
//! A node listens; a queue pair is a TCP connection to it. The *host* of the node that lends memory
//! executes the chains that come over a connection in the order in which they come, and does
//! nothing else: one thread a connection receives, executes every whole request in its buffer and
//! answers them with one system call. The node that posts has one thread more, the *driver*, which
//! accepts connections, receives responses for completions that nobody polls, and looks after
//! silent peers.
//!
//! ```text
//! compute node                                   memory node
//! post -> queue -> send ====== requests ======>  receive -> execute on regions -> ring doorbells
//! slot <- fill <- receive <=== responses ======  send all answers
//! wake
//! ```
//!
//! # Connections
//! [`Fabric::join`](crate::Fabric::join) binds and listens, [`TcpFabric::introduce`] says where
//! peers are, and [`Endpoint::connect`](crate::Endpoint::connect) begins to connect without
//! blocking: what a peer does not accept, `Refused` says at the first completion. Endpoints of one
//! `TcpFabric` know each other, and talk over TCP all the same. The bytes are described in `hello`
//! and `wire`.
//!
//! Whatever else a process serves, it can serve on the same port: [`TcpFabric::serve_other`].
//!
//! # Death
//! A connection that is closed, broken, or not understood ends its queue pair: all outstanding and
//! later chains end with `PeerDead` and come back with their buffers. So does one whose peer owes
//! an answer and has been silent for [`TcpConfig::dead_after`]; silent connections without chains
//! are asked for an answer now and then. A host closes connections that have been silent for longer
//! than their node promised.
//!
//! # Fencing
//! Every chain executes under the gate of its connection. [`TcpFabric::revoke`] refuses further
//! connections of an incarnation of a peer, then closes the gates of those it has: from then on no
//! verb of it executes, though its requests may lie in the buffers of the system.
//! [`Fabric::fence`](crate::Fabric::fence) does so at all endpoints of the process and ends their
//! queue pairs to the peer; the other processes have to fence for themselves.
//!
//! # Trust
//! Bytes of the network are checked before anything is done with them, and whatever is wrong with
//! them ends their connection and no other ([`TcpFabric::bad_connections`] counts). Region keys
//! hold 16 random bits, which guards against mistakes. By default whoever reaches the port is
//! trusted with the memory. With [`Admission::Invited`] an endpoint admits those whom
//! [`TcpFabric::invite`] invited to it, and who show the [`AccessKey`] of the invitation. What a
//! guest may do can be bounded to a [`Domain`](crate::Domain) of its [`Invitation`], which is asked
//! before each of its verbs executes.
//!
//! By default nothing is encrypted, and keys cross the network as they are: whoever can listen
//! there has them. With [`TcpConfig::security`] every connection has TLS 1.3, also those that are
//! handed over, and both sides show a certificate of the pool's authority before anything else is
//! said. All nodes of a pool have the authority's certificate, and one of their own for the name
//! [`NODE_NAME`]. The name is the same for all: where a node is it says nothing, since nodes move;
//! who a node is among those of the pool, its name and keys say as without TLS. Who is not trusted
//! hears why, and so does the counter of bad connections ([`Distrust`](crate::Distrust)); a node
//! with TLS and one without tell each other so. The end of a connection is not signed: frames say
//! how long they are, so one that is cut is noticed. Certificates are looked at when connections
//! are made: one that expires meanwhile ends none. None can be revoked; if a node's key is stolen,
//! the pool needs another authority.
//!
//! ```text
//! connects                                   is connected to
//! ClientHello ------------------------------>
//!             <------------- ServerHello, certificate, Finished
//! certificate, Finished, hello ------------->   looks at the certificate before the hello
//!             <------------------------------ reply
//! ```
//! It takes one round trip more. Both ends bound it: the host by the time a hello may take, the
//! node that connects by [`TcpConfig::dead_after`], whatever trickles in.
//!
//! Contents: `fabric` and `queue_pair` (the traits, completions), `link` and `line` (the connecting
//! side of a connection), `driver` (the thread), `host` and `session` (the executing side),
//! `guests` (who may execute), `key`, `security` (certificates), `others` (connections that are not
//! the fabric's), `hello` and `wire` (the bytes), `tls` (the same, sealed), `pipe` and `blocking`
//! (sockets, with TLS or without), `error` (what is wrong with the bytes), `buffer` and `slot`
//! (received bytes, outcomes), `config`, `common`.

mod blocking;
mod buffer;
mod common;
mod config;
mod driver;
mod error;
mod fabric;
mod guests;
mod hello;
mod host;
mod key;
mod line;
mod link;
mod others;
mod pipe;
mod queue_pair;
mod security;
mod session;
mod slot;
mod tls;
mod wire;

pub use config::{Admission, TcpConfig};
pub use error::WireError;
pub use fabric::TcpFabric;
pub use guests::{Invitation, MAX_CONNECTIONS};
pub use host::BadConnections;
pub use key::{AccessKey, KeyText};
pub use others::{Handler, MAX_HANDED_OVER};
pub use security::{
    AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE, NODE_NAME, Security, SecurityError, check_private,
};
pub use wire::{MAX_CHAIN_BYTES, MAX_CHAIN_VERBS};
