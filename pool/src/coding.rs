//! How the pages of a pool are kept redundantly: the options of a pool, as text and as numbers
//! (docs/design.md, Coded pages).
//!
//! ```text
//! plain | replicate=N | K+R [,delta=D] [,mode=recover|detect|correct|ec-only]
//!                           [,journal=auto|always]
//! ```

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::PoolError;
use crate::layout::MAX_SPLITS;

/// How reads use the splits beyond those that a page needs (Hydra §4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Reads ask for Δ splits more than needed and take the first that come; lost memory is
    /// rebuilt.
    #[default]
    Recover,
    /// As `Recover`, and every read compares Δ splits more: up to Δ wrong ones are noticed, and are
    /// an error.
    Detect,
    /// As `Detect`, with 2Δ + 1 splits more: up to Δ wrong ones are found, and mended.
    Correct,
    /// Reads ask for no more than needed.
    EcOnly,
}

/// When a page is written to the writer's journal before its splits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Journal {
    /// Where the death of the writer alone would else lose the page: when more data splits change
    /// than there are parity splits.
    #[default]
    Auto,
    /// Always: then a page that was being written back can be put together though its writer and r
    /// memory nodes died together, the one with its header excepted.
    Always,
}

/// How each page of a pool is kept: as k data and r parity splits on as many memory nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Coding {
    data: u8,
    parity: u8,
    delta: u8,
    mode: Mode,
    journal: Journal,
}

const NAMES: [(&str, Mode); 4] = [
    ("recover", Mode::Recover),
    ("detect", Mode::Detect),
    ("correct", Mode::Correct),
    ("ec-only", Mode::EcOnly),
];
const JOURNALS: [(&str, Journal); 2] = [("auto", Journal::Auto), ("always", Journal::Always)];

impl Coding {
    /// Each page whole, on one memory node: lost with it.
    pub const PLAIN: Self =
        Self { data: 1, parity: 0, delta: 0, mode: Mode::EcOnly, journal: Journal::Auto };

    /// `data` and `parity` splits with what else is usual for them: mode `Recover`, Δ = 1.
    ///
    /// # Errors
    /// [`PoolError::Config`].
    pub fn new(data: usize, parity: usize) -> Result<Self, PoolError> {
        let small = |count: usize| u8::try_from(count).unwrap_or(u8::MAX);
        let delta = u8::from(parity > 0);
        let (mode, journal) = (Mode::Recover, Journal::Auto);
        let coding = Self { data: small(data), parity: small(parity), delta, mode, journal };
        coding.validate()?;
        Ok(coding)
    }

    /// The default for a pool: 2+1 from three memory nodes on, else plain.
    #[must_use]
    pub const fn usual_for(memory_nodes: usize) -> Self {
        if memory_nodes < 3 {
            return Self::PLAIN;
        }
        Self { data: 2, parity: 1, delta: 1, mode: Mode::Recover, journal: Journal::Auto }
    }

    /// Data splits of a page, k.
    #[must_use]
    pub const fn data(self) -> usize {
        self.data as usize
    }

    /// Parity splits of a page, r: so many memory nodes may be lost together.
    #[must_use]
    pub const fn parity(self) -> usize {
        self.parity as usize
    }

    /// Splits of a page, k + r.
    #[must_use]
    pub const fn splits(self) -> usize {
        self.data() + self.parity()
    }

    /// Splits that reads ask for beyond those they need, or compare: Δ.
    #[must_use]
    pub const fn delta(self) -> usize {
        self.delta as usize
    }

    /// What they are for.
    #[must_use]
    pub const fn mode(self) -> Mode {
        self.mode
    }

    /// When pages are journalled.
    #[must_use]
    pub const fn journal(self) -> Journal {
        self.journal
    }

    /// Whether a page lies whole on one memory node, and nowhere else.
    #[must_use]
    pub const fn is_plain(self) -> bool {
        self.parity == 0 && self.data == 1
    }

