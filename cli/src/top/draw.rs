//! A snapshot on a terminal: a function of the snapshot and of the terminal's size, and of nothing
//! else.
//!
//! What does not fit is cut, with a note of how many rows are missing. The compute nodes come
//! first; memory nodes and hottest lines get at least a quarter each of what the terminal has, if
//! they need it.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Row, Table};

use super::plain;
use super::snapshot::{NodeState, Snapshot};

/// Lines below the tables: the keys.
const FOOT_LINES: u16 = 1;
const KEYS: &str = "q: quit";

/// One of the tables.
struct Section<'a> {
    headers: &'a [&'a str],
    widths: &'a [u16],
    rows: Vec<(Vec<String>, Option<NodeState>)>,
}

/// Draws all of it.
pub(crate) fn draw(frame: &mut Frame<'_>, snapshot: &Snapshot) {
    let lease_s = snapshot.lease_s;
    let mut compute: Vec<_> = vec![(plain::total_cells(snapshot).to_vec(), None)];
    let rows = snapshot.compute_nodes.iter();
    compute.extend(rows.map(|row| (plain::compute_cells(row, lease_s).to_vec(), Some(row.state))));
    let memory = snapshot.memory_nodes.iter();
    let memory = memory.map(|row| (plain::memory_cells(row, lease_s).to_vec(), Some(row.state)));
    let hottest = snapshot.hottest.iter().map(|row| (plain::hot_cells(row).to_vec(), None));
    let sections = [
        Section {
            headers: &plain::COMPUTE,
            widths: &[12, 10, 10, 8, 10, 11, 8, 10, 9, 9],
            rows: compute,
        },
        Section {
            headers: &plain::MEMORY,
            widths: &[12, 10, 10, 10, 10, 8],
            rows: memory.collect(),
        },
        Section { headers: &plain::HOTTEST, widths: &[18, 7, 11, 12, 30], rows: hottest.collect() },
    ];
    let head: Vec<_> = [plain::headline(snapshot), plain::times(snapshot)]
        .into_iter()
        .chain(plain::waits(snapshot))
        .map(|line| Line::from(line).bold())
        .collect();
    let area = frame.area();
    let wants = sections.each_ref().map(Section::lines);
    let head_lines = head.len() as u16;
    let heights = share(area.height.saturating_sub(head_lines + FOOT_LINES), wants);
    let lines = [head_lines, heights[0], heights[1], heights[2], 0, FOOT_LINES];
    let lines = lines.map(Constraint::Length);
    let lines =
        lines.map(|line| if line == Constraint::Length(0) { Constraint::Fill(1) } else { line });
    let [top, compute, memory, hottest, _, foot] = Layout::vertical(lines).areas(area);
    frame.render_widget(Text::from(head), top);
    for (section, (area, height)) in
        sections.iter().zip([compute, memory, hottest].into_iter().zip(heights))
    {
        // One without lines would get what is left over.
        if height > 0 {
            section.draw(frame, area);
        }
    }
    frame.render_widget(Line::from(KEYS).dim(), foot);
}

/// How many of so many lines each section gets: the later ones at most a quarter, unless some are
/// left over.
fn share(lines: u16, [compute, memory, hottest]: [u16; 3]) -> [u16; 3] {
    let quarter = lines / 4;
    let (least_memory, least_hottest) = (memory.min(quarter), hottest.min(quarter));
    let compute = compute.min(lines - least_memory - least_hottest);
    let memory = memory.min(lines - compute - least_hottest);
    [compute, memory, hottest.min(lines - compute - memory)]
}

impl Section<'_> {
    /// Lines it would like to have; none if there is nothing to show.
    fn lines(&self) -> u16 {
        if self.rows.is_empty() {
            return 0;
        }
        u16::try_from(self.rows.len() + 1).unwrap_or(u16::MAX)
    }

    fn draw(&self, frame: &mut Frame<'_>, area: Rect) {
        let room = usize::from(area.height).saturating_sub(1);
        // The last line says what is missing.
        let shown = if self.rows.len() <= room { room } else { room.saturating_sub(1) };
        let missing = self.rows.len().saturating_sub(shown);
        let mut rows: Vec<_> = self.rows.iter().take(shown).map(row).collect();
        if missing > 0 {
            rows.push(Row::new([Cell::from(format!("+ {missing} more"))]).dim());
        }
        let widths = self.widths.iter().map(|width| Constraint::Length(*width));
        let header = Row::new(self.headers.iter().copied()).style(Style::new().reversed());
        frame.render_widget(Table::new(rows, widths).header(header), area);
    }
}

