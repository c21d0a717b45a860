//! One error for the whole house: who can mend it, a stable code, what happened, what to do.
//!
//! Codes never change meaning. Each carries its HTTP status, its exit code and whether a repetition may help, so that
//! a face only looks them up; the table is `reliability.md` section 5.

use std::fmt;

/// The result of everything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in the words of one row of the table.
///
/// Displayed as one line; the hint is a second sentence that a face prints below it.
#[derive(Debug)]
pub struct Error {
    /// The row of the table: status, exit code and family follow from it.
    pub code: Code,
    /// One sentence: file, tensor or argument, what was expected and what was found.
    pub message: String,
    /// The next step, where there is one.
    pub hint: Option<String>,
    /// The argument or field that is at fault, as the caller spelled it.
    pub param: Option<String>,
    /// What a library said below us.
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Who can mend an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The caller: another argument.
    Invalid,
    /// A pull, an import, or another name.
    Missing,
    /// Nobody but the owner of the machine: a rule forbids it.
    Denied,
    /// Another model.
    Unsupported,
    /// A fresh copy of the file.
    Corrupt,
    /// A smaller ask or a bigger machine.
    Exhausted,
    /// Time: the same ask may succeed later.
    Unavailable,
    /// Nobody: it was asked for.
    Cancelled,
    /// Us.
    Internal,
}

macro_rules! codes {
    ($($name:ident $text:literal $kind:ident $http:literal $exit:literal $retry:literal;)*) => {
        /// The rows of the table.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $(#[doc = concat!("`", $text, "`: HTTP ", $http, ", exit ", $exit, ".")] $name,)*
        }

        impl Code {
            /// Every row, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The stable spelling that callers match on.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Who can mend it.
            pub fn kind(self) -> Kind {
                match self { $(Self::$name => Kind::$kind,)* }
            }

            /// The HTTP status.
            pub fn http(self) -> u16 {
                match self { $(Self::$name => $http,)* }
            }

            /// The exit code of the process.
            pub fn exit(self) -> u8 {
                match self { $(Self::$name => $exit,)* }
            }

            /// Whether the same request may succeed later.
            pub fn retryable(self) -> bool {
                match self { $(Self::$name => $retry,)* }
            }
        }
    };
}

codes! {
    MalformedRequest "malformed_request" Invalid 400 2 false;
    InvalidArgument "invalid_argument" Invalid 400 2 false;
    PromptTooLong "prompt_too_long" Invalid 400 2 false;
    UnsupportedTask "unsupported_task" Unsupported 400 2 false;
    UrlNotAllowed "url_not_allowed" Denied 400 4 false;
    Unauthorized "unauthorized" Denied 401 4 false;
    PathDenied "path_denied" Denied 403 4 false;
    HostDenied "host_denied" Denied 403 4 false;
    OriginDenied "origin_denied" Denied 403 4 false;
    HubAuthRequired "hub_auth_required" Denied 403 4 false;
    ModelNotFound "model_not_found" Missing 404 3 false;
    ArtifactNotFound "artifact_not_found" Missing 404 3 false;
    FileNotFound "file_not_found" Missing 404 3 false;
    JobNotFound "job_not_found" Missing 404 3 false;
    ModelNotDownloaded "model_not_downloaded" Missing 404 3 false;
    MethodNotAllowed "method_not_allowed" Invalid 405 2 false;
    AlreadyExists "already_exists" Invalid 409 5 false;
    ArtifactMismatch "artifact_mismatch" Invalid 409 5 false;
    PayloadTooLarge "payload_too_large" Invalid 413 2 false;
    ImageTooLarge "image_too_large" Invalid 413 2 false;
    UnsupportedMediaType "unsupported_media_type" Invalid 415 2 false;
    ImageCorrupt "image_corrupt" Invalid 422 2 false;
    WeightsCorrupt "weights_corrupt" Corrupt 422 5 false;
    UnsupportedFormat "unsupported_format" Corrupt 422 5 false;
    ConfigInvalid "config_invalid" Corrupt 422 5 false;
    TokenizerInvalid "tokenizer_invalid" Corrupt 422 5 false;
    ModelIncompatible "model_incompatible" Corrupt 422 5 false;
    ModelUnsupported "model_unsupported" Unsupported 422 5 false;
    LoraIncompatible "lora_incompatible" Corrupt 422 5 false;
    InsufficientMemory "insufficient_memory" Exhausted 422 6 false;
    IdempotencyConflict "idempotency_conflict" Invalid 422 2 false;
    Busy "busy" Unavailable 429 7 true;
    Cancelled "cancelled" Cancelled 499 130 false;
    Internal "internal" Internal 500 1 false;
    NonFiniteOutput "non_finite_output" Unsupported 500 9 false;
    ArtifactCorrupt "artifact_corrupt" Corrupt 500 5 false;
    StoreIo "store_io" Internal 500 5 false;
    WorkerCrashed "worker_crashed" Unavailable 500 1 true;
    Interrupted "interrupted" Unavailable 500 1 true;
    DownloadFailed "download_failed" Unavailable 502 8 true;
    DownloadCorrupt "download_corrupt" Corrupt 502 8 false;
    OutOfMemory "out_of_memory" Exhausted 503 6 true;
    DeviceUnavailable "device_unavailable" Unavailable 503 7 true;
    ShuttingDown "shutting_down" Unavailable 503 7 true;
    Offline "offline" Unavailable 503 7 false;
    DeadlineExceeded "deadline_exceeded" Unavailable 504 7 false;
    StoreFull "store_full" Exhausted 507 6 false;
}

