//! Lua 5.1 as Redis embeds it: the functions of `redis`, and how values become replies.

use std::collections::BTreeMap;
use std::fmt::Write;

use mlua::{Function, Lua, MultiValue, Table, Value};
use sha1::{Digest, Sha1};

use crate::keyspace::Bytes;
use crate::reply::{Reply, double};
use crate::request::Words;

/// What each interpreter begins with: no globals of the system, and an error for names that are not there.
const PRELUDE: &str = "\
os, io, dofile, loadfile, require, module, package, newproxy = nil \
setmetatable(_G, { \
  __index = function(_, name) error('Script attempted to access nonexistent global variable ' .. \"'\" .. tostring(name) .. \"'\") end, \
})";

/// The interpreter, and the scripts that were sent, by their digest.
pub(crate) struct Scripts {
    pub(crate) lua: Lua,
    pub(crate) by_digest: BTreeMap<String, (Bytes, Function)>,
}

impl Scripts {
    pub(crate) fn new() -> Result<Self, String> {
        Self::create().map_err(|error| format!("ERR {}", first_line(&error)))
    }

    fn create() -> mlua::Result<Self> {
        let lua = Lua::new();
        let redis = lua.create_table()?;
        let single = |field: &'static str| {
            lua.create_function(move |lua, text: mlua::LuaString| {
                let table = lua.create_table()?;
                table.raw_set(field, text)?;
                Ok(table)
            })
        };
        redis.raw_set("error_reply", single("err")?)?;
        redis.raw_set("status_reply", single("ok")?)?;
        redis.raw_set(
            "sha1hex",
            lua.create_function(|_, text: mlua::LuaString| Ok(digest(&text.as_bytes())))?,
        )?;
        redis.raw_set("log", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
        for (level, name) in ["LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"]
            .into_iter()
            .enumerate()
        {
            redis.raw_set(name, level)?;
        }
        lua.globals().raw_set("redis", redis)?;
        lua.load(PRELUDE).exec()?;
        Ok(Self {
            lua,
            by_digest: BTreeMap::new(),
        })
    }

    pub(crate) fn load(&mut self, text: &[u8]) -> Result<(String, Function), String> {
        let digest = digest(text);
        if let Some((_, function)) = self.by_digest.get(&digest) {
            return Ok((digest, function.clone()));
        }
        let function = self.lua.load(text).set_name("@user_script").into_function();
        let function = function.map_err(|error| {
            format!(
                "ERR Error compiling script (new function): {}",
                first_line(&error)
            )
        })?;
        self.by_digest
            .insert(digest.clone(), (text.to_vec(), function.clone()));
        Ok((digest, function))
    }
}