fn row<'a>((cells, state): &'a (Vec<String>, Option<NodeState>)) -> Row<'a> {
    let row = Row::new(cells.iter().map(String::as_str));
    match state {
        Some(NodeState::Silent | NodeState::Recovering) => row.fg(Color::Yellow),
        Some(NodeState::Dead) => row.fg(Color::Red),
        Some(NodeState::NotJoined) => row.dim(),
        Some(NodeState::Lives) | None => row,
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::snapshot::{ComputeRow, HotRow, MemoryRow, Rates};
    use super::*;

    fn made_up(compute_nodes: usize) -> Snapshot {
        let rates = Rates {
            operations: Some(1234.0),
            accesses: 56_789.0,
            hit_ratio: Some(0.876),
            round_trips: Some(4321.0),
            atomics: None,
            invalidations_sent: 7.5,
            invalidations_received: 222.0,
            ..Rates::default()
        };
        let compute = |index| ComputeRow {
            node: format!("cn{index}"),
            state: if index == 1 { NodeState::Recovering } else { NodeState::Lives },
            silent_s: Some(0.25),
            longest_silence_s: None,
            frames: Some(100),
            frames_used: Some(40),
            lock_waits: Some(1000 + index as u64),
            lock_wait_s: Some(0.5),
            deadlocks: Some(3),
            lock_timeouts: Some(u64::from(index == 1)),
            lock_refusals: Some(5),
            turn_waits: Some(2000 + index as u64),
            turn_wait_s: Some(0.75),
            turns_lost: Some(6),
            turn_circles: Some(u64::from(index == 2)),
            rates: (index != 1).then_some(rates),
            ..ComputeRow::default()
        };
        let memory = |index| MemoryRow {
            node: format!("mem{index}"),
            state: if index == 2 { NodeState::NotJoined } else { NodeState::Lives },
            silent_s: Some(0.1),
            longest_silence_s: None,
            lent_bytes: Some(3 << 30),
            leased_bytes: Some(5 << 20),
            cpu: Some(0.015),
        };
        let hot = |index: u64| HotRow {
            gcl: 0xabc000 + index,
            home: "mem1".to_owned(),
            at_least: 98_765 - index,
            at_most: 99_043,
            nodes: vec!["cn0".to_owned(), "cn5".to_owned()],
        };
        Snapshot {
            pool: "demo".to_owned(),
            verdict: "degraded".to_owned(),
            says: "degraded: mem2 is gone".to_owned(),
            slabs_to_rebuild: 3,
            slabs_without_place: 3,
            lease_s: 2.0,
            memory_nodes: (0..3).map(memory).collect(),
            compute_nodes: (0..compute_nodes).map(compute).collect(),
            total: rates,
            hottest: (0..10).map(hot).collect(),
            lost_pages: 17,
        }
    }

    /// The terminal's lines.
    fn drawn(snapshot: &Snapshot, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, snapshot)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(line).collect()
    }

    #[track_caller]
    fn line_with<'a>(lines: &'a [String], words: &[&str]) -> &'a str {
        let has = |line: &&String| words.iter().all(|word| line.contains(word));
        lines.iter().find(has).unwrap_or_else(|| panic!("{words:?} in\n{}", lines.join("\n")))
    }

    #[test]
    fn all_that_is_in_the_snapshot_is_on_the_screen() {
        let lines = drawn(&made_up(3), 120, 40);
        assert!(lines[0].starts_with("pool demo: degraded: mem2 is gone"), "{}", lines[0]);
        line_with(&lines, &["lease 2 s", "17 pages lost"]);
        line_with(
            &lines,
            &[
                "cn0", "lives", "0.2/2 s", "40.0 %", "1,234", "56,789", "87.6 %", "4,321", "222",
                "7.5",
            ],
        );
        line_with(&lines, &["cn1", "recovering", " - "]);
        line_with(&lines, &["all", "1,234"]);
        line_with(&lines, &["mem0", "lives", "0.1/2 s", "3.0 GiB", "5.0 MiB", "1.5 %"]);
        line_with(&lines, &["mem2", "not joined"]);
        line_with(&lines, &["0xabc000", "mem1", "98,765", "99,043", "cn0 cn5"]);
        line_with(&lines, &["0xabc009"]);
        line_with(
            &lines,
            &["row locks: waits 3,003, deadlocks 9, timeouts 1, refused 15, waited 1.5 s"],
        );
        line_with(&lines, &["turns at hot rows: waits 6,003, lost 18, circles 1, waited 2.2 s"]);
        line_with(&lines, &["q: quit"]);
        let idle = drawn(&Snapshot::default(), 120, 40);
        assert!(!idle.iter().any(|line| line.contains("locks") || line.contains("turns")));
        assert!(!lines.iter().any(|line| line.contains("more")));
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let lines = drawn(&made_up(58), 120, 24);
        let shown = lines.iter().filter(|line| line.starts_with("cn")).count();
        assert!(shown >= 5, "{}", lines.join("\n"));
        line_with(&lines, &["+ ", " more"]);
        line_with(&lines, &[&format!("+ {} more", 58 - shown)]);
        // The others have not been pushed out.
        line_with(&lines, &["mem2"]);
        line_with(&lines, &["0xabc000"]);
        line_with(&lines, &["q: quit"]);
        let lines = drawn(&made_up(58), 120, 90);
        assert_eq!(lines.iter().filter(|line| line.starts_with("cn")).count(), 58);
    }

    #[test]
    fn terminals_of_any_size_are_drawn_on() {
        for snapshot in [Snapshot::default(), made_up(0), made_up(58)] {
            for width in [1, 2, 3, 10, 20, 79, 300] {
                for height in (1..14).chain([60, 200]) {
                    assert_eq!(drawn(&snapshot, width, height).len(), usize::from(height));
                }
            }
        }
    }

    #[test]
    fn the_sections_never_get_more_lines_than_there_are() {
        for lines in 0..40 {
            for wants in [[0, 0, 0], [59, 4, 11], [59, 1025, 11], [2, 1025, 0], [3, 3, 3]] {
                let shares = share(lines, wants);
                assert!(shares.iter().sum::<u16>() <= lines, "{lines} {wants:?} {shares:?}");
                assert!(shares.iter().zip(wants).all(|(share, want)| *share <= want));
                let satisfied = shares == wants;
                assert!(
                    satisfied || shares.iter().sum::<u16>() == lines,
                    "{lines} {wants:?} {shares:?}"
                );
            }
        }
    }
}
