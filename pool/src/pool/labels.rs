//! Labels: values that users of the pool share, by name.

use super::view::Pool;
use crate::document::PoolState;
use crate::error::PoolError;

impl Pool {
    /// Sets a label by name, if it is `expected`. Returns whether it was.
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

    /// A label, as this process knows it.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<String> {
        self.membership.state().labels.get(name).cloned()
    }
}
