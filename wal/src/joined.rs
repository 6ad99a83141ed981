//! Several stores of logs, read as one.

use std::sync::Arc;

use selkie_fabric::BoxFuture;

use crate::error::{LogError, ReadError};
use crate::lsn::Lsn;
use crate::owner::LogOwner;
use crate::sink::Sink;
use crate::store::{Labels, LogStore, Piece};

/// Several stores as one, for reading only. Each log is in one of them.
#[derive(Clone, Debug)]
pub struct Joined(pub Vec<Arc<dyn LogStore>>);

impl Joined {
    /// The first store that has a log.
    async fn store_of(&self, owner: LogOwner) -> Result<Option<&dyn LogStore>, ReadError> {
        for store in &self.0 {
            if !store.pieces(owner).await?.is_empty() {
                return Ok(Some(&**store));
            }
        }
        Ok(None)
    }
}

fn not_written() -> LogError {
    let error = std::io::Error::new(std::io::ErrorKind::Unsupported, "they are only read");
    LogError::new("write to", "several places of logs", error)
}

impl LogStore for Joined {
    fn create(&self, _: LogOwner) -> BoxFuture<'_, Result<Arc<dyn Sink>, LogError>> {
        Box::pin(async { Err(not_written()) })
    }

    fn pieces(&self, owner: LogOwner) -> BoxFuture<'_, Result<Vec<Lsn>, ReadError>> {
        Box::pin(async move {
            match self.store_of(owner).await? {
                Some(store) => store.pieces(owner).await,
                None => Ok(Vec::new()),
            }
        })
    }

    fn piece(&self, owner: LogOwner, start: Lsn) -> BoxFuture<'_, Result<Piece, ReadError>> {
        Box::pin(async move {
            let gone = || LogError::new("find", "a log", std::io::ErrorKind::NotFound.into());
            self.store_of(owner).await?.ok_or_else(gone)?.piece(owner, start).await
        })
    }

    fn end_at(&self, _: LogOwner, _: Lsn) -> BoxFuture<'_, Result<Lsn, ReadError>> {
        Box::pin(async { Err(not_written().into()) })
    }

    fn ended(&self, owner: LogOwner) -> BoxFuture<'_, Result<Option<Lsn>, ReadError>> {
        Box::pin(async move {
            match self.store_of(owner).await? {
                Some(store) => store.ended(owner).await,
                None => Ok(None),
            }
        })
    }

    fn remove(&self, _: LogOwner) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async { Err(not_written()) })
    }

    fn owners(&self) -> BoxFuture<'_, Result<Vec<LogOwner>, ReadError>> {
        Box::pin(async {
            let mut owners = Vec::new();
            for store in &self.0 {
                owners.extend(store.owners().await?);
            }
            owners.sort();
            owners.dedup();
            Ok(owners)
        })
    }

    /// The labels of the last store that has any.
    fn labels(&self, pool: u64) -> BoxFuture<'_, Result<Labels, ReadError>> {
        Box::pin(async move {
            let mut labels = Labels::new();
            for store in &self.0 {
                let own = store.labels(pool).await?;
                labels = if own.is_empty() { labels } else { own };
            }
            Ok(labels)
        })
    }
}