    /// Parity splits that the mode takes at least, with this Δ.
    const fn least_parity(self) -> usize {
        match self.mode {
            Mode::Recover | Mode::Detect => self.delta(),
            Mode::Correct => 2 * self.delta() + 1,
            Mode::EcOnly => 0,
        }
    }

    fn validate(self) -> Result<(), PoolError> {
        if self.data == 0 || self.splits() > MAX_SPLITS {
            let allowed = format!("K+R with K at least 1 and K + R at most {MAX_SPLITS}");
            return Err(refused(format!("{}+{}", self.data, self.parity), allowed));
        }
        if self.parity == 0 && !self.is_plain() {
            let allowed = "at least one parity split, or `plain`".to_owned();
            return Err(refused(format!("{}+0", self.data), allowed));
        }
        let least = self.least_parity();
        if least > self.parity() {
            let mode = name_of(self.mode);
            let most = match self.mode {
                Mode::Correct => self.parity().checked_sub(1).map_or(0, |rest| rest / 2),
                _ => self.parity(),
            };
            let allowed = if most == 0 {
                format!("mode {mode} takes at least {least} parity splits")
            } else {
                format!(
                    "mode {mode} with delta={} takes {least} parity splits; delta={most} would do",
                    self.delta
                )
            };
            return Err(refused(self.to_string(), allowed));
        }
        if matches!(self.mode, Mode::Detect | Mode::Correct) && self.delta == 0 {
            let allowed = "delta of at least 1: how many wrong splits are to be found".to_owned();
            return Err(refused(self.to_string(), allowed));
        }
        if self.mode == Mode::EcOnly && self.delta > 0 {
            let allowed = "mode ec-only reads no more than it needs: delta=0".to_owned();
            return Err(refused(self.to_string(), allowed));
        }
        Ok(())
    }

    /// Checks that pages of `gcl_bytes` can be cut so, and that there are enough memory nodes.
    ///
    /// # Errors
    /// [`PoolError::Config`].
    pub fn validate_for(self, gcl_bytes: usize, memory_nodes: usize) -> Result<(), PoolError> {
        self.validate()?;
        if !gcl_bytes.is_multiple_of(8 * self.data()) {
            let whole = |k: &usize| gcl_bytes.is_multiple_of(8 * k);
            let possible: Vec<_> = (1..MAX_SPLITS).filter(whole).map(|k| k.to_string()).collect();
            let allowed = format!(
                "a K that divides GCLs of {gcl_bytes} bytes into whole words: {}",
                possible.join(", ")
            );
            return Err(refused(self.to_string(), allowed));
        }
        if memory_nodes < self.splits() {
            let allowed = format!(
                "at most as many splits as there are memory nodes, {memory_nodes}; this has {}",
                self.splits()
            );
            return Err(refused(self.to_string(), allowed));
        }
        Ok(())
    }
}

fn name_of(mode: Mode) -> &'static str {
    NAMES.iter().find(|(_, named)| *named == mode).map_or("", |(name, _)| name)
}

fn refused(value: String, allowed: String) -> PoolError {
    PoolError::Config { key: "coding", value, allowed }
}

impl fmt::Display for Coding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_plain() {
            return f.write_str("plain");
        }
        let usual = u8::from(self.mode != Mode::EcOnly);
        write!(f, "{}+{}", self.data, self.parity)?;
        if self.delta != usual {
            write!(f, ",delta={}", self.delta)?;
        }
        if self.mode != Mode::Recover {
            write!(f, ",mode={}", name_of(self.mode))?;
        }
        if self.journal == Journal::Always {
            f.write_str(",journal=always")?;
        }
        Ok(())
    }
}

impl FromStr for Coding {
    type Err = PoolError;

