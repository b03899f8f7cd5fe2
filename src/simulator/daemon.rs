//! Daemons: engines of the product on simulated connections.

use std::sync::Arc;

use lapsed::engine::{Handle, Metrics, Parts};
use lapsed::handler::Router;
use lapsed::limiter::MemoryLimiter;
use lapsed::membership::MemoryMembership;
use lapsed::{Config, Engine, TaskClient};
use lapsed_core::ledger::Ledger;
use lapsed_core::ledger::memory::MemoryLedger;
use lapsed_core::timer::Timer;
use lapsed_model_redis::{Link, ModelRedis};
use lapsed_server::http::AppState;
use lapsed_server::resp::Service;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::history::History;
use crate::keyed;
use crate::ledger::SimLedger;
use crate::members::SimMembers;
use crate::plan::{Plan, TimerKind, WHEEL};
use crate::process::Process;
use crate::programs;
use crate::record::Actor;
use crate::server::{NO_ADDRESS, Server};
use crate::signals::SimTimer;
use crate::worker::Servers;

/// What daemons share.
pub struct Ground {
    pub plan: Plan,
    pub ledger: Arc<MemoryLedger>,
    pub members: Arc<MemoryMembership>,
    pub limiter: Arc<MemoryLimiter>,
    pub history: Arc<History>,
    /// `None`: there is no Redis.
    pub redis: Option<Arc<ModelRedis>>,
    pub servers: Arc<Servers>,
}

/// How a daemon is started.
#[derive(Debug, Clone, Copy, Default)]
pub struct Start {
    /// It runs the tasks of one class only.
    pub has_fewer_classes: bool,
    /// How far its first estimate of the ledger's clock is ahead.
    pub ahead_ms: i64,
}

/// A running daemon.
pub struct Daemon {
    pub process: Arc<Process>,
    pub handle: Handle,
    pub metrics: Arc<Metrics>,
    pub link: Option<Arc<Link>>,
    number: usize,
    server: Arc<Server>,
    servers: Arc<Servers>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<()>,
}

impl Daemon {
    pub fn start(
        ground: &Ground,
        number: usize,
        starts: usize,
        how: Start,
        config: &Config,
    ) -> Self {
        let Ground {
            plan,
            ledger,
            members,
            limiter,
            history,
            redis,
            servers,
        } = ground;
        let actor = Actor::Daemon {
            number,
            start: starts,
        };
        let process = Process::new(actor, plan.seed, Arc::clone(history));
        let sim_ledger = SimLedger::new(
            Arc::clone(ledger),
            Arc::clone(&process),
            Arc::clone(history),
            how.ahead_ms,
        );
        let metrics = Arc::new(Metrics::default());
        let link = redis.as_ref();
        let link = link.map(|redis| Link::new(redis, &format!("daemon-{number}-{starts}")));
        let clock = sim_ledger.clock().clone();
        let timer = keyed::timer(link.as_ref(), config, clock.clone(), &metrics);
        let timer = SimTimer::new(timer, Arc::clone(&process), clock);
        let members = match &link {
            Some(link) => keyed::members(link, config),
            None => Arc::clone(members) as _,
        };
        let limiter = match &link {
            Some(link) => keyed::limiter(link, config),
            None => Arc::clone(limiter) as _,
        };
        let classes: &[&str] = match (how.has_fewer_classes, plan.timer) {
            (true, _) => &["Job"],
            (false, TimerKind::Wheel) => &["Job", "Mail", WHEEL],
            (false, _) => &["Job", "Mail"],
        };
        let handlers = programs::handlers(classes, plan.rate, &process, history, ledger.clock());
        let (sim_ledger, timer): (Arc<dyn Ledger>, Arc<dyn Timer>) =
            (Arc::new(sim_ledger), Arc::new(timer));
        let tasks = TaskClient::with_parts(Arc::clone(&sim_ledger), Arc::clone(&timer) as _);
        let parts = Parts {
            ledger: sim_ledger,
            timer,
            membership: Arc::new(SimMembers::new(members, Arc::clone(&process))),
            limiter,
            router: Arc::new(Router::new(handlers, config)),
            metrics: Arc::clone(&metrics),
            tracer: None,
        };
        let engine = Engine::with_parts(parts, config);
        let handle = engine.handle();
        let app = AppState::new(
            &config.http,
            tasks.clone(),
            handle.clone(),
            Arc::clone(&metrics),
        );
        let service = Service::new(&config.resp, tasks, Arc::clone(&metrics), NO_ADDRESS);
        let server = Server::new(actor, service.with_workers(handle.pull()), app);
        servers.add(number, Arc::clone(&server));
        let (stop, stopped) = oneshot::channel();
        let (of_process, to_history) = (Arc::clone(&process), Arc::clone(history));
        let running = tokio::spawn(async move {
            let ended = engine.run_until(async move {
                let _ = stopped.await;
            });
            // An unusable ledger at the start ends a daemon; the supervisor starts it again.
            if let Err(error) = ended.await {
                to_history.say(format!("{:?} ends: {error}", of_process.actor));
            }
        });
        Self {
            process,
            handle,
            metrics,
            link,
            number,
            server,
            servers: Arc::clone(servers),
            stop: Some(stop),
            running,
        }
    }

    /// As `kill -9`.
    pub fn kill(self) {
        self.process.kill();
        self.running.abort();
        self.cut();
    }

    /// Its connections are closed, as the kernel does.
    fn cut(&self) {
        self.servers.remove(self.number, &self.server);
        self.server.kill();
        if let Some(link) = &self.link {
            link.refuse(true);
            link.kill();
        }
    }

    pub fn has_ended(&self) -> bool {
        self.running.is_finished()
    }

    /// As `SIGTERM`. Returns when it has ended.
    pub async fn stop(mut self) {
        self.servers.remove(self.number, &self.server);
        self.server.stop();
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        let _ = (&mut self.running).await;
        self.process.kill();
        self.cut();
    }
}
