//! TLS of the RESP server.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use lapsed::config::RespTls;

/// Reads certificate and key.
///
/// # Errors
/// Says which file cannot be used, and why.
pub fn acceptor(files: &RespTls) -> Result<TlsAcceptor, String> {
    let unusable = |file: &Path, setting: &str, error: &dyn std::fmt::Display| {
        format!(
            "cannot use `{}` (`resp.{setting}`): {error}",
            file.display()
        )
    };
    let chain = CertificateDer::pem_file_iter(&files.cert)
        .and_then(|certs| certs.collect::<Result<Vec<_>, _>>())
        .map_err(|error| unusable(&files.cert, "tls_cert", &error))?;
    if chain.is_empty() {
        return Err(unusable(&files.cert, "tls_cert", &"it has no certificate"));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| unusable(&files.key, "tls_key", &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&files.cert, "tls_cert", &error))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| unusable(&files.key, "tls_key", &error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
