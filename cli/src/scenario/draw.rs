//! Scenarios drawn at random from a seed: which fabric, coding and durability, and what happens to
//! whom when. What is drawn is the text of a scenario file, so that it can be kept, read, changed
//! and run as any other.

use std::fmt::Write;

use super::file::FabricKind;

/// The lease of the pools, milliseconds, as pools have it: with a shorter one nodes on a busy
/// machine are taken for dead to whom nothing happened.
const LEASE_MS: u64 = 2000;
/// The first fault is due within this time, milliseconds.
const FIRST: (u64, u64) = (1500, 3000);
/// Longest silence, leases.
const MOST_LEASES: u64 = 5;
/// What is left of a round when its last fault is over, beside the time in which all have to go on.
const REST_MS: u64 = 2000;

/// What may be drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrawLimits {
    /// Only this one.
    pub(crate) fabric: Option<FabricKind>,
    /// Over TCP: whether processes are in namespaces, where they can be cut off.
    pub(crate) cuts: bool,
}

/// A scenario that was drawn.
#[derive(Clone, Debug)]
pub(crate) struct DrawnScenario {
    /// What was drawn, in a few words.
    pub(crate) what: String,
    /// The scenario file.
    pub(crate) text: String,
}

/// A sequence of numbers that look random. Steele et al., "Fast splittable pseudorandom number
/// generators", 2014.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of `least..=most`.
    fn within(&mut self, least: u64, most: u64) -> u64 {
        least + self.next() % (most - least + 1)
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.next().is_multiple_of(many)
    }

    /// Takes one out.
    fn take<T>(&mut self, from: &mut Vec<T>) -> Option<T> {
        let last = from.len().checked_sub(1)? as u64;
        Some(from.swap_remove(self.within(0, last) as usize))
    }

    /// How long a silence lasts: most are around the lease, where chance decides.
    fn silence_ms(&mut self) -> u64 {
        match self.within(0, 3) {
            0 => self.within(LEASE_MS / 10, LEASE_MS),
            1 | 2 => self.within(LEASE_MS / 2, 2 * LEASE_MS),
            _ => self.within(LEASE_MS, MOST_LEASES * LEASE_MS),
        }
    }
}

/// What is being drawn.
struct Round {
    draw: Draw,
    is_coded: bool,
    cuts: bool,
    /// Processes that may be killed or stand still. One driver never is.
    drivers: Vec<usize>,
    memory: Vec<usize>,
    /// Those that live on and may be cut off from each other.
    reachable: Vec<String>,
    faults: String,
    said: Vec<String>,
    /// When the last fault is over.
    over_ms: u64,
}

/// Draws the scenario of a seed.
pub(crate) fn draw(seed: u64, limits: DrawLimits) -> DrawnScenario {
    let mut draw = Draw(seed);
    let over_tcp = draw.one_in(2);
    let fabric = limits.fabric.unwrap_or(if over_tcp { FabricKind::Tcp } else { FabricKind::Shm });
    let is_coded = draw.one_in(2);
    let has_logs = !draw.one_in(3);
    let memory = if is_coded { draw.within(3, 4) } else { 2 } as usize;
    let drivers = draw.within(2, 3) as usize;
    let spared = draw.within(1, drivers as u64) as usize;
    let over_tcp = fabric == FabricKind::Tcp;
    let mut round = Round {
        draw,
        is_coded,
        cuts: over_tcp && limits.cuts,
        drivers: (1..=drivers).filter(|driver| *driver != spared).collect(),
        memory: (1..=memory).collect(),
        reachable: vec![format!("driver-{spared}")],
        faults: String::new(),
        said: Vec::new(),
        over_ms: 0,
    };
    for _ in 0..round.draw.within(1, 3) {
        round.add();
    }
    let duration_ms = round.over_ms + 3 * LEASE_MS + REST_MS;
    let (fabric, network) = match (over_tcp, round.cuts) {
        (false, _) => ("shm", "loopback"),
        (true, false) => ("tcp", "loopback"),
        (true, true) => ("tcp", "namespaces"),
    };
    let coding = if is_coded { "2+1" } else { "plain" };
    let durability = if has_logs { "memory" } else { "none" };
    let mut text = format!(
        "name = \"random-{seed}\"\nfabric = \"{fabric}\"\nnetwork = \"{network}\"\n\
         duration = \"{duration_ms}ms\"\n\n\
         [memory]\nnodes = {memory}\nsize = \"512M\"\n\n\
         [pool]\nlease = \"{LEASE_MS}ms\"\nheartbeat = \"250ms\"\ncoding = \"{coding}\"\n\
         durability = \"{durability}\"\n\n\
         [database]\nwarehouses = {drivers}\nscale = 50\nseed = {seed}\n\n"
    );
    for driver in 1..=drivers {
        // Writing to a string cannot fail.
        let _ = write!(text, "[[driver]]\nhomes = \"{driver}-{driver}\"\nthreads = 1\n\n");
    }
    text += &round.faults;
    text += "[expect]\nrecovers = 0\n";
    let what = format!(
        "{fabric} {coding} on {memory}, {drivers} drivers, durability {durability}: {}",
        round.said.join(", ")
    );
    DrawnScenario { what, text }
}

