//! The verdict on a pool in words, and the commands that help. No I/O.

use std::fmt::Display;

use selkie::pool::control::PoolState;
use selkie::pool::{Health, Residency, Verdict};
use selkie_tpcc::units;

/// The verdict as one word.
pub(crate) fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Incomplete => "incomplete",
        Verdict::Healthy => "healthy",
        Verdict::Degraded => "degraded",
        Verdict::Lost => "lost",
    }
}

/// The verdict with its reasons in one line; `rate` is that of a rebuild in bytes a second, if it
/// was measured.
pub(crate) fn headline(health: &Health, state: &PoolState, rate: Option<f64>) -> String {
    let verdict = health.verdict();
    let mut reasons = match verdict {
        Verdict::Healthy => vec![spare(health)],
        _ => reasons(health, state, rate),
    };
    if health.working == 0 {
        reasons.extend(unmoved(state).map(|node| format!("mem{node} is not being emptied")));
    }
    format!("{}: {}", word(verdict), reasons.join("; "))
}

/// Memory nodes that are to leave, or to give memory back, with slabs that compute nodes move.
fn unmoved(state: &PoolState) -> impl Iterator<Item = u16> {
    let members = state.memory_nodes.iter().flatten().filter(|member| !member.dead);
    members.filter_map(|member| {
        let node = member.descriptor.peer.index();
        let leaves = member.stay == Residency::Leaving && state.slabs_on(node) > 0;
        (leaves || !member.reclaim.evicting.is_empty()).then_some(node)
    })
}

fn reasons(health: &Health, state: &PoolState, rate: Option<f64>) -> Vec<String> {
    if health.is_memory_gone() {
        return vec!["all memory is gone, and what was in it".to_owned()];
    }
    let mut reasons = Vec::new();
    let mut say = |holds: bool, what: &dyn Fn() -> String| {
        if holds {
            reasons.push(what());
        }
    };
    let wanted = state.memory_nodes.len();
    say(health.missing > 0, &|| {
        let (joined, wanted) = (wanted - health.missing, units::count(wanted as u64));
        format!("{} of {wanted} memory nodes have joined", units::count(joined as u64))
    });
    say(!health.gone.is_empty(), &|| format!("{} gone", are("mem", &health.gone)));
    say(!health.silent.is_empty(), &|| format!("{} silent", are("mem", &health.silent)));
    if state.coding.is_plain() {
        say(health.lost_ranges > 0, &|| "what was there is lost".to_owned());
        say(health.waiting_ranges > 0, &|| "its pages are waited for".to_owned());
    } else {
        let ranges = units::count(state.ranges.len() as u64);
        say(health.lost_ranges > 0, &|| {
            let lost = units::count(health.lost_ranges as u64);
            format!("{lost} of {ranges} ranges have too few splits left")
        });
        say(health.waiting_ranges > 0, &|| {
            let waiting = units::count(health.waiting_ranges as u64);
            format!("{waiting} of {ranges} ranges are waited for")
        });
        say(health.is_withheld, &|| {
            "no memory is usable, as memory nodes keep theirs back (--headroom)".to_owned()
        });
        say(health.slabs_to_rebuild > 0, &|| rebuild(health, state, rate));
        say(health.verdict() != Verdict::Incomplete, &|| spare(health));
    }
    say(health.is_rebuilding_headers, &|| "latch words are being made anew".to_owned());
    say(!health.absent.is_empty(), &|| format!("{} {}", are("cn", &health.absent), absent(state)));
    say(!health.recovering.is_empty(), &|| {
        format!("{} being recovered from", are("cn", &health.recovering))
    });
    let pages = |count: usize, what: &str| format!("{} {what}", plural(count, "page"));
    say(health.pages_waiting > 0, &|| {
        pages(health.pages_waiting, "to be brought back by logs of nodes that died")
    });
    let has_more = !state.abandoned_ranges.is_empty();
    let lost = if has_more { "and more lost for good" } else { "lost for good" };
    say(health.pages_lost > 0, &|| pages(health.pages_lost, lost));
    reasons
}

