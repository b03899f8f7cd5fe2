//! Lookups of keys.

use std::collections::HashMap;

use super::MysqlLedger;
use super::connection::{Conn, Statement, statement};
use super::decode::LookupRow;
use super::error_numbers::is_about_data;
use super::queries::{self, padded};
use lapsed_core::task::{State, TaskKey};

/// Number of updates of a row that changes between each of them and the look at it.
const TRIES_MAX: usize = 3;

impl MysqlLedger {
    /// Looks up keys, by key; leaves out those without a row. Keys that the server refuses have no row: they are found by
    /// halving the batch.
    pub(super) async fn look_up_rows(
        &self,
        conn: &mut Conn,
        keys: &[&str],
    ) -> sqlx::Result<HashMap<String, LookupRow>> {
        let charset = self.charset_for(conn, keys).await?;
        let fitting = keys.iter().copied().filter(|key| charset.holds(key));
        let mut parts: Vec<Vec<&str>> = vec![fitting.collect()];
        let mut lookups = HashMap::with_capacity(keys.len());
        while let Some(mut part) = parts.pop() {
            match self.look_up_rows_of(conn, &part).await {
                Ok(found) => lookups.extend(found.into_iter().map(|row| (row.key.clone(), row))),
                Err(error) if is_about_data(&error) => {
                    self.facts.forget();
                    let half = part.split_off(part.len() / 2);
                    if !part.is_empty() {
                        parts.extend([part, half]);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(lookups)
    }

    async fn look_up_rows_of(
        &self,
        conn: &mut Conn,
        keys: &[&str],
    ) -> sqlx::Result<Vec<LookupRow>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let keys = padded(keys);
        let question = self.queries.with_keys(queries::LOOKUP, keys.len());
        let question = keys.iter().fold(statement(question), |question, key| {
            question.bind((*key).to_owned())
        });
        let rows = conn.fetch(question).await?;
        rows.iter().map(LookupRow::read).collect()
    }

    /// Runs an update whose last value is the key. Returns whether it matched, and the row after it. An update that did not
    /// match a row in a state for which it is meant is run again: the row has changed between the update and the look at it.
    pub(super) async fn change(
        &self,
        conn: &mut Conn,
        update: impl Fn() -> Statement<'static>,
        key: &TaskKey,
        is_meant_for: fn(State) -> bool,
    ) -> sqlx::Result<(bool, Option<LookupRow>)> {
        if !self.can_hold(conn, key).await? {
            return Ok((false, None));
        }
        let mut tries = 1;
        loop {
            let matched = conn.execute(update().bind(key.to_string())).await? > 0;
            let lookup = self
                .look_up_rows(conn, &[key.as_str()])
                .await?
                .remove(key.as_str());
            let has_changed = |row: &LookupRow| is_meant_for(row.state());
            if matched || tries == TRIES_MAX || !lookup.as_ref().is_some_and(has_changed) {
                return Ok((matched, lookup));
            }
            tries += 1;
        }
    }
}
