//! Whole cases: a control that holds, a control that is violated by the right amount, and one
//! planted fault at a time with the verdict that each claim must get.

use super::simulate::Run;
use super::spec::{BILLING, CUSTOMERS, MS, S, Spec, ran};
use super::*;
use crate::record::observed::ObservedBlock;
use crate::stack::scenario::{PlainFs, PlainSpec, StackSpec};
use crate::units::Seq;
use crate::verify::consistent::{PlainRecovery, Step};
use Verdict::{HarnessBroken, Held, NotMeasured, Violated};
use proptest::prelude::*;

/// The verdicts of the scenario's claims, in its order: consistent, intact, max-loss and
/// point-in-time of customer, durable of billing.
fn verdicts(judged: &Judged) -> [Verdict; 5] {
    let kinds: Vec<ClaimKind> = judged.claims.iter().map(|(claim, _)| claim.kind).collect();
    use ClaimKind::*;
    assert_eq!(kinds, [Consistent, Intact, MaxLoss, PointInTime, Durable]);
    std::array::from_fn(|n| judged.claims[n].1.verdict)
}

fn judgement(judged: &Judged, kind: ClaimKind) -> &Judgement {
    let claim = judged.claims.iter().find(|(claim, _)| claim.kind == kind);
    &claim.expect("a claim of the scenario").1
}

/// Why a claim got its verdict, in one text.
fn because(judged: &Judged, kind: ClaimKind) -> String {
    judgement(judged, kind).because.join("; ")
}

fn count(judged: &Judged, dataset: &str, outcome: Outcome) -> u64 {
    judged.datasets[dataset].outcomes.get(&outcome).copied().unwrap_or(0)
}

fn damage(judged: &Judged, dataset: &str) -> u64 {
    let outcomes = judged.datasets[dataset].outcomes.iter();
    outcomes.filter(|(outcome, _)| outcome.is_damage()).map(|(_, count)| count).sum()
}

/// Four seconds a group: nothing loses five.
fn short_groups() -> Run {
    Run::new(Spec::steady(4_000))
}

#[test]
fn a_run_without_a_fault_holds_every_claim() {
    let run = short_groups();
    let judged = run.judge();
    assert_eq!(verdicts(&judged), [Held; 5], "{judged:#?}");
    let (customer, billing) = (&judged.datasets["customer"], &judged.datasets["billing"]);
    let own = customer.window.seconds;
    let truth = run.true_own() as f64 / 1e9;
    assert!(own.lo <= truth && truth <= own.hi && own.hi - own.lo < 0.01, "{own:?} {truth}");
    assert!((4.0..4.1).contains(&truth), "the cut came just before a commit");
    assert!(customer.predicted_s.is_some_and(|said| said.lo <= truth && truth <= said.hi));
    assert!(count(&judged, "customer", Outcome::LostInWindow) > 1_500);
    assert_eq!(customer.window.operations, count(&judged, "customer", Outcome::LostInWindow));
    assert_eq!((billing.window.operations, billing.window.seconds.hi), (0, 0.0));
    assert_eq!((damage(&judged, "customer"), damage(&judged, "billing")), (0, 0));
    assert!(judged.txgs.iter().any(|story| story.closed_by == Some(ClosedBy::Timer)));
}

#[test]
fn groups_of_five_seconds_violate_five_seconds_by_their_sync_and_nothing_else() {
    let run = Run::new(Spec::steady(5_000));
    let judged = run.judge();
    assert_eq!(verdicts(&judged), [Held, Held, Violated, Held, Held]);
    let window = judgement(&judged, ClaimKind::MaxLoss).window.expect("a window").seconds;
    let truth = run.true_own() as f64 / 1e9;
    assert!(5.0 < window.lo && window.lo <= truth && truth <= window.hi, "{window:?} {truth}");
    assert!(window.hi < 5.1);
}

