//! Character sets of the column of keys.
//!
//! Tables of older programs have a `utf8` (three bytes) or `latin1` column. A key that does not fit has no row and cannot
//! have one; a statement that names it is refused as a whole, with all its other keys.

/// A character set, as far as it limits keys.
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
    /// Another one. Only the server knows its characters.
    Other,
}

/// The characters of code page 1252 that are not those of ISO 8859-1.
const CP1252: &str = "€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ";

impl KeyCharset {
    /// Parses the server's name of a character set.
    pub fn named(name: &str) -> Self {
        match name.to_ascii_lowercase().as_str() {
            "utf8mb4" | "utf16" | "utf16le" | "utf32" => Self::Unicode,
            "utf8" | "utf8mb3" | "ucs2" => Self::Basic,
            "latin1" => Self::Latin1,
            "ascii" => Self::Ascii,
            _ => Self::Other,
        }
    }

    /// True if the column can hold a key. True for every key if the characters of the set are not known here.
    pub fn holds(self, key: &str) -> bool {
        let fits: fn(char) -> bool = match self {
            Self::Unicode | Self::Other => return true,
            Self::Basic => |c| c <= '\u{ffff}',
            // The server maps the five codes that code page 1252 leaves free.
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
