//! The documents say what is there: links lead somewhere, cited sections exist, paths that
//! ARCHITECTURE.md names are in the tree, figures are as `selkie figures` makes them, and comments
//! are as wide as the style says.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// The widest comment line, in characters.
const COMMENT_WIDTH: usize = 100;
/// The same inside a diagram or a byte map, which cannot be wrapped.
const DIAGRAM_WIDTH: usize = 120;

/// Colours of plots that were not told apart on white paper, and that figures had once.
const OLD_COLORS: [&str; 2] = ["#FFE119", "#E6194B"];

/// All files below the root with one of these extensions, without build output.
fn files(extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![PathBuf::from(ROOT)];
    while let Some(folder) = pending.pop() {
        for path in entries(&folder) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    pending.push(path);
                }
            } else if path.extension().is_some_and(|e| extensions.iter().any(|x| e == *x)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let listed = std::fs::read_dir(folder).and_then(|all| all.map(|e| Ok(e?.path())).collect());
    listed.unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The targets of a page's links.
fn links(text: &str) -> Vec<&str> {
    let behind = text.split("](").skip(1);
    behind.filter_map(|piece| piece.split_once(')').map(|(target, _)| target)).collect()
}

#[test]
fn links_of_documents_lead_somewhere() {
    let mut checked = 0;
    for path in files(&["md"]) {
        for target in links(&read(&path)) {
            let target = target.split('#').next().unwrap_or(target);
            if target.is_empty() || target.contains("://") {
                continue;
            }
            checked += 1;
            let to = path.parent().unwrap().join(target);
            assert!(to.exists(), "{}: nothing is at {target}", path.display());
        }
    }
    assert!(checked > 30, "only {checked} links were found");
}

#[test]
fn cited_sections_and_decisions_exist() {
    let design = read(&Path::new(ROOT).join("docs/design.md"));
    let sections: BTreeSet<&str> = design.lines().filter_map(|l| l.strip_prefix("## ")).collect();
    let decisions: BTreeSet<u32> = entries(&Path::new(ROOT).join("docs/decisions"))
        .iter()
        .filter_map(|path| path.file_name()?.to_str()?.get(..4)?.parse().ok())
        .collect();
    let (mut cited, mut chosen) = (0, 0);
    for path in files(&["rs", "md"]) {
        if path.ends_with("tests/docs.rs") {
            continue;
        }
        let at = path.display();
        // Comments may break a citation over two lines.
        let text: Vec<_> = read(&path)
            .lines()
            .map(|l| l.trim_start().trim_start_matches(['/', '!']).trim().to_owned())
            .collect();
        let text = text.join(" ");
        assert!(!text.contains("DESIGN §"), "{at} cites a document that is not here");
        for cite in text.split("docs/design.md, ").skip(1) {
            cited += 1;
            let known = sections.iter().any(|section| cite.starts_with(section));
            let start: String = cite.chars().take(40).collect();
            assert!(known, "{at}: docs/design.md has no section {start:?}");
        }
        for cite in text.split("(decision ").skip(1) {
            let number = cite.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
            if let Ok(number) = number.parse() {
                chosen += 1;
                assert!(decisions.contains(&number), "{at}: there is no decision {number}");
            }
        }
    }
    assert!(cited > 5 && chosen > 10, "{cited} sections and {chosen} decisions were cited");
}

#[test]
fn paths_that_the_architecture_names_exist() {
    let text = read(&Path::new(ROOT).join("ARCHITECTURE.md"));
    let mut checked = 0;
    // Every second piece is between two backquotes.
    for name in text.split('`').skip(1).step_by(2) {
        let is_path = name.contains('/') && (name.ends_with('/') || name.ends_with(".rs"));
        if !is_path || name.contains([' ', '<', '*']) {
            continue;
        }
        checked += 1;
        assert!(Path::new(ROOT).join(name).exists(), "ARCHITECTURE.md names {name}");
    }
    assert!(checked > 40, "only {checked} paths were found");
}

#[test]
fn comments_are_no_wider_than_the_code() {
    for path in files(&["rs"]) {
        let mut in_diagram = false;
        for (number, line) in read(&path).lines().enumerate() {
            let text = line.trim_start();
            if !text.starts_with("//") {
                in_diagram = false;
                continue;
            }
            in_diagram ^= text.contains("```");
            let limit = if in_diagram { DIAGRAM_WIDTH } else { COMMENT_WIDTH };
            let width = line.chars().count();
            assert!(width <= limit, "{}:{}: {width} wide", path.display(), number + 1);
        }
    }
}

#[test]
fn the_readme_is_short() {
    let lines = read(&Path::new(ROOT).join("README.md")).lines().count();
    assert!(lines <= 130, "README.md has {lines} lines; the manual is in docs/guide");
}

/// Numbers that are measured anew come with plots and pages of today's form.
#[test]
fn figures_are_as_they_are_made_now() {
    let folder = Path::new(ROOT).join("docs/figures");
    let (mut plots, mut tables) = (0, 0);
    for plot in entries(&folder).iter().filter(|path| path.extension().is_some_and(|e| e == "svg"))
    {
        plots += 1;
        let svg = read(plot).to_ascii_uppercase();
        let old = OLD_COLORS.iter().find(|color| svg.contains(**color));
        assert!(old.is_none(), "{}: has {old:?}", plot.display());
        let numbers = plot.with_extension("csv");
        let csv = read(&numbers);
        let columns = csv.lines().next().unwrap_or_default();
        let is_there = columns.split(',').any(|column| column == "plotted");
        assert!(is_there, "{}: no column `plotted`: {columns}", numbers.display());
    }
    let page = read(&folder.join("README.md"));
    for (heading, below) in page.lines().zip(page.lines().skip(1)) {
        if below.starts_with("| ---") {
            tables += 1;
            let cells = heading.trim().trim_start_matches('|').trim_end_matches('|');
            let is_named = cells.split('|').all(|cell| !cell.trim().is_empty());
            assert!(is_named, "docs/figures/README.md: a column without a heading: {heading}");
        }
    }
    assert!(plots > 10 && tables > 10, "{plots} plots and {tables} tables");
}
