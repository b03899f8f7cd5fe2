//! Commands of pull workers: take tasks, and say how they ended.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::actor::Actor;
use super::command::{Command, Run, integer, is, milliseconds, syntax_error};
use super::error_code::ErrorCode;
use super::parser::Args;
use super::reply::Reply;
use super::server_state::ServerState;
use super::session::Session;
use lapsed::engine::{ClaimToken, Leased, PullError, PullQueues, Report};
use lapsed::ledger::{Progress, Renewal};
use lapsed::task::{JsonMember, RetryAdvice};
use lapsed_core::access::{AccessScope as Scope, Principal};

/// Most claims of one `LAPSED.RENEW`.
const RENEW_MAX: usize = 512;

/// How long a take waits at most. A worker that waits for longer asks again, and so shows that it is alive.
const BLOCK_MAX: Duration = Duration::from_secs(60);

const fn of_workers(
    name: &'static str,
    arity: i32,
    run: Run,
    usage: &'static str,
    summary: &'static str,
) -> Command {
    Command {
        name,
        arity,
        scope: Some(Scope::Work),
        run,
        keys: (0, 0, 0),
        summary,
        usage,
    }
}

/// The commands of this file.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    of_workers("lapsed.take", -2, Run::Blocking(take), "queue [COUNT count] [BLOCK milliseconds] [WORKER name]",
        "Takes tasks of a pull queue that are due, and leases them. Returns an array of maps, each with `claim`; empty if there is none, after a minute at the latest."),
    of_workers("lapsed.done", -2, Run::Joined(done), "claim [RESULT json]",
        "Completes a task."),
    of_workers("lapsed.fail", -3, Run::Joined(fail), "claim error [PERMANENT | RETRYAFTER milliseconds]",
        "Reports that a task failed. The retry policy of its route decides, unless an option does."),
    of_workers("lapsed.snooze", 3, Run::Joined(snooze), "claim milliseconds",
        "Has a task given out again after a delay. Not a failure."),
    of_workers("lapsed.release", 2, Run::Joined(release), "claim",
        "Gives a task back unused. No attempt is counted."),
    of_workers("lapsed.renew", -2, Run::Later(renew), "claim [claim ...] [PROGRESS percent [TEXT text]]",
        "Extends leases by the visibility of their route. Returns OK for one claim, and for several 1 (extended), 0 (lost) or -1 (locked now) each. PROGRESS says of one claim how far its task is."),
];

