//! Which process listens at an address that is in use, as far as the system says.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use selkie::fabric::FabricError;

/// State of a socket that listens, in `/proc/net/tcp`.
const LISTENS: &str = "0A";

/// The process that listens at an address, by number and name, to be put behind a message; nothing
/// if it is not known: only those of the calling user can be looked at.
pub(crate) fn held_by(address: SocketAddr) -> String {
    let inodes = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| {
        let table = fs::read_to_string(path).unwrap_or_default();
        table.lines().filter_map(|line| listening(line, address)).collect::<Vec<_>>()
    });
    let holder = inodes.concat().into_iter().find_map(|inode| process_with(&inode));
    holder.map_or_else(String::new, |holder| format!(": {holder} listens there"))
}

/// The same of an address that a node was to listen at, if it is the network that has failed.
pub(crate) fn held_by_in(error: &FabricError, listen: Option<SocketAddr>) -> String {
    let is_asked_for = matches!(error, FabricError::Network { .. });
    let listen = listen.filter(|listen| is_asked_for && listen.port() != 0);
    listen.map_or_else(String::new, held_by)
}

/// The inode of the socket in a line of the table, if it listens there.
fn listening(line: &str, address: SocketAddr) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, local, _, state, ..] = words[..] else { return None };
    let inode = *words.get(9)?;
    let (ip, port) = local.split_once(':')?;
    let is_there = u16::from_str_radix(port, 16) == Ok(address.port());
    let ip = address_of(ip)?;
    let meets = ip == address.ip() || ip.is_unspecified() || address.ip().is_unspecified();
    (state == LISTENS && is_there && meets).then(|| inode.to_owned())
}

/// An address as the system writes it: words of 32 bits in the order of the processor.
fn address_of(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(hex.get(8 * at..8 * at + 8)?, 16).ok();
    match hex.len() {
        8 => Some(IpAddr::from(word(0)?.to_ne_bytes())),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?].map(u32::to_ne_bytes);
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Some(IpAddr::from(bytes).to_canonical())
        }
        _ => None,
    }
}

/// `process 123 (selkie)`, the one that has this socket.
fn process_with(inode: &str) -> Option<String> {
    let socket = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let has_it = |process: &Path| {
        let files = fs::read_dir(process.join("fd")).into_iter().flatten().filter_map(Result::ok);
        files.into_iter().any(|file| {
            fs::read_link(file.path()).is_ok_and(|link| link.as_os_str() == socket.as_str())
        })
    };
    // By their numbers, not by `self`.
    let is_number = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.parse::<u32>().is_ok())
    };
    let mut processes = processes.map(|entry| entry.path());
    let found = processes.find(|process| is_number(process) && has_it(process))?;
    let number = found.file_name()?.to_str()?;
    let name = fs::read_to_string(found.join("comm")).unwrap_or_default();
    Some(format!("process {number} ({})", name.trim()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_listener_is_found_by_its_address_and_others_are_not() {
        let own = format!(": process {} (", std::process::id());
        for at in ["127.0.0.1:0", "0.0.0.0:0"] {
            let listener = TcpListener::bind(at).unwrap();
            let port = listener.local_addr().unwrap().port();
            let held = held_by(SocketAddr::from(([127, 0, 0, 1], port)));
            assert!(held.starts_with(&own) && held.ends_with(") listens there"), "{held}");
            drop(listener);
            assert_eq!(held_by(SocketAddr::from(([127, 0, 0, 1], port))), "");
        }
    }
}
