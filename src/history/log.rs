//! The history of a run: its messages, sorted into streams and transaction groups.
//!
//! A message that was read after the cut is late: it is counted and promises nothing. Order within
//! comes from sequence and event numbers; the place in the trace is kept only to hold an ack
//! against the flush that it must stand behind.

use super::message::{Ack, Message, OpMessage, StreamEvent, StreamNote, TxgRow, TxgState};
use crate::units::{EventNo, Seq, StreamId, Txg};
use std::collections::BTreeMap;

/// A message with its place in the trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// Number of its entry in the trace.
    pub entry: u64,
    /// Whether it was read after the cut.
    pub late: bool,
    /// What it says.
    pub message: Message,
}

/// An acknowledged operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acked {
    /// What the guest said.
    pub ack: Ack,
    /// Number of the ack's entry in the trace.
    pub entry: u64,
}

/// What a stream said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StreamHistory {
    /// Acknowledged operations: sequence n is at index n - 1.
    pub acked: Vec<Acked>,
    /// The newest operation that was announced, acked or not.
    pub announced: Option<Seq>,
    /// Its start, end or failure.
    pub notes: Vec<StreamNote>,
    /// Acks that were read only after the cut.
    pub late_acks: u64,
}

impl StreamHistory {
    /// The newest acknowledged operation; 0 if there is none.
    pub fn newest_acked(&self) -> Seq {
        Seq(self.acked.len() as u64)
    }

    /// The ack of an operation.
    pub fn ack(&self, seq: Seq) -> Option<&Acked> {
        self.acked.get(usize::try_from(seq.0.checked_sub(1)?).ok()?)
    }

    /// The errno that ended it, if one did.
    pub fn failure(&self) -> Option<i32> {
        self.notes.iter().find_map(|note| match note.what {
            StreamEvent::Failed(errno) => Some(errno),
            _ => None,
        })
    }
}

/// Everything the guest said in a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct History {
    /// By stream.
    pub streams: BTreeMap<StreamId, StreamHistory>,
    /// The last row known of each transaction group.
    pub txgs: BTreeMap<Txg, TxgRow>,
    /// Messages read after the cut.
    pub late: u64,
}

/// Messages that cannot all be true, or of which some are missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// An ack is missing between two that are there.
    #[error(
        "stream {stream}: the ack of operation {missing} is missing while that of {present} is there: messages were lost"
    )]
    Gap {
        /// Which stream.
        stream: StreamId,
        /// The first operation without an ack.
        missing: Seq,
        /// The next with one.
        present: Seq,
    },
    /// Two acks of one operation.
    #[error("stream {stream}: operation {seq} was acknowledged twice")]
    Twice {
        /// Which stream.
        stream: StreamId,
        /// Which operation.
        seq: Seq,
    },
    /// Event numbers or stamps of one operation, or of neighbours in a stream, run backwards.
    #[error("stream {stream}: the event numbers or stamps of operation {seq} run backwards")]
    Backwards {
        /// Which stream.
        stream: StreamId,
        /// Which operation.
        seq: Seq,
    },
    /// One event number was given out twice.
    #[error("event number {event} was given out twice: the guest's counter is not one counter")]
    EventTwice {
        /// Which.
        event: EventNo,
    },
    /// A message names a stream that the plan does not have.
    #[error("a message names stream {stream}, which the plan does not have")]
    UnknownStream {
        /// Which.
        stream: StreamId,
    },
}

impl HistoryError {
    /// Whether data is missing (nothing can be said) rather than contradictory (the tool is broken).
    pub fn is_missing_data(&self) -> bool {
        matches!(self, HistoryError::Gap { .. })
    }
}

impl History {
    /// Sorts the messages of a run. `known` are the plan's streams.
    pub fn new(
        known: &[StreamId],
        arrivals: impl IntoIterator<Item = Arrival>,
    ) -> Result<History, HistoryError> {
        let mut history = History::default();
        let mut acks: BTreeMap<StreamId, BTreeMap<Seq, Acked>> = BTreeMap::new();
        for id in known {
            history.streams.insert(*id, StreamHistory::default());
        }
        for arrival in arrivals {
            history.late += u64::from(arrival.late);
            match arrival.message {
                Message::Op(op) => history.take_op(&mut acks, arrival.entry, arrival.late, op)?,
                Message::Txg(row) if !arrival.late => history.take_row(row),
                Message::Stream(note) => history.stream(note.stream)?.notes.push(note),
                Message::Txg(_) => {}
            }
        }
        for (stream, acks) in acks {
            history.stream(stream)?.acked = contiguous(stream, acks)?;
        }
        history.check_events()?;
        Ok(history)
    }

    fn stream(&mut self, id: StreamId) -> Result<&mut StreamHistory, HistoryError> {
        self.streams.get_mut(&id).ok_or(HistoryError::UnknownStream { stream: id })
    }

    fn take_op(
        &mut self,
        acks: &mut BTreeMap<StreamId, BTreeMap<Seq, Acked>>,
        entry: u64,
        late: bool,
        op: OpMessage,
    ) -> Result<(), HistoryError> {
        let stream = self.stream(op.stream)?;
        if late {
            stream.late_acks += u64::from(op.ack.is_some());
            return Ok(());
        }
        let newest = op.ack.map(|ack| ack.seq).max(op.intent.map(|intent| intent.seq));
        stream.announced = stream.announced.max(newest);
        let Some(ack) = op.ack else { return Ok(()) };
        match acks.entry(op.stream).or_default().insert(ack.seq, Acked { ack, entry }) {
            Some(_) => Err(HistoryError::Twice { stream: op.stream, seq: ack.seq }),
            None => Ok(()),
        }
    }

    /// Rows only ever advance, whatever order they arrive in.
    fn take_row(&mut self, row: TxgRow) {
        let known = self.txgs.entry(row.txg).or_insert(row);
        if known.state <= row.state {
            *known = row;
        }
    }

    fn check_events(&self) -> Result<(), HistoryError> {
        let ops = self.streams.values().flat_map(|stream| &stream.acked);
        let mut events: Vec<EventNo> =
            ops.flat_map(|op| [op.ack.start, op.ack.done, op.ack.end]).collect();
        events.sort_unstable();
        match events.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(HistoryError::EventTwice { event: pair[0] }),
            None => Ok(()),
        }
    }

    /// The highest transaction group that the guest reported committed.
    pub fn newest_committed(&self) -> Option<Txg> {
        let committed = self.txgs.values().filter(|row| row.state == TxgState::Committed);
        committed.map(|row| row.txg).max()
    }
}

/// The acks of a stream as a list without gaps whose numbers run forwards.
fn contiguous(stream: StreamId, acks: BTreeMap<Seq, Acked>) -> Result<Vec<Acked>, HistoryError> {
    let list: Vec<Acked> = acks.into_values().collect();
    for (at, acked) in list.iter().enumerate() {
        let (ack, expected) = (&acked.ack, Seq(at as u64 + 1));
        if ack.seq != expected {
            return Err(HistoryError::Gap { stream, missing: expected, present: ack.seq });
        }
        let after_previous = at == 0 || {
            let previous = &list[at - 1].ack;
            previous.start < ack.start && previous.start_ns <= ack.start_ns
        };
        let forwards = ack.start < ack.done && ack.done < ack.end;
        let in_time = ack.start_ns <= ack.done_ns && ack.done_ns <= ack.end_ns;
        if !(after_previous && forwards && in_time) {
            return Err(HistoryError::Backwards { stream, seq: ack.seq });
        }
    }
    Ok(list)
}
