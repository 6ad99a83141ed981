//! Statements about transactions and settings.

use std::sync::Arc;

use sqlparser::ast::{self, CloseCursor, DateTimeField, DiscardObject, Expr, Statement, Value};

use super::Session;
use super::parsed::ParsedStatement;
use crate::bind::{OutputColumn, fold};
use crate::client::Client;
use crate::error::{SqlError, SqlResult};
use crate::schemas::text_of_list;
use crate::types::{Datum, SqlType};

/// Whether a statement is about the transaction, and not in it.
pub(super) fn is_control(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::StartTransaction { .. } | Statement::Commit { .. } | Statement::Rollback { .. }
    )
}

/// Whether a statement is about tables, and not about the session.
pub(super) fn has_tables(statement: &Statement) -> bool {
    !is_control(statement)
        && !matches!(
            statement,
            Statement::Savepoint { .. }
                | Statement::ReleaseSavepoint { .. }
                | Statement::Set(_)
                | Statement::Prepare { .. }
                | Statement::Fetch { .. }
                | Statement::Close { .. }
                | Statement::Deallocate { .. }
                | Statement::Discard { .. }
                | Statement::UNLISTEN { .. }
                | Statement::Reset(_)
                | Statement::ShowVariable { .. }
                | Statement::Analyze(_)
        )
}

/// Whether a statement may follow an error in a transaction.
pub(super) fn ends_failure(statement: &Statement) -> bool {
    matches!(statement, Statement::Commit { .. } | Statement::Rollback { .. })
}

impl Session {
    /// Does a statement about transactions or settings. What it says in the end.
    pub(super) async fn control(
        &mut self,
        parsed: &Arc<ParsedStatement>,
        client: &Arc<dyn Client>,
    ) -> SqlResult<String> {
        let statement = &parsed.statement;
        if let Statement::Fetch { name, direction, position, into: None } = statement {
            return self.fetch(name, direction, position, client).await;
        }
        client.begin(&self.control_columns(statement)?.into(), &self.settings.format);
        let tag = match statement {
            Statement::StartTransaction { modes, statements, exception, modifier, .. } => {
                let is_odd = !statements.is_empty() || exception.is_some();
                crate::bind::refuse(is_odd, "this form of BEGIN")?;
                self.start(modes, *modifier, client).await?
            }
            Statement::Commit { chain, end: _, modifier } => {
                crate::bind::refuse(modifier.is_some(), "this form of COMMIT")?;
                self.end_with_commit(*chain, client).await?
            }
            Statement::Rollback { chain, savepoint: None } => {
                self.end_with_rollback(*chain, client).await?
            }
            Statement::Rollback { savepoint: Some(name), .. } => {
                self.rollback_to(&fold(name)).await?
            }
            Statement::Savepoint { name } => self.savepoint(fold(name)).await?,
            Statement::ReleaseSavepoint { name } => self.release(&fold(name)).await?,
            Statement::Set(ast::Set::SingleAssignment { hivevar: true, values, .. }) => {
                self.set_constraints(values).await?
            }
            Statement::Set(ast::Set::SetRole { context_modifier, role_name }) => {
                if matches!(context_modifier, Some(ast::ContextModifier::Local)) {
                    self.warn_outside("SET LOCAL", client);
                }
                self.set_role_to(context_modifier.as_ref(), role_name.as_ref()).await?
            }
            Statement::Set(ast::Set::SetTransaction { modes, snapshot, session }) => {
                self.set_transaction(modes, snapshot.as_ref(), *session, client).await?;
                "SET"
            }
            Statement::Set(set) => self.set(set, client).await?,
            Statement::Reset(reset) => self.reset(&reset.reset, client).await?,
            Statement::Prepare { name, data_types, statement } => {
                self.prepare_as(parsed, (name, data_types), statement).await?;
                "PREPARE"
            }
            Statement::Deallocate { name, prepare: _ } => self.deallocate(name)?,
            Statement::Discard { object_type } => self.discard(object_type).await?,
            Statement::Close { cursor: CloseCursor::All } => {
                self.kept.close(None)?;
                "CLOSE CURSOR ALL"
            }
            Statement::Close { cursor: CloseCursor::Specific { name } } => {
                self.kept.close(Some(&fold(name)))?;
                "CLOSE CURSOR"
            }
            // Nothing can be listened to.
            Statement::UNLISTEN { .. } => "UNLISTEN",
            Statement::ShowVariable { variable } => {
                client.rows(self.shown_rows(&shown_name(variable))?).await?;
                "SHOW"
            }
            Statement::Analyze(analyze) => self.analyze(analyze).await?,
            other => return Err(SqlError::unsupported(other)),
        };
        Ok(tag.to_owned())
    }

