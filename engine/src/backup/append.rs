//! Writing objects of a backup.

use std::time::Duration;

use selkie_wal::{LogError, Lsn, Sink};

use crate::core::Core;

/// How often an object is written that the store does not take.
const TRIES: u32 = 5;
/// How long to wait before an object is written again, times the tries.
const PAUSE: Duration = Duration::from_millis(100);

/// Writes an object of a backup, some times if need be; the bytes.
pub(super) async fn append(
    core: &Core,
    sink: &dyn Sink,
    at: Lsn,
    mut bytes: Vec<u8>,
) -> Result<Vec<u8>, LogError> {
    let mut tries = 0;
    loop {
        if bytes.is_empty() {
            return Ok(bytes);
        }
        let written = sink.append(at, bytes).await;
        tries += 1;
        match written.result {
            Ok(()) => return Ok(written.bytes),
            Err(error) if tries >= TRIES => return Err(error),
            Err(_) => bytes = written.bytes,
        }
        core.env.sleep(PAUSE * tries).await;
    }
}
