//! What perftest measures on the same card, where it is installed: the yardstick that people with
//! cards know.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use selkie::fabric::verbs::DeviceInfo;

/// How long one program may take.
const LIMIT: Duration = Duration::from_secs(60);
/// How long the side that listens may take to be ready.
const READY: Duration = Duration::from_secs(1);

/// Name of what it measures, its program, and its bytes; `None` where it takes no such option.
pub(super) const PROGRAMS: [(&str, &str, Option<u32>); 3] = [
    ("read, 2 KiB", "ib_read_lat", Some(2048)),
    ("write, 8 B", "ib_write_lat", Some(8)),
    ("atomic", "ib_atomic_lat", None),
];

/// The typical latency that a program finds; `None` if it is not installed, or says nothing.
pub(super) fn typical(info: &DeviceInfo, program: &str, bytes: Option<u32>) -> Option<Duration> {
    let command = || {
        let mut command = Command::new(program);
        let port = info.port.to_string();
        command.args(["-d", &info.device, "-i", &port, "-n", "1000", "-p", "18727"]);
        if let Some(gid) = info.gid_index {
            command.args(["-x", &gid.to_string()]);
        }
        if let Some(bytes) = bytes {
            command.args(["-s", &bytes.to_string()]);
        }
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    };
    let listening = command().stdout(Stdio::null()).spawn().ok()?;
    let listening = Ended(listening);
    thread::sleep(READY);
    let asking = command().arg("127.0.0.1").stdout(Stdio::piped()).spawn().ok()?;
    let mut asking = Ended(asking);
    let started = Instant::now();
    while asking.0.try_wait().ok()?.is_none() {
        if started.elapsed() >= LIMIT {
            return None;
        }
        thread::sleep(Duration::from_millis(10));
    }
    drop(listening);
    let mut said = String::new();
    std::io::Read::read_to_string(asking.0.stdout.as_mut()?, &mut said).ok()?;
    let micros = typical_of(&said)?;
    Some(Duration::from_nanos((micros * 1000.0) as u64))
}

/// The column `t_typical[usec]` of the last line with numbers.
fn typical_of(said: &str) -> Option<f64> {
    let is_row = |line: &&str| line.trim_start().starts_with(|c: char| c.is_ascii_digit());
    let row = said.lines().rfind(is_row)?;
    row.split_whitespace().nth(4)?.parse().ok()
}

/// A process that does not outlive this value.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_typical_latency_is_found() {
        let said = concat!(
            " local address: LID 0000\n---\n",
            " #bytes #iterations  t_min[usec]  t_max[usec]  t_typical[usec]  t_avg[usec]\n",
            " 2      1000         1.67         15.56        1.71             1.75\n---\n",
        );
        assert_eq!(typical_of(said), Some(1.71));
        assert_eq!(typical_of("no device\n"), None);
    }
}
