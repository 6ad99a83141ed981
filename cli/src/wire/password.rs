//! The password of a user: of the address or `PGPASSWORD`, of the file of the user, or typed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use super::address::{Address, Host, Secret};
use crate::support::signals::Interrupt;
use crate::support::stderr::complain;

/// How often a signal is looked for while a password is typed.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// A file of passwords is read up to so many bytes of a line.
const LONGEST_LINE: usize = 4_096;

/// Where passwords come from.
pub(crate) struct Passwords {
    file: Option<PathBuf>,
    /// A user can be asked.
    asks: bool,
    interrupt: Interrupt,
    /// What was typed before: a connection that is lost is made again without a question.
    typed: Option<Secret>,
}

impl Passwords {
    /// Those of the file of the user; asked for on the terminal if there is one.
    pub(crate) fn new(interrupt: &Interrupt) -> Self {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let file = set("PGPASSFILE").map(PathBuf::from);
        let file = file.or_else(|| Some(PathBuf::from(set("HOME")?).join(".pgpass")));
        Self { file, asks: true, interrupt: interrupt.clone(), typed: None }
    }

    /// The password for a server; `None` if there is none.
    ///
    /// # Errors
    /// What the terminal reports, or that the user wants none.
    pub(super) fn find(&mut self, address: &Address, host: &Host) -> io::Result<Option<Secret>> {
        let known = address.password.clone().or_else(|| self.typed.clone());
        let known = known.or_else(|| of_file(self.file.as_deref()?, address, host));
        if known.is_some() || !self.asks {
            return Ok(known);
        }
        let prompt = format!("Password for user {} at {host}: ", address.user);
        self.typed = typed(&prompt, &self.interrupt)?;
        Ok(self.typed.clone())
    }

    /// The same without a question.
    pub(super) fn silent(&self) -> Self {
        Self {
            file: self.file.clone(),
            asks: false,
            interrupt: self.interrupt.clone(),
            typed: self.typed.clone(),
        }
    }

    /// That what was typed is wrong.
    pub(super) fn forget(&mut self) {
        self.typed = None;
    }
}

/// The password of the first line that fits: `host:port:database:user:password`.
fn of_file(path: &Path, address: &Address, host: &Host) -> Option<Secret> {
    let file = File::open(path).ok()?;
    let about = file.metadata().ok()?;
    if !about.is_file() {
        return None;
    }
    if about.permissions().mode() & 0o077 != 0 {
        let path = path.display();
        complain!("{path}: not read, as others may read it; chmod 600 {path}");
        return None;
    }
    let port = host.port.to_string();
    let wanted = [&host.name, &port, &address.database, &address.user];
    for line in BufReader::new(file).lines().map_while(Result::ok) {
        if line.starts_with('#') || line.len() > LONGEST_LINE {
            continue;
        }
        let fields = fields(&line);
        let Some((password, names)) = fields.split_last().filter(|own| own.1.len() == 4) else {
            continue;
        };
        let mut pairs = names.iter().zip(wanted);
        if pairs.all(|(field, wanted)| field.is_any || field.text == *wanted) {
            return Some(Secret::new(&*password.text));
        }
    }
    None
}

/// A field of a line.
#[derive(Default)]
struct Field {
    text: String,
    /// It was `*`, which fits all.
    is_any: bool,
}

/// The fields of a line: a backslash stands before a colon or backslash that is part of one. There
/// are five, the last of which ends with the line.
fn fields(line: &str) -> Vec<Field> {
    let (mut fields, mut raw, mut text) = (Vec::new(), String::new(), String::new());
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => {
                let next = characters.next().unwrap_or('\\');
                raw.extend(['\\', next]);
                text.push(next);
            }
            ':' if fields.len() < 4 => {
                let is_any = std::mem::take(&mut raw) == "*";
                fields.push(Field { text: std::mem::take(&mut text), is_any });
            }
            c => {
                raw.push(c);
                text.push(c);
            }
        }
    }
    fields.push(Field { text, is_any: false });
    fields
}

/// A terminal that shows nothing of what is typed, until it is dropped.
struct Hidden {
    terminal: File,
    before: Termios,
}

impl Hidden {
    fn on(terminal: File) -> io::Result<Self> {
        let before = tcgetattr(&terminal)?;
        let mut modes = before.clone();
        modes.local_modes.remove(LocalModes::ECHO);
        modes.local_modes.insert(LocalModes::ICANON | LocalModes::ECHONL | LocalModes::ISIG);
        tcsetattr(&terminal, OptionalActions::Flush, &modes)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = tcsetattr(&self.terminal, OptionalActions::Flush, &self.before);
    }
}

/// The terminal of the user: that of the standard input, or of the process.
fn terminal() -> io::Result<File> {
    match io::stdin().is_terminal() {
        true => Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?)),
        false => File::options().read(true).write(true).open("/dev/tty"),
    }
}

/// Asks on the terminal of the user; `None` if there is none.
fn typed(prompt: &str, interrupt: &Interrupt) -> io::Result<Option<Secret>> {
    let Ok(mut terminal) = terminal() else { return Ok(None) };
    let hidden = Hidden::on(terminal.try_clone()?)?;
    terminal.write_all(prompt.as_bytes())?;
    loop {
        if interrupt.signal().is_some() || interrupt.is_stopped() {
            interrupt.clear_stop();
            terminal.write_all(b"\n")?;
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut waiting = [PollFd::new(&terminal, PollFlags::IN)];
        match poll(&mut waiting, Some(&LOOK_EVERY)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => break,
            Err(error) => return Err(error.into()),
        }
    }
    let mut line = String::new();
    BufReader::new(terminal).read_line(&mut line)?;
    drop(hidden);
    Ok(Some(Secret::new(line.trim_end_matches(['\r', '\n']))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("pgpass");
        let lines = "# a:1:*:*:comment\nshort:line\nh:1:selkie:me:fi\\:rst:too\n\
            h:*:*:me:second\nh:2:selkie:a\\:b:third\n\\*:*:*:*:none\n";
        std::fs::write(&file, lines).unwrap();
        let found = |text: &str| {
            let address = Address::read(text, &|_| None).unwrap();
            of_file(&file, &address, &address.hosts[0])
        };
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
        assert_eq!(found("postgres://me@h:1/selkie"), None);
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(found("postgres://me@h:1/selkie"), Some(Secret::new("fi:rst:too")));
        assert_eq!(found("postgres://me@h:2/other"), Some(Secret::new("second")));
        assert_eq!(found("postgres://a%3Ab@h:2/selkie"), Some(Secret::new("third")));
        assert_eq!(found("postgres://you@h:1/selkie"), None);
        assert_eq!(found("postgres://me@other:1/selkie"), None);
    }
}
