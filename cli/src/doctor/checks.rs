//! What a host is fit for: each check with what was found, a verdict, and a remedy. No I/O.

use selkie::pool::control::Timing;
use selkie_tpcc::units;
use serde::Serialize;

use super::host::{Host, SHARED_MEMORY};

/// What the README's first shared pool takes, with some room.
const MEMORY: u64 = 4 << 30;
/// Open files that a few dozen nodes over TCP take.
const OPEN_FILES: u64 = 1024;
/// Clock sources that are read without a system call, by the starts of their names.
const FAST_CLOCKS: [&str; 4] = ["tsc", "kvm-clock", "hyperv", "arch_sys_counter"];

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Finding {
    Ok,
    /// It works, and could be better.
    Note,
    /// Something that the guide shows will fail.
    Problem,
}

impl Finding {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) verdict: Finding,
    pub(super) found: String,
    pub(super) remedy: Option<String>,
}

impl Check {
    fn new(name: &'static str, found: String) -> Self {
        Self { name, verdict: Finding::Ok, found, remedy: None }
    }

    fn but(self, verdict: Finding, remedy: &str) -> Self {
        Self { verdict, remedy: Some(remedy.to_owned()), ..self }
    }

    /// As it is if this holds, else with a verdict and a remedy.
    fn if_not(self, holds: bool, verdict: Finding, remedy: &str) -> Self {
        if holds { self } else { self.but(verdict, remedy) }
    }
}

/// All checks of a host.
pub(super) fn all(host: &Host) -> Vec<Check> {
    vec![
        kernel(host),
        cores(host),
        lateness(host),
        memory(host),
        shared_memory(host),
        overcommit(host),
        huge_pages(host),
        clock(host),
        open_files(host),
        locked_memory(host),
        rdma(host),
    ]
}

fn or_unknown(value: Option<&String>) -> String {
    value.map_or_else(|| "not known".to_owned(), Clone::clone)
}

fn kernel(host: &Host) -> Check {
    let found = or_unknown(host.kernel.as_ref());
    let is_known = host.kernel.is_some();
    Check::new("kernel", found).if_not(
        is_known,
        Finding::Problem,
        "shared pools need Linux, with /proc mounted",
    )
}

fn cores(host: &Host) -> Check {
    let cores = host.cores.unwrap_or(1);
    Check::new("cores", cores.to_string()).if_not(
        cores >= 2,
        Finding::Note,
        "memory nodes and drivers take turns on one core: give them time with `pool create --lease 10s`",
    )
}

fn lateness(host: &Host) -> Check {
    let Timing { lease, heartbeat } = Timing::default();
    let late = host.lateness;
    let found = format!("a task ran up to {:.1} ms late", late.as_secs_f64() * 1e3);
    let check = Check::new("scheduling", found);
    // A node that is late for a good part of its lease stops serving.
    if late >= lease / 4 {
        let what = "this host is too busy for the default lease of 2 s: `pool create --lease 30s`";
        return check.but(Finding::Problem, what);
    }
    check.if_not(
        late < heartbeat / 2,
        Finding::Note,
        "this host is busy: a longer lease makes false deaths rarer, as `pool create --lease 10s`",
    )
}

fn memory(host: &Host) -> Check {
    let found = host.available_memory.map_or_else(
        || "not known".to_owned(),
        |bytes| {
            let by = if host.is_limited { ", by the limit of a control group" } else { "" };
            format!("{} available{by}", units::bytes(bytes))
        },
    );
    Check::new("memory", found).if_not(
        host.available_memory.is_none_or(|bytes| bytes >= MEMORY),
        Finding::Note,
        "let memory nodes lend less than the guide does, as `selkie memnode --memory 256M`",
    )
}

