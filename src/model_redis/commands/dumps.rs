//! `DUMP` and `RESTORE` of strings, in the format of a snapshot: a type, the string, a version and a checksum.

use super::{Answer, Call, Command, SYNTAX};
use crate::events::Class;
use crate::keyspace::{Bytes, Value};
use crate::reply::Reply;

const STRING: u8 = 0;
const VERSION: u16 = 10;

/// Bytes of the version and of the checksum.
const TAIL: usize = 10;

const BAD_DATA: &str = "ERR DUMP payload version or checksum are wrong";

pub(super) fn command(name: &str) -> Option<Command> {
    Some(match name {
        "dump" => (dump, 2, false),
        "restore" => (restore, -4, true),
        _ => return None,
    })
}

/// CRC-64 with the polynomial of Jones, reflected.
fn checksum(bytes: &[u8]) -> u64 {
    const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u64::from(*byte), |crc, _| {
            (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 }
        })
    })
}

fn dump(call: &mut Call<'_>) -> Answer {
    let text = match call
        .state
        .used(call.db, call.word(1))
        .map(|entry| &entry.value)
    {
        None => return Ok(Reply::Nil),
        Some(Value::String(text)) => text.clone(),
        Some(_) => return Err("ERR the model dumps strings alone".to_owned()),
    };
    let mut bytes = vec![STRING];
    match u32::try_from(text.len()).unwrap_or(u32::MAX) {
        length @ ..64 => bytes.push(length as u8),
        length @ ..16_384 => bytes.extend([0x40 | (length >> 8) as u8, length as u8]),
        length => {
            bytes.push(0x80);
            bytes.extend(length.to_be_bytes());
        }
    }
    bytes.extend(text);
    bytes.extend(VERSION.to_le_bytes());
    let checksum = checksum(&bytes);
    bytes.extend(checksum.to_le_bytes());
    Ok(Reply::Bulk(bytes))
}

/// The string of a dump. Compressed ones are not read.
fn read(dump: &[u8]) -> Option<Bytes> {
    let (body, sum) = dump.split_at_checked(dump.len().checked_sub(size_of::<u64>())?)?;
    let stored = u64::from_le_bytes(sum.try_into().ok()?);
    if dump.len() < TAIL || stored != checksum(body) {
        return None;
    }
    match body[..body.len() - size_of::<u16>()] {
        [STRING, length @ ..64, ref text @ ..] if text.len() == usize::from(length) => {
            Some(text.to_vec())
        }
        [STRING, high @ 0x40..0x80, low, ref text @ ..]
            if text.len() == (usize::from(high & 0x3f) << 8 | usize::from(low)) =>
        {
            Some(text.to_vec())
        }
        [STRING, 0x80, a, b, c, d, ref text @ ..]
            if text.len() == u32::from_be_bytes([a, b, c, d]) as usize =>
        {
            Some(text.to_vec())
        }
        [STRING, 0xc0, byte] => Some((byte as i8).to_string().into_bytes()),
        [STRING, 0xc1, a, b] => Some(i16::from_le_bytes([a, b]).to_string().into_bytes()),
        [STRING, 0xc2, a, b, c, d] => {
            Some(i32::from_le_bytes([a, b, c, d]).to_string().into_bytes())
        }
        _ => None,
    }
}

fn restore(call: &mut Call<'_>) -> Answer {
    let (key, ttl, now) = (call.word(1), call.int(2)?, call.state.now());
    let (mut replaces, mut is_absolute) = (false, false);
    for at in 4..call.words.len() {
        match &call.option(at)[..] {
            "replace" => replaces = true,
            "absttl" => is_absolute = true,
            _ => return Err(SYNTAX.to_owned()),
        }
    }
    // With `REPLACE`, an old key is deleted without a look at its expiry.
    if !replaces && call.state.used(call.db, key).is_some() {
        return Err("BUSYKEY Target key name already exists.".to_owned());
    }
    if ttl < 0 {
        return Err("ERR Invalid TTL value, must be >= 0".to_owned());
    }
    let text = read(call.word(3)).ok_or(BAD_DATA)?;
    let old = match replaces {
        true => call.state.db(call.db).remove(key),
        false => None,
    };
    let due = match (ttl, is_absolute) {
        (0, _) => None,
        (ttl, true) => Some(ttl),
        (ttl, false) => Some(now.saturating_add(ttl)),
    };
    if due.is_some_and(|due| due < now) {
        if old.is_some() {
            call.state.notify(Class::Generic, "del", call.db, key);
        }
        return Ok(Reply::ok());
    }
    call.state.put(call.db, key, Value::String(text), due);
    call.state.notify(Class::Generic, "restore", call.db, key);
    Ok(Reply::ok())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_checksum_is_the_one_of_redis() {
        assert_eq!(super::checksum(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }
}
