//! Lines of a page in a program that has a client of Redis.

use std::path::{Path, PathBuf};

use crate::support::registry;

const CLIENTS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/servers/resp_clients/programs"
);

/// A program with lines of a page.
pub struct Snippet {
    pub file: &'static str,
    pub text: String,
    /// What a shell runs in its directory.
    pub command: &'static str,
}

impl Snippet {
    /// A program in this language, as the fences of pages call it, with a client of a database of Redis.
    ///
    /// # Panics
    /// If tests have no client for the language.
    pub fn new(language: &str, lines: &str, port: u16, database: u8) -> Self {
        let (file, command, program) = match language {
            "php" => ("snippet.php", "php snippet.php", PHP),
            "python" => ("snippet.py", "python3 snippet.py", PYTHON),
            "js" => ("snippet.mjs", "node snippet.mjs", JS),
            "ruby" => ("snippet.rb", "ruby snippet.rb", RUBY),
            // Debian's packages of Go sources.
            "go" => (
                "snippet.go",
                "GOPATH=/usr/share/gocode GO111MODULE=off GOFLAGS= go run snippet.go",
                GO,
            ),
            _ => panic!("tests have no client of Redis for `{language}`"),
        };
        let text = program
            .replace("PORT", &port.to_string())
            .replace("DATABASE", &database.to_string())
            .replace("LINES", lines);
        Self {
            file,
            text,
            command,
        }
    }
}

const PHP: &str = "<?php
$redis = new Redis();
$redis->connect('127.0.0.1', PORT);
$redis->select(DATABASE);
LINES
";

const PYTHON: &str = "import redis
redis = redis.Redis(port=PORT, db=DATABASE)
LINES
";

const JS: &str = "import { createClient } from 'redis';
const redis = await createClient({ url: 'redis://127.0.0.1:PORT/DATABASE' }).connect();
LINES
await redis.close();
";

const RUBY: &str = "require 'redis'
redis = Redis.new(port: PORT, db: DATABASE)
LINES
";

/// The client of Debian is older than that of the pages, whose commands have a context.
const GO: &str = r#"package main

import (
	"context"
	"time"

	"gopkg.in/redis.v5"
)

type client struct{ *redis.Client }

func (c client) Set(_ context.Context, key string, value interface{}, after time.Duration) {
	if err := c.Client.Set(key, value, after).Err(); err != nil {
		panic(err)
	}
}

func main() {
	ctx := context.Background()
	rdb := client{redis.NewClient(&redis.Options{Addr: "127.0.0.1:PORT", DB: DATABASE})}
	LINES
}
"#;

/// Lets programs in this directory find what `npm install redis` and `pip install redis` bring. Returns the value of
/// `PYTHONPATH`.
pub fn install_clients(directory: &Path) -> PathBuf {
    let clients = Path::new(CLIENTS);
    let npm = registry::npm(&clients.join("node"));
    let modules = directory.join("node_modules");
    std::os::unix::fs::symlink(npm.join("node_modules"), modules).unwrap();
    registry::pip(&clients.join("redis_py")).join("packages")
}
