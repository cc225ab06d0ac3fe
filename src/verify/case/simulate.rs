//! A run in memory for the tests of whole cases: the built-in scenario's streams, a pool that
//! assigns each write to the transaction group open at some instant of it, an intent log behind the
//! writes of `billing`, a cut, and what came back. It knows the truth that the verdicts must meet.

use super::spec::*;
use super::*;
use crate::history::log::Arrival;
use crate::history::message::{Ack, Intent, Message, OpMessage, TxgRow, TxgState};
use crate::record::classify::Seen;
use crate::record::observed::{ObservedBlock, Summary};
use crate::stack::settings::{DEFAULT, load};
use crate::trace::ClockSample;
use crate::units::{EventNo, RunId, Seq};
use crate::verify::consistent::{PlainRecovery, ZfsRecovery};
use crate::verify::durable::AnsweredFlush;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;

/// All that a case consists of, open to damage.
pub struct Run {
    pub scenario: Scenario,
    pub plan: Plan,
    pub arrivals: Vec<Arrival>,
    pub samples: Vec<ClockSample>,
    pub found: Found,
    pub recovery: ZfsRecovery,
    /// Instead of that, if the stack is a plain file system.
    pub plain: Option<PlainRecovery>,
    pub flushes: Vec<AnsweredFlush>,
    pub commits: Vec<Commit>,
    pub written: Option<Txg>,
    pub limits: TxgLimits,
    pub cut: LabNs,
    spec: Spec,
    ops: BTreeMap<StreamId, Vec<Op>>,
    groups: Vec<Group>,
}

/// What a record of this operation says of itself.
fn digest(stream: StreamId, seq: u64) -> [u8; 8] {
    (u64::from(stream.0) << 48 | seq).to_le_bytes()
}

impl Run {
    pub fn new(spec: Spec) -> Run {
        let scenario = load(DEFAULT, &spec.sets).expect("the built-in scenario");
        let plan = scenario.plan(RunId([5; 16]), spec.seed);
        let groups = groups(&spec);
        let mut chance = ChaCha8Rng::seed_from_u64(spec.seed);
        let mut operations = |stream: &StreamPlan| {
            let logs = scenario.dataset[&stream.dataset].sync != Sync::Disabled;
            (stream.id, operations(&spec, stream, logs, &mut chance))
        };
        let ops = plan.streams.iter().map(&mut operations).collect();
        let mut run = Run {
            scenario,
            plan,
            arrivals: Vec::new(),
            samples: samples(&spec, &mut chance),
            found: Found::default(),
            recovery: clean_recovery(),
            plain: None,
            flushes: Vec::new(),
            commits: Vec::new(),
            written: None,
            limits: TxgLimits { timeout_ns: spec.open[0], dirty_bytes: 20 << 20 },
            cut: lab(BEGIN + spec.cut),
            spec,
            ops,
            groups,
        };
        run.written = run.groups.iter().filter(|g| g.end < run.end()).map(|g| g.txg).max();
        run.commits = run.groups.iter().filter(|g| g.durable <= run.end()).map(commit).collect();
        run.tell();
        run.come_back_at(run.durable());
        run
    }

    /// The cut on the guest's clock.
    fn end(&self) -> u64 {
        BEGIN + self.spec.cut
    }

    /// The newest group whose commit came before the cut.
    pub fn durable(&self) -> Txg {
        let in_time = self.groups.iter().filter(|group| group.durable <= self.end());
        in_time.map(|group| group.txg).max().expect("the set-up's at least")
    }

    /// Writes the trace: flushes, acks and rows in the order in which the lab saw them.
    fn tell(&mut self) {
        enum Told {
            Flush(LabNs),
            Message(Message),
        }
        let events = self.event_numbers();
        let mut told: Vec<(u64, Told)> = Vec::new();
        for (stream, ops) in &self.ops {
            for (op, (seq, events)) in ops.iter().zip((1..).zip(&events[stream])) {
                let message = Message::Op(op_message(*stream, seq, op, *events));
                told.push((op.end + DELIVERY, Told::Message(message)));
                if let Some(at) = op.logged {
                    told.push((at, Told::Flush(lab(at - 4 * MS))));
                }
            }
        }
        let end = self.end();
        let rows = self.groups.iter().filter(|group| group.birth < end);
        told.extend(rows.map(|group| (group.birth, Told::Message(Message::Txg(row(group, end))))));
        told.sort_by_key(|(at, _)| *at);
        for (entry, (at, told)) in (0..).zip(told) {
            match told {
                Told::Message(message) => {
                    self.arrivals.push(Arrival { entry, late: at >= end, message });
                }
                Told::Flush(arrived) if at < end => {
                    self.flushes.push(AnsweredFlush { arrived, reply_entry: entry });
                }
                Told::Flush(_) => {}
            }
        }
    }

