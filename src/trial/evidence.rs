//! Reads a run's trace into what the oracles need.

use super::facts::RunFacts;
use super::folder::RunDir;
use super::live::SET_UP_WRITTEN;
use crate::disk::{
    self, Commit, CrashModel, DiskLog, LOAD_BEGINS, LogError, UberblockSighting, commit_times,
};
use crate::history::clock::{ClockError, ClockMap, LabInterval};
use crate::history::log::{Arrival, History, HistoryError};
use crate::history::message::{FrameError, Frames, Message};
use crate::script::scripts::Scripts;
use crate::stack::scenario::Stack;
use crate::trace::{ClockSample, Command, Entry, EntryAt, EntryNo, TraceEnd};
use crate::units::{EventNo, GuestNs, LabNs, RunId, StreamId, Txg};
use crate::verify::durable::{AnsweredFlush, Flushes};
use crate::verify::verdict::Verdict;
use std::path::Path;

/// Everything that a trace says, whenever the power might have gone.
#[derive(Debug)]
pub struct Recording {
    /// The disk's side.
    pub log: DiskLog,
    /// Where the guest's clock lies on the lab's.
    pub clock: ClockMap,
    /// The flushes that the disk answered.
    pub flushes: Flushes,
    /// The mark `load-begins`.
    pub begin: LabNs,
    /// The recorded cut.
    pub cut: LabNs,
    /// What each stream with a script does, as far as it was asked for.
    pub scripts: Scripts,
    settled: SettledBy,
    streams: Vec<StreamId>,
    /// The guest's side, in the order of arrival.
    arrivals: Vec<Arrival>,
    /// Where something was acked.
    acks: Vec<EntryNo>,
    /// When each txg became durable.
    commits: Vec<Commit>,
}

/// What a recording says if the power went at one of its entries.
#[derive(Debug)]
pub struct Evidence<'a> {
    /// All of it.
    pub recording: &'a Recording,
    /// The guest's side; what arrived behind the cut is late.
    pub history: History,
    /// When each txg that was durable at the cut became so, ascending.
    pub commits: Vec<Commit>,
    /// The highest txg whose uberblock reached the disk before the cut.
    pub written: Option<Txg>,
    /// The cut.
    pub cut: LabNs,
}

/// Why a trace cannot be judged. Each says which verdict that makes.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    /// The disk's entries cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// It is another run's.
    #[error("the trace is of run {run}, the plan of run {expected}")]
    Foreign {
        /// The trace's.
        run: RunId,
        /// The plan's.
        expected: RunId,
    },
    /// It ends before the cut.
    #[error("the trace holds no cut: {end}")]
    NoCut {
        /// How it ended.
        end: TraceEnd,
    },
    /// Entries behind the cut are damaged, so late messages and the rest cannot be told.
    #[error("the trace is damaged: {end}")]
    Damaged {
        /// How it ended.
        end: TraceEnd,
    },
    /// The load never began.
    #[error("the trace holds no mark {SET_UP_WRITTEN} or {LOAD_BEGINS} before the cut")]
    NoLoad,
    /// The set-up was not durable when the load began.
    #[error(
        "no commit that holds the set-up's last write is known to be durable when the load begins"
    )]
    SetUpNotDurable,
    /// The same on a plain file system.
    #[error(
        "no flush stands behind the set-up: the disk answered none between the marks {SET_UP_WRITTEN} and {LOAD_BEGINS}"
    )]
    NoFlushBehindSetUp,
    /// A message that is none.
    #[error("entry {entry} of the trace: {source}")]
    Message {
        /// Its entry.
        entry: u32,
        /// What is wrong with it.
        source: FrameError,
    },
    /// Messages that cannot all be true, or are missing.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// Clock samples that cannot all be true, or are missing.
    #[error(transparent)]
    Clock(#[from] ClockError),
}

impl EvidenceError {
    /// Missing data say nothing; contradictory data say that the tool is broken.
    pub fn verdict(&self) -> Verdict {
        match self {
            EvidenceError::NoCut { .. }
            | EvidenceError::Damaged { .. }
            | EvidenceError::NoLoad
            | EvidenceError::SetUpNotDurable
            | EvidenceError::NoFlushBehindSetUp
            | EvidenceError::Clock(ClockError::NoSample) => Verdict::NotMeasured,
            EvidenceError::History(error) if error.is_missing_data() => Verdict::NotMeasured,
            EvidenceError::Log(LogError::Trace(_)) => Verdict::NotMeasured,
            EvidenceError::Log(LogError::Impossible { .. })
            | EvidenceError::Foreign { .. }
            | EvidenceError::Message { .. }
            | EvidenceError::History(_)
            | EvidenceError::Clock(ClockError::Contradiction { .. }) => Verdict::HarnessBroken,
        }
    }
}

