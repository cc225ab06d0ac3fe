//! A trial's report as text: the summary for a terminal, and report.md.

use super::report::{ClaimReport, PoolReport, TrialReport, WindowParts};
use crate::verify::case::DatasetFate;
use crate::verify::outcome::Outcome;
use crate::verify::txgs::{ClosedBy, TxgStory};
use crate::verify::window::Seconds;
use std::fmt::Write;

// Writing to a String cannot fail; the results are dropped throughout this module.

/// A window for people: three decimals, one number if the ends agree in them.
pub fn interval(seconds: &Seconds) -> String {
    let (lo, hi) = (format!("{:.3}", seconds.lo), format!("{:.3}", seconds.hi));
    if lo == hi { format!("{lo} s") } else { format!("{lo} to {hi} s") }
}

fn bytes(n: u64) -> String {
    match n {
        0..1_048_576 => format!("{} KiB", n / 1024),
        _ => format!("{:.1} MiB", n as f64 / 1_048_576.0),
    }
}

/// Columns that the summary fills at most.
const WIDTH: usize = 100;

/// A paragraph, its further lines indented.
pub fn put(out: &mut String, text: &str, first: &str, further: &str) {
    let options = textwrap::Options::new(WIDTH).initial_indent(first).subsequent_indent(further);
    out.push_str(&textwrap::fill(text, options));
    out.push('\n');
}

/// The summary: what held, what did not, what was lost. Fits a screen.
pub fn summary(report: &TrialReport, folder: &str) -> String {
    let mut out = String::new();
    head(&mut out, report);
    for claim in &report.claims {
        let why = claim.because.first().map(String::as_str).unwrap_or_default();
        let first = format!("  {:14} {:24} ", claim.verdict, claim.title());
        put(&mut out, why, &first, &" ".repeat(first.len()));
    }
    out.push('\n');
    for (name, fate) in &report.datasets {
        put(&mut out, &dataset_line(name, fate), "  ", "    ");
    }
    if let Some(pool) = &report.pool {
        if let Some(parts) = &pool.first_lost {
            put(&mut out, &parts_line(parts, report.guest_cpu_slowdown), "  ", "    ");
        }
        put(&mut out, &txg_line(pool), "  ", "    ");
    }
    for hint in &report.hints {
        put(&mut out, hint, "  ", "    ");
    }
    let total: f64 = report.stages.iter().map(|(_, seconds)| seconds).sum();
    let took = format!("took {total:.1} s, {:.1} s of it load", report.cut.after_load_s);
    put(&mut out, &took, "  ", "    ");
    out.push('\n');
    put(&mut out, &verdict_line(report), "  ", "    ");
    // A path is never wrapped: it is there to be copied.
    out.push_str("  ");
    out.push_str(folder);
    out.push('\n');
    out
}

fn head(out: &mut String, report: &TrialReport) {
    let versions = &report.versions;
    let what = format!("{}, seed {}: {}", report.scenario.name, report.seed, report.scenario.tries);
    put(out, &what, "", "  ");
    let on = format!(
        "{}, kernel {}, QEMU {}, {} MiB; cut after {:.3} s of load {}",
        versions.stack,
        versions.kernel,
        versions.qemu,
        report.scenario.guest.memory_mib,
        report.cut.after_load_s,
        report.cut.how
    );
    put(out, &on, "  ", "  ");
    let under = report.claims.first().map(|claim| claim.under.as_str()).unwrap_or_default();
    put(out, under, "  ", "  ");
    out.push('\n');
}

fn dataset_line(name: &str, fate: &DatasetFate) -> String {
    let window = &fate.window;
    let mut line = format!("{name} (sync={}): {} acked", fate.sync.as_str(), fate.acked);
    if window.operations == 0 {
        line.push_str(", none lost");
    } else {
        let _ = write!(line, ", {} lost", window.operations);
        if window.bytes > 0 {
            let _ = write!(line, " ({})", bytes(window.bytes));
        }
        let _ = write!(line, ", loss window {}", interval(&window.seconds));
        if let Some(predicted) = &fate.predicted_s {
            let _ = write!(line, " (its txgs predict {})", interval(predicted));
        }
    }
    if let Some(age) = &window.newest_survivor_age {
        let _ = write!(line, "; newest survivor {} old", interval(age));
    }
    line
}

