//! The codes of error replies: a closed set, since clients decide by them.

use std::fmt;

/// Declares the codes.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident: $code:literal;)+) => {
        /// The first word of an error reply.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum ErrorCode {
            $($(#[$doc])* $name),+
        }

        impl ErrorCode {
            /// Every code; docs/errors.md has an entry for each.
            #[cfg(all(test, feature = "http"))]
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The code, as clients read it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $code),+ }
            }
        }
    };
}

codes! {
    /// The command is not valid, or has failed.
    Err: "ERR";
    /// The connection has not authenticated.
    NoAuth: "NOAUTH";
    /// There is no such user, or the password is wrong.
    WrongPass: "WRONGPASS";
    /// The user may not do this.
    NoPerm: "NOPERM";
    /// The server does not speak this version of the protocol.
    NoProto: "NOPROTO";
    /// A transaction was not carried out.
    ExecAbort: "EXECABORT";
    /// The claim was lost.
    Fenced: "FENCED";
    /// The answer is not known yet.
    TryAgain: "TRYAGAIN";
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