    async fn set_role_to(
        &mut self,
        scope: Option<&ast::ContextModifier>,
        name: Option<&ast::Ident>,
    ) -> SqlResult<&'static str> {
        let is_local = matches!(scope, Some(ast::ContextModifier::Local));
        self.set_role(name.map(fold), is_local).await?;
        Ok("SET")
    }

    async fn reset(
        &mut self,
        what: &ast::Reset,
        client: &Arc<dyn Client>,
    ) -> SqlResult<&'static str> {
        match what {
            ast::Reset::ConfigurationParameter(name)
                if name.to_string().eq_ignore_ascii_case("role") =>
            {
                self.set_role(None, false).await?;
                Ok("RESET")
            }
            ast::Reset::ConfigurationParameter(name) => {
                let name = crate::bind::name_parts(name)?.join(".");
                if self.set_mode(&name, None).await? {
                    self.warn_outside("RESET TRANSACTION", client);
                    return Ok("RESET");
                }
                self.reset_parameter(&name, false)?;
                Ok("RESET")
            }
            ast::Reset::ALL => {
                self.reset_all()?;
                Ok("RESET")
            }
            ast::Reset::SessionAuthorization => {
                // It is always that with which the session began.
                self.set_role(None, false).await?;
                Ok("RESET")
            }
        }
    }

    /// Forgets what earlier statements of the session have left.
    async fn discard(&mut self, what: &DiscardObject) -> SqlResult<&'static str> {
        Ok(match what {
            DiscardObject::ALL => {
                self.not_in_transaction("DISCARD ALL")?;
                self.kept.close(None)?;
                self.kept.forget_statement(None)?;
                self.locks.unlock_all().await;
                self.set_role(None, false).await?;
                self.reset_all()?;
                self.sequences = Arc::default();
                "DISCARD ALL"
            }
            DiscardObject::SEQUENCES => {
                self.sequences = Arc::default();
                "DISCARD SEQUENCES"
            }
            // Plans are right for the state that a statement sees; nothing is temporary.
            DiscardObject::PLANS => "DISCARD PLANS",
            DiscardObject::TEMP => "DISCARD TEMP",
        })
    }

    fn deallocate(&self, name: &ast::Ident) -> SqlResult<&'static str> {
        if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all") {
            self.kept.forget_statement(None)?;
            return Ok("DEALLOCATE ALL");
        }
        self.kept.forget_statement(Some(&fold(name)))?;
        Ok("DEALLOCATE")
    }

    async fn set(&mut self, set: &ast::Set, client: &Arc<dyn Client>) -> SqlResult<&'static str> {
        match set {
            ast::Set::SingleAssignment { scope, hivevar, variable, values } => {
                crate::bind::refuse(*hivevar, "HIVEVAR")?;
                let is_local = matches!(scope, Some(ast::ContextModifier::Local));
                let name = crate::bind::name_parts(variable)?.join(".");
                let text = match &**values {
                    [value] if is_default(value) => None,
                    values => Some(setting_texts(&name, values)?),
                };
                if is_local {
                    self.warn_outside("SET LOCAL", client);
                }
                if self
                    .set_mode(&name, text.as_ref().map(|text| text.join(", ")).as_deref())
                    .await?
                {
                    return Ok("SET");
                }
                match text {
                    role if name.eq_ignore_ascii_case("role") => {
                        let role = role.map(|text| text.join(", ")).filter(|own| own != "none");
                        self.set_role(role, is_local).await?;
                    }
                    Some(text) => self.set_values(&name, &text, is_local)?,
                    None => self.reset_parameter(&name, is_local)?,
                }
            }
            ast::Set::SetTimeZone { local, value } => {
                if *local {
                    self.warn_outside("SET LOCAL", client);
                }
                match is_default(value) || is_local_zone(value) {
                    true => self.reset_parameter("timezone", *local)?,
                    false => self.set_values("timezone", &[zone_text(value)?], *local)?,
                }
            }
            ast::Set::SetNames { charset_name, collation_name } => {
                crate::bind::refuse(collation_name.is_some(), "SET NAMES with COLLATE")?;
                self.set_values(
                    "client_encoding",
                    std::slice::from_ref(&charset_name.value),
                    false,
                )?;
            }
            ast::Set::SetSessionAuthorization(own) => match own.kind {
                ast::SetSessionAuthorizationParamKind::Default => {
                    self.set_role(None, matches!(own.scope, ast::ContextModifier::Local)).await?;
                }
                ast::SetSessionAuthorizationParamKind::User(_) => {
                    return Err(SqlError::unsupported("SET SESSION AUTHORIZATION"));
                }
            },
            ast::Set::SetNamesDefault {} => self.reset_parameter("client_encoding", false)?,
            other => return Err(SqlError::unsupported(other)),
        }
        Ok("SET")
    }

    /// The columns of a statement about the session.
    pub(super) fn control_columns(&self, statement: &Statement) -> SqlResult<Vec<OutputColumn>> {
        if let Statement::Fetch { name, position, .. } = statement {
            return Ok(self.fetched_columns(name, position));
        }
        let Statement::ShowVariable { variable } = statement else { return Ok(Vec::new()) };
        let name = shown_name(variable);
        let names = match &*name {
            "all" => vec!["name".to_owned(), "setting".to_owned(), "description".to_owned()],
            _ => vec![self.shown(&name)?.0],
        };
        let column = |name| OutputColumn::new(name, SqlType::TEXT);
        Ok(names.into_iter().map(column).collect())
    }

    /// What SHOW gives.
    fn shown_rows(&self, name: &str) -> SqlResult<Vec<Vec<Datum>>> {
        if name != "all" {
            return Ok(vec![vec![Datum::text(self.shown(name)?.1)]]);
        }
        let all = self.all_parameters().into_iter();
        Ok(all.map(|own| own.map(Datum::text).to_vec()).collect())
    }
}

