//! How often several memory nodes fail at once and take data with them, and how evenly memory is
//! used, by how the splits of ranges are placed (Hydra §5.2, figures 15 and 16).
//!
//! CodingSets is what pools use, [`place_range`]. It is set against: splits on random nodes; each
//! split on the less loaded of two random nodes; all splits on the least loaded nodes; and whole
//! copies in place of splits. Which nodes fail is drawn; where placement is drawn, too, it is drawn
//! anew for every sixteenth of the trials.

use selkie::fabric::env::SplitMix;
use selkie::memnode::FailureDomain;
use selkie::memnode::coding_sets::{Place, place_range};

use super::experiment::{Claim, Expected, Point};
use super::measure::{Measured, Outcome, Work};
use super::table::{Plot, Row, Table};

/// Placements that are drawn for a point, where they are drawn.
const PLACEMENTS: u64 = 16;
/// Clusters that are filled for a point of the balance.
const CLUSTERS: u64 = 4;

/// Where the splits of a range go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Method {
    /// Within extended groups with so many spare nodes, as in pools.
    CodingSets {
        spare: usize,
    },
    Random,
    /// Each split on the less loaded of two random nodes.
    TwoChoices,
    LeastLoaded,
}

impl Method {
    fn is_drawn(self) -> bool {
        !matches!(self, Self::CodingSets { .. })
    }
}

/// A cluster, and what is placed on it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Shape {
    method: Method,
    nodes: usize,
    /// Slabs of a node that are in use at the end.
    slabs: usize,
    data: usize,
    parity: usize,
}

/// The base of Hydra's figure 15.
const BASE: Shape =
    Shape { method: Method::CodingSets { spare: 2 }, nodes: 1000, slabs: 16, data: 8, parity: 2 };
/// Of a thousand nodes, so many fail.
const BASE_FAILING: usize = 10;

impl Shape {
    fn splits(&self) -> usize {
        self.data + self.parity
    }

    /// The nodes of each range that is placed, beside `used` slabs of each node; these count what
    /// is placed.
    fn place(&self, used: &mut [u32], random: &SplitMix) -> Vec<Vec<u16>> {
        let ranges = self.nodes * self.slabs / self.splits();
        // Memory is no bound here: how evenly it is used is what is asked.
        let places = (0..).zip(used.iter()).map(|(node, used)| Place {
            node,
            domain: FailureDomain::ALONE,
            used: *used,
            slabs: u32::MAX,
        });
        let mut places: Vec<Place> = places.collect();
        let placed = (0..ranges).map_while(|_| {
            let range = self.choose(&places, random)?;
            for node in &range {
                places.get_mut(usize::from(*node))?.used += 1;
            }
            Some(range)
        });
        let placed: Vec<_> = placed.collect();
        used.iter_mut().zip(&places).for_each(|(used, place)| *used = place.used);
        placed
    }

    fn choose(&self, places: &[Place], random: &SplitMix) -> Option<Vec<u16>> {
        let splits = self.splits();
        if splits > places.len() {
            return None;
        }
        let any = || places.get(random.below(places.len() as u64) as usize);
        match self.method {
            Method::CodingSets { spare } => place_range(places, splits, spare),
            Method::Random => Some(draw(self.nodes, splits, random)),
            Method::TwoChoices => {
                let mut range: Vec<u16> = Vec::with_capacity(splits);
                while range.len() < splits {
                    let (one, other) = (any()?, any()?);
                    let chosen = if other.used < one.used { other } else { one };
                    if !range.contains(&chosen.node) {
                        range.push(chosen.node);
                    }
                }
                Some(range)
            }
            Method::LeastLoaded => {
                // Of those that are loaded alike, any.
                let mut all: Vec<_> =
                    places.iter().map(|p| (p.used, random.next_u64(), p.node)).collect();
                all.select_nth_unstable(splits - 1);
                Some(all.iter().take(splits).map(|(_, _, node)| *node).collect())
            }
        }
    }
}

/// So many different ones of the first `of` numbers.
fn draw(of: usize, count: usize, random: &SplitMix) -> Vec<u16> {
    let mut drawn = Vec::with_capacity(count);
    while drawn.len() < count {
        let number = random.below(of as u64) as u16;
        if !drawn.contains(&number) {
            drawn.push(number);
        }
    }
    drawn
}

/// Which ranges have splits on each node, and how many of a range's splits may be lost.
struct Placed {
    on: Vec<Vec<u32>>,
    /// Of each range, splits that are lost in the trial under way.
    lost: Vec<u8>,
    parity: usize,
}

