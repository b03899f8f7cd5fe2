#![forbid(unsafe_code)]

pub mod sandbox;
