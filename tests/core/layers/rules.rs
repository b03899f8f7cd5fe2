//! Which module may name which others.

/// Each module, and the modules of the crate it may name.
pub const MAY_USE: [(&str, &[&str]); 22] = [
    ("format.rs", &[]),
    ("task", &[]),
    ("access", &["task"]),
    ("clock.rs", &["task"]),
    ("trace.rs", &["task"]),
    ("net", &["ledger", "task", "telemetry"]),
    ("config", &["access", "task"]),
    ("telemetry", &["task"]),
    ("ledger", &["access", "task", "clock", "config"]),
    ("redis", &["task", "config"]),
    ("timer", &["task", "clock", "config", "redis", "telemetry"]),
    (
        "handler",
        &["task", "clock", "config", "ledger", "redis", "trace"],
    ),
    ("membership", &["task", "clock", "config", "redis"]),
    ("limiter", &["task", "config", "ledger", "redis"]),
    (
        "diagnosis",
        &[
            "task",
            "config",
            "handler",
            "ledger",
            "membership",
            "telemetry",
        ],
    ),
    (
        "engine",
        &[
            "diagnosis",
            "membership",
            "limiter",
            "task",
            "clock",
            "config",
            "ledger",
            "timer",
            "handler",
            "telemetry",
            "trace",
        ],
    ),
    (
        "client",
        &["task", "clock", "config", "ledger", "timer", "trace"],
    ),
    ("contract", &["task", "config", "ledger", "client"]),
    (
        "alerts",
        &[
            "clock",
            "config",
            "diagnosis",
            "engine",
            "handler",
            "task",
            "telemetry",
        ],
    ),
    (
        "http",
        &[
            "access",
            "client",
            "contract",
            "config",
            "diagnosis",
            "engine",
            "ledger",
            "membership",
            "net",
            "task",
            "telemetry",
            "trace",
        ],
    ),
    (
        "resp",
        &[
            "access",
            "client",
            "contract",
            "clock",
            "config",
            "engine",
            "ledger",
            "net",
            "task",
            "telemetry",
        ],
    ),
    (
        "testing",
        &[
            "client",
            "clock",
            "config",
            "engine",
            "membership",
            "handler",
            "ledger",
            "limiter",
            "task",
            "telemetry",
            "timer",
        ],
    ),
];

/// Crates for databases, servers and the command line, and the only places that may name them.
pub const DRIVERS: [(&str, &[&str]); 9] = [
    (
        "sqlx",
        &[
            "mysql",
            "client",
            "doctor",
            "faults",
            "sandbox",
            "cli/bench",
            "cli/import",
        ],
    ),
    (
        r"(?:lapsed::|crate::)?rusqlite",
        &[
            "sqlite",
            "client/file_transactions.rs",
            "cli/bench/store.rs",
            "faults/file_rig.rs",
            "lib.rs",
        ],
    ),
    (
        "redis",
        &[
            "redis",
            "doctor",
            "faults",
            "sandbox",
            "simulator",
            "cli/bench",
            "cli/import",
        ],
    ),
    (
        "reqwest",
        &["handler/webhook", "handler/targets.rs", "cli/otel"],
    ),
    (r"opentelemetry\w*", &["cli/otel"]),
    (
        "axum",
        &["faults/target.rs", "server/http", "simulator/http.rs"],
    ),
    ("askama", &["server/http/dashboard"]),
    ("argon2", &["server/resp/auth.rs"]),
    ("clap", &["cli", "faults", "simulator"]),
];

/// Adapters, and the only places that may name them.
pub const ADAPTERS: [(&str, &[&str]); 9] = [
    (
        "mysql",
        &[
            "mysql",
            "lib.rs",
            "handler/transaction.rs",
            "client/transactions.rs",
            "compose",
            "cli",
            "doctor",
            "limiter/ledger_limiter.rs",
        ],
    ),
    (
        "sqlite",
        &[
            "sqlite",
            "lib.rs",
            "handler/file_transaction.rs",
            "client/file_transactions.rs",
            "compose",
            "cli/backup.rs",
            "cli/bench/store.rs",
            "cli/dev.rs",
            "cli/migrate.rs",
            "doctor/file",
        ],
    ),
    (
        "redis::alarms",
        &["redis/alarms", "redis/timer", "compose", "doctor/redis"],
    ),
    (
        "redis::timer::key_expiry",
        &["redis/timer", "compose", "lib.rs"],
    ),
    (
        "redis::timer::sorted_set",
        &["redis/timer", "compose", "lib.rs"],
    ),
    (
        "redis::timer::wheel",
        &["redis/timer", "compose", "doctor/redis", "lib.rs"],
    ),
    ("membership::RedisMembership", &["compose", "doctor"]),
    ("limiter::ledger_limiter", &["limiter", "compose"]),
    ("limiter::redis_limiter", &["limiter", "compose"]),
];
