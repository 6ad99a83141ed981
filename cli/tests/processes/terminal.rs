//! Commands on a terminal of their own.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::harness::{selkie, text, until, until_or};

/// A command on a terminal of its own, of 120 columns.
pub(crate) struct OnTerminal {
    pub(crate) child: Child,
    keyboard: File,
    terminal: File,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl OnTerminal {
    pub(crate) fn run(arguments: &[&str]) -> OnTerminal {
        Self::start(&mut selkie(arguments))
    }

    pub(crate) fn start(command: &mut Command) -> OnTerminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let path = ptsname(&master, Vec::new()).unwrap();
        let path = std::ffi::OsStr::from_bytes(path.as_bytes());
        let terminal = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let size = Winsize { ws_row: 30, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).unwrap();
        let end = || Stdio::from(terminal.try_clone().unwrap());
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let keyboard = File::from(master);
        let mut reader = keyboard.try_clone().unwrap();
        let screen: Arc<Mutex<Vec<u8>>> = Arc::default();
        let seen = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count) = reader.read(&mut bytes) {
                seen.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        OnTerminal { child, keyboard, terminal, screen }
    }

    /// All that was written to it.
    pub(crate) fn screen(&self) -> String {
        text(&self.screen.lock().unwrap())
    }

    pub(crate) fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    #[track_caller]
    pub(crate) fn shows(&self, word: &str) {
        self.shows_behind(0, word);
    }

    /// Shows a word in what it writes behind so many bytes. Where the word ends.
    #[track_caller]
    pub(crate) fn shows_behind(&self, from: usize, word: &str) -> usize {
        let look = || {
            let screen = self.screen.lock().unwrap();
            let place = screen[from..].windows(word.len()).position(|own| own == word.as_bytes());
            place.map(|place| from + place + word.len())
        };
        until_or(|| format!("{word:?} is not shown: {}", self.screen()), look)
    }

    /// How input is read now.
    pub(crate) fn modes(&self) -> LocalModes {
        tcgetattr(&self.terminal).unwrap().local_modes
    }

    /// Waits for its end and looks whether the terminal is as before; the exit code.
    #[track_caller]
    pub(crate) fn ends(&mut self) -> Option<i32> {
        let status = until("it does not end", || self.child.try_wait().unwrap());
        let modes = self.modes();
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "{modes:?}");
        status.code()
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