#[test]
fn a_cut_just_after_a_commit_still_judges_the_worst_instant_before_it() {
    let spec = Spec::steady(5_000);
    let run = Run::new(Spec { cut: spec.cut + 50 * MS, ..spec });
    let judged = run.judge();
    assert_eq!(verdicts(&judged), [Held, Held, Violated, Held, Held]);
    assert!(judged.datasets["customer"].window.seconds.hi < 0.2, "its own window is small");
    assert!(because(&judged, ClaimKind::MaxLoss).contains("the worst instant of this load"));
}

#[test]
fn an_earlier_record_of_one_stream_gone_behind_a_later_one_of_another_is_not_one_instant() {
    let mut run = short_groups();
    let (stream, before) = (CUSTOMERS[0], short_groups().judge());
    let kept = run.kept(stream);
    run.roll_back(stream, kept - 2);
    let judged = run.judge();
    assert_eq!(verdicts(&judged), [Held, Held, Held, Violated, Held]);
    let text = because(&judged, ClaimKind::PointInTime);
    let place = format!("operation {} of stream {stream} is gone", kept - 1);
    assert!(text.contains(&place), "{text}");
    let lost = |judged| count(judged, "customer", Outcome::LostInWindow);
    assert_eq!(lost(&judged), lost(&before) + 2);
    assert_eq!(damage(&judged, "customer"), 0);
}

#[test]
fn a_record_gone_from_the_middle_of_a_stream_is_a_hole_with_its_place() {
    let mut run = short_groups();
    run.file_of(CUSTOMERS[1]).blocks[100] = ObservedBlock::Zeros;
    let judged = run.judge();
    // Operation 101 is far older than the claim allows.
    assert_eq!(verdicts(&judged), [Held, Violated, Violated, Violated, Held]);
    assert_eq!(count(&judged, "customer", Outcome::Hole), 1);
    for kind in [ClaimKind::Intact, ClaimKind::PointInTime] {
        let [finding] = &judgement(&judged, kind).findings[..] else { panic!("one finding") };
        assert_eq!((finding.outcome, finding.stream), (Outcome::Hole, CUSTOMERS[1]));
        assert_eq!((finding.seq, finding.location), (Some(Seq(101)), 100 * RECORD_BYTES));
    }
}

#[test]
fn damage_in_billing_is_no_matter_of_customers_instant_but_breaks_durable() {
    let mut run = short_groups();
    run.file_of(BILLING).blocks[7] = ObservedBlock::Odd(vec![0xa5; 4096].into());
    let judged = run.judge();
    assert_eq!(verdicts(&judged), [Held, Violated, Held, Held, Violated]);
    assert_eq!(count(&judged, "billing", Outcome::Garbage), 1);
    let finding = &judgement(&judged, ClaimKind::Durable).findings[0];
    assert_eq!((finding.seq, finding.location), (Some(Seq(8)), 7 * RECORD_BYTES));
}

#[test]
fn a_billing_record_that_is_gone_is_not_durable() {
    let mut run = short_groups();
    let acked = run.judge().datasets["billing"].acked;
    run.roll_back(BILLING, acked - 1);
    let judged = run.judge();
    assert_eq!(verdicts(&judged), [Held, Held, Held, Held, Violated]);
    assert_eq!(count(&judged, "billing", Outcome::LostThoughDurable), 1);
    let text = because(&judged, ClaimKind::Durable);
    assert!(text.contains(&format!("stream {BILLING} from operation {acked}")), "{text}");
}

#[test]
fn billing_on_sync_disabled_loses_its_window_and_comes_back_with_customer() {
    let sets = vec!["billing.sync=disabled".to_owned()];
    let judged = Run::new(Spec { sets, ..Spec::steady(4_000) }).judge();
    assert_eq!(verdicts(&judged), [Held, Held, Held, Held, Violated]);
    let lost = count(&judged, "billing", Outcome::LostThoughDurable);
    assert!(lost > 200 && lost == judged.datasets["billing"].window.operations);
    assert!(because(&judged, ClaimKind::PointInTime).contains("all 5 streams"));
}

