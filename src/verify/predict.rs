//! The loss window from transaction groups alone: which operations a durable txg leaves out.
//!
//! An operation's transaction is assigned between its first call and the return of its write, to
//! the group open then. With txg N durable, what is gone begins at birth(N + 1): operations that
//! began after it are gone for certain, those that had returned before it are there for certain,
//! one that straddles it may be either. Hence intervals. On a volume with a file system on it, what
//! returned may still be in that file system's memory: there an operation's ack stands for the return
//! of its write.

use super::point_in_time::OrderedBy;
use super::window::Span;
use crate::disk::Commit;
use crate::history::clock::{ClockMap, LabInterval};
use crate::history::log::StreamHistory;
use crate::history::message::Ack;
use crate::units::{GuestNs, LabNs, Seq, Txg};

/// The acked operations of one sync=disabled dataset, ready to be asked what is oldest.
#[derive(Debug, Clone)]
pub struct AckTimes {
    /// (start, earliest ack among this and all later starts), ascending by start.
    by_start: Vec<(GuestNs, GuestNs)>,
    /// The same by the event from which on it is part of a group.
    by_done: Vec<(GuestNs, GuestNs)>,
}

impl AckTimes {
    /// Takes the acks of a dataset in any order.
    pub fn new<'a>(acks: impl IntoIterator<Item = &'a Ack>, order: OrderedBy) -> AckTimes {
        let grouped = |ack: &Ack| match order {
            OrderedBy::Done => ack.done_ns,
            OrderedBy::Ack => ack.end_ns,
        };
        let (mut by_start, mut by_done): (Vec<_>, Vec<_>) = acks
            .into_iter()
            .map(|ack| ((ack.start_ns, ack.end_ns), (grouped(ack), ack.end_ns)))
            .unzip();
        for list in [&mut by_start, &mut by_done] {
            list.sort_unstable();
            let mut earliest = GuestNs(u64::MAX);
            for (_, ack) in list.iter_mut().rev() {
                earliest = earliest.min(*ack);
                *ack = earliest;
            }
        }
        AckTimes { by_start, by_done }
    }

    fn earliest_from(list: &[(GuestNs, GuestNs)], from: GuestNs) -> Option<GuestNs> {
        list.get(list.partition_point(|(at, _)| *at < from)).map(|(_, ack)| *ack)
    }

    /// The window at `now` when everything assigned before `birth` is there and nothing later.
    /// `None` for the lower bound's part if no acked operation is gone for certain: then it is 0.
    pub fn window(&self, clock: &ClockMap, birth: GuestNs, now: LabInterval) -> Span {
        let zero = Span::default();
        let certain = Self::earliest_from(&self.by_start, birth);
        let possible = Self::earliest_from(&self.by_done, birth);
        let span = |ack: Option<GuestNs>| ack.map_or(zero, |ack| Span::since(clock, ack, now));
        Span { lo_ns: span(certain).lo_ns.max(0), hi_ns: span(possible).hi_ns.max(0) }
    }
}

/// Up to which operation of a stream the groups before `birth` hold it: at least the first, at most
/// the second. Between the two lie operations that straddle the birth.
pub fn surviving(said: &StreamHistory, birth: GuestNs) -> (Seq, Seq) {
    let returned = said.acked.partition_point(|acked| acked.ack.done_ns < birth) as u64;
    let begun = said.acked.partition_point(|acked| acked.ack.start_ns < birth) as u64;
    // Behind the last ack, the operation that was announced may have begun in time.
    let all_begun = begun == said.acked.len() as u64;
    let announced = said.announced.filter(|_| all_begun).map_or(0, |seq| seq.0);
    (Seq(returned), Seq(begun.max(announced)))
}

/// The largest window at any instant from `begin` to the cut, the cut included, and how many commits
/// it rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LargestWindow {
    /// The window just before the worst commit became durable, or at the cut.
    pub span: Span,
    /// Commits in the load whose window could be told.
    pub commits: u64,
    /// Commits in the load for which the birth that they rest on was not reported.
    pub untold: u64,
}