/// The parameter that SHOW names, the words of which stand alone.
fn shown_name(words: &[ast::Ident]) -> String {
    let words: Vec<String> = words.iter().map(fold).collect();
    words.join(" ")
}

/// The values that a parameter is to have.
fn setting_texts(name: &str, values: &[Expr]) -> SqlResult<Vec<String>> {
    let text: Vec<String> = values.iter().map(setting_text).collect::<SqlResult<_>>()?;
    // Each value is a name, whatever is in it.
    Ok(match name.eq_ignore_ascii_case("search_path") {
        true => vec![text_of_list(&text)],
        false => text,
    })
}

/// The word DEFAULT.
fn is_default(value: &Expr) -> bool {
    let Expr::Identifier(value) = value else { return false };
    value.quote_style.is_none() && value.value.eq_ignore_ascii_case("default")
}

/// The word LOCAL: the zone of the server.
fn is_local_zone(value: &Expr) -> bool {
    let Expr::Identifier(value) = value else { return false };
    value.quote_style.is_none() && value.value.eq_ignore_ascii_case("local")
}

/// What SET TIME ZONE sets the parameter to.
fn zone_text(value: &Expr) -> SqlResult<String> {
    let Expr::Interval(interval) = value else { return setting_text(value) };
    let unit = match (&interval.leading_field, &interval.last_field) {
        (None, None) | (Some(DateTimeField::Hour), Some(DateTimeField::Minute)) => "",
        (Some(DateTimeField::Hour), None) => " hour",
        _ => return Err(SqlError::unsupported("a time zone of an interval in other fields")),
    };
    let text = setting_text(&interval.value)?;
    let is_number = text.trim().parse::<f64>().is_ok();
    if is_number && interval.last_field.is_some() {
        return Err(SqlError::unsupported("a time zone of an interval in minutes"));
    }
    let unit = if is_number { unit } else { "" };
    Ok(format!("INTERVAL '{}'", format!("{text}{unit}").replace('\'', "''")))
}

fn setting_text(value: &Expr) -> SqlResult<String> {
    match value {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::Number(text, _) => Ok(text.clone()),
            Value::Boolean(value) => Ok(value.to_string()),
            other => Err(SqlError::unsupported(format!("the setting {other}"))),
        },
        Expr::Identifier(name) => Ok(fold(name)),
        Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => {
            Ok(format!("-{}", setting_text(expr)?))
        }
        Expr::UnaryOp { op: ast::UnaryOperator::Plus, expr } => setting_text(expr),
        other => Err(SqlError::unsupported(format!("the setting {other}"))),
    }
}