impl Placed {
    fn new(nodes: usize, parity: usize, ranges: &[Vec<u16>]) -> Self {
        let mut on = vec![Vec::new(); nodes];
        for (number, range) in (0..).zip(ranges) {
            for node in range {
                if let Some(own) = on.get_mut(usize::from(*node)) {
                    own.push(number);
                }
            }
        }
        Self { on, lost: vec![0; ranges.len()], parity }
    }

    /// Whether some range is lost with these nodes.
    fn is_lost_with(&mut self, failed: &[u16]) -> bool {
        let mut most = 0;
        let on = failed.iter().filter_map(|node| self.on.get(usize::from(*node))).flatten();
        for range in on.clone() {
            if let Some(lost) = self.lost.get_mut(*range as usize) {
                *lost += 1;
                most = most.max(*lost);
            }
        }
        for range in on {
            if let Some(lost) = self.lost.get_mut(*range as usize) {
                *lost = 0;
            }
        }
        usize::from(most) > self.parity
    }
}

/// A point of the probability of loss.
pub(super) struct Loss {
    sweep: Sweep,
    shape: Shape,
    failing: usize,
}

/// How often something was lost.
pub(super) struct Lost {
    trials: u64,
    lost: u64,
}

impl Loss {
    pub(super) fn run(&self, trials: u64, seed: u64) -> Lost {
        let random = SplitMix::of_stream(seed, 3);
        let placements = if self.shape.method.is_drawn() { PLACEMENTS.min(trials) } else { 1 };
        let mut lost = 0;
        for placement in 0..placements {
            let ranges = self.shape.place(&mut vec![0; self.shape.nodes], &random);
            let mut placed = Placed::new(self.shape.nodes, self.shape.parity, &ranges);
            let end = |placement: u64| trials * placement / placements;
            for _ in end(placement)..end(placement + 1) {
                let failed = draw(self.shape.nodes, self.failing, &random);
                lost += u64::from(placed.is_lost_with(&failed));
            }
        }
        Lost { trials, lost }
    }
}

impl Lost {
    fn probability(&self) -> f64 {
        self.lost as f64 / self.trials as f64
    }

    fn cell(&self) -> String {
        if self.lost == 0 {
            return format!("below {:.1e} %", 100.0 / self.trials as f64);
        }
        let percent = 100.0 * self.probability();
        let digits = (1.0 - percent.log10().floor()).max(0.0) as usize;
        format!("{percent:.digits$} %")
    }
}

/// A point of the balance: nodes begin with some slabs in use for something else, up to half as
/// many as in the base, and ranges are placed beside them.
pub(super) struct Balance {
    shape: Shape,
}

/// Memory used of the nodes of a cluster, over the mean.
pub(super) struct Balanced {
    most: f64,
    deviation: f64,
}

impl Balance {
    pub(super) fn run(&self, seed: u64) -> Balanced {
        let mut sum = Balanced { most: 0.0, deviation: 0.0 };
        for cluster in 0..CLUSTERS {
            // The same for every method.
            let before = SplitMix::of_stream(seed, 4 + cluster);
            let random = SplitMix::of_stream(seed, 4 + CLUSTERS + cluster);
            let most = BASE.slabs as u64 / 2;
            let drawn = (0..self.shape.nodes).map(|_| before.below(most + 1) as u32);
            let mut used: Vec<u32> = drawn.collect();
            self.shape.place(&mut used, &random);
            let Balanced { most, deviation } = Balanced::of(&used);
            sum.most += most / CLUSTERS as f64;
            sum.deviation += deviation / CLUSTERS as f64;
        }
        sum
    }
}

impl Balanced {
    fn of(used: &[u32]) -> Self {
        let mean = used.iter().sum::<u32>() as f64 / used.len() as f64;
        let most = used.iter().max().copied().unwrap_or_default();
        let squares = used.iter().map(|used| (f64::from(*used) - mean).powi(2));
        let deviation = (squares.sum::<f64>() / used.len() as f64).sqrt();
        Self { most: f64::from(most) / mean, deviation: deviation / mean }
    }
}

/// What is changed of the base along the axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sweep {
    Spare,
    Parity,
    Slabs,
    Failing,
    Nodes,
}

impl Sweep {
    const ALL: [Sweep; 5] =
        [Sweep::Spare, Sweep::Parity, Sweep::Slabs, Sweep::Failing, Sweep::Nodes];

