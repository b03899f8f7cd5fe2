//! A run: load with faults, then none, then the verdict.

mod load;
mod meter;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use self::load::Load;
use self::meter::{Meter, Rows};
use crate::file_rig::{self, FileRig};
use crate::history::{History, Ms, Row, Window};
use crate::judge::judge;
use crate::mysql_rig::{self, Carried, LEASE_MS, MysqlRig};
use crate::options::{Ledger, Options};
use crate::plan::{Fault, Plan};
use crate::report::Outcome;
use crate::target::Record;

/// After the last fault, everything must have ended within this time.
const DRAIN: Duration = Duration::from_secs(120);

/// A pause of this program that counts as one of the machine.
const STALL_MS: Ms = 400;

/// The rig of a ledger.
enum Rig {
    Mysql(Box<MysqlRig>),
    File(Box<FileRig>),
}

impl Rig {
    async fn carry_out(&mut self, fault: Fault, plan: &mut Plan) -> anyhow::Result<Carried> {
        match self {
            Self::Mysql(rig) => rig.carry_out(fault, plan).await,
            Self::File(rig) => rig.carry_out(fault, plan).await,
        }
    }

    /// Checks that no daemon has ended by itself.
    fn check(&mut self) -> anyhow::Result<()> {
        let daemons = match self {
            Self::Mysql(rig) => &mut rig.daemons[..],
            Self::File(rig) => std::slice::from_mut(&mut rig.daemon),
        };
        for daemon in daemons {
            anyhow::ensure!(
                daemon.is_alive(),
                "daemon {} has ended: {}",
                daemon.number,
                daemon.logged()
            );
        }
        Ok(())
    }

    async fn unfinished(&self) -> anyhow::Result<i64> {
        match self {
            Self::Mysql(rig) => mysql_rig::unfinished(&rig.sql).await,
            Self::File(rig) => file_rig::unfinished(&rig.file),
        }
    }

    async fn rows(&self) -> anyhow::Result<BTreeMap<String, Row>> {
        match self {
            Self::Mysql(rig) => rig.rows().await,
            Self::File(rig) => rig.rows(),
        }
    }

    /// Measures the first daemon.
    fn meter(&self) -> Meter {
        let (daemons, rows) = match self {
            Self::Mysql(rig) => (&rig.daemons[..], Rows::Sql(rig.sql.clone())),
            Self::File(rig) => (
                std::slice::from_ref(&rig.daemon),
                Rows::File(rig.file.clone()),
            ),
        };
        Meter {
            pid: daemons[0].pid().unwrap_or_default(),
            logs: daemons.iter().map(|daemon| daemon.log.clone()).collect(),
            rows,
        }
    }

    fn record(&self) -> &Record {
        match self {
            Self::Mysql(rig) => &rig.record,
            Self::File(rig) => &rig.record,
        }
    }
}

/// Runs load and faults on one ledger, and judges what happened.
///
/// # Errors
/// If a server or a daemon does not start, or a daemon ends by itself.
pub async fn run(ledger: Ledger, options: &Options) -> anyhow::Result<Outcome> {
    let began = Instant::now();
    let mut all = match ledger {
        Ledger::Mysql => Fault::of_servers(),
        Ledger::File => Fault::of_file(),
    };
    if options.measured {
        all.retain(|fault| fault.leaves_one_alive(ledger == Ledger::File));
    }
    let mut plan = Plan::new(options.seed, all);
    let (mut rig, load) = match ledger {
        Ledger::Mysql => {
            let mut rig = Box::new(MysqlRig::start(&options.program, options.daemons).await?);
            rig.spared = usize::from(options.measured);
            let load = Load::on_mysql(&rig, options).await?;
            (Rig::Mysql(rig), load)
        }
        Ledger::File => {
            let rig = Box::new(FileRig::start(&options.program).await?);
            let load = Load::on_file(&rig, options).await?;
            (Rig::File(rig), load)
        }
    };
    let stalls = load.watch_machine(STALL_MS);
    let samples = options
        .measured
        .then(|| tokio::spawn(rig.meter().measure(load.ended())));
    let mut windows: Vec<Window> = Vec::new();
    let (mut faults, mut missed) = (BTreeMap::new(), 0);
    let mut given = options.faults.clone().map(Vec::into_iter);
    while began.elapsed() < options.time && load.stories.count() < options.tasks as usize {
        let (least, most) = ledger.rest_ms();
        sleep(plan.time(least, most)).await;
        let fault = match &mut given {
            None => plan.next_fault(),
            Some(given) => match given.next() {
                Some(fault) => fault,
                None => break,
            },
        };
        let carried = rig.carry_out(fault, &mut plan).await?;
        windows.extend(carried.windows);
        carried
            .stories
            .into_iter()
            .for_each(|(key, story)| load.stories.add(key, story));
        match carried.happened {
            true => *faults.entry(fault.name()).or_insert(0) += 1,
            false => missed += 1,
        }
        rig.check()?;
    }
    load.stop().await;
    let deadline = Instant::now() + DRAIN;
    let mut quiet = 0;
    // Bare keys may still wait in Redis: the latest is due in 7 s.
    while Instant::now() < deadline && quiet < 16 {
        sleep(Duration::from_millis(500)).await;
        quiet = if rig.unfinished().await? == 0 {
            quiet + 1
        } else {
            0
        };
    }
    load.working.store(true, Ordering::Relaxed);
    let samples = match samples {
        Some(samples) => samples.await?,
        None => Vec::new(),
    };
    windows.extend(std::mem::take(&mut *load.windows.lock().expect("no panic")));
    windows.extend(stalls.await?);
    let history = History {
        keys: load.stories.take(),
        runs: rig.record().read()?,
        windows,
        rows: rig.rows().await?,
        lease_ms: LEASE_MS,
    };
    let verdict = judge(&history);
    Ok(Outcome {
        ledger,
        verdict,
        faults,
        missed,
        time: began.elapsed(),
        samples,
    })
}
