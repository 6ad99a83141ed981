//! What a database says to a statement, and whether two of them say the same.

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Rows(Vec<Vec<String>>),
    /// SQLSTATE, or what SQLite says.
    Error(String),
    /// The database does not answer any more.
    Lost(String),
}

/// How answers are compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comparison {
    /// Whether the order of the rows is that of the statement.
    pub(crate) is_ordered: bool,
    /// Whether the other is SQLite: booleans are numbers, and errors have no SQLSTATE.
    pub(crate) is_sqlite: bool,
}

impl Answer {
    /// Whether Selkie says that it does not have that.
    pub(crate) fn is_unsupported(&self) -> bool {
        matches!(self, Self::Error(code) if code == "0A000")
    }

    /// Whether Selkie's answer is as good as another's.
    pub(crate) fn agrees(&self, other: &Self, how: Comparison) -> bool {
        match (self, other) {
            (Self::Rows(own), Self::Rows(theirs)) => {
                let (mut own, mut theirs) = (own.clone(), theirs.clone());
                if how.is_sqlite {
                    for value in own.iter_mut().flatten() {
                        match value.as_str() {
                            "t" => "1".clone_into(value),
                            "f" => "0".clone_into(value),
                            _ => {}
                        }
                    }
                }
                if !how.is_ordered {
                    own.sort();
                    theirs.sort();
                }
                own == theirs
            }
            // What is not there is no wrong answer; it is counted.
            (own, _) if own.is_unsupported() => true,
            // SQLite understands less, and refuses less.
            (_, Self::Error(_)) if how.is_sqlite => true,
            // It groups by what PostgreSQL refuses to.
            (Self::Error(code), _) if how.is_sqlite => {
                code.starts_with("42") || code.starts_with("22") || code.starts_with("21")
            }
            (Self::Error(own), Self::Error(theirs)) => own.get(..2) == theirs.get(..2),
            _ => false,
        }
    }
}

#[test]
fn answers_are_compared_as_the_statement_says() {
    let rows = |all: &[&str]| Answer::Rows(all.iter().map(|one| vec![(*one).to_owned()]).collect());
    let error = |code: &str| Answer::Error(code.to_owned());
    let (any, ordered) = (false, true);
    let how = |is_ordered| Comparison { is_ordered, is_sqlite: false };
    assert!(rows(&["1", "2"]).agrees(&rows(&["2", "1"]), how(any)));
    assert!(!rows(&["1", "2"]).agrees(&rows(&["2", "1"]), how(ordered)));
    assert!(!rows(&["1", "1"]).agrees(&rows(&["1"]), how(any)));
    assert!(error("22012").agrees(&error("22003"), how(any)));
    assert!(!error("22012").agrees(&error("42601"), how(any)));
    assert!(!error("22012").agrees(&rows(&[]), how(any)));
    assert!(error("0A000").agrees(&rows(&[]), how(any)));
    let sqlite = Comparison { is_ordered: false, is_sqlite: true };
    assert!(rows(&["t"]).agrees(&rows(&["1"]), sqlite));
    assert!(!rows(&["t"]).agrees(&rows(&["0"]), sqlite));
    assert!(!error("XX000").agrees(&rows(&["0"]), sqlite));
}
