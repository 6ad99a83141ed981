//! Queue pairs: reliable connections.
//!
//! A queue pair owns the memory that its requests move data from and to, so a request names only
//! places in it, and no buffer of a caller is ever under a device.

use std::io;
use std::mem::zeroed;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use parking_lot::RwLock;
use rdma_mummy_sys as sys;
use smallvec::SmallVec;

use super::check;
use super::completions::CompletionQueue;
use super::memory::{ProtectionDomain, Registration};

/// How often a side sends again what is not acknowledged before it gives up.
const RETRIES: u8 = 7;
/// Stands for: as often as it takes, until the target has a receive. Deadlines bound it.
const RNR_RETRIES: u8 = 7;
/// The pause before such a retry: 0.64 ms.
const RNR_TIMER: u8 = 12;

/// How many requests a queue pair holds.
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) struct Capacity {
    pub(in crate::verbs) sends: u32,
    pub(in crate::verbs) receives: u32,
    /// Bytes that a request may carry itself.
    pub(in crate::verbs) inline: u32,
}

/// How the two sides reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::verbs) struct Route {
    pub(in crate::verbs) lid: u16,
    pub(in crate::verbs) gid: [u8; 16],
    pub(in crate::verbs) queue_pair: u32,
    /// Number of its first packet: 24 bits.
    pub(in crate::verbs) first_packet: u32,
}

/// What both sides of a connection agree on.
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) struct LinkParameters {
    pub(in crate::verbs) port: u8,
    /// Index of the own address; `None` goes by LID alone.
    pub(in crate::verbs) gid_index: Option<u8>,
    pub(in crate::verbs) mtu: u32,
    /// Reads and atomics under way from here.
    pub(in crate::verbs) source_reads: u8,
    /// Reads and atomics under way to here.
    pub(in crate::verbs) target_reads: u8,
    /// How long a side waits for an acknowledgement: 4.096 us, doubled so often.
    pub(in crate::verbs) ack_timeout: u8,
}

/// One request.
pub(in crate::verbs) struct WorkRequest<'a> {
    pub(in crate::verbs) id: u64,
    pub(in crate::verbs) operation: Operation<'a>,
    pub(in crate::verbs) address: u64,
    pub(in crate::verbs) key: u32,
    /// It completes; without this only a failure does.
    pub(in crate::verbs) is_signalled: bool,
    /// It waits for the reads and atomics before it.
    pub(in crate::verbs) is_fenced: bool,
}

/// What a request does. Places are byte offsets in the memory of the queue pair.
pub(in crate::verbs) enum Operation<'a> {
    Read { into: usize, bytes: u32 },
    Write { from: Payload<'a>, immediate: Option<u32> },
    CompareAndSwap { into: usize, expected: u64, desired: u64 },
    FetchAndAdd { into: usize, delta: u64 },
}

/// What a write writes.
pub(in crate::verbs) enum Payload<'a> {
    /// The request carries it.
    Inline(&'a [u8]),
    Staged {
        from: usize,
        bytes: u32,
    },
}

/// A queue pair of a reliable connection.
pub(in crate::verbs) struct RcQueuePair {
    number: u32,
    inline: usize,
    /// Gone once it is destroyed.
    raw: RwLock<Option<Raw>>,
    staging: Option<Registration>,
    _send: Arc<CompletionQueue>,
    _receive: Arc<CompletionQueue>,
    _domain: Arc<ProtectionDomain>,
}

struct Raw(NonNull<sys::ibv_qp>);

// SAFETY: the library may be called from any thread.
unsafe impl Send for Raw {}
// SAFETY: as above, at the same time.
unsafe impl Sync for Raw {}

fn is_gone() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

