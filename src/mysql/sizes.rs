//! Sizes of statements. A server ends the connection of a packet beyond its `max_allowed_packet`, so statements of many rows
//! are cut well below that.

use lapsed_core::ledger::{LedgerError, NewTask};

/// Maximum number of bytes of the values of one statement.
const STATEMENT_MAX: usize = 1 << 20;

/// Bytes of a row beside its texts, and of the text of a statement for each row.
const ROW: usize = 256;

/// The longest packet that a server takes, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PacketMax(pub usize);

impl PacketMax {
    /// Returns how many of the first items fit into one statement: at least one, at most `most`. `bytes` is the length of the
    /// texts of an item.
    pub fn first<T>(self, items: &[T], most: usize, bytes: impl Fn(&T) -> usize) -> usize {
        let room = STATEMENT_MAX.min(self.0 / 4);
        let sizes = items.iter().scan(0usize, |sum, item| {
            *sum = sum.saturating_add(ROW + bytes(item));
            Some(*sum)
        });
        let fitting = sizes.take(most).take_while(|sum| *sum <= room).count();
        fitting.max(1).min(items.len())
    }

    /// Cuts items into parts of which each fits into one statement.
    pub fn parts<T>(self, items: &[T], most: usize, bytes: impl Fn(&T) -> usize) -> Vec<&[T]> {
        let (mut parts, mut rest) = (Vec::new(), items);
        while !rest.is_empty() {
            let (part, more) = rest.split_at(self.first(rest, most, &bytes));
            parts.push(part);
            rest = more;
        }
        parts
    }

    /// Returns why a row with texts of this length cannot be sent; `None` if it can.
    pub fn too_long(self, what: &str, bytes: usize) -> Option<String> {
        let Self(max) = self;
        (bytes + ROW > max).then(|| {
            format!(
                "{what} has {bytes} bytes, expected fewer than the {max} of the server's `max_allowed_packet`"
            )
        })
    }

    /// As [`too_long`](Self::too_long).
    ///
    /// # Errors
    /// [`LedgerError::Unfit`] if it cannot be sent.
    pub fn check(self, what: &str, bytes: usize) -> Result<(), LedgerError> {
        match self.too_long(what, bytes) {
            None => Ok(()),
            Some(message) => Err(LedgerError::Unfit {
                message,
                source: None,
            }),
        }
    }
}

/// Length of the texts of a new task.
pub(super) fn of_task(task: &NewTask) -> usize {
    let texts = [&task.contents.payload, &task.contents.tag];
    let texts: usize = texts.into_iter().flatten().map(String::len).sum();
    // The longest recurrence is shorter than the rest of its row.
    let recurrence = task.recurrence.as_ref().map_or(0, |_| ROW);
    task.key.as_str().len() + texts + recurrence
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_has_a_mebibyte_or_a_quarter_of_the_packet() {
        let bytes = |size: &usize| *size;
        let sixty_four = [(64 << 10) - ROW; 500];
        assert_eq!(PacketMax(16 << 20).first(&sixty_four, 512, bytes), 16);
        assert_eq!(PacketMax(1 << 20).first(&sixty_four, 512, bytes), 4);
        assert_eq!(PacketMax(1 << 20).first(&[10; 600], 512, bytes), 512);
        assert_eq!(PacketMax(1 << 20).first(&[1 << 21, 1], 512, bytes), 1);
        assert_eq!(PacketMax(1024).first(&[0usize; 0], 512, bytes), 0);
    }

    #[test]
    fn parts_leave_nothing_out() {
        let sizes = [300_000, 10, 10, 300_000, 300_000, 10];
        let parts = PacketMax(1 << 20).parts(&sizes, 2, |size| *size);
        let parts: Vec<usize> = parts.into_iter().map(<[usize]>::len).collect();
        assert_eq!(parts, [1, 2, 1, 1, 1]);
    }

    #[test]
    fn what_no_packet_holds_is_refused_by_name() {
        let server = PacketMax(1 << 20);
        assert_eq!(server.too_long("task `A@b`", 1 << 19), None);
        let why = server.too_long("task `A@b`", 1 << 20).unwrap();
        assert!(why.contains("`A@b` has 1048576 bytes"), "{why}");
        assert!(why.contains("`max_allowed_packet`"), "{why}");
    }
}
