//! asynq's `TaskMessage`, a protobuf message: <https://github.com/hibiken/asynq/blob/master/internal/proto/asynq.proto>.

/// The fields that a task needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TaskMessage {
    pub kind: String,
    pub payload: Vec<u8>,
    /// Maximum number of retries.
    pub retry: u64,
    /// Retries so far.
    pub retried: u64,
}

impl TaskMessage {
    /// Decodes a message. Skips other fields.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, String> {
        let mut message = Self::default();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes)?;
            let (field, wire) = (tag >> 3, tag & 7);
            match wire {
                0 => {
                    let number = varint(&mut bytes)?;
                    match field {
                        5 => message.retry = count(number),
                        6 => message.retried = count(number),
                        _ => {}
                    }
                }
                1 => skip(&mut bytes, 8)?,
                2 => {
                    let length = usize::try_from(varint(&mut bytes)?).map_err(|_| TOO_EARLY)?;
                    let value = bytes.get(..length).ok_or(TOO_EARLY)?;
                    match field {
                        1 => {
                            message.kind = String::from_utf8(value.to_vec())
                                .map_err(|_| "its type is not UTF-8")?;
                        }
                        2 => message.payload = value.to_vec(),
                        _ => {}
                    }
                    skip(&mut bytes, length)?;
                }
                5 => skip(&mut bytes, 4)?,
                _ => return Err(format!("its message has the wire type {wire}")),
            }
        }
        Ok(message)
    }
}

const TOO_EARLY: &str = "its message ends too early";

/// An `int32` that is no negative number.
fn count(number: u64) -> u64 {
    u64::try_from(number as i64).unwrap_or(0)
}

fn skip(bytes: &mut &[u8], length: usize) -> Result<(), String> {
    *bytes = bytes.get(length..).ok_or(TOO_EARLY)?;
    Ok(())
}

fn varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(TOO_EARLY)?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err("its message has a number of more than 64 bits".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_fields_that_a_task_needs_are_read_and_others_skipped() {
        // Type "email:welcome", payload "{}", id "7", queue "low", retry 25,
        // retried 3, timeout 1800, deadline -1, headers {"a": "b"}.
        let bytes =
            b"\x0a\x0demail:welcome\x12\x02{}\x1a\x017\x22\x03low\x28\x19\x30\x03\x40\x88\x0e\
            \x48\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x7a\x06\x0a\x01a\x12\x01b";
        let expected = TaskMessage {
            kind: "email:welcome".to_owned(),
            payload: b"{}".to_vec(),
            retry: 25,
            retried: 3,
        };
        assert_eq!(TaskMessage::decode(bytes), Ok(expected));
    }

    #[test]
    fn a_broken_message_is_refused() {
        for bytes in [
            &b"\x0a\x0dem"[..],
            b"\x28",
            b"\x2b",
            b"\x0a\x01\xff",
            &[0xff; 11],
        ] {
            assert!(TaskMessage::decode(bytes).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = TaskMessage::decode(&bytes);
        }
    }
}
