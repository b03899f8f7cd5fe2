//! Which keys the column of keys can hold.
//!
//! Tables of older programs have a `utf8` (three bytes) or `latin1` column. A key that does not fit there has no row and
//! can get none; a server that is asked about it refuses the whole statement, with every other key in it.

/// The character set of the column, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyCharset {
    /// All of Unicode.
    Unicode,
    /// `utf8`, `utf8mb3`, `ucs2`: the basic multilingual plane.
    Basic,
    /// `latin1`, which is code page 1252.
    Latin1,
    /// `ascii`.
    Ascii,
    /// Another one, whose characters only the server knows.
    Other,
}

/// The characters of code page 1252 that are not those of ISO 8859-1.
const CP1252: &str = "€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ";

impl KeyCharset {
    /// By the server's name for it.
    pub fn named(name: &str) -> Self {
        match name.to_ascii_lowercase().as_str() {
            "utf8mb4" | "utf16" | "utf16le" | "utf32" => Self::Unicode,
            "utf8" | "utf8mb3" | "ucs2" => Self::Basic,
            "latin1" => Self::Latin1,
            "ascii" => Self::Ascii,
            _ => Self::Other,
        }
    }

    /// Whether the column can hold a key. Of a set that is not known here every key may fit: the server says.
    pub fn holds(self, key: &str) -> bool {
        let fits: fn(char) -> bool = match self {
            Self::Unicode | Self::Other => return true,
            Self::Basic => |c| c <= '\u{ffff}',
            // The server has a place for the five codes that code page 1252 leaves free.
            Self::Latin1 => |c| {
                matches!(c, '\0'..='\u{7f}' | '\u{81}' | '\u{8d}' | '\u{8f}' | '\u{90}' | '\u{9d}' | '\u{a0}'..='\u{ff}')
                    || CP1252.contains(c)
            },
            Self::Ascii => |c| c.is_ascii(),
        };
        key.chars().all(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_holds_what_its_character_set_has() {
        for (charset, holds, lacks) in [
            ("utf8mb4", "Job@a@é€汉😀", ""),
            ("utf8mb3", "Job@a@é€汉", "😀"),
            ("utf8", "Job@a@é€汉", "😀"),
            ("latin1", "Job@a@é€ÿœ\u{81}", "汉😀\u{80}ğ"),
            ("ascii", "Job@a@~", "é€汉😀"),
            ("gbk", "Job@a@é€汉😀", ""),
        ] {
            let column = KeyCharset::named(charset);
            assert!(column.holds(holds), "{charset}");
            for lack in lacks.chars() {
                assert!(!column.holds(&format!("Job@a@{lack}")), "{charset}: {lack}");
            }
        }
    }
}
