//! Access check: what a daemon and the commands do on each table, tried with statements that match no row.

use sqlx::{MySqlConnection, Row};

use super::{is_about_rights, number, statement};
use crate::runner::{Runner, Unresponsive};
use lapsed::Config;
use lapsed::diagnosis::{Finding, Severity};
use lapsed::ledger::mysql::queries::Queries;

pub(super) const GRANTS: &str = "ledger.grants";
pub(crate) const DOCUMENTS: &str = "ledger.documents";
pub(super) const PAUSES: &str = "ledger.pauses";
const RATES: &str = "ledger.rates";
const ARCHIVE: &str = "ledger.archive";

const IDENTITY: &str = "SELECT CAST(CURRENT_USER() AS CHAR), CAST(DATABASE() AS CHAR)";

pub(super) const NO_SUCH_TABLE: u16 = 1146;
const NO_SUCH_COLUMN: u16 = 1054;
const NO_SUCH_INDEX: u16 = 1176;
/// There is no partition of this name, or there are no partitions.
const NO_SUCH_PARTITION: [u16; 3] = [1505, 1507, 1735];

/// Privileges with which the partitions of the archive can be created and dropped.
const PARTITIONS: &str = "ALTER, CREATE, DROP, INSERT";

/// What fails without the table of documents. Tasks run.
pub(crate) const WITHOUT_DOCUMENTS: &str =
    "there is no audit log, no history across restarts, and `Idempotency-Key` fails";

/// A table of the ledger.
pub(super) struct Table {
    check: &'static str,
    /// What its name adds to that of the table of tasks.
    suffix: &'static str,
    /// A statement for each privilege. It matches no row, and fails without the privilege, a column or an index.
    trials: &'static [(&'static str, &'static str)],
    is_used: fn(&Config) -> bool,
    /// How bad it is if this privilege is missing.
    severity: fn(&Config, &str) -> Severity,
    /// What fails then.
    effect: fn(&str) -> &'static str,
    /// What is found if nothing is missing; `None`: the privileges.
    fine: Option<&'static str>,
}

/// The table of tasks. Its statements name only columns that every version of it has.
pub(super) const TASKS: Table = Table {
    check: GRANTS,
    suffix: "",
    trials: &[
        ("SELECT", "SELECT id FROM `{t}` WHERE id = 0"),
        (
            "INSERT",
            "INSERT INTO `{t}` (`key`, status, start_time, end_time, sts) SELECT '', 0, 0, 0, 0 FROM DUAL WHERE 1 = 0",
        ),
        ("UPDATE", "UPDATE `{t}` SET status = status WHERE id = 0"),
        ("DELETE", "DELETE FROM `{t}` WHERE id = 0"),
    ],
    is_used: |_| true,
    severity: |config, right| match right == "DELETE" && config.retention.is_off() {
        true => Severity::Note,
        false => Severity::Error,
    },
    effect: |right| match right {
        "DELETE" => {
            "`lapsed prune`, `lapsed discard` and `[retention]` need that, nothing else does"
        }
        _ => "a daemon needs that",
    },
    fine: None,
};

