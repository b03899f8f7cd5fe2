//! Producers and operators: each does one operation after the other.

use std::sync::Arc;
use std::time::Duration;

use lapsed::client::{ClientError, Task};
use lapsed::engine::{self, Handle};
use lapsed::handler::Router;
use lapsed::limiter::MemoryLimiter;
use lapsed::membership::MemoryMembership;
use lapsed::{Config, Engine, Handlers, TaskClient};
use lapsed_core::ledger::memory::MemoryLedger;
use lapsed_core::ledger::rows::store::Store;
use lapsed_core::ledger::rows::{Length, RowLedger};
use lapsed_core::ledger::{CancelAnswer, IfPending, Ledger, RescheduleAnswer, RunNowAnswer};
use lapsed_core::task::{After, Due, Scope, TaskKey};
use lapsed_core::timer::Timer;
use lapsed_model_redis::{Link, ModelRedis};
use lapsed_server::http::AppState;
use lapsed_server::resp::Service;
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, cmd};
use tokio::sync::mpsc;

use crate::attempts::class_of;
use crate::history::History;
use crate::http::{self, Method};
use crate::keyed;
use crate::ledger::SimLedger;
use crate::plan::{GROUP, Op, Policy, TimerKind, Verb};
use crate::process::Process;
use crate::record::{Actor, Answer};
use crate::server::{NO_ADDRESS, Server};
use crate::signals::SimTimer;
use crate::sql;

/// The producer that sends HTTP requests.
const OVER_HTTP: usize = 2;

pub struct Producer {
    tasks: TaskClient,
    ledger: Arc<SimLedger>,
    truth: Arc<MemoryLedger>,
    history: Arc<History>,
    keys: Vec<String>,
    redis: Option<Arc<ModelRedis>>,
    timer: TimerKind,
    /// Lists of the wheel.
    slots: u32,
    /// Servers on the same connections as `tasks`.
    server: Arc<Server>,
    /// Whether it sends HTTP requests instead of calling the client, where both have the operation.
    is_over_http: bool,
    connection: tokio::sync::OnceCell<MultiplexedConnection>,
}

impl Producer {
    pub fn new(
        process: Arc<Process>,
        truth: Arc<MemoryLedger>,
        history: Arc<History>,
        keys: Vec<String>,
        redis: Option<Arc<ModelRedis>>,
        timer: TimerKind,
        config: &Config,
    ) -> Self {
        let ledger = SimLedger::new(
            Arc::clone(&truth),
            Arc::clone(&process),
            Arc::clone(&history),
            0,
        );
        let ledger = Arc::new(ledger);
        let link = redis.as_ref();
        let link = link.map(|redis| Link::new(redis, &format!("{:?}", process.actor)));
        let clock = ledger.clock().clone();
        let kind = timer;
        let timer = keyed::timer(link.as_ref(), config, clock.clone(), &Arc::default());
        let actor = process.actor;
        let timer: Arc<dyn Timer> = Arc::new(SimTimer::new(timer, process, clock));
        let tasks = TaskClient::with_parts(Arc::clone(&ledger) as _, Arc::clone(&timer) as _);
        let service = Service::new(&config.resp, tasks.clone(), Arc::default(), NO_ADDRESS);
        let idle = idle(Arc::clone(&ledger) as _, timer, config);
        let app = AppState::new(&config.http, tasks.clone(), idle, Arc::default());
        Self {
            server: Server::new(actor, service, app),
            is_over_http: actor == Actor::Producer(OVER_HTTP),
            connection: tokio::sync::OnceCell::new(),
            tasks,
            ledger,
            truth,
            history,
            keys,
            redis,
            timer: kind,
            slots: config.wheel.slots,
        }
    }

    pub async fn run(self, mut ops: mpsc::UnboundedReceiver<Op>) {
        while let Some(op) = ops.recv().await {
            let number = self.history.invoked(&op, self.truth.clock().now());
            let answer = self.act(number, &op).await;
            let answer = answer.unwrap_or_else(|error| Answer::Failed(error.to_string()));
            let now = self.truth.clock().now();
            self.history.answered(number, answer, now);
        }
    }

