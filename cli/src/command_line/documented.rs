//! Every command that README and guide show is one that the program takes, with values that it
//! takes together.

use std::path::{Path, PathBuf};

use crate::support::config_file::{self, Checked};

use super::Cli;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The README, the pages of the guide, and that of scenarios.
fn pages() -> Vec<PathBuf> {
    let guide = std::fs::read_dir(root().join("docs/guide")).unwrap();
    let mut pages: Vec<_> = guide.map(|entry| entry.unwrap().path()).collect();
    let others = ["README.md", "CONTRIBUTING.md", "docs/scenarios/README.md"];
    pages.extend(others.map(|page| root().join(page)));
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    pages
}

/// The lines of a page that are to be typed: those of shell blocks, and indented ones.
fn typed(text: &str) -> impl Iterator<Item = &str> {
    let mut fence = None;
    text.lines().filter(move |line| match (fence, line.strip_prefix("```")) {
        (None, Some(language)) => {
            fence = Some(language == "sh");
            false
        }
        (Some(_), Some(_)) => {
            fence = None;
            false
        }
        (Some(is_shell), None) => is_shell,
        (None, None) => line.starts_with("    "),
    })
}

/// A line in which what is quoted is one word, without signs that the shell looks at.
fn joined(line: &str) -> String {
    let mut is_quoted = false;
    let sign = |c: char| match c {
        '"' => {
            is_quoted = !is_quoted;
            None
        }
        c if is_quoted && !c.is_alphanumeric() => Some('_'),
        c => Some(c),
    };
    line.chars().filter_map(sign).collect()
}

/// The commands of a line, each as its words: without what the shell does around them.
fn commands(line: &str) -> Vec<Vec<String>> {
    let line = joined(line);
    let line = line.split(" #").next().unwrap_or_default();
    let parts = line.split([';', '&', '|']);
    let words = |part: &str| {
        let words = part.split_whitespace().skip_while(|word| ["do", "then"].contains(word));
        let words = words.take_while(|word| !word.starts_with('>'));
        words.map(|word| word.replace("$i", "1")).collect::<Vec<_>>()
    };
    parts.map(words).filter(|words| !words.is_empty()).collect()
}

/// The arguments of the program, its name first, if the words run it.
fn arguments(words: &[String]) -> Option<Vec<String>> {
    let rest = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["selkie", ..] => &words[1..],
        ["cargo", "run", "--release", "--", ..] => &words[4..],
        _ => return None,
    };
    Some([&["selkie".to_owned()], rest].concat())
}

#[test]
fn every_command_of_readme_and_guide_is_one_that_the_program_takes() {
    let mut seen = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        let commands = typed(&text).flat_map(commands);
        for arguments in commands.filter_map(|words| arguments(&words)) {
            let line = arguments.join(" ");
            let place = format!("{}: {line}", page.display());
            let cli = config_file::try_parse::<Cli>(&arguments)
                .unwrap_or_else(|error| panic!("{place}: {error}"));
            match cli.check() {
                // Commands before it make the file.
                Err(refusal) if refusal.key == "verify-commits" => {}
                Err(refusal) => panic!("{place}: {}", refusal.what),
                Ok(()) => {}
            }
            seen += 1;
        }
    }
    assert!(seen > 60, "only {seen} commands were found");
}

/// Packages, tests, benchmarks and examples that commands of `cargo` name.
#[test]
fn what_commands_of_cargo_name_is_there() {
    let mut seen = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for words in typed(&text).flat_map(commands).filter(|words| words[0] == "cargo") {
            let place = format!("{}: {}", page.display(), words.join(" "));
            let value = |option: &str| {
                let at = words.iter().position(|word| word == option)?;
                words.get(at + 1).map(String::as_str)
            };
            let Some(package) = value("-p") else { continue };
            let folder = package.strip_prefix("selkie-").unwrap_or(".");
            let package = root().join(folder);
            assert!(package.join("Cargo.toml").exists(), "{place}");
            for (option, folder) in
                [("--test", "tests"), ("--bench", "benches"), ("--example", "examples")]
            {
                let Some(name) = value(option) else { continue };
                let file = package.join(folder).join(name);
                let is_there = file.with_extension("rs").exists() || file.join("main.rs").exists();
                assert!(is_there, "{place}: there is no {}", file.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 8, "only {seen} were found");
}
