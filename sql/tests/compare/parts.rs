//! Statements as trees of parts, which are made smaller part by part.

/// What may stand in a part's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Int,
    Text,
    Bool,
    Date,
    Num,
    Query,
    Source,
    Clause,
}

impl Sort {
    /// The smallest that may stand there.
    fn smallest(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Int => Some(&["1", "null::integer"]),
            Self::Text => Some(&["'a'", "null::text"]),
            Self::Bool => Some(&["true", "false"]),
            Self::Date => Some(&["date '2024-02-29'"]),
            Self::Num => Some(&["1.5"]),
            Self::Query | Self::Source | Self::Clause => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Text(String),
    Part(Part),
}

impl From<&str> for Piece {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Piece {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Part> for Piece {
    fn from(part: Part) -> Self {
        Self::Part(part)
    }
}

/// A part of a statement: texts and parts of it.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) sort: Sort,
    pub(crate) pieces: Vec<Piece>,
    /// Whether the statement may do without it.
    pub(crate) is_optional: bool,
}

/// A part of a sort, of pieces.
macro_rules! part {
    ($sort:ident; $($piece:expr),* $(,)?) => {
        $crate::parts::Part {
            sort: $crate::parts::Sort::$sort,
            pieces: vec![$($crate::parts::Piece::from($piece)),*],
            is_optional: false,
        }
    };
}
pub(crate) use part;

impl Part {
    pub(crate) fn optional(mut self) -> Self {
        self.is_optional = true;
        self
    }

    pub(crate) fn sql(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Part(part) => part.write(out),
            }
        }
    }

    fn parts(&self) -> impl Iterator<Item = &Self> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Part(part) => Some(part),
            Piece::Text(_) => None,
        })
    }

    /// Those of a sort within it, but not within those.
    fn within(&self, sort: Sort, found: &mut Vec<Self>) {
        for part in self.parts() {
            match part.sort == sort {
                true => found.push(part.clone()),
                false => part.within(sort, found),
            }
        }
    }

    /// What may stand in its place, shorter than it is.
    fn instead(&self) -> Vec<Self> {
        let mut found = Vec::new();
        if self.is_optional && !self.pieces.is_empty() {
            found.push(Self { pieces: Vec::new(), ..self.clone() });
        }
        self.within(self.sort, &mut found);
        for text in self.sort.smallest().into_iter().flatten() {
            found.push(Self { pieces: vec![Piece::from(*text)], ..self.clone() });
        }
        let length = self.sql().len();
        found.retain(|part| part.sql().len() < length);
        found
    }

    /// The statement with one part changed for what is shorter: outer parts first.
    pub(crate) fn smaller(&self) -> Vec<Self> {
        let mut all = self.instead();
        for (at, piece) in self.pieces.iter().enumerate() {
            let Piece::Part(part) = piece else { continue };
            for small in part.smaller() {
                let mut whole = self.clone();
                whole.pieces[at] = Piece::Part(small);
                all.push(whole);
            }
        }
        all
    }
}

#[test]
fn a_statement_becomes_smaller_part_by_part() {
    let sum = part!(Int; "(", part!(Int; "a.i"), " + ", part!(Int; "a.j"), ")");
    let clause = part!(Clause; " where ", part!(Bool; "a.b and a.b")).optional();
    let whole = part!(Query; "select ", sum, " from t a", clause);
    let smaller: Vec<_> = whole.smaller().iter().map(Part::sql).collect();
    let wanted = "select (a.i + a.j) from t a";
    assert!(smaller.iter().any(|sql| sql == wanted), "{smaller:#?}");
    let wanted = "select a.j from t a where a.b and a.b";
    assert!(smaller.iter().any(|sql| sql == wanted), "{smaller:#?}");
    assert!(smaller.iter().all(|sql| sql.len() < whole.sql().len()), "{smaller:#?}");
}
