//! The program: parses the command line and calls the library.

#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used)]
// They panic when stdout or stderr cannot be written: see `cli::log` and `cli::output`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod cli;

use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            cli::write_line(format_args!("error: start runtime: {error}"));
            return ExitCode::from(cli::EXIT_FAILED);
        }
    };
    let code = runtime.block_on(cli.run());
    // A handler that blocks its thread must not keep the program from ending.
    runtime.shutdown_background();
    code
}
