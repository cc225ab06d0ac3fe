//! Times the stages of a trial and keeps its notes, while passing both on.

use crate::guest::progress::{Progress, Watch};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The stages of a trial as they come by.
#[derive(Debug)]
pub struct Stages {
    seen: Arc<Mutex<Seen>>,
    watch: Watch,
}

#[derive(Debug, Default)]
struct Seen {
    stages: Vec<(String, Instant)>,
    notes: Vec<String>,
}

/// Stages with their seconds, and notes, each once.
pub type Course = (Vec<(String, f64)>, Vec<String>);

impl Stages {
    /// Listens to what `outer` is told from now on.
    pub fn new(outer: &Watch) -> Stages {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let (kept, passed_on) = (seen.clone(), outer.clone());
        let watch = outer.with_listener(move |progress| {
            let mut seen = kept.lock().unwrap_or_else(PoisonError::into_inner);
            match &progress {
                Progress::Stage(text) => seen.stages.push((text.clone(), Instant::now())),
                Progress::Note(text) if !seen.notes.contains(text) => {
                    seen.notes.push(text.clone());
                }
                _ => {}
            }
            drop(seen);
            passed_on.tell(progress);
        });
        Stages { seen, watch }
    }

    /// To be told by everything that the trial does.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// The stages, each until the next; the last until now.
    pub fn finish(&self) -> Course {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let ends = seen.stages.iter().skip(1).map(|(_, at)| *at).chain([Instant::now()]);
        let timed = seen.stages.iter().zip(ends);
        let seconds = |((text, from), to): (&(String, Instant), Instant)| {
            (text.clone(), to.duration_since(*from).as_secs_f64())
        };
        (timed.map(seconds).collect(), seen.notes.clone())
    }
}
