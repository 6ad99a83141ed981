//! The text of a specification: what sessions do, in which orders, and what they are told.
//!
//! | line | meaning |
//! |---|---|
//! | `# ...` | a comment |
//! | `setup: SQL`, `teardown: SQL` | before and after each permutation, in a session of its own |
//! | `session NAME` | what follows is done by it |
//! | `begin: SQL` | what it does at first |
//! | `step NAME: SQL` | a statement; names are those of the whole file |
//! | `permutation: STEP ...` | an order of steps |
//! | `> STEP: ANSWER` | what is expected next; `A \| B` if it may be either |
//! | `> among STEP ...: A, B` | answers to several, which may come in any order |
//!
//! An answer is the tag of a statement, its rows as `1,a; 2,b` or `(0 rows)`, `ERROR SQLSTATE`, or
//! `waits`: then another line says how it ends.

#[derive(Debug, Default)]
pub(crate) struct Spec {
    pub(crate) setup: Vec<String>,
    pub(crate) teardown: Vec<String>,
    pub(crate) sessions: Vec<SessionSpec>,
    pub(crate) permutations: Vec<Permutation>,
}

#[derive(Debug, Default)]
pub(crate) struct SessionSpec {
    pub(crate) begin: Vec<String>,
    /// Names and statements.
    pub(crate) steps: Vec<(String, String)>,
}

#[derive(Debug, Default)]
pub(crate) struct Permutation {
    pub(crate) line: usize,
    pub(crate) steps: Vec<String>,
    pub(crate) expected: Vec<Expected>,
}

#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) steps: Vec<String>,
    /// One of these.
    pub(crate) answers: Vec<String>,
}

impl Spec {
    /// The session of a step, and its statement.
    pub(crate) fn step(&self, name: &str) -> Option<(usize, &str)> {
        self.sessions.iter().enumerate().find_map(|(at, session)| {
            let step = session.steps.iter().find(|(own, _)| own == name)?;
            Some((at, step.1.as_str()))
        })
    }

    /// Reads a text; else the line that is wrong, and why.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut spec = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                spec.line(number, line).map_err(|why| format!("line {number}: {why}: {line}"))?;
            }
        }
        for own in &spec.permutations {
            let expected = own.expected.iter().flat_map(|expected| &expected.steps);
            if let Some(name) =
                own.steps.iter().chain(expected).find(|one| spec.step(one).is_none())
            {
                return Err(format!("line {}: there is no step {name}", own.line));
            }
        }
        Ok(spec)
    }

    fn line(&mut self, number: usize, line: &str) -> Result<(), String> {
        if line.starts_with("session ") {
            self.sessions.push(SessionSpec::default());
            return Ok(());
        }
        let (head, rest) = line.split_once(':').ok_or("a colon is missing")?;
        let rest = rest.trim().to_owned();
        let words: Vec<_> = head.split_whitespace().map(str::to_owned).collect();
        let first = words.first().map_or("", String::as_str);
        match first {
            "setup" => self.setup.push(rest),
            "teardown" => self.teardown.push(rest),
            "begin" | "step" => {
                let session = self.sessions.last_mut().ok_or("no session is begun")?;
                match words.get(1) {
                    Some(name) => session.steps.push((name.clone(), rest)),
                    None => session.begin.push(rest),
                }
            }
            "permutation" => {
                let steps = rest.split_whitespace().map(str::to_owned).collect();
                let expected = Vec::new();
                self.permutations.push(Permutation { line: number, steps, expected });
            }
            ">" => {
                let own = self.permutations.last_mut().ok_or("no permutation is begun")?;
                let is_step = |word: &&String| *word != ">" && *word != "among";
                let steps = words.iter().filter(is_step).cloned().collect();
                let answers = rest.split(" | ").map(|answer| answer.trim().to_owned()).collect();
                own.expected.push(Expected { steps, answers });
            }
            _ => return Err("it begins with no known word".to_owned()),
        }
        Ok(())
    }
}

#[test]
fn a_text_is_read() {
    let text = "# x\nsetup: create table t (i int)\nsession a\nbegin: begin\nstep r: select 'a:b'\n\
                permutation: r\n> r: a:b | waits\n> among r r: A, B";
    let spec = Spec::read(text).unwrap();
    assert_eq!(spec.step("r"), Some((0, "select 'a:b'")));
    assert_eq!(spec.permutations[0].expected[0].answers, ["a:b", "waits"]);
    assert_eq!(spec.permutations[0].expected[1].steps, ["r", "r"]);
    let error = Spec::read("session a\npermutation: q").unwrap_err();
    assert_eq!(error, "line 2: there is no step q");
    assert!(Spec::read("nothing").is_err());
    assert!(Spec::read("step a: select 1").is_err());
}