/// Walks the commits of a run. `birth_of` is the guest's report.
pub fn largest_window(
    acks: &AckTimes,
    clock: &ClockMap,
    commits: &[Commit],
    birth_of: impl Fn(Txg) -> Option<GuestNs>,
    begin: LabNs,
    cut: LabNs,
) -> LargestWindow {
    let mut largest = LargestWindow::default();
    // The cut ends the last window as a commit would have: under a model that leaves an uberblock by
    // chance, the same cut may also show the state without it.
    let at_cut = Commit { txg: Txg(u64::MAX), durable: cut };
    let in_time = commits.iter().copied().filter(|commit| commit.durable < cut);
    let ends: Vec<Commit> = in_time.chain([at_cut]).collect();
    for pair in ends.windows(2) {
        let (before, commit) = (pair[0], pair[1]);
        if commit.durable <= begin {
            continue;
        }
        let Some(birth) = birth_of(Txg(before.txg.0.saturating_add(1))) else {
            largest.untold += 1;
            continue;
        };
        largest.commits += u64::from(commit != at_cut);
        let span = acks.window(clock, birth, LabInterval::exact(commit.durable));
        largest.span = largest.span.max(span);
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::log::Acked;
    use crate::trace::ClockSample;
    use crate::units::EventNo;
    use proptest::prelude::*;

    /// A clock that agrees with the lab's to the nanosecond or so.
    fn clock() -> ClockMap {
        let at = |n| ClockSample { before: LabNs(n), after: LabNs(n), guest: GuestNs(n) };
        ClockMap::new(&[at(0), at(10_000), at(100_000)]).unwrap()
    }

    fn ack(start: u64, done: u64, end: u64) -> Ack {
        Ack {
            seq: Seq(1),
            start: EventNo(0),
            done: EventNo(0),
            end: EventNo(0),
            start_ns: GuestNs(start),
            done_ns: GuestNs(done),
            end_ns: GuestNs(end),
            digest: [0; 8],
        }
    }

    fn commit(txg: u64, durable: u64) -> Commit {
        Commit { txg: Txg(txg), durable: LabNs(durable) }
    }

    #[test]
    fn an_operation_that_straddles_the_birth_widens_the_interval() {
        let acks = [ack(10, 20, 30), ack(95, 105, 130), ack(140, 150, 160)];
        let times = AckTimes::new(&acks, OrderedBy::Done);
        let span = times.window(&clock(), GuestNs(100), LabInterval::exact(LabNs(1_000)));
        assert!((835..=841).contains(&span.lo_ns), "{span:?}");
        assert!((869..=875).contains(&span.hi_ns), "{span:?}");
    }

    #[test]
    fn the_largest_window_is_the_one_just_before_the_latest_commit_after_a_long_open_txg() {
        let acks: Vec<Ack> = (1..100).map(|n| ack(n * 100, n * 100 + 10, n * 100 + 20)).collect();
        let times = AckTimes::new(&acks, OrderedBy::Done);
        let commits = [commit(4, 500), commit(5, 2_000), commit(6, 8_000), commit(7, 9_500)];
        let births = |txg: Txg| Some(GuestNs([0, 1_000, 1_500, 7_000][txg.0 as usize - 4]));
        let found = largest_window(&times, &clock(), &commits, births, LabNs(600), LabNs(9_000));
        assert_eq!(found.commits, 2);
        let truth = 8_000 - 1_520;
        assert!(found.span.lo_ns <= truth && truth <= found.span.hi_ns, "{found:?}");
    }

    #[test]
    fn the_cut_ends_a_window_even_where_a_later_group_may_survive_by_chance() {
        let acks: Vec<Ack> = (1..100).map(|n| ack(n * 100, n * 100 + 10, n * 100 + 20)).collect();
        let commits = [commit(4, 500), commit(5, 2_000)];
        let births = |txg: Txg| Some(GuestNs([1_000, 1_500][txg.0 as usize - 5]));
        let times = AckTimes::new(&acks, OrderedBy::Done);
        let found = largest_window(&times, &clock(), &commits, births, LabNs(600), LabNs(9_000));
        let truth = 9_000 - 1_520;
        assert!(found.span.lo_ns <= truth && truth <= found.span.hi_ns, "{found:?}");
        assert_eq!(found.commits, 1);
    }

    #[test]
    fn the_survivors_are_known_up_to_what_straddles_the_birth() {
        let acked = |n: u64| Acked { ack: ack(100 * n, 100 * n + 40, 100 * n + 60), entry: n };
        let acked: Vec<Acked> = (1..=3).map(acked).collect();
        let said = StreamHistory { acked, announced: Some(Seq(4)), ..StreamHistory::default() };
        let at = |birth| surviving(&said, GuestNs(birth));
        assert_eq!(at(100), (Seq(0), Seq(0)));
        assert_eq!(at(220), (Seq(1), Seq(2)), "the second had begun and not returned");
        assert_eq!(at(260), (Seq(2), Seq(2)));
        assert_eq!(at(400), (Seq(3), Seq(4)), "the fourth was announced and may have begun");
    }

    #[test]
    fn on_a_volume_an_operation_is_safe_only_once_it_was_acknowledged() {
        // It had returned before the group's birth, and was acknowledged behind it.
        let acks = [ack(10, 20, 130), ack(140, 150, 160)];
        let window = |order| {
            let times = AckTimes::new(&acks, order);
            times.window(&clock(), GuestNs(100), LabInterval::exact(LabNs(1_000)))
        };
        let (datasets, volumes) = (window(OrderedBy::Done), window(OrderedBy::Ack));
        assert!((835..=845).contains(&datasets.hi_ns), "{datasets:?}");
        assert!((865..=875).contains(&volumes.hi_ns), "{volumes:?}");
        assert_eq!(datasets.lo_ns, volumes.lo_ns);
    }

    proptest! {
        #[test]
        fn a_window_holds_the_age_of_the_oldest_ack_in_a_later_group(
            steps in prop::collection::vec((1u64..50, 1u64..50, 1u64..50, 0.0f64..1.0), 1..60),
            birth in 0u64..3_000,
        ) {
            let mut at = 0;
            let mut acks = Vec::new();
            let mut oldest_gone: Option<u64> = None;
            for (gap, write, sync, assigned) in steps {
                let start = at + gap;
                let done = start + write;
                let end = done + sync;
                at = end;
                acks.push(ack(start, done, end));
                let instant = start as f64 + assigned * write as f64;
                if instant >= birth as f64 {
                    oldest_gone = Some(oldest_gone.map_or(end, |old| old.min(end)));
                }
            }
            let now = at + 10;
            let span = AckTimes::new(&acks, OrderedBy::Done).window(
                &clock(), GuestNs(birth), LabInterval::exact(LabNs(now)));
            let truth = oldest_gone.map_or(0, |end| now - end) as i64;
            prop_assert!(span.lo_ns <= truth && truth <= span.hi_ns, "{:?} {}", span, truth);
        }
    }
}
