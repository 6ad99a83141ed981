//! The device of a fabric: chosen, probed, refused with a reason.

use std::sync::Arc;

use super::config::DeviceChoice;
use super::error::VerbsError;
use super::ffi::{Context, DeviceLimits, DeviceList, GidEntry, PortInfo};

/// Most reads and atomics of one queue pair that are under way.
const MAX_READS: u8 = 16;

/// Device, port and address, and what they allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Name of the device.
    pub device: String,
    /// Number of the port.
    pub port: u8,
    /// Index of the address; `None` on InfiniBand without a global route.
    pub gid_index: Option<u8>,
    /// Whether the port is one of Ethernet: RoCE.
    pub is_ethernet: bool,
    /// Bytes of a packet.
    pub mtu_bytes: u32,
    /// Reads and atomics that one queue pair may have under way.
    pub outstanding_reads: u8,
}

/// An open device and what was chosen of it.
pub(super) struct Device {
    pub(super) context: Arc<Context>,
    pub(super) info: DeviceInfo,
    pub(super) limits: DeviceLimits,
    pub(super) lid: u16,
    pub(super) mtu: u32,
    pub(super) gid: [u8; 16],
}

impl Device {
    /// Opens the device that was chosen, or the first that has an active port, atomics and an
    /// address.
    pub(super) fn open(choice: &DeviceChoice) -> Result<Self, VerbsError> {
        let list = DeviceList::new().map_err(|error| VerbsError::of_list(&error))?;
        let names = list.names();
        if let Some(name) = &choice.device {
            if !names.contains(name) {
                let (name, found) = (name.clone(), names);
                return Err(if found.is_empty() {
                    VerbsError::NoDevice
                } else {
                    VerbsError::UnknownDevice { name, found }
                });
            }
            return Self::open_named(&list, name, choice);
        }
        // The reason why the first cannot be used says most.
        let mut reason = None;
        for name in &names {
            match Self::open_named(&list, name, choice) {
                Ok(device) => return Ok(device),
                Err(error) => reason = reason.or(Some(error)),
            }
        }
        Err(reason.unwrap_or(VerbsError::NoDevice))
    }

    fn open_named(
        list: &DeviceList,
        name: &str,
        choice: &DeviceChoice,
    ) -> Result<Self, VerbsError> {
        let refused = |what| move |error| VerbsError::refused(name, what, &error);
        let context = list.open(name).map_err(refused("it cannot be opened"))?;
        let limits = context.limits().map_err(refused("it does not tell its limits"))?;
        if !limits.has_atomics {
            return Err(VerbsError::NoAtomics { device: name.into() });
        }
        let (port, info) = choose_port(&context, name, limits.ports, choice.port)?;
        let gid = choose_gid(&context, name, (port, &info), choice.gid_index)?;
        let outstanding_reads = limits.source_reads.min(limits.target_reads).clamp(1, MAX_READS);
        Ok(Self {
            info: DeviceInfo {
                device: name.into(),
                port,
                gid_index: gid.map(|gid| gid.index),
                is_ethernet: info.is_ethernet,
                mtu_bytes: 128 << info.mtu,
                outstanding_reads,
            },
            context: Arc::new(context),
            limits,
            lid: info.lid,
            mtu: info.mtu,
            gid: gid.map_or([0; 16], |gid| gid.gid),
        })
    }
}

fn choose_port(
    context: &Context,
    device: &str,
    ports: u8,
    wanted: Option<u8>,
) -> Result<(u8, PortInfo), VerbsError> {
    if let Some(port) = wanted.filter(|port| !(1..=ports).contains(port)) {
        return Err(VerbsError::UnknownPort { device: device.into(), port, ports });
    }
    let asked = wanted.map_or(1..=ports, |port| port..=port);
    // The reason why the first cannot be used says most.
    let mut reason = None;
    for port in asked {
        let why = match context.port(port) {
            Ok(info) if info.is_active => return Ok((port, info)),
            Ok(info) => VerbsError::down(device, port, &info),
            Err(error) => VerbsError::refused(device, "a port does not answer", &error),
        };
        reason = reason.or(Some(why));
    }
    Err(reason.unwrap_or(VerbsError::UnknownPort { device: device.into(), port: 1, ports }))
}

fn choose_gid(
    context: &Context,
    device: &str,
    (port, info): (u8, &PortInfo),
    wanted: Option<u8>,
) -> Result<Option<GidEntry>, VerbsError> {
    let none = |index| VerbsError::NoGid { device: device.into(), port, index };
    if let Some(index) = wanted {
        return context.gid(port, index).map(Some).ok_or_else(|| none(Some(index)));
    }
    if !info.is_ethernet {
        // Within a subnet of InfiniBand the LID is enough.
        return Ok(None);
    }
    let indexes = 0..=u8::try_from(info.gids.saturating_sub(1)).unwrap_or(u8::MAX);
    let gids: Vec<_> = indexes.filter_map(|index| context.gid(port, index)).collect();
    best_gid(&gids).map(Some).ok_or_else(|| none(None))
}

/// The address that reaches furthest: routable before not, of the network before of the link; of
/// equal ones the first.
fn best_gid(gids: &[GidEntry]) -> Option<GidEntry> {
    let is_of_link = |gid: &GidEntry| gid.gid.starts_with(&[0xfe, 0x80]);
    let rank = |gid: &&GidEntry| (!gid.is_routable, is_of_link(gid), gid.index);
    gids.iter().min_by_key(rank).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(index: u8, start: [u8; 2], is_routable: bool) -> GidEntry {
        let mut gid = [0; 16];
        gid[..2].copy_from_slice(&start);
        gid[15] = 1;
        GidEntry { index, gid, is_routable }
    }

    #[test]
    fn the_address_that_reaches_furthest_is_chosen() {
        let link = [0xfe, 0x80];
        let all = [
            gid(0, link, false),
            gid(1, link, true),
            gid(2, [0, 0], false),
            gid(3, [0, 0], true),
            gid(4, [0, 0], true),
        ];
        let chosen = |gids: &[GidEntry]| best_gid(gids).map(|gid| gid.index);
        assert_eq!(chosen(&all), Some(3));
        assert_eq!(chosen(&all[..3]), Some(1));
        assert_eq!(chosen(&[all[0], all[2]]), Some(2));
        assert_eq!(chosen(&[]), None);
    }
}