    const fn stem(self) -> &'static str {
        match self {
            Sweep::Spare => "coding-sets-spare",
            Sweep::Parity => "coding-sets-parity",
            Sweep::Slabs => "coding-sets-slabs",
            Sweep::Failing => "coding-sets-failing",
            Sweep::Nodes => "coding-sets-nodes",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Sweep::Spare => "Data loss: nodes of an extended group beyond k + r",
            Sweep::Parity => "Data loss: parity splits",
            Sweep::Slabs => "Data loss: slabs of a node",
            Sweep::Failing => "Data loss: share of the nodes that fail",
            Sweep::Nodes => "Data loss: nodes of the cluster",
        }
    }

    const fn x_label(self) -> &'static str {
        match self {
            Sweep::Spare => "l",
            Sweep::Parity => "r",
            Sweep::Slabs => "slabs of a node",
            Sweep::Failing => "nodes that fail",
            Sweep::Nodes => "nodes",
        }
    }

    /// Places on the axis: name, what is placed, nodes that fail.
    fn steps(self, base: Shape) -> Vec<(String, Shape, usize)> {
        let step = |x: usize, shape: Shape| (x.to_string(), shape, BASE_FAILING);
        match self {
            Sweep::Spare => (0..=5)
                .map(|spare| match base.method {
                    Method::CodingSets { .. } => {
                        step(spare, Shape { method: Method::CodingSets { spare }, ..base })
                    }
                    _ => step(spare, base),
                })
                .collect(),
            Sweep::Parity => {
                let steps = 1..=4;
                steps.map(|parity| step(parity, Shape { parity, ..base })).collect()
            }
            Sweep::Slabs => {
                let steps = [2, 4, 8, 16, 32, 64];
                steps.map(|slabs| step(slabs, Shape { slabs, ..base })).into()
            }
            Sweep::Failing => {
                let steps = [("0.5 %", 5), ("1 %", 10), ("1.5 %", 15), ("2 %", 20), ("3 %", 30)];
                steps.map(|(x, failing)| (x.to_owned(), base, failing)).into()
            }
            Sweep::Nodes => {
                let steps = [100, 200, 500, 1000];
                steps
                    .map(|nodes| {
                        let failing = nodes * BASE_FAILING / BASE.nodes;
                        (nodes.to_string(), Shape { nodes, ..base }, failing)
                    })
                    .into()
            }
        }
    }
}

