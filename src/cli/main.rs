//! The program: parses the command line and runs the command.

#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used)]
// They panic when stdout or stderr cannot be written: see `log` and `output`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use clap::Parser;
use lapsed_cli::{Cli, EXIT_FAILED, write_line};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            write_line(format_args!("error: start runtime: {error}"));
            return ExitCode::from(EXIT_FAILED);
        }
    };
    let code = runtime.block_on(cli.run());
    // A handler that blocks its thread must not keep the program from ending.
    runtime.shutdown_background();
    code
}
