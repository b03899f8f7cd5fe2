//! Sorted sets.

use super::keys::{Scan, page};
use super::{Answer, Call, Command, NO_FLOAT, SYNTAX, int, span};
use crate::events::Class;
use crate::keyspace::{Bytes, Sorted, Value};
use crate::reply::{Reply, read_double};

/// Sorted sets up to this size are scanned in one page.
const ONE_PAGE: usize = 128;

pub(super) fn command(name: &str) -> Option<Command> {
    Some(match name {
        "zscore" => (zscore, 3, false),
        "zmscore" => (zmscore, -3, false),
        "zcard" => (zcard, 2, false),
        "zcount" => (zcount, 4, false),
        "zrank" | "zrevrank" => (zrank, 3, false),
        "zrange" | "zrevrange" => (zrange, -4, false),
        "zrangebyscore" | "zrevrangebyscore" => (zrangebyscore, -4, false),
        "zscan" => (zscan, -3, false),
        "zadd" => (zadd, -4, true),
        "zincrby" => (zincrby, 4, true),
        "zrem" => (zrem, -3, true),
        "zremrangebyscore" => (zremrangebyscore, 4, true),
        "zremrangebyrank" => (zremrangebyrank, 4, true),
        "zpopmin" | "zpopmax" => (zpop, -2, true),
        _ => return None,
    })
}

fn all(call: &mut Call<'_>) -> Result<Vec<(Bytes, f64)>, String> {
    let sorted = call.sorted(call.word(1))?;
    Ok(sorted.map_or_else(Vec::new, |sorted| {
        sorted
            .iter()
            .map(|(member, score)| (member.clone(), score))
            .collect()
    }))
}

fn score_or_nil(score: Option<f64>) -> Reply {
    score.map_or(Reply::Nil, Reply::double)
}

fn zscore(call: &mut Call<'_>) -> Answer {
    let member = call.word(2);
    let sorted = call.sorted(call.word(1))?;
    Ok(score_or_nil(sorted.and_then(|sorted| sorted.score(member))))
}

fn zmscore(call: &mut Call<'_>) -> Answer {
    let members = call.words_from(2);
    let sorted = call.sorted(call.word(1))?.cloned().unwrap_or_default();
    let scores = members
        .iter()
        .map(|member| score_or_nil(sorted.score(member)));
    Ok(Reply::Array(scores.collect()))
}

fn zcard(call: &mut Call<'_>) -> Answer {
    Ok(Reply::count(
        call.sorted(call.word(1))?.map_or(0, |sorted| sorted.len()),
    ))
}

/// A range of scores; `true` for an end that is left out.
struct Range {
    from: (f64, bool),
    to: (f64, bool),
}

impl Range {
    fn read(from: &[u8], to: &[u8]) -> Result<Self, String> {
        let end = |text: &[u8]| {
            let (text, is_open) = match text.strip_prefix(b"(") {
                Some(text) => (text, true),
                None => (text, false),
            };
            let score =
                read_double(text).ok_or_else(|| "ERR min or max is not a float".to_owned())?;
            Ok::<_, String>((score, is_open))
        };
        Ok(Self {
            from: end(from)?,
            to: end(to)?,
        })
    }

    fn has(&self, score: f64) -> bool {
        let (from, to) = (self.from, self.to);
        let is_above = if from.1 {
            score > from.0
        } else {
            score >= from.0
        };
        is_above && if to.1 { score < to.0 } else { score <= to.0 }
    }
}

fn zcount(call: &mut Call<'_>) -> Answer {
    let range = Range::read(call.word(2), call.word(3))?;
    let all = all(call)?;
    Ok(Reply::count(
        all.iter().filter(|(_, score)| range.has(*score)).count(),
    ))
}

fn zrank(call: &mut Call<'_>) -> Answer {
    let member = call.word(2);
    let mut all = all(call)?;
    if call.name() == "zrevrank" {
        all.reverse();
    }
    let rank = all.iter().position(|(other, _)| other == member);
    Ok(rank.map_or(Reply::Nil, Reply::count))
}

fn members(entries: &[(Bytes, f64)], with_scores: bool) -> Reply {
    Reply::Array(
        entries
            .iter()
            .flat_map(|(member, score)| {
                let score = with_scores.then(|| Reply::double(*score));
                [Some(Reply::bulk(member.clone())), score]
                    .into_iter()
                    .flatten()
            })
            .collect(),
    )
}

