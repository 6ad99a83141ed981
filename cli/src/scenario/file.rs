//! What a scenario file may say, as it is written; `plan` says what it means.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use selkie::pool::Coding;
use selkie::pool::control::Timing;
use selkie_tpcc::MAX_DURATION;
use serde::Deserialize;

use crate::support::config_file::meant;

/// Why a scenario is not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// It cannot be read.
    #[error("{path}: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A place in it is wrong.
    #[error("{path}:{line}: {what}")]
    Mistake {
        /// The file.
        path: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// It can be read, but not be done.
    #[error("{path}: {what}")]
    Impossible {
        /// The file.
        path: String,
        /// What is wrong.
        what: String,
    },
}

/// A scenario as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct ScenarioFile {
    /// Letters, digits and `-`.
    pub(crate) name: String,
    /// How the processes reach the memory.
    pub(crate) fabric: FabricKind,
    /// Where the processes of a pool over TCP are.
    #[serde(default)]
    pub(crate) network: NetworkKind,
    /// How long the drivers run.
    pub(crate) duration: Text<Span>,
    pub(crate) memory: MemorySection,
    #[serde(default)]
    pub(crate) pool: PoolSection,
    #[serde(default)]
    pub(crate) database: DatabaseSection,
    #[serde(rename = "driver")]
    pub(crate) drivers: Vec<DriverSection>,
    #[serde(default, rename = "fault")]
    pub(crate) faults: Vec<FaultSection>,
    #[serde(default)]
    pub(crate) expect: ExpectSection,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FabricKind {
    /// One process with a pool of its own.
    Mem,
    Shm,
    Tcp,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NetworkKind {
    /// All on the loopback interface.
    #[default]
    Loopback,
    /// Each process in a network namespace of its own, on one bridge.
    Namespaces,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct MemorySection {
    /// Memory nodes.
    pub(crate) nodes: usize,
    /// What each lends.
    pub(crate) size: Text<Size>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct PoolSection {
    pub(crate) lease: Text<Span>,
    pub(crate) heartbeat: Text<Span>,
    pub(crate) gcl: usize,
    pub(crate) coding: Coding,
    /// What a commit waits for. If nothing is said, the commands are started without an option for
    /// it.
    pub(crate) durability: Option<DurabilityKind>,
}

/// What outlives a driver that is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DurabilityKind {
    /// There are no logs.
    None,
    /// Logs are in the pool's memory.
    Memory,
}

impl PoolSection {
    /// Whether the drivers of a pool of several processes have logs, as they do by default.
    pub(crate) fn has_logs(&self) -> bool {
        self.durability != Some(DurabilityKind::None)
    }
}

impl Default for PoolSection {
    fn default() -> Self {
        let Timing { lease, heartbeat } = Timing::default();
        let span = |time| Text(Span(time));
        Self {
            lease: span(lease),
            heartbeat: span(heartbeat),
            gcl: 2048,
            coding: Coding::PLAIN,
            durability: None,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct DatabaseSection {
    pub(crate) warehouses: u32,
    pub(crate) scale: u32,
    pub(crate) seed: u64,
}

impl Default for DatabaseSection {
    fn default() -> Self {
        Self { warehouses: 4, scale: 1, seed: 1 }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct DriverSection {
    /// `driver-1`, `driver-2`, ... if nothing is said.
    pub(crate) name: Option<String>,
    /// First and last of its warehouses, as `1-2`.
    pub(crate) homes: Option<Text<Homes>>,
    #[serde(default = "one")]
    pub(crate) compute_nodes: usize,
    #[serde(default = "four")]
    pub(crate) workers: usize,
    /// They wait as people at terminals do.
    #[serde(default)]
    pub(crate) think: bool,
    pub(crate) threads: Option<usize>,
    /// Of each of its compute nodes.
    pub(crate) cache: Option<Text<Size>>,
    /// How long after the others it starts.
    pub(crate) start_delay: Option<Text<Span>>,
}

fn one() -> usize {
    1
}

fn once() -> u32 {
    1
}

fn four() -> usize {
    4
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct FaultSection {
    /// After the drivers without a delay have all begun to run.
    pub(crate) at: Text<Span>,
    #[serde(rename = "do")]
    pub(crate) action: FaultAction,
    pub(crate) target: String,
    /// Of a cut: only what goes between the target and this process is cut; else between the target
    /// and all.
    pub(crate) from: Option<String>,
    /// Of such a cut: only what the target sends is lost.
    #[serde(default)]
    pub(crate) one_way: bool,
    /// So many times, ...
    #[serde(default = "once")]
    pub(crate) times: u32,
    /// ... and how far apart.
    pub(crate) every: Option<Text<Span>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FaultAction {
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
    /// SIGCONT.
    Continue,
    /// The link of its namespace goes down, or what goes between two of them is lost.
    Cut,
    /// The end of a cut.
    Heal,
    /// One that was killed is started again.
    Restart,
}

impl FaultAction {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Continue => "continue",
            Self::Cut => "cut",
            Self::Heal => "heal",
            Self::Restart => "restart",
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct ExpectSection {
    /// To which share of what it was the survivors' throughput comes back, ...
    pub(crate) recovers: Text<Share>,
    /// ... and how long after the end of the lease at the latest.
    pub(crate) within: Text<Span>,
    /// How long after the end of the lease those have ended at the latest that must end with an
    /// error.
    pub(crate) fails_within: Text<Span>,
}

impl Default for ExpectSection {
    fn default() -> Self {
        let span = |seconds| Text(Span(Duration::from_secs(seconds)));
        Self { recovers: Text(Share(0.8)), within: span(3), fails_within: span(5) }
    }
}

/// What is written as a string or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Text<T>(pub(crate) T);

impl<'de, T> Deserialize<'de> for Text<T>
where
    T: FromStr<Err = String>,
{
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<T>(std::marker::PhantomData<T>);

        impl<T: FromStr<Err = String>> serde::de::Visitor<'_> for Visitor<T> {
            type Value = Text<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a number")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Text<T>, E> {
                text.parse().map(Text).map_err(E::custom)
            }

            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Text<T>, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Text<T>, E> {
                self.visit_str(&number.to_string())
            }
        }

        deserializer.deserialize_any(Visitor(std::marker::PhantomData))
    }
}

/// A time of a day at most, as `5s` or `250ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span(pub(crate) Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let span = humantime::parse_duration(text)
            .map_err(|error| format!("`{text}` is no time as 5s or 250ms: {error}"))?;
        if span > MAX_DURATION {
            return Err(format!("`{text}` is more than a day"));
        }
        Ok(Self(span))
    }
}

/// Bytes, as `64M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        crate::options::values::size(text).map(Self)
    }
}

/// Warehouses, as `1-2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Homes(pub(crate) u32, pub(crate) u32);

impl FromStr for Homes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        crate::options::values::homes(text).map(|(first, last)| Self(first, last))
    }
}

/// A share, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Share(pub(crate) f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || format!("`{text}` is no share of 0 to 1");
        let share: f64 = text.parse().map_err(|_| refused())?;
        if (0.0..=1.0).contains(&share) { Ok(Self(share)) } else { Err(refused()) }
    }
}

