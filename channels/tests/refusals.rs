//! Full outboxes, dead peers, damaged rings and bad arguments are typed errors.

#![expect(clippy::unwrap_used, reason = "helpers of tests, which clippy does not take for tests")]

mod support;

use selkie_channels::{ChannelError, MAX_MESSAGE_BYTES, Mailbox, MailboxConfig};
use selkie_fabric::fault::{Delay, FaultFabric, FaultPlan};
use selkie_fabric::sim::{World, WorldConfig};
use selkie_fabric::{
    Buf, Chain, Endpoint, Fabric, FabricError, MemFabric, PeerId, RemoteAddr, Verb,
};
use std::sync::Arc;
use std::time::Duration;
use support::{TOO_LONG, check_message, config, message, net, ring_at, unconnected};

/// Writes a word into a mailbox region, as a faulty peer could.
fn scribble(from: &Arc<dyn Endpoint>, into: &Mailbox, offset: u64, word: u64) {
    let descriptor = into.descriptor();
    let at = RemoteAddr::new(descriptor.region, offset);
    let chain = Chain::from(Verb::write(at, Buf::copy_of(&word.to_le_bytes())));
    from.connect(descriptor.peer).unwrap().post(chain).try_take().unwrap().unwrap();
}

#[test]
fn a_full_ring_fills_the_outbox_and_a_full_outbox_refuses() {
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let net = net(&fabric, 2);
    let limit = config(2).outbox_limit;
    let mut accepted = 0;
    let refused = loop {
        let (header, payload) = message(1, accepted);
        match net.boxes[0].send(1, &header, &payload) {
            Ok(()) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused, ChannelError::OutboxFull { to: 1, queued: limit });
    assert!(refused.is_retryable());
    let mut next = 0;
    let mut drain = |expected_more: bool| {
        let before = next;
        let taken = net.boxes[1].poll(usize::MAX, &mut |_, bytes| {
            assert_eq!(check_message(bytes), (1, next));
            next += 1;
        });
        assert_eq!(taken, Ok((next - before) as usize));
        assert_eq!(next > before, expected_more);
        next
    };
    let in_ring = drain(true);
    assert_eq!(in_ring + limit as u64, accepted, "the ring's worth and the outbox");
    // What is in the outbox stays there until its owner polls or sends.
    drain(false);
    // A new message goes behind the outbox, which is flushed first.
    let (header, payload) = message(1, accepted);
    net.boxes[0].send(1, &header, &payload).unwrap();
    while drain(true) < accepted + 1 {
        net.boxes[0].poll(1, &mut |_, _| {}).unwrap();
    }
    drain(false);
}

#[test]
fn a_dead_receiver_is_lost_for_good() {
    let mem = MemFabric::new();
    let fabric: Arc<dyn Fabric> = mem.clone();
    let net = net(&fabric, 3);
    let peer = PeerId::compute(1);
    net.boxes[0].send(1, b"x", &[]).unwrap();
    mem.kill(peer);
    let lost = ChannelError::PeerLost { to: 1, source: FabricError::PeerDead { peer } };
    for _ in 0..2 {
        assert_eq!(net.boxes[0].send(1, b"x", &[]), Err(lost.clone()));
    }
    assert!(!lost.is_retryable());
    net.boxes[0].send(2, b"others continue", &[]).unwrap();
    assert_eq!(net.boxes[2].poll(9, &mut |_, _| {}), Ok(1));
}

#[test]
fn a_receiver_that_died_with_a_full_ring_is_found_out_by_a_full_outbox() {
    let mem = MemFabric::new();
    let fabric: Arc<dyn Fabric> = mem.clone();
    let net = net(&fabric, 2);
    let peer = PeerId::compute(1);
    let outbox_limit = config(2).outbox_limit;
    while net.boxes[0].send(1, &[0; 1000], &[]).is_ok() {}
    mem.kill(peer);
    let refused = net.boxes[0].send(1, b"x", &[]);
    let lost = ChannelError::PeerLost { to: 1, source: FabricError::PeerDead { peer } };
    assert_eq!(refused, Err(lost), "outbox of {outbox_limit}");
}

#[test]
fn the_death_of_a_sender_does_not_disturb_polling() {
    let mem = MemFabric::new();
    let fabric: Arc<dyn Fabric> = mem.clone();
    let net = net(&fabric, 2);
    let mut sent = 0;
    while net.boxes[0].send(1, &[0; 1000], &[]).is_ok() {
        sent += 1;
    }
    mem.kill(PeerId::compute(0));
    // What it had placed is delivered, though no credit can be returned.
    let got = net.boxes[1].poll(usize::MAX, &mut |_, _| {}).unwrap();
    assert_eq!(got, sent - config(2).outbox_limit);
    let back = net.boxes[1].send(0, b"x", &[]);
    assert!(matches!(back, Err(ChannelError::PeerLost { to: 0, .. })), "{back:?}");
    assert_eq!(net.boxes[1].poll(9, &mut |_, _| {}), Ok(0));
}

#[test]
fn a_death_that_shows_late_surfaces_on_a_later_send() {
    // Time stands still until the world runs, so the death comes before the message executes.
    let world = World::new(WorldConfig::new(3));
    let late = Duration::from_millis(200);
    let delay = Delay { one_in: 1, at_least: late, at_most: late };
    let plan = FaultPlan { delay, ..FaultPlan::none(3) };
    let mem = MemFabric::new();
    let fabric: Arc<dyn Fabric> = FaultFabric::wrap(mem.clone(), plan, world.env());
    let net = net(&fabric, 2);
    let peer = PeerId::compute(1);
    net.boxes[0].poll(1, &mut |_, _| {}).unwrap();
    net.boxes[0].send(1, b"posted, outcome unknown", &[]).unwrap();
    mem.kill(peer);
    // The mail task learns of it without any send or mail.
    world.run(TOO_LONG, net.boxes[0].wait_mail()).unwrap();
    let lost = ChannelError::PeerLost { to: 1, source: FabricError::PeerDead { peer } };
    assert_eq!(net.boxes[0].send(1, b"x", &[]), Err(lost));
}

#[test]
fn damaged_headers_are_refused_once_and_the_other_senders_go_on() {
    let message_of = |bytes: u64, sequence: u64| 1 | bytes << 2 | sequence << 16;
    let words = [
        ("too long", message_of(MAX_MESSAGE_BYTES as u64 + 1, 2)),
        ("longest length", message_of((1 << 14) - 1, 2)),
        ("of an earlier lap", message_of(40, 1)),
        ("ahead", message_of(40, 3)),
        ("no kind", 2 << 16),
        ("unknown kind", 3 | 2 << 16),
        ("skip with a length", 2 | 8 << 2 | 2 << 16),
        ("noise", u64::MAX),
    ];
    for (what, word) in words {
        let fabric: Arc<dyn Fabric> = MemFabric::new();
        let net = net(&fabric, 3);
        net.boxes[0].send(2, b"good", &[]).unwrap();
        net.boxes[1].send(2, b"other", &[]).unwrap();
        let at = ring_at(&net.boxes[2].descriptor(), 0) + 64;
        scribble(&net.endpoints[0], &net.boxes[2], at, word);
        let mut got = Vec::new();
        let polled = net.boxes[2].poll(9, &mut |from, m| got.push((from, m.to_vec())));
        assert_eq!(
            polled,
            Err(ChannelError::DamagedRecord { from: 0, offset: 64, word }),
            "{what}"
        );
        assert_eq!(got, [(0, b"good".to_vec()), (1, b"other".to_vec())], "{what}");
        net.boxes[1].send(2, b"again", &[]).unwrap();
        net.boxes[0].send(2, b"never", &[]).unwrap();
        got.clear();
        assert_eq!(net.boxes[2].poll(9, &mut |from, m| got.push((from, m.to_vec()))), Ok(1));
        assert_eq!(got, [(1, b"again".to_vec())], "{what}");
    }
}

#[test]
fn every_damaged_ring_is_reported() {
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let net = net(&fabric, 3);
    for sender in [0, 1] {
        let at = ring_at(&net.boxes[2].descriptor(), sender);
        scribble(&net.endpoints[0], &net.boxes[2], at, u64::MAX);
    }
    for from in [0, 1] {
        let polled = net.boxes[2].poll(9, &mut |_, _| panic!("nothing was sent"));
        let word = u64::MAX;
        assert_eq!(polled, Err(ChannelError::DamagedRecord { from, offset: 0, word }));
    }
    assert_eq!(net.boxes[2].poll(9, &mut |_, _| panic!("nothing was sent")), Ok(0));
}

#[test]
fn impossible_credit_is_refused() {
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let net = net(&fabric, 2);
    scribble(&net.endpoints[1], &net.boxes[0], 8, 1 << 40);
    let refused = loop {
        if let Err(error) = net.boxes[0].send(1, &[0; 1000], &[]) {
            break error;
        }
    };
    assert!(
        matches!(refused, ChannelError::DamagedCredit { to: 1, credit, least: 0, most }
            if credit == 1 << 40 && most < 32 << 10),
        "{refused}"
    );
    assert_eq!(net.boxes[0].send(1, b"x", &[]), Err(refused));
}

#[test]
fn messages_of_every_limit_size_arrive() {
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let net = net(&fabric, 2);
    let sizes = [0, 1, 7, 8, 55, 56, 57, 63, 64, 8191, 8192, MAX_MESSAGE_BYTES];
    for bytes in sizes {
        let message: Vec<u8> = (0..bytes).map(|i| (i * 7 + bytes) as u8 | 1).collect();
        let (header, payload) = message.split_at(bytes.min(64));
        net.boxes[0].send(1, header, payload).unwrap();
        let mut got = None;
        net.boxes[1].poll(1, &mut |_, m| got = Some(m.to_vec())).unwrap();
        assert_eq!(got.as_ref(), Some(&message), "{bytes}");
    }
    let limit = MAX_MESSAGE_BYTES;
    let refused = net.boxes[0].send(1, &[0; 64], &[0; 8193]);
    assert_eq!(refused, Err(ChannelError::MessageTooLong { bytes: limit + 1, limit }));
}

#[test]
fn bad_peers_are_refused() {
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let net = unconnected(&fabric, 2);
    let (a, b) = (&net.boxes[0], &net.boxes[1]);
    let endpoint = &net.endpoints[0];
    assert_eq!(a.send(0, b"", &[]), Err(ChannelError::ToSelf { me: 0 }));
    assert_eq!(a.send(1, b"", &[]), Err(ChannelError::NotConnected { to: 1 }));
    assert_eq!(a.send(2, b"", &[]), Err(ChannelError::UnknownPeer { peer: 2, peers: 2 }));
    let mailbox = b.descriptor();
    assert_eq!(a.connect(0, &mailbox, endpoint), Err(ChannelError::ToSelf { me: 0 }));
    a.connect(1, &mailbox, endpoint).unwrap();
    assert_eq!(a.connect(1, &mailbox, endpoint), Err(ChannelError::AlreadyConnected { to: 1 }));
    let third = Mailbox::open(endpoint, 2, MailboxConfig { peers: 3, ..config(3) }).unwrap();
    let no_slot = third.connect(1, &mailbox, endpoint);
    assert!(matches!(no_slot, Err(ChannelError::Config { key: "peers", value: 2, .. })));
    let bad = Mailbox::open(endpoint, 0, MailboxConfig { ring_bytes: 1000, ..config(2) });
    let refused = bad.map(drop).unwrap_err();
    let text = "ring_bytes = 1000 is not allowed: a power of two in 32768 to 1073741824";
    assert_eq!(refused.to_string(), text);
}
