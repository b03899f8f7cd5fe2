//! `make faults`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use lapsed_faults::{Ledger, Options, run};

/// Runs daemons on private servers under load and faults, and checks what happened
#[derive(Parser)]
struct Arguments {
    /// Decides the faults and the load
    #[arg(long, env = "SEED")]
    seed: Option<u64>,
    /// Length of the load
    #[arg(long, env = "FAULTS_SECONDS", default_value_t = 300)]
    seconds: u64,
    /// End the load after this number of tasks on each ledger
    #[arg(long, env = "FAULTS_TASKS", default_value_t = u64::MAX)]
    tasks: u64,
    /// Tasks a second on MariaDB; half as many on the file
    #[arg(long, default_value_t = 200)]
    rate: u64,
    /// Daemons on MariaDB
    #[arg(long, default_value_t = 3)]
    daemons: usize,
    /// The program `lapsed`; default: beside this one
    #[arg(long)]
    program: Option<PathBuf>,
    /// Leave one daemon on each ledger alive and measure it; write tables and pictures into this directory
    #[arg(long)]
    measure: Option<PathBuf>,
    /// One ledger: `mysql` or `file`
    #[arg(long)]
    only: Option<String>,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let program = match arguments.program {
        Some(program) => program,
        None => std::env::current_exe()?.with_file_name("lapsed"),
    };
    anyhow::ensure!(
        program.is_file(),
        "`{}` is missing: cargo build --package lapsed-cli",
        program.display()
    );
    let seed = arguments
        .seed
        .unwrap_or_else(|| lapsed::clock::wall().0.cast_unsigned());
    println!("faults: SEED={seed}");
    let options = Options {
        program,
        seed,
        time: Duration::from_secs(arguments.seconds),
        tasks: arguments.tasks,
        rate: arguments.rate,
        daemons: arguments.daemons,
        faults: None,
        measured: arguments.measure.is_some(),
    };
    let on_file = Options {
        rate: options.rate / 2,
        ..options.clone()
    };
    let only = arguments.only.as_deref();
    let mysql = async {
        if only == Some("file") {
            Ok(None)
        } else {
            run(Ledger::Mysql, &options).await.map(Some)
        }
    };
    let file = async {
        if only == Some("mysql") {
            Ok(None)
        } else {
            run(Ledger::File, &on_file).await.map(Some)
        }
    };
    let (mysql, file) = tokio::join!(mysql, file);
    let mut is_well = true;
    for outcome in [mysql.context("on MariaDB")?, file.context("on a file")?]
        .into_iter()
        .flatten()
    {
        print!("{}", outcome.text());
        if let Some(directory) = &arguments.measure {
            outcome
                .write_to(directory)
                .context("write what was measured")?;
        }
        is_well &= outcome.is_well();
    }
    println!(
        "faults: {}",
        if is_well {
            "no promise was broken"
        } else {
            "a promise was broken"
        }
    );
    Ok(ExitCode::from(u8::from(!is_well)))
}
