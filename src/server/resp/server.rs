//! Commands about the server.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::batch::failure;
use super::command::{Command, Run, is, now, unknown_subcommand, wrong_arity};
use super::glob::{Glob, PATTERN_BYTES_MAX};
use super::parser::Args;
use super::reply::Reply;
use super::server_state::{REDIS_VERSION, ServerState};
use super::session::Session;
use lapsed::client::ClientError;
use lapsed::clock;
use lapsed::ledger::{DetailedStatsLimits, ListFilter, StateFilter};
use lapsed::task::{ClassGlob, State};
use lapsed_core::access::AccessScope as Scope;

/// The commands of this file.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    now("info", -1, info, "[section [section ...]]", "Returns facts about the server. Tasks are not counted: see DBSIZE."),
    now("config", -2, config, "GET parameter [parameter ...]", "Returns the parameters that clients ask for when they connect."),
    now("time", 1, time, "", "Returns the ledger's time, by which tasks are due."),
    now("role", 1, role, "", "Returns the replication role: always `master`, without replicas."),
    Command { scope: Some(Scope::Read), run: Run::Later(dbsize), ..now("dbsize", 1, time, "", "Counts the tasks that have not started.") },
];

fn info(_: &mut Session, server: &ServerState, args: Args<'_>) -> Reply {
    let wanted = |section: &str| {
        let mut named = args.from(1);
        args.len() == 1
            || named.any(|name| {
                is(name, section)
                    || ["all", "default", "everything"]
                        .iter()
                        .any(|all| is(name, all))
            })
    };
    let mut text = String::new();
    let mut section = |name: &str, lines: &[(&str, String)]| {
        if !wanted(name) {
            return;
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let _ = write!(text, "# {name}\r\n");
        for (key, value) in lines {
            let _ = write!(text, "{key}:{value}\r\n");
        }
    };
    let uptime = server.since.elapsed().as_secs();
    section(
        "Server",
        &[
            ("redis_version", REDIS_VERSION.to_owned()),
            ("redis_mode", "standalone".to_owned()),
            ("server_name", "lapsed".to_owned()),
            ("lapsed_version", env!("CARGO_PKG_VERSION").to_owned()),
            ("os", std::env::consts::OS.to_owned()),
            ("arch_bits", usize::BITS.to_string()),
            ("process_id", std::process::id().to_string()),
            ("run_id", server.run_id.clone()),
            ("tcp_port", server.address.port().to_string()),
            ("uptime_in_seconds", uptime.to_string()),
            ("uptime_in_days", (uptime / 86_400).to_string()),
        ],
    );
    section(
        "Clients",
        &[
            (
                "connected_clients",
                server.connected.load(Ordering::Relaxed).to_string(),
            ),
            ("maxclients", server.config.max_connections.to_string()),
        ],
    );
    section(
        "Persistence",
        &[
            ("loading", "0".to_owned()),
            ("async_loading", "0".to_owned()),
        ],
    );
    section(
        "Stats",
        &[(
            "total_connections_received",
            server.accepted.load(Ordering::Relaxed).to_string(),
        )],
    );
    section(
        "Replication",
        &[
            ("role", "master".to_owned()),
            ("connected_slaves", "0".to_owned()),
            ("master_replid", server.run_id.clone()),
        ],
    );
    section("Cluster", &[("cluster_enabled", "0".to_owned())]);
    Reply::Verbatim(text)
}

/// The error for an unknown subcommand, a wrong number of arguments, or patterns that are too long.
pub fn refusal(args: Args<'_>) -> Option<Reply> {
    let sub = args.get(1).unwrap_or_default();
    match () {
        () if is(sub, "SET") => Some(Reply::err(
            "CONFIG SET is not supported: change lapsed.toml",
        )),
        () if !is(sub, "GET") => Some(unknown_subcommand("config", sub)),
        () if args.len() < 3 => Some(wrong_arity("config|get")),
        () if args.bytes() > PATTERN_BYTES_MAX => Some(Reply::err(format_args!(
            "expected at most {PATTERN_BYTES_MAX} bytes of patterns"
        ))),
        () => None,
    }
}

fn config(_: &mut Session, server: &ServerState, args: Args<'_>) -> Reply {
    if let Some(error) = refusal(args) {
        return error;
    }
    let known = [
        ("timeout", "0".to_owned()),
        ("databases", "16".to_owned()),
        ("maxclients", server.config.max_connections.to_string()),
        ("appendonly", "yes".to_owned()),
        ("appendfsync", "always".to_owned()),
        ("save", String::new()),
        ("replica-read-only", "yes".to_owned()),
        ("slave-read-only", "yes".to_owned()),
        ("notify-keyspace-events", String::new()),
        ("maxmemory", "0".to_owned()),
        ("maxmemory-policy", "noeviction".to_owned()),
    ];
    let patterns = args
        .from(2)
        .map(|pattern| Glob::new(&pattern.to_ascii_lowercase()));
    let patterns: Vec<Glob> = match patterns.collect() {
        Ok(patterns) => patterns,
        Err(error) => return error,
    };
    let asked = |name: &str| patterns.iter().any(|it| it.matches(name.as_bytes()));
    let found = known.into_iter().filter(|(name, _)| asked(name));
    Reply::Map(
        found
            .map(|(name, value)| (Reply::Static(name), Reply::Text(value)))
            .collect(),
    )
}

fn time(_: &mut Session, server: &ServerState, _: Args<'_>) -> Reply {
    let ms = server.tasks.clock_now().0;
    let micros = clock::wall_micros() % 1_000;
    Reply::Array(vec![
        Reply::Text((ms / 1_000).to_string()),
        Reply::Text(((ms % 1_000).cast_unsigned() * 1_000 + micros).to_string()),
    ])
}

fn role(_: &mut Session, _: &ServerState, _: Args<'_>) -> Reply {
    Reply::Array(vec![
        Reply::Static("master"),
        Reply::Int(0),
        Reply::Array(Vec::new()),
    ])
}

/// Counts the tasks of some classes, or of all, that were armed anew while an older arming runs, among the first
/// [`RUNNING_MAX`] that run.
async fn behind_runs(server: &ServerState, classes: &[ClassGlob]) -> Result<u64, ClientError> {
    const PAGE: u32 = 1_000;
    const RUNNING_MAX: u32 = 10_000;
    let (mut count, mut cursor) = (0, None);
    for _ in 0..RUNNING_MAX / PAGE {
        let filter = ListFilter {
            states: vec![StateFilter::Is(State::Running)],
            cursor,
            only: classes.to_vec(),
            limit: PAGE,
            ..ListFilter::default()
        };
        let page = server.tasks.list(&filter).await?;
        count += page.tasks.iter().filter(|it| it.has_not_started()).count() as u64;
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    Ok(count)
}

/// Rows that are read to count those of some classes. Of a larger table, they are not counted.
const CLASS_LIMITS: DetailedStatsLimits = DetailedStatsLimits {
    rows: 2_000,
    entries: 2_000,
    dead: 0,
    done: 0,
};

fn dbsize(session: &Session, server: &Arc<ServerState>, _: Args<'_>) -> BoxFuture<'static, Reply> {
    let (server, user) = (Arc::clone(server), session.user.clone());
    async move {
        let count = async {
            let stats = match user.as_deref().filter(|user| user.is_restricted()) {
                Some(user) => {
                    let all = server.tasks.detailed_stats(CLASS_LIMITS).await;
                    let all = all.map_err(|error| failure(&error))?;
                    let own = all.seen_by(user);
                    own.map_err(|denied| Reply::denied(&denied))?.counts
                }
                None => server
                    .tasks
                    .stats()
                    .await
                    .map_err(|error| failure(&error))?,
            };
            let classes = user.as_ref().map_or(&[][..], |user| &user.classes);
            let behind_runs = match stats.running {
                0 => 0,
                _ => behind_runs(&server, classes)
                    .await
                    .map_err(|error| failure(&error))?,
            };
            Ok(stats.pending + stats.waiting + behind_runs)
        };
        match count.await {
            Ok(count) => Reply::Int(i64::try_from(count).unwrap_or(i64::MAX)),
            Err(error) => error,
        }
    }
    .boxed()
}
