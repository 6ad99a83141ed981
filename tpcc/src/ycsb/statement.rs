//! The operations as SQL.

use super::record::FIELDS;
use super::schema::NAME;
use crate::connection::StatementText;

/// A statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    /// Begins a transaction.
    Begin,
    /// Commits it.
    Commit,
    /// Rolls it back.
    Rollback,
    /// The record of a key.
    Read,
    /// So many records from a key on.
    Scan,
    /// A new record.
    Insert,
    /// A new value of one field.
    Update(usize),
}

impl StatementText for Statement {
    fn number(&self) -> usize {
        match *self {
            Self::Begin => 0,
            Self::Commit => 1,
            Self::Rollback => 2,
            Self::Read => 3,
            Self::Scan => 4,
            Self::Insert => 5,
            Self::Update(field) => 6 + field,
        }
    }

    fn is_control(&self) -> bool {
        matches!(self, Self::Begin | Self::Commit | Self::Rollback)
    }

    fn text(&self) -> String {
        let columns = (0..FIELDS).map(|field| format!(", field{field}")).collect::<String>();
        match *self {
            Self::Begin => "begin isolation level serializable".to_owned(),
            Self::Commit => "commit".to_owned(),
            Self::Rollback => "rollback".to_owned(),
            Self::Read => format!("select version{columns} from {NAME} where ycsb_key = $1"),
            Self::Scan => format!(
                "select ycsb_key, version{columns} from {NAME} where ycsb_key >= $1 \
                 order by ycsb_key limit $2"
            ),
            Self::Insert => {
                let values = (0..FIELDS).map(|field| format!(", ${}", field + 2));
                let values = values.collect::<String>();
                format!("insert into {NAME} (ycsb_key, version{columns}) values ($1, 0{values})")
            }
            Self::Update(field) => format!(
                "update {NAME} set version = version + 1, field{field} = $2 where ycsb_key = $1 \
                 returning version"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_statements_share_a_number() {
        use Statement as S;
        let first = [S::Begin, S::Commit, S::Rollback, S::Read, S::Scan, S::Insert];
        let all = first.into_iter().chain((0..FIELDS).map(S::Update));
        let numbers: Vec<usize> = all.map(|statement| statement.number()).collect();
        assert_eq!(numbers, (0..16).collect::<Vec<_>>());
        let insert = "insert into usertable (ycsb_key, version, field0, field1, field2, field3, \
                      field4, field5, field6, field7, field8, field9) values \
                      ($1, 0, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
        assert_eq!(S::Insert.text(), insert);
    }
}
