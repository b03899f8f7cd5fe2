use std::io;
use std::process::ExitStatus;

/// Error of a private server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the error texts say it")]
pub enum SandboxError {
    #[error("`{program}` was not found{}; install it with `apt-get install {package}`", in_path(.program))]
    Missing {
        program: String,
        package: &'static str,
    },
    #[error("cannot {action}")]
    Io {
        action: String,
        #[source]
        source: io::Error,
    },
    #[error("`{program}` ended with {status} before it was ready; its log ends with:\n{log}")]
    Ended {
        program: String,
        status: ExitStatus,
        log: String,
    },
    #[error("`{program}` was not ready after {seconds} s; its log ends with:\n{log}")]
    NotReady {
        program: String,
        seconds: u64,
        log: String,
    },
    #[error("`{program}` was still running {seconds} s after it was asked to stop")]
    NotStopped { program: String, seconds: u64 },
    #[error("`{program}` is not running")]
    NotRunning { program: String },
    #[error("it took longer than {seconds} s until {what}")]
    Late { what: &'static str, seconds: u64 },
    #[error("this machine allows no private network: {reason}")]
    NoNetwork { reason: String },
    #[error("cannot run `{command}`")]
    Redis {
        command: String,
        #[source]
        source: redis::RedisError,
    },
    #[error("the private database refused a statement")]
    Sql(#[from] sqlx::Error),
}

impl SandboxError {
    /// Wraps an I/O error: `.map_err(SandboxError::io(|| "read `x`"))`.
    pub(super) fn io<A: Into<String>>(
        action: impl FnOnce() -> A,
    ) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            action: action().into(),
            source,
        }
    }
}

impl SandboxError {
    /// Wraps an error of Redis.
    pub(super) fn redis(
        command: impl FnOnce() -> String,
    ) -> impl FnOnce(redis::RedisError) -> Self {
        move |source| Self::Redis {
            command: command(),
            source,
        }
    }
}

fn in_path(program: &str) -> &'static str {
    if program.contains('/') {
        ""
    } else {
        " in PATH"
    }
}
