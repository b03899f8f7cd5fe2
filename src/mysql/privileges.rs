//! Missing privileges, as named by the server's refusal.

/// Says what to grant, given the server's message: `DELETE command denied to user 'app'@'%' for table 'tasks'`.
pub(super) fn remedy(message: &str) -> String {
    match (missing(message), message.contains("to database")) {
        (Some((rights, table)), _) => format!("; grant {rights} on {table} to this user"),
        (None, true) => {
            "; grant this user privileges on the database, or correct `ledger.url`".to_owned()
        }
        (None, false) => "; grant this user what it lacks, see `lapsed doctor`".to_owned(),
    }
}

/// Returns the refused privileges and the table: ``DELETE`` and `` `shop`.`tasks` ``.
fn missing(message: &str) -> Option<(&str, String)> {
    let (rights, rest) = message.split_once(" command denied to user ")?;
    // A user's name may contain anything, so the last match counts.
    let (_, table) = rest.rsplit_once(" for table ").or_else(|| {
        let (_, column) = rest.rsplit_once(" for column ")?;
        column.rsplit_once(" in table ")
    })?;
    Some((rights, table.replace('\'', "`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_names_the_right_and_the_table_that_the_server_names() {
        for (message, expected) in [
            (
                "DELETE command denied to user 'app'@'localhost' for table `shop`.`tasks`",
                "; grant DELETE on `shop`.`tasks` to this user",
            ),
            (
                "INSERT, DELETE command denied to user 'a for table b'@'%' for table 'tasks_pauses'",
                "; grant INSERT, DELETE on `tasks_pauses` to this user",
            ),
            (
                "UPDATE command denied to user 'app'@'%' for column 'status' in table 'tasks'",
                "; grant UPDATE on `tasks` to this user",
            ),
            (
                "Access denied for user 'app'@'%' to database 'shop'",
                "; grant this user privileges on the database, or correct `ledger.url`",
            ),
            (
                "Befehl verweigert",
                "; grant this user what it lacks, see `lapsed doctor`",
            ),
        ] {
            assert_eq!(remedy(message), expected, "{message}");
        }
    }
}
