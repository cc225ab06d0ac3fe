//! Verdicts and outcome classes claim by claim, never the exit code alone: with a 5-second timer the
//! claim of five seconds rarely holds anyway.

use super::support::*;
use serde_json::Value;

#[test]
fn guest_the_default_is_consistent_intact_and_of_one_instant_for_ten_seeds() {
    let _alone = alone();
    // Three at the default's own pace; the others with a shorter timer, for the time that it takes.
    let short = ["--load-seconds", "4", "--set", "stack.txg_timeout_s=1"];
    for seed in 1..=10 {
        let whole = seed <= 3;
        let trial = Trial::run(if whole { &[] } else { &short }, seed);
        for claim in ["consistent", "intact", "point-in-time"] {
            assert_eq!(trial.verdict(claim), "held", "seed {seed}: {trial}");
        }
        assert_eq!(trial.verdict("durable"), "held", "seed {seed}: {trial}");
        assert_eq!(trial.outcomes("billing", DAMAGE), 0, "seed {seed}: {trial}");
        assert_eq!(trial.outcomes("billing", LOSS), 0, "seed {seed}: {trial}");
        assert_eq!(trial.outcomes("customer", DAMAGE), 0, "seed {seed}: {trial}");
        if whole {
            assert_window_agrees_with_the_txgs(&trial);
        }
    }
}

#[test]
fn guest_nothing_acked_is_lost_with_sync_standard_on_both_for_ten_seeds() {
    let _alone = alone();
    for seed in 11..=20 {
        let scenario = scenario_file(|text| {
            let claims = text.replace(
                "dataset.customer]\nsync = \"disabled\"",
                "dataset.customer]\nsync = \"standard\"",
            );
            format!(
                "{claims}\n[[claim]]\nkind = \"durable\"\ndataset = \"customer\"\nsays = \"all of it\"\n"
            )
        });
        let short = ["--load-seconds", "2", "--cut", "uniform", "--set", "stack.txg_timeout_s=1"];
        let trial = Trial::run_scenario(&scenario, &short, seed);
        for dataset in ["customer", "billing"] {
            assert_eq!(trial.verdict_on("durable", dataset), "held", "seed {seed}: {trial}");
            assert_eq!(trial.outcomes(dataset, DAMAGE), 0, "seed {seed}: {trial}");
            assert_eq!(trial.outcomes(dataset, LOSS), 0, "seed {seed}: {trial}");
            assert_eq!(trial.dataset(dataset)["lost_operations"], 0, "seed {seed}: {trial}");
        }
        assert_eq!(trial.verdict("point-in-time"), "not-measured", "not claimed for sync=standard");
    }
}

#[test]
fn guest_billing_that_is_not_forced_to_disk_violates_durable() {
    let _alone = alone();
    let sets = ["--set", "billing.sync=disabled", "--set", "stack.txg_timeout_s=1"];
    let trial = Trial::run(&[&sets[..], &["--load-seconds", "4"]].concat(), 21);
    assert_eq!(trial.verdict("durable"), "violated", "{trial}");
    assert!(trial.outcomes("billing", &["lost-though-durable"]) > 0, "{trial}");
    assert_eq!(trial.verdict("consistent"), "held", "{trial}");
    assert_eq!(trial.verdict("intact"), "held", "{trial}");
    assert_eq!(trial.verdict("point-in-time"), "held", "{trial}");
    assert_eq!(trial.exit_code(), 1);
}

#[test]
fn guest_a_disk_that_ignores_flushes_is_caught() {
    let _alone = alone();
    let trial = Trial::run(&["--crash-model", "unsafe", "--load-seconds", "3"], 22);
    assert_eq!(trial.verdict("durable"), "violated", "{trial}");
    assert!(trial.outcomes("billing", &["lost-though-durable"]) > 0, "{trial}");
    assert_eq!(trial.exit_code(), 1);
}

