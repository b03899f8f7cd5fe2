//! Redis checks: the queries and their order. Each topic has a file, whose judgements do no I/O.

mod audits;
mod cluster;
mod connectivity;
mod delayed_sets;
mod lateness;
mod listeners;
mod memory;
mod notifications;
mod probe;
mod rights;
mod sentinels;
mod server;
mod sorted_sets;
mod wheel;

use super::clocks::Reading;
use super::runner::{Runner, Unresponsive};
use lapsed::config::{Config, TimerKind};
use lapsed::diagnosis::{Finding, Severity};
use lapsed::ledger::LedgerError;
use lapsed::ledger::mysql::MysqlLedger;
use lapsed::membership::Heartbeat;
use lapsed::membership::RedisMembership;
use lapsed::task::UnixMs;
use lapsed_redis::{
    Commands, Endpoint, EventKind, Events, Facts, Inspection, LedgerName, Listeners, RedisError,
};

use self::audits::audits;
use self::connectivity::{REACHABLE, reachable, unreachable};
use self::lateness::{EFFORT, LATENESS, lateness};
use self::listeners::{DAEMONS, LISTENERS};
use self::memory::{BUFFER_LIMIT, EVICTION, OUTPUT_BUFFER, eviction, output_buffer};
pub(super) use self::notifications::add_flags;
use self::notifications::{FLAGS, NOTIFICATIONS, notifications};
use self::probe::EVENTS;
use self::rights::{ADOPTION, OF_NODE, RIGHTS, adoption, refused, refused_to_adopt, rights};
use self::sentinels::{SENTINELS, sentinels};
use self::server::{PERSISTENCE, ROLE, VERSION, no_cluster, persistence, role, version};

const CLOCK: &str = "redis.clock";

/// How long a daemon counts as running after its heartbeat has expired.
const CLOCKS_APART_MS: i64 = 2_000;

/// Checks the server that the timer uses; returns a reading of its clock.
pub(super) async fn examine(config: &Config, runner: &mut Runner) -> Option<Reading> {
    if !config.timer.uses_redis() && config.delayed_sets().is_empty() {
        let unused = "not used: the timer is `ledger_poll`";
        runner.add([Finding::ok(REACHABLE, unused)]);
        return None;
    }
    let endpoint = match Endpoint::new(&config.redis) {
        Ok(endpoint) => endpoint,
        Err(error) => {
            runner.add([unreachable(&error)]);
            return None;
        }
    };
    let commands = Commands::new(endpoint.clone());
    if commands.cluster().is_some() {
        return cluster::examine(config, &commands, runner).await;
    }
    match runner.bounded(endpoint.sentinel_views()).await {
        Some(views) => runner.add(sentinels(&views)),
        None => runner.add([Finding::unknown(SENTINELS, "no answer in time")]),
    }
    examine_server(config, commands, runner)
        .await
        .unwrap_or_default()
}

/// Adds a finding about the daemons that share the ledger, and returns them; `None` if they are not visible.
async fn examine_daemons(
    config: &Config,
    server: &Inspection,
    runner: &mut Runner,
) -> Result<Option<Vec<Heartbeat>>, Unresponsive> {
    let mut found = None;
    if config.fleet.share {
        // The time of a ledger that hangs is not that of Redis.
        let Some(Ok(name)) = runner.bounded(ledger_name(config)).await else {
            let why =
                "the daemons are found by the identity of the ledger, which could not be read";
            runner.add([Finding::unknown(DAEMONS, why)]);
            return Ok(None);
        };
        let members = runner.query(&[DAEMONS], members(config, name, server));
        let Some(members) = members.await? else {
            return Ok(None);
        };
        found = Some(members);
    }
    runner.add([listeners::daemons(found.as_deref())]);
    Ok(found)
}

async fn members(
    config: &Config,
    name: LedgerName,
    server: &Inspection,
) -> Result<Vec<Heartbeat>, RedisError> {
    let membership = RedisMembership::new(&config.redis, name)?;
    // Heartbeats carry the ledger's time, which may differ a little from that of Redis.
    let now = server.time().await?;
    membership.members(UnixMs(now.0 - CLOCKS_APART_MS)).await
}

/// Name of the ledger among the daemons.
async fn ledger_name(config: &Config) -> Result<LedgerName, LedgerError> {
    let plain = config.ledger.name();
    let Ok(ledger) = MysqlLedger::new(&config.ledger) else {
        return Ok(plain.as_str().into());
    };
    let read = ledger.read_identity().await;
    let name = LedgerName::new(&plain, ledger.identity());
    ledger.close().await;
    read.map(|()| name)
}

