//! Scripts.

use std::sync::Arc;

use mlua::{Function, Lua};

use super::{Answer, Call, Command};
use crate::lua::{self, Scripts};
use crate::reply::Reply;

pub(super) fn command(name: &str) -> Option<Command> {
    Some(match name {
        "eval" => (eval, -3, false),
        "evalsha" => (evalsha, -3, false),
        "script" => (script, -2, false),
        _ => return None,
    })
}

/// Takes the interpreter out of the state, and puts it back.
fn with_scripts<T>(
    call: &mut Call<'_>,
    run: impl FnOnce(&mut Call<'_>, &mut Scripts) -> Result<T, String>,
) -> Result<T, String> {
    let mut scripts = match call.state.scripts.take() {
        Some(scripts) => scripts,
        None => Scripts::new()?,
    };
    let result = run(call, &mut scripts);
    call.state.scripts = Some(scripts);
    result
}

/// `EVAL`
fn eval(call: &mut Call<'_>) -> Answer {
    if call.is_script {
        return Err("ERR This Redis command is not allowed from script".to_owned());
    }
    with_scripts(call, |call, scripts| {
        let (digest, function) = scripts.load(call.word(1))?;
        run(call, &scripts.lua, &digest, &function)
    })
}

/// `EVALSHA`
fn evalsha(call: &mut Call<'_>) -> Answer {
    if call.is_script {
        return Err("ERR This Redis command is not allowed from script".to_owned());
    }
    with_scripts(call, |call, scripts| {
        let digest = call.option(1);
        let function = scripts
            .by_digest
            .get(&digest)
            .map(|(_, function)| function.clone());
        let function = function.ok_or("NOSCRIPT No matching script. Please use EVAL.")?;
        run(call, &scripts.lua, &digest, &function)
    })
}

/// `SCRIPT LOAD | EXISTS | FLUSH`
fn script(call: &mut Call<'_>) -> Answer {
    with_scripts(call, |call, scripts| match &call.option(1)[..] {
        "load" if call.words.len() == 3 => {
            let (digest, _) = scripts.load(call.word(2))?;
            Ok(Reply::bulk(digest))
        }
        "exists" => {
            let known = call.words_from(2).iter().map(|digest| {
                let digest = String::from_utf8_lossy(digest).to_ascii_lowercase();
                Reply::flag(scripts.by_digest.contains_key(&digest))
            });
            Ok(Reply::Array(known.collect()))
        }
        "flush" => {
            scripts.by_digest.clear();
            Ok(Reply::ok())
        }
        verb => Err(format!(
            "ERR Unknown subcommand or wrong number of arguments for '{verb}'. Try SCRIPT HELP."
        )),
    })
}

fn run(call: &mut Call<'_>, lua: &Lua, digest: &str, function: &Function) -> Answer {
    let count = call.int(2)?;
    let count = usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative")?;
    let words = call.words_from(3);
    if count > words.len() {
        return Err("ERR Number of keys can't be greater than number of args".to_owned());
    }
    let (keys, args) = words.split_at(count);
    lua::evaluate(lua, digest, function, (keys, args), |words| {
        super::check(&words).map_err(|refusal| match refusal.starts_with("ERR unknown") {
            true => "ERR Unknown Redis command called from script".to_owned(),
            false => "ERR Wrong number of args calling Redis command from script".to_owned(),
        })?;
        Ok(super::run(&mut Call {
            state: &mut *call.state,
            db: call.db,
            words: &Arc::new(words),
            is_script: true,
        }))
    })
}