fn parts_line(parts: &WindowParts, slowdown: f64) -> String {
    let Some(sync_s) = parts.sync_s else {
        return format!(
            "first lost txg {}: not syncing when last seen, {} old at the cut",
            parts.txg,
            interval(&parts.total)
        );
    };
    format!(
        "first lost txg {}: open {:.3} + quiesce {:.3} + wait {:.3} + sync {:.3} s = {} at the cut; all but open shrink on a real CPU (this guest's is {slowdown:.1} times slower)",
        parts.txg,
        parts.open_s,
        parts.quiesce_s,
        parts.wait_s,
        sync_s,
        interval(&parts.total)
    )
}

fn txg_line(pool: &PoolReport) -> String {
    let name = |txg: Option<crate::units::Txg>| txg.map_or("?".to_owned(), |txg| txg.to_string());
    let count = |by: ClosedBy| pool.txgs.iter().filter(|txg| txg.closed_by == Some(by)).count();
    let all = [ClosedBy::Timer, ClosedBy::DirtyBytes, ClosedBy::Forced, ClosedBy::Unknown];
    let closed: Vec<String> = all
        .into_iter()
        .filter(|by| count(*by) > 0)
        .map(|by| format!("{} by {by}", count(by)))
        .collect();
    let closed = if closed.is_empty() { "none".to_owned() } else { closed.join(", ") };
    format!(
        "the import used txg {} (durable {}, on the disk {}); txgs of the load closed: {closed}",
        name(pool.used_txg),
        name(pool.durable_txg),
        name(pool.written_txg)
    )
}

fn verdict_line(report: &TrialReport) -> String {
    let of = |verdict| {
        let titles: Vec<String> = report
            .claims
            .iter()
            .filter(|claim| claim.verdict == verdict)
            .map(ClaimReport::title)
            .collect();
        (!titles.is_empty()).then(|| format!("{verdict}: {}", titles.join(", ")))
    };
    use crate::verify::verdict::Verdict::*;
    let parts: Vec<String> =
        [HarnessBroken, Violated, NotMeasured, Held].into_iter().filter_map(of).collect();
    format!("{} (exit code {})", parts.join("; "), report.exit_code)
}

/// report.md: everything a reader needs, with the data's names.
pub fn markdown(report: &TrialReport) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "# {}, seed {}\n", report.scenario.name, report.seed);
    let _ = writeln!(out, "{}.\n\nRun {}.\n", report.scenario.tries, report.run);
    claims(&mut out, report);
    datasets(&mut out, report);
    if let Some(pool) = &report.pool {
        txgs(&mut out, pool, report.guest_cpu_slowdown);
    }
    setting(&mut out, report);
    out
}

fn claims(out: &mut String, report: &TrialReport) {
    let _ = writeln!(out, "## Verdict: {}\n", report.verdict);
    let _ = writeln!(out, "| claim | verdict | in its maker's words |\n| --- | --- | --- |");
    for claim in &report.claims {
        let _ = writeln!(out, "| {} | {} | {} |", claim.title(), claim.verdict, claim.says);
    }
    for claim in &report.claims {
        let _ = writeln!(out, "\n**{}: {}**, {}", claim.title(), claim.verdict, claim.under);
        for because in &claim.because {
            let _ = writeln!(out, "- {because}");
        }
        for finding in &claim.findings {
            let _ = writeln!(
                out,
                "- stream {} at byte {}: {}: {}",
                finding.stream, finding.location, finding.outcome, finding.text
            );
        }
    }
}

