//! Replies, and their bytes in RESP2.

/// A reply to a command.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// A status such as `OK`.
    Status(String),
    /// An error: its code, a space, and its text.
    Error(String),
    /// A number.
    Int(i64),
    /// A string.
    Bulk(Vec<u8>),
    /// The missing string.
    Nil,
    /// A list.
    Array(Vec<Reply>),
    /// The missing list: of an `EXEC` whose watched keys have changed.
    NilArray,
}

impl Reply {
    /// `OK`.
    pub fn ok() -> Self {
        Self::Status("OK".to_owned())
    }

    /// A string.
    pub fn bulk(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Bulk(bytes.into())
    }

    /// The string, or the missing one.
    pub fn bulk_or_nil(bytes: Option<Vec<u8>>) -> Self {
        bytes.map_or(Self::Nil, Self::Bulk)
    }

    /// A list of strings.
    pub fn bulks<B: Into<Vec<u8>>>(all: impl IntoIterator<Item = B>) -> Self {
        Self::Array(all.into_iter().map(Self::bulk).collect())
    }

    /// 1 or 0.
    pub fn flag(flag: bool) -> Self {
        Self::Int(i64::from(flag))
    }

    /// A count.
    pub fn count(count: usize) -> Self {
        Self::Int(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// A double, as `%.17g` prints it.
    pub fn double(number: f64) -> Self {
        Self::bulk(double(number))
    }

    /// Appends the bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Status(text) => line(out, '+', text),
            Self::Error(text) => line(out, '-', text),
            Self::Int(number) => line(out, ':', number),
            Self::Bulk(bytes) => {
                line(out, '$', bytes.len());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Self::Nil => line(out, '$', -1),
            Self::Array(all) => {
                line(out, '*', all.len());
                all.iter().for_each(|reply| reply.write(out));
            }
            Self::NilArray => line(out, '*', -1),
        }
    }

    /// The bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }
}

fn line(out: &mut Vec<u8>, kind: char, text: impl std::fmt::Display) {
    out.extend_from_slice(format!("{kind}{text}\r\n").as_bytes());
}

/// Prints a double as C prints it with `%.17g`.
pub(crate) fn double(number: f64) -> String {
    const DIGITS: i32 = 17;
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number == 0.0 {
        return if number.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    let scientific = format!("{number:.*e}", DIGITS as usize - 1);
    let (mantissa, exponent) = scientific.split_once('e').expect("an exponent is printed");
    let exponent: i32 = exponent.parse().expect("the exponent is a number");
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if !(-4..DIGITS).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    let decimals = usize::try_from(DIGITS - 1 - exponent).unwrap_or_default();
    trimmed(&format!("{number:.decimals$}"))
}

/// Reads a double as `ZADD` does: no NaN, no space.
pub(crate) fn read_double(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let number: f64 = text.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_printed_with_seventeen_digits() {
        let told = [
            (1.0, "1"),
            (0.1, "0.10000000000000001"),
            (1_800_000_000_000_123.0, "1800000000000123"),
            (1e17, "1e+17"),
            (8e15, "8000000000000000"),
            (1.5e-7, "1.4999999999999999e-07"),
            (-3.25, "-3.25"),
            (f64::INFINITY, "inf"),
        ];
        for (number, printed) in told {
            assert_eq!(double(number), printed);
        }
    }
}
