//! Real power cuts of the other ways to have a pool: on a partition, behind a loop device, and with
//! ext4 on its volumes. Each keeps its claims on an honest disk; a planted fault violates the one that
//! it must, and nothing that it must not.

use super::support::*;
use serde_json::Value;
use std::path::Path;

/// A second a group: a cut comes after a few seconds.
const SHORT: [&str; 4] = ["--set", "stack.txg_timeout_s=1", "--load-seconds", "4"];

fn trial(scenario: &str, arguments: &[&str], seed: u64) -> Trial {
    Trial::run_scenario(Path::new(scenario), &[&SHORT[..], arguments].concat(), seed)
}

/// Where a fault keeps every flush back, no commit ever becomes durable for "worst" to wait for.
const UNIFORM: [&str; 2] = ["--cut", "uniform"];

/// Verdicts on consistent, intact, point-in-time of customer and durable of billing. `max-loss` is
/// left out: such a short load cannot show five seconds.
fn verdicts(trial: &Trial) -> [&str; 4] {
    [
        trial.verdict("consistent"),
        trial.verdict("intact"),
        trial.verdict_on("point-in-time", "customer"),
        trial.verdict_on("durable", "billing"),
    ]
}

/// An honest disk holds the claims at the trial's own cut.
fn assert_held(trial: &Trial) {
    assert_eq!(verdicts(trial), ["held"; 4], "{trial}");
    assert_eq!(trial.outcomes("billing", &[LOSS, DAMAGE].concat()), 0, "{trial}");
    assert_eq!(trial.outcomes("customer", DAMAGE), 0, "{trial}");
    assert!(trial.outcomes("customer", LOSS) > 0, "the cut took something: {trial}");
}

/// One warm guest looks at some of the recording's other cuts, and lets go of each.
fn assert_explored(trial: &Trial) {
    let folder = trial.folder();
    let output = plugpull()
        .args(["explore", "--json", "--cuts", "sample:3"])
        .arg(folder)
        .output()
        .expect("the tool");
    let errors = String::from_utf8_lossy(&output.stderr);
    let json: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|why| panic!("no JSON document ({why}): {errors}"));
    for claim in json["claims"].as_array().expect("claims") {
        if claim["kind"] != "max-loss" {
            let bad = (&claim["violated"], &claim["harness_broken"]);
            assert_eq!(bad, (&0.into(), &0.into()), "{claim:#}");
        }
    }
    assert_eq!(json["cost"]["starts"], 1, "one guest looked at all of them: {json:#}");
}

#[test]
fn guest_a_pool_on_a_partition_keeps_its_claims_at_each_cut() {
    let _alone = alone();
    let trial = trial("zfs-on-partition", &[], 3);
    assert_held(&trial);
    assert_explored(&trial);
}

#[test]
fn guest_a_pool_on_a_partition_that_asks_for_no_flush_loses_what_billing_acknowledged() {
    let _alone = alone();
    let fault = ["--set", "stack.nocacheflush=true"];
    let trial = trial("zfs-on-partition", &[&UNIFORM[..], &fault].concat(), 3);
    assert_eq!(trial.verdict_on("durable", "billing"), "violated", "{trial}");
    assert!(trial.outcomes("billing", &["lost-though-durable"]) > 0, "{trial}");
    assert_eq!(trial.exit_code(), 1);
}

#[test]
fn guest_a_pool_on_a_partition_of_an_nvme_disk_keeps_its_claims() {
    let _alone = alone();
    assert_held(&trial("zfs-on-partition", &["--set", "disk.bus=nvme"], 4));
}

#[test]
fn guest_a_pool_behind_a_loop_device_keeps_its_claims_at_each_cut() {
    let _alone = alone();
    let trial = trial("zfs-on-loop", &[], 3);
    assert_held(&trial);
    assert_explored(&trial);
}

#[test]
fn guest_a_pool_behind_a_loop_device_through_the_page_cache_keeps_its_claims() {
    let _alone = alone();
    assert_held(&trial("zfs-on-loop", &["--set", "stack.direct_io=false"], 4));
}

#[test]
fn guest_a_loop_device_whose_host_passes_no_flush_on_loses_what_billing_acknowledged() {
    let _alone = alone();
    let fault = ["--set", "stack.host_mount_options=barrier=0"];
    let trial = trial("zfs-on-loop", &[&UNIFORM[..], &fault].concat(), 3);
    assert_eq!(trial.verdict_on("durable", "billing"), "violated", "{trial}");
    assert!(trial.outcomes("billing", &["lost-though-durable"]) > 0, "{trial}");
    assert_eq!(trial.exit_code(), 1);
}

#[test]
fn guest_ext4_on_volumes_keeps_its_claims_at_each_cut() {
    let _alone = alone();
    let trial = trial("zvol-ext4", &[], 3);
    assert_held(&trial);
    let because = trial.because("consistent");
    for words in ["no leaks", "billing: e2fsck -fn: nothing", "customer: e2fsck -fn: nothing"] {
        assert!(because.contains(words), "{because}");
    }
    assert_explored(&trial);
}

#[test]
fn guest_a_volume_that_forces_nothing_loses_what_its_ext4_promised_and_stays_whole() {
    let _alone = alone();
    let trial = trial("zvol-ext4", &["--set", "billing.sync=disabled"], 3);
    assert_eq!(verdicts(&trial), ["held", "held", "held", "violated"], "{trial}");
    assert!(trial.outcomes("billing", &["lost-though-durable"]) > 0, "{trial}");
    assert_eq!(trial.exit_code(), 1);
}