impl Error {
    /// An error of this row, with one sentence that names what is at fault.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, param: None, source: None }
    }

    /// An argument is at fault: `invalid_argument` with its name.
    pub fn argument(param: &str, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..Self::new(Code::InvalidArgument, message) }
    }

    /// A bug of ours.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, message)
    }

    fn unforeseen(error: candle_core::Error) -> Self {
        Self::internal("a tensor operation failed").because(error)
    }

    /// Adds the next step.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds what a library said.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Puts the stage or file in front of the message.
    #[must_use]
    pub fn within(mut self, place: impl fmt::Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// The object that every face sends: code, message, hint, param, retryable.
    pub fn to_json(&self) -> serde_json::Value {
        let mut body = serde_json::json!({
            "code": self.code.as_str(),
            "message": self.to_string(),
            "type": format!("{:?}", self.code.kind()).to_lowercase(),
            "retryable": self.code.retryable(),
        });
        if let Some(hint) = &self.hint {
            body["hint"] = hint.as_str().into();
        }
        if let Some(param) = &self.param {
            body["param"] = param.as_str().into();
        }
        serde_json::json!({ "error": body })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.source {
            Some(source) => write!(f, " ({source})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// One of ours that travelled through candle, or a candle error that nobody foresaw.
impl From<candle_core::Error> for Error {
    fn from(error: candle_core::Error) -> Self {
        use candle_core::Error as Candle;
        match error {
            Candle::Context { inner, .. }
            | Candle::WithPath { inner, .. }
            | Candle::WithBacktrace { inner, .. } => Self::from(*inner),
            Candle::WrappedContext { wrapped, context } => match wrapped.downcast::<Self>() {
                Ok(ours) => *ours,
                Err(wrapped) => Self::unforeseen(Candle::WrappedContext { wrapped, context }),
            },
            other => Self::unforeseen(other),
        }
    }
}

/// Sends one of ours through code that speaks candle's errors; the way back is [`From`].
impl From<Error> for candle_core::Error {
    fn from(error: Error) -> Self {
        let context = error.code.as_str().to_owned();
        Self::WrappedContext { wrapped: Box::new(error), context }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_follow_their_form() {
        let mut seen = std::collections::HashSet::new();
        for code in Code::ALL {
            assert!(seen.insert(code.as_str()), "{code:?} is there twice");
            assert!(code.as_str().chars().all(|c| c.is_ascii_lowercase() || c == '_'));
            assert!((400..=599).contains(&code.http()));
            assert_ne!(code.exit(), 0);
        }
        assert_eq!(seen.len(), 47);
    }

    #[test]
    fn an_error_of_ours_comes_back_out_of_candles() {
        let through: candle_core::Error = Error::new(Code::WeightsCorrupt, "torn").into();
        let back = Error::from(through.bt());
        assert_eq!((back.code, back.message.as_str()), (Code::WeightsCorrupt, "torn"));
        assert_eq!(Error::from(candle_core::Error::Msg("shape".into())).code, Code::Internal);
    }

    #[test]
    fn the_json_names_argument_and_next_step() {
        let error = Error::argument("width", "width 1001 is not a multiple of 8").hint("try 1000");
        let body = &error.to_json()["error"];
        assert_eq!(body["code"], "invalid_argument");
        assert_eq!(body["param"], "width");
        assert_eq!(body["hint"], "try 1000");
        assert_eq!(body["retryable"], false);
    }
}
