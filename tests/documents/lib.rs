//! The blocks of Rust in the README and in `docs/`, each in a function or a module. They are compiled, and those that are
//! tests run. What a page speaks of without showing it is in `given.rs`.

#![allow(unused, missing_docs, reason = "blocks show a part of a program")]

mod given;
mod given_on_sqlite;

include!(concat!(env!("OUT_DIR"), "/blocks.rs"));
