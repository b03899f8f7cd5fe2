//! What is wrong with `[http]` and `[alerts]`: each message names the setting, what was found, and what was expected.

use lapsed::Config;

/// The problems of a configuration, one to a line.
fn problems(settings: &str) -> String {
    match Config::from_toml(settings) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    }
}

#[track_caller]
fn refuses(cases: &[(&str, &str)]) {
    for (settings, expected) in cases {
        assert_eq!(problems(settings), *expected, "{settings}");
    }
}

const HASH: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

#[test]
fn settings_of_http() {
    refuses(&[
        (
            "http.listen = 'localhost:8787'",
            "`http.listen`: `localhost:8787` is not an address, expected `127.0.0.1:8787` or \"\"",
        ),
        (
            "http.listen = 8787",
            "`http.listen`: invalid type: integer `8787`, expected a string",
        ),
        (
            "http.tokens = 'x'",
            "`http.tokens`: expected a sequence, found a value of type string",
        ),
        (
            "http.tokens = ['s3cret with a space']",
            "`http.tokens`: expected tokens of visible ASCII characters, such as `lapsed token` prints",
        ),
        (
            "http.base_path = 'lapsed/'",
            "`http.base_path`: expected \"\" or a path of letters, digits, `-`, `_`, `.` and `/` that begins with `/` and does not end with it, such as \"/lapsed\", found \"lapsed/\"",
        ),
        (
            "http.hosts = ['https://lapsed.example.com:443']",
            "`http.hosts`: `https://lapsed.example.com:443` is not the name of a host, expected such as `lapsed.example.com`, without a port",
        ),
        (
            "http.hosts = [7]",
            "`http.hosts`: expected a text, or an array of texts",
        ),
        (
            "http.read_only = 'yes'",
            "`http.read_only`: invalid type: string \"yes\", expected a boolean",
        ),
        (
            "http.secure_cookies = 'sometimes'",
            "`http.secure_cookies`: unknown variant `sometimes`, expected one of `auto`, `always`, `never`",
        ),
        (
            "http.session_length = '1s'",
            "`http.session_length`: expected at least 60000 ms, found \"1s\"",
        ),
        (
            "http.audit_kept = 90",
            "`http.audit_kept`: expected a duration with a unit, such as \"1500ms\", \"30s\" or \"15m\", found 90",
        ),
        (
            "http.mask_payloads = ['Mail', 'User@']",
            "`http.mask_payloads`: `User@` is no class, expected such as `Order`, `Report*` or `Mail@send`",
        ),
        (
            "http.mask_arguments = ['a b']",
            "`http.mask_arguments`: `a b` is no class, expected such as `Order`, `Report*` or `Mail@send`",
        ),
        (
            "http.readonly = true",
            "`http.readonly`: is not the name of a setting, did you mean `read_only`?",
        ),
    ]);
}

#[test]
fn clients_of_http() {
    let client = |lines: &str| problems(&format!("[[http.clients]]\n{lines}"));
    let whole = |lines: &str| {
        client(&format!(
            "name = 'shop'\ntoken_sha256 = '{HASH}'\nscopes = 'read'\n{lines}"
        ))
    };
    assert_eq!(whole(""), "");
    for (found, expected) in [
        (
            client("scopes = ['read']"),
            "`http.clients[0].name`: is missing\n\
             `http.clients[0]`: expected one of `token_sha256`, `token_sha256_file` and `user`",
        ),
        (
            client(&format!(
                "name = 'a b'\ntoken_sha256 = '{HASH}'\nscopes = 'read'"
            )),
            "`http.clients[0].name`: expected 1 to 128 bytes without white space, found \"a b\"",
        ),
        (
            client("name = 'a'\ntoken_sha256 = 's3cret'\nscopes = 'read'"),
            "`http.clients[0].token_sha256`: expected the 64 hexadecimal digits that `lapsed token` prints, found 6 characters",
        ),
        (
            client("name = 'a'\ntoken_sha256_file = '/no/such'\nscopes = 'read'"),
            "`http.clients[0].token_sha256_file`: cannot read `/no/such`: No such file or directory (os error 2)",
        ),
        (
            client(&format!("name = 'a'\ntoken_sha256 = '{HASH}'")),
            "`http.clients[0].scopes`: expected some of `read`, `schedule`, `work`, `operate`, `admin`",
        ),
        (
            client(&format!(
                "name = 'a'\ntoken_sha256 = '{HASH}'\nscopes = ['read', 'write']"
            )),
            "`http.clients[0].scopes`: `write` is none of `read`, `schedule`, `work`, `operate`, `admin`",
        ),
        (
            whole("classes = ['Order@a@b']"),
            "`http.clients[0].classes`: `Order@a@b` is no class, expected such as `Order`, `Report*` or `Mail@send`",
        ),
        (
            whole("token = 's3cret'"),
            "`http.clients[0].token`: is not the name of a setting",
        ),
        (
            whole(&format!(
                "[[http.clients]]\nname = 'other'\ntoken_sha256 = '{HASH}'\nscopes = 'read'"
            )),
            "`http.clients`: `shop` and `other` have the same token",
        ),
        (
            whole(&format!(
                "[[http.clients]]\nname = 'shop'\ntoken_sha256 = '{}'\nscopes = 'read'",
                "0".repeat(64)
            )),
            "`http.clients[1].name`: `shop` is defined twice",
        ),
        (
            whole("user = '*'"),
            "`http.clients[0]`: expected one of `token_sha256`, `token_sha256_file` and `user`",
        ),
        (
            problems("[http.clients]\nname = 'a'"),
            "`http.clients`: expected `[[http.clients]]`, with two brackets, above each entry",
        ),
        (
            client("name = 'people'\nuser = '*'\nscopes = 'read'"),
            "`http.proxy.user_header`: expected a header, because the client `people` is a `user`",
        ),
    ] {
        assert_eq!(found, expected);
        assert!(!found.contains("s3cret"), "{found}");
    }
}