fn shared_memory(host: &Host) -> Check {
    let Some((all, free)) = host.shared_memory else {
        let check = Check::new("shared memory", format!("{SHARED_MEMORY} is not there"));
        let remedy = format!("mount it: `mount -t tmpfs -o size=4G tmpfs {SHARED_MEMORY}`");
        return check.but(Finding::Problem, &remedy);
    };
    let sizes = (units::bytes(all), units::bytes(free));
    let check =
        Check::new("shared memory", format!("{SHARED_MEMORY} has {}, {} free", sizes.0, sizes.1));
    // Three memory nodes of the least that the guide shows.
    let (least, remedy) = (
        1 << 30,
        format!(
            "pools between processes lie there: `mount -o remount,size=4G {SHARED_MEMORY}`, in a container `--shm-size 4g`; \
         `selkie pool list` shows what is there"
        ),
    );
    let verdict = if free < least { Finding::Problem } else { Finding::Note };
    check.if_not(free >= MEMORY, verdict, &remedy)
}

fn overcommit(host: &Host) -> Check {
    let strict = host.overcommit.as_deref() == Some("2");
    let found = match host.overcommit.as_deref() {
        Some("0") => "by estimate (vm.overcommit_memory = 0)".to_owned(),
        Some("1") => "always (vm.overcommit_memory = 1)".to_owned(),
        Some("2") => "never (vm.overcommit_memory = 2)".to_owned(),
        other => or_unknown(other.map(str::to_owned).as_ref()),
    };
    Check::new("overcommit", found).if_not(
        !strict,
        Finding::Note,
        "memory that is lent counts before it is used: `sysctl vm.overcommit_memory=0`, or lend less",
    )
}

fn huge_pages(host: &Host) -> Check {
    let of = |choice: &Option<String>| or_unknown(choice.as_ref());
    let (shared, own) = (of(&host.shared_huge_pages), of(&host.huge_pages));
    let found = format!("transparent: {shared} for shared memory, {own} for other memory");
    let has = |choice: &str| choice != "never" && choice != "deny" && choice != "not known";
    Check::new("huge pages", found).if_not(
        has(&shared) && has(&own),
        Finding::Note,
        "pages of 2 MiB save misses of the TLB: `mount -o remount,huge=advise /dev/shm` and \
         `echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`",
    )
}

fn clock(host: &Host) -> Check {
    let found = or_unknown(host.clock_source.as_ref());
    let is_fast = FAST_CLOCKS.iter().any(|fast| found.starts_with(fast));
    Check::new("clock source", found).if_not(
        is_fast || host.clock_source.is_none(),
        Finding::Note,
        "each look at the clock is a system call: boot with `clocksource=tsc`, if the processor's counter is constant",
    )
}

fn limit(limit: Option<u64>, unit: impl Fn(u64) -> String) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), unit)
}

fn open_files(host: &Host) -> Check {
    let found = limit(host.open_files, units::count);
    Check::new("open files", found).if_not(
        host.open_files.is_none_or(|files| files >= OPEN_FILES),
        Finding::Note,
        "nodes over TCP hold connections to each other: `ulimit -n 65536`",
    )
}

fn locked_memory(host: &Host) -> Check {
    let found = limit(host.locked_memory, units::bytes);
    // Memory that a device writes to has to be locked; nothing else locks memory.
    Check::new("locked memory", found).if_not(
        host.locked_memory.is_none() || host.rdma.is_empty(),
        Finding::Note,
        "an RDMA device registers locked memory: `ulimit -l unlimited`",
    )
}

fn rdma(host: &Host) -> Check {
    let found = match &host.rdma[..] {
        [] => "none: pools use shared memory, or TCP".to_owned(),
        all => format!("{}: not used, as fabrics are `shm` and `tcp`", all.join(", ")),
    };
    Check::new("RDMA devices", found).if_not(
        host.rdma.is_empty(),
        Finding::Note,
        "a pool over TCP goes through them if nodes listen at the address of their network interface (`ip addr`): \
         `selkie memnode --listen ADDR:0`, and so for drivers",
    )
}

