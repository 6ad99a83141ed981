//! A pair of queue pairs without a fabric: what the binding alone does and takes. Benchmarks
//! compare the fabric with it, and tests find by it what a card refuses.

use std::io;
use std::sync::Arc;

use super::config::DeviceChoice;
use super::device::Device;
use super::error::VerbsError;
use super::ffi::{
    Capacity, Completed, CompletionQueue, DeviceMemory, EventChannel, LinkParameters, Operation,
    ProtectionDomain, RcQueuePair, Registration, Route, WorkRequest,
};
use crate::domain::Rights;
use crate::mem::words::{PAGE_BYTES, Words};

/// Bytes of the memory that the pair reads.
const BYTES: usize = 64 << 10;
/// Looks at the completion queue before a request is given up: seconds.
const MOST_LOOKS: u32 = 3_000_000;
/// Requests of a queue pair.
const REQUESTS: u32 = 16;

/// Two connected queue pairs of one device, and memory between them.
pub struct DirectPair {
    device: Device,
    completions: Arc<CompletionQueue>,
    source: RcQueuePair,
    target: RcQueuePair,
    memory: Registration,
}

impl DirectPair {
    /// A pair on the device.
    ///
    /// # Errors
    /// What is missing.
    pub fn open(choice: &DeviceChoice) -> Result<Self, VerbsError> {
        Self::open_with(choice, Rights::ALL)
    }

    /// A pair whose source has these rights.
    fn open_with(choice: &DeviceChoice, rights: Rights) -> Result<Self, VerbsError> {
        let device = Device::open(choice)?;
        let name = device.info.device.clone();
        Self::make(device, rights)
            .map_err(|why| VerbsError::refused(&name, "no pair of queue pairs", &why))
    }

