//! The runtime of the client of an object store. The client needs tokio's network and threads for
//! files, which the environments of compute nodes may lack.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use object_store::path::Path;
use object_store::{ListResult, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use tokio::runtime::{Builder, Runtime};
use tokio::time::error::Elapsed;

use crate::error::LogError;

/// Bound of every request to the store, its own retries included.
const WITHIN: Duration = Duration::from_secs(60);

/// A store, its name, and the thread on which its client runs.
pub(super) struct StoreNetwork {
    store: Arc<dyn ObjectStore>,
    name: String,
    /// Always there, except during the drop.
    runtime: Option<Runtime>,
}

impl Drop for StoreNetwork {
    fn drop(&mut self) {
        // The drop may run in a task, which must not wait for threads.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl std::fmt::Debug for StoreNetwork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.name)
    }
}

impl StoreNetwork {
    /// # Errors
    /// [`LogError`] if no thread can be started.
    pub(super) fn start(store: Arc<dyn ObjectStore>, name: &str) -> Result<Self, LogError> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("objects").enable_all().build();
        let runtime = runtime.map_err(|error| LogError::new("start a thread for", name, error))?;
        Ok(Self { store, name: name.to_owned(), runtime: Some(runtime) })
    }

    /// The name of an object in messages.
    pub(super) fn name_of(&self, object: &Path) -> String {
        format!("{}/{object}", self.name)
    }

    /// Makes an object durable, or replaces it.
    pub(super) async fn put(&self, object: &Path, bytes: Vec<u8>) -> Result<(), LogError> {
        let (store, path) = (Arc::clone(&self.store), object.clone());
        let put = async move { store.put(&path, PutPayload::from(bytes)).await.map(drop) };
        self.run("write", self.name_of(object), put).await
    }

    /// Makes an object durable unless there is one.
    pub(super) async fn put_once(&self, object: &Path, bytes: Vec<u8>) -> Result<(), LogError> {
        let (store, path) = (Arc::clone(&self.store), object.clone());
        let put = async move {
            match store.put_opts(&path, PutPayload::from(bytes), PutMode::Create.into()).await {
                Ok(_) | Err(object_store::Error::AlreadyExists { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        };
        self.run("write", self.name_of(object), put).await
    }

    /// All bytes of an object; `None` if there is none.
    pub(super) async fn get(&self, object: &Path) -> Result<Option<Vec<u8>>, LogError> {
        let (store, path) = (Arc::clone(&self.store), object.clone());
        let get = async move {
            match store.get(&path).await {
                Ok(found) => found.bytes().await.map(|bytes| Some(bytes.to_vec())),
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        };
        self.run("read", self.name_of(object), get).await
    }

    /// The objects below a prefix, and their sizes. The bound holds for each answer, not for the
    /// whole listing.
    pub(super) async fn objects_of(&self, prefix: &Path) -> Result<Vec<(Path, u64)>, LogError> {
        let (store, path) = (Arc::clone(&self.store), prefix.clone());
        let list = async move {
            let (mut found, mut all) = (store.list(Some(&path)), Vec::new());
            while let Some(object) = tokio::time::timeout(WITHIN, found.next()).await? {
                match object {
                    Ok(object) => all.push((object.location, object.size)),
                    Err(object_store::Error::NotFound { .. }) => {}
                    Err(error) => return Ok(Err(error)),
                }
            }
            Ok(Ok(all))
        };
        self.run_bounded("list", self.name_of(prefix), list).await
    }

    /// The objects and prefixes directly below a prefix.
    pub(super) async fn list(&self, prefix: &Path) -> Result<ListResult, LogError> {
        let (store, path) = (Arc::clone(&self.store), prefix.clone());
        let list = async move {
            match store.list_with_delimiter(Some(&path)).await {
                Err(object_store::Error::NotFound { .. }) => Ok(ListResult {
                    common_prefixes: Vec::new(),
                    objects: Vec::new(),
                    extensions: Default::default(),
                }),
                listed => listed,
            }
        };
        self.run("list", self.name_of(prefix), list).await
    }

    /// Deletes objects, as many with a request as the store accepts. Missing ones count as deleted.
    pub(super) async fn delete(&self, objects: Vec<Path>) -> Result<(), LogError> {
        let first = objects.first().map_or_else(String::new, |first| self.name_of(first));
        let store = Arc::clone(&self.store);
        let delete = async move {
            let mut deleted =
                store.delete_stream(stream::iter(objects.into_iter().map(Ok)).boxed());
            while let Some(done) = deleted.next().await {
                match done {
                    Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        self.run("delete", first, delete).await
    }

    /// Waits for requests, and blocks the thread meanwhile; `None` if the store's own thread is
    /// gone.
    pub(super) fn wait_for<T: Send + 'static>(
        &self,
        requests: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (done, answer) = std::sync::mpsc::channel();
        drop(self.runtime.as_ref()?.spawn(async move {
            // The receiver waits until the answer or the end of this task.
            let _ = done.send(requests.await);
        }));
        answer.recv().ok()
    }

    /// Runs a request on the store's own thread. It continues if the caller is dropped.
    async fn run<T: Send + 'static>(
        &self,
        what: &'static str,
        name: String,
        request: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> Result<T, LogError> {
        let bounded = async { tokio::time::timeout(WITHIN, request).await };
        self.run_bounded(what, name, bounded).await
    }

    /// As [`run`](Self::run), for a request that has its own bound.
    async fn run_bounded<T: Send + 'static>(
        &self,
        what: &'static str,
        name: String,
        request: impl Future<Output = Result<object_store::Result<T>, Elapsed>> + Send + 'static,
    ) -> Result<T, LogError> {
        let late = || {
            let why = format!("no answer within {WITHIN:?}");
            LogError::new(what, &name, io::Error::new(io::ErrorKind::TimedOut, why))
        };
        let gone = || LogError::new(what, &name, io::ErrorKind::BrokenPipe.into());
        let runtime = self.runtime.as_ref().ok_or_else(gone)?;
        let bounded = runtime.spawn(request);
        let answer = bounded.await.map_err(|_| gone())?.map_err(|_| late())?;
        answer.map_err(|error| LogError::new(what, &name, error.into()))
    }
}
