//! Jobs that wait for the instant at which they are due, of one connection.
//!
//! What always holds: jobs come out in the order in which they are due, none before; a client that
//! asks faster than the disk answers is not read any further.

use super::device::Job;
use crate::trace::lab_now;
use crate::units::LabNs;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Jobs that wait at most.
const JOBS_MAX: usize = 4096;

/// The queue. One thread puts jobs in, another takes them out.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    jobs: BinaryHeap<Reverse<Waiting>>,
    /// No more jobs come.
    finished: bool,
}

#[derive(Debug)]
struct Waiting(LabNs, Job);

impl Waiting {
    fn key(&self) -> (LabNs, u64) {
        (self.0, self.1.no.0)
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl Queue {
    /// Adds a job; waits while the queue is full. Does nothing once it is finished.
    pub fn put(&self, due: LabNs, job: Job) {
        let full = |state: &mut State| state.jobs.len() >= JOBS_MAX && !state.finished;
        let mut state =
            self.changed.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        if !state.finished {
            state.jobs.push(Reverse(Waiting(due, job)));
            self.changed.notify_all();
        }
    }

    /// No more jobs come; those that wait are still given out.
    pub fn finish(&self) {
        self.lock().finished = true;
        self.changed.notify_all();
    }

    /// No more jobs come, and those that wait are dropped.
    pub fn abandon(&self) {
        let mut state = self.lock();
        state.finished = true;
        state.jobs.clear();
        self.changed.notify_all();
    }

    /// Waits until a job is due, and appends all that are to `out`. Tells whether more may come.
    pub fn take_due(&self, out: &mut Vec<Job>) -> bool {
        let mut state = self.lock();
        loop {
            let now = lab_now();
            while state.jobs.peek().is_some_and(|Reverse(first)| first.0 <= now) {
                out.extend(state.jobs.pop().map(|Reverse(Waiting(_, job))| job));
            }
            if !out.is_empty() {
                self.changed.notify_all();
                return true;
            }
            state = match state.jobs.peek() {
                Some(Reverse(first)) => {
                    let wait = Duration::from_nanos(first.0.0 - now.0);
                    match self.changed.wait_timeout(state, wait) {
                        Ok((state, _)) => state,
                        Err(poisoned) => poisoned.into_inner().0,
                    }
                }
                None if state.finished => return false,
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
