//! Who may do what, and what is not shown: the same at the HTTP server and at the RESP server.
//!
//! A [`Principal`] is a client of HTTP or a user of RESP, as the configuration names it. A server finds out which one sends a
//! request, and asks it for everything else:
//!
//! | question | answered by |
//! |---|---|
//! | may it call this command or route? | [`require`](Principal::require) a [scope](AccessScope) |
//! | may it touch a task of this class? | [`may_touch`](Principal::may_touch), [`require_key`](Principal::require_key) |
//! | is this payload shown, are these arguments? | its [`Masks`] |
//! | what does it read if it may not? | [`Denied`] |
//!
//! Pure: nothing here knows a protocol or the ledger.

mod denied;
mod masks;
mod principal;
mod proof;
mod scope;

pub use self::denied::Denied;
pub use self::masks::Masks;
pub use self::principal::Principal;
pub use self::proof::{Proof, hash_token};
pub use self::scope::AccessScope;
