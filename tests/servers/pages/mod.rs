//! Readers who follow the pages of the documentation to the letter: each page is a test, which types its commands, saves its
//! files, sends its SQL, and compares what is printed.
//!
//! `snapshots/pages.txt` lists what becomes of every block of code.

pub mod block;
mod machine;
mod printed;
mod reader;

use std::collections::BTreeMap;

use self::block::{all_pages, blocks};
use self::reader::Page;
use crate::support::snapshot::assert_snapshot;

const WEBHOOK_KEY: (&str, &str) = ("webhook.key", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");

/// A reader who has Redis and MySQL.
const SERVERS: (&str, &str) = (
    "lapsed.toml",
    "redis.url = 'redis://127.0.0.1:6379/0'\nledger.url = 'mysql://root@127.0.0.1:3306/lapsed_try'\n",
);

/// Also a route.
const LOGGED: (&str, &str) = (
    "lapsed.toml",
    "redis.url = 'redis://127.0.0.1:6379/0'\nledger.url = 'mysql://root@127.0.0.1:3306/lapsed_try'\n\
     [[routes]]\nmatch = '.'\nlog = {}\n",
);

/// A route of orders alone.
const ORDERS: (&str, &str) = (
    "lapsed.toml",
    "redis.url = 'redis://127.0.0.1:6379/0'\nledger.url = 'mysql://root@127.0.0.1:3306/lapsed_try'\n\
     [[routes]]\nmatch = '^Order@'\nlog = {}\n",
);

/// What a reader has typed who has a configuration.
const DAEMON: &str = "lapsed migrate\nlapsed listen";

/// The program is there already: this test has built it.
const CARGO_INSTALL: (&str, &str) = ("cargo", "[ \"$*\" = 'install --locked --path src/cli' ]");

/// What `scripts/package` builds, but with this program, which is then not where tests have it.
const PACKAGES: &str = concat!(
    "strip -o ../lapsed $(realpath ../bin/lapsed)\n",
    env!("CARGO_MANIFEST_DIR"),
    "/../../scripts/package --program ../lapsed target/package
    rm ../lapsed"
);

/// What a reader of packages has, who has no other `lapsed`.
const PACKAGE_MANAGERS: &str = "rm ../bin/lapsed
    ! command -v lapsed
    export npm_config_cache=$PWD/../npm npm_config_update_notifier=false npm_config_audit=false npm_config_fund=false
    export COMPOSER_HOME=$PWD/../composer COMPOSER_ALLOW_SUPERUSER=1 PIP_DISABLE_PIP_VERSION_CHECK=1
    echo '{}' > composer.json
    composer config --global repo.packagist false";

/// A Docker that needs no rights to start a container.
const DOCKER: (&str, &str) = (
    "docker",
    concat!(
        "exec python3 '",
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/servers/pages/docker.py' \"$@\""
    ),
);

/// Where pages tell their reader to be.
const ROOT: &str = concat!("cd '", env!("CARGO_MANIFEST_DIR"), "/../..'");

macro_rules! pages {
    ($($name:ident: $page:expr;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                $page.read().await;
            }
        )*

        /// The pages that are read.
        const PAGES: &[Page] = &[$($page),*];
    };
}

