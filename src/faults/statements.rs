//! Reads which statements a client sends to MySQL, as far as traps need it.

use std::collections::HashMap;

const QUERY: u8 = 3;
const PREPARE: u8 = 22;
const EXECUTE: u8 = 23;

/// Length of the header of a packet.
const HEADER: usize = 4;

/// The statements of one connection.
#[derive(Debug, Default)]
pub struct Statements {
    /// Prepared statements by their number.
    texts: HashMap<u32, String>,
    /// Sent to be prepared, and not answered yet.
    preparing: Option<String>,
    /// The beginning of a packet whose rest has not come.
    rest: Vec<u8>,
}

impl Statements {
    /// Takes bytes from the client. Returns the texts of statements that they execute.
    pub fn asked(&mut self, bytes: &[u8]) -> Vec<String> {
        self.rest.extend_from_slice(bytes);
        let mut executed = Vec::new();
        while let Some(packet) = self.next_packet() {
            let Some((command, body)) = packet.split_first() else {
                continue;
            };
            match *command {
                QUERY => executed.push(String::from_utf8_lossy(body).into_owned()),
                PREPARE => self.preparing = Some(String::from_utf8_lossy(body).into_owned()),
                EXECUTE => {
                    let number = body.first_chunk().map(|number| u32::from_le_bytes(*number));
                    executed.extend(number.and_then(|number| self.texts.get(&number).cloned()));
                }
                _ => {}
            }
        }
        executed
    }

    /// Takes bytes from the server. The client waits for the answer to what it prepares.
    pub fn answered(&mut self, bytes: &[u8]) {
        let Some(text) = self.preparing.take() else {
            return;
        };
        let body = bytes.get(HEADER..).and_then(<[u8]>::split_first);
        if let Some((0, body)) = body
            && let Some(number) = body.first_chunk()
        {
            self.texts.insert(u32::from_le_bytes(*number), text);
        }
    }

    fn next_packet(&mut self) -> Option<Vec<u8>> {
        let header = self.rest.first_chunk::<HEADER>()?;
        let length = u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize;
        if self.rest.len() < HEADER + length {
            return None;
        }
        let packet = self.rest.drain(..HEADER + length).skip(HEADER);
        Some(packet.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(command: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 1).unwrap().to_le_bytes();
        [&length[..3], &[0, command], body].concat()
    }

    #[test]
    fn a_prepared_statement_is_known_by_its_number() {
        let mut statements = Statements::default();
        assert!(
            statements
                .asked(&packet(PREPARE, b"UPDATE t SET x = ?"))
                .is_empty()
        );
        statements.answered(&[12, 0, 0, 1, 0, 7, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
        let execute = packet(EXECUTE, &[7, 0, 0, 0, 0, 1, 0, 0, 0]);
        let (first, rest) = execute.split_at(3);
        assert!(
            statements.asked(first).is_empty(),
            "the packet is not complete"
        );
        assert_eq!(statements.asked(rest), ["UPDATE t SET x = ?"]);
        assert_eq!(statements.asked(&packet(QUERY, b"COMMIT")), ["COMMIT"]);
    }
}
