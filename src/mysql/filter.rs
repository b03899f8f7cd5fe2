//! A list filter as conditions of a statement, with their values.

use super::connection::Statement;
use lapsed_core::ledger::{ListFilter, StateFilter, end_of_prefix};
use lapsed_core::task::{ClassGlob, State, error_kind_pattern};

/// The class of a row.
const CLASS: &str = "SUBSTRING_INDEX(`key`, '@', 1)";

/// The method of a row.
const METHOD: &str = "SUBSTRING_INDEX(SUBSTRING_INDEX(`key`, '@', 2), '@', -1)";

/// Conditions, and their values in order.
pub(super) struct Conditions {
    wheres: Vec<String>,
    values: Vec<Value>,
}

enum Value {
    Text(String),
    Time(i64),
}

impl Conditions {
    /// Converts a filter, except for its cursor and limit.
    pub fn of(filter: &ListFilter) -> Self {
        let ListFilter {
            states,
            class,
            method,
            tag,
            prefix,
            archived: _,
            recurring,
            due_after,
            due_before,
            reason,
            error,
            error_kind,
            finished_after,
            finished_before,
            created_before,
            only,
            except,
            cursor: _,
            limit: _,
            brief: _,
            hides_keys: _,
            newest: _,
        } = filter;
        let mut conditions = Self {
            wheres: Vec::new(),
            values: Vec::new(),
        };
        if *recurring {
            conditions.wheres.push("recurrence IS NOT NULL".to_owned());
        }
        let of_method = format!("{METHOD} = ?");
        let texts = [
            (
                "`key` LIKE ?",
                class.as_ref().map(|class| literal(class) + "@%"),
            ),
            (of_method.as_str(), method.clone()),
            ("tag = ?", tag.clone()),
            ("`key` >= ?", prefix.clone()),
            ("`key` < ?", prefix.as_deref().map(end_of_prefix)),
            // The collation compares a key as if spaces followed; `LIKE` does not.
            (
                "`key` LIKE ?",
                prefix
                    .as_deref()
                    .filter(|prefix| prefix.ends_with(' '))
                    .map(|prefix| literal(prefix) + "%"),
            ),
            (
                "reason = ?",
                reason.map(|reason| reason.as_str().to_owned()),
            ),
            (
                "LOWER(last_error) LIKE ?",
                error
                    .as_ref()
                    .map(|text| format!("%{}%", literal(&text.to_lowercase()))),
            ),
            // The empty kind is that of a task without an error, too.
            (
                "CONVERT(COALESCE(last_error, '') USING utf8mb4) COLLATE utf8mb4_bin REGEXP ?",
                error_kind.as_deref().map(error_kind_pattern),
            ),
        ];
        for (condition, text) in texts {
            conditions.add(condition, text.map(Value::Text));
        }
        let times = [
            ("due_at >= CAST(? AS SIGNED) / 1000", due_after),
            ("due_at < CAST(? AS SIGNED) / 1000", due_before),
            ("start_time < CAST(? AS SIGNED) / 1000", created_before),
            (
                "COALESCE(finished_at, end_time) >= CAST(? AS SIGNED) / 1000",
                finished_after,
            ),
            (
                "COALESCE(finished_at, end_time) < CAST(? AS SIGNED) / 1000",
                finished_before,
            ),
        ];
        for (condition, time) in times {
            conditions.add(condition, time.map(|time| Value::Time(time.0)));
        }
        if finished_after.or(*finished_before).is_some() {
            conditions.wheres.push("status > 0".to_owned());
        }
        if !states.is_empty() {
            let states: Vec<&str> = states.iter().copied().map(condition).collect();
            conditions.wheres.push(format!("({})", states.join(" OR ")));
        }
        conditions.add_globs("", only);
        conditions.add_globs("NOT ", except);
        conditions
    }

    /// Adds the condition that one of these matches, or with `NOT ` before it that none does.
    fn add_globs(&mut self, not: &str, globs: &[ClassGlob]) {
        if globs.is_empty() {
            return;
        }
        let mut texts = Vec::new();
        for glob in globs {
            texts.push(match glob.method() {
                Some(_) => format!("({CLASS} LIKE ? AND {METHOD} LIKE ?)"),
                None => format!("{CLASS} LIKE ?"),
            });
            let patterns = [Some(glob.class()), glob.method()].into_iter().flatten();
            self.values
                .extend(patterns.map(|glob| Value::Text(pattern(glob))));
        }
        self.wheres.push(format!("{not}({})", texts.join(" OR ")));
    }

    fn add(&mut self, condition: &str, value: Option<Value>) {
        if let Some(value) = value {
            self.wheres.push(condition.to_owned());
            self.values.push(value);
        }
    }

    /// Returns the conditions as text, to append to others.
    pub fn text(&self) -> String {
        let wheres = self
            .wheres
            .iter()
            .map(|condition| format!(" AND {condition}"));
        wheres.collect()
    }

    /// Binds the values of [`text`](Self::text).
    pub fn bind(self, statement: Statement<'static>) -> Statement<'static> {
        let values = self.values.into_iter();
        values.fold(statement, |statement, value| match value {
            Value::Text(text) => statement.bind(text),
            Value::Time(time) => statement.bind(time),
        })
    }
}

fn condition(filter: StateFilter) -> &'static str {
    match filter {
        StateFilter::Is(State::Pending) => {
            "(status = 0 AND sts = 0 AND lease_until < UNIX_TIMESTAMP(NOW(3)) AND NOT (run_end = end_time AND retry_at > UNIX_TIMESTAMP(NOW(3))))"
        }
        StateFilter::Is(State::Waiting) => {
            "(status = 0 AND sts = 0 AND lease_until < UNIX_TIMESTAMP(NOW(3)) AND run_end = end_time AND retry_at > UNIX_TIMESTAMP(NOW(3)))"
        }
        StateFilter::Is(State::Running) => "(status = 0 AND lease_until >= UNIX_TIMESTAMP(NOW(3)))",
        StateFilter::Is(State::Done) => "(status = 1)",
        StateFilter::Is(State::Dead) => "(status = 2)",
        StateFilter::Is(State::Cancelled) => {
            "(status = 3 OR (status = 0 AND sts = 1 AND lease_until < UNIX_TIMESTAMP(NOW(3))))"
        }
        StateFilter::Overdue => {
            "(status = 0 AND sts = 0 AND lease_until < UNIX_TIMESTAMP(NOW(3)) AND due_at <= UNIX_TIMESTAMP(NOW(3)))"
        }
    }
}

/// A glob of a class or a method as a `LIKE` pattern.
fn pattern(glob: &str) -> String {
    let parts: Vec<String> = glob.split('*').map(literal).collect();
    parts.join("%")
}

/// Escapes a text for a `LIKE` pattern.
fn literal(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('_', "\\_")
        .replace('%', "\\%")
}