    fn from_str(text: &str) -> Result<Self, PoolError> {
        let form = "plain, replicate=N or K+R[,delta=D][,mode=recover|detect|correct|ec-only]\
                    [,journal=auto|always]";
        let bad = || refused(text.to_owned(), form.to_owned());
        let number = |digits: &str| digits.parse::<u8>().map_err(|_| bad());
        let mut parts = text.split(',');
        let shape = parts.next().unwrap_or_default();
        let (data, parity) = if shape == "plain" {
            return if parts.next().is_none() { Ok(Self::PLAIN) } else { Err(bad()) };
        } else if let Some(copies) = shape.strip_prefix("replicate=") {
            let copies = number(copies)?;
            if copies < 2 {
                return Err(refused(text.to_owned(), "at least 2 copies, or `plain`".to_owned()));
            }
            (1, copies - 1)
        } else {
            let (data, parity) = shape.split_once('+').ok_or_else(bad)?;
            (number(data)?, number(parity)?)
        };
        let (mut delta, mut mode, mut journal) = (None, None, None);
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(bad)?;
            let named = |name: &&str| *name == value;
            let again = match key {
                "delta" => delta.replace(number(value)?).is_some(),
                "mode" => {
                    let found = NAMES.iter().find(|(name, _)| named(name)).ok_or_else(bad)?;
                    mode.replace(found.1).is_some()
                }
                "journal" => {
                    let found = JOURNALS.iter().find(|(name, _)| named(name)).ok_or_else(bad)?;
                    journal.replace(found.1).is_some()
                }
                _ => return Err(bad()),
            };
            if again {
                return Err(bad());
            }
        }
        let mode = mode.unwrap_or_default();
        let delta = delta.unwrap_or(u8::from(mode != Mode::EcOnly));
        let journal = journal.unwrap_or_default();
        let coding = Self { data, parity, delta, mode, journal };
        coding.validate()?;
        Ok(coding)
    }
}

impl TryFrom<String> for Coding {
    type Error = PoolError;

    fn try_from(text: String) -> Result<Self, PoolError> {
        text.parse()
    }
}

impl From<Coding> for String {
    fn from(coding: Coding) -> Self {
        coding.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_what_is_read() {
        let texts = [
            "plain",
            "2+1",
            "8+2",
            "8+2,delta=2",
            "8+2,delta=0",
            "4+2,mode=detect",
            "8+3,mode=correct",
            "6+5,delta=2,mode=correct",
            "8+2,mode=ec-only",
            "4+2,delta=2,mode=detect,journal=always",
        ];
        for text in texts {
            assert_eq!(text.parse::<Coding>().unwrap().to_string(), text);
        }
        assert_eq!("replicate=3".parse::<Coding>().unwrap().to_string(), "1+2");
        assert_eq!(
            "2+1,journal=auto,mode=recover,delta=1".parse::<Coding>().unwrap().to_string(),
            "2+1"
        );
    }

    #[track_caller]
    fn refuses(text: &str, says: &str) {
        let error = text.parse::<Coding>().unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_can() {
        refuses("11+2", "K + R at most 12");
        refuses("300+2", "K+R[,delta=D]");
        refuses("0+2", "K at least 1");
        refuses("4+0", "at least one parity split, or `plain`");
        refuses("8+2,delta=3", "delta=2 would do");
        refuses("8+2,mode=correct", "mode correct takes at least 3 parity splits");
        refuses("6+5,mode=correct,delta=3", "delta=2 would do");
        refuses("8+2,mode=detect,delta=0", "at least 1");
        refuses("8+2,mode=ec-only,delta=1", "delta=0");
        refuses("replicate=1", "at least 2 copies");
        for text in [
            "",
            "8",
            "8+",
            "+2",
            "8+2,",
            "8+2,mode=fast",
            "8+2,delta=1,delta=1",
            "plain,delta=1",
            "8+2 ",
        ] {
            refuses(text, "plain, replicate=N or K+R");
        }
    }

    #[test]
    fn pages_and_nodes_have_to_suit() {
        let coding: Coding = "8+2".parse().unwrap();
        coding.validate_for(4096, 10).unwrap();
        let error = coding.validate_for(4096, 9).unwrap_err().to_string();
        assert!(error.contains("memory nodes, 9; this has 10"), "{error}");
        let error = Coding::new(3, 1).unwrap().validate_for(4096, 9).unwrap_err().to_string();
        assert!(error.ends_with("1, 2, 4, 8"), "{error}");
    }
}