#[test]
fn a_writer_that_acks_before_its_flush_is_never_durable() {
    let mut seen = Vec::new();
    for early_ms in 0..13 {
        let spec = Spec::steady(4_000);
        let cut = spec.cut - early_ms * MS;
        let judged = Run::new(Spec { cut, ack_before_flush: true, ..spec }).judge();
        let [consistent, intact, max_loss, one_instant, durable] = verdicts(&judged);
        assert_eq!([consistent, intact, max_loss, one_instant], [Held; 4]);
        let lost = count(&judged, "billing", Outcome::LostThoughDurable);
        let (expected, text) = match lost {
            0 => (NotMeasured, "answered no flush between the start and the ack"),
            _ => (Violated, "are gone or damaged though durability was promised"),
        };
        assert_eq!(durable, expected);
        assert!(because(&judged, ClaimKind::Durable).contains(text));
        seen.push(durable);
    }
    assert!(seen.contains(&NotMeasured) && seen.contains(&Violated), "{seen:?}");
}

#[test]
fn a_load_too_short_for_the_claim_is_not_measured() {
    let cut = 5_100 * MS;
    let judged = Run::new(Spec { cut, ..Spec::steady(4_000) }).judge();
    assert_eq!(verdicts(&judged), [Held, Held, NotMeasured, Held, Held]);
    assert!(because(&judged, ClaimKind::MaxLoss).contains("only 5.1 s of load"));
    let enough = Run::new(Spec { cut: cut + 100 * MS, ..Spec::steady(4_000) }).judge();
    assert_eq!(verdicts(&enough), [Held; 5], "control: 5 s and two syncs of 0.08 s");
}

#[test]
fn a_stalled_stream_is_not_measured_whenever_it_stalled() {
    let stalled = |id, stall: std::ops::Range<u64>| {
        Run::new(Spec { stall: Some((id, stall)), ..Spec::steady(4_000) }).judge()
    };
    let cut = Spec::steady(4_000).cut;
    let stalls = [6 * S..6 * S + 200 * MS, 0..3 * S, 500 * MS..1_300 * MS, cut - 150 * MS..cut + S];
    for stall in stalls {
        let judged = stalled(CUSTOMERS[2], stall.clone());
        assert_eq!(verdicts(&judged), [Held, Held, NotMeasured, Held, Held], "{stall:?}");
        let text = because(&judged, ClaimKind::MaxLoss);
        assert!(text.contains(&format!("stream {} completed nothing", CUSTOMERS[2])), "{text}");
    }
    let short = stalled(CUSTOMERS[2], 6 * S..6 * S + 60 * MS);
    let early = stalled(CUSTOMERS[2], 300 * MS..900 * MS);
    let other = stalled(BILLING, 6 * S..7 * S);
    for control in [short, early, other] {
        assert_eq!(verdicts(&control), [Held; 5]);
    }
}

#[test]
fn records_that_disagree_with_the_import_are_a_broken_harness() {
    let mut run = short_groups();
    run.files_as_of(Txg(run.durable().0 - 1));
    let judged = run.judge();
    assert_eq!(verdicts(&judged), [Held, Held, HarnessBroken, Held, Held]);
    assert!(because(&judged, ClaimKind::MaxLoss).contains("contradict each other"));
    let mut run = short_groups();
    run.change_rows(|row| row.birth.0 += 100 * MS);
    assert_eq!(verdicts(&run.judge()), [Held, Held, HarnessBroken, Held, Held]);
    let mut run = short_groups();
    run.recovery.used = run.written.map(|written| Txg(written.0 + 1));
    assert_eq!(verdicts(&run.judge())[0], HarnessBroken, "a group that was never born");
}

#[test]
fn an_import_that_went_back_is_not_consistent_and_loses_more() {
    let mut run = short_groups();
    let (durable, before) = (run.durable(), Txg(run.durable().0 - 1));
    run.come_back_at(before);
    let judged = run.judge();
    assert_eq!(verdicts(&judged), [Violated, Held, Violated, Held, Held]);
    let text = because(&judged, ClaimKind::Consistent);
    assert!(text.contains(&format!("went back from txg {durable}")), "{text}");
    assert!(judged.datasets["customer"].window.seconds.lo > 8.0);
}

