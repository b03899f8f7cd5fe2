//! Writes each block of Rust of the documentation into a module or a function of its own.

use std::fmt::Write as _;
use std::path::PathBuf;

#[path = "../servers/pages/block.rs"]
#[allow(dead_code)]
mod block;

use block::{Block, Ledger, Use, all_pages, blocks, root};

fn main() {
    let mut code = String::new();
    for page in all_pages() {
        println!("cargo:rerun-if-changed={}", root().join(&page).display());
        for block in blocks(&page) {
            if let Use::Compiled(ledger) = block.use_ {
                write(&mut code, &block, ledger);
            }
        }
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo gives it"));
    std::fs::write(out.join("blocks.rs"), code).expect("the directory is cargo's");
}

/// Tests become a module, statements the body of a function with what the sentences around the block speak of.
fn write(code: &mut String, block: &Block, ledger: Ledger) {
    let page = block.page.trim_end_matches(".md").to_lowercase();
    let name = format!("{}_{}", page.replace(['/', '-', '.'], "_"), block.line);
    let (place, text) = (block.place(), block.text.trim_end());
    let written = if text.contains("#[tokio::test]") {
        writeln!(
            code,
            "/// {place}\nmod {name} {{ use super::given::*;\n{text}\n}}"
        )
    } else {
        let (given, variables) = match ledger {
            Ledger::Mysql => ("given", ON_MYSQL),
            Ledger::Sqlite => ("given_on_sqlite", ON_SQLITE),
        };
        let end = if text.ends_with([';', '}']) { "" } else { ";" };
        let words: Vec<&str> = text
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|word| !word.is_empty() && *word != "mut")
            .collect();
        let used = |variable: &&&str| {
            words.contains(variable) && !words.windows(2).any(|pair| pair == ["let", **variable])
        };
        let variables: String = variables
            .iter()
            .filter(used)
            .map(|variable| format!("let mut {variable} = all.{variable};\n"))
            .collect();
        writeln!(
            code,
            "mod {name} {{ use super::{given}::*; impl Shop {{\n/// {place}\nasync fn {name}(&self, all: All<'static>) -> Result<Payment, HandlerError> \
             {{\n{variables}{text}{end}\nOk(Payment::Taken)\n}}}}}}"
        )
    };
    written.expect("a string takes it");
}

/// What a block may use without saying where it comes from: fields of `given::All`.
const ON_MYSQL: &[&str] = &[
    "closing", "ctx", "due", "handlers", "id", "json", "key", "order", "secret", "shutdown",
    "task", "tasks", "tx",
];

/// Fields of `given_on_sqlite::All`.
const ON_SQLITE: &[&str] = &["ctx", "id", "shop", "tasks"];