#[test]
fn guest_a_writer_that_acks_before_fsync_is_caught() {
    let _alone = alone();
    // Eight streams: at any instant one of them has acked what its fsync has not yet brought down.
    let scenario = scenario_file(|text| {
        let billing = "[[dataset.billing.stream]]\npattern = \"append\"";
        let text = text.replace(billing, &format!("{billing}\ncount = 8"));
        text.replace("[dataset.billing]\n", "[dataset.billing]\nfault = \"ack-before-fsync\"\n")
    });
    let trial = Trial::run_scenario(&scenario, &["--load-seconds", "3"], 23);
    assert_eq!(trial.verdict("durable"), "violated", "{trial}");
    assert!(trial.outcomes("billing", &["lost-though-durable"]) > 0, "{trial}");
    assert_eq!(trial.verdict("consistent"), "held", "{trial}");
}

#[test]
fn guest_a_load_that_is_too_short_or_stalls_cannot_hold_max_loss() {
    let _alone = alone();
    let short = Trial::run(
        &["--load-seconds", "1", "--cut", "uniform", "--set", "stack.txg_timeout_s=1"],
        24,
    );
    assert_eq!(short.verdict("max-loss"), "not-measured", "{short}");
    assert!(short.because("max-loss").contains("of load came before the cut"), "{short}");

    let sets =
        ["--set", "stack.txg_timeout_s=1", "--set", "customer.fault=stall", "--load-seconds", "8"];
    let stalled = Trial::run(&sets, 25);
    assert_eq!(stalled.verdict("max-loss"), "not-measured", "{stalled}");
    assert!(stalled.because("max-loss").contains("completed nothing for"), "{stalled}");
}

#[test]
fn guest_a_claim_that_is_true_holds_and_a_vm_kill_is_not_called_power_loss() {
    let _alone = alone();
    let sets = ["--set", "stack.txg_timeout_s=1", "--load-seconds", "8"];
    let honest = Trial::run_steady(&sets, 26);
    assert_eq!(honest.verdict("max-loss"), "held", "{honest}");
    assert_eq!(honest.verdict("point-in-time"), "held", "{honest}");
    assert!(honest.dataset("customer")["lost_operations"].as_u64() > Some(0), "{honest}");
    assert_eq!(honest.exit_code(), 0, "{honest}");

    let kill = [&sets[..], &["--crash-model", "keep-all"]].concat();
    let kill = Trial::run(&kill, 26);
    assert_eq!(kill.verdict("durable"), "held", "{kill}");
    let under = kill.claim("durable")["under"].as_str().unwrap_or_default().to_owned();
    assert!(under.contains("against a VM kill, not against power loss"), "{under}");
    assert_eq!(
        kill.json["plan_sha256"], honest.json["plan_sha256"],
        "the same seed, the same plan"
    );
    assert_ne!(kill.json["run"], honest.json["run"], "but never the same run");
}

/// The records, the txgs and the verdict tell one story of customer's loss.
fn assert_window_agrees_with_the_txgs(trial: &Trial) {
    let window = &trial.dataset("customer")["loss_window_s"];
    let (lo, hi) = (window["lo"].as_f64().unwrap(), window["hi"].as_f64().unwrap());
    assert!(lo > 4.0 && hi < 15.0 && hi - lo < 0.2, "{trial}");
    let predicted = &trial.dataset("customer")["predicted_window_s"];
    assert!(
        predicted["lo"].as_f64() <= Some(hi) && predicted["hi"].as_f64() >= Some(lo),
        "{trial}"
    );
    // What is said of the claim follows from the interval, whichever it is on this machine.
    let largest = &trial.dataset("customer")["largest_window_s"];
    let worst_lo = lo.max(largest["lo"].as_f64().unwrap());
    let worst_hi = hi.max(largest["hi"].as_f64().unwrap());
    let expected = match (worst_lo > 5.0, worst_hi <= 5.0) {
        (true, _) => "violated",
        (false, true) => "held",
        (false, false) => "not-measured",
    };
    assert_eq!(trial.verdict("max-loss"), expected, "{trial}");
    let closed: Vec<&Value> = trial.json["pool"]["txgs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|txg| &txg["closed_by"])
        .collect();
    assert!(closed.contains(&&Value::from("timer")), "{trial}");
}
