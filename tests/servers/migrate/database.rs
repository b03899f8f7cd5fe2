//! A database of its own for each test, and the table of older programs in it.

use std::error::Error;

use lapsed::ledger::migrate::{
    Method, MigrateError, Options, Plan, Progress, Step, apply, check, plan,
};
use lapsed::task::TableName;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};

use crate::support::maria;

pub type Result<T = (), E = Box<dyn Error>> = std::result::Result<T, E>;

/// As older programs created it, word for word.
pub const SEED: &str = "CREATE TABLE `tb` (
  `id` int(10) unsigned NOT NULL AUTO_INCREMENT,
  `key` varchar(255) CHARACTER SET utf8 COLLATE utf8_bin NOT NULL COMMENT 'Redis鍵',
  `status` tinyint(3) unsigned NOT NULL COMMENT '狀態,0未處理,1已處理',
  `start_time` decimal(13,3) unsigned NOT NULL COMMENT '開始時間(小數部分為毫秒)',
  `end_time` decimal(13,3) unsigned NOT NULL COMMENT '結束時間(小數部分為毫秒)',
  PRIMARY KEY (`id`),
  KEY `we` (`key`) USING BTREE
) ENGINE=InnoDB DEFAULT CHARSET=utf8 COMMENT='這個表用於記錄需要時間控制的任務Key,配合Redis、以及回調腳本使用'";

pub const ADD_STS: &str =
    "ALTER TABLE tb ADD COLUMN `sts` tinyint(3) unsigned NOT NULL AFTER `end_time`";

/// One key in every state, and three duplicated keys, of whose rows 2, 6 and 9 are to be kept.
pub const ROWS: &str = "INSERT INTO tb (id, `key`, status, start_time, end_time, sts) VALUES
  (1, 'Dup@live@a', 0, 1700000000.001, 1700000100.000, 0),
  (2, 'Dup@live@a', 0, 1700000000.002, 1700000300.123, 0),
  (3, 'Dup@live@a', 0, 1700000000.003, 1700000200.000, 0),
  (4, 'Dup@live@a', 1, 1700000000.004, 1700000900.000, 0),
  (5, 'Dup@mixed@b', 0, 1700000000.005, 1700000900.000, 1),
  (6, 'Dup@mixed@b', 0, 1700000000.006, 1700000100.000, 0),
  (7, 'Dup@mixed@b', 1, 1700000000.007, 1700000900.000, 0),
  (8, 'Dup@done@c', 1, 1700000000.008, 1700000900.000, 0),
  (9, 'Dup@done@c', 1, 1700000000.009, 1700000100.000, 0),
  (10, 'One@pending', 0, 1700000000.010, 1700000100.000, 0),
  (11, 'One@done@任務', 1, 1700000000.011, 1700000100.000, 0),
  (12, 'One@deleted', 0, 1700000000.012, 1700000100.000, 1),
  (13, 'one@pending', 0, 1700000000.013, 1700000100.000, 0)";

/// A database on the server that all tests share.
pub struct Database {
    pub url: String,
    pub conn: MySqlConnection,
}

impl Database {
    pub async fn new(name: &str) -> Result<Self> {
        let url = maria::database(name).await;
        let conn = MySqlConnection::connect(&url).await?;
        Ok(Self { url, conn })
    }

    pub async fn with(name: &str, statements: &[&str]) -> Result<Self> {
        let mut database = Self::new(name).await?;
        for statement in statements {
            database.run(statement).await?;
        }
        Ok(database)
    }

    pub async fn run(&mut self, statement: &str) -> Result {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned()))
            .execute(&mut self.conn)
            .await?;
        Ok(())
    }

    pub async fn texts(&mut self, query: &str) -> Result<Vec<String>> {
        Ok(sqlx::query_scalar(AssertSqlSafe(query.to_owned()))
            .fetch_all(&mut self.conn)
            .await?)
    }

    pub async fn number(&mut self, query: &str) -> Result<i64> {
        Ok(sqlx::query_scalar(AssertSqlSafe(query.to_owned()))
            .fetch_one(&mut self.conn)
            .await?)
    }

    /// The rows of a table, each in one line.
    pub async fn rows(&mut self, table: &str) -> Result<Vec<String>> {
        self.texts(&format!(
            "SELECT CONCAT_WS(' ', id, `key`, status, start_time, end_time, sts) FROM {table} ORDER BY id"
        ))
        .await
    }

    pub async fn kept(&mut self) -> Result<Vec<String>> {
        self.texts("SELECT CAST(id AS CHAR) FROM tb ORDER BY id")
            .await
    }

    pub async fn definition(&mut self, table: &str) -> Result<String> {
        let row: (String, String) =
            sqlx::query_as(AssertSqlSafe(format!("SHOW CREATE TABLE `{table}`")))
                .fetch_one(&mut self.conn)
                .await?;
        // Each ledger has an identity of its own.
        let end = row.1.find("lapsed:").unwrap_or(row.1.len());
        Ok(row.1[..end].to_owned())
    }

    pub async fn connect(&self) -> Result<MySqlConnection> {
        Ok(MySqlConnection::connect(&self.url).await?)
    }

    pub async fn plan(&mut self) -> Result<Plan, MigrateError> {
        plan(&mut self.conn, &tb()).await
    }

    pub async fn check(&mut self) -> Result<(), MigrateError> {
        check(&mut self.conn, &tb()).await
    }

    pub async fn migrate(&mut self) -> Result<Vec<(Step, Method)>, MigrateError> {
        let mut done = Vec::new();
        apply(
            &mut self.conn,
            &tb(),
            &Options::default(),
            &mut |progress| {
                if let Progress::Done { step, method } = progress {
                    done.push((step.clone(), method));
                }
            },
        )
        .await?;
        Ok(done)
    }

    /// The message of the refusal, which planning, checking and applying must agree on.
    pub async fn refusal(&mut self) -> Result<String> {
        let planned = self.plan().await.expect_err("a refusal").to_string();
        assert_eq!(
            self.migrate().await.expect_err("a refusal").to_string(),
            planned
        );
        assert_eq!(
            self.check().await.expect_err("a refusal").to_string(),
            planned
        );
        Ok(planned)
    }
}

/// The table of these tests.
pub fn tb() -> TableName {
    TableName::new("tb").expect("a plain word")
}

/// A definition as MariaDB and MySQL both could have put it: without widths for display, numbers without quotes.
pub fn plain(definition: &str) -> String {
    definition
        .replace("tinyint(3)", "tinyint")
        .replace("int(10)", "int")
        .replace("int(11)", "int")
        .replace("DEFAULT '0'", "DEFAULT 0")
}

pub fn quietly(_: Progress<'_>) {}
