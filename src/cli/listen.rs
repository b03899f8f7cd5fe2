//! `lapsed listen`: the daemon process with signals, HTTP and systemd.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use lapsed::compose::Adapters;
use lapsed::config::{ConfigSource, TimerKind};
use lapsed::engine::Handle;
use lapsed::handler::Router;
use lapsed::{Config, ConfigError, Due, Handlers, clock};
use lapsed_doctor as doctor;
use lapsed_server::http::{self, AppState, Checkup};
use lapsed_server::resp::SetForward;
use sd_notify::NotifyState;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::log;
use super::migrate;
use super::otel::Export;
use super::usage;

/// Interval of systemd status messages, unless the watchdog requires a shorter one.
const STATUS_EVERY: Duration = Duration::from_secs(5);

#[derive(Args)]
pub struct Listen {
    /// Hold tasks that are overdue now for review, e.g. after restoring a dump, until `lapsed resume --held`
    #[arg(long)]
    hold_overdue: bool,
    /// Create or upgrade the ledger first if it is in an SQLite file
    #[arg(long)]
    migrate_sqlite: bool,
    /// When the timer that visited the lists of `[wheel]` before was stopped, e.g. 2026-11-21T20:00:00Z. Used at the first
    /// start only: entries whose visit was missed since then run now
    #[arg(long, value_name = "RFC3339", value_parser = Due::parse_moment)]
    wheel_stopped_at: Option<Due>,
}

impl Listen {
    pub async fn run(self, mut config: Config, file: Option<PathBuf>) -> anyhow::Result<ExitCode> {
        config.engine.hold_overdue |= self.hold_overdue;
        if let Some(moment) = self.wheel_stopped_at {
            let now = clock::wall();
            let moment = moment.resolve(now);
            if config.timer != TimerKind::Wheel {
                return usage("`--wheel-stopped-at` is for `timer = \"wheel\"`");
            }
            if moment > now {
                return usage("`--wheel-stopped-at` is in the future");
            }
            config.wheel.stopped_at = Some(moment);
        }
        if self.migrate_sqlite {
            migrate::create_file(&config).await?;
        }
        let source = ConfigSource::find(file.as_deref());
        let load = move || Config::load(file.as_deref());
        listen(config, &source, load, |_| (), |_| None).await
    }
}

/// Addresses on which the daemon listens. `lapsed dev` shows them.
pub struct Listening {
    pub http: Option<SocketAddr>,
    pub resp: Option<SocketAddr>,
}

/// Runs the daemon until a signal ends it. `load` reads the configuration again; `announce` is called when it listens;
/// `clock` is the clock that clients may set forward.
pub async fn listen(
    config: Config,
    source: &ConfigSource,
    load: impl Fn() -> Result<Config, ConfigError> + Send + 'static,
    announce: impl FnOnce(Listening),
    clock: impl FnOnce(Handle) -> Option<Arc<dyn SetForward>>,
) -> anyhow::Result<ExitCode> {
    log::write_from_a_thread();
    let started = config.clone();
    let mut adapters = Adapters::new(&config)?;
    let export = Export::start(&config.otel, &adapters.metrics)?;
    adapters.tracer = export.as_ref().and_then(Export::tracer);
    let engine = adapters.engine(&config, Handlers::new());
    let handle = engine.handle();
    let router = Arc::clone(&engine.parts().router);
    let stop = CancellationToken::new();
    // HTTP and the RESP server stop after the engine: probes and workers are answered while runs end.
    let stop_http = CancellationToken::new();

    let redis = config.timer.uses_redis().then_some(&config.redis.url);
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        redis = redis.map(tracing::field::display),
        ledger = %config.ledger.url,
        table = config.ledger.table,
        routes = config.routes.len(),
        concurrency = config.engine.concurrency,
        configuration = %source,
        "starting"
    );
    for exposed in lapsed_doctor::exposed_secrets(&config, source.file()) {
        tracing::warn!("{exposed}");
    }
    let http = serve_http(&config, &adapters, handle.clone(), stop_http.clone()).await?;
    let resp = serve_resp(&config, &adapters, &handle, clock, stop_http.clone())?;
    let (http_address, http) = http.unzip();
    let (resp_address, resp) = resp.unzip();
    announce(Listening {
        http: http_address,
        resp: resp_address.flatten(),
    });
    survive_file_size_limit()?;
    let helpers = [
        tokio::spawn(send_alerts(&config, &adapters, handle.clone())),
        tokio::spawn(stop_on_signals(stop.clone(), handle.clone())?),
        tokio::spawn(obey_hangups(
            stop.clone(),
            router,
            handle.clone(),
            started,
            load,
        )?),
        tokio::spawn(notify_systemd(handle)),
    ];

    let result = engine.run_until(stop.clone().cancelled_owned()).await;
    stop.cancel();
    stop_http.cancel();
    if let Some(http) = http {
        let _ = http.await;
    }
    if let Some(resp) = resp {
        let _ = resp.await;
    }
    helpers.iter().for_each(tokio::task::JoinHandle::abort);
    adapters.ledger.close().await;
    if let Some(export) = export {
        export.stop().await;
    }
    result?;
    Ok(ExitCode::SUCCESS)
}