/// Checks one server, or one master of a cluster.
async fn examine_server(
    config: &Config,
    commands: Commands,
    runner: &mut Runner,
) -> Result<Option<Reading>, Unresponsive> {
    let endpoint = commands.endpoint().clone();
    let server = Inspection::new(commands.clone());
    let found = runner.bounded(server.time()).await;
    let reachable = reachable(&endpoint, found);
    let usable = reachable.severity == Severity::Ok;
    runner.add([reachable]);
    if !usable {
        return Ok(None);
    }

    let of_info = [VERSION, ROLE, EVICTION, PERSISTENCE, LATENESS];
    let info = runner.query(&of_info, server.info()).await?;
    if let Some(info) = &info {
        runner.add([version(info), role(info)]);
        if commands.cluster().is_none() {
            runner.add([no_cluster(info)]);
        }
    }

    delayed_sets::examine(config, &endpoint, runner).await?;
    if !config.timer.uses_redis() {
        // For the delayed sets alone: the timer needs nothing of it.
        return Ok(None);
    }
    if config.timer != TimerKind::KeyExpiry {
        // The wheel needs no events.
        match config.timer {
            TimerKind::SortedSet => sorted_sets::examine(config, &endpoint, runner).await?,
            TimerKind::Wheel => wheel::examine(config, &endpoint, runner).await?,
            TimerKind::KeyExpiry | TimerKind::LedgerPoll => {}
        }
        examine_daemons(config, &server, runner).await?;
        if let Some(info) = &info {
            runner.add([eviction(info), persistence(info)]);
        }
        return runner.query(&[CLOCK], Reading::take(server.time())).await;
    }
    let events = Events::wanted_by(config);
    let flags = server.settings(&[FLAGS]);
    let mut shown = false;
    if let Some(settings) = runner.query(&[NOTIFICATIONS], flags).await? {
        let flags = settings.raw(FLAGS);
        shown = flags.is_some();
        runner.add(notifications(flags, events));
    }
    let channel = endpoint.channel(EventKind::Expired);
    let members = examine_daemons(config, &server, runner).await?;
    let listens = |note: &&Heartbeat| note.listening || note.expired_only;
    let running = members.map_or(0, |members| members.iter().filter(listens).count());
    // Before this program subscribes itself.
    let judge = |found: Listeners| listeners::judge(&channel, &found, running);
    runner
        .check(LISTENERS, server.listeners(&channel), judge)
        .await?;
    let prefix = &config.redis.key_prefix;
    let refused = refused(&server, &endpoint, prefix);
    let refused = runner.query(&[RIGHTS], refused).await?;
    if let Some(refused) = &refused {
        let of_node = commands.cluster().map_or("", |_| OF_NODE);
        runner.add(rights(&channel, of_node, refused));
    }
    let mut hears_armings = false;
    if events == Events::ExpiredAndArmings {
        let refused = refused_to_adopt(&server, &endpoint);
        if let Some(refused) = runner.query(&[ADOPTION], refused).await? {
            hears_armings = refused.is_none();
            runner.add([adoption(&endpoint, refused.as_ref())]);
        }
    }
    if !shown && refused.is_some_and(|refused| refused.is_empty()) {
        let wanted = match hears_armings {
            true => events,
            false => Events::Expired,
        };
        let arrived = probe::probe(&commands, prefix, wanted);
        let judge = |arrived| probe::judge(arrived, wanted);
        runner.check(EVENTS, arrived, judge).await?;
    }
    if let Some(info) = &info {
        runner.add([eviction(info)]);
    }
    let limit = server.settings(&[BUFFER_LIMIT]);
    let judge = |settings: Facts| output_buffer(settings.raw(BUFFER_LIMIT));
    runner.check(OUTPUT_BUFFER, limit, judge).await?;
    if let Some(info) = &info {
        // If the setting cannot be read, the default is assumed; `INFO` has `hz`.
        let effort = match runner.bounded(server.settings(&[EFFORT])).await {
            Some(Ok(settings)) => settings.number(EFFORT),
            _ => None,
        };
        runner.add([
            lateness(info, effort, endpoint.database(), config.nudge.enabled),
            persistence(info),
        ]);
        let between = config.sentinel.interval;
        runner.add(audits(info, endpoint.database(), between));
    }
    let reading = runner.query(&[CLOCK], Reading::take(server.time()));
    reading.await
}