/// What a node is that shows no sign of life: where memory is shared, its process is gone.
pub(super) fn absent(state: &PoolState) -> &'static str {
    if state.waits_for_silent() { "silent" } else { "dead" }
}

fn rebuild(health: &Health, state: &PoolState, rate: Option<f64>) -> String {
    let slabs = plural(health.slabs_to_rebuild, "slab");
    let bytes = units::bytes(health.slabs_to_rebuild as u64 * state.slab_bytes());
    let how = match rate {
        _ if !health.has_place => ", for which there is no place".to_owned(),
        Some(rate) if rate > 0.0 => format!(", {} a second", units::bytes(rate as u64)),
        Some(_) => ", under way".to_owned(),
        None => String::new(),
    };
    format!("{slabs} ({bytes}) to be rebuilt{how}")
}

/// How many memory nodes may be lost.
fn spare(health: &Health) -> String {
    let further = if health.gone.is_empty() && health.silent.is_empty() { "" } else { "further " };
    match health.spare {
        0 => format!("no {further}memory node can be lost without loss of data"),
        count => format!("{} can be lost", plural(count, &format!("{further}memory node"))),
    }
}

/// What helps, as commands with what they do.
pub(crate) fn advice(health: &Health, state: &PoolState, pool: &dyn Display) -> Vec<String> {
    let is_lost = health.lost_ranges > 0 || health.is_memory_gone();
    // None is let into a pool of which no memory node shows that it lives.
    if health.is_memory_silent() && !is_lost {
        return vec![format!("if none of its memory nodes comes back: {}", replacement(pool))];
    }
    let mut advice = Vec::new();
    if is_lost {
        advice.push(replacement(pool));
    } else if health.pages_lost > 0 {
        advice.push(
            "`selkie restore --from URL --into OTHER` makes another pool of a backup".to_owned(),
        );
    }
    if !state.abandoned_ranges.is_empty() && !is_lost {
        advice.push(format!(
            "`selkie pool repair {pool}` finds out which pages are lost for good: there are so many that the loss of a memory \
             node would take others with them"
        ));
    }
    let has_no_place = health.slabs_to_rebuild > 0 && !health.has_place;
    let is_short = health.missing > 0 || health.domains_short > 0 || has_no_place;
    if is_short && !is_lost {
        let more = health.missing.max(health.domains_short).max(1);
        advice.push(format!(
            "`selkie memnode --pool {pool} --memory SIZE` adds a memory node: {more} more"
        ));
    }
    if health.is_withheld && !is_lost {
        advice.push(format!(
            "memory is usable again when more of the hosts is free than the nodes' --headroom, or by a node on another host: \
             `selkie memnode --pool {pool} --memory SIZE`"
        ));
    }
    let has_nobody = health.working == 0;
    if health.slabs_to_rebuild > 0 && health.has_place && has_nobody && !is_lost {
        let what = "no compute node is in the pool to rebuild them";
        advice.push(format!("{what}: `selkie tpcc --pool {pool}` or another program is one"));
    }
    if has_nobody && !is_lost && unmoved(state).next().is_some() {
        advice.push(format!(
            "slabs wait for a compute node that moves them: `selkie tpcc --pool {pool}` or another program is one"
        ));
    }
    let are_dead = !health.absent.is_empty() && !state.waits_for_silent();
    if (!health.recovering.is_empty() || are_dead) && has_nobody {
        advice.push("the next compute node that comes in recovers what died".to_owned());
    }
    if let Some(node) = health.silent.first() {
        advice.push(format!("`selkie pool forgive {pool} mem{node}` if it does not come back"));
    }
    if health.pages_waiting > 0 {
        advice.push(format!("`selkie pool forgive {pool} --pages` gives the pages up"));
    }
    advice
}

/// What there is instead of a pool whose data is gone.
fn replacement(pool: &dyn Display) -> String {
    format!(
        "`selkie recover --log-dir DIR --into OTHER` makes another pool of logs on disk, `selkie restore --from URL --into \
         OTHER` of a backup; `selkie pool destroy {pool}` removes this one"
    )
}

/// `mem1 is`, `mem1 and mem2 are`.
fn are(kind: &str, nodes: &[u16]) -> String {
    let verb = if nodes.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", names(kind, nodes))
}

