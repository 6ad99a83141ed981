//! The terminal while the live view has it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGTERM};

use super::draw::draw;
use super::snapshot::Snapshot;

/// How long a signal waits at most.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Has the terminal until it is dropped; a panic, too, gives it back before it is told.
pub(crate) struct Screen {
    terminal: DefaultTerminal,
    told_to_stop: Arc<AtomicBool>,
}

impl Screen {
    pub(crate) fn open() -> io::Result<Self> {
        let told_to_stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&told_to_stop))?;
        }
        let opened = ratatui::try_init();
        if opened.is_err() {
            // It may have got half way.
            let _ = ratatui::try_restore();
        }
        Ok(Self { terminal: opened?, told_to_stop })
    }

    pub(crate) fn show(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        self.terminal.draw(|frame| draw(frame, snapshot)).map(drop)
    }

    /// Waits for this time, and redraws when the size changes. Returns whether the user quits.
    pub(crate) fn wait(&mut self, time: Duration, snapshot: &Snapshot) -> io::Result<bool> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.told_to_stop.load(Ordering::Relaxed) {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
            if !event::poll(left.min(LOOK_EVERY))? {
                continue;
            }
            match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press => {
                    let control = key.modifiers.contains(KeyModifiers::CONTROL);
                    match key.code {
                        KeyCode::Char('q') | KeyCode::Esc => return Ok(true),
                        KeyCode::Char('c') if control => return Ok(true),
                        _ => {}
                    }
                }
                Event::Resize(..) => self.show(snapshot)?,
                _ => {}
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing back.
        let _ = ratatui::try_restore();
    }
}