/// The options behind a range: scores, and the part of it.
fn parts(call: &Call<'_>, mut at: usize) -> Result<(bool, Option<(i64, i64)>), String> {
    let (mut with_scores, mut limit) = (false, None);
    while at < call.words.len() {
        match &call.option(at)[..] {
            "withscores" => with_scores = true,
            "limit" if at + 2 < call.words.len() => {
                limit = Some((call.int(at + 1)?, call.int(at + 2)?));
                at += 2;
            }
            "byscore" | "rev" if call.name() == "zrange" => {}
            _ => return Err(SYNTAX.to_owned()),
        }
        at += 1;
    }
    Ok((with_scores, limit))
}

fn by_score(call: &mut Call<'_>, from: usize, to: usize, reverse: bool) -> Answer {
    let (with_scores, limit) = parts(call, 4)?;
    let range = Range::read(call.word(from), call.word(to))?;
    let mut found = all(call)?;
    found.retain(|(_, score)| range.has(*score));
    if reverse {
        found.reverse();
    }
    if let Some((skip, limit)) = limit {
        let skip = usize::try_from(skip).unwrap_or(usize::MAX).min(found.len());
        found.drain(..skip);
        found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    }
    Ok(members(&found, with_scores))
}

fn zrangebyscore(call: &mut Call<'_>) -> Answer {
    match &call.name()[..] {
        "zrangebyscore" => by_score(call, 2, 3, false),
        _ => by_score(call, 3, 2, true),
    }
}

fn zrange(call: &mut Call<'_>) -> Answer {
    let options: Vec<String> = (4..call.words.len()).map(|at| call.option(at)).collect();
    let has = |name: &str| options.iter().any(|option| option == name);
    let reverse = has("rev") || call.name() == "zrevrange";
    if has("byscore") {
        let (from, to) = if reverse { (3, 2) } else { (2, 3) };
        return by_score(call, from, to, reverse);
    }
    let (with_scores, limit) = parts(call, 4)?;
    if limit.is_some() {
        let text =
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
        return Err(text.to_owned());
    }
    let (start, end) = (call.int(2)?, call.int(3)?);
    let mut all = all(call)?;
    if reverse {
        all.reverse();
    }
    Ok(members(&all[span(start, end, all.len())], with_scores))
}

fn zscan(call: &mut Call<'_>) -> Answer {
    let scan = Scan::read(call, 2)?;
    let sorted = call.sorted(call.word(1))?.cloned().unwrap_or_default();
    let (names, next) = match sorted.len() {
        0..=ONE_PAGE => (sorted.iter().map(|(member, _)| member.clone()).collect(), 0),
        _ => page(
            sorted.iter().map(|(member, _)| member),
            scan.cursor,
            scan.count,
        ),
    };
    let names = names.into_iter().filter(|name| scan.wants(name));
    let found = names.flat_map(|name| {
        let score = score_or_nil(sorted.score(&name));
        [Reply::Bulk(name), score]
    });
    Ok(Reply::Array(vec![
        Reply::bulk(next.to_string()),
        Reply::Array(found.collect()),
    ]))
}

#[derive(Default)]
struct AddOptions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
    counts_changed: bool,
    adds_up: bool,
}

fn zadd(call: &mut Call<'_>) -> Answer {
    let mut options = AddOptions::default();
    let mut at = 2;
    loop {
        match &call.option(at)[..] {
            "nx" => options.nx = true,
            "xx" => options.xx = true,
            "gt" => options.gt = true,
            "lt" => options.lt = true,
            "ch" => options.counts_changed = true,
            "incr" => options.adds_up = true,
            _ => break,
        }
        at += 1;
    }
    let AddOptions {
        nx,
        xx,
        gt,
        lt,
        adds_up,
        ..
    } = options;
    let pairs = call.words_from(at);
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(SYNTAX.to_owned());
    }
    if nx && xx {
        return Err("ERR XX and NX options at the same time are not compatible".to_owned());
    }
    if nx && (gt || lt) || gt && lt {
        return Err("ERR GT, LT, and/or NX options at the same time are not compatible".to_owned());
    }
    if adds_up && pairs.len() > 2 {
        return Err("ERR INCR option supports a single increment-element pair".to_owned());
    }
    add(call, &options, pairs)
}