#[test]
fn groups_closed_by_dirty_bytes_are_not_measured_unless_the_scenario_is_about_them() {
    let mut run = short_groups();
    let limit = run.limits.dirty_bytes;
    run.change_rows(|row| row.dirty_bytes = limit);
    let judged = run.judge();
    assert_eq!(verdicts(&judged), [Held, Held, NotMeasured, Held, Held]);
    assert!(because(&judged, ClaimKind::MaxLoss).contains("dirty bytes, or what the rows"));
    run.scenario.guest.dirty_bytes_close_at_mib = vec![run.scenario.guest.memory_mib];
    assert_eq!(verdicts(&run.judge()), [Held; 5], "control: declared");
}

#[test]
fn a_window_that_the_loads_start_cut_short_is_not_measured_unless_it_is_too_long_already() {
    let nothing = |cut| Run::new(Spec { cut, ..Spec::steady(8_000) }).judge();
    let judged = nothing(4 * S);
    assert_eq!(verdicts(&judged), [Held, Held, NotMeasured, NotMeasured, Held]);
    assert!(judgement(&judged, ClaimKind::MaxLoss).because[0].contains("nothing of the load"));
    assert!(!judged.datasets["customer"].window.load_survived);
    let judged = nothing(7 * S);
    assert_eq!(verdicts(&judged), [Held, Held, Violated, NotMeasured, Held]);
}

#[test]
fn one_instant_is_not_claimed_for_a_dataset_with_an_intent_log() {
    let mut run = short_groups();
    run.scenario.claim[3].dataset = Some("billing".to_owned());
    let judged = run.judge();
    assert_eq!(verdicts(&judged), [Held, Held, Held, NotMeasured, Held]);
    assert!(because(&judged, ClaimKind::PointInTime).contains("not sync=disabled"));
}

#[test]
fn max_loss_of_a_dataset_with_an_intent_log_rests_on_its_flushes() {
    let mut run = short_groups();
    run.scenario.claim[2].dataset = Some("billing".to_owned());
    assert_eq!(verdicts(&run.judge()), [Held; 5], "control");
    run.flushes.truncate(run.flushes.len() / 2);
    let judged = run.judge();
    assert_eq!(verdicts(&judged), [Held, Held, NotMeasured, Held, NotMeasured]);
}

#[test]
fn a_pool_that_was_not_imported_says_nothing_of_what_it_holds() {
    let mut run = short_groups();
    run.recovery.import.code = Some(1);
    run.found.files.clear();
    let rest_unread = [NotMeasured; 4];
    assert_eq!(verdicts(&run.judge())[0], Violated);
    assert_eq!(verdicts(&run.judge())[1..], rest_unread);
    (run.recovery.import.code, run.recovery.import.timed_out) = (None, true);
    assert_eq!(verdicts(&run.judge()), [NotMeasured; 5], "a slow guest is no violation");
}

/// Every stream forces each operation, on ext4.
fn on_ext4() -> Run {
    let sets = vec!["customer.sync=standard".to_owned()];
    let mut run = Run::new(Spec { sets, ..Spec::steady(4_000) });
    run.scenario.stack = StackSpec::Ext4(PlainSpec::default());
    run.plain = Some(PlainRecovery {
        mount: Step::Done,
        unmount: Step::Done,
        check: Some(ran("Pass 5: Checking group summary information\n11/64 files, 9/64 blocks")),
        mount_read: Step::Done,
        ..PlainRecovery::of_nothing(PlainFs::Ext4)
    });
    run
}

