//! An exploration in words: the summary on the terminal, report.md, and the chart.

use super::report::{CurveNumbers, ExploreReport, ExploredClaim};
use super::sum::Summed;
use crate::chart::{LossChart, loss_curve_svg};
use crate::stack::scenario::ClaimKind;
use crate::trial::render::{interval, put};
use crate::units::LabNs;
use crate::verify::verdict::Verdict;
use crate::verify::window::Seconds;
use std::fmt::Write;

/// What fits a screen: what was explored, each claim, the curves, what it cost.
pub fn summary(report: &ExploreReport, folder: &str) -> String {
    let mut out = String::new();
    let head = format!("{}, seed {}: {}", report.scenario, report.seed, report.tries);
    put(&mut out, &head, "", "  ");
    put(&mut out, &states_line(report), "  ", "  ");
    out.push('\n');
    for claim in &report.claims {
        let first = format!("  {:14} {:22} ", claim.verdict.to_string(), title(claim));
        let because = claim.because.join("; ");
        put(&mut out, &because, &first, &" ".repeat(40));
    }
    if !report.curves.is_empty() {
        out.push('\n');
    }
    for (name, curve) in &report.curves {
        put(&mut out, &curve_line(name, curve), "  ", "    ");
    }
    out.push('\n');
    put(&mut out, &cost_line(report), "  ", "  ");
    put(&mut out, &verdict_line(report), "  ", "    ");
    let _ = writeln!(out, "  {folder}/report.md, loss-curve.svg, explore.json");
    out
}

/// report.md.
pub fn markdown(report: &ExploreReport) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "# Every cut of {}, seed {}\n", report.scenario, report.seed);
    let _ = writeln!(out, "{}.\n\n{}.\n", report.tries, states_line(report));
    let _ = writeln!(out, "Run {}.\n\n## Verdict: {}\n", report.run, report.verdict);
    out.push_str("| claim | verdict | held | violated | not measured | before the load | why |\n");
    out.push_str("| --- | --- | --- | --- | --- | --- | --- |\n");
    for claim in &report.claims {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} |",
            title(claim),
            claim.verdict,
            claim.held,
            claim.violated,
            claim.not_measured + claim.harness_broken,
            claim.before_load,
            claim.because.join("; ")
        );
    }
    out.push_str("\nCounts are of states; `max-loss` is a claim about all of them at once.\n");
    for claim in &report.claims {
        if let Some(first) = &claim.first {
            let _ = writeln!(
                out,
                "\nThe first state against **{}** is {} (cut before entry {} of the trace, {}): {}",
                title(claim),
                first.index,
                first.place.cut,
                first.place.why,
                first.because.join("; ")
            );
        }
    }
    if !report.curves.is_empty() {
        out.push_str("\n## The loss at every instant\n\n![](loss-curve.svg)\n\n");
    }
    for (name, curve) in &report.curves {
        let _ = writeln!(out, "- {}", curve_line(name, curve));
    }
    let _ = writeln!(out, "\n## Cost\n\n{}", cost_line(report));
    out
}

/// The chart of the curves, with the first `max-loss` claim as a line.
pub fn chart(summed: &Summed, commits: &[LabNs], begin: LabNs) -> String {
    let report = &summed.report;
    let curves: Vec<(&str, _)> =
        summed.curves.iter().map(|(name, curve)| (name.as_str(), curve)).collect();
    let claimed = report.claims.iter().find(|claim| claim.kind == ClaimKind::MaxLoss);
    let title = format!("Loss at every instant: {}", report.scenario);
    let (subtitle, claim_s) = (states_line(report), claimed.and_then(|claim| claim.seconds));
    let chart = LossChart { title: &title, subtitle: &subtitle, commits, claim_s, begin };
    loss_curve_svg(&curves, &chart)
}

fn title(claim: &ExploredClaim) -> String {
    let seconds = claim.seconds.map(|s| format!(" {s} s")).unwrap_or_default();
    let dataset = claim.dataset.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
    format!("{}{seconds}{dataset}", claim.kind.name())
}

fn states_line(report: &ExploreReport) -> String {
    let states = &report.states;
    let mut text = format!(
        "crash model {}, cuts {}: {} of {} states of {:.3} s of load",
        report.crash_model, report.cuts, states.known, states.planned, report.load_s
    );
    if states.equal > 0 {
        let _ = write!(text, ", {} of them equal to others", states.equal);
    }
    if states.implied > 0 {
        let _ = write!(text, "; {} more lie between two that lost the same", states.implied);
    }
    if states.recovery_cuts > 0 {
        let _ = write!(text, "; {} cuts during recovery", states.recovery_cuts);
    }
    text
}

fn seconds(value: Option<Seconds>) -> String {
    value.map_or("unknown".to_owned(), |value| interval(&value))
}

fn curve_line(name: &str, curve: &CurveNumbers) -> String {
    let at = curve.maximum_at_s.map(|at| format!(" at {at:.3} s")).unwrap_or_default();
    format!(
        "{name}: at most {}{at}; mean {}, half of all instants at most {}, 99 of 100 at most {}; \
         known for {:.3} s, unknown for {:.3} s",
        seconds(curve.maximum_s),
        seconds(curve.mean_s),
        seconds(curve.p50_s),
        seconds(curve.p99_s),
        curve.known_s,
        curve.unknown_s
    )
}

fn cost_line(report: &ExploreReport) -> String {
    let each = report.cost.state_ms_median;
    let each = each.map(|ms| format!("{ms} ms a state (median), ")).unwrap_or_default();
    let starts = report.cost.starts;
    format!("{each}{starts} kernels started, {:.1} s in all", report.cost.took_s)
}

fn verdict_line(report: &ExploreReport) -> String {
    let of = |verdict: Verdict| {
        let claims = report.claims.iter().filter(|claim| claim.verdict == verdict);
        let titles: Vec<String> = claims.map(title).collect();
        (!titles.is_empty()).then(|| format!("{verdict}: {}", titles.join(", ")))
    };
    let order = [Verdict::HarnessBroken, Verdict::Violated, Verdict::NotMeasured, Verdict::Held];
    let parts: Vec<String> = order.into_iter().filter_map(of).collect();
    format!("{} (exit code {})", parts.join("; "), report.exit_code)
}
