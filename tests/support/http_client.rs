//! A client for the HTTP servers of tests.

use reqwest::Client;

use crate::support::wait::DEADLINE;

/// A client for plain HTTP, which reads no authorities of the machine: that costs more than most tests.
pub fn client() -> Client {
    // Another test may have chosen it before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().tls_certs_only([]).timeout(DEADLINE);
    client.build().unwrap()
}