fn datasets(out: &mut String, report: &TrialReport) {
    let _ = writeln!(out, "\n## What was lost\n");
    for (name, fate) in &report.datasets {
        let _ = writeln!(out, "- {}", dataset_line(name, fate));
        if let Some(largest) = &fate.largest_s {
            let _ = writeln!(out, "  - largest at any instant of the load: {}", interval(largest));
        }
        let outcomes: Vec<String> = fate.outcomes.iter().map(outcome).collect();
        let _ = writeln!(out, "  - {}", outcomes.join(", "));
    }
}

fn outcome((outcome, count): (&Outcome, &u64)) -> String {
    format!("{outcome}: {count}")
}

fn txgs(out: &mut String, pool: &PoolReport, slowdown: f64) {
    let _ = writeln!(out, "\n## Transaction groups of the load\n");
    let _ = writeln!(out, "{}.\n", txg_line(pool));
    if let Some(parts) = &pool.first_lost {
        let _ = writeln!(out, "{}.\n", parts_line(parts, slowdown));
    }
    let _ = writeln!(
        out,
        "| txg | closed by | dirty bytes | open s | quiesce s | wait s | sync s |\n| --- | --- | --- | --- | --- | --- | --- |"
    );
    for TxgStory { txg, closed_by, dirty_bytes, open_ns, quiesce_ns, wait_ns, sync_ns, .. } in
        &pool.txgs
    {
        let closed = closed_by.map_or("open".to_owned(), |by| by.to_string());
        let s = |ns: &u64| *ns as f64 / 1e9;
        let _ = writeln!(
            out,
            "| {txg} | {closed} | {dirty_bytes} | {:.3} | {:.3} | {:.3} | {:.3} |",
            s(open_ns),
            s(quiesce_ns),
            s(wait_ns),
            s(sync_ns)
        );
    }
}

/// A word as a shell takes it whole.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

fn setting(out: &mut String, report: &TrialReport) {
    let (versions, disk, cut) = (&report.versions, &report.disk, &report.cut);
    let _ = writeln!(out, "\n## Setting\n");
    let _ = writeln!(
        out,
        "- {}, kernel {} ({}), QEMU {}, plugpull {}",
        versions.stack,
        versions.kernel,
        versions.suite.name(),
        versions.qemu,
        versions.plugpull
    );
    let _ = writeln!(
        out,
        "- {} CPUs by {}, {:.1} times slower than the lab's, {} MiB",
        report.scenario.guest.cpus,
        report.acceleration.map_or("no emulation".to_owned(), |accel| accel.to_string()),
        report.guest_cpu_slowdown,
        report.scenario.guest.memory_mib
    );
    let _ = writeln!(
        out,
        "- disk: a flush takes {} ms, {} MiB/s; until the cut {} writes ({}), {} flushes, {} writes not flushed",
        report.scenario.disk.flush_ms,
        report.scenario.disk.bandwidth_mib_s,
        disk.writes,
        bytes(disk.written_bytes),
        disk.flushes,
        disk.unflushed_writes
    );
    let _ = writeln!(
        out,
        "- cut: {}, {:.3} s after the load began, power off {:.3} s later, {} messages came too late to count",
        cut.how, cut.after_load_s, cut.power_off_s, cut.late_messages
    );
    let _ = writeln!(out, "- clocks known to {:.6} s", report.clock_error_s);
    for note in report.hints.iter().chain(&report.notes) {
        let _ = writeln!(out, "- {note}");
    }
    let stages: Vec<String> =
        report.stages.iter().map(|(stage, s)| format!("{stage} {s:.1} s")).collect();
    let _ = writeln!(out, "- stages: {}", stages.join(", "));
    let sets: String = report.sets.iter().map(|set| format!(" --set {}", quoted(set))).collect();
    let suite = versions.suite.name();
    let accel = report.acceleration.map(|accel| format!(" --accel {accel}")).unwrap_or_default();
    let _ = writeln!(
        out,
        "\nThe plan again (a guest's timing does not repeat, the plan does):\n\n    plugpull trial {} --seed {} --suite {suite}{accel}{sets}",
        quoted(&report.asked),
        report.seed,
    );
}
