//! What there is on this host, as the system says it. Nothing is judged here, and nothing changed.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};
use selkie::memnode::monitor::{FreeMemory, HostMemory};

/// Where shared pools lie.
pub(super) const SHARED_MEMORY: &str = "/dev/shm";
/// Sleeps whose lateness is measured, and how long each is.
const SLEEPS: u32 = 20;
const SLEEP: Duration = Duration::from_millis(5);

/// What there is. A value that the system does not say is `None`.
#[derive(Clone, Debug, Default)]
pub(super) struct Host {
    pub(super) kernel: Option<String>,
    pub(super) cores: Option<usize>,
    /// Bytes that can be had without swapping, and within the limits of this process.
    pub(super) available_memory: Option<u64>,
    /// Those of a control group are what leaves least.
    pub(super) is_limited: bool,
    /// `vm.overcommit_memory`.
    pub(super) overcommit: Option<String>,
    /// Bytes of the file system for shared memory: in all, and free.
    pub(super) shared_memory: Option<(u64, u64)>,
    /// The choice of transparent huge pages for shared memory, and for memory of a process.
    pub(super) shared_huge_pages: Option<String>,
    pub(super) huge_pages: Option<String>,
    pub(super) clock_source: Option<String>,
    /// Limits of this process; `None` for none.
    pub(super) locked_memory: Option<u64>,
    pub(super) open_files: Option<u64>,
    /// RDMA devices.
    pub(super) rdma: Vec<String>,
    /// How much later than asked for a sleep ended, at most.
    pub(super) lateness: Duration,
}

impl Host {
    /// Looks at this host; takes a tenth of a second.
    pub(super) fn this() -> Self {
        let of_host = line_of("/proc/meminfo", "MemAvailable:").and_then(|kib| bytes(&kib));
        // As a memory node asks before it takes what it is to lend.
        let available = HostMemory::default().free_bytes().ok().or(of_host);
        Self {
            kernel: line("/proc/sys/kernel/osrelease"),
            cores: std::thread::available_parallelism().ok().map(Into::into),
            available_memory: available,
            // The host's changes in between.
            is_limited: available.zip(of_host).is_some_and(|(own, host)| own < host / 10 * 9),
            overcommit: line("/proc/sys/vm/overcommit_memory"),
            shared_memory: rustix::fs::statvfs(SHARED_MEMORY)
                .ok()
                .map(|fs| (fs.f_blocks * fs.f_frsize, fs.f_bavail * fs.f_frsize)),
            shared_huge_pages: shared_huge_pages(),
            huge_pages: chosen("/sys/kernel/mm/transparent_hugepage/enabled"),
            clock_source: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            locked_memory: getrlimit(Resource::Memlock).current,
            open_files: getrlimit(Resource::Nofile).current,
            rdma: names_in("/sys/class/infiniband"),
            lateness: lateness(),
        }
    }
}

/// The first line of a file.
fn line(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok()?.lines().next().map(|line| line.trim().to_owned())
}

/// The rest of the line of a file that begins so.
fn line_of(path: &str, start: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(start)).map(|rest| rest.trim().to_owned())
}

/// `8167848 kB`, in bytes.
fn bytes(kib: &str) -> Option<u64> {
    kib.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The word in brackets: `always [madvise] never`.
fn chosen(path: &str) -> Option<String> {
    let line = line(path)?;
    let (_, rest) = line.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word.to_owned())
}

/// The choice of the mount, unless the system has one for all mounts.
fn shared_huge_pages() -> Option<String> {
    let of_all = chosen("/sys/kernel/mm/transparent_hugepage/shmem_enabled")?;
    if ["deny", "force"].contains(&of_all.as_str()) {
        return Some(of_all);
    }
    huge_of_mount(&fs::read_to_string("/proc/mounts").ok()?)
}

/// The option `huge=` of the file system for shared memory; without it no huge page is used.
fn huge_of_mount(mounts: &str) -> Option<String> {
    let of_mount = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let options = *words.get(3)?;
        (*words.get(1)? == SHARED_MEMORY).then(|| options.to_owned())
    };
    // The last one lies above the others.
    let options = mounts.lines().filter_map(of_mount).next_back()?;
    let huge = options.split(',').find_map(|option| option.strip_prefix("huge="));
    Some(huge.unwrap_or("never").to_owned())
}

fn names_in(directory: &str) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

fn lateness() -> Duration {
    let late = (0..SLEEPS).map(|_| {
        let started = Instant::now();
        std::thread::sleep(SLEEP);
        started.elapsed().saturating_sub(SLEEP)
    });
    late.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_system_are_read() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("enabled");
        fs::write(&file, "always [madvise] never\n").unwrap();
        assert_eq!(chosen(file.to_str().unwrap()).as_deref(), Some("madvise"));
        fs::write(&file, "MemTotal: 9 kB\nMemAvailable:    8167848 kB\n").unwrap();
        let available = line_of(file.to_str().unwrap(), "MemAvailable:").unwrap();
        assert_eq!(bytes(&available), Some(8_167_848 << 10));
        let mounts =
            "tmpfs /dev/shm tmpfs rw,size=4096k 0 0\ntmpfs /run tmpfs rw,huge=always 0 0\n";
        assert_eq!(huge_of_mount(mounts).as_deref(), Some("never"));
        let above = format!("{mounts}tmpfs /dev/shm tmpfs rw,huge=advise,size=9k 0 0\n");
        assert_eq!(huge_of_mount(&above).as_deref(), Some("advise"));
        assert_eq!(huge_of_mount("proc /proc proc rw 0 0\n"), None);
        assert_eq!((line("/nowhere/at/all"), chosen("/nowhere/at/all")), (None, None));
    }
}