/// Serves HTTP if the configuration has an address for it, until `stop` is cancelled.
async fn serve_http(
    config: &Config,
    adapters: &Adapters,
    handle: Handle,
    stop: CancellationToken,
) -> anyhow::Result<Option<(SocketAddr, JoinHandle<()>)>> {
    let Some(address) = config.http.listen else {
        return Ok(None);
    };
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("listen on `{address}` (`http.listen`; \"\" switches HTTP off)")
    })?;
    let address = listener.local_addr()?;
    tracing::info!(http.address = %address, "serving HTTP");
    if !address.ip().is_loopback() && config.http.proxy.networks.is_empty() {
        tracing::warn!(http.address = %address, "HTTP is served beyond this machine without TLS: tokens and tasks can be read on the way; serve it through a proxy with TLS, and name the proxy in `http.proxy.networks`");
    }
    let metrics = Arc::clone(&adapters.metrics);
    let app = AppState::new(&config.http, adapters.client(), handle, metrics);
    let app = app.with_checkup(checkup(config));
    let app = app.with_thresholds((&config.alerts).into());
    let serving = http::serve(listener, app, stop.cancelled_owned());
    Ok(Some((address, tokio::spawn(serving))))
}

/// What `lapsed doctor` finds, for the dashboard.
fn checkup(config: &Config) -> Arc<Checkup> {
    let config = Arc::new(config.clone());
    Checkup::new(move || {
        let config = Arc::clone(&config);
        async move { doctor::examine(&config).await.findings }
    })
}

/// Opens the RESP server if the configuration has an address or a socket for it, until `stop` is cancelled.
fn serve_resp(
    config: &Config,
    adapters: &Adapters,
    handle: &Handle,
    clock: impl FnOnce(Handle) -> Option<Arc<dyn SetForward>>,
    stop: CancellationToken,
) -> anyhow::Result<Option<(Option<SocketAddr>, JoinHandle<()>)>> {
    let tasks = adapters.client();
    let metrics = Arc::clone(&adapters.metrics);
    let Some(listener) = lapsed_server::resp::Listener::open(&config.resp, tasks, metrics)? else {
        return Ok(None);
    };
    let mut listener = listener.with_workers(handle.pull());
    if let Some(clock) = clock(handle.clone()) {
        listener = listener.with_clock(clock);
    }
    let listener = listener.with_audit_log(config.http.audit_kept);
    let address = listener.address();
    if let Some(address) = address {
        tracing::info!(resp.address = %address, "serving Redis clients");
    }
    if let Some(path) = listener.socket() {
        tracing::info!(resp.socket = %path.display(), "serving Redis clients");
    }
    let serving = listener.serve(stop.cancelled_owned());
    Ok(Some((address, tokio::spawn(serving))))
}

/// Sends the alerts of the configuration, if there is a webhook for them.
fn send_alerts(
    config: &Config,
    adapters: &Adapters,
    handle: Handle,
) -> impl Future<Output = ()> + Send + use<> {
    let metrics = Arc::clone(&adapters.metrics);
    let alerts = lapsed_server::alerts::Alerts::new(&config.alerts, handle, metrics);
    async move {
        if let Err(error) = alerts.run().await {
            tracing::error!(error, "no alerts are sent");
        }
    }
}