/// `mem1, mem2 and mem3`.
pub(super) fn names(kind: &str, nodes: &[u16]) -> String {
    let names: Vec<_> = nodes.iter().map(|node| format!("{kind}{node}")).collect();
    match names.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => names.concat(),
    }
}

/// `1 slab`, `2 slabs`.
pub(super) fn plural(count: usize, what: &str) -> String {
    units::plural(count as u64, what)
}

#[cfg(test)]
mod tests {
    use selkie::pool::PoolConfig;
    use selkie::pool::control::{Identity, Timing};

    use super::*;

    fn pool(coding: &str) -> PoolState {
        let config = PoolConfig {
            memory_nodes: 3,
            bytes_per_node: 1 << 30,
            gcl_bytes: 2048,
            range_bytes: 4 << 20,
            max_compute_nodes: 4,
            coding: coding.parse().unwrap(),
            log_bytes: 0,
        };
        let identity = Identity { name: "demo", id: 1, fabric: "shm" };
        PoolState::new(identity, Timing::default(), &config)
    }

    fn whole() -> Health {
        Health { living: 3, spare: 1, spare_when_whole: 1, ..Health::default() }
    }

    #[test]
    fn the_first_line_says_what_is_left_and_how_fast_it_is_mended() {
        let coded = pool("2+1");
        assert_eq!(headline(&whole(), &coded, None), "healthy: 1 memory node can be lost");
        let gone = Health {
            gone: vec![1, 2],
            spare: 0,
            slabs_to_rebuild: 1_200,
            has_place: true,
            ..whole()
        };
        let said = headline(&gone, &coded, Some(3.5 * 1024.0 * 1024.0));
        assert!(said.starts_with("degraded: mem1 and mem2 are gone; 1,200 slabs ("), "{said}");
        assert!(
            said.contains(" to be rebuilt, 3.5 MiB a second; no further memory node"),
            "{said}"
        );
        let full = Health { has_place: false, ..gone.clone() };
        assert!(headline(&full, &coded, None).contains("for which there is no place"));
        let plain = Health { gone: vec![0], lost_ranges: 1, ..Health::default() };
        let plain = Health { living: 1, ..plain };
        assert_eq!(
            headline(&plain, &pool("plain"), None),
            "lost: mem0 is gone; what was there is lost"
        );
    }

    #[test]
    fn each_trouble_has_a_command_that_helps() {
        let coded = pool("2+1");
        let helps = |health: &Health| advice(health, &coded, &"demo").join("\n");
        assert_eq!(helps(&whole()), "");
        let short = Health { gone: vec![1], domains_short: 1, slabs_to_rebuild: 4, ..whole() };
        assert!(helps(&short).contains("`selkie memnode --pool demo --memory SIZE`"));
        let idle = Health { gone: vec![1], slabs_to_rebuild: 4, has_place: true, ..whole() };
        assert!(helps(&idle).contains("no compute node is in the pool to rebuild them"));
        let withheld = Health { is_withheld: true, ..whole() };
        assert!(helps(&withheld).contains("than the nodes' --headroom"));
        let said = headline(&withheld, &coded, None);
        assert!(said.starts_with("degraded: no memory is usable, as memory nodes keep"), "{said}");
        let silent = Health { silent: vec![2], ..whole() };
        assert!(helps(&silent).contains("`selkie pool forgive demo mem2`"));
        // They may come back, but nobody joins until one does.
        let all = Health { living: 0, silent: vec![0, 1, 2], domains_short: 3, ..whole() };
        let said = helps(&all);
        assert!(said.starts_with("if none of its memory nodes comes back: `selkie rec"), "{said}");
        assert!(said.contains("`selkie pool destroy demo`"), "{said}");
        assert!(!said.contains("memnode") && !said.contains("forgive"), "{said}");
        let waiting = Health { pages_waiting: 1, ..whole() };
        assert!(helps(&waiting).contains("`selkie pool forgive demo --pages`"));
        let lost = Health { lost_ranges: 1, ..whole() };
        assert!(helps(&lost).contains("`selkie recover") && helps(&lost).contains("destroy demo"));
    }
}
