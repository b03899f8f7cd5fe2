use super::*;
use crate::config::{ReadyList, job_member, job_payload};
use crate::task::Foreign;

fn problems(text: &str) -> Vec<String> {
    match Config::from_toml(text) {
        Ok(_) => Vec::new(),
        Err(error) => error.to_string().lines().map(str::to_owned).collect(),
    }
}

fn set(entry: &str) -> DelayedSetConfig {
    let config = Config::from_toml(&format!("delayed_sets = [{{ {entry} }}]")).unwrap();
    config.delayed_sets().remove(0)
}

fn key(set: &DelayedSetConfig, member: &str) -> String {
    set.key_of(member.as_bytes()).unwrap().as_str().to_owned()
}

#[test]
fn a_profile_names_the_keys_as_its_framework_does() {
    let told = [
        (
            "profile = 'laravel', queue = 'default', prefix = 'shop_'",
            "shop_queues:default:delayed",
            "shop_queues:default",
            "RPUSH",
            Some("shop_queues:default:notify"),
        ),
        (
            "profile = 'laravel', queue = 'mail', cluster = true",
            "queues:{mail}:delayed",
            "queues:{mail}",
            "RPUSH",
            Some("queues:{mail}:notify"),
        ),
        (
            "profile = 'laravel', queue = '{mail}', cluster = true",
            "queues:{mail}:delayed",
            "queues:{mail}",
            "RPUSH",
            Some("queues:{mail}:notify"),
        ),
        (
            "profile = 'think-queue', queue = 'mail'",
            "{queues:mail}:delayed",
            "{queues:mail}",
            "RPUSH",
            None,
        ),
        (
            "profile = 'hyperf'",
            "{queue}:delayed",
            "{queue}:waiting",
            "LPUSH",
            None,
        ),
        (
            "profile = 'hyperf', channel = 'mail'",
            "mail:delayed",
            "mail:waiting",
            "LPUSH",
            None,
        ),
    ];
    for (entry, name, list, command, notify) in told {
        let set = set(entry);
        let key = set.key_of(br#"{"id":"x"}"#).unwrap();
        let notify = notify.map(str::to_owned);
        let list = list.to_owned();
        assert_eq!(set.set(), name);
        assert_eq!(
            set.ready(&key),
            ReadyList {
                list,
                command,
                notify
            }
        );
        assert_eq!(
            set.register(),
            format!("{name}:lapsed:lapsed.tb_time_limit_task")
        );
        assert!(set.holds(&key));
    }
    let webman = set("profile = 'webman', prefix = 'p'");
    assert_eq!(webman.set(), "p{redis-queue}-delayed");
    let key = webman.key_of(br#"{"id":"1","queue":"send-mail"}"#).unwrap();
    assert_eq!(webman.ready(&key).list, "p{redis-queue}-waitingsend-mail");
}

#[test]
fn the_key_has_the_id_of_the_job_and_its_attempt() {
    let laravel = set("profile = 'laravel', queue = 'default'");
    let first = r#"{"uuid":"u","id":"abc","attempts":0}"#;
    assert_eq!(key(&laravel, first), "laravel@default@abc");
    let again = r#"{"uuid":"u","id":"abc","attempts":2}"#;
    assert_eq!(key(&laravel, again), "laravel@default@abc.2");
    assert_eq!(key(&laravel, r#"{"uuid":"u-1"}"#), "laravel@default@u-1");
    let long = format!(r#"{{"id":"{}"}}"#, "9".repeat(72));
    for odd in [&long, r#"{"id":"a@b"}"#, "raw", "{}"] {
        let key = key(&laravel, odd);
        assert!(key.starts_with("laravel@default@~"), "{key}");
        assert_eq!(key.len(), "laravel@default@~".len() + 32);
    }
}

#[test]
fn two_jobs_of_webman_with_one_id_are_two_tasks() {
    let webman = set("profile = 'webman'");
    let keys = ["1", "2"].map(|data| {
        let job = format!(r#"{{"id":17,"queue":"mail","data":{data}}}"#);
        key(&webman, &job)
    });
    assert!(keys[0].starts_with("webman@mail@17."));
    assert_ne!(keys[0], keys[1]);
    for foreign in ["raw", r#"{"id":"1"}"#, r#"{"id":"1","queue":"a b"}"#] {
        assert_eq!(
            webman.key_of(foreign.as_bytes()),
            Err(Foreign::NotInGrammar)
        );
    }
}

#[test]
fn a_member_is_read_back_from_its_payload_byte_by_byte() {
    let pretty = "{\n    \"id\": \"\u{e9}\"\n}";
    let odd: [&[u8]; 7] = [
        b"{\"a\":1 }",
        pretty.as_bytes(),
        b"O:1:{s:3:\"\0*\0x\";\xff}",
        b"[1]",
        b"\"x\"",
        br#"{"base64":"eA=="}"#,
        b"{x",
    ];
    for member in odd {
        let payload = job_payload(member);
        serde_json::from_str::<serde_json::Value>(&payload).unwrap();
        assert_eq!(job_member(&payload).as_deref(), Some(member), "{payload}");
    }
    assert_eq!(job_payload(pretty.as_bytes()), pretty);
    assert_eq!(job_member("7"), None);
}

#[test]
fn a_set_has_a_route_before_those_of_the_file() {
    let config = Config::from_toml(
        "delayed_sets = [{ profile = 'laravel', queue = 'a.b' }]\n[[routes]]\nmatch = '.'\nlog = {}",
    );
    let routes = config.unwrap().routes;
    assert_eq!(routes[0].matches.as_str(), r"^laravel@a\.b@");
    let target = "delayed set queues:a.b:delayed to list queues:a.b";
    assert_eq!(routes[0].target.to_string(), target);
    assert_eq!(routes[1].target, TargetConfig::Log);
}

#[test]
fn problems_say_what_was_expected() {
    let told = [
        (
            "{ profile = 'symfony' }",
            "`delayed_sets[0].profile`: unknown variant `symfony`, expected one of `laravel`, `think-queue`, `webman`, `hyperf`",
        ),
        (
            "{ profile = 'laravel' }",
            "`delayed_sets[0].queue`: is missing",
        ),
        (
            "{ profile = 'webman', queue = 'mail' }",
            "`delayed_sets[0].queue`: webman has one set for all queues: expected no `queue`",
        ),
        (
            "{ profile = 'laravel', queue = 'a', chanel = 'b' }",
            "`delayed_sets[0].chanel`: is not the name of a setting",
        ),
        (
            "{ profile = 'laravel', queue = 'a b' }",
            "`delayed_sets[0]`: yields no task key such as `laravel@a b@<id>`: method",
        ),
        (
            "{ profile = 'hyperf' }, { profile = 'hyperf' }",
            "`delayed_sets[1]`: names the set `{queue}:delayed` a second time",
        ),
        (
            "{ profile = 'hyperf' }, { profile = 'hyperf', prefix = 'x' }",
            "`delayed_sets[1]`: its tasks would have the same keys as those of another set, `hyperf@queue@..`: expected another `class`",
        ),
    ];
    for (entries, expected) in told {
        let found = problems(&format!("delayed_sets = [{entries}]"));
        assert_eq!(found.len(), 1, "{entries}: {found:?}");
        assert!(found[0].starts_with(expected), "{entries}: {found:?}");
    }
    let queue = "q".repeat(180);
    let long = problems(&format!(
        "delayed_sets = [{{ profile = 'laravel', queue = '{queue}' }}]"
    ));
    assert!(
        long[0].contains("yields keys of up to 261 bytes"),
        "{long:?}"
    );
    let file = "ledger.url = 'sqlite:///x.db'\ndelayed_sets = [{ profile = 'hyperf' }]";
    assert_eq!(
        problems(file),
        ["`delayed_sets`: needs a ledger in MySQL or MariaDB"]
    );
}