pages! {
    readme: Page {
        programs: &[CARGO_INSTALL],
        ..Page::new("README.md")
    };
    install: Page {
        before: PACKAGES,
        // The modules of the reader are those of other tests, too.
        first: &[
            ("pip install --quiet", PACKAGE_MANAGERS),
            ("npm install --save-dev", "mkdir shop; cd shop; ln -s ../target target; echo '{}' > package.json"),
            ("createClient", "cd .."),
        ],
        ..Page::new("docs/install.md")
    };
    readme_in_chinese: Page {
        programs: &[CARGO_INSTALL],
        ..Page::new("README.zh-CN.md")
    };
    quickstart_php: Page::new("docs/quickstart-php.md");
    quickstart_php_in_chinese: Page::new("docs/zh-CN/quickstart-php.md");
    expired_key_listener: Page::new("docs/zh-CN/expired-key-listener.md");
    quickstart_node: Page::new("docs/quickstart-node.md");
    quickstart_python: Page::new("docs/quickstart-python.md");
    scheduling: Page {
        files: &[LOGGED, ("tasks.ndjson", r#"{"key": "Order@close@7", "in": "30m"}"#)],
        before: "lapsed migrate\nlapsed listen",
        ..Page::new("docs/scheduling.md")
    };
    timers: Page {
        files: &[LOGGED],
        before: "lapsed migrate
            lapsed listen
            lapsed schedule Order@close@1 --in 8s
            lapsed schedule Order@close@2 --in 9s
            redis-cli SETEX Order@close@3 10 ''
            until lapsed show Order@close@3; do sleep 0.1; done",
        first: &[("lapsed rearm", "sed -i '1i timer = \"sorted_set\"' lapsed.toml")],
        then: "until [ $(lapsed list --state done | grep -c ' Order@close@') = 3 ]; do sleep 0.1; done",
        ..Page::new("docs/timers.md")
    };
    moving: Page {
        files: &[("lapsed.toml", "timer = 'ledger_poll'\nledger.url = 'sqlite://./lapsed.db'\n")],
        before: "lapsed migrate
            lapsed listen
            lapsed schedule Order@close@1 --in 1h
            lapsed schedule Order@close@2 --in 8s",
        means: &[("lapsed:secret@127.0.0.1:3306/shop", "root@127.0.0.1:3306/lapsed_try")],
        then: "lapsed --config new.toml listen
            until lapsed --config new.toml list --state done | grep ' Order@close@2 '; do sleep 0.1; done
            lapsed --config new.toml list --state pending | grep ' Order@close@1 '",
        ..Page::new("docs/moving.md")
    };
    time_wheel: Page {
        files: &[SERVERS, ("send-msg.php", "<?php file_put_contents('ran', stream_get_contents(STDIN));")],
        before: "lapsed migrate
            lapsed doctor",
        then: "redis-cli RPUSH task_$(( ($(date +%s) + 3) % 3600 )) '{\"method\":\"send_msg\",\"params\":[7],\"cycle_num\":0}'
            until grep '\"payload\":\\[7\\]' ran; do sleep 0.1; done",
        ..Page::new("docs/coming-from/time-wheel.md")
    };
    sorted_set: Page {
        files: &[SERVERS, ("order-timeout.php", "<?php file_put_contents('ran', $argv[1]);")],
        then: "lapsed migrate
            lapsed doctor
            redis-cli ZADD order $(( $(date +%s) + 3 )) 42
            lapsed listen
            until grep 42 ran; do sleep 0.1; done",
        ..Page::new("docs/coming-from/sorted-set.md")
    };
    sorted_set_and_table: Page {
        files: &[SERVERS],
        before: "mariadb -h127.0.0.1 -uroot lapsed_try -e 'CREATE TABLE delay_queue (status INT, created TIMESTAMP)'",
        ..Page::new("docs/coming-from/sorted-set-and-table.md")
    };
    benchmark: Page::new("docs/benchmark.md");
    jobs_table: Page::new("docs/coming-from/jobs-table.md");
    asynq: Page {
        files: &[WEBHOOK_KEY],
        means: &[("/etc/lapsed/", "")],
        ..Page::new("docs/coming-from/asynq.md")
    };
    celery: Page::new("docs/coming-from/celery.md");
    php_frameworks: Page::new("docs/coming-from/php-frameworks.md");
    sidekiq: Page {
        files: &[WEBHOOK_KEY],
        means: &[("/etc/lapsed/", "")],
        ..Page::new("docs/coming-from/sidekiq.md")
    };
    rabbitmq_delayed: Page {
        files: &[SERVERS],
        before: DAEMON,
        ..Page::new("docs/coming-from/rabbitmq-delayed.md")
    };
    redisson: Page {
        files: &[SERVERS],
        before: DAEMON,
        ..Page::new("docs/coming-from/redisson.md")
    };
    xxl_job: Page {
        files: &[SERVERS],
        before: DAEMON,
        ..Page::new("docs/coming-from/xxl-job.md")
    };
    resp: Page {
        files: &[SERVERS],
        before: "lapsed migrate
            lapsed listen",
        first: &[("[[resp.users]]", "printf %s 'a long password' | lapsed hash-password > shop.hash")],
        means: &[("/run/secrets/", "")],
        ..Page::new("docs/resp.md")
    };
    pull_workers: Page {
        files: &[SERVERS],
        before: "lapsed migrate
            lapsed listen",
        ..Page::new("docs/pull-workers.md")
    };
    errors: Page::new("docs/errors.md");
    http: Page {
        before: "lapsed dev",
        ..Page::new("docs/http.md")
    };
    recurring: Page {
        files: &[LOGGED],
        before: "lapsed migrate",
        first: &[("recurring task started", "lapsed listen")],
        ..Page::new("docs/recurring.md")
    };
    operations: Page {
        files: &[LOGGED],
        before: "lapsed migrate
            lapsed listen
            until curl -fsS http://127.0.0.1:8787/readyz; do sleep 0.1; done",
        ..Page::new("docs/operations.md")
    };
    flow_control: Page {
        files: &[LOGGED],
        before: "lapsed migrate
            lapsed schedule Mail@send@1 --in 0s
            lapsed schedule Order@close@1 --in 0s
            lapsed schedule Order@close@2 --in 1h",
        ..Page::new("docs/flow-control.md")
    };
    production: Page {
        files: &[ORDERS],
        before: "export TOKEN=0123456789abcdef0123456789abcdef
            export LAPSED__HTTP__TOKENS=\"['$TOKEN']\"
            lapsed migrate
            lapsed listen
            until curl -fsS http://127.0.0.1:8787/readyz; do sleep 0.1; done",
        ..Page::new("docs/production.md")
    };
    alerts: Page {
        files: &[("chat-url", "https://hooks.example/services/1")],
        means: &[("/run/secrets/", "")],
        ..Page::new("docs/alerts.md")
    };
    access: Page::new("docs/access.md");
    pausing: Page {
        files: &[LOGGED],
        before: "lapsed migrate
            lapsed listen",
        first: &[
            ("lapsed pause Invoice@send && lapsed run", "lapsed schedule Invoice@send@7 --in 1h"),
            ("--hold-overdue", "lapsed resume Invoice@send
                lapsed cancel --class Invoice
                for n in 101 103 105; do
                    lapsed schedule Order@close@$n --at $(date -ud \"-$((3600 - n)) sec\" +%Y-%m-%dT%H:%M:%SZ)
                    lapsed schedule Invoice@send@$((n + 1)) --at $(date -ud \"-$((3599 - n)) sec\" +%Y-%m-%dT%H:%M:%SZ)
                done"),
        ],
        ..Page::new("docs/pausing.md")
    };
    retention: Page {
        files: &[ORDERS],
        before: "lapsed migrate
            lapsed listen
            for n in 1 2 3; do lapsed schedule Order@close@$n --in 0s; done
            until [ $(lapsed list --state done | grep -c ' Order@close@') = 3 ]; do sleep 0.1; done
            mariadb -h127.0.0.1 -uroot lapsed_try -e 'UPDATE tb_time_limit_task SET finished_at = finished_at - 700000, end_time = end_time - 700000, start_time = start_time - 700000'",
        first: &[("jq .result", "lapsed listen
            lapsed schedule Report@build@1 --in 0s
            until lapsed list --state done | grep ' Report@build@1 '; do sleep 0.1; done")],
        ..Page::new("docs/retention.md")
    };
    retries: Page {
        files: &[
            ("lapsed.toml", "redis.url = 'redis://127.0.0.1:6379/0'\nledger.url = 'mysql://root@127.0.0.1:3306/lapsed_try'\n\
                [[routes]]\nmatch = '^Mail@'\nexec = ['sh', '-c', 'echo connection refused >&2; exit 75']\n\
                retry = { backoff = 'fixed', delay = '700ms', jitter = 0.0, max_attempts = 3 }\n"),
            ("broken.toml", "retry.deadline = '0s'\n[[routes]]\nmatch = '^Mail@'\nlog = {}\nexpire_after = 24\n\
                retry = { backoff = 'fixed', base = '2s' }\n"),
        ],
        before: "lapsed migrate
            lapsed listen
            lapsed schedule Mail@send@7 --in 0s
            lapsed schedule Mail@send@8 --in 0s
            until [ $(lapsed list --state dead | grep -c ' Mail@send@') = 2 ]; do sleep 0.1; done",
        ..Page::new("docs/retries-and-dead-letters.md")
    };
    tasks: Page {
        files: &[LOGGED, ("mail.json", "{}")],
        before: "lapsed migrate",
        ..Page::new("docs/tasks.md")
    };
    troubleshooting: Page {
        files: &[("lapsed.toml", "redis.url = 'redis://127.0.0.1:6379/0'\nledger.url = 'mysql://root@127.0.0.1:3306/lapsed_try'\n\
            [[routes]]\nmatch = '^Gone@'\nexec = ['/no/such/program']\n\
            [[routes]]\nmatch = '^Order@close(@|$)'\nexec = ['sh', '-c', 'echo on stderr >&2; exit 75']\nretry = { max_attempts = 1 }\n")],
        before: "lapsed migrate
            redis-cli CONFIG SET notify-keyspace-events Exg
            lapsed schedule Order@close@42 --in 1h",
        first: &[
            ("built-in defaults", "mv lapsed.toml aside.toml"),
            ("Order@nothere@1", "mv aside.toml lapsed.toml"),
            ("Order@close@0", "lapsed cancel Order@nothere@1
                lapsed schedule Order@close@0 --in 0s; sleep 0.1"),
            (" Order@close  paused ", "lapsed pause Order@close --reason test"),
            ("not a key", "lapsed cancel --class Order
                lapsed resume Order@close
                mariadb -h127.0.0.1 -uroot lapsed_try -e \"INSERT INTO tb_time_limit_task (\\`key\\`, start_time, end_time) VALUES ('not a key', 1, 1)\""),
            ("lapsed show Gone@a", "lapsed listen
                lapsed schedule Gone@a --in 0s
                until lapsed show Gone@a | grep waiting; do sleep 0.1; done"),
            ("exhausted", "lapsed schedule Order@close@75 --in 0s
                until lapsed list --state dead | grep ' Order@close@75 '; do sleep 0.1; done"),
            ("allkeys-lru", "redis-cli CONFIG SET notify-keyspace-events ''
                redis-cli CONFIG SET maxmemory-policy allkeys-lru"),
            ("lapsed --json doctor", "redis-cli CONFIG SET notify-keyspace-events Exg
                lapsed cancel --prefix 'not a key'"),
        ],
        ..Page::new("docs/troubleshooting.md")
    };
    containers: Page {
        before: PACKAGES,
        programs: &[DOCKER],
        first: &[("compose.yaml", concat!("cp -r '", env!("CARGO_MANIFEST_DIR"), "/../../examples' ."))],
        not_tried: "a container: the image is unpacked, and its program runs in it as its user; images that applications are built into",
        then: "ip address add 203.0.113.5/32 dev lo; ip address add 172.17.0.9/32 dev lo
            docker exec lapsed lapsed show Order@close@42
            redis-cli -h 203.0.113.5 -p 6380 PING 2>&1 | grep 'not served without TLS'
            redis-cli -h 172.17.0.9 -p 6380 --pass 'a long password' PING | grep PONG
            redis-cli -h 172.17.0.9 -p 6380 PING 2>&1 | grep NOAUTH",
        ..Page::new("docs/containers.md")
    };
    setups: Page {
        first: &[
            ("lapsed show Hello@world", "redis-cli -p 6380 SETEX Hello@world 60 ''"),
            ("lapsed move", "LAPSED__LEDGER__URL=mysql://root@127.0.0.1:3306/lapsed_try lapsed migrate"),
        ],
        means: &[("lapsed:secret@127.0.0.1:3306/shop", "root@127.0.0.1:3306/lapsed_try")],
        ..Page::new("docs/setups.md")
    };
    upgrading: Page {
        files: &[("lapsed.toml", "redis.url = 'redis://127.0.0.1:6379/0'\nledger.url = 'mysql://root@127.0.0.1:3306/lapsed_try'\nretention.archive = true\n")],
        // The tables of an earlier version.
        before: "lapsed migrate
            mariadb -h127.0.0.1 -uroot lapsed_try -e 'ALTER TABLE tb_time_limit_task DROP COLUMN progress, DROP COLUMN claimed_at;
                ALTER TABLE tb_time_limit_task_pauses DROP COLUMN `until`; ALTER TABLE tb_time_limit_task_archive DROP COLUMN claimed_at'",
        then: "lapsed migrate --dry-run | grep 'is up to date'",
        ..Page::new("docs/upgrading.md")
    };
    fleet: Page::new("docs/fleet.md");
    replicated_mysql: Page {
        means: &[("lapsed:secret@127.0.0.1:3307/shop", "root@127.0.0.1:3306/lapsed_try")],
        ..Page::new("docs/replicated-mysql.md")
    };
    targets: Page {
        files: &[SERVERS, WEBHOOK_KEY, ("log.toml", SERVERS.1)],
        first: &[("LAPSED_WEBHOOK_SECRETS", "mariadb -h127.0.0.1 -uroot -e \"CREATE DATABASE lapsed; CREATE USER lapsed@'127.0.0.1' IDENTIFIED BY 'try-it'; GRANT ALL ON lapsed.* TO lapsed@'127.0.0.1'\"
            lapsed --config $EXAMPLES/workers/lapsed.toml migrate"), ("log.toml", "lapsed migrate"), ("UPDATE orders", "mariadb -h127.0.0.1 -uroot lapsed_try -e 'CREATE TABLE orders (id INT PRIMARY KEY, state TEXT)'")],
        before: concat!("export EXAMPLES=", env!("CARGO_MANIFEST_DIR"), "/../../examples"),
        means: &[("/etc/lapsed/", ""), ("examples/", concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/"))],
        ..Page::new("docs/targets.md")
    };
    import: Page::new("docs/import.md");
    http_access: Page {
        first: &[("base_path", "export LAPSED__HTTP__TOKENS='[\"0123456789abcdef0123456789abcdef\"]'")],
        ..Page::new("docs/http-access.md")
    };
    middleware: Page {
        files: &[LOGGED, ("lapsed-payments", "0123456789abcdef0123456789abcdef\n")],
        before: "lapsed migrate",
        means: &[("/run/secrets/", "")],
        ..Page::new("docs/middleware.md")
    };
    otel: Page::new("docs/otel.md");
    testing: Page::new("docs/testing.md");
    transactions: Page::new("docs/transactions.md");
    monitoring: Page {
        files: &[("lapsed.token", "0123456789abcdef0123456789abcdef")],
        means: &[
            ("/etc/prometheus/lapsed.yml", concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus/rules.yml")),
            ("/etc/prometheus/", ""),
        ],
        then: "promtool check config prometheus.yml",
        ..Page::new("deploy/README.md")
    };
    examples_php: Page {
        before: ROOT,
        then: "[ \"$(php examples/php/schedule.php state 42)\" = Ended ]",
        ..Page::new("examples/php/README.md")
    };
    examples_workers: Page {
        before: ROOT,
        then: "until lapsed --config examples/workers/lapsed.toml list --state done | grep ' Order@close@42 '; do sleep 0.1; done
            until redis-cli KEYS 'worker:done:*' | grep worker:done; do sleep 0.1; done",
        ..Page::new("examples/workers/README.md")
    };
    from_php_listener: Page {
        files: &[LOGGED],
        programs: &[("systemctl", "[ \"$*\" != 'start lapsed' ] || lapsed listen >/dev/null 2>&1 </dev/null &")],
        ..Page::new("docs/from-php-listener.md")
    };
}

#[test]
fn every_block_of_a_page_is_run_or_listed_with_its_reason() {
    let mut lines = Vec::new();
    for page in all_pages() {
        let mut uses = BTreeMap::new();
        for block in blocks(&page) {
            *uses.entry(block.summary()).or_insert(0) += 1;
        }
        let is_read = uses.is_empty() || PAGES.iter().any(|read| read.path == page);
        assert!(is_read, "{page} has code, and no test here reads it");
        lines.extend(
            uses.into_iter()
                .map(|(summary, count)| format!("{summary}, {count}")),
        );
    }
    let not_run = lines.iter().filter(|line| line.contains("NOT RUN"));
    println!(
        "{} lines of {} are about blocks that are not run",
        not_run.count(),
        lines.len()
    );
    assert_snapshot("pages", lines);
}
