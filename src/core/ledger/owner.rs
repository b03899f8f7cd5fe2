//! The token of a claim.

use std::fmt;

use crate::format::hex;

/// Owner token: 16 random bytes, new for each claim statement. Only its holder may change the claimed row.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner(pub [u8; 16]);

impl Owner {
    /// Generates a token.
    pub fn random() -> Self {
        Self(rand::random())
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({}..)", hex(&self.0[..2]))
    }
}