#[test]
fn proxies_of_http() {
    refuses(&[
        (
            "http.proxy.networks = ['10.0.0.0/33']",
            "`http.proxy.networks`: `10.0.0.0/33` is not a network, expected such as `10.0.0.0/8`",
        ),
        (
            "http.proxy.networks = ['proxy.internal']",
            "`http.proxy.networks`: `proxy.internal` is not a network, expected such as `10.0.0.0/8`",
        ),
        (
            "http.proxy.user_header = 'Cookie'",
            "`http.proxy.user_header`: `Cookie` is no header for a name, expected such as `X-Forwarded-User`",
        ),
        (
            "http.proxy = { networks = ['10.1.2.3'], user_header = 'X-User' }",
            "`http.clients`: expected an entry with `user`, because `http.proxy.user_header` is set",
        ),
        (
            "http.proxy = { networks = [], user_header = 'X-User' }\n[[http.clients]]\nname = 'a'\nuser = '*'\nscopes = 'read'",
            "`http.proxy.networks`: expected at least one, because `http.proxy.user_header` is set",
        ),
        (
            "http.proxy = { networks = ['0.0.0.0/0'], user_header = 'X-User' }\n[[http.clients]]\nname = 'a'\nuser = '*'\nscopes = 'read'",
            "`http.proxy.networks`: expected the networks of the proxies alone, found 0.0.0.0/0: every caller could name itself a user",
        ),
        (
            "http.proxy.header = 'X-User'",
            "`http.proxy.header`: is not the name of a setting",
        ),
    ]);
}

#[cfg(feature = "webhook")]
#[test]
fn settings_of_alerts() {
    refuses(&[
        (
            "alerts.swept = 300",
            "`alerts.swept`: expected 0 to 100 percent, found 300",
        ),
        (
            "alerts.swept = '10 %'",
            "`alerts.swept`: invalid type: string \"10 %\", expected i64",
        ),
        (
            "alerts.dead = -1",
            "`alerts.dead`: expected 0 or more tasks, found -1",
        ),
        (
            "alerts.late = '0ms'",
            "`alerts.late`: expected at least 1 ms, or \"none\", found \"0ms\"",
        ),
        (
            "alerts.overdue = 'never'",
            "`alerts.overdue`: expected a duration with a unit, such as \"1500ms\", \"30s\" or \"15m\", or \"none\", found \"never\"",
        ),
        (
            "alerts.window = '5'",
            "`alerts.window`: expected a duration with a unit, such as \"1500ms\", \"30s\" or \"15m\", found \"5\"",
        ),
        (
            "alerts.format = 'teams'",
            "`alerts.format`: unknown variant `teams`, expected `json` or `slack`",
        ),
        (
            "alerts.url = 'hooks.example/s3cret'",
            "`alerts.url`: expected https:// or http://, then a host",
        ),
        (
            "alerts = { url = 'https://hooks.example/s3cret', url_file = '/run/s3cret' }",
            "`alerts`: expected one text in one of `url` and `url_file`",
        ),
        (
            "alerts = { url = 'https://hooks.example/x', secret = 'short' }",
            "`alerts.secret`: expected `whsec_` and base64 of 24 to 64 bytes, found a value without that prefix",
        ),
        (
            "alerts.slack = 'https://hooks.example/s3cret'",
            "`alerts.slack`: is not the name of a setting",
        ),
    ]);
}

#[test]
fn settings_of_the_socket_of_resp() {
    refuses(&[
        (
            "resp.socket = 'resp.sock'",
            "`resp.socket`: expected \"\" or a path from `/` of at most 107 bytes, found \"resp.sock\"",
        ),
        (
            "resp.socket_mode = '0999'",
            "`resp.socket_mode`: expected permissions such as \"0660\", found \"0999\"",
        ),
        (
            "resp.socket_mode = '02770'",
            "`resp.socket_mode`: expected permissions such as \"0660\", found \"02770\"",
        ),
        (
            "resp.socket_mode = 660",
            "`resp.socket_mode`: invalid type: integer `660`, expected a string",
        ),
        (
            "resp.listen = 'unix:/run/resp.sock'",
            "`resp.listen`: expected `127.0.0.1:6380` or \"\": the path of a Unix socket, `/run/resp.sock`, belongs in `resp.socket`",
        ),
        (
            "resp.listen = 'unix:///run/resp.sock'",
            "`resp.listen`: expected `127.0.0.1:6380` or \"\": the path of a Unix socket, `/run/resp.sock`, belongs in `resp.socket`",
        ),
    ]);
    assert!(problems(&format!("resp.socket = '/{}'", "x".repeat(107))).contains("at most 107"));
}