impl Round {
    /// Adds something that happens, if there is one left to whom it can.
    fn add(&mut self) {
        let at = self.draw.within(FIRST.0, FIRST.1) + self.over_ms * self.draw.within(0, 1);
        match self.draw.within(0, 5) {
            0 | 1 => {
                if let Some(driver) = self.draw.take(&mut self.drivers) {
                    self.kill_driver(at, driver);
                }
            }
            2 => {
                if let Some(driver) = self.draw.take(&mut self.drivers) {
                    self.silence(at, &format!("driver-{driver}"));
                }
            }
            // Without redundancy what a memory node held is lost when it is killed.
            3 if self.is_coded => {
                if let Some(node) = self.take_memory() {
                    self.fault(at, "kill", &format!("memory-{node}"), "");
                    self.said.push(format!("kill memory-{node}"));
                }
            }
            3 | 4 => {
                if let Some(node) = self.take_memory() {
                    self.silence(at, &format!("memory-{node}"));
                }
            }
            _ if self.cuts => self.cut_between(at),
            _ => {
                if let Some(node) = self.take_memory() {
                    self.silence(at, &format!("memory-{node}"));
                }
            }
        }
    }

    /// A memory node. In a coded pool no other after it: more might be taken for dead than it
    /// outlives. In a plain pool none is.
    fn take_memory(&mut self) -> Option<usize> {
        let node = self.draw.take(&mut self.memory);
        if self.is_coded {
            self.memory.clear();
        }
        node
    }

    fn fault(&mut self, at: u64, action: &str, target: &str, more: &str) {
        self.over_ms = self.over_ms.max(at);
        let _ = write!(
            self.faults,
            "[[fault]]\nat = \"{at}ms\"\ndo = \"{action}\"\ntarget = \"{target}\"\n{more}\n"
        );
    }

    fn kill_driver(&mut self, at: u64, driver: usize) {
        let target = format!("driver-{driver}");
        self.fault(at, "kill", &target, "");
        let again = self.draw.one_in(2).then(|| self.draw.within(LEASE_MS / 2, 3 * LEASE_MS));
        let mut said = format!("kill {target}");
        if let Some(later) = again {
            self.fault(at + later, "restart", &target, "");
            said = format!("{said}, again after {later} ms");
        }
        self.said.push(said);
    }

    /// Stops a process, or cuts it off from all.
    fn silence(&mut self, at: u64, target: &str) {
        let is_cut = self.cuts && self.draw.one_in(2);
        let (begin, end) = if is_cut { ("cut", "heal") } else { ("stop", "continue") };
        let length = self.draw.silence_ms();
        self.fault(at, begin, target, "");
        self.fault(at + length, end, target, "");
        self.said.push(format!("{begin} {target} for {length} ms"));
    }

    /// Cuts two processes off from each other, in both directions or one.
    fn cut_between(&mut self, at: u64) {
        let mut names = std::mem::take(&mut self.reachable);
        names.extend(self.drivers.drain(..).map(|driver| format!("driver-{driver}")));
        names.extend(self.memory.drain(..).map(|node| format!("memory-{node}")));
        let (Some(target), Some(from)) = (self.draw.take(&mut names), self.draw.take(&mut names))
        else {
            return;
        };
        self.reachable = names;
        let one_way = self.draw.one_in(2);
        let length = self.draw.silence_ms();
        let mut more = format!("from = \"{from}\"\n");
        if one_way {
            more += "one-way = true\n";
        }
        self.fault(at, "cut", &target, &more);
        self.fault(at + length, "heal", &target, &more);
        let way = if one_way { " one way" } else { "" };
        self.said.push(format!("cut {target} from {from}{way} for {length} ms"));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::file::ScenarioFile;
    use super::super::plan::Plan;
    use super::*;

    fn plan_of(drawn: &DrawnScenario) -> Plan {
        let file =
            ScenarioFile::parse("f", &drawn.text).unwrap_or_else(|e| panic!("{e}: {drawn:?}"));
        Plan::of(file, None).unwrap_or_else(|error| panic!("{error}: {drawn:?}"))
    }

    #[test]
    fn whatever_is_drawn_can_be_run_and_a_seed_says_what() {
        let limits = DrawLimits { fabric: None, cuts: true };
        let (mut seen, mut both_silent) = (BTreeSet::new(), 0);
        for seed in 0..500 {
            let drawn = draw(seed, limits);
            assert_eq!(drawn.text, draw(seed, limits).text);
            let plan = plan_of(&drawn);
            let words = drawn.what.split([' ', ',']).map(str::to_owned);
            seen.extend(words);
            let is_silent = |node: &str| drawn.what.contains(&format!("{node} for "));
            both_silent += usize::from(is_silent("memory-1") && is_silent("memory-2"));
            // All have time to go on.
            let over = plan.faults.iter().map(|due| due.over).max().unwrap();
            assert!(plan.duration > over + plan.patience(), "{drawn:?}");
        }
        for word in
            ["shm", "tcp", "plain", "2+1", "memory:", "none:", "kill", "again", "stop", "cut"]
        {
            assert!(seen.contains(word), "{word} is never drawn: {seen:?}");
        }
        assert!(both_silent > 0, "all memory of a plain pool");
        for word in ["from", "one", "driver-3", "memory-4"] {
            assert!(seen.contains(word), "{word} is never drawn");
        }
    }

    #[test]
    fn limits_are_kept() {
        for seed in 0..100 {
            let limits = DrawLimits { fabric: Some(FabricKind::Tcp), cuts: false };
            let drawn = draw(seed, limits);
            assert_eq!(plan_of(&drawn).file.fabric, FabricKind::Tcp);
            assert!(
                !drawn.text.contains("\"cut\"") && drawn.text.contains("loopback"),
                "{drawn:?}"
            );
            let shm = draw(seed, DrawLimits { fabric: Some(FabricKind::Shm), cuts: true });
            assert_eq!(plan_of(&shm).file.fabric, FabricKind::Shm);
        }
    }
}
