//! `AUTH` and `HELLO`.

use super::auth::{DEFAULT_USER, LoginError, Users};
use super::command::{is, syntax_error};
use super::error_code::ErrorCode;
use super::parser::{Args, number};
use super::reply::{Protocol, Reply};
use super::server_state::{REDIS_VERSION, ServerState};
use super::session::Session;

/// `AUTH [username] password`
pub async fn auth(session: &mut Session, server: &ServerState, args: Args<'_>) -> Reply {
    let (name, password) = match (args.get(1), args.get(2)) {
        (Some(name), Some(password)) if args.len() == 3 => (name, password),
        (Some(password), None) => {
            if !server.users.are_required() {
                return Reply::err(
                    "AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
                );
            }
            (DEFAULT_USER.as_bytes(), password)
        }
        _ => return syntax_error(),
    };
    log_in(session, &server.users, name, password)
        .await
        .unwrap_or(Reply::OK)
}

/// Returns an error if name and password are wrong. The user before stays logged in then, as in Redis.
async fn log_in(
    session: &mut Session,
    users: &Users,
    name: &[u8],
    password: &[u8],
) -> Option<Reply> {
    let address = session.address.ip();
    let user = match users.are_required() {
        true => users.authenticate(address, name, password).await,
        false => users
            .without_auth()
            .filter(|user| user.name.as_bytes() == name)
            .ok_or(LoginError::Wrong),
    };
    let text = match user {
        Ok(user) => {
            session.user = Some(user);
            session.guest = None;
            return None;
        }
        Err(LoginError::Wrong) => "invalid username-password pair or user is disabled.",
        Err(LoginError::LockedOut) => {
            "too many wrong passwords came from this address, try again in a minute"
        }
    };
    session.wrong_passwords = session.wrong_passwords.saturating_add(1);
    Some(Reply::error(ErrorCode::WrongPass, text))
}

/// `HELLO [protover [AUTH username password] [SETNAME clientname]]`
pub async fn hello(session: &mut Session, server: &ServerState, args: Args<'_>) -> Reply {
    let protocol = match args.get(1).map(number) {
        None => session.protocol,
        Some(None) => {
            return Reply::err("Protocol version is not an integer or out of range");
        }
        Some(Some(2)) => Protocol::Resp2,
        Some(Some(3)) => Protocol::Resp3,
        Some(Some(_)) => {
            return Reply::error(ErrorCode::NoProto, "unsupported protocol version");
        }
    };
    let (mut login, mut name) = (None, None);
    let mut at = 2;
    while let Some(option) = args.get(at) {
        match (args.get(at + 1), args.get(at + 2)) {
            (Some(user), Some(password)) if is(option, "AUTH") => {
                login = Some((user, password));
                at += 3;
            }
            (Some(given), _) if is(option, "SETNAME") => {
                let Some(given) = client_name(given) else {
                    return Reply::err(NAME_ERROR);
                };
                name = Some(given);
                at += 2;
            }
            _ => {
                let option = String::from_utf8_lossy(&option[..option.len().min(128)]);
                return Reply::err(format_args!("Syntax error in HELLO option '{option}'"));
            }
        }
    }
    if let Some((user, password)) = login
        && let Some(error) = log_in(session, &server.users, user, password).await
    {
        return error;
    }
    if session.user.is_none() {
        let text = "HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time";
        return Reply::error(ErrorCode::NoAuth, text);
    }
    if let Some(name) = name {
        session.name = name;
    }
    session.protocol = protocol;
    let pairs = [
        ("server", Reply::Static("redis")),
        ("version", Reply::Static(REDIS_VERSION)),
        ("proto", Reply::Int(protocol.version())),
        ("id", Reply::Int(session.id.cast_signed())),
        ("mode", Reply::Static("standalone")),
        ("role", Reply::Static("master")),
        ("modules", Reply::Array(Vec::new())),
    ];
    Reply::Map(
        pairs
            .map(|(name, value)| (Reply::Static(name), value))
            .to_vec(),
    )
}

/// The error for a name of a client.
pub const NAME_ERROR: &str = "Client names cannot contain spaces, newlines or special characters.";

/// Longest name, library or version of a client that is kept.
const NAME_BYTES_MAX: usize = 256;

/// Returns a name of a client if it is allowed.
pub fn client_name(name: &[u8]) -> Option<String> {
    let fits = name.len() <= NAME_BYTES_MAX && name.iter().all(|byte| (b'!'..=b'~').contains(byte));
    String::from_utf8(name.to_vec()).ok().filter(|_| fits)
}
