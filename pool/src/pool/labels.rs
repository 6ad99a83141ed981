//! What users of the pool leave for each other, by name.

use super::view::Pool;
use crate::document::PoolState;
use crate::error::PoolError;

impl Pool {
    /// Sets what users of the pool find under a name, if it is `expected`; whether it was.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn set_label(
        &self,
        name: &str,
        expected: Option<&str>,
        label: Option<&str>,
    ) -> Result<bool, PoolError> {
        let set = |state: &mut PoolState| {
            let found = state.labels.get(name).map(String::as_str);
            if found != expected {
                return Ok(false);
            }
            match label {
                Some(label) => state.labels.insert(name.to_owned(), label.to_owned()),
                None => state.labels.remove(name),
            };
            Ok(true)
        };
        Ok(self.membership.change(set).await?.1)
    }

    /// What is found under a name, as this process knows.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<String> {
        self.membership.state().labels.get(name).cloned()
    }
}