/// What is compared by how often it loses data.
fn compared() -> [(&'static str, Shape); 5] {
    let copies = Shape { data: 1, ..BASE };
    [
        ("8+2, CodingSets", BASE),
        ("8+2, random", Shape { method: Method::Random, ..BASE }),
        ("8+2, two choices", Shape { method: Method::TwoChoices, ..BASE }),
        ("r + 1 copies, CodingSets", copies),
        ("r + 1 copies, random", Shape { method: Method::Random, ..copies }),
    ]
}

/// What is compared by how evenly it uses memory.
const BALANCED: [(&str, Method); 7] = [
    ("CodingSets, l = 0", Method::CodingSets { spare: 0 }),
    ("CodingSets, l = 1", Method::CodingSets { spare: 1 }),
    ("CodingSets, l = 2", Method::CodingSets { spare: 2 }),
    ("CodingSets, l = 4", Method::CodingSets { spare: 4 }),
    ("random", Method::Random),
    ("two choices", Method::TwoChoices),
    ("least loaded", Method::LeastLoaded),
];

/// All points of the figure.
pub(super) fn points() -> Vec<Point> {
    let mut points = Vec::new();
    for sweep in Sweep::ALL {
        for (series, shape) in compared() {
            for (x, shape, failing) in sweep.steps(shape) {
                let work = Work::Loss(Loss { sweep, shape, failing });
                points.push(Point { series: series.to_owned(), x, work });
            }
        }
    }
    for (series, method) in BALANCED {
        for slabs in [2, 4, 8, 16] {
            let work = Work::Balance(Balance { shape: Shape { method, slabs, ..BASE } });
            points.push(Point { series: series.to_owned(), x: slabs.to_string(), work });
        }
    }
    points
}

pub(super) fn setup(trials: u64, seed: u64) -> String {
    format!(
        "Unless it says otherwise: 1,000 memory nodes, 16 slabs of each in use, coding 8+2, extended groups of \
         8 + 2 + 2, 1 % of the nodes fail at once; {trials} failures drawn for each point, seed {seed}. CodingSets is \
         the placement of pools; theirs has l = 2. For the balance, nodes begin with 0 to 8 slabs in use for something \
         else; mean of {CLUSTERS} clusters."
    )
}

pub(super) fn claims() -> Vec<Claim> {
    vec![Claim {
        what: "8+2, data loss with random placement over that with CodingSets",
        expected: Expected::Published(10.0),
        ours: |measured| {
            let lost = |series: &str| {
                let found = losses(measured, Sweep::Failing);
                let mut found =
                    found.filter(|(point, _)| point.series == series && point.x == "1 %");
                found.next().map(|(_, lost)| lost.probability())
            };
            Some(lost("8+2, random")? / lost("8+2, CodingSets")?)
        },
        why: "",
    }]
}

fn losses(measured: &Measured, sweep: Sweep) -> impl Iterator<Item = (&Point, &Lost)> {
    measured.points.iter().filter_map(move |(point, outcome)| match (&point.work, outcome) {
        (Work::Loss(loss), Outcome::Lost(lost)) if loss.sweep == sweep => Some((point, lost)),
        _ => None,
    })
}

/// What is written of the figure.
pub(super) fn tables(measured: &Measured) -> Vec<Table> {
    let mut tables: Vec<Table> = Sweep::ALL.iter().map(|sweep| loss(measured, *sweep)).collect();
    tables.push(balance(measured));
    tables
}

fn loss(measured: &Measured, sweep: Sweep) -> Table {
    let rows = losses(measured, sweep).map(|(point, lost)| Row {
        series: point.series.clone(),
        x: point.x.clone(),
        values: format!("{},{},{:e}", lost.trials, lost.lost, lost.probability()),
        cell: Some(lost.cell()),
    });
    let percent = |lost: &Lost| 100.0 * lost.probability();
    let points = losses(measured, sweep).map(|(p, lost)| (&*p.series, &*p.x, percent(lost)));
    Table {
        stem: sweep.stem(),
        title: sweep.title(),
        caption: "Probability that data is lost:",
        x_label: sweep.x_label(),
        columns: "trials,lost,probability",
        rows: rows.collect(),
        plot: Some(Plot::new("probability of data loss, %", points)),
    }
}

fn balance(measured: &Measured) -> Table {
    let all = || {
        measured.points.iter().filter_map(|(point, outcome)| match outcome {
            Outcome::Balanced(balanced) => Some((point, balanced)),
            _ => None,
        })
    };
    let rows = all().map(|(point, Balanced { most, deviation })| Row {
        series: point.series.clone(),
        x: point.x.clone(),
        values: format!("{most:.4},{deviation:.4}"),
        cell: Some(format!("{most:.2} ({deviation:.3})")),
    });
    Table {
        stem: "coding-sets-balance",
        title: "Balance: slabs placed on a node, beside those in use before",
        caption: "Memory used of the fullest node over the mean (and the standard deviation over the mean):",
        x_label: "slabs of a node",
        columns: "most_over_mean,deviation_over_mean",
        rows: rows.collect(),
        plot: Some(Plot::new(
            "memory used, fullest node over the mean",
            all().map(|(p, balanced)| (&*p.series, &*p.x, balanced.most)),
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn choose(of: u64, count: u64) -> f64 {
        (0..count).map(|i| (of - i) as f64 / (i + 1) as f64).product()
    }

    /// Probability that in some of `groups` disjoint groups of `size` more than `parity` of
    /// `failing` nodes fail: a generating function, by how many of those that fail are in the
    /// groups looked at so far.
    fn any_group_loses(nodes: u64, groups: u64, size: u64, parity: u64, failing: u64) -> f64 {
        let mut ways = vec![0.0; failing as usize + 1];
        ways[0] = 1.0;
        let times = |ways: &[f64], size: u64, most: u64| {
            let term = |sum: usize| {
                let parts = 0..=sum.min(most.min(size) as usize);
                parts.map(|part| ways[sum - part] * choose(size, part as u64)).sum()
            };
            (0..ways.len()).map(term).collect::<Vec<f64>>()
        };
        for _ in 0..groups {
            ways = times(&ways, size, parity);
        }
        ways = times(&ways, nodes - groups * size, failing);
        1.0 - ways[failing as usize] / choose(nodes, failing)
    }

    fn probability(shape: Shape, failing: usize, trials: u64) -> f64 {
        Loss { sweep: Sweep::Spare, shape, failing }.run(trials, 1).probability()
    }

    /// Three standard deviations of what is drawn.
    fn is_near(drawn: f64, exact: f64, trials: u64) -> bool {
        (drawn - exact).abs() < 3.0 * (exact * (1.0 - exact) / trials as f64).sqrt()
    }

    #[test]
    fn without_spare_nodes_it_is_what_disjoint_groups_lose() {
        let method = Method::CodingSets { spare: 0 };
        for (nodes, data, parity, failing) in [(100, 8, 2, 10), (60, 4, 2, 6), (104, 8, 2, 7)] {
            let shape = Shape { method, nodes, slabs: 4, data, parity };
            let size = (data + parity) as u64;
            let groups = nodes as u64 / size;
            let exact = any_group_loses(nodes as u64, groups, size, parity as u64, failing as u64);
            let drawn = probability(shape, failing, 40_000);
            // Where nodes are left over they join groups, of which more sets of splits are then in
            // use.
            if nodes as u64 == groups * size {
                assert!(is_near(drawn, exact, 40_000), "{nodes} nodes: {drawn}, exactly {exact}");
            } else {
                assert!(drawn > exact, "{nodes} nodes: {drawn}, {exact} without those left over");
            }
        }
    }

    #[test]
    fn one_range_at_random_is_lost_with_all_its_copies() {
        // One range of three copies; all three of them have to be among the failed.
        let shape = Shape { method: Method::Random, nodes: 30, slabs: 1, data: 1, parity: 2 };
        let ranges = shape.place(&mut [0; 30], &SplitMix::of_stream(1, 0));
        assert_eq!(ranges.len(), 10);
        let mut placed = Placed::new(30, 2, &ranges[..1]);
        let random = SplitMix::of_stream(1, 1);
        let trials = 40_000;
        let lost = (0..trials).filter(|_| placed.is_lost_with(&draw(30, 9, &random))).count();
        let exact = choose(27, 6) / choose(30, 9);
        let drawn = lost as f64 / trials as f64;
        assert!(is_near(drawn, exact, trials), "{drawn}, exactly {exact}");
        assert!(!placed.is_lost_with(&ranges[0][..2]) && placed.is_lost_with(&ranges[0]));
    }

    #[test]
    fn groups_lose_less_than_chance_and_more_with_every_spare_node() {
        let shape = Shape { nodes: 200, slabs: 8, ..BASE };
        let of = |method| probability(Shape { method, ..shape }, 6, 20_000);
        let [none, two, four] = [0, 2, 4].map(|spare| of(Method::CodingSets { spare }));
        let (random, choices) = (of(Method::Random), of(Method::TwoChoices));
        assert!(none < two && two < four && four < random, "{none} {two} {four} {random}");
        assert!(2.0 * two < random && 2.0 * two < choices, "{two}, {random}, {choices}");
    }

    #[test]
    fn spare_nodes_even_memory_out() {
        let most = |method| {
            let shape = Shape { method, nodes: 120, slabs: 8, ..BASE };
            let Balanced { most, deviation } = Balance { shape }.run(1);
            assert!(most > 1.0 && deviation > 0.0 || method == Method::LeastLoaded);
            deviation
        };
        let [none, two] = [0, 2].map(|spare| most(Method::CodingSets { spare }));
        let (random, least) = (most(Method::Random), most(Method::LeastLoaded));
        assert!(least < two && two < none && none < random, "{least} {two} {none} {random}");
        let Balanced { most, deviation } = Balanced::of(&[1, 3]);
        assert!((most - 1.5).abs() < 1e-9 && (deviation - 0.5).abs() < 1e-9);
    }

    #[test]
    fn what_was_not_seen_is_below_what_could_have_been() {
        assert_eq!(Lost { trials: 1000, lost: 0 }.cell(), "below 1.0e-1 %");
        assert_eq!(Lost { trials: 1000, lost: 18 }.cell(), "1.8 %");
        assert_eq!(Lost { trials: 1000, lost: 500 }.cell(), "50 %");
        assert_eq!(Lost { trials: 1_000_000, lost: 123 }.cell(), "0.012 %");
    }

    #[test]
    fn all_points_are_in_one_table() {
        let measured = Measured {
            figure: super::super::experiment::Figure::CodingSets,
            points: points()
                .into_iter()
                .map(|point| {
                    let outcome = match &point.work {
                        Work::Balance(_) => {
                            Outcome::Balanced(Balanced { most: 1.0, deviation: 0.0 })
                        }
                        _ => Outcome::Lost(Lost { trials: 1, lost: 1 }),
                    };
                    (point, outcome)
                })
                .collect(),
        };
        let tables = tables(&measured);
        let rows: usize = tables.iter().map(|table| table.rows.len()).sum();
        assert_eq!((rows, tables.len()), (measured.points.len(), 6));
        let stems: BTreeSet<_> = tables.iter().map(|table| table.stem).collect();
        assert_eq!(stems.len(), 6, "no file is written twice");
        assert_eq!((claims()[0].ours)(&measured), Some(1.0));
    }
}
