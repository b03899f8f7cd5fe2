//! Reload: which changes of the configuration take effect in a running daemon.

use super::Config;

impl Config {
    /// Changed sections that take effect only after a restart. The others take effect at SIGHUP.
    pub fn needs_restart(&self, newer: &Self) -> Vec<&'static str> {
        let Self {
            timer,
            redis,
            ledger,
            sorted_set,
            wheel,
            sentinel,
            nudge,
            ledger_poll,
            adopt,
            sweep,
            engine,
            fleet,
            // Take effect at SIGHUP.
            retry: _,
            retention,
            http,
            resp,
            alerts,
            otel,
            routes: _,
            recurring: _,
            import: _,
        } = self;
        let changed = [
            ("timer", *timer != newer.timer),
            ("redis", redis.needs_restart(&newer.redis)),
            ("ledger", ledger.needs_restart(&newer.ledger)),
            ("sorted_set", sorted_set.needs_restart(&newer.sorted_set)),
            ("wheel", wheel.needs_restart(&newer.wheel)),
            #[cfg(feature = "rows")]
            ("delayed_sets", self.delayed_sets() != newer.delayed_sets()),
            ("sentinel", sentinel.needs_restart(&newer.sentinel)),
            ("nudge", nudge.needs_restart(&newer.nudge)),
            ("ledger_poll", ledger_poll.needs_restart(&newer.ledger_poll)),
            // Decides the subscriptions.
            (
                "adopt",
                adopt.needs_restart(&newer.adopt) || self.hears_armings() != newer.hears_armings(),
            ),
            ("sweep", sweep.needs_restart(&newer.sweep)),
            ("engine", engine.needs_restart(&newer.engine)),
            ("fleet", fleet.needs_restart(&newer.fleet)),
            ("retention", retention.needs_restart(&newer.retention)),
            ("http", http.needs_restart(&newer.http)),
            ("resp", resp.needs_restart(&newer.resp)),
            ("alerts", alerts.needs_restart(&newer.alerts)),
            ("otel", otel.needs_restart(&newer.otel)),
        ];
        let changed = changed.into_iter().filter(|(_, changed)| *changed);
        changed.map(|(section, _)| section).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_daemon_reads_only_at_its_start_is_named_and_nothing_else() {
        let config = |text: &str| Config::from_toml(text).unwrap();
        let changed = |text: &str| Config::default().needs_restart(&config(text));
        assert!(changed("").is_empty());
        let taken = "retention.done = '1h'\nretry.max_attempts = 3\nengine.timeout = '1s'\nengine.hold_overdue = true\n\
                     adopt.enabled = false\n[[routes]]\nmatch = '.'\nlog = {}\n[[recurring]]\nkey = 'C@m'\nevery = '1h'";
        assert_eq!(changed(taken), [""; 0]);
        for section in [
            "timer = 'ledger_poll'",
            "redis.key_prefix = 'a'",
            "ledger.table = 'a'",
            "sorted_set.keys = ['a']",
            "wheel.slots = 3",
            "sentinel.count = 3",
            "ledger_poll.probe = '5ms'",
            "sweep.interval = '2s'",
            "engine.concurrency = 3",
            "fleet.share = false",
            "http.tokens = ['0123456789abcdef0123456789abcdef']",
            "resp.max_connections = 3",
            "alerts.dead = 3",
            "otel.endpoint = 'http://127.0.0.1:4318'",
        ] {
            let name = section.split([' ', '.']).next().unwrap();
            assert_eq!(changed(section), [name], "{section}");
        }
        let deaf = changed("adopt.enabled = false\nnudge.enabled = false");
        assert_eq!(deaf, ["nudge", "adopt"]);
    }
}