/// Reads the trace of a run, to be judged under `model`.
pub fn of_run(
    folder: &RunDir,
    facts: &RunFacts,
    model: CrashModel,
) -> Result<Recording, EvidenceError> {
    if facts.plan.streams.is_empty() {
        return imported(&folder.trace(), facts.begins_at.as_deref());
    }
    let streams: Vec<StreamId> = facts.plan.streams.iter().map(|stream| stream.id).collect();
    let settled = match facts.scenario.stack.get() {
        Stack::Zfs(_) => SettledBy::Commit,
        Stack::Plain(..) => SettledBy::Flush,
    };
    let recording = read(&folder.trace(), &streams, model, settled)?;
    match recording.log.header.run {
        run if run == facts.plan.run => Ok(recording),
        run => Err(EvidenceError::Foreign { run, expected: facts.plan.run }),
    }
}

/// What shows that the set-up was durable when the load began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettledBy {
    /// A pool's commit.
    Commit,
    /// A flush of the disk: all that a plain file system asks for.
    Flush,
}

/// Reads a trace that was imported from another tool's log: it has no load of ours, its times are
/// those of the import, and its marks and messages only say where a cut may be of interest. The
/// states from the mark `begins` on are of interest, or all.
pub fn imported(path: &Path, begins: Option<&str>) -> Result<Recording, EvidenceError> {
    let mut acks = Vec::new();
    let mut log = DiskLog::read(path, |at: &EntryAt, entry: &Entry| {
        if matches!(entry, Entry::Mark(_) | Entry::Message(_)) {
            acks.push(at.no);
        }
    })?;
    let begin = match begins {
        Some(name) => log.mark(name).cloned().ok_or(EvidenceError::NoLoad)?,
        None => disk::Mark { name: String::new(), entry: EntryNo(0), at: log.header.monotonic },
    };
    log.marks.insert(0, disk::Mark { name: LOAD_BEGINS.to_owned(), ..begin.clone() });
    let cut = log.cut.as_ref().map_or(log.last, |cut| cut.at);
    let sample = ClockSample { before: begin.at, after: begin.at, guest: GuestNs(begin.at.0) };
    Ok(Recording {
        clock: ClockMap::new(&[sample])?,
        flushes: Flushes::new(answered_flushes(&log)),
        begin: begin.at,
        cut,
        scripts: Scripts::default(),
        settled: SettledBy::Flush,
        streams: Vec::new(),
        arrivals: Vec::new(),
        acks,
        commits: Vec::new(),
        log,
    })
}

/// Reads the trace at `path`; `streams` are the plan's. Only a pool has commits.
pub fn read(
    path: &Path,
    streams: &[StreamId],
    model: CrashModel,
    settled: SettledBy,
) -> Result<Recording, EvidenceError> {
    let (mut arrivals, mut samples, mut cut_seen) = (Vec::new(), Vec::new(), false);
    let mut bad = None;
    let log = DiskLog::read(path, |at: &EntryAt, entry: &Entry| match entry {
        Entry::Message(frame) => match arrival(at, frame, cut_seen) {
            Ok(arrival) => arrivals.push(arrival),
            Err(source) => bad = bad.take().or(Some((at.no, source))),
        },
        Entry::ClockSample(sample) => samples.push(*sample),
        Entry::Cut(_) => cut_seen = true,
        _ => {}
    })?;
    if let Some((EntryNo(entry), source)) = bad {
        return Err(EvidenceError::Message { entry, source });
    }
    let cut = log.cut.as_ref().map(|cut| cut.at);
    let cut = cut.ok_or(EvidenceError::NoCut { end: log.end })?;
    if let TraceEnd::CutShort { .. } = log.end {
        return Err(EvidenceError::Damaged { end: log.end });
    }
    let before_cut = |name| log.mark(name).filter(|mark| mark.entry < log.cut_entry());
    let begin = before_cut(LOAD_BEGINS).map(|mark| mark.at).ok_or(EvidenceError::NoLoad)?;
    let set_up = before_cut(SET_UP_WRITTEN).map(|mark| mark.at).ok_or(EvidenceError::NoLoad)?;
    said_once(&arrivals)?;
    let recording = Recording {
        clock: ClockMap::new(&samples)?,
        flushes: Flushes::new(answered_flushes(&log)),
        commits: match settled {
            SettledBy::Commit => commit_times(&log, model),
            SettledBy::Flush => Vec::new(),
        },
        scripts: Scripts::default(),
        settled,
        streams: streams.to_vec(),
        acks: arrivals.iter().filter_map(ack_entry).collect(),
        arrivals,
        begin,
        cut,
        log,
    };
    let whole = recording.at_its_cut()?;
    match settled {
        SettledBy::Commit if !is_durable(set_up, &whole) => Err(EvidenceError::SetUpNotDurable),
        SettledBy::Flush if !is_flushed(set_up, begin, &recording.log) => {
            Err(EvidenceError::NoFlushBehindSetUp)
        }
        _ => Ok(recording),
    }
}