    async fn act(&self, number: usize, op: &Op) -> Result<Answer, ClientError> {
        let text = &self.keys[op.key];
        let key = TaskKey::parse(text).expect("a task key");
        let payload = format!("{{\"op\":{number}}}");
        let armed = |row, due| Answer::Armed { row, due };
        if self.is_over_http
            && let now = self.truth.clock().now()
            && let Some((method, path, body)) = http::request(&op.verb, &key, &payload, now)
        {
            let reply = self.server.request(method, path, body).await;
            return Ok(match reply {
                Ok(reply) => http::answer(&op.verb, &reply),
                Err(error) => Answer::Failed(error),
            });
        }
        if let Some((path, body)) = http::bulk(&op.verb, key.class()) {
            let reply = self.server.request(Method::POST, path, Some(body)).await;
            let answer = |reply| http::bulk_answer(&op.verb, &reply);
            return Ok(reply.map_or_else(Answer::Failed, answer));
        }
        if self.is_over_http
            && let Verb::CreateMany { keys, delay } = &op.verb
        {
            let keys: Vec<&str> = keys.iter().map(|key| &self.keys[*key][..]).collect();
            let (path, body) = http::batch(&keys, *delay, &payload);
            let reply = self.server.request(Method::POST, path, Some(body)).await;
            return Ok(reply.map_or_else(Answer::Failed, |reply| http::batch_answer(&reply)));
        }
        Ok(match &op.verb {
            Verb::Create {
                delay,
                absolute,
                policy,
            } => {
                let policy = match policy {
                    Policy::Move => IfPending::Move,
                    Policy::Keep => IfPending::Keep,
                    Policy::Refuse => IfPending::Refuse,
                };
                let task = Task::from(key).payload(payload).if_pending(policy);
                let due = match absolute {
                    true => Due::at(http::round_time(self.truth.clock().now(), *delay)),
                    false => Due::after(*delay),
                };
                let made = self.tasks.create_many(vec![(task, due?)]).await?;
                armed(made[0].arming().row, made[0].due())
            }
            Verb::CreateInGroup { delay, last } => {
                let task = Task::from(key).payload(payload);
                let tag = GROUP.to_owned();
                let task = match *last {
                    None => task.tag(tag),
                    Some(if_dead) => task.after(After { tag, if_dead }),
                };
                let made = self.tasks.create(task, *delay).await?;
                armed(made.arming().row, made.due())
            }
            Verb::CreateMany { keys, delay } => {
                let tasks = keys.iter().map(|key| {
                    let key = TaskKey::parse(&self.keys[*key]).expect("a task key");
                    let due = Due::after(*delay).expect("a delay");
                    (Task::from(key).payload(payload.clone()), due)
                });
                let made = self.tasks.create_many(tasks.collect()).await?;
                let armings = made.iter().map(|made| (made.arming().row, made.due()));
                Answer::AllArmed(armings.collect())
            }
            Verb::Cancel => match self.tasks.cancel(key).await? {
                CancelAnswer::Cancelled => Answer::Cancelled,
                CancelAnswer::Running => Answer::Cancelling,
                answer => Answer::Other(format!("{answer:?}")),
            },
            Verb::Reschedule { delay } => match self.tasks.reschedule(key, *delay).await? {
                RescheduleAnswer::Moved(arming) => armed(arming.row, arming.due),
                answer => Answer::Other(format!("{answer:?}")),
            },
            Verb::RunNow => match self.tasks.run_now(key).await? {
                RunNowAnswer::Due(arming) => armed(arming.row, arming.due),
                answer => Answer::Other(format!("{answer:?}")),
            },
            Verb::Redrive => match self.tasks.redrive(key).await? {
                RunNowAnswer::Due(arming) => armed(arming.row, arming.due),
                answer => Answer::Other(format!("{answer:?}")),
            },
            Verb::CancelAll | Verb::RedriveAll => unreachable!("it is sent over HTTP"),
            Verb::Discard => Answer::Other(format!("{}", self.tasks.discard(key).await?)),
            Verb::Pause { lasts } => {
                let scope: Scope = class_of(text).parse().expect("a scope");
                let answer = match lasts {
                    None => self.tasks.pause(&scope, "simulator", "").await?,
                    Some(lasts) => {
                        let end = Due::after(*lasts).expect("it is short");
                        let pausing = self.tasks.pause_until(&scope, end, "simulator", "");
                        pausing.await?
                    }
                };
                Answer::Other(format!("{answer:?}"))
            }
            Verb::Resume => {
                let scope: Scope = class_of(text).parse().expect("a scope");
                let answer = self.tasks.resume(&scope).await?;
                Answer::Other(format!("{answer:?}"))
            }
            verb @ (Verb::KeySet { .. }
            | Verb::KeyExpire { .. }
            | Verb::KeyDelete
            | Verb::KeyPersist
            | Verb::WheelPush { .. }) => self.in_redis(verb, text, &payload).await,
            verb @ (Verb::RespSet { .. }
            | Verb::RespExpire { .. }
            | Verb::RespDelete
            | Verb::RespGet) => {
                let answer = self.over_resp(verb, text, &payload).await;
                answer.unwrap_or_else(|error| Answer::Failed(error.to_string()))
            }
            Verb::OldCreate { seconds } => {
                let (now, seconds) = (self.truth.clock().now(), *seconds);
                let create = move |store: &mut dyn Store| sql::old_create(store, key, now, seconds);
                let row = self.ledger.write(Length::Short, create).await?;
                self.in_redis(&op.verb, text, &payload).await;
                armed(row, sql::old_due(now, seconds))
            }
            Verb::OldDelete => {
                let delete = move |store: &mut dyn Store| sql::old_delete(store, &key);
                self.ledger.write(Length::Short, delete).await?;
                self.in_redis(&op.verb, text, &payload).await
            }
            Verb::SqlCancel => {
                let cancel = move |store: &mut dyn Store| sql::cancel(store, &key);
                self.ledger.write(Length::Short, cancel).await?;
                Answer::Other("written".into())
            }
            Verb::SqlCreate { delay } => {
                let due = self.truth.clock().now().plus(*delay);
                let create = move |store: &mut dyn Store| sql::create(store, key, due, payload);
                let row = self.ledger.write(Length::Short, create).await?;
                armed(row, due)
            }
        })
    }