fn zincrby(call: &mut Call<'_>) -> Answer {
    let options = AddOptions {
        adds_up: true,
        ..AddOptions::default()
    };
    add(call, &options, call.words_from(2))
}

fn add(call: &mut Call<'_>, options: &AddOptions, pairs: &[Bytes]) -> Answer {
    let key = call.word(1);
    let read = |pair: &[Bytes]| read_double(&pair[0]).map(|score| (score, pair[1].clone()));
    let scored: Option<Vec<(f64, Bytes)>> = pairs.chunks(2).map(read).collect();
    let scored = scored.ok_or(NO_FLOAT)?;
    let is_missing = call.sorted(key)?.is_none();
    if is_missing && options.xx {
        return Ok(if options.adds_up {
            Reply::Nil
        } else {
            Reply::Int(0)
        });
    }
    call.create(key, Value::Sorted(Sorted::default()));
    let sorted = call.sorted(key)?.expect("it was created");
    let (mut added, mut updated, mut result) = (0, 0, None);
    for (score, member) in scored {
        let before = sorted.score(&member);
        let score = match before {
            Some(before) if options.adds_up => before + score,
            _ => score,
        };
        if score.is_nan() {
            return Err("ERR resulting score is not a number (NaN)".to_owned());
        }
        let is_kept = match before {
            None => options.xx,
            Some(before) => {
                options.nx || (options.gt && score <= before) || (options.lt && score >= before)
            }
        };
        if is_kept {
            continue;
        }
        result = Some(score);
        match before {
            None => added += 1,
            Some(before) if before != score => updated += 1,
            Some(_) => {}
        }
        sorted.insert(member, score);
    }
    if added + updated > 0 {
        let event = if options.adds_up { "zincr" } else { "zadd" };
        call.state.notify(Class::Sorted, event, call.db, key);
    }
    Ok(match (options.adds_up, options.counts_changed) {
        (true, _) => score_or_nil(result),
        (_, true) => Reply::count(added + updated),
        _ => Reply::count(added),
    })
}

fn remove(
    call: &mut Call<'_>,
    event: &'static str,
    select: impl FnOnce(&[(Bytes, f64)]) -> Vec<(Bytes, f64)>,
) -> Result<Vec<(Bytes, f64)>, String> {
    let key = call.word(1);
    let removed = select(&all(call)?);
    let Some(sorted) = call.sorted(key)? else {
        return Ok(removed);
    };
    for (member, _) in &removed {
        sorted.remove(member);
    }
    let is_empty = sorted.len() == 0;
    if !removed.is_empty() {
        call.removed(Class::Sorted, event, key, is_empty);
    }
    Ok(removed)
}

fn zrem(call: &mut Call<'_>) -> Answer {
    let members = call.words_from(2);
    let removed = remove(call, "zrem", |all| {
        let is_named = |entry: &&(Bytes, f64)| members.contains(&entry.0);
        all.iter().filter(is_named).cloned().collect()
    })?;
    Ok(Reply::count(removed.len()))
}

fn zremrangebyscore(call: &mut Call<'_>) -> Answer {
    let range = Range::read(call.word(2), call.word(3))?;
    let removed = remove(call, "zremrangebyscore", |all| {
        all.iter()
            .filter(|(_, score)| range.has(*score))
            .cloned()
            .collect()
    })?;
    Ok(Reply::count(removed.len()))
}

fn zremrangebyrank(call: &mut Call<'_>) -> Answer {
    let (start, end) = (call.int(2)?, call.int(3)?);
    let removed = remove(call, "zremrangebyrank", |all| {
        all[span(start, end, all.len())].to_vec()
    })?;
    Ok(Reply::count(removed.len()))
}

fn zpop(call: &mut Call<'_>) -> Answer {
    let count = match call.words.get(2) {
        None => Some(1),
        Some(word) => int(word).and_then(|count| usize::try_from(count).ok()),
    };
    let count = count.ok_or("ERR value is out of range, must be positive")?;
    let is_min = call.name() == "zpopmin";
    let event = if is_min { "zpopmin" } else { "zpopmax" };
    let removed = remove(call, event, |all| match is_min {
        true => all.iter().take(count).cloned().collect(),
        false => all.iter().rev().take(count).cloned().collect(),
    })?;
    Ok(members(&removed, true))
}