impl Recording {
    /// What it says of the cut that was made.
    pub fn at_its_cut(&self) -> Result<Evidence<'_>, HistoryError> {
        self.at(self.log.cut_entry(), self.cut)
    }

    /// What it would say had the power gone at the instant `at`, just before the entry `cut`.
    pub fn at(&self, cut: EntryNo, at: LabNs) -> Result<Evidence<'_>, HistoryError> {
        let late = |arrival: &Arrival| arrival.late || arrival.entry >= u64::from(cut.0);
        let arrivals =
            self.arrivals.iter().map(|said| Arrival { late: late(said), ..said.clone() });
        let in_time = self.commits.partition_point(|commit| commit.durable < at);
        Ok(Evidence {
            recording: self,
            history: History::new(&self.streams, arrivals)?,
            commits: self.commits[..in_time].to_vec(),
            written: match self.settled {
                SettledBy::Commit => written_before(&self.log, cut),
                SettledBy::Flush => None,
            },
            cut: at,
        })
    }
}

/// Each message has an event number of its own: one that comes twice was not read as it was sent,
/// and its later place would put an ack behind flushes that it does not rest on.
fn said_once(arrivals: &[Arrival]) -> Result<(), HistoryError> {
    let mut events: Vec<EventNo> = arrivals
        .iter()
        .map(|arrival| match &arrival.message {
            Message::Op(op) => op.event,
            Message::Txg(row) => row.event,
            Message::Stream(note) => note.event,
        })
        .collect();
    events.sort_unstable();
    match events.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(HistoryError::EventTwice { event: pair[0] }),
        None => Ok(()),
    }
}

/// Whether everything written before `set_up` was durable when the load began. A commit in between
/// is not enough, for the group that was syncing meanwhile may be older: the group after the
/// committed one must have been born behind `set_up`.
fn is_durable(set_up: LabNs, evidence: &Evidence) -> bool {
    let Evidence { recording, history, .. } = evidence;
    let closed_behind = |commit: &Commit| {
        let next = history.txgs.get(&Txg(commit.txg.0.saturating_add(1)));
        next.is_some_and(|row| recording.clock.lab(row.birth).lo >= set_up)
    };
    let in_between = |commit: &&Commit| (set_up..recording.begin).contains(&commit.durable);
    evidence.commits.iter().filter(in_between).any(closed_behind)
}

fn ack_entry(said: &Arrival) -> Option<EntryNo> {
    let is_ack = matches!(&said.message, Message::Op(op) if op.ack.is_some());
    (is_ack && !said.late).then_some(EntryNo(said.entry as u32))
}

/// The highest txg whose uberblock arrived before the entry `cut`.
fn written_before(log: &DiskLog, cut: EntryNo) -> Option<Txg> {
    let arrived =
        |sighting: &&UberblockSighting| log.requests[sighting.request as usize].arrival < cut;
    log.uberblocks.iter().take_while(arrived).map(|sighting| sighting.txg).max()
}

/// Whether a flush came behind `set_up` and was answered before the load began. A forced write is not
/// enough: it makes nothing durable but itself.
fn is_flushed(set_up: LabNs, begin: LabNs, log: &DiskLog) -> bool {
    let flushes = log.requests.iter().filter(|request| request.command() == Command::Flush);
    flushes
        .filter(|flush| flush.arrived >= set_up)
        .any(|flush| flush.reply().is_some_and(|reply| reply.error == 0 && reply.at < begin))
}

fn arrival(at: &EntryAt, frame: &[u8], late: bool) -> Result<Arrival, FrameError> {
    let mut frames = Frames::default();
    frames.feed(frame);
    match frames.next_frame()? {
        Some((_, message)) => Ok(Arrival { entry: u64::from(at.no.0), late, message }),
        None => Err(FrameError::Payload { kind: 0, len: frame.len() }),
    }
}

fn answered_flushes(log: &DiskLog) -> impl Iterator<Item = AnsweredFlush> + '_ {
    let durable =
        |request: &&crate::disk::DiskRequest| request.command() == Command::Flush || request.fua();
    log.requests.iter().filter(durable).filter_map(|request| {
        let reply = request.reply().filter(|reply| reply.error == 0)?;
        Some(AnsweredFlush { arrived: request.arrived, reply_entry: u64::from(reply.entry.0) })
    })
}

impl Recording {
    /// Where something was acked, in the order of arrival.
    pub fn acks(&self) -> &[EntryNo] {
        &self.acks
    }

    /// When each txg of the load became durable.
    pub fn commits_of_load(&self) -> Vec<LabNs> {
        let times = self.commits.iter().map(|commit| commit.durable);
        times.filter(|at| *at >= self.begin).collect()
    }
}

impl Evidence<'_> {
    /// The same after a second cut, during the recovery that `log` recorded: an import writes
    /// groups of its own.
    pub fn recovered(mut self, log: &DiskLog, cut: EntryNo, at: LabNs, model: CrashModel) -> Self {
        let later = commit_times(log, model).into_iter().filter(|commit| commit.durable < at);
        self.commits.extend(later);
        self.written = self.written.max(written_before(log, cut));
        self
    }

    /// The cut as an interval: with the lab's own disk it is one instant.
    pub fn cut_interval(&self) -> LabInterval {
        LabInterval::exact(self.cut)
    }
}

#[cfg(test)]
mod tests;
