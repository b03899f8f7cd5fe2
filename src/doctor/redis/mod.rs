//! Redis checks: the queries and their order. Each topic has a file, whose judgements do no I/O.

mod audits;
mod connectivity;
mod lateness;
mod listeners;
mod memory;
mod notifications;
mod rights;
mod server;
mod sorted_sets;

use super::clocks::Reading;
use super::runner::{Runner, Unresponsive};
use super::{Finding, Severity};
use crate::compose::name_of;
use crate::config::{Config, TimerKind};
use crate::ledger::mysql::MysqlLedger;
use crate::membership::Heartbeat;
use crate::membership::RedisMembership;
use crate::redis::{Commands, Endpoint, EventKind, Events, Inspection, LedgerName, RedisError};
use crate::task::UnixMs;

use self::audits::audits;
use self::connectivity::{REACHABLE, reachable, unreachable};
use self::lateness::{EFFORT, LATENESS, lateness};
use self::listeners::{DAEMONS, LISTENERS};
use self::memory::{BUFFER_LIMIT, EVICTION, OUTPUT_BUFFER, eviction, output_buffer};
pub(super) use self::notifications::add_flags;
use self::notifications::{FLAGS, NOTIFICATIONS, notifications};
use self::rights::{ADOPTION, RIGHTS, adoption, refused, refused_to_adopt, rights};
use self::server::{CLUSTER, PERSISTENCE, ROLE, VERSION, cluster, persistence, role, version};

const CLOCK: &str = "redis.clock";

/// How long a daemon counts as running after its heartbeat has expired.
const CLOCKS_APART_MS: i64 = 2_000;

/// Checks the server that the timer uses; returns a reading of its clock.
pub(super) async fn examine(config: &Config, runner: &mut Runner) -> Option<Reading> {
    if !config.timer.uses_redis() {
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
    examine_server(config, endpoint, runner)
        .await
        .unwrap_or_default()
}

/// Running daemons that share the ledger; `None` if they are not visible.
async fn members(
    config: &Config,
    server: &Inspection,
) -> Result<Option<Vec<Heartbeat>>, RedisError> {
    if !config.fleet.share {
        return Ok(None);
    }
    let membership = RedisMembership::new(&config.redis, ledger_name(config).await)?;
    // Heartbeats carry the ledger's time, which may differ a little from that of Redis.
    let now = server.time().await?;
    membership
        .members(UnixMs(now.0 - CLOCKS_APART_MS))
        .await
        .map(Some)
}

/// Name of the ledger among the daemons.
async fn ledger_name(config: &Config) -> LedgerName {
    let plain = name_of(&config.ledger);
    let Ok(ledger) = MysqlLedger::new(&config.ledger) else {
        return plain.as_str().into();
    };
    ledger.read_identity().await;
    let name = LedgerName::new(&plain, ledger.identity());
    ledger.close().await;
    name
}

async fn examine_server(
    config: &Config,
    endpoint: Endpoint,
    runner: &mut Runner,
) -> Result<Option<Reading>, Unresponsive> {
    let commands = Commands::new(endpoint.clone());
    let server = Inspection::new(commands);
    let found = runner.bounded(server.time()).await;
    let reachable = reachable(&endpoint, found);
    let usable = reachable.severity == Severity::Ok;
    runner.add([reachable]);
    if !usable {
        return Ok(None);
    }

    let of_info = [VERSION, ROLE, CLUSTER, EVICTION, PERSISTENCE, LATENESS];
    let info = runner.query(&of_info, server.info()).await?;
    if let Some(info) = &info {
        runner.add([version(info), role(info), cluster(info)]);
    }

    if config.timer != TimerKind::KeyExpiry {
        // The wheel needs no events.
        if config.timer == TimerKind::SortedSet {
            sorted_sets::examine(config, &endpoint, runner).await?;
        }
        let members = runner.query(&[DAEMONS], members(config, &server)).await?;
        if let Some(members) = members {
            runner.add([listeners::daemons(members.as_deref())]);
        }
        if let Some(info) = &info {
            runner.add([eviction(info), persistence(info)]);
        }
        return runner.query(&[CLOCK], Reading::take(server.time())).await;
    }
    let events = Events::wanted_by(config);
    let flags = server.settings(&[FLAGS]);
    if let Some(settings) = runner.query(&[NOTIFICATIONS], flags).await? {
        runner.add(notifications(settings.raw(FLAGS), events));
    }
    let channel = endpoint.channel(EventKind::Expired);
    let members = runner.query(&[DAEMONS], members(config, &server)).await?;
    let running = match &members {
        Some(members) => {
            runner.add([listeners::daemons(members.as_deref())]);
            let listens = |note: &&Heartbeat| note.listening;
            let members = members.as_ref();
            members.map_or(0, |members| members.iter().filter(listens).count())
        }
        None => 0,
    };
    // Before this program subscribes itself.
    let listeners = runner.query(&[LISTENERS], server.listeners(&channel));
    if let Some(listeners) = listeners.await? {
        runner.add([listeners::judge(&channel, &listeners, running)]);
    }
    let refused = refused(&server, &endpoint, &config.redis.key_prefix);
    if let Some(refused) = runner.query(&[RIGHTS], refused).await? {
        runner.add(rights(&channel, &refused));
    }
    if events == Events::ExpiredAndArmings {
        let refused = refused_to_adopt(&server, &endpoint);
        if let Some(refused) = runner.query(&[ADOPTION], refused).await? {
            runner.add([adoption(&endpoint, refused.as_ref())]);
        }
    }
    if let Some(info) = &info {
        runner.add([eviction(info)]);
    }
    let limit = server.settings(&[BUFFER_LIMIT]);
    if let Some(settings) = runner.query(&[OUTPUT_BUFFER], limit).await? {
        runner.add([output_buffer(settings.raw(BUFFER_LIMIT))]);
    }
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