fn take(session: &Session, server: &Arc<ServerState>, args: Args<'_>) -> BoxFuture<'static, Reply> {
    let (asked, unsent) = (Asked::read(args), session.unsent.clone());
    let (queues, user) = (queues(server), session.user.clone());
    async move {
        let taken = async {
            let Asked {
                queue,
                count,
                block,
                worker,
            } = asked?;
            let (queues, user) = (queues?, user.as_ref());
            let classes = user.map_or(&[][..], |user| &user.classes);
            let taken = queues.take_of(classes, &queue, count, block, &worker);
            let taken = taken.await;
            taken.map_err(|error| failure(&error))
        };
        match taken.await {
            Ok(taken) => {
                let reply = Reply::Array(taken.tasks().iter().map(described).collect());
                // Given back if the reply cannot be written.
                unsent.add(taken);
                reply
            }
            Err(error) => error,
        }
    }
    .boxed()
}

/// The arguments of `LAPSED.TAKE`.
struct Asked {
    queue: String,
    count: usize,
    /// `None` does not wait.
    block: Option<Duration>,
    worker: String,
}

impl Asked {
    fn read(args: Args<'_>) -> Result<Self, Reply> {
        let mut asked = Self {
            queue: text(args.get(1))?,
            count: 1,
            block: None,
            worker: String::new(),
        };
        let mut options = args.from(2);
        while let Some(option) = options.next() {
            let value = options.next().ok_or_else(syntax_error)?;
            match option {
                option if is(option, "COUNT") => {
                    asked.count = usize::try_from(integer(value)?).unwrap_or(0);
                }
                option if is(option, "BLOCK") => asked.block = Some(block(value)?),
                option if is(option, "WORKER") => asked.worker = text(Some(value))?,
                _ => return Err(syntax_error()),
            }
        }
        Ok(asked)
    }
}

/// Reads the time to wait. As with Redis' own commands, 0 waits for as long as possible.
fn block(value: &[u8]) -> Result<Duration, Reply> {
    match u64::try_from(milliseconds(value)?) {
        Ok(0) => Ok(BLOCK_MAX),
        Ok(ms) => Ok(Duration::from_millis(ms).min(BLOCK_MAX)),
        Err(_) => Err(Reply::err("timeout is negative")),
    }
}

/// A task, with the members of the JSON that targets receive, and its claim.
fn described(leased: &Leased) -> Reply {
    let Leased { claim, task } = leased;
    let reply = |value| match value {
        None => Reply::Null,
        Some(JsonMember::Text(text)) => Reply::Text(text),
        Some(JsonMember::Number(number)) => Reply::Int(i64::try_from(number).unwrap_or(i64::MAX)),
        Some(JsonMember::Texts(texts)) => {
            Reply::Array(texts.into_iter().map(Reply::Text).collect())
        }
        Some(JsonMember::Flag(flag)) => Reply::Int(flag.into()),
    };
    let members = task.json().members().into_iter();
    let members = members.map(|(name, value)| (Reply::Static(name), reply(value)));
    let claim = (Reply::Static("claim"), Reply::Text(claim.to_string()));
    Reply::Map(members.chain([claim]).collect())
}

fn done(session: &Session, server: &Arc<ServerState>, args: Args<'_>) -> BoxFuture<'static, Reply> {
    let report = match (args.get(2), args.get(3), args.len()) {
        (None, ..) => Ok(Report::Done { result: None }),
        (Some(option), json @ Some(_), 4) if is(option, "RESULT") => {
            text(json).map(|json| Report::Done { result: Some(json) })
        }
        _ => Err(syntax_error()),
    };
    settle(session, server, args, report)
}

fn fail(session: &Session, server: &Arc<ServerState>, args: Args<'_>) -> BoxFuture<'static, Reply> {
    let advice = match (args.get(3), args.get(4), args.len()) {
        (None, ..) => Ok(RetryAdvice::ByPolicy),
        (Some(option), None, 4) if is(option, "PERMANENT") => Ok(RetryAdvice::Never),
        (Some(option), Some(ms), 5) if is(option, "RETRYAFTER") || is(option, "RETRY-AFTER") => {
            delay(ms).map(RetryAdvice::After)
        }
        _ => Err(syntax_error()),
    };
    let report = advice.map(|advice| Report::Failed {
        error: String::from_utf8_lossy(args.get(2).unwrap_or_default()).into_owned(),
        advice,
    });
    settle(session, server, args, report)
}

fn snooze(
    session: &Session,
    server: &Arc<ServerState>,
    args: Args<'_>,
) -> BoxFuture<'static, Reply> {
    let report = delay(args.get(2).unwrap_or_default()).map(Report::Snoozed);
    settle(session, server, args, report)
}

fn release(
    session: &Session,
    server: &Arc<ServerState>,
    args: Args<'_>,
) -> BoxFuture<'static, Reply> {
    settle(session, server, args, Ok(Report::Released))
}

fn settle(
    session: &Session,
    server: &Arc<ServerState>,
    args: Args<'_>,
    report: Result<Report, Reply>,
) -> BoxFuture<'static, Reply> {
    let (text, queues) = (args.get(1).unwrap_or_default().to_vec(), queues(server));
    let (user, address, server) = (session.user.clone(), session.address, Arc::clone(server));
    async move {
        let settled = async {
            let (report, queues) = (report?, queues?);
            let claim = claim(&queues, &text).await;
            let claim = claim.map_err(|error| failure(&error))?;
            require_claim(user.as_deref(), &claim)?;
            let has_failed = matches!(report, Report::Failed { .. });
            let settled = queues.settle(&claim, report).await;
            settled.map_err(|error| failure(&error))?;
            let actor = Actor::new(&server, user.as_deref(), address);
            if has_failed
                && actor.is_audited()
                && server.tasks.has_died(claim.key(), claim.arming()).await
            {
                actor.changed([("fail", claim.key())]);
            }
            Ok(())
        };
        settled.await.map_or_else(|error| error, |()| Reply::OK)
    }
    .boxed()
}

fn renew(
    session: &Session,
    server: &Arc<ServerState>,
    args: Args<'_>,
) -> BoxFuture<'static, Reply> {
    let asked = Renewed::read(args);
    let (queues, user) = (queues(server), session.user.clone());
    async move {
        let renewed = async {
            let Renewed {
                claims: texts,
                progress,
            } = asked?;
            let queues = queues?;
            let claims = read_all(&queues, &texts).await;
            let claims = claims.map_err(|error| failure(&error))?;
            let mut read = claims.iter().flatten();
            read.try_for_each(|claim| require_claim(user.as_deref(), claim))?;
            let renewed = renew_all(&queues, claims, progress).await;
            renewed.map_err(|error| failure(&error))
        };
        match renewed.await {
            Ok(one) if one.len() == 1 => match one[0] {
                Renewal::Held => Reply::OK,
                Renewal::Lost => Reply::error(ErrorCode::Fenced, "claim was lost"),
                Renewal::Locked => {
                    Reply::error(ErrorCode::TryAgain, "row is locked by another session")
                }
            },
            Ok(several) => Reply::Array(several.into_iter().map(number).collect()),
            Err(error) => error,
        }
    }
    .boxed()
}

