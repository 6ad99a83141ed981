//! Where the events of the layers below go: to stderr, those that a filter lets through.
//!
//! A filter is a list of levels, one for all and others for parts by the names of their modules.
//! What a word that is no level could mean is not guessed at.

use std::io::IsTerminal;
use std::str::FromStr;

use selkie::pool::NOTICE;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

/// Which events are logged.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Filter(Targets);

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // As unset: a variable of the environment cannot always be taken away.
        let parts = || text.split(',').filter(|_| !text.is_empty());
        let for_all = parts().rfind(|part| !part.contains('=')).map(level).transpose()?;
        let mut targets = of_all(for_all.unwrap_or(LevelFilter::WARN));
        for part in parts() {
            targets = match part.split_once('=') {
                None => level(part).map(|_| targets)?,
                Some((name, part)) if is_module(name) => targets.with_target(name, level(part)?),
                Some((name, _)) => return Err(format!("{name:?} is no module: {ALLOWED}")),
            };
        }
        Ok(Self(targets))
    }
}

const ALLOWED: &str =
    "a filter is off, error, warn, info, debug or trace, or a list as warn,selkie_engine=info";

fn level(word: &str) -> Result<LevelFilter, String> {
    let levels = [
        ("off", LevelFilter::OFF),
        ("error", LevelFilter::ERROR),
        ("warn", LevelFilter::WARN),
        ("info", LevelFilter::INFO),
        ("debug", LevelFilter::DEBUG),
        ("trace", LevelFilter::TRACE),
    ];
    let known = levels.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
    known.map(|(_, level)| *level).ok_or_else(|| format!("{word:?} is no level: {ALLOWED}"))
}

/// Events of that level from all parts; who sees warnings sees notices as well.
fn of_all(level: LevelFilter) -> Targets {
    let targets = Targets::new().with_default(level);
    if level < LevelFilter::WARN {
        targets
    } else {
        targets.with_target(NOTICE, level.max(LevelFilter::INFO))
    }
}

/// Whether it may be the name of a module: `selkie_engine::recovery`.
fn is_module(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.split("::").all(|part| !part.is_empty() && part.chars().all(allowed))
}

impl Default for Filter {
    /// Errors, warnings and notices.
    fn default() -> Self {
        Self(of_all(LevelFilter::WARN))
    }
}

impl Filter {
    /// Nothing.
    pub(crate) fn off() -> Self {
        Self(Targets::new().with_default(LevelFilter::OFF))
    }
}

/// From here on events are logged. `is_usual`: the filter was not given.
pub(crate) fn install(filter: Filter, is_usual: bool) {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_terminal = std::io::stderr().is_terminal();
    // An error of stderr cannot be reported on it.
    let layer = fmt::layer().with_writer(std::io::stderr).log_internal_errors(false);
    let layer = layer.with_ansi(is_terminal && !plain);
    // Who looks on knows when it happens; and who wants to know where has given a filter.
    let layer = match is_terminal && is_usual {
        true => layer.without_time().with_target(false).boxed(),
        false => layer.boxed(),
    };
    // Fails where a subscriber is installed already, which then has the events.
    let _ = tracing_subscriber::registry().with(layer).with(filter.0).try_init();
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::filter::LevelFilter as Level;

    fn enabled(filter: &str, target: &str, level: Level) -> bool {
        let filter: Filter = filter.parse().unwrap();
        filter.0.would_enable(target, &level.into_level().unwrap())
    }

    #[test]
    fn levels_hold_for_all_and_for_parts() {
        for default in ["", "warn", "WARN"] {
            assert!(enabled(default, "selkie_engine", Level::WARN), "{default}");
            assert!(!enabled(default, "selkie_engine", Level::INFO), "{default}");
        }
        let parts = "error,selkie_engine=info,selkie_engine::recovery=off";
        assert!(enabled(parts, "selkie_engine::engine", Level::INFO));
        assert!(!enabled(parts, "selkie_engine::engine", Level::DEBUG));
        assert!(!enabled(parts, "selkie_engine::recovery", Level::ERROR));
        assert!(!enabled(parts, "selkie_memnode", Level::WARN));
        // What is not said of the rest is as without a filter.
        assert!(enabled("selkie_engine=trace", "selkie_memnode", Level::WARN));
    }

    #[test]
    fn notices_come_with_warnings_and_go_with_them() {
        for shown in ["", "warn", "info", "selkie_engine=error", "selkie_engine=error,warn"] {
            assert!(enabled(shown, NOTICE, Level::INFO), "{shown}");
            assert!(!enabled(shown, "selkie_memnode", Level::DEBUG), "{shown}");
        }
        for hidden in ["off", "error", "selkie_engine=info,error", "selkie_notice=off"] {
            assert!(!enabled(hidden, NOTICE, Level::INFO), "{hidden}");
        }
        assert!(enabled("debug", NOTICE, Level::DEBUG));
    }

    #[test]
    fn other_words_are_refused_with_what_is_allowed() {
        for bad in
            ["verbose", "5", "warn,", ",", "a=b", "=warn", "a b=warn", "a:b=info", "warn=warn=warn"]
        {
            let error = bad.parse::<Filter>().unwrap_err();
            assert!(error.contains("a filter is off, error, warn, info,"), "{bad}: {error}");
        }
    }
}