/// The worst of the verdicts.
pub(super) fn worst(checks: &[Check]) -> Finding {
    checks.iter().map(|check| check.verdict).max().unwrap_or(Finding::Ok)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn fit() -> Host {
        let word = |word: &str| Some(word.to_owned());
        Host {
            kernel: word("6.1.0"),
            cores: Some(8),
            available_memory: Some(16 << 30),
            is_limited: false,
            overcommit: word("0"),
            shared_memory: Some((8 << 30, 8 << 30)),
            shared_huge_pages: word("advise"),
            huge_pages: word("madvise"),
            clock_source: word("tsc"),
            locked_memory: Some(8 << 20),
            open_files: Some(1 << 20),
            rdma: Vec::new(),
            lateness: Duration::from_millis(1),
        }
    }

    #[track_caller]
    fn finds(host: Host, name: &str, verdict: Finding, remedy: &str) {
        let checks = all(&host);
        let found = checks.iter().find(|check| check.name == name).unwrap();
        assert_eq!(found.verdict, verdict, "{found:?}");
        assert!(found.remedy.as_deref().unwrap_or_default().contains(remedy), "{found:?}");
        let others = checks.iter().filter(|check| check.name != name);
        assert!(others.clone().all(|other| other.verdict == Finding::Ok), "{checks:?}");
        assert_eq!(worst(&checks), verdict);
    }

    #[test]
    fn a_host_that_is_fit_has_nothing_to_mend() {
        let checks = all(&fit());
        assert!(checks.iter().all(|check| check.remedy.is_none()), "{checks:?}");
        assert_eq!(worst(&checks), Finding::Ok);
    }

    #[test]
    fn what_is_missing_is_judged_and_has_a_remedy() {
        use Finding::{Note, Problem};
        let word = |word: &str| Some(word.to_owned());
        let of_container = Host { shared_memory: Some((64 << 20, 64 << 20)), ..fit() };
        finds(of_container, "shared memory", Problem, "--shm-size");
        finds(
            Host { shared_memory: Some((8 << 30, 2 << 30)), ..fit() },
            "shared memory",
            Note,
            "remount",
        );
        finds(Host { shared_memory: None, ..fit() }, "shared memory", Problem, "mount -t tmpfs");
        finds(Host { cores: Some(1), ..fit() }, "cores", Note, "--lease");
        finds(
            Host { lateness: Duration::from_millis(200), ..fit() },
            "scheduling",
            Note,
            "--lease",
        );
        finds(Host { lateness: Duration::from_secs(1), ..fit() }, "scheduling", Problem, "--lease");
        finds(Host { available_memory: Some(1 << 30), ..fit() }, "memory", Note, "--memory");
        finds(Host { overcommit: word("2"), ..fit() }, "overcommit", Note, "sysctl");
        finds(
            Host { shared_huge_pages: word("never"), ..fit() },
            "huge pages",
            Note,
            "huge=advise",
        );
        finds(
            Host { clock_source: word("hpet"), ..fit() },
            "clock source",
            Note,
            "clocksource=tsc",
        );
        finds(Host { open_files: Some(256), ..fit() }, "open files", Note, "ulimit -n");
        let device = Host { rdma: vec!["mlx5_0".to_owned()], locked_memory: None, ..fit() };
        finds(device.clone(), "RDMA devices", Note, "--listen ADDR:0");
        let limited = all(&Host { locked_memory: Some(8 << 20), ..device });
        let locked = limited.iter().find(|check| check.name == "locked memory").unwrap();
        assert_eq!(locked.verdict, Note);
        assert!(locked.remedy.as_deref().unwrap().contains("ulimit -l"), "{locked:?}");
        let group = Host { available_memory: Some(1 << 30), is_limited: true, ..fit() };
        finds(group.clone(), "memory", Note, "--memory");
        let found = all(&group).into_iter().find(|check| check.name == "memory").unwrap().found;
        assert_eq!(found, "1.0 GiB available, by the limit of a control group");
    }
}
