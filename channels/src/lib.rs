//! Messages between compute nodes, as one-sided writes into ring buffers.
//!
//! The fabric has no SEND and no RECV. So a [`Mailbox`] registers one ring for each sender in its
//! own memory, and each sender writes its messages into its ring (after LOCO's ring buffer). A
//! message costs the sender one chain of two writes, and the sender does not wait for it. The
//! receiver returns credit by one more write about every quarter of a ring.
//!
//! - [`Mailbox::send`] never blocks. Messages to one receiver arrive in order, once, undamaged; if
//!   its ring is full, they wait in a bounded outbox.
//! - [`Mailbox::poll`] hands messages to the caller; [`Mailbox::wait_mail`] sleeps until there may
//!   be some.
//! - A dead peer, a full outbox and a damaged ring are typed errors ([`ChannelError`]).
//!
//! ```
//! use selkie_channels::{Mailbox, MailboxConfig};
//! use selkie_fabric::{Fabric, MemFabric, PeerId};
//! use std::sync::Arc;
//!
//! let fabric: Arc<dyn Fabric> = MemFabric::new();
//! let config = MailboxConfig { peers: 2, ring_bytes: 64 << 10, outbox_limit: 100 };
//! let (node0, node1) = (fabric.join(PeerId::compute(0))?, fabric.join(PeerId::compute(1))?);
//! let box0 = Mailbox::open(&node0, 0, config)?;
//! let box1 = Mailbox::open(&node1, 1, config)?;
//! box0.connect(1, &box1.descriptor(), &node0)?;
//! box1.connect(0, &box0.descriptor(), &node1)?;
//!
//! box0.send(1, b"page 7: ", b"bytes")?;
//! let mut inbox = Vec::new();
//! box1.poll(16, &mut |from, message| inbox.push((from, message.to_vec())))?;
//! assert_eq!(inbox, [(0, b"page 7: bytes".to_vec())]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod buffers;
mod config;
mod connection;
mod error;
mod mailbox;
mod record;
mod ring_reader;
mod ring_writer;

pub use config::{
    MAX_OUTBOX, MAX_PEERS, MAX_RING_BYTES, MIN_RING_BYTES, MailboxConfig, MailboxDescriptor,
};
pub use error::ChannelError;
pub use mailbox::{Mailbox, SentMark};
pub use record::MAX_MESSAGE_BYTES;
