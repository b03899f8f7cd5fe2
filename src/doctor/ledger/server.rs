//! Database server checks: version, role and settings.

use std::collections::HashMap;

use sqlx::{MySqlConnection, Row};

use lapsed::diagnosis::Finding;
use lapsed::ledger::migrate::generated_index_bug;
use lapsed_core::format::bytes;

const VERSION: &str = "ledger.version";
const BINLOG: &str = "ledger.binlog";
const DURABILITY: &str = "ledger.durability";
const PACKET: &str = "ledger.packet";
const CONNECTIONS: &str = "ledger.connections";
const STATEMENTS: &str = "ledger.statements";
const READ_ONLY: &str = "ledger.read_only";

/// Ids of the checks of [`judge`].
pub(super) const CHECKS: [&str; 7] = [
    VERSION,
    READ_ONLY,
    BINLOG,
    DURABILITY,
    PACKET,
    CONNECTIONS,
    STATEMENTS,
];

/// Names in [`Variables`] for values of `VERSION()` and the status.
const VERSION_TEXT: &str = "version()";
const CONNECTED: &str = "threads_connected";
const PREPARED: &str = "prepared_stmt_count";
const PREPARED_MAX: &str = "max_prepared_stmt_count";

const VARIABLES: &str = "SHOW VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format', 'innodb_buffer_pool_size', \
     'innodb_flush_log_at_trx_commit', 'max_allowed_packet', 'max_connections', 'max_user_connections', 'read_only', \
     'super_read_only', 'innodb_read_only', 'wsrep_on', 'wsrep_node_name', 'max_prepared_stmt_count', 'version_comment')";
const STATUS: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Threads_connected', 'Prepared_stmt_count', \
     'wsrep_local_state_comment', 'wsrep_cluster_status', 'wsrep_cluster_size', 'wsrep_incoming_addresses')";

/// Servers that speak MySQL's protocol and are something else: a part of `VERSION()` or of `version_comment`, and the name.
const UNTESTED: [(&str, &str); 6] = [
    ("tidb", "TiDB"),
    ("vitess", "Vitess"),
    ("oceanbase", "OceanBase"),
    ("singlestore", "SingleStore"),
    ("memsql", "SingleStore"),
    ("dolt", "Dolt"),
];

/// Smallest packet size: a statement of 512 keys of full length, without payloads, has about 200 KiB.
const PACKET_MIN: u64 = 1024 * 1024;

/// Maximum number of prepared statements per connection of the engine.
const STATEMENTS_PER_CONNECTION: u64 = 150;

/// Pools of a daemon: one for its own statements, one for the transactions of handlers.
const POOLS: u64 = 2;

/// Server variables, as seen by this connection.
#[derive(Debug, Default)]
pub(super) struct Variables(HashMap<String, String>);

impl Variables {
    pub(super) async fn read(conn: &mut MySqlConnection) -> sqlx::Result<Self> {
        let version = sqlx::query("SELECT CAST(VERSION() AS CHAR)")
            .fetch_one(&mut *conn)
            .await?;
        let mut variables = HashMap::from([(VERSION_TEXT.to_owned(), version.try_get(0)?)]);
        for question in [VARIABLES, STATUS] {
            for row in sqlx::query(question).fetch_all(&mut *conn).await? {
                // Some servers return texts as VARBINARY.
                let text = |index| row.try_get_unchecked::<String, _>(index);
                let name: String = text(0)?.to_ascii_lowercase();
                variables.insert(name, text(1)?);
            }
        }
        Ok(Self(variables))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    #[cfg(test)]
    pub(super) fn of<const N: usize>(pairs: [(&str, &str); N]) -> Self {
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Self(pairs.into_iter().map(own).collect())
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|value| !matches!(value, "OFF" | "0" | ""))
    }
}

/// Judges all settings that do not depend on the table.
pub(super) fn judge(variables: &Variables, pool: u32) -> Vec<Finding> {
    vec![
        version(
            variables.get(VERSION_TEXT).unwrap_or_default(),
            variables.get("version_comment").unwrap_or_default(),
        ),
        read_only(variables),
        binlog(variables),
        durability(variables),
        packet(variables),
        connections(variables, pool),
        statements(variables, pool),
    ]
}

