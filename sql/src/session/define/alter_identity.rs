//! ALTER TABLE: identity columns.

use sqlparser::ast::{GeneratedAs, ObjectName, SequenceOptions};

use super::alter::Alteration;
use super::alter_sequence::alter_sequence;
use super::lookup::{already_exists, change_note, new_key};
use super::sequence::{create, create_for_column, drop_of_columns};
use super::{names, texts};
use crate::bind::{NewSequence, identity_of};
use crate::catalogue::ColumnDef;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::parse_alter::{DROP, DROP_IF, SET};
use crate::parse_sequences::{NAME, mark_of};

impl Alteration<'_, '_> {
    /// ADD GENERATED, and what stands as that ([`parse_alter`](crate::parse_alter)).
    pub(super) async fn alter_identity(
        &mut self,
        at: usize,
        generated: Option<&GeneratedAs>,
        options: &[SequenceOptions],
    ) -> SqlResult<()> {
        let Some(column) = self.table.columns.get(at).cloned() else { return Ok(()) };
        let mark = options.first().and_then(mark_of).map(|(mark, _)| mark);
        match (mark, options) {
            (Some(SET), [_, options @ ..]) => self.set_identity(&column, generated, options).await,
            (Some(mark @ (DROP | DROP_IF)), _) => {
                if column.identity.is_none() && mark == DROP_IF {
                    return Ok(());
                }
                self.drop_identity(&column).await
            }
            _ => match generated {
                Some(generated) => self.add_identity(&column, generated, options).await,
                None => Err(SqlError::unsupported("a generated column")),
            },
        }
    }

    async fn add_identity(
        &mut self,
        column: &ColumnDef,
        generated: &GeneratedAs,
        options: &[SequenceOptions],
    ) -> SqlResult<()> {
        let identity = identity_of(generated, column.ty)?;
        let wrong = match column {
            ColumnDef { nullable: true, .. } => {
                Some("must be declared NOT NULL before identity can be added")
            }
            ColumnDef { identity: Some(_), .. } => Some("is already an identity column"),
            ColumnDef { default: Some(_), .. } => Some("already has a default value"),
            _ => None,
        };
        if let Some(wrong) = wrong {
            return Err(self.column_is(column, wrong));
        }
        let mut name = None;
        let mut plain = Vec::new();
        for option in options {
            match mark_of(option) {
                Some((NAME, parts)) => name = Some(ObjectName(parts.to_vec())),
                _ => plain.push(option.clone()),
            }
        }
        let new = NewSequence::of_column(&column.name, column.ty, &plain)?;
        let (sequence, default) = match name {
            None => create_for_column(self.run, self.txn, &self.key, new).await?,
            Some(name) => {
                let key = new_key(self.run, &name)?;
                if names::is_relation(self.txn, &key).await? {
                    return Err(already_exists(&key));
                }
                let schema = selkie_txn::SequenceSchema { name: key.clone(), ..new.schema };
                create(self.txn, schema).await?;
                let default = texts::next_value_of(&self.run.path.written(&key));
                (key, default)
            }
        };
        let column = column.name.clone();
        change_note(self.txn, &self.table, |note| {
            if let Some(own) = note.columns.get_mut(&column) {
                (own.identity, own.sequence) = (Some(identity), Some(sequence));
                own.default = Some(default);
            }
        })
        .await
    }

    async fn set_identity(
        &mut self,
        column: &ColumnDef,
        generated: Option<&GeneratedAs>,
        options: &[SequenceOptions],
    ) -> SqlResult<()> {
        let (Some(_), Some(sequence)) = (column.identity, &column.sequence) else {
            return Err(self.column_is(column, "is not an identity column"));
        };
        if let Some(generated) = generated {
            let identity = identity_of(generated, column.ty)?;
            let name = column.name.clone();
            change_note(self.txn, &self.table, |note| {
                if let Some(own) = note.columns.get_mut(&name) {
                    own.identity = Some(identity);
                }
            })
            .await?;
        }
        match options {
            [] => Ok(()),
            options => alter_sequence(self.txn, sequence, options).await,
        }
    }

    async fn drop_identity(&mut self, column: &ColumnDef) -> SqlResult<()> {
        if column.identity.is_none() {
            return Err(self.column_is(column, "is not an identity column"));
        }
        let name = column.name.clone();
        change_note(self.txn, &self.table, |note| {
            if let Some(own) = note.columns.get_mut(&name) {
                (own.identity, own.sequence, own.default) = (None, None, None);
            }
        })
        .await?;
        drop_of_columns(self.txn, column.sequence.clone()).await
    }

    fn column_is(&self, column: &ColumnDef, what: &str) -> SqlError {
        let (column, table) = (&column.name, &self.table.name);
        let message = format!("column \"{column}\" of relation \"{table}\" {what}");
        SqlError::new(SqlState::OBJECT_NOT_READY, message)
    }
}