    /// A program in another language sends a command, which a server that hangs carries out later.
    async fn in_redis(&self, verb: &Verb, key: &str, payload: &str) -> Answer {
        if let Some(redis) = &self.redis {
            redis.answers().await;
        }
        let now = self.truth.clock().now();
        let words = match verb {
            Verb::WheelPush { delay } => keyed::push(*delay, payload, now, self.slots),
            _ => keyed::command(self.timer, verb, key, now),
        };
        let reply = self.redis.as_ref().map(|redis| redis.execute(0, &words));
        Answer::Other(format!("{words:?}: {reply:?}"))
    }

    /// A Redis client sends a command to the RESP server.
    async fn over_resp(&self, verb: &Verb, key: &str, payload: &str) -> RedisResult<Answer> {
        let connection = self.connection.get_or_try_init(|| self.server.connect());
        let mut connection = connection.await?.clone();
        let ms = |delay: &Duration| delay.as_millis().max(1) as u64;
        let count = |count: u64, answer: Answer| match count {
            0 => Answer::NothingPending,
            _ => answer,
        };
        Ok(match verb {
            Verb::RespSet { delay } => {
                let mut set = cmd("SET");
                set.arg(key).arg(payload).arg("PX").arg(ms(delay));
                set.query_async::<()>(&mut connection).await?;
                Answer::Written
            }
            Verb::RespExpire { delay } => {
                let mut expire = cmd("PEXPIRE");
                expire.arg(key).arg(ms(delay));
                count(expire.query_async(&mut connection).await?, Answer::Written)
            }
            Verb::RespDelete => {
                let mut delete = cmd("DEL");
                delete.arg(key);
                count(
                    delete.query_async(&mut connection).await?,
                    Answer::Cancelled,
                )
            }
            _ => Answer::Payload(cmd("GET").arg(key).query_async(&mut connection).await?),
        })
    }
}

/// The handle of an engine that does not run, as the HTTP server needs one.
fn idle(ledger: Arc<dyn Ledger>, timer: Arc<dyn Timer>, config: &Config) -> Handle {
    let parts = engine::Parts {
        ledger,
        timer,
        membership: Arc::new(MemoryMembership::default()),
        limiter: Arc::new(MemoryLimiter::default()),
        router: Arc::new(Router::new(Handlers::new(), config)),
        metrics: Arc::default(),
        tracer: None,
    };
    Engine::with_parts(parts, config).handle()
}