impl RcQueuePair {
    /// A queue pair that is not connected. It moves data from and to `staging`.
    pub(in crate::verbs) fn new(
        domain: &Arc<ProtectionDomain>,
        (send, receive): (&Arc<CompletionQueue>, &Arc<CompletionQueue>),
        capacity: Capacity,
        staging: Option<Registration>,
    ) -> io::Result<Self> {
        // SAFETY: numbers and pointers, for which zero is a value.
        let mut attr: sys::ibv_qp_init_attr = unsafe { zeroed() };
        attr.send_cq = send.raw.as_ptr();
        attr.recv_cq = receive.raw.as_ptr();
        attr.qp_type = sys::ibv_qp_type::IBV_QPT_RC;
        attr.cap.max_send_wr = capacity.sends;
        attr.cap.max_recv_wr = capacity.receives;
        attr.cap.max_send_sge = 1;
        attr.cap.max_recv_sge = 1;
        attr.cap.max_inline_data = capacity.inline;
        // SAFETY: the domain and both queues live as long as the queue pair, which owns them.
        let raw = unsafe { sys::ibv_create_qp(domain.raw.as_ptr(), &raw mut attr) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: it was made just now.
        let number = unsafe { raw.as_ref() }.qp_num;
        Ok(Self {
            number,
            inline: attr.cap.max_inline_data as usize,
            raw: RwLock::new(Some(Raw(raw))),
            staging,
            _send: Arc::clone(send),
            _receive: Arc::clone(receive),
            _domain: Arc::clone(domain),
        })
    }

    pub(in crate::verbs) fn number(&self) -> u32 {
        self.number
    }

    /// Bytes that a request may carry itself.
    pub(in crate::verbs) fn inline_bytes(&self) -> usize {
        self.inline
    }

    /// The memory of its requests.
    pub(in crate::verbs) fn staging(&self) -> Option<&Registration> {
        self.staging.as_ref()
    }

    /// Runs a call on the queue pair, unless it is destroyed.
    fn with(&self, call: impl FnOnce(*mut sys::ibv_qp) -> i32) -> io::Result<()> {
        let raw = self.raw.read();
        let raw = raw.as_ref().ok_or_else(is_gone)?;
        check(call(raw.0.as_ptr()))
    }

    /// Makes it ready for receives. `rights` is what the peer may do at all.
    pub(in crate::verbs) fn initialise(&self, port: u8, is_target: bool) -> io::Result<()> {
        use sys::ibv_access_flags as Access;
        use sys::ibv_qp_attr_mask as Mask;
        let access = if is_target {
            Access::IBV_ACCESS_REMOTE_READ
                | Access::IBV_ACCESS_REMOTE_WRITE
                | Access::IBV_ACCESS_REMOTE_ATOMIC
        } else {
            Access(0)
        };
        // SAFETY: numbers, for which zero is a value.
        let mut attr: sys::ibv_qp_attr = unsafe { zeroed() };
        attr.qp_state = sys::ibv_qp_state::IBV_QPS_INIT;
        attr.port_num = port;
        attr.qp_access_flags = access.0;
        let mask = Mask::IBV_QP_STATE
            | Mask::IBV_QP_PKEY_INDEX
            | Mask::IBV_QP_PORT
            | Mask::IBV_QP_ACCESS_FLAGS;
        // SAFETY: the queue pair lives, and the attributes are read during the call.
        self.with(|qp| unsafe { sys::ibv_modify_qp(qp, &raw mut attr, mask.0 as i32) })
    }

    /// Connects it.
    pub(in crate::verbs) fn connect(
        &self,
        own_first_packet: u32,
        peer: &Route,
        link: &LinkParameters,
    ) -> io::Result<()> {
        use sys::ibv_qp_attr_mask as Mask;
        // SAFETY: numbers, for which zero is a value.
        let mut attr: sys::ibv_qp_attr = unsafe { zeroed() };
        attr.qp_state = sys::ibv_qp_state::IBV_QPS_RTR;
        attr.path_mtu = link.mtu;
        attr.dest_qp_num = peer.queue_pair;
        attr.rq_psn = peer.first_packet;
        attr.max_dest_rd_atomic = link.target_reads;
        attr.min_rnr_timer = RNR_TIMER;
        attr.ah_attr.dlid = peer.lid;
        attr.ah_attr.port_num = link.port;
        if let Some(index) = link.gid_index {
            attr.ah_attr.is_global = 1;
            attr.ah_attr.grh.dgid.raw = peer.gid;
            attr.ah_attr.grh.sgid_index = index;
            attr.ah_attr.grh.hop_limit = 64;
        }
        let mask = Mask::IBV_QP_STATE
            | Mask::IBV_QP_AV
            | Mask::IBV_QP_PATH_MTU
            | Mask::IBV_QP_DEST_QPN
            | Mask::IBV_QP_RQ_PSN
            | Mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | Mask::IBV_QP_MIN_RNR_TIMER;
        // SAFETY: the queue pair lives, and the attributes are read during the call.
        self.with(|qp| unsafe { sys::ibv_modify_qp(qp, &raw mut attr, mask.0 as i32) })?;
        attr.qp_state = sys::ibv_qp_state::IBV_QPS_RTS;
        attr.sq_psn = own_first_packet;
        attr.timeout = link.ack_timeout;
        attr.retry_cnt = RETRIES;
        attr.rnr_retry = RNR_RETRIES;
        attr.max_rd_atomic = link.source_reads;
        let mask = Mask::IBV_QP_STATE
            | Mask::IBV_QP_SQ_PSN
            | Mask::IBV_QP_TIMEOUT
            | Mask::IBV_QP_RETRY_CNT
            | Mask::IBV_QP_RNR_RETRY
            | Mask::IBV_QP_MAX_QP_RD_ATOMIC;
        // SAFETY: as above.
        self.with(|qp| unsafe { sys::ibv_modify_qp(qp, &raw mut attr, mask.0 as i32) })
    }

    /// Posts a receive without memory, for a write that carries a number.
    pub(in crate::verbs) fn post_receive(&self, id: u64) -> io::Result<()> {
        let mut request =
            sys::ibv_recv_wr { wr_id: id, next: null_mut(), sg_list: null_mut(), num_sge: 0 };
        let mut bad = null_mut();
        // SAFETY: the queue pair lives, and the request is read during the call.
        self.with(|qp| unsafe { sys::ibv_post_recv(qp, &raw mut request, &raw mut bad) })
    }

    /// Posts requests with one doorbell. They have to fit into the queue, and their places into the
    /// memory of the queue pair.
    pub(in crate::verbs) fn post(&self, requests: &[WorkRequest<'_>]) -> io::Result<()> {
        let mut pieces: SmallVec<[sys::ibv_sge; 8]> = SmallVec::with_capacity(requests.len());
        for request in requests {
            pieces.push(self.piece(&request.operation)?);
        }
        let mut list: SmallVec<[sys::ibv_send_wr; 8]> = SmallVec::with_capacity(requests.len());
        for request in requests {
            list.push(work_request(request));
        }
        // Linked back to front, once nothing moves any more.
        let mut next = null_mut();
        for (request, piece) in list.iter_mut().zip(&mut pieces).rev() {
            request.next = next;
            request.sg_list = &raw mut *piece;
            request.num_sge = i32::from(piece.length > 0);
            next = &raw mut *request;
        }
        let mut bad = null_mut();
        // SAFETY: the queue pair lives; the list is read during the call. The memory of the
        // requests is that of this queue pair, which outlives it, or is read during the call.
        self.with(|qp| unsafe { sys::ibv_post_send(qp, next, &raw mut bad) })
    }

    /// The memory of a request.
    fn piece(&self, operation: &Operation<'_>) -> io::Result<sys::ibv_sge> {
        let (at, length) = match operation {
            Operation::Write { from: Payload::Inline(bytes), .. } => {
                if bytes.len() > self.inline {
                    return Err(io::ErrorKind::InvalidInput.into());
                }
                let (addr, length) = (bytes.as_ptr() as u64, bytes.len() as u32);
                return Ok(sys::ibv_sge { addr, length, lkey: 0 });
            }
            Operation::Write { from: Payload::Staged { from, bytes }, .. } => (*from, *bytes),
            Operation::Read { into, bytes } => (*into, *bytes),
            Operation::CompareAndSwap { into, .. } | Operation::FetchAndAdd { into, .. } => {
                (*into, 8)
            }
        };
        let staging = self.staging.as_ref().ok_or_else(is_gone)?;
        if at.checked_add(length as usize).is_none_or(|end| end > staging.bytes()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(sys::ibv_sge { addr: staging.address() + at as u64, length, lkey: staging.local_key() })
    }

    /// Destroys it: once this returns, the device neither executes requests of the peer nor touches
    /// the memory of this queue pair's own.
    pub(in crate::verbs) fn destroy(&self) {
        let raw = self.raw.write().take();
        if let Some(Raw(raw)) = raw {
            // SAFETY: it was taken out, so this happens once, and no other call is under way.
            unsafe { sys::ibv_destroy_qp(raw.as_ptr()) };
        }
    }
}

impl Drop for RcQueuePair {
    fn drop(&mut self) {
        self.destroy();
    }
}

/// A request without its memory.
fn work_request(request: &WorkRequest<'_>) -> sys::ibv_send_wr {
    use sys::ibv_send_flags as Flags;
    use sys::ibv_wr_opcode as Opcode;
    // SAFETY: numbers and pointers, for which zero is a value.
    let mut raw: sys::ibv_send_wr = unsafe { zeroed() };
    let mut flags = Flags(0);
    raw.wr_id = request.id;
    let (remote_addr, rkey) = (request.address, request.key);
    match &request.operation {
        Operation::Read { .. } => {
            raw.opcode = Opcode::IBV_WR_RDMA_READ;
            raw.wr.rdma = sys::rdma_t { remote_addr, rkey };
        }
        Operation::Write { from, immediate } => {
            raw.opcode = Opcode::IBV_WR_RDMA_WRITE;
            if let Some(immediate) = immediate {
                raw.opcode = Opcode::IBV_WR_RDMA_WRITE_WITH_IMM;
                raw.imm_data_invalidated_rkey_union.imm_data = immediate.to_be();
            }
            if matches!(from, Payload::Inline(_)) {
                flags |= Flags::IBV_SEND_INLINE;
            }
            raw.wr.rdma = sys::rdma_t { remote_addr, rkey };
        }
        Operation::CompareAndSwap { expected, desired, .. } => {
            raw.opcode = Opcode::IBV_WR_ATOMIC_CMP_AND_SWP;
            let (compare_add, swap) = (*expected, *desired);
            raw.wr.atomic = sys::atomic_t { remote_addr, compare_add, swap, rkey };
        }
        Operation::FetchAndAdd { delta, .. } => {
            raw.opcode = Opcode::IBV_WR_ATOMIC_FETCH_AND_ADD;
            let (compare_add, swap) = (*delta, 0);
            raw.wr.atomic = sys::atomic_t { remote_addr, compare_add, swap, rkey };
        }
    }
    if request.is_signalled {
        flags |= Flags::IBV_SEND_SIGNALED;
    }
    if request.is_fenced {
        flags |= Flags::IBV_SEND_FENCE;
    }
    raw.send_flags = flags.0;
    raw
}