    fn make(device: Device, rights: Rights) -> io::Result<Self> {
        let channel = EventChannel::new(&device.context)?;
        let completions = CompletionQueue::new(&channel, 4 * REQUESTS)?;
        let (near, far) =
            (ProtectionDomain::new(&device.context)?, ProtectionDomain::new(&device.context)?);
        let words = || -> io::Result<Arc<dyn DeviceMemory>> {
            let words = Words::zeroed(BYTES / PAGE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
            Ok(Arc::new(words))
        };
        let staging = Registration::new(&near, words()?, 0..BYTES, Rights::default())?;
        let memory = Registration::new(&far, words()?, 0..BYTES, rights)?;
        let capacity = Capacity { sends: REQUESTS, receives: 1, inline: 0 };
        let queues = (&completions, &completions);
        let source = RcQueuePair::new(&near, queues, capacity, Some(staging))?;
        let target = RcQueuePair::new(&far, queues, capacity, None)?;
        source.initialise(device.info.port, false)?;
        target.initialise(device.info.port, true)?;
        let link = LinkParameters {
            port: device.info.port,
            gid_index: device.info.gid_index,
            mtu: device.mtu,
            source_reads: device.info.outstanding_reads,
            target_reads: device.info.outstanding_reads,
            ack_timeout: 14,
        };
        let route = |queue_pair: &RcQueuePair| Route {
            lid: device.lid,
            gid: device.gid,
            queue_pair: queue_pair.number(),
            first_packet: 0,
        };
        target.connect(0, &route(&source), &link)?;
        source.connect(0, &route(&target), &link)?;
        Ok(Self { device, completions, source, target, memory })
    }

    /// Name of the device.
    pub fn device(&self) -> &str {
        &self.device.info.device
    }

    /// Adds to a word and reads so many bytes, posted together, and asks until they are done.
    ///
    /// # Errors
    /// If the device refuses it, or completes it with a failure.
    pub fn add_and_read(&self, bytes: u32) -> io::Result<()> {
        let add = Operation::FetchAndAdd { into: 0, delta: 1 };
        let read = Operation::Read { into: 64, bytes };
        let at = self.memory.address();
        match self.run([(add, at), (read, at + 4096)], self.memory.remote_key())? {
            Some(0) => Ok(()),
            Some(status) => Err(io::Error::other(format!("completion with status {status}"))),
            None => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Posts requests together, and returns the status of the first completion; `None` if there is
    /// none after very many looks.
    fn run<const N: usize>(
        &self,
        operations: [(Operation<'_>, u64); N],
        key: u32,
    ) -> io::Result<Option<u32>> {
        let request = |(operation, address)| WorkRequest {
            id: 0,
            operation,
            address,
            key,
            is_signalled: false,
            is_fenced: false,
        };
        let mut requests = operations.map(request);
        if let Some(last) = requests.last_mut() {
            last.is_signalled = true;
        }
        self.source.post(&requests)?;
        let mut taken: Vec<Completed> = Vec::new();
        for _ in 0..MOST_LOOKS {
            self.completions.poll(&mut taken)?;
            if !taken.is_empty() {
                break;
            }
            std::thread::yield_now();
        }
        Ok(taken.first().map(|first| first.status))
    }
}

impl Drop for DirectPair {
    fn drop(&mut self) {
        self.source.destroy();
        self.target.destroy();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::RdmaFault;

    /// The pair, unless the host has no device.
    fn pair() -> Option<DirectPair> {
        pair_with(Rights::ALL)
    }

    fn pair_with(rights: Rights) -> Option<DirectPair> {
        match DirectPair::open_with(&DeviceChoice::default(), rights) {
            Ok(pair) => Some(pair),
            Err(error) => {
                assert!(std::env::var_os("SELKIE_RDMA").is_none(), "no device: {error}");
                println!("skipped: {error}");
                None
            }
        }
    }

    fn first_word(pair: &DirectPair) -> u64 {
        Words::load(&pair.memory.words()[0])
    }

    fn add() -> Operation<'static> {
        Operation::FetchAndAdd { into: 0, delta: 1 }
    }

    fn fault(pair: &DirectPair, key: u32, at: u64) -> Option<RdmaFault> {
        let at = pair.memory.address().wrapping_add(at);
        let status = pair.run([(add(), at)], key).unwrap().expect("a completion");
        assert_ne!(status, 0, "it went well");
        RdmaFault::of_status(status)
    }

    #[test]
    fn a_card_refuses_other_keys_and_other_bytes() {
        let Some(pair) = pair() else { return };
        pair.add_and_read(2048).unwrap();
        assert_eq!(first_word(&pair), 1);
        let key = pair.memory.remote_key();
        assert_eq!(fault(&pair, key ^ 0xff, 0), Some(RdmaFault::RemoteAccess));
        // A refusal ends a queue pair.
        assert!(pair.add_and_read(2048).is_err());
        assert_eq!(first_word(&pair), 1);
        let Some(pair) = self::pair() else { return };
        let key = pair.memory.remote_key();
        assert_eq!(fault(&pair, key, BYTES as u64), Some(RdmaFault::RemoteAccess));
        let Some(pair) = self::pair() else { return };
        let own = pair.source.staging().unwrap();
        // The key of memory of another protection domain, though the bytes are registered.
        let there = own.address().wrapping_sub(pair.memory.address());
        assert_eq!(fault(&pair, own.remote_key(), there), Some(RdmaFault::RemoteAccess));
    }

    #[test]
    fn a_card_refuses_what_the_rights_of_a_window_do_not_have() {
        for (rights, is_right) in [
            (Rights::READ, false),
            (Rights { atomic: false, ..Rights::ALL }, false),
            (Rights::ATOMIC, true),
        ] {
            let Some(pair) = pair_with(rights) else { return };
            let at = pair.memory.address();
            let status = pair.run([(add(), at)], pair.memory.remote_key()).unwrap();
            assert_eq!(status == Some(0), is_right, "{rights:?}: {status:?}");
            assert_eq!(first_word(&pair), u64::from(is_right));
        }
    }

    #[test]
    fn a_node_whose_queue_pair_was_destroyed_at_the_target_writes_nothing() {
        let Some(pair) = pair() else { return };
        pair.add_and_read(64).unwrap();
        pair.target.destroy();
        let key = pair.memory.remote_key();
        let status = pair.run([(add(), pair.memory.address())], key).unwrap();
        // Soft-RoCE never gives up; cards say that the retries are exceeded. For this there are
        // deadlines.
        assert!(matches!(status, None | Some(12)), "{status:?}");
        assert_eq!(first_word(&pair), 1, "nothing was written");
    }
}
