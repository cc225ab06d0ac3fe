//! Real cuts, one after the other.

use super::compare::{difference, predicted, records};
use super::report::{AgreeReport, Cut};
use crate::disk::{CrashModel, Image, LiveStore, crash_state};
use crate::explore::guest_site::GuestSite;
use crate::explore::site::Site;
use crate::guest::Start;
use crate::guest::cache::{digest_of_file, hex};
use crate::guest::disk::{DiskBus, DiskSource};
use crate::guest::progress::{Progress, Watch};
use crate::guest::run_folder::RunFolder;
use crate::stack::recover::StateDisks;
use crate::stack::settings;
use crate::trial::evidence::{self, Evidence};
use crate::trial::facts::RunFacts;
use crate::trial::inspect::{self, Observation};
use crate::trial::options::TrialOptions;
use crate::trial::run::{Setting, record_beside};
use crate::units::Txg;
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::path::Path;

/// Bytes that are hashed at once.
const PIECE_BYTES: usize = 1 << 20;

/// Cuts `count` times, with consecutive seeds, and compares.
pub fn run(options: &TrialOptions, count: u32, watch: &Watch) -> Result<AgreeReport> {
    let scenario = settings::load(&options.scenario, &options.sets)?;
    let model = scenario.cut.crash_model;
    if model != CrashModel::DropUnflushed {
        bail!("only drop-unflushed can be held against a real loss, not {model}");
    }
    let (mut cuts, mut name) = (Vec::new(), options.scenario.clone());
    for nth in 0..count {
        watch.check()?;
        let agree = cuts.iter().filter(|cut: &&Cut| cut.disagreement.is_none()).count();
        let text = format!("{agree} of {nth} agree so far");
        let (stage, done, total) = ("real cuts".to_owned(), u64::from(nth), u64::from(count));
        watch.tell(Progress::Part { stage, done, total, text });
        let seed = options.seed.wrapping_add(u64::from(nth));
        let quiet = watch.with_listener(|_| {});
        let (cut, scenario) = one(&TrialOptions { seed, ..options.clone() }, &quiet)
            .with_context(|| format!("the cut with seed {seed} could not be compared"))?;
        cuts.push(cut);
        name = scenario;
    }
    Ok(AgreeReport::new(&name, cuts))
}

fn one(options: &TrialOptions, watch: &Watch) -> Result<(Cut, String)> {
    let scratch = RunFolder::new()?;
    let medium = scratch.path().join("medium");
    let file = File::options().read(true).write(true).create_new(true).open(&medium)?;
    let store = LiveStore::new(file.try_clone()?);
    let (setting, facts) = record_beside(options, Some(store.clone()), watch)?;
    store.cut().context("the medium beside the trace could not be written")?;
    let model = facts.scenario.cut.crash_model;
    let recording = evidence::of_run(&setting.folder, &facts, model)?;
    let evidence = recording.at_its_cut()?;
    let blank = Image::blank(recording.log.header.disk_bytes)?;
    let state = crash_state(&recording.log, &blank, recording.log.cut_entry(), model, facts.seed)?;
    let (real_digest, traced_digest) = (digest_of_file(&medium)?, digest_of_image(&state)?);

    let console = setting.folder.recovery_console();
    let (scenario, plan) = (&setting.scenario, &setting.plan);
    let mut site = GuestSite::new(&setting.lab, scenario, plan, console, watch);
    let traced = site.look(state, &scratch.path().join("overlay"))?;
    drop(site);
    let real = look_at_medium(&setting, &medium, watch)?;
    let checked = check(&facts, &evidence, &real, &traced);
    let same = real_digest == traced_digest;
    let (predicted_streams, disagreement) = match (same, checked) {
        (false, _) => (0, Some("the images differ".to_owned())),
        (true, Ok(streams)) => (streams, None),
        (true, Err(words)) => (0, Some(words)),
    };
    let cut = Cut {
        seed: options.seed,
        load_s: recording.cut.0.saturating_sub(recording.begin.0) as f64 / 1e9,
        medium_sha256: real_digest,
        trace_sha256: traced_digest,
        records: records(&real.found.files),
        predicted_streams,
        disagreement,
    };
    Ok((cut, scenario.name.clone()))
}

/// The guest reads the very file that the cut left; the trace has no part in it.
fn look_at_medium(setting: &Setting, medium: &Path, watch: &Watch) -> Result<Observation> {
    let mut guest = setting.lab.start(Start::Saved, None)?;
    let source = DiskSource::RawFile(medium.to_owned());
    let added = guest.add_disk(&source, DiskBus::VirtioBlk)?;
    inspect::look(
        &mut guest,
        StateDisks::one(&added.device),
        &setting.scenario,
        &setting.plan,
        watch,
    )
}

/// Records and prediction. Gives the number of streams that were predicted.
fn check(
    facts: &RunFacts,
    evidence: &Evidence,
    real: &Observation,
    traced: &Observation,
) -> Result<u32, String> {
    if let Some(words) = difference(&real.found.files, &traced.found.files) {
        return Err(words);
    }
    if records(&real.found.files) == 0 {
        return Err("no record was read back, so nothing was compared".to_owned());
    }
    let (real_txg, traced_txg) = (real.recovery.used_txg(), traced.recovery.used_txg());
    if real_txg != traced_txg {
        return Err(format!("the imports used txgs {real_txg:?} and {traced_txg:?}"));
    }
    let durable = evidence.commits.last().ok_or("no group became durable")?;
    let next = Txg(durable.txg.0.saturating_add(1));
    let row = evidence.history.txgs.get(&next);
    let birth = row.ok_or_else(|| format!("the guest did not say when txg {next} was born"))?.birth;
    predicted(&facts.scenario, &facts.plan, &evidence.history, &real.found.files, birth)
}

fn digest_of_image(image: &Image) -> Result<String> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut sha = Sha256::new();
    let mut at = 0;
    while at < image.disk_bytes() {
        let bytes = (image.disk_bytes() - at).min(PIECE_BYTES as u64) as usize;
        image.read_at(at, &mut piece[..bytes])?;
        sha.update(&piece[..bytes]);
        at += bytes as u64;
    }
    Ok(hex(&sha.finalize()))
}