    /// One counter for all streams: an operation's three numbers, in the order of time.
    fn event_numbers(&self) -> BTreeMap<StreamId, Vec<[EventNo; 3]>> {
        let mut instants: Vec<(u64, usize, StreamId, usize)> = Vec::new();
        for (stream, ops) in &self.ops {
            for (n, op) in ops.iter().enumerate() {
                let of = |(which, at)| (at, which, *stream, n);
                instants.extend([op.start, op.done, op.end].into_iter().enumerate().map(of));
            }
        }
        instants.sort_unstable();
        let mut numbers: BTreeMap<StreamId, Vec<[EventNo; 3]>> =
            self.ops.iter().map(|(id, ops)| (*id, vec![[EventNo(0); 3]; ops.len()])).collect();
        for (event, (_, which, stream, n)) in (1..).zip(instants) {
            numbers.get_mut(&stream).expect("a stream")[n][which] = EventNo(event);
        }
        numbers
    }

    /// What the restored guest finds when the import used `used`: customer as of then, billing with
    /// its intent log replayed.
    pub fn come_back_at(&mut self, used: Txg) {
        self.recovery.used = Some(used);
        self.files_as_of(used);
    }

    /// The files alone.
    pub fn files_as_of(&mut self, used: Txg) {
        let files = self.plan.streams.iter().map(|stream| {
            let kept = self.ops[&stream.id].iter().take_while(|op| self.is_there(op, used));
            self.file(stream, kept.count() as u64)
        });
        self.found.files = files.collect();
    }

    fn is_there(&self, op: &Op, used: Txg) -> bool {
        let logged = op.logged.is_some_and(|at| at < self.end());
        logged || self.group_of(op) <= used
    }

    fn group_of(&self, op: &Op) -> Txg {
        let group = self.groups.iter().find(|group| op.assigned < group.end);
        group.expect("groups reach beyond the cut").txg
    }

    fn file(&self, stream: &StreamPlan, kept: u64) -> ObservedFile {
        let events = self.event_of_acks(stream.id);
        let mut blocks = Vec::new();
        for seq in 1..=kept {
            let slot = stream.slot(self.plan.seed, Seq(seq)) as usize;
            let summary = Summary {
                seq: Seq(seq),
                start: events[seq as usize - 1],
                stamp: GuestNs(self.ops[&stream.id][seq as usize - 1].start),
                digest: digest(stream.id, seq),
                previous: if seq == 1 { [0; 8] } else { digest(stream.id, seq - 1) },
            };
            blocks.resize(blocks.len().max(slot + 1), ObservedBlock::Zeros);
            blocks[slot] = ObservedBlock::Record(summary);
        }
        let size = Some(blocks.len() as u64 * RECORD_BYTES);
        ObservedFile { stream: stream.id, size, blocks }
    }

    fn event_of_acks(&self, id: StreamId) -> Vec<EventNo> {
        let acks = self.arrivals.iter().filter_map(|arrival| match &arrival.message {
            Message::Op(op) if op.stream == id => op.ack.map(|ack| ack.start),
            _ => None,
        });
        acks.collect()
    }

    /// How many operations of a stream are in its file's history: the newest there.
    pub fn kept(&self, id: StreamId) -> u64 {
        let blocks =
            self.found.files.iter().find(|file| file.stream == id).expect("a file").blocks.iter();
        let seq = |block: &ObservedBlock| match block {
            ObservedBlock::Record(summary) => summary.seq.0,
            _ => 0,
        };
        blocks.map(seq).max().unwrap_or(0)
    }

