//! How long work tells what it does, and how it is told to stop.

use crate::guest::error::GuestError;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What long work tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// A stage began.
    Stage(String),
    /// How far a stage is.
    Part {
        /// Which stage.
        stage: String,
        /// Parts done.
        done: u64,
        /// All parts; 0 if that is not known yet.
        total: u64,
        /// What is done just now.
        text: String,
    },
    /// Something the user should know and find again later.
    Note(String),
}

/// Carries the listener and the wish to stop through everything that takes long.
#[derive(Clone)]
pub struct Watch {
    listener: Arc<dyn Fn(Progress) + Send + Sync>,
    cancel: Arc<AtomicBool>,
}

impl Watch {
    /// Tells `listener`; stops soon after `cancel` became true.
    pub fn new(
        listener: impl Fn(Progress) + Send + Sync + 'static,
        cancel: Arc<AtomicBool>,
    ) -> Watch {
        Watch { listener: Arc::new(listener), cancel }
    }

    /// Tells nobody and is never stopped.
    pub fn silent() -> Watch {
        Watch::new(|_| {}, Arc::default())
    }

    /// The same wish to stop, another listener.
    pub fn with_listener(&self, listener: impl Fn(Progress) + Send + Sync + 'static) -> Watch {
        Watch { listener: Arc::new(listener), cancel: self.cancel.clone() }
    }

    /// A stage begins.
    pub fn stage(&self, text: impl Into<String>) {
        (self.listener)(Progress::Stage(text.into()));
    }

    /// Something the user should know.
    pub fn note(&self, text: impl Into<String>) {
        (self.listener)(Progress::Note(text.into()));
    }

    /// Passes on what something else told.
    pub fn tell(&self, progress: Progress) {
        (self.listener)(progress);
    }

    /// Whether the user wants to stop.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// `Err(Cancelled)` if the user wants to stop.
    pub fn check(&self) -> Result<(), GuestError> {
        if self.is_cancelled() { Err(GuestError::Cancelled) } else { Ok(()) }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch {{ cancelled: {} }}", self.is_cancelled())
    }
}