#[test]
fn a_plain_file_system_is_judged_by_its_checker_its_records_and_its_flushes() {
    let judged = on_ext4().judge();
    assert_eq!(verdicts(&judged), [Held, Held, Held, NotMeasured, Held], "{judged:#?}");
    assert!(because(&judged, ClaimKind::PointInTime).contains("ext4"));
    assert!(judged.txgs.is_empty());
    let mut lost = on_ext4();
    let acked = lost.judge().datasets["billing"].acked;
    lost.roll_back(BILLING, acked - 1);
    assert_eq!(verdicts(&lost.judge())[4], Violated);
    let mut unproven = on_ext4();
    unproven.flushes.truncate(unproven.flushes.len() / 2);
    assert_eq!(verdicts(&unproven.judge())[4], NotMeasured);
}

#[test]
fn a_plain_file_system_that_does_not_mount_is_not_consistent_and_says_nothing_else() {
    let mut run = on_ext4();
    let refused = Step::Failed("EUCLEAN: Structure needs cleaning".to_owned());
    run.plain = Some(PlainRecovery { mount: refused, ..PlainRecovery::of_nothing(PlainFs::Ext4) });
    run.found.files.clear();
    let judged = run.judge();
    let rest = [NotMeasured; 4];
    assert_eq!((verdicts(&judged)[0], &verdicts(&judged)[1..]), (Violated, &rest[..]));
    assert!(because(&judged, ClaimKind::Durable).contains("was not mounted again"));
}

#[test]
fn a_birth_that_was_not_reported_is_not_measured() {
    let mut run = short_groups();
    let lost = Txg(run.durable().0 + 1);
    run.change_rows(|row| {
        // As if the row had never come: it repeats an older group's.
        if row.txg == lost {
            row.txg = Txg(1);
        }
    });
    let judged = run.judge();
    assert_eq!(verdicts(&judged), [Held, Held, NotMeasured, Held, Held]);
    assert!(because(&judged, ClaimKind::MaxLoss).contains("was not reported"));
}

fn specs() -> impl Strategy<Value = Spec> {
    let open = prop::collection::vec(2_500u64..6_000, 1..4);
    (any::<u64>(), open, 10u64..700, 13_000u64..17_000, 0u64..3_000_000).prop_map(
        |(seed, open, sync, cut, clock_error)| Spec {
            seed,
            open: open.into_iter().map(|ms| ms * MS).collect(),
            sync: sync * MS,
            cut: cut * MS + seed % MS,
            clock_error,
            stall: None,
            ack_before_flush: false,
            sets: Vec::new(),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn max_loss_is_held_only_above_the_true_window_and_violated_only_below_it(
        spec in specs(), off_by in -60_000_000i64..60_000_000,
    ) {
        // Two streams may straddle a birth, and each bound of a clock sample may be 3 ms off.
        const UNDECIDED_NS: i64 = 20_000_000;
        let mut run = Run::new(spec);
        let truth = run.true_largest();
        let seconds = truth.saturating_add_signed(off_by) as f64 / 1e9;
        run.scenario.claim[2].seconds = Some(seconds);
        // Its groups close at random, as no timer would: what closed them is not the question here.
        run.scenario.guest.dirty_bytes_close_at_mib = vec![run.scenario.guest.memory_mib];
        let judged = run.judge();
        let claimed = (seconds * 1e9) as u64;
        let verdict = judgement(&judged, ClaimKind::MaxLoss).verdict;
        match verdict {
            Held => prop_assert!(truth <= claimed, "{judged:?}"),
            Violated => prop_assert!(truth > claimed, "{judged:?}"),
            NotMeasured => prop_assert!(off_by.abs() < UNDECIDED_NS, "{judged:?}"),
            HarnessBroken => prop_assert!(false, "{judged:?}"),
        }
        let customer = &judged.datasets["customer"];
        let (own, largest) = (customer.window.seconds, customer.largest_s.expect("commits"));
        let truth_s = truth as f64 / 1e9;
        prop_assert!(own.lo.max(largest.lo) <= truth_s && truth_s <= own.hi.max(largest.hi));
        let own_truth = run.true_own() as f64 / 1e9;
        prop_assert!(own.lo <= own_truth && own_truth <= own.hi, "{own:?} {own_truth}");
        let others = verdicts(&judged);
        prop_assert_eq!([others[0], others[1], others[3], others[4]], [Held; 4]);
    }
}