/// The tables beside it.
pub(super) const SIDE_TABLES: [Table; 4] = [
    Table {
        check: PAUSES,
        suffix: "_pauses",
        trials: &[
            (
                "INSERT",
                "INSERT INTO `{t}_pauses` (kind, class, method, since) SELECT '', '', '', 0 FROM DUAL WHERE 1 = 0",
            ),
            ("DELETE", "DELETE FROM `{t}_pauses` WHERE kind = ''"),
        ],
        is_used: |_| true,
        severity: |_, _| Severity::Note,
        effect: |_| "`lapsed pause`, `resume` and `listen --hold-overdue` need that, a daemon does not",
        fine: Some("this user may pause and resume"),
    },
    // Without Redis, daemons share rate limits in a table. The rates of handlers are not known here.
    Table {
        check: RATES,
        suffix: "_rates",
        trials: &[
            ("SELECT", "SELECT route FROM `{t}_rates` WHERE route = ''"),
            (
                "INSERT",
                "INSERT INTO `{t}_rates` (route) SELECT '' FROM DUAL WHERE 1 = 0",
            ),
            (
                "UPDATE",
                "UPDATE `{t}_rates` SET full_at_ns = full_at_ns WHERE route = ''",
            ),
        ],
        is_used: |config| !config.timer.uses_redis(),
        severity: |config, _| {
            let mut routes = config.routes.iter();
            match routes.any(|route| route.limits.rate.is_some()) {
                true => Severity::Warning,
                false => Severity::Note,
            }
        },
        effect: |_| "each daemon applies the `rate` of a route by itself",
        fine: Some("all daemons together keep the `rate` of a route"),
    },
    Table {
        check: DOCUMENTS,
        suffix: "_documents",
        trials: &[
            (
                "SELECT",
                "SELECT name, written_at, body FROM `{t}_documents` FORCE INDEX (ix_written) WHERE collection = ''",
            ),
            (
                "INSERT",
                "INSERT INTO `{t}_documents` (collection, name, written_at, body) SELECT '', '', 0, '' FROM DUAL WHERE 1 = 0",
            ),
            (
                "UPDATE",
                "UPDATE `{t}_documents` SET body = body WHERE collection = ''",
            ),
            (
                "DELETE",
                "DELETE FROM `{t}_documents` WHERE collection = ''",
            ),
        ],
        is_used: |_| true,
        severity: |config, _| match config.http.listen {
            Some(_) => Severity::Warning,
            None => Severity::Note,
        },
        effect: |_| WITHOUT_DOCUMENTS,
        fine: Some("the audit log and the history can be written"),
    },
    Table {
        check: ARCHIVE,
        suffix: "_archive",
        trials: &[
            (
                "SELECT",
                "SELECT id FROM `{t}_archive` FORCE INDEX (ix_due) WHERE id = 0",
            ),
            (
                "INSERT",
                "INSERT INTO `{t}_archive` ({archived}, ended_ms) SELECT {archived}, 0 FROM `{t}` WHERE 1 = 0",
            ),
            (
                PARTITIONS,
                "ALTER TABLE `{t}_archive` DROP PARTITION `p_no_such_month`",
            ),
        ],
        is_used: |config| config.retention.archive,
        severity: |_, right| match right {
            PARTITIONS => Severity::Warning,
            _ => Severity::Error,
        },
        effect: |right| match right {
            PARTITIONS => {
                "tasks are archived, but no partitions are created for months to come, and `retention.archive_keep` drops none"
            }
            _ => "finished tasks are neither archived nor deleted",
        },
        fine: Some("tasks can be archived, and partitions of the archive created and dropped"),
    },
];

/// User and database of a connection.
pub(super) struct Identity {
    user: String,
    database: String,
}

impl Identity {
    pub(super) async fn read(conn: &mut MySqlConnection) -> sqlx::Result<Self> {
        let row = sqlx::query(IDENTITY).fetch_one(conn).await?;
        Ok(Self {
            user: row.try_get(0)?,
            database: row.try_get(1)?,
        })
    }

    /// The statement that grants privileges on a table.
    fn grant(&self, rights: &str, table: &str) -> String {
        let Self { user, database } = self;
        // `CURRENT_USER()` returns `name@host`, and the name may contain an `@`.
        let (name, host) = user.rsplit_once('@').unwrap_or((user, "%"));
        format!("`GRANT {rights} ON {database}.{table} TO '{name}'@'{host}'`")
    }
}

