//! `\explain`.

use selkie_sql::TransactionState;

use super::error::CommandError;
use super::input::Input;
use super::meta::Typed;
use super::run::Shell;
use super::statements::{Statements, first_word, only_statement};

impl Shell {
    /// Explains a statement by running it, and rolls back what it changes. Whatever the statement
    /// is: what a query calls may change something, too.
    pub(super) fn explain(
        &mut self,
        typed: &Typed<'_>,
        statements: &mut Statements,
        input: &Input,
    ) -> Result<(), CommandError> {
        let last = self.last.clone();
        let text = match typed.rest {
            "" => self.meant(statements)?,
            text => text.to_owned(),
        };
        // Behind a semicolon the rest would end the transaction, or not be in it.
        let text = only_statement(&text)
            .ok_or_else(|| CommandError::usage("\\explain takes one statement"))?;
        let sql = match first_word(&text).as_str() {
            "explain" => text.clone(),
            _ => format!("EXPLAIN ANALYZE {text}"),
        };
        let (begin, end): (_, &[&str]) = match self.state() {
            TransactionState::Idle => (Some("BEGIN"), &["ROLLBACK"]),
            TransactionState::InTransaction => (
                Some("SAVEPOINT selkie_explain"),
                &["ROLLBACK TO SAVEPOINT selkie_explain", "RELEASE SAVEPOINT selkie_explain"],
            ),
            TransactionState::Failed => (None, &[]),
        };
        if let Some(begin) = begin {
            self.settle(begin)?;
        }
        self.run(&sql, input)?;
        // It is what \explain and \g take next, not the explanation.
        self.last = if typed.rest.is_empty() { text } else { last };
        for statement in end {
            self.settle(statement)?;
        }
        Ok(())
    }
}
