//! How much memory of the host is free: for others, and for a process that is limited to a part of
//! it.

use std::io;
use std::path::{Path, PathBuf};

/// Says how much memory is free.
pub trait FreeMemory: Send {
    /// Bytes that could be taken now.
    ///
    /// # Errors
    /// What keeps it from knowing.
    fn free_bytes(&self) -> io::Result<u64>;
}

impl<F: Fn() -> io::Result<u64> + Send> FreeMemory for F {
    fn free_bytes(&self) -> io::Result<u64> {
        self()
    }
}

/// The memory of this host, as Linux says; of the control groups that the process is in and that
/// have a limit, the one with least left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMemory {
    proc: PathBuf,
    groups: PathBuf,
}

impl Default for HostMemory {
    fn default() -> Self {
        Self { proc: "/proc".into(), groups: "/sys/fs/cgroup".into() }
    }
}

/// Limits of control groups from which on there is none.
const NO_LIMIT: u64 = 1 << 60;

impl FreeMemory for HostMemory {
    fn free_bytes(&self) -> io::Result<u64> {
        let available = self.meminfo("MemAvailable:")?;
        let left = self.groups().into_iter().filter_map(|(group, names)| names.left(&group));
        Ok(left.fold(available, u64::min))
    }
}

impl HostMemory {
    /// Bytes that there are in all: of the host, or the lowest limit of the process's control
    /// groups. Never are more of them free.
    ///
    /// # Errors
    /// What keeps it from knowing.
    pub fn total_bytes(&self) -> io::Result<u64> {
        let total = self.meminfo("MemTotal:")?;
        let limits = self.groups().into_iter().filter_map(|(group, names)| names.limit(&group));
        Ok(limits.fold(total, u64::min))
    }

    /// Bytes of a line of what Linux tells of the host's memory.
    fn meminfo(&self, line: &str) -> io::Result<u64> {
        let told = std::fs::read_to_string(self.proc.join("meminfo"))?;
        let kib = field(&told, line).ok_or_else(|| {
            let what = format!("/proc/meminfo has no {}", line.trim_end_matches(':'));
            io::Error::new(io::ErrorKind::InvalidData, what)
        })?;
        Ok(kib.saturating_mul(1024))
    }

    /// The process's control groups and those they are in. Where these are not to be seen, as in
    /// some containers, the root that is to be seen is the process's own.
    fn groups(&self) -> Vec<(PathBuf, Names)> {
        let told = std::fs::read_to_string(self.proc.join("self/cgroup")).unwrap_or_default();
        let mut all = Vec::new();
        for line in told.lines() {
            let mut parts = line.splitn(3, ':');
            let (_, Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            let names = match controllers {
                "" => V2,
                _ if controllers.split(',').any(|name| name == "memory") => V1,
                _ => continue,
            };
            let root = self.groups.join(names.root);
            let own = root.join(path.trim_start_matches('/'));
            let groups = own.ancestors().take_while(|group| group.starts_with(&root));
            all.extend(groups.map(|group| (group.to_owned(), names)));
        }
        all
    }
}

/// What the files of a version of control groups are called.
#[derive(Clone, Copy)]
struct Names {
    root: &'static str,
    limit: &'static str,
    used: &'static str,
    /// Of what is used, what the kernel takes back when it is wanted.
    cached: &'static str,
}

const V2: Names =
    Names { root: "", limit: "memory.max", used: "memory.current", cached: "inactive_file" };
const V1: Names = Names {
    root: "memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cached: "total_inactive_file",
};

impl Names {
    /// The limit of a group, if it has one.
    fn limit(self, group: &Path) -> Option<u64> {
        let limit = std::fs::read_to_string(group.join(self.limit)).ok()?;
        limit.trim().parse().ok().filter(|limit| *limit < NO_LIMIT)
    }

    fn left(self, group: &Path) -> Option<u64> {
        let read = |name: &str| std::fs::read_to_string(group.join(name)).ok();
        let limit = self.limit(group)?;
        let used: u64 = read(self.used)?.trim().parse().ok()?;
        let cached = read("memory.stat").and_then(|stat| field(&stat, self.cached)).unwrap_or(0);
        Some(limit.saturating_sub(used.saturating_sub(cached)))
    }
}

/// The number behind a name at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    lines
        .find_map(|mut words| (words.next() == Some(name)).then(|| words.next()).flatten())?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable:    2000 kB\n";

    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, HostMemory) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let memory = HostMemory { proc: root.path().join("proc"), groups: root.path().join("g") };
        (root, memory)
    }

    #[test]
    fn without_a_limit_it_is_what_the_host_has() {
        let (_root, memory) = host(&[("proc/meminfo", MEMINFO)]);
        assert_eq!(memory.free_bytes().unwrap(), 2000 << 10);
        assert_eq!(memory.total_bytes().unwrap(), 9000 << 10);
        let unlimited = [
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "0::/a\n"),
            ("g/a/memory.max", "max\n"),
            ("g/a/memory.current", "7\n"),
        ];
        assert_eq!(host(&unlimited).1.free_bytes().unwrap(), 2000 << 10);
        let (_root, none) = host(&[("proc/meminfo", "MemTotal: 9 kB\n")]);
        assert_eq!(none.free_bytes().unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(host(&[]).1.free_bytes().is_err());
    }

    #[test]
    fn the_tightest_limit_counts_also_of_a_group_around_the_own_one() {
        let v2 = [
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "0::/a/b\n"),
            ("g/a/memory.max", "5000\n"),
            ("g/a/memory.current", "4500\n"),
            ("g/a/memory.stat", "anon 1\ninactive_file 100\n"),
            ("g/a/b/memory.max", "4000\n"),
            ("g/a/b/memory.current", "1000\n"),
        ];
        let (_root, memory) = host(&v2);
        assert_eq!((memory.free_bytes().unwrap(), memory.total_bytes().unwrap()), (600, 4000));
        let v1 = [
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "5:cpu:/x\n4:hugetlb,memory:/a\n"),
            ("g/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("g/memory/memory.usage_in_bytes", "5\n"),
            ("g/memory/a/memory.limit_in_bytes", "3000\n"),
            ("g/memory/a/memory.usage_in_bytes", "2900\n"),
        ];
        let (_root, memory) = host(&v1);
        assert_eq!((memory.free_bytes().unwrap(), memory.total_bytes().unwrap()), (100, 3000));
    }

    #[test]
    fn this_host_says_something() {
        assert!(HostMemory::default().free_bytes().unwrap() > 1 << 20);
    }
}