fn digest(text: &[u8]) -> String {
    Sha1::digest(text)
        .iter()
        .fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

fn first_line(error: &mlua::Error) -> String {
    error
        .to_string()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Runs a script, whose commands `run` runs.
pub(crate) fn evaluate(
    lua: &Lua,
    digest: &str,
    function: &Function,
    (keys, args): (&[Bytes], &[Bytes]),
    run: impl FnMut(Words) -> Result<Reply, String>,
) -> Result<Reply, String> {
    call(lua, function, (keys, args), run).unwrap_or_else(|error| Err(script_error(&error, digest)))
}

fn call(
    lua: &Lua,
    function: &Function,
    (keys, args): (&[Bytes], &[Bytes]),
    run: impl FnMut(Words) -> Result<Reply, String>,
) -> mlua::Result<Result<Reply, String>> {
    let globals = lua.globals();
    let table = |words: &[Bytes]| -> mlua::Result<Table> {
        let words = words.iter().map(|word| lua.create_string(word));
        lua.create_sequence_from(words.collect::<mlua::Result<Vec<_>>>()?)
    };
    globals.raw_set("KEYS", table(keys)?)?;
    globals.raw_set("ARGV", table(args)?)?;
    let redis: Table = globals.raw_get("redis")?;
    let run = std::cell::RefCell::new(run);
    let command = |words: MultiValue| -> Result<Reply, String> {
        let words: Option<Words> = words.into_iter().map(word).collect();
        let words =
            words.ok_or("ERR Lua redis lib command arguments must be strings or integers")?;
        if words.is_empty() {
            let text = "ERR Please specify at least one argument for this redis lib call";
            return Err(text.to_owned());
        }
        let mut run = run.borrow_mut();
        run(words)
    };
    lua.scope(|scope| {
        let raise = scope.create_function(|lua, words: MultiValue| {
            match command(words).unwrap_or_else(Reply::Error) {
                Reply::Error(text) => Err(mlua::Error::RuntimeError(format!("{MARK}{text}"))),
                reply => to_lua(lua, &reply),
            }
        })?;
        let catch = scope.create_function(|lua, words: MultiValue| {
            to_lua(lua, &command(words).unwrap_or_else(Reply::Error))
        })?;
        redis.raw_set("call", raise)?;
        redis.raw_set("pcall", catch)?;
        let result: Value = function.call(())?;
        Ok(to_reply(&result, 0).map_err(|error| first_line(&error)))
    })
}

/// Begins an error that a command has raised in a script.
const MARK: &str = "\u{1}";

/// What a client is told of an error that ends its script.
fn script_error(error: &mlua::Error, digest: &str) -> String {
    let text = error.to_string();
    match text.split_once(MARK) {
        Some((_, raised)) => {
            let raised = raised.lines().next().unwrap_or_default();
            format!("{raised} script: {digest}, on @user_script:1.")
        }
        None => format!(
            "ERR {} script: {digest}, on @user_script:1.",
            first_line(error)
        ),
    }
}

/// A word of a command, from a script.
fn word(value: Value) -> Option<Bytes> {
    match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Integer(number) => Some(number.to_string().into_bytes()),
        Value::Number(number) => Some(double(number).into_bytes()),
        _ => None,
    }
}

fn to_lua(lua: &Lua, reply: &Reply) -> mlua::Result<Value> {
    let single = |field: &str, text: &str| {
        let table = lua.create_table()?;
        table.raw_set(field, text)?;
        Ok(Value::Table(table))
    };
    match reply {
        Reply::Status(text) => single("ok", text),
        Reply::Error(text) => single("err", text),
        Reply::Int(number) => Ok(Value::Number(*number as f64)),
        Reply::Bulk(text) => Ok(Value::String(lua.create_string(text)?)),
        Reply::Nil | Reply::NilArray => Ok(Value::Boolean(false)),
        Reply::Array(all) => {
            let all = all.iter().map(|reply| to_lua(lua, reply));
            let all = all.collect::<mlua::Result<Vec<_>>>()?;
            Ok(Value::Table(lua.create_sequence_from(all)?))
        }
    }
}

/// Deepest nesting of tables in a result.
const DEPTH_MAX: usize = 100;

fn to_reply(value: &Value, depth: usize) -> mlua::Result<Reply> {
    Ok(match value {
        Value::String(text) => Reply::bulk(text.as_bytes().to_vec()),
        Value::Integer(number) => Reply::Int(*number),
        // Truncates.
        Value::Number(number) => Reply::Int(*number as i64),
        Value::Boolean(true) => Reply::Int(1),
        Value::Table(_) if depth > DEPTH_MAX => {
            Reply::Error("ERR reached lua stack limit".to_owned())
        }
        Value::Table(table) => {
            if let Value::String(text) = table.raw_get::<Value>("err")? {
                return Ok(Reply::Error(text.to_string_lossy()));
            }
            if let Value::String(text) = table.raw_get::<Value>("ok")? {
                return Ok(Reply::Status(text.to_string_lossy()));
            }
            let mut all = Vec::new();
            for at in 1.. {
                match table.raw_get::<Value>(at)? {
                    Value::Nil => break,
                    element => all.push(to_reply(&element, depth + 1)?),
                }
            }
            Reply::Array(all)
        }
        _ => Reply::Nil,
    })
}
