use super::{
    BUCKET, CREATE, DUE_AT, IX_DUE, IX_TAG, RULES, UK_KEY, definition, introspect, is_generated_as,
};

#[test]
fn every_column_of_the_table_has_its_rule_in_the_same_order() {
    let defined: Vec<&str> = CREATE
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix('`')?.split('`').next())
        .collect();
    assert_eq!(defined, RULES.map(|(name, _)| name));
}

#[test]
fn every_index_is_written_the_same_in_both_places() {
    for index in [&UK_KEY, &IX_DUE, &IX_TAG] {
        assert!(CREATE.contains(&index.definition()), "{index:?}");
    }
}

#[test]
fn a_definition_ends_before_its_comment() {
    assert_eq!(definition("owner"), "BINARY(16) NULL");
    assert_eq!(
        definition("attempt"),
        "SMALLINT UNSIGNED NOT NULL DEFAULT 0"
    );
}

#[test]
fn generated_columns_are_recognised_as_each_server_writes_them_back() {
    let is = |name, expression: &str| {
        let column = introspect::Column {
            expression: expression.to_owned(),
            ..introspect::Column::default()
        };
        is_generated_as(name, &column)
    };
    let mariadb = "if(`run_end` = `end_time`,greatest(`end_time`,`retry_at`),`end_time`)";
    let mysql = "if((`run_end` = `end_time`),greatest(`end_time`,`retry_at`),`end_time`)";
    assert!(is(DUE_AT, mariadb) && is(DUE_AT, mysql));
    assert!(!is(DUE_AT, "greatest(`end_time`,`retry_at`)"));
    let mariadb = "crc32(convert(`key` using utf8mb4)) & 16383";
    let mysql = "(crc32(convert(`key` using utf8mb4)) & 16383)";
    assert!(is(BUCKET, mariadb) && is(BUCKET, mysql));
    assert!(!is(BUCKET, "crc32(`key`)"));
}
