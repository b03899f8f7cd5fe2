//! Source of the configuration: a file, or the built-in defaults.

use std::fmt;
use std::path::{Path, PathBuf};

use toml::Table;

/// The default configuration, with comments.
pub const DEFAULT_TOML: &str = include_str!("default.toml");

/// Prefix of environment variables that are settings.
pub(super) const ENV_PREFIX: &str = "LAPSED__";

/// The environment variable that names the configuration file.
const FILE_VARIABLE: &str = "LAPSED_CONFIG";

/// Search paths of the configuration file, in order.
pub const SEARCH_PATHS: [&str; 3] = [
    "./config/lapsed.toml",
    "./lapsed.toml",
    "/etc/lapsed/lapsed.toml",
];

/// Source of the configuration. Its `Display` is shown to users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigSource {
    /// This file.
    File(PathBuf),
    /// No file was named or found: the built-in defaults.
    Defaults,
}

impl ConfigSource {
    /// Returns the given file, else `LAPSED_CONFIG`, else the first of [`SEARCH_PATHS`] that exists.
    pub fn find(file: Option<&Path>) -> Self {
        let variable = || std::env::var_os(FILE_VARIABLE).filter(|name| !name.is_empty());
        let named = file
            .map(Path::to_owned)
            .or_else(|| variable().map(PathBuf::from));
        let found = || {
            let mut paths = SEARCH_PATHS.iter().map(PathBuf::from);
            paths.find(|path| path.exists())
        };
        named.or_else(found).map_or(Self::Defaults, Self::File)
    }

    /// The file, if there is one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Defaults => None,
        }
    }
}

impl fmt::Display for ConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file `{}`", path.display()),
            Self::Defaults => write!(
                f,
                "built-in defaults (no --config, no {FILE_VARIABLE}, none of `{}`)",
                SEARCH_PATHS.join("`, `")
            ),
        }
    }
}

/// The default configuration as a table.
pub(super) fn defaults() -> Table {
    DEFAULT_TOML.parse().expect("a test reads the defaults")
}
