use std::fs;
use std::time::Duration;

use sqlx::{AssertSqlSafe, ConnectOptions, Connection, MySqlConnection};
use tokio::time::{Instant, sleep};

use super::SandboxError;
use super::maria::{MariaOptions, PrivateMaria, connect_options};
use super::port::free_port;

/// The name of the group, as a UUID.
const GROUP: &str = "11111111-2222-4333-8444-555555555555";

/// The account with which a member copies transactions from another is root, as with everything here.
const RECOVERY: &str = "RESET BINARY LOGS AND GTIDS; \
     CHANGE REPLICATION SOURCE TO SOURCE_USER = 'root' FOR CHANNEL 'group_replication_recovery'";

const BOOTSTRAP: &str = "SET GLOBAL group_replication_bootstrap_group = ON; START GROUP_REPLICATION; \
     SET GLOBAL group_replication_bootstrap_group = OFF";

const IS_ONLINE: &str = "SELECT CAST(COUNT(*) AS SIGNED) FROM performance_schema.replication_group_members \
     WHERE MEMBER_ID = @@server_uuid AND MEMBER_STATE = 'ONLINE'";

const ONLINE_WITHIN: Duration = Duration::from_secs(60);
const ASKED_EVERY: Duration = Duration::from_millis(50);

/// A private MySQL group: servers of which one, the primary, is written to, and which commit each transaction together.
///
/// The server is MySQL 8.4 or 9 with the plugin `group_replication`. MariaDB has none.
#[derive(Debug)]
pub struct PrivateGroup {
    /// The members, running or not. The first one begins as the primary.
    pub members: Vec<PrivateMaria>,
    ports: Vec<u16>,
}

impl PrivateGroup {
    /// Starts a group of `members` members, with an empty database, and waits until all have joined. `options` are those
    /// of each member.
    ///
    /// # Errors
    /// As [`MariaOptions::start`](super::MariaOptions::start); also if the server has no Group Replication.
    pub async fn start_with(
        members: usize,
        database: &str,
        options: impl Fn(usize, MariaOptions) -> MariaOptions,
    ) -> Result<Self, SandboxError> {
        let ports: Vec<u16> = (0..members).map(|_| free_port()).collect();
        let mut group = Self {
            members: Vec::new(),
            ports,
        };
        for number in 0..members {
            let options = options(number, PrivateMaria::options());
            let mut member = options.prepare(None).await?;
            group.configure(number, &mut member);
            // A copy of the template has the identity of the server that made it.
            let identity = member.data_dir().join("auto.cnf");
            fs::remove_file(&identity).map_err(SandboxError::io(|| {
                format!("remove `{}`", identity.display())
            }))?;
            member.launch_with(&[]).await?;
            execute(&member, RECOVERY).await?;
            execute(
                &member,
                match number {
                    0 => BOOTSTRAP,
                    _ => "START GROUP_REPLICATION",
                },
            )
            .await?;
            until_online(&member).await?;
            if number == 0 {
                member.create_database(database).await?;
            }
            group.members.push(member);
        }
        Ok(group)
    }

    /// Starts a member that was killed or shut down, and waits until it has the data of the others.
    ///
    /// # Errors
    /// If it cannot join: no majority of the group is there.
    pub async fn rejoin(&mut self, number: usize) -> Result<(), SandboxError> {
        let member = &mut self.members[number];
        member.launch_with(&[]).await?;
        // The others refuse it as long as they have not given up the one that it was.
        let deadline = Instant::now() + ONLINE_WITHIN;
        while let Err(error) = execute(member, "START GROUP_REPLICATION").await {
            if Instant::now() >= deadline {
                return Err(error);
            }
            sleep(ASKED_EVERY).await;
        }
        until_online(member).await
    }

    fn configure(&self, number: usize, member: &mut PrivateMaria) {
        let local = |port: &u16| format!("127.0.0.1:{port}");
        let seeds: Vec<String> = self.ports.iter().map(local).collect();
        for (name, value) in [
            // A transaction is in the binary log, or not at all.
            ("log-bin", "binlog"),
            ("gtid-mode", "ON"),
            ("enforce-gtid-consistency", "ON"),
            ("performance-schema", "ON"),
            // What is committed survives the process, not the machine.
            ("innodb-flush-log-at-trx-commit", "2"),
            ("sync-binlog", "0"),
            ("server-id", &(number + 1).to_string()),
            ("report-host", "127.0.0.1"),
            ("report-port", &member.port().to_string()),
            ("plugin-load-add", "group_replication.so"),
            ("group-replication-group-name", GROUP),
            ("group-replication-start-on-boot", "OFF"),
            (
                "group-replication-local-address",
                &local(&self.ports[number]),
            ),
            ("group-replication-group-seeds", &seeds.join(",")),
            ("group-replication-recovery-get-public-key", "ON"),
        ] {
            member.set(&format!("--{name}={value}"));
        }
    }
}

async fn execute(member: &PrivateMaria, statements: &'static str) -> Result<(), SandboxError> {
    let mut connection = connect_options((member.host(), member.port()))
        .connect()
        .await?;
    sqlx::raw_sql(AssertSqlSafe(statements))
        .execute(&mut connection)
        .await?;
    Ok(connection.close().await?)
}

async fn until_online(member: &PrivateMaria) -> Result<(), SandboxError> {
    let mut connection: MySqlConnection = connect_options((member.host(), member.port()))
        .connect()
        .await?;
    let deadline = Instant::now() + ONLINE_WITHIN;
    loop {
        let online: i64 = sqlx::query_scalar(IS_ONLINE)
            .fetch_one(&mut connection)
            .await?;
        if online == 1 {
            return Ok(connection.close().await?);
        }
        if Instant::now() >= deadline {
            return Err(SandboxError::Late {
                what: "a member of the group is online",
                seconds: ONLINE_WITHIN.as_secs(),
            });
        }
        sleep(ASKED_EVERY).await;
    }
}
