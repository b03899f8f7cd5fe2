//! What an optional property of a task costs: the number of source files that name it.

use crate::source_files::source_files;

/// Each property, and the most files that may name it. A property goes through the program in `TaskSpec` and
/// `Contents`: the layers between pass these on and do not name it.
const FILES_MAX: [(&str, usize); 3] = [
    ("max_attempts", 22),
    ("traceparent", 12),
    ("if_pending", 10),
];

/// Where the statements of a ledger are written, and their values bound and read.
const STATEMENTS: [&str; 7] = [
    "mysql/create.rs",
    "mysql/decode/",
    "mysql/queries/",
    "mysql/series.rs",
    "mysql/transfer.rs",
    "sqlite/",
    "core/ledger/memory/",
];

#[test]
fn few_files_name_an_optional_property_of_a_task() {
    for (property, most) in FILES_MAX {
        let files = source_files("").into_iter().filter(|file| {
            let states = STATEMENTS.iter().any(|place| file.path.starts_with(place));
            // What is not shipped reads rows and options as the product has them.
            let is_for_tests = ["faults/", "simulator/", "model_redis/", "fuzz_targets/"]
                .iter()
                .any(|place| file.path.starts_with(place));
            !states && !is_for_tests && file.code.contains(property)
        });
        let files: Vec<&str> = files.map(|file| file.path.as_str()).collect();
        assert!(
            files.len() <= most,
            "`{property}` is named in {} files, expected at most {most}: {files:#?}",
            files.len()
        );
        assert!(!files.is_empty(), "no file names `{property}`");
    }
}