/// The arguments of `LAPSED.RENEW`.
struct Renewed {
    claims: Vec<Vec<u8>>,
    /// Of the only claim.
    progress: Option<Progress>,
}

impl Renewed {
    fn read(args: Args<'_>) -> Result<Self, Reply> {
        let is_claim = |arg: &&[u8]| !is(arg, "PROGRESS");
        let claims: Vec<Vec<u8>> = args
            .from(1)
            .take_while(is_claim)
            .map(<[u8]>::to_vec)
            .collect();
        let mut options = args.from(1 + claims.len()).skip(1);
        let progress = match (
            options.next(),
            options.next(),
            options.next(),
            options.next(),
        ) {
            _ if claims.len() == args.len() - 1 => None,
            (Some(percent), None, ..) => Some(progress(percent, b"")?),
            (Some(percent), Some(option), Some(text), None) if is(option, "TEXT") => {
                Some(progress(percent, text)?)
            }
            _ => return Err(syntax_error()),
        };
        match claims.len() {
            0 => Err(syntax_error()),
            2.. if progress.is_some() => Err(Reply::err("expected one claim with PROGRESS")),
            1..=RENEW_MAX => Ok(Self { claims, progress }),
            _ => Err(Reply::err(format_args!(
                "expected at most {RENEW_MAX} claims"
            ))),
        }
    }
}

fn progress(percent: &[u8], said: &[u8]) -> Result<Progress, Reply> {
    Progress::new(integer(percent)?, &text(Some(said))?).map_err(Reply::err)
}

/// Reads claim tokens. `None` for one that was changed.
async fn read_all(
    queues: &PullQueues,
    texts: &[Vec<u8>],
) -> Result<Vec<Option<ClaimToken>>, PullError> {
    let mut claims: Vec<Option<ClaimToken>> = Vec::with_capacity(texts.len());
    for text in texts {
        claims.push(match claim(queues, text).await {
            Ok(claim) => Some(claim),
            Err(PullError::Forged) => None,
            Err(error) => return Err(error),
        });
    }
    Ok(claims)
}

/// Renews claims. A token that was changed is a claim that is lost.
async fn renew_all(
    queues: &PullQueues,
    claims: Vec<Option<ClaimToken>>,
    progress: Option<Progress>,
) -> Result<Vec<Renewal>, PullError> {
    if let (Some(progress), [Some(claim)]) = (&progress, &claims[..]) {
        return Ok(vec![queues.report(claim, progress.clone()).await?]);
    }
    let good: Vec<ClaimToken> = claims.iter().flatten().cloned().collect();
    let mut renewed = queues.renew(&good).await?.into_iter();
    let renewal = |claim: Option<ClaimToken>| claim.and_then(|_| renewed.next());
    Ok(claims
        .into_iter()
        .map(renewal)
        .map(|renewal| renewal.unwrap_or(Renewal::Lost))
        .collect())
}

/// Rejects a report about the task of a claim that the user may not touch.
fn require_claim(user: Option<&Principal>, claim: &ClaimToken) -> Result<(), Reply> {
    let checked = user.map_or(Ok(()), |user| user.require_key(claim.key()));
    checked.map_err(|denied| Reply::denied(&denied))
}

fn number(renewal: Renewal) -> Reply {
    Reply::Int(match renewal {
        Renewal::Held => 1,
        Renewal::Lost => 0,
        Renewal::Locked => -1,
    })
}

fn queues(server: &ServerState) -> Result<PullQueues, Reply> {
    let queues = server.workers.clone();
    queues.ok_or_else(|| Reply::err("no engine runs in this process"))
}

async fn claim(queues: &PullQueues, text: &[u8]) -> Result<ClaimToken, PullError> {
    match std::str::from_utf8(text) {
        Ok(text) => queues.claim(text).await,
        Err(_) => Err(PullError::Forged),
    }
}

fn delay(ms: &[u8]) -> Result<Duration, Reply> {
    let ms = u64::try_from(milliseconds(ms)?);
    ms.map(Duration::from_millis)
        .map_err(|_| Reply::err("delay is negative"))
}

fn text(arg: Option<&[u8]>) -> Result<String, Reply> {
    let text = std::str::from_utf8(arg.unwrap_or_default());
    text.map(str::to_owned)
        .map_err(|_| Reply::err("expected UTF-8"))
}

fn failure(error: &PullError) -> Reply {
    match error {
        PullError::Fenced(_) | PullError::Forged => Reply::error(ErrorCode::Fenced, error),
        PullError::NotYet | PullError::NotRunning => Reply::error(ErrorCode::TryAgain, error),
        PullError::Ledger(ledger) if ledger.is_transient() => {
            Reply::error(ErrorCode::TryAgain, error)
        }
        _ => Reply::err(error),
    }
}
