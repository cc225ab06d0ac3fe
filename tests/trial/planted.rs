//! Faults planted in the data of a real run: the crash state of one real cut is read once, damaged
//! in one way at a time, and judged again. Each fault must be classed as what it is, by the oracle
//! that is there for it; the untouched data must pass the same claims.

use super::support::{Trial, alone, plugpull};
use plugpull::record::layout::{self, RECORD_BYTES, RecordBytes};
use plugpull::record::observed::{ObservedBlock, ObservedFile};
use plugpull::record::ring;
use plugpull::stack::scenario::ClaimKind;
use plugpull::trial::compose;
use plugpull::trial::evidence::{self, Recording};
use plugpull::trial::facts::RunFacts;
use plugpull::trial::folder::RunDir;
use plugpull::trial::inspect::Observation;
use plugpull::trial::report::TrialReport;
use plugpull::units::{RunId, Seq};
use plugpull::verify::outcome::Outcome;
use plugpull::verify::verdict::Verdict;
use plugpull::workload::plan::Pattern;

/// A real run, ready to be judged with other observations.
struct Run {
    facts: RunFacts,
    recording: Recording,
    folder: RunDir,
}

impl Run {
    fn observed(&self) -> Observation {
        Observation::load(&self.folder, &self.facts.plan).unwrap()
    }

    /// The report when `plant` has changed what was observed.
    fn with(&self, plant: impl FnOnce(&mut Observation)) -> TrialReport {
        let mut observed = self.observed();
        plant(&mut observed);
        compose::judged(&self.facts, &self.recording.at_its_cut().unwrap(), &observed)
    }

    /// The file of the first customer stream of a pattern, by its place among the files.
    fn customer(&self, append: bool) -> usize {
        let wanted = |pattern: &Pattern| matches!(pattern, Pattern::Append) == append;
        let stream = self.facts.plan.streams.iter();
        let mut stream = stream.filter(|s| s.dataset == "customer" && wanted(&s.pattern));
        let id = stream.next().unwrap().id;
        self.observed().found.files.iter().position(|file| file.stream == id).unwrap()
    }

    /// The record bytes that an operation of a stream wrote, made anew for a run.
    fn bytes(&self, file: &ObservedFile, block: usize, run: RunId) -> Box<RecordBytes> {
        let plan = &self.facts.plan;
        let stream = plan.streams.iter().find(|stream| stream.id == file.stream).unwrap();
        let ObservedBlock::Record(summary) = file.blocks[block] else { panic!("not a record") };
        let index = stream.body(plan, summary.seq);
        let body = ring::body(plan.seed, index);
        let mut record = Box::new([0; RECORD_BYTES]);
        layout::put_body(&mut record, &body);
        let header = layout::Header {
            run,
            stream: stream.id,
            seq: summary.seq,
            start: summary.start,
            location: (block * RECORD_BYTES) as u64,
            stamp: summary.stamp,
            previous: layout::Digest::default(),
            body: index,
            body_digest: layout::Digest::of(&body),
        };
        layout::seal(&header, &mut record);
        record
    }
}

fn verdict(report: &TrialReport, kind: ClaimKind) -> Verdict {
    report.claims.iter().find(|claim| claim.kind == kind).unwrap().verdict
}

/// The fault is a violation of `intact`, of this class, at this place and nowhere else.
fn assert_caught(report: &TrialReport, outcome: Outcome, file: usize, block: usize, run: &Run) {
    let claim = report.claims.iter().find(|claim| claim.kind == ClaimKind::Intact).unwrap();
    assert_eq!(claim.verdict, Verdict::Violated, "{outcome}: {:?}", claim.because);
    let stream = run.observed().found.files[file].stream;
    let found: Vec<_> = claim
        .findings
        .iter()
        .map(|finding| (finding.outcome, finding.stream, finding.location))
        .collect();
    assert_eq!(found, [(outcome, stream, (block * RECORD_BYTES) as u64)]);
    assert_eq!(verdict(report, ClaimKind::PointInTime), Verdict::Violated, "{outcome}");
    assert_eq!(verdict(report, ClaimKind::Durable), Verdict::Held, "billing was not touched");
}

#[test]
fn guest_each_fault_planted_in_what_a_real_cut_left_is_classed_as_what_it_is() {
    let _alone = alone();
    let trial = Trial::run(&["--load-seconds", "8", "--set", "stack.txg_timeout_s=1"], 31);
    let folder = RunDir::open(&trial.folder());
    let facts = RunFacts::load(&folder).unwrap();
    let model = facts.scenario.cut.crash_model;
    let recording = evidence::of_run(&folder, &facts, model).unwrap();
    let run = Run { facts, recording, folder };

    untouched_data_pass_and_judging_again_says_the_same(&run, &trial);
    damage_is_classed(&run);
    a_stale_version_is_classed(&run);
    a_lost_middle_violates_point_in_time(&run);
    a_lost_billing_record_violates_durable(&run);
    a_folder_whose_files_were_changed_is_not_judged(&run);
}

/// A cut-off file, a flipped bit or another run's file never makes a verdict, let alone a better one.
fn a_folder_whose_files_were_changed_is_not_judged(run: &Run) {
    let folder = run.folder.path();
    for name in ["trace", "observed", "recovery.json"] {
        let path = folder.join(name);
        let good = std::fs::read(&path).unwrap();
        let mut flipped = good.clone();
        flipped[good.len() / 2] ^= 1;
        for bad in [&good[..good.len() - 1], &flipped] {
            std::fs::write(&path, bad).unwrap();
            let judged = plugpull().arg("judge").arg(folder).output().unwrap();
            let words = String::from_utf8_lossy(&judged.stderr);
            assert_eq!(judged.status.code(), Some(2), "{name}: {words}");
            assert!(words.contains(name) && words.contains("SHA-256"), "{words}");
        }
        std::fs::write(&path, good).unwrap();
    }
    let judged = plugpull().arg("judge").arg(folder).output().unwrap();
    assert_ne!(judged.status.code(), Some(2), "control: the files are as they were");
}

