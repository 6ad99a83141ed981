//! How often several memory nodes fail at once and take data with them, and how evenly memory is
//! used, by how the splits of ranges are placed (Hydra §5.2, figures 15 and 16).
//!
//! CodingSets is what pools use, [`place_range`]. It is set against: splits on random nodes; each
//! split on the less loaded of two random nodes; all splits on the least loaded nodes; and whole
//! copies in place of splits. Which nodes fail is drawn; where placement is drawn, too, it is drawn
//! anew for every sixteenth of the trials.

use crate::figures::point::{Claim, Expected, Measured, Point};
use crate::figures::table::{Plot, Row, Table};
use crate::figures::work::balance::{Balance, Balanced, CLUSTERS};
use crate::figures::work::data_loss::{DataLoss, LossProbability, Sweep};
use crate::figures::work::experiment::{Experiment, ExperimentResult};
use crate::figures::work::placement::{BASE, BASE_FAILING, PlacementMethod, PlacementShape};

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
    fn steps(self, base: PlacementShape) -> Vec<(String, PlacementShape, usize)> {
        let step = |x: usize, shape: PlacementShape| (x.to_string(), shape, BASE_FAILING);
        match self {
            Sweep::Spare => (0..=5)
                .map(|spare| match base.method {
                    PlacementMethod::CodingSets { .. } => step(
                        spare,
                        PlacementShape { method: PlacementMethod::CodingSets { spare }, ..base },
                    ),
                    _ => step(spare, base),
                })
                .collect(),
            Sweep::Parity => {
                let steps = 1..=4;
                steps.map(|parity| step(parity, PlacementShape { parity, ..base })).collect()
            }
            Sweep::Slabs => {
                let steps = [2, 4, 8, 16, 32, 64];
                steps.map(|slabs| step(slabs, PlacementShape { slabs, ..base })).into()
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
                        (nodes.to_string(), PlacementShape { nodes, ..base }, failing)
                    })
                    .into()
            }
        }
    }
}

