//! Backend `tcp`: soft RDMA between machines without an RDMA NIC.
//!
//! A node listens; a queue pair is a session with it, over one TCP connection at a time. The *host*
//! of the node that serves memory executes the chains of a connection in the order in which they
//! arrive, and does nothing else: one thread for each connection receives, executes every whole
//! request in its buffer, and sends all answers with one system call. The node that posts has one
//! more thread, the *driver*. It accepts connections, receives responses for completions that no
//! thread polls, and watches silent peers.
//!
//! ```text
//! compute node                                   memory node
//! post -> queue -> send ====== requests ======>  receive -> execute on regions -> ring doorbells
//! cell <- fill <- receive <=== responses ======  send all answers
//! wake
//! ```
//!
//! # Connections
//! [`Fabric::join`](crate::Fabric::join) binds and listens, [`TcpFabric::introduce`] says where
//! peers are, and [`Endpoint::connect`](crate::Endpoint::connect) begins to connect without
//! blocking. If the peer refuses the connection, the first completion ends with `Refused`.
//! Endpoints of one `TcpFabric` know each other; they talk over TCP all the same. The modules of
//! `wire` describe the bytes.
//!
//! A process can serve other protocols on the same port: [`TcpFabric::serve_protocol`].
//!
//! # Sessions
//! A queue pair is a session, which outlives its connections. One that is closed, broken, or silent
//! for [`TcpConfig::silent_after`] is replaced by another. The host says how many chains of the
//! session it has executed, and sends the responses again that did not arrive; the node sends the
//! requests again that were not executed. So every chain executes once, in order. Silent
//! connections without chains are probed. A host closes connections that are silent for longer than
//! their node promised; the session waits for the next one.
//!
//! # Death
//! A queue pair ends if no process listens at the address of its peer, if the process there does
//! not know the session, if bytes are not understood, or if the peer owes an answer and shows no
//! sign of life for [`TcpConfig::dead_after`]: all outstanding and later chains end with
//! `PeerDead`, and their buffers come back.
//!
//! # Fencing
//! Every chain executes under the gate of its session. [`TcpFabric::revoke`] refuses further
//! connections of an incarnation of a peer, then closes the gates of its sessions: from then on no
//! verb of it executes, even if its requests are already in the buffers of the system.
//! [`Fabric::fence`](crate::Fabric::fence) does so at all endpoints of the process and ends their
//! queue pairs to the peer. Other processes have to fence for themselves.
//!
//! # Trust
//! Bytes of the network are checked before they are used. Bad bytes end their connection and no
//! other; [`TcpFabric::bad_connections`] counts them. Region keys hold 16 random bits, which guards
//! against mistakes. By default every peer that reaches the port may access the memory. With
//! [`Admission::Invited`] an endpoint admits the peers that [`TcpFabric::invite`] invited and that
//! show the [`AccessKey`] of the invitation. With [`Admission::ByCard`] it admits the peers whose
//! access card [`Fabric::add_peer`](crate::Fabric::add_peer) gave. An [`Invitation`] can bound a
//! guest to a [`Domain`](crate::Domain), which is checked before each of its verbs executes.
//!
//! By default nothing is encrypted, and keys cross the network as they are: a listener on the
//! network learns them. With [`TcpConfig::security`] every connection has TLS 1.3, also those of
//! other protocols, and both sides show a certificate of the pool's authority first. All nodes of a
//! pool have the certificate of the authority, and a certificate of their own for the name
//! [`NODE_NAME`] and for that of a [`Role`](crate::Role) ([`role_name`]). These names do not say
//! where a node is, as nodes move. Both sides know the other's role after the handshake: memory
//! nodes have the role `memory`, compute nodes `compute` or `reader`. A reader is admitted to the
//! memory of a memory node within a domain only. Names and keys tell which node of the pool a peer
//! is, as without TLS. A peer that is not trusted is told why, and so is the counter of bad
//! connections ([`TlsError`](crate::TlsError)). A node with TLS and a node without tell each other
//! so. The end of a connection is not signed: frames carry their length, so a connection that is
//! cut is noticed. Certificates are checked when a connection begins; one that expires later ends
//! no connection. They cannot be revoked: if the key of a node is stolen, the pool needs another
//! authority.
//!
//! ```text
//! connecting node                            accepting node
//! ClientHello ------------------------------>
//!             <------------- ServerHello, certificate, Finished
//! certificate, Finished, hello ------------->   checks the certificate before the hello
//!             <------------------------------ reply
//! ```
//! TLS takes one more round trip. Both ends bound it: the host by the time limit of the hello, the
//! connecting node by [`TcpConfig::dead_after`], also if bytes trickle in.
//!
//! # Who is let in
//! Connections that have not been admitted yet have 64 places, of which the oldest makes room for
//! the next (`server/newcomers.rs`). Those of other protocols that were let in
//! ([`Stream::let_in`](crate::Stream::let_in)) have [`MAX_FOREIGN_CONNECTIONS`], of which an idle
//! one makes room (`server/port_mux.rs`). Connections of peers have [`MAX_CONNECTIONS`], and make
//! room for no other: each peer has a share of them for sure (`server/admissions.rs`).
//!
//! Contents: `fabric`, `endpoint`, `node` (the traits, the nodes of this process), `client` (posts
//! chains), `server` (executes them), `wire` (the bytes), `security` (certificates, TLS, keys,
//! cards), `transport` (sockets), `config`, `process` (what the endpoints of a process share).

pub(crate) mod client;
mod config;
pub(crate) mod endpoint;
mod fabric;
mod node;
mod process;
mod security;
pub(crate) mod server;
mod transport;
mod wire;

pub use config::{Admission, TcpConfig};
pub use fabric::TcpFabric;
pub use security::certificates::{
    AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE, Security, SecurityError, check_private,
};
pub use security::key::{AccessKey, InvalidKeyText};
pub use security::roles::{NODE_NAME, role_name};
pub use server::admissions::{Invitation, MAX_CONNECTIONS};
pub use server::host::BadConnections;
pub use server::port_mux::{MAX_FOREIGN_CONNECTIONS, ProtocolHandler};
pub use wire::error::WireError;
pub use wire::limits::{MAX_CHAIN_BYTES, MAX_CHAIN_VERBS};