/// The first SIGTERM or SIGINT shuts down gracefully, the second exits at once.
fn stop_on_signals(
    stop: CancellationToken,
    handle: Handle,
) -> anyhow::Result<impl Future<Output = ()> + Send> {
    let mut term = signal(SignalKind::terminate()).context("watch for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("watch for SIGINT")?;
    Ok(async move {
        loop {
            tokio::select! {
                _ = term.recv() => {}
                _ = interrupt.recv() => {}
            }
            if stop.is_cancelled() {
                tracing::warn!(
                    "stopping at once: interrupted tasks run again when their leases expire"
                );
                handle.end_runs().await;
                log::flush();
                std::process::exit(i32::from(super::EXIT_FAILED));
            }
            let _ = sd_notify::notify(&[NotifyState::Stopping]);
            stop.cancel();
        }
    })
}

/// A file that reaches `RLIMIT_FSIZE` is an error of the ledger, which is logged, and not the end of the process. Programs that
/// the daemon starts are not concerned.
fn survive_file_size_limit() -> anyhow::Result<()> {
    let exceeded = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    // The handler stays when this is dropped.
    signal(exceeded).map(drop).context("watch for SIGXFSZ")
}

/// Whether SIGHUP means that the terminal of this daemon was closed. `nohup` and service managers give it other files.
fn has_a_terminal() -> bool {
    std::io::stdin().is_terminal() || std::io::stderr().is_terminal()
}

/// SIGHUP stops a daemon that was started in a terminal, gracefully. It comes once from the shell and once from the
/// kernel, so a second one changes nothing.
///
/// Otherwise SIGHUP reloads the routes, the recurring tasks and the retention, and logs which other sections have changed.
/// An invalid configuration changes nothing.
fn obey_hangups(
    stop: CancellationToken,
    router: Arc<Router>,
    handle: Handle,
    started: Config,
    load: impl Fn() -> Result<Config, ConfigError> + Send + 'static,
) -> anyhow::Result<impl Future<Output = ()> + Send> {
    let mut hangup = signal(SignalKind::hangup()).context("watch for SIGHUP")?;
    // Asked now: a terminal that was closed is none.
    let is_of_a_terminal = has_a_terminal();
    Ok(async move {
        while hangup.recv().await.is_some() {
            if is_of_a_terminal {
                tracing::info!("stopping: the terminal was closed");
                stop.cancel();
                continue;
            }
            match load() {
                Ok(config) => {
                    router.reload(&config);
                    tracing::info!(
                        routes = config.routes.len(),
                        recurring = config.recurring.len(),
                        retention = if config.retention.is_off() {
                            "off"
                        } else {
                            "on"
                        },
                        "reloaded the routes, the recurring tasks and the retention"
                    );
                    let sections = started.needs_restart(&config).join(" ");
                    if !sections.is_empty() {
                        tracing::warn!(
                            sections,
                            "these sections have changed and take effect at the next start"
                        );
                    }
                    handle.take_retention(config.retention);
                    handle.take_recurring(config.recurring);
                }
                Err(error) => {
                    tracing::error!(%error, "configuration is invalid: keeping the current one")
                }
            }
        }
    })
}

/// Reports readiness once the ledger answers, then status lines and watchdog pings.
async fn notify_systemd(handle: Handle) {
    while !handle.ledger_answers() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    let every =
        sd_notify::watchdog_enabled().map_or(STATUS_EVERY, |limit| (limit / 3).min(STATUS_EVERY));
    loop {
        let listening = match handle.is_listening() {
            Some(true) | None => "",
            Some(false) => ", not subscribed to Redis",
        };
        let ledger = if handle.ledger_answers() {
            ""
        } else {
            ", ledger does not answer"
        };
        let line = format!("{} running{listening}{ledger}", handle.running());
        // This task running proves that the runtime lives; a server outage is no reason to restart.
        let _ = sd_notify::notify(&[NotifyState::Status(&line), NotifyState::Watchdog]);
        tokio::time::sleep(every).await;
    }
}