/// What is compared by how often it loses data.
fn compared() -> [(&'static str, PlacementShape); 5] {
    let copies = PlacementShape { data: 1, ..BASE };
    [
        ("8+2, CodingSets", BASE),
        ("8+2, random", PlacementShape { method: PlacementMethod::Random, ..BASE }),
        ("8+2, two choices", PlacementShape { method: PlacementMethod::TwoChoices, ..BASE }),
        ("r + 1 copies, CodingSets", copies),
        ("r + 1 copies, random", PlacementShape { method: PlacementMethod::Random, ..copies }),
    ]
}

/// What is compared by how evenly it uses memory.
const BALANCED: [(&str, PlacementMethod); 7] = [
    ("CodingSets, l = 0", PlacementMethod::CodingSets { spare: 0 }),
    ("CodingSets, l = 1", PlacementMethod::CodingSets { spare: 1 }),
    ("CodingSets, l = 2", PlacementMethod::CodingSets { spare: 2 }),
    ("CodingSets, l = 4", PlacementMethod::CodingSets { spare: 4 }),
    ("random", PlacementMethod::Random),
    ("two choices", PlacementMethod::TwoChoices),
    ("least loaded", PlacementMethod::LeastLoaded),
];

/// All points of the figure.
pub(in crate::figures) fn points() -> Vec<Point> {
    let mut points = Vec::new();
    for sweep in Sweep::ALL {
        for (series, shape) in compared() {
            for (x, shape, failing) in sweep.steps(shape) {
                let experiment = Experiment::DataLoss(DataLoss { sweep, shape, failing });
                points.push(Point { series: series.to_owned(), x, experiment });
            }
        }
    }
    for (series, method) in BALANCED {
        for slabs in [2, 4, 8, 16] {
            let experiment =
                Experiment::Balance(Balance { shape: PlacementShape { method, slabs, ..BASE } });
            points.push(Point { series: series.to_owned(), x: slabs.to_string(), experiment });
        }
    }
    points
}

pub(in crate::figures) fn setup(trials: u64, seed: u64) -> String {
    format!(
        "Unless it says otherwise: 1,000 memory nodes, 16 slabs of each in use, coding 8+2, extended groups of \
         8 + 2 + 2, 1 % of the nodes fail at once; {trials} failures drawn for each point, seed {seed}. CodingSets is \
         the placement of pools; theirs has l = 2. For the balance, nodes begin with 0 to 8 slabs in use for something \
         else; mean of {CLUSTERS} clusters."
    )
}

pub(in crate::figures) fn claims() -> Vec<Claim> {
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

fn losses(measured: &Measured, sweep: Sweep) -> impl Iterator<Item = (&Point, &LossProbability)> {
    measured.points.iter().filter_map(move |(point, outcome)| match (&point.experiment, outcome) {
        (Experiment::DataLoss(loss), ExperimentResult::DataLoss(lost)) if loss.sweep == sweep => {
            Some((point, lost))
        }
        _ => None,
    })
}

/// What is written of the figure.
pub(in crate::figures) fn tables(measured: &Measured) -> Vec<Table> {
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
    let percent = |lost: &LossProbability| 100.0 * lost.probability();
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
            ExperimentResult::Balance(balanced) => Some((point, balanced)),
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

    use selkie::fabric::env::SplitMix;

    use super::*;
    use crate::figures::figure::Figure;
    use crate::figures::work::placement::{PlacedRanges, draw};

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

    fn probability(shape: PlacementShape, failing: usize, trials: u64) -> f64 {
        DataLoss { sweep: Sweep::Spare, shape, failing }.run(trials, 1).probability()
    }

    /// Three standard deviations of what is drawn.
    fn is_near(drawn: f64, exact: f64, trials: u64) -> bool {
        (drawn - exact).abs() < 3.0 * (exact * (1.0 - exact) / trials as f64).sqrt()
    }

    #[test]
    fn without_spare_nodes_it_is_what_disjoint_groups_lose() {
        let method = PlacementMethod::CodingSets { spare: 0 };
        for (nodes, data, parity, failing) in [(100, 8, 2, 10), (60, 4, 2, 6), (104, 8, 2, 7)] {
            let shape = PlacementShape { method, nodes, slabs: 4, data, parity };
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
        let shape = PlacementShape {
            method: PlacementMethod::Random,
            nodes: 30,
            slabs: 1,
            data: 1,
            parity: 2,
        };
        let ranges = shape.place(&mut [0; 30], &SplitMix::of_stream(1, 0));
        assert_eq!(ranges.len(), 10);
        let mut placed = PlacedRanges::new(30, 2, &ranges[..1]);
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
        let shape = PlacementShape { nodes: 200, slabs: 8, ..BASE };
        let of = |method| probability(PlacementShape { method, ..shape }, 6, 20_000);
        let [none, two, four] = [0, 2, 4].map(|spare| of(PlacementMethod::CodingSets { spare }));
        let (random, choices) = (of(PlacementMethod::Random), of(PlacementMethod::TwoChoices));
        assert!(none < two && two < four && four < random, "{none} {two} {four} {random}");
        assert!(2.0 * two < random && 2.0 * two < choices, "{two}, {random}, {choices}");
    }

    #[test]
    fn spare_nodes_even_memory_out() {
        let most = |method| {
            let shape = PlacementShape { method, nodes: 120, slabs: 8, ..BASE };
            let Balanced { most, deviation } = Balance { shape }.run(1);
            assert!(most > 1.0 && deviation > 0.0 || method == PlacementMethod::LeastLoaded);
            deviation
        };
        let [none, two] = [0, 2].map(|spare| most(PlacementMethod::CodingSets { spare }));
        let (random, least) = (most(PlacementMethod::Random), most(PlacementMethod::LeastLoaded));
        assert!(least < two && two < none && none < random, "{least} {two} {none} {random}");
        let Balanced { most, deviation } = Balanced::of(&[1, 3]);
        assert!((most - 1.5).abs() < 1e-9 && (deviation - 0.5).abs() < 1e-9);
    }

    #[test]
    fn what_was_not_seen_is_below_what_could_have_been() {
        assert_eq!(LossProbability { trials: 1000, lost: 0 }.cell(), "below 1.0e-1 %");
        assert_eq!(LossProbability { trials: 1000, lost: 18 }.cell(), "1.8 %");
        assert_eq!(LossProbability { trials: 1000, lost: 500 }.cell(), "50 %");
        assert_eq!(LossProbability { trials: 1_000_000, lost: 123 }.cell(), "0.012 %");
    }

    #[test]
    fn all_points_are_in_one_table() {
        let measured = Measured {
            figure: Figure::CodingSets,
            planned: points().len(),
            points: points()
                .into_iter()
                .map(|point| {
                    let outcome = match &point.experiment {
                        Experiment::Balance(_) => {
                            ExperimentResult::Balance(Balanced { most: 1.0, deviation: 0.0 })
                        }
                        _ => ExperimentResult::DataLoss(LossProbability { trials: 1, lost: 1 }),
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
