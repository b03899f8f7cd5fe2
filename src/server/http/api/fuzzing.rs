//! What fuzz targets call: the readers of batches.

use axum::body::Bytes;

use super::batch::{elements, lines};

/// The first tasks of a batch, and the number of all.
pub type Parts = (Vec<Vec<u8>>, usize);

/// Splits an array of JSON.
///
/// # Errors
/// It is none.
pub fn split_array(body: &[u8]) -> Result<Parts, String> {
    let body = Bytes::copy_from_slice(body);
    let (texts, count) = elements(&body).map_err(|problem| problem.detail().to_owned())?;
    Ok((texts.into_iter().map(<[u8]>::to_vec).collect(), count))
}

/// Splits lines.
pub fn split_lines(body: &[u8]) -> Parts {
    let body = Bytes::copy_from_slice(body);
    let (texts, count) = lines(&body);
    (texts.into_iter().map(<[u8]>::to_vec).collect(), count)
}
