//! Trace context: the W3C header `traceparent`.

use std::fmt;
use std::str::FromStr;

use super::quoted;

/// The trace that a task belongs to, and the span that creates or runs the task.
///
/// W3C Trace Context, level 1: `00-<32 hex digits: trace>-<16: span>-<2: flags>` in lower case, with trace and span not
/// all zeros. The same four fields are read from later versions, and written as version `00`.
///
/// ```
/// use lapsed::task::Traceparent;
///
/// let created: Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse()?;
/// assert_eq!(created.trace_id(), "0af7651916cd43dd8448eb211c80319c");
/// let run = created.child(7);
/// assert_eq!(run.to_string(), "00-0af7651916cd43dd8448eb211c80319c-0000000000000007-01");
/// # Ok::<(), lapsed::task::TraceparentError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Traceparent {
    trace: u128,
    span: u64,
    flags: u8,
}

/// The only flag of level 1.
const SAMPLED: u8 = 1;

/// Length of the four fields of version `00`, with their hyphens.
const LENGTH: usize = 55;

impl Traceparent {
    /// Name of the HTTP header.
    pub const HEADER: &'static str = "traceparent";

    /// The context of a span. `None` if one of the ids is 0, which is invalid.
    pub fn from_parts(trace: u128, span: u64, sampled: bool) -> Option<Self> {
        (trace != 0 && span != 0).then_some(Self {
            trace,
            span,
            flags: if sampled { SAMPLED } else { 0 },
        })
    }

    /// Returns the ids of trace and span.
    pub fn ids(&self) -> (u128, u64) {
        (self.trace, self.span)
    }

    /// Returns the trace id, 32 hexadecimal digits.
    pub fn trace_id(&self) -> String {
        format!("{:032x}", self.trace)
    }

    /// Returns the span id, 16 hexadecimal digits.
    pub fn span_id(&self) -> String {
        format!("{:016x}", self.span)
    }

    /// True if the caller that began the trace records it.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Returns another span of the same trace. A `span` of 0, which is invalid, becomes 1.
    #[must_use]
    pub fn child(&self, span: u64) -> Self {
        Self {
            trace: self.trace,
            span: span.max(1),
            flags: self.flags & SAMPLED,
        }
    }
}

impl fmt::Display for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace, span, flags } = self;
        write!(f, "00-{trace:032x}-{span:016x}-{flags:02x}")
    }
}

impl FromStr for Traceparent {
    type Err = TraceparentError;

    fn from_str(text: &str) -> Result<Self, TraceparentError> {
        let refuse = |what: &'static str| TraceparentError {
            found: text.chars().take(80).collect(),
            what,
        };
        let (fields, rest) = text
            .split_at_checked(LENGTH)
            .ok_or_else(|| refuse("it is too short"))?;
        let mut fields = fields.split('-');
        let mut field = |digits: usize, what| {
            let field = fields.next().filter(|field| {
                field.len() == digits
                    && field
                        .bytes()
                        .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
            });
            let value = field.and_then(|field| u128::from_str_radix(field, 16).ok());
            value.ok_or_else(|| refuse(what))
        };
        let version = field(2, "the version is not 2 lower-case hexadecimal digits")?;
        let trace = field(32, "the trace id is not 32 lower-case hexadecimal digits")?;
        let span = field(16, "the span id is not 16 lower-case hexadecimal digits")?;
        let flags = field(2, "the flags are not 2 lower-case hexadecimal digits")?;
        match version {
            0xff => Err(refuse("version `ff` is invalid")),
            0 if !rest.is_empty() => Err(refuse("it is too long")),
            _ if !(rest.is_empty() || rest.starts_with('-')) => Err(refuse("it is too long")),
            _ if trace == 0 => Err(refuse("the trace id is all zeros")),
            _ if span == 0 => Err(refuse("the span id is all zeros")),
            _ => Ok(Self {
                trace,
                span: u64::try_from(span).map_err(|_| refuse("the span id is too long"))?,
                flags: u8::try_from(flags).map_err(|_| refuse("the flags are too long"))?,
            }),
        }
    }
}

/// The error for an invalid `traceparent`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` is not a traceparent: {what}; expected `00-<32 hex digits>-<16 hex digits>-<2 hex digits>` (W3C trace context)",
    quoted(found)
)]
pub struct TraceparentError {
    found: String,
    what: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EXAMPLE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn refused(text: &str) -> String {
        text.parse::<Traceparent>().unwrap_err().what.to_owned()
    }

    #[test]
    fn a_traceparent_is_written_as_it_was_read() {
        assert_eq!(EXAMPLE.parse::<Traceparent>().unwrap().to_string(), EXAMPLE);
        assert!(EXAMPLE.parse::<Traceparent>().unwrap().is_sampled());
    }

    #[test]
    fn a_trace_is_recorded_if_its_flag_says_so_and_has_two_ids() {
        for (flags, sampled) in [("00", false), ("01", true), ("02", false), ("03", true)] {
            let read: Traceparent = (EXAMPLE[..53].to_owned() + flags).parse().unwrap();
            assert_eq!(read.is_sampled(), sampled, "{flags}");
        }
        let parts = |trace, span| Traceparent::from_parts(trace, span, true);
        assert_eq!(parts(1, 2).map(|made| made.ids()), Some((1, 2)));
        for (trace, span) in [(0, 0), (0, 2), (1, 0)] {
            assert_eq!(parts(trace, span), None, "{trace} {span}");
        }
        let unsampled = Traceparent::from_parts(1, 2, false).unwrap();
        assert!(!unsampled.is_sampled() && parts(1, 2).unwrap().is_sampled());
    }

    #[test]
    fn a_later_version_is_read_and_written_as_the_first() {
        let later = EXAMPLE.replacen("00", "cc", 1) + "-what-comes";
        assert_eq!(later.parse::<Traceparent>().unwrap().to_string(), EXAMPLE);
    }

    #[test]
    fn an_invalid_traceparent_is_explained() {
        assert_eq!(refused(""), "it is too short");
        assert_eq!(refused(&format!("{EXAMPLE}-")), "it is too long");
        assert_eq!(
            refused(&(EXAMPLE.replacen("00", "cc", 1) + "x")),
            "it is too long"
        );
        assert_eq!(
            refused(&EXAMPLE.replacen("00", "ff", 1)),
            "version `ff` is invalid"
        );
        assert_eq!(
            refused(&EXAMPLE.to_uppercase()),
            "the trace id is not 32 lower-case hexadecimal digits"
        );
        assert_eq!(
            refused(&format!("00-{}-b7ad6b7169203331-01", "0".repeat(32))),
            "the trace id is all zeros"
        );
        assert_eq!(
            refused("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"),
            "the span id is all zeros"
        );
        assert_eq!(
            "x".parse::<Traceparent>().unwrap_err().to_string(),
            "`x` is not a traceparent: it is too short; expected `00-<32 hex digits>-<16 hex digits>-<2 hex digits>` (W3C trace context)"
        );
    }

    #[test]
    fn a_child_has_its_own_span_and_only_known_flags() {
        let parent: Traceparent = (EXAMPLE[..53].to_owned() + "ff").parse().unwrap();
        let child = parent.child(0);
        assert_eq!(child.trace_id(), parent.trace_id());
        assert_eq!(
            (child.span_id().as_str(), child.flags),
            ("0000000000000001", 1)
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,80}", cut in 0usize..60) {
            let _ = text.parse::<Traceparent>();
            let _ = format!("{}{text}", &EXAMPLE[..cut.min(EXAMPLE.len())]).parse::<Traceparent>();
        }
    }
}