fn version(version: &str, comment: &str) -> Finding {
    if let Some(bug) = generated_index_bug(version) {
        let (bug, remedy) = bug.split_once(": ").unwrap_or((bug, "upgrade the server"));
        return Finding::error(VERSION, format!("{version}: {bug}"))
            .remedy(format!("{remedy}, to MariaDB 10.6.11, 10.11.1 or newer"));
    }
    let lower = format!("{version} {comment}").to_ascii_lowercase();
    if let Some((_, name)) = UNTESTED.iter().find(|(part, _)| lower.contains(part)) {
        return Finding::warning(VERSION, format!("{name}, {version}: lapsed is not tested on it"))
            .remedy("read `ledger.isolation`, `ledger.claim`, `ledger.locked_rows`, `ledger.generated` and `ledger.clock`, which were tried on this server, and run `lapsed bench burst` there");
    }
    if lower.contains("mariadb") {
        return Finding::ok(VERSION, format!("MariaDB, {version}"));
    }
    let major = version
        .split('.')
        .next()
        .and_then(|major| major.parse().ok());
    match major {
        Some(0..8_u32) => Finding::warning(
            VERSION,
            format!("MySQL {version}, expected 8.0 or newer: one locked row slows a whole batch of tasks"),
        )
        .remedy("upgrade the server"),
        _ => Finding::ok(VERSION, format!("MySQL {version}")),
    }
}

fn read_only(variables: &Variables) -> Finding {
    let switches = ["read_only", "super_read_only", "innodb_read_only"];
    match switches.iter().find(|name| variables.is_on(name)) {
        None => Finding::ok(READ_ONLY, "the server takes writes"),
        Some(name) => Finding::error(
            READ_ONLY,
            format!("`{name}` is on: this is a replica, or a server that is being switched over"),
        )
        .remedy("name the server that takes writes in `ledger.url`"),
    }
}

fn binlog(variables: &Variables) -> Finding {
    let format = variables.get("binlog_format").unwrap_or("ROW");
    if !variables.is_on("log_bin") {
        return Finding::ok(
            BINLOG,
            "no binary log is kept, so READ COMMITTED is possible",
        );
    }
    if format.eq_ignore_ascii_case("STATEMENT") {
        return Finding::error(
            BINLOG,
            "`binlog_format` is `STATEMENT`: the server refuses every write under READ COMMITTED (error 1665)",
        )
        .remedy("set `binlog_format = ROW` (or MIXED), also in the server's configuration file");
    }
    Finding::ok(
        BINLOG,
        format!("`binlog_format` is `{format}`, so READ COMMITTED is possible"),
    )
}

fn durability(variables: &Variables) -> Finding {
    let name = "innodb_flush_log_at_trx_commit";
    match variables.get(name) {
        None => Finding::unknown(DURABILITY, format!("the server does not show `{name}`")),
        Some("1") => Finding::ok(DURABILITY, "each commit waits for the disk"),
        Some(value) => Finding::note(
            DURABILITY,
            format!("`{name}` is {value}: when the database host crashes, about the last second of tasks created and done is lost"),
        )
        .remedy(format!("set `{name} = 1`: measured on a fast disk, it costs nothing where 50 and more tasks are written together")),
    }
}

fn packet(variables: &Variables) -> Finding {
    let name = "max_allowed_packet";
    match variables.number(name) {
        None => Finding::unknown(PACKET, format!("the server does not show `{name}`")),
        Some(size) if size < PACKET_MIN => Finding::warning(
            PACKET,
            format!(
                "`{name}` is {}: batches of tasks with payloads may be refused",
                bytes(size)
            ),
        )
        .remedy(format!("set `{name} = 16M`")),
        Some(size) => Finding::ok(PACKET, format!("`{name}` is {}", bytes(size))),
    }
}

fn connections(variables: &Variables, pool: u32) -> Finding {
    let needed = u64::from(pool) * POOLS;
    let Some(most) = variables.number("max_connections") else {
        return Finding::unknown(CONNECTIONS, "the server does not show `max_connections`");
    };
    let per_user = variables.number("max_user_connections").unwrap_or(0);
    let connected = variables.number(CONNECTED).unwrap_or(0);
    let needs = format!(
        "a daemon takes up to {needed} connections (`ledger.max_connections` = {pool}, and as many for handlers)"
    );
    let too_few = |found: String| {
        Finding::warning(CONNECTIONS, format!("{needs}, and {found}"))
            .remedy("lower `ledger.max_connections` (2 are enough for two cores), or raise the server's limit")
    };
    if per_user > 0 && per_user < needed {
        return too_few(format!("the server allows a user {per_user}"));
    }
    if most < connected + needed {
        return too_few(format!(
            "the server allows {most}, of which {connected} are in use"
        ));
    }
    Finding::ok(
        CONNECTIONS,
        format!("{needs}; the server allows {most}, of which {connected} are in use"),
    )
}

