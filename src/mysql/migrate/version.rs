//! Known bugs of servers.

/// Returns why the server's index on the generated column `due_at` cannot be trusted, or `None` if it can.
///
/// `version` is the result of `SELECT VERSION()`. MDEV-29666: an index on a virtual column keeps entries of deleted rows, so
/// that a scan over it may crash the server or return wrong rows.
#[must_use]
pub fn generated_index_bug(version: &str) -> Option<&'static str> {
    // Some servers report a version such as `5.5.5-10.4.3-MariaDB` for the sake of replication.
    let version = version.strip_prefix("5.5.5-").unwrap_or(version);
    if !version.to_ascii_lowercase().contains("mariadb") {
        return None;
    }
    let mut numbers = version
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().unwrap_or(0_u32));
    let mut next = || numbers.next().unwrap_or(0);
    let number = (next(), next(), next());
    let is_sound = number >= (10, 11, 1) || ((10, 6, 11)..(10, 7, 0)).contains(&number);
    (!is_sound).then_some(
        "MariaDB before 10.6.11, and 10.7.0 to 10.11.0, cannot index virtual columns safely (MDEV-29666): upgrade the server",
    )
}

#[cfg(test)]
mod tests {
    use super::generated_index_bug;

    #[test]
    fn only_mariadb_before_the_repair_is_refused() {
        for sound in [
            "10.11.19-MariaDB-0+deb12u1",
            "10.11.1-MariaDB",
            "10.6.11-MariaDB-log",
            "11.8.2-MariaDB",
            "5.5.5-10.6.12-MariaDB",
            "8.0.36",
            "9.7.4",
            "8.0.11-TiDB-v8.5.6",
        ] {
            assert_eq!(generated_index_bug(sound), None, "{sound}");
        }
        for broken in [
            "10.5.29-MariaDB",
            "10.6.10-MariaDB",
            "10.7.8-MariaDB",
            "10.11.0-MariaDB",
            "5.5.5-10.4.3-MariaDB-log",
        ] {
            assert!(generated_index_bug(broken).is_some(), "{broken}");
        }
    }
}
