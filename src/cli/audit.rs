//! `plugpull audit`.

use super::args::AuditArgs;
use super::progress::print;
use crate::audit::policy::Policy;
use crate::audit::{judge, live, render};
use anyhow::{Context, Result, bail};
use std::io::Read;
use std::path::Path;

/// A dataset is not as the policy says.
const NOT_AS_ASKED: u8 = 1;

/// Audits and prints. Returns the exit code.
pub fn run(args: AuditArgs) -> Result<u8> {
    if args.pool.is_empty() || args.pool.starts_with('-') || args.pool.contains(['*', '@', ' ']) {
        bail!("{:?} is no pool's or dataset's name", args.pool);
    }
    let policy = policy(&args.policy)?;
    let text = match &args.from {
        Some(path) => saved(path)?,
        None => live::list(&args.pool)?,
    };
    let within = format!("{}/", args.pool);
    let is_its_own = |name: &str| name == args.pool || name.starts_with(&within);
    let datasets = judge::datasets(&text)?;
    if let Some(other) = datasets.iter().find(|dataset| !is_its_own(&dataset.name)) {
        bail!(
            "the list holds {}, which is not of {}; give the list of one pool",
            other.name,
            args.pool
        );
    }
    let audit = judge::judge(&args.pool, &policy, datasets);
    match args.json {
        true => print(&format!("{}\n", serde_json::to_string_pretty(&audit)?))?,
        false => print(&render::text(&audit))?,
    }
    Ok(if audit.as_asked { 0 } else { NOT_AS_ASKED })
}

fn policy(path: &Path) -> Result<Policy> {
    let text = std::fs::read_to_string(path).with_context(|| {
        format!("cannot read the policy {}; write one, see `plugpull audit --help`", path.display())
    })?;
    Ok(Policy::parse(&path.display().to_string(), &text)?)
}

/// What `zfs get` printed elsewhere, from a file or from standard input.
fn saved(path: &Path) -> Result<String> {
    if path != Path::new("-") {
        return std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the list {}", path.display()));
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("cannot read the list")?;
    Ok(text)
}