/// Why a table cannot be used as it should.
#[derive(Debug)]
enum Problem {
    Absent,
    /// It lacks a column or an index, as the server says.
    Shape(String),
    /// A privilege is missing.
    Forbidden(&'static str),
    /// A statement is refused for another reason, which the server gives.
    Refused(&'static str, String),
}

/// Checks the tables that a daemon with this configuration, or a command, uses.
pub(super) async fn examine(
    config: &Config,
    conn: &mut MySqlConnection,
    (queries, identity): (&Queries, &Identity),
    tables: &[Table],
    runner: &mut Runner,
) -> Result<(), Unresponsive> {
    for table in tables.iter().filter(|table| (table.is_used)(config)) {
        let problems = problems(conn, queries, table.trials);
        if let Some(problems) = runner.query(&[table.check], problems).await? {
            let name = queries.plain("{t}") + table.suffix;
            runner.add(table.judge(config, &name, identity, &problems));
        }
    }
    Ok(())
}

async fn problems(
    conn: &mut MySqlConnection,
    queries: &Queries,
    trials: &[(&'static str, &str)],
) -> sqlx::Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for (right, trial) in trials {
        let tried = statement(queries.plain(trial)).execute(&mut *conn).await;
        let Err(error) = tried else { continue };
        let Some(refusal) = error.as_database_error() else {
            return Err(error);
        };
        if number(&error).is_some_and(|number| NO_SUCH_PARTITION.contains(&number)) {
            continue;
        }
        let why = refusal.message().to_owned();
        problems.push(match number(&error) {
            Some(NO_SUCH_TABLE) => return Ok(vec![Problem::Absent]),
            Some(NO_SUCH_COLUMN | NO_SUCH_INDEX) => return Ok(vec![Problem::Shape(why)]),
            _ if is_about_rights(&error) => Problem::Forbidden(right),
            _ => Problem::Refused(right, why),
        });
    }
    Ok(problems)
}

impl Table {
    fn judge(
        &self,
        config: &Config,
        name: &str,
        identity: &Identity,
        problems: &[Problem],
    ) -> Vec<Finding> {
        let finding = |right: &str, found: String| {
            let severity = (self.severity)(config, right);
            let effect = (self.effect)(right);
            Finding::new(self.check, severity, format!("{found}: {effect}"))
        };
        if problems.is_empty() {
            let rights = self.trials.iter().map(|(right, _)| *right);
            let rights: Vec<&str> = rights.collect();
            let may = || format!("{} may {}", identity.user, rights.join(", "));
            return vec![Finding::ok(
                self.check,
                self.fine.map_or_else(may, str::to_owned),
            )];
        }
        let mut findings = Vec::new();
        let mut missing: Vec<(Severity, Vec<&str>)> = Vec::new();
        for problem in problems {
            findings.push(match problem {
                Problem::Absent => finding("", format!("table `{name}` does not exist")).remedy(
                    "run `lapsed migrate` (`lapsed migrate --dry-run` shows what it would do)",
                ),
                Problem::Shape(why) => {
                    finding("", format!("table `{name}` is not as it should be: {why}")).remedy(
                        format!("rename `{name}`, then run `lapsed migrate`, which creates it"),
                    )
                }
                Problem::Refused(right, why) => {
                    finding(right, format!("{right} on `{name}` is refused: {why}"))
                        .remedy("fix what the server reports")
                }
                Problem::Forbidden(right) => {
                    let severity = (self.severity)(config, right);
                    match missing.iter_mut().find(|(like, _)| *like == severity) {
                        Some((_, rights)) => rights.push(right),
                        None => missing.push((severity, vec![right])),
                    }
                    continue;
                }
            });
        }
        for (_, rights) in missing {
            let list = rights.join(", ");
            let found = format!("{} may not {list} on `{name}`", identity.user);
            let grant = identity.grant(&list, name);
            let remedy = match self.suffix {
                "" => grant,
                _ => format!("{grant}; if it does not exist, run `lapsed migrate` first"),
            };
            findings.push(finding(rights[0], found).remedy(remedy));
        }
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assertions::assert_is;

    fn judge(table: &Table, config: &str, problems: &[Problem]) -> Vec<Finding> {
        let identity = Identity {
            user: "app@10.%".to_owned(),
            database: "shop".to_owned(),
        };
        let name = format!("tasks{}", table.suffix);
        let config = Config::from_toml(config).unwrap();
        table.judge(&config, &name, &identity, problems)
    }

    #[test]
    fn missing_privileges_are_named_with_their_grant() {
        let missing = ["INSERT", "UPDATE"].map(Problem::Forbidden);
        let findings = judge(&TASKS, "", &missing);
        assert_is(
            &findings[0],
            Severity::Error,
            "app@10.% may not INSERT, UPDATE on `tasks`",
        );
        assert_eq!(
            findings[0].remedy.as_deref(),
            Some("`GRANT INSERT, UPDATE ON shop.tasks TO 'app'@'10.%'`")
        );
        let refused = Problem::Refused("UPDATE", "no".to_owned());
        assert!(
            judge(&TASKS, "", &[refused])[0]
                .found
                .contains("is refused: no")
        );
        let fine = judge(&TASKS, "", &[]);
        assert_is(
            &fine[0],
            Severity::Ok,
            "app@10.% may SELECT, INSERT, UPDATE, DELETE",
        );
    }

    #[test]
    fn the_delete_privilege_is_required_only_if_rows_are_deleted() {
        let missing = ["UPDATE", "DELETE"].map(Problem::Forbidden);
        let severities = |config| -> Vec<Severity> {
            let findings = judge(&TASKS, config, &missing);
            findings.iter().map(|finding| finding.severity).collect()
        };
        assert_eq!(severities(""), [Severity::Error, Severity::Note]);
        assert_eq!(severities("retention.done = '1h'"), [Severity::Error]);
    }

    #[test]
    fn an_archive_whose_partitions_cannot_be_changed_is_filled_all_the_same() {
        let archive = &SIDE_TABLES[3];
        let config = |text: &str| Config::from_toml(text).unwrap();
        assert!(!(archive.is_used)(&config("retention.done = '7d'")));
        assert!((archive.is_used)(&config("retention.archive = true")));
        let findings = judge(archive, "", &[Problem::Forbidden(PARTITIONS)]);
        assert_is(
            &findings[0],
            Severity::Warning,
            "app@10.% may not ALTER, CREATE, DROP, INSERT on `tasks_archive`: tasks are archived",
        );
        let remedy = findings[0].remedy.as_deref().unwrap();
        assert!(remedy.starts_with(
            "`GRANT ALTER, CREATE, DROP, INSERT ON shop.tasks_archive TO 'app'@'10.%'`"
        ));
    }

    #[test]
    fn a_table_that_is_not_as_it_should_be_is_as_bad_as_what_fails_without_it() {
        let [pauses, rates, documents, archive] = &SIDE_TABLES;
        for (table, config, severity, effect) in [
            (documents, "", Severity::Warning, "there is no audit log"),
            (documents, "http.listen = ''", Severity::Note, "no history"),
            (rates, "", Severity::Note, "by itself"),
            (
                rates,
                "[[routes]]\nmatch = '^A@'\nlog = {}\nrate = '1/s'",
                Severity::Warning,
                "by itself",
            ),
            (pauses, "", Severity::Note, "a daemon does not"),
            (archive, "", Severity::Error, "neither archived nor deleted"),
        ] {
            for (problem, found, remedy) in [
                (Problem::Absent, "does not exist: ", "run `lapsed migrate`"),
                (
                    Problem::Shape("Unknown column 'body'".to_owned()),
                    "not as it should be: Unknown column 'body': ",
                    "rename `tasks_",
                ),
                (
                    Problem::Forbidden("INSERT"),
                    "app@10.% may not INSERT on `tasks_",
                    "ON shop.tasks_",
                ),
            ] {
                let finding = judge(table, config, &[problem]).remove(0);
                assert_is(&finding, severity, found);
                assert!(finding.found.contains(effect), "{finding:?}");
                assert!(finding.remedy.unwrap().contains(remedy));
            }
        }
    }
}