/// Judges the limit of prepared statements. It applies to all clients together; beyond it each is refused (error 1461).
fn statements(variables: &Variables, pool: u32) -> Finding {
    let needed = STATEMENTS_PER_CONNECTION * u64::from(pool);
    let (Some(used), Some(most)) = (variables.number(PREPARED), variables.number(PREPARED_MAX))
    else {
        return Finding::unknown(
            STATEMENTS,
            format!("the server does not show `{PREPARED_MAX}`"),
        );
    };
    let found = format!(
        "{used} of {most} prepared statements are in use, and a busy daemon keeps up to {needed}"
    );
    if used + needed <= most {
        return Finding::ok(STATEMENTS, found);
    }
    Finding::warning(STATEMENTS, found).remedy(format!(
        "raise the server's `{PREPARED_MAX}`, or lower `ledger.max_connections`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assertions::assert_is;
    use lapsed::diagnosis::Severity;

    fn variables<const N: usize>(pairs: [(&str, &str); N]) -> Variables {
        Variables::of(pairs)
    }

    #[test]
    fn servers_with_a_broken_index_are_errors_and_old_ones_warnings() {
        let told = [
            ("10.11.19-MariaDB-0+deb12u1", Severity::Ok, "MariaDB"),
            ("10.6.10-MariaDB", Severity::Error, "MDEV-29666"),
            ("8.0.36", Severity::Ok, "MySQL 8.0.36"),
            ("9.7.4", Severity::Ok, "MySQL 9.7.4"),
            ("5.7.44-log", Severity::Warning, "expected 8.0"),
            ("8.0.11-TiDB-v8.5.6", Severity::Warning, "not tested"),
            ("8.0.30-Vitess", Severity::Warning, "Vitess"),
        ];
        for (text, severity, part) in told {
            assert_is(&version(text, "Source distribution"), severity, part);
        }
        assert_is(&version("8.0.33", "Dolt"), Severity::Warning, "Dolt");
    }

    #[test]
    fn a_statement_binlog_is_refused_only_if_enabled() {
        let judge = |log, format| binlog(&variables([("log_bin", log), ("binlog_format", format)]));
        assert_is(&judge("ON", "STATEMENT"), Severity::Error, "1665");
        assert_is(&judge("ON", "MIXED"), Severity::Ok, "MIXED");
        assert_is(&judge("OFF", "STATEMENT"), Severity::Ok, "no binary log");
        // Newer MySQL versions support the row format only.
        assert_is(
            &binlog(&variables([("log_bin", "ON")])),
            Severity::Ok,
            "ROW",
        );
    }

    #[test]
    fn a_read_only_server_is_refused() {
        for name in ["read_only", "super_read_only", "innodb_read_only"] {
            assert_is(
                &read_only(&variables([(name, "ON")])),
                Severity::Error,
                name,
            );
            assert_is(
                &read_only(&variables([(name, "OFF")])),
                Severity::Ok,
                "writes",
            );
        }
    }

    #[test]
    fn weak_durability_and_small_packets_are_reported() {
        let flush = |value| durability(&variables([("innodb_flush_log_at_trx_commit", value)]));
        assert_is(&flush("1"), Severity::Ok, "waits for the disk");
        assert_is(&flush("2"), Severity::Note, "is 2");
        let size = |value| packet(&variables([("max_allowed_packet", value)]));
        assert_is(&size("16777216"), Severity::Ok, "16 MiB");
        assert_is(&size("65536"), Severity::Warning, "64 KiB");
        assert_is(
            &packet(&Variables::default()),
            Severity::Note,
            "could not be checked",
        );
    }

    #[test]
    fn both_pools_must_fit_beside_existing_connections() {
        let judge = |most, per_user, connected| {
            let pairs = [
                ("max_connections", most),
                ("max_user_connections", per_user),
                ("threads_connected", connected),
            ];
            connections(&variables(pairs), 8)
        };
        assert_is(&judge("151", "0", "3"), Severity::Ok, "up to 16");
        assert_is(
            &judge("151", "0", "140"),
            Severity::Warning,
            "140 are in use",
        );
        assert_is(
            &judge("151", "10", "3"),
            Severity::Warning,
            "allows a user 10",
        );
    }

    #[test]
    fn prepared_statements_must_fit_beside_existing_ones() {
        let judge = |used, most| {
            let pairs = [
                ("prepared_stmt_count", used),
                ("max_prepared_stmt_count", most),
            ];
            statements(&variables(pairs), 8)
        };
        assert_is(&judge("100", "16382"), Severity::Ok, "100 of 16382");
        assert_is(
            &judge("15500", "16382"),
            Severity::Warning,
            "15500 of 16382",
        );
        assert_is(
            &statements(&Variables::default(), 8),
            Severity::Note,
            "could not be checked",
        );
    }
}