    /// Takes a stream back to its first `kept` operations.
    pub fn roll_back(&mut self, id: StreamId, kept: u64) {
        let stream = self.plan.streams.iter().find(|stream| stream.id == id).expect("a stream");
        let file = self.file(stream, kept);
        *self.file_of(id) = file;
    }

    pub fn file_of(&mut self, id: StreamId) -> &mut ObservedFile {
        self.found.files.iter_mut().find(|file| file.stream == id).expect("a file")
    }

    /// Changes the rows that the guest reported.
    pub fn change_rows(&mut self, change: impl Fn(&mut TxgRow)) {
        for arrival in &mut self.arrivals {
            if let Message::Txg(row) = &mut arrival.message {
                change(row);
            }
        }
    }

    pub fn judge(&self) -> Judged {
        let streams: Vec<StreamId> = self.plan.streams.iter().map(|stream| stream.id).collect();
        let history = History::new(&streams, self.arrivals.iter().cloned()).expect("a history");
        let clock = ClockMap::new(&self.samples).expect("a clock");
        let pool = Recovery::Zfs(self.recovery.clone());
        let case = Case {
            scenario: &self.scenario,
            plan: &self.plan,
            history: &history,
            clock: &clock,
            scripts: &Scripts::default(),
            classify: &|_, _, _| Seen::Garbage,
            found: &self.found,
            recovery: &self.plain.clone().map_or(pool, Recovery::Plain),
            flushes: &Flushes::new(self.flushes.iter().copied()),
            commits: if self.plain.is_some() { &[] } else { &self.commits },
            written: self.written,
            limits: self.plain.is_none().then_some(self.limits),
            begin: lab(BEGIN),
            cut: LabInterval::exact(self.cut),
        };
        case.judge().expect("readers agree")
    }

    /// The true loss of customer at an instant at which `used` was the newest durable group.
    fn true_window(&self, now: u64, used: Txg) -> u64 {
        // What was on its way when the power went was not acknowledged.
        let known = now.min(self.end() - DELIVERY);
        let lost = CUSTOMERS.iter().flat_map(|id| &self.ops[id]);
        let lost = lost.filter(|op| op.end < known && self.group_of(op) > used);
        now - lost.map(|op| op.end).min().unwrap_or(now)
    }

    /// The true window of the cut.
    pub fn true_own(&self) -> u64 {
        self.true_window(self.end(), self.durable())
    }

    /// The true largest window of the load: just before a commit, or at the cut.
    pub fn true_largest(&self) -> u64 {
        let of_load = self.groups.iter().filter(|g| (BEGIN..=self.end()).contains(&g.durable));
        let before = of_load.map(|g| self.true_window(g.durable, Txg(g.txg.0 - 1)));
        before.max().unwrap_or(0).max(self.true_own())
    }
}

fn commit(group: &Group) -> Commit {
    Commit { txg: group.txg, durable: lab(group.durable) }
}

/// A row as it was last reported.
fn row(group: &Group, cut: u64) -> TxgRow {
    let state = match () {
        () if group.durable < cut => TxgState::Committed,
        () if group.end < cut => TxgState::Syncing,
        () => TxgState::Open,
    };
    TxgRow {
        event: EventNo(0),
        seen_ns: GuestNs(group.birth),
        txg: group.txg,
        birth: GuestNs(group.birth),
        state,
        dirty_bytes: 1 << 20,
        open_ns: if state == TxgState::Open { 0 } else { group.end - group.birth },
        quiesce_ns: 0,
        wait_ns: 0,
        sync_ns: if state == TxgState::Committed { group.durable - group.end } else { 0 },
    }
}

fn op_message(stream: StreamId, seq: u64, op: &Op, events: [EventNo; 3]) -> OpMessage {
    let [start, done, end] = events;
    let ack = Ack {
        seq: Seq(seq),
        start,
        done,
        end,
        start_ns: GuestNs(op.start),
        done_ns: GuestNs(op.done),
        end_ns: GuestNs(op.end),
        digest: digest(stream, seq),
    };
    let intent = Some(Intent { seq: Seq(seq + 1), location: 0 });
    OpMessage { stream, event: end, ack: Some(ack), intent }
}