impl ScenarioFile {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Self, FileError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| FileError::Unreadable { path: name.clone(), source })?;
        Self::parse(&name, &text)
    }

    /// Reads the text of a file.
    pub(crate) fn parse(path: &str, text: &str) -> Result<Self, FileError> {
        toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let before = text.bytes().take(at);
            let line = 1 + before.filter(|byte| *byte == b'\n').count();
            let what = guessed(&error.message().lines().collect::<Vec<_>>().join(" "));
            FileError::Mistake { path: path.to_owned(), line, what }
        })
    }
}

/// A complaint that a word is unknown, with the known one that may be meant; others as they are.
fn guessed(what: &str) -> String {
    let starts = ["unknown field `", "unknown variant `"];
    let Some(rest) = starts.iter().find_map(|start| what.strip_prefix(start)) else {
        return what.to_owned();
    };
    // Every second piece is between two backquotes.
    let mut pieces = rest.split('`');
    let word = pieces.next().unwrap_or_default();
    let known: Vec<&str> = pieces.skip(1).step_by(2).collect();
    what.replacen("`, expected", &format!("`{} expected", meant(word, &known)), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALLEST: &str = "name = \"x\"\nfabric = \"shm\"\nduration = \"60s\"\n\
        [memory]\nnodes = 2\nsize = \"1G\"\n[[driver]]\n";

    #[test]
    fn what_is_not_said_has_a_default() {
        let file = ScenarioFile::parse("f", SMALLEST).unwrap();
        assert_eq!(file.memory.size, Text(Size(1 << 30)));
        assert_eq!(file.pool.lease, Text(Span(Duration::from_secs(2))));
        assert_eq!((file.drivers.len(), file.drivers[0].workers), (1, 4));
        assert_eq!((file.database.warehouses, file.network), (4, NetworkKind::Loopback));
        assert_eq!(file.expect.recovers, Text(Share(0.8)));
        let share = |value| format!("{SMALLEST}[expect]\nrecovers = {value}\n");
        for value in ["0.5", "\"0.5\""] {
            let file = ScenarioFile::parse("f", &share(value)).unwrap();
            assert_eq!(file.expect.recovers, Text(Share(0.5)));
        }
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (added, line, what) in [
            ("homes = \"3\"\n", 8, "a range of warehouses is written FIRST-LAST"),
            ("x = 1\n", 8, "unknown field `x`"),
            ("[[fault]]\nat = \"5\"\n", 9, "`5` is no time as 5s"),
            ("start-delay = \"86401s\"\n", 8, "`86401s` is more than a day"),
            ("start-delay = \"9999999999999y\"\n", 8, "is no time as 5s"),
            ("[[fault]]\nat = \"5s\"\ndo = \"maim\"\n", 10, "unknown variant `maim`"),
            (
                "start-dely = \"1s\"\n",
                8,
                "`start-dely`, did you mean `start-delay`? expected one of",
            ),
            ("[pol]\nlease = \"1s\"\n", 8, "unknown field `pol`, did you mean `pool`?"),
            ("[[fault]]\nat = \"5s\"\ndo = \"kil\"\n", 10, "`kil`, did you mean `kill`?"),
            ("zzz = 1\n", 8, "unknown field `zzz`; expected one of"),
            ("[expect]\nrecovers = 2\n", 9, "`2` is no share of 0 to 1"),
            ("[pool]\nlease = true\n", 9, "a string or a number"),
        ] {
            let error = ScenarioFile::parse("f.toml", &format!("{SMALLEST}{added}")).unwrap_err();
            let text = error.to_string();
            assert!(text.starts_with(&format!("f.toml:{line}: ")), "{text}");
            assert!(text.contains(what) && !text.contains('\n'), "{text}");
        }
    }
}
