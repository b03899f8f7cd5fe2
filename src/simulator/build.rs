//! Lets libraries find the `getrandom` of this program by its name.

fn main() {
    println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol=getrandom");
}