fn untouched_data_pass_and_judging_again_says_the_same(run: &Run, trial: &Trial) {
    let report = run.with(|_| {});
    for kind in [ClaimKind::Consistent, ClaimKind::Intact, ClaimKind::PointInTime] {
        assert_eq!(verdict(&report, kind), Verdict::Held, "{kind:?}");
    }
    assert_eq!(verdict(&report, ClaimKind::Durable), Verdict::Held);
    assert_eq!(serde_json::to_value(&report).unwrap(), trial.json);
}

fn damage_is_classed(run: &Run) {
    let file = run.customer(true);
    let at = 20;
    let observed = run.observed();
    let (own, other) = (run.facts.plan.run, RunId([0xee; 16]));
    let record = |block: usize, run_id| run.bytes(&observed.found.files[file], block, run_id);
    let odd = |bytes: Box<RecordBytes>| ObservedBlock::Odd(bytes);
    let (mut flipped, mut torn) = (record(at, own), record(at, own));
    flipped[700] ^= 0x10;
    torn[2048..].copy_from_slice(&record(at + 1, own)[2048..]);
    let mut first_half = record(at, own);
    first_half[2048..].fill(0);
    let noise: Box<[u8]> = vec![0xa5; RECORD_BYTES].into();
    let faults = [
        (ObservedBlock::Zeros, Outcome::Hole),
        (odd(flipped), Outcome::TornInSector),
        (odd(torn), Outcome::TornInSector),
        (odd(first_half), Outcome::TornAtTransaction),
        (odd(record(at + 1, own)), Outcome::Misdirected),
        (odd(record(at, other)), Outcome::Foreign),
        (ObservedBlock::Odd(noise), Outcome::Garbage),
        (ObservedBlock::Unreadable(5), Outcome::Unreadable),
    ];
    for (planted, outcome) in faults {
        let report = run.with(|observed| observed.found.files[file].blocks[at] = planted);
        assert_caught(&report, outcome, file, at, run);
        let expected = match outcome {
            Outcome::Unreadable => Verdict::Violated,
            _ => Verdict::Held,
        };
        assert_eq!(verdict(&report, ClaimKind::Consistent), expected, "{outcome}");
    }
}

/// Puts the first version of a slot back where a later one had survived.
fn a_stale_version_is_classed(run: &Run) {
    let file = run.customer(false);
    let plan = &run.facts.plan;
    let observed = run.observed();
    let stream = plan.streams.iter().find(|s| s.id == observed.found.files[file].stream).unwrap();
    let newest = observed.found.files[file].blocks.iter().filter_map(seq).max().unwrap();
    let overwritten =
        |block: &ObservedBlock| seq(block).is_some_and(|seq| seq.0 > stream.fill() && seq < newest);
    let slot = observed.found.files[file].blocks.iter().position(overwritten).unwrap();
    let first = Seq(slot as u64 + 1);
    let said =
        run.recording.at_its_cut().unwrap().history.streams[&stream.id].ack(first).unwrap().ack;
    let report = run.with(|observed| {
        let ObservedBlock::Record(summary) = &mut observed.found.files[file].blocks[slot] else {
            unreachable!("it was chosen as a record")
        };
        (summary.seq, summary.start, summary.digest) = (first, said.start, said.digest);
        let before = Seq(first.0.saturating_sub(1));
        let evidence = run.recording.at_its_cut().unwrap();
        let previous = evidence.history.streams[&stream.id].ack(before);
        summary.previous = previous.map_or([0; 8], |acked| acked.ack.digest);
    });
    assert_caught(&report, Outcome::Stale, file, slot, run);
}

fn seq(block: &ObservedBlock) -> Option<Seq> {
    match block {
        ObservedBlock::Record(summary) => Some(summary.seq),
        _ => None,
    }
}

/// The last records of one customer stream are removed; later ones of the others stay.
fn a_lost_middle_violates_point_in_time(run: &Run) {
    let file = run.customer(true);
    let report = run.with(|observed| {
        let file = &mut observed.found.files[file];
        let kept = file.blocks.len() - 10;
        file.blocks.truncate(kept);
        file.size = Some((kept * RECORD_BYTES) as u64);
    });
    assert_eq!(verdict(&report, ClaimKind::PointInTime), Verdict::Violated);
    assert_eq!(verdict(&report, ClaimKind::Intact), Verdict::Held, "what is there is whole");
    assert_eq!(verdict(&report, ClaimKind::Durable), Verdict::Held);
    assert_eq!(report.datasets["customer"].outcomes.get(&Outcome::Hole), None);
}

fn a_lost_billing_record_violates_durable(run: &Run) {
    let billing = run.facts.plan.streams.iter().find(|s| s.dataset == "billing").unwrap().id;
    let report = run.with(|observed| {
        let mut files = observed.found.files.iter_mut();
        let file = files.find(|file| file.stream == billing).unwrap();
        // Two, for the last one may be of an operation that was never acked.
        let kept = file.blocks.len() - 2;
        file.blocks.truncate(kept);
        file.size = Some((kept * RECORD_BYTES) as u64);
    });
    assert_eq!(verdict(&report, ClaimKind::Durable), Verdict::Violated);
    assert!(report.datasets["billing"].outcomes[&Outcome::LostThoughDurable] >= 1);
    assert_eq!(verdict(&report, ClaimKind::PointInTime), Verdict::Held, "customer was not touched");
}
