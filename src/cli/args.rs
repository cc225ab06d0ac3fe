//! The words of the command line.

use super::explore::Budget;
use crate::disk::CrashModel;
use crate::explore::cuts::Which;
use crate::guest::{Accel, Suite};
use crate::stack::scenario::{ClaimKind, PlainFs};
use clap::{Parser, Subcommand, ValueEnum};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

/// Cuts the power under a real file system and judges what came back.
#[derive(Debug, Parser)]
#[command(version, about, long_about = None)]
#[command(after_help = "\
Exit codes: 0 all claims held, 1 a claim was violated, 2 bad usage or the trial could not be run,
3 not measured, 4 harness broken; where several apply: 4, then 1, then 3, then 0.

Files: the guest image and the saved guest live in $PLUGPULL_CACHE (else $XDG_CACHE_HOME/plugpull,
else ~/.cache/plugpull); a trial leaves a folder under runs/.")]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// One real power cut, judged: load a guest, cut its power, look at what its disk holds
    Trial(TrialArgs),
    /// Every cut of one recording: what a kernel finds in each state, and the loss at every instant
    Explore(ExploreArgs),
    /// Does the trace agree with reality? Real cuts of a disk with a cache, held against the trace
    Agree(AgreeArgs),
    /// What does the tool catch? Faults are planted, and it is shown which crash model finds which
    Mutants(MutantsArgs),
    /// Is a live pool set as its owner wants? Each dataset's sync, held against a policy file
    Audit(AuditArgs),
    /// Judge a finished run again from its folder alone
    Judge(JudgeArgs),
    /// Measure the tool itself against the tools that people trust
    Bench(BenchArgs),
    /// Traces to and from the log format of the kernel's dm-log-writes
    Log(LogArgs),
    /// The smallest part of a script that still violates a claim
    Shrink(ShrinkArgs),
    /// List the scenarios that come with the tool, or try each of them
    Scenarios(ScenariosArgs),
}

/// A shrinking's words.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each candidate is recorded and explored anew; the minimal script is printed, and a scenario of it alone
is written beside the run (minimal.toml), to be tried, explored, and sent to whoever mends it.

Examples:
  plugpull shrink runs/0003-files-ext4-seed-1 --in host
  plugpull shrink runs/0004-files-seed-7 --claim point-in-time --budget 2h
  plugpull explore runs/0003-files-ext4-seed-1/minimal.toml --in host")]
pub struct ShrinkArgs {
    /// The run's folder: one with a stream that carries out a script
    pub run: PathBuf,
    /// The claim that its states violate
    #[arg(long, value_parser = claim_kind, default_value = "durable", value_name = "CLAIM")]
    pub claim: ClaimKind,
    /// The stream's number; the first with a script if none is given
    #[arg(long, value_name = "N")]
    pub stream: Option<u16>,
    /// Whose kernel records and looks: a guest's, or this machine's own (ext4, xfs, btrfs; root)
    #[arg(long = "in", value_enum, default_value_t = InArg::Guest, value_name = "WHERE")]
    pub place: InArg,
    /// No new candidate is tried after so long: 90s, 10m, 2h, none
    #[arg(long, value_name = "TIME", default_value_t = Budget(Some(Duration::from_secs(600))))]
    pub budget: Budget,
}

/// A claim by its name in scenarios.
fn claim_kind(text: &str) -> Result<ClaimKind, String> {
    let value = serde_json::Value::String(text.to_owned());
    serde_json::from_value(value).map_err(|why| why.to_string())
}

/// The words of a round over the scenarios.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  plugpull scenarios                                    a line for each
  plugpull scenarios --try                              one trial of each, and a minute of its other cuts
  plugpull scenarios --try sqlite files --explore 5m    some of them, longer
  plugpull scenarios --try --explore 0s --json          one cut each, as one document")]
pub struct ScenariosArgs {
    /// Try them: a trial of each, then other cuts of its recording; prints the table of scenarios,
    /// claims, and what was found
    #[arg(long = "try")]
    pub try_them: bool,
    /// Names or files of the scenarios to try; all that come with the tool if none is named
    #[arg(requires = "try_them", value_name = "SCENARIO")]
    pub scenarios: Vec<String>,
    /// How long other cuts of each recording are looked at: 90s, 10m, 0s for not at all
    #[arg(long, value_name = "TIME", default_value_t = Budget(Some(Duration::from_secs(60))))]
    pub explore: Budget,
    /// Decides everything random but the run ids; drawn and printed if not given
    #[arg(long)]
    pub seed: Option<u64>,
    /// Which Debian the guests are made of
    #[arg(long, value_enum, default_value_t = SuiteArg::Trixie)]
    pub suite: SuiteArg,
    /// How a guest's CPU is run; without it what works here is found out once
    #[arg(long, value_enum)]
    pub accel: Option<AccelArg>,
    /// The folder under which the run folders are made
    #[arg(long, default_value = "runs", value_name = "DIR")]
    pub runs: PathBuf,
    /// Print one JSON document on standard output instead of the table
    #[arg(long)]
    pub json: bool,
}

/// A bench's words.
#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    /// What to measure
    #[command(subcommand)]
    pub what: BenchWhat,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, Subcommand)]
pub enum BenchWhat {
    /// What a crash state costs: a pool's in a warm guest against a cut the usual way, ext4's on this
    /// machine's own kernel (root), and making one of a short and of a long trace
    Explore(ExploreBenchArgs),
    /// The workload's forced writes a second against fio's, in one guest, in turn
    Workload,
    /// The package install's calls a second against a plain loop of the same calls, in one guest, in
    /// turn
    Package,
    /// The disk's throughput against qemu-nbd's, with fio, and its memory for each write
    Disk,
}

/// The words of a bench of explorations.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct ExploreBenchArgs {
    /// Which part
    #[arg(long, value_enum, default_value_t = ExploreBenchArg::All)]
    pub what: ExploreBenchArg,
    /// A pool's states to look at
    #[arg(long, value_name = "N", default_value_t = NonZeroU32::new(9).unwrap_or(NonZeroU32::MIN))]
    pub states: NonZeroU32,
    /// Print one JSON document on standard output instead of the text
    #[arg(long)]
    pub json: bool,
}

/// `bench explore --what`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExploreBenchArg {
    /// A pool's states in a guest.
    Zfs,
    /// ext4's states on this machine's own kernel.
    Ext4,
    /// Making states.
    Prepare,
    /// All of it.
    All,
}

/// An audit's words.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints each dataset's and volume's sync in effect, where it comes from, and whether it is what the
policy says. A dataset that no rule is about is reported, and so is a parent under which a new or
reinstalled server would get something else.

A policy is a TOML file:
  [[rule]]
  datasets = \"tank/servers/*\"   # * is any one name; ** at the end is everything below
  sync = \"disabled\"
  except = [{ datasets = \"tank/servers/alice\", sync = \"standard\" }]
  inherits = false               # optional: each is given its sync when it is made
  [[rule]]
  datasets = \"tank/billing\"
  sync = \"standard\"

Exit codes: 0 all is as the policy says, 1 it is not, 2 bad usage or ZFS could not be asked.

Examples:
  plugpull audit tank --policy sync-policy.toml
  plugpull audit tank/servers --policy sync-policy.toml --json | jq '.datasets[].verdict'
  ssh host zfs get -Hp -r -o name,property,value,source -t filesystem,volume sync tank |
    plugpull audit tank --policy sync-policy.toml --from -")]
pub struct AuditArgs {
    /// The pool, or a dataset with all below it
    pub pool: String,
    /// The policy file
    #[arg(long, value_name = "FILE", default_value = "/etc/plugpull/sync-policy.toml")]
    pub policy: PathBuf,
    /// Read what `zfs get` printed from FILE, or from standard input if it is -, in place of asking
    /// this host's ZFS
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Print one JSON document on standard output instead of the text
    #[arg(long)]
    pub json: bool,
}

/// A judgement's words.
#[derive(Debug, clap::Args)]
pub struct JudgeArgs {
    /// The run's folder, as `plugpull trial` named it
    pub run: PathBuf,
    /// Print one JSON document on standard output instead of the summary
    #[arg(long)]
    pub json: bool,
}

/// A trial's words.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  plugpull trial                                  the main case: ZFS with sync=disabled
  plugpull trial --seed 7                         the same plan again
  plugpull trial --set billing.sync=disabled      what if billing were not forced to disk?
  plugpull trial --crash-model keep-all           what killing a VM shows
  plugpull trial --cut uniform --load-seconds 20  a cut for statistics
  plugpull trial --json | jq .verdict             one document on standard output")]
pub struct TrialArgs {
    /// A scenario's name, or the path of its TOML file
    #[arg(default_value = crate::stack::settings::DEFAULT)]
    pub scenario: String,
    /// Decides everything random but the run id; drawn and printed if not given
    #[arg(long)]
    pub seed: Option<u64>,
    /// About how long the load runs before the cut
    #[arg(long, value_name = "S")]
    pub load_seconds: Option<f64>,
    /// What the disk's volatile cache does at the cut: keep-all, drop-unflushed, subset, torn,
    /// torn-4k, unsafe, unsafe:MIB
    #[arg(long, value_name = "MODEL")]
    pub crash_model: Option<CrashModel>,
    /// When to cut: just before a commit becomes durable, or at a random instant
    #[arg(long, value_name = "WHEN")]
    pub cut: Option<CutArg>,
    /// Vary the scenario: a field by its path; a dataset's name stands for dataset.NAME
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub sets: Vec<String>,
    /// Which Debian, and with it which kernel and OpenZFS, the guest is made of; only trixie was tried
    /// so far, and bookworm's OpenZFS does not configure yet
    #[arg(long, value_enum, default_value_t = SuiteArg::Trixie)]
    pub suite: SuiteArg,
    /// How the guest's CPU is run; without it what works here is found out once
    #[arg(long, value_enum)]
    pub accel: Option<AccelArg>,
    /// The folder under which the run's folder is made
    #[arg(long, default_value = "runs", value_name = "DIR")]
    pub runs: PathBuf,
    /// Print one JSON document on standard output instead of the summary
    #[arg(long)]
    pub json: bool,
}

/// An exploration's words.
#[derive(Debug, clap::Args)]
#[command(mut_arg("scenario", |arg| arg.help("A scenario's name or file, or the folder of a run")))]
#[command(after_help = "\
Cuts (--cuts):
  every                 each distinct state (drop-unflushed, keep-all)
  sample:N              N states, evenly spread
  seeds:N               N chances between any two flushes (subset, torn, unsafe)
  after-ack, in-txg-sync, between-labels, in-journal-commit
                        where file systems are most likely to fail

In a guest, states that differ from their neighbours come first, so that the loss curve has its shape
early; on this machine's own kernel they come in order. An
exploration that was interrupted, or ran out of its budget, goes on when its run is explored again.

Examples:
  plugpull explore                                record the main case, look at its states
  plugpull explore --budget none                  all of them, as long as it takes
  plugpull explore runs/0001-zfs-sync-disabled-seed-7   a run that is there already
  plugpull explore --crash-model torn --cuts seeds:2 ext4
  plugpull explore ext4 --in host                 on this machine's own kernel, in seconds
  plugpull explore --recovery-cuts 2 --budget 5m  cut again while a state is being recovered
  plugpull explore --json | jq .curves            one document on standard output")]
pub struct ExploreArgs {
    /// What is recorded, if nothing was; or the recorded run
    #[command(flatten)]
    pub trial: TrialArgs,
    /// Which states; every distinct one, or one chance an epoch where the crash model leaves it to
    /// chance
    #[arg(long, value_name = "WHICH")]
    pub cuts: Option<Which>,
    /// How long states may be looked at: 90s, 10m, 2h, none
    #[arg(long, value_name = "TIME", default_value_t = Budget(Some(Duration::from_secs(600))))]
    pub budget: Budget,
    /// Whose kernel records and looks: a guest's, or this machine's own (ext4, xfs, btrfs; root). A
    /// bad state then meets your kernel
    #[arg(long = "in", value_enum, default_value_t = InArg::Guest, value_name = "WHERE")]
    pub place: InArg,
    /// Kernels at once; by default one for every four cores, and on this machine's own kernel a mount
    /// a core
    #[arg(long, value_name = "N")]
    pub workers: Option<NonZeroUsize>,
    /// Cut the power again so many times during the recovery from each state
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub recovery_cuts: u32,
}

/// An agreement's words.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Beside the trace a second disk hears the same requests: a plain file, and a cache in memory that is
dropped at the cut. It shares no code with the trace's crash states. For each cut its SHA-256 must be
that of the trace's crash state, a guest that boots it must read the same records, and the survivors
must be those that follow from transaction groups alone.

Exit codes: 0 all agree, 4 one does not, 2 bad usage or a cut that could not be compared.

Examples:
  plugpull agree                     20 real cuts of the main case
  plugpull agree --count 3 --seed 7  fewer, the same plans again")]
pub struct AgreeArgs {
    /// What is recorded
    #[command(flatten)]
    pub trial: TrialArgs,
    /// Real cuts, with consecutive seeds
    #[arg(long, value_name = "N", default_value = "20")]
    pub count: NonZeroU32,
}

/// A log's words.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
xfstests' replay-log reads what is exported. An ack is a mark: replay-log --end-mark stops at what was
durable when it came. What was never durable comes last, behind the mark plugpull:unflushed:.

Examples:
  plugpull log export runs/0001-ext4-seed-3 ext4.log
  plugpull log import ext4.log --fs ext4 --begins load-begins
  plugpull explore runs/0002-imported-ext4-seed-0 --in host")]
pub struct LogArgs {
    /// What to do
    #[command(subcommand)]
    pub what: LogWhat,
}

/// What can be done with logs.
#[derive(Debug, Subcommand)]
pub enum LogWhat {
    /// Write a run's trace as a dm-log-writes log
    Export {
        /// A run's folder, or a trace
        from: PathBuf,
        /// The log, which must not exist
        to: PathBuf,
    },
    /// Make a run of a dm-log-writes log, whose states can be explored
    Import {
        /// The log
        log: PathBuf,
        /// The file system that wrote it
        #[arg(long, value_enum)]
        fs: FsArg,
        /// The mark from which on its states are of interest, such as one behind mkfs
        #[arg(long, value_name = "MARK")]
        begins: Option<String>,
        /// The disk's size, which a kernel's log does not say: without it up to its last entry
        #[arg(long, value_name = "MIB")]
        disk_mib: Option<u64>,
        /// The folder under which the run's folder is made
        #[arg(long, default_value = "runs", value_name = "DIR")]
        runs: PathBuf,
    },
}

/// `--fs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FsArg {
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
}

impl From<FsArg> for PlainFs {
    fn from(arg: FsArg) -> PlainFs {
        match arg {
            FsArg::Ext4 => PlainFs::Ext4,
            FsArg::Xfs => PlainFs::Xfs,
            FsArg::Btrfs => PlainFs::Btrfs,
        }
    }
}

/// The kill table's words.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each fault has a claim and a class that must report it, named in advance. It counts as caught only if
the same scenario, seed and cut without it pass that claim. Beside the faults, states of honest stacks
are looked at; one that raises an alarm fails the command, and is kept under --runs.

Most faults are planted on this machine's own kernel (root), the others in a guest.

Exit codes: 0 every fault that was asked for was caught and no control raised an alarm, 1 one was not
or one did, 3 not everything could be tried, 2 bad usage or it could not be run.

Examples:
  plugpull mutants                            the whole table
  plugpull mutants --host-only                without a guest; says what was not tried
  plugpull mutants --only torn-512,zeroed --controls 0
  plugpull mutants --list                     the faults by name
  plugpull mutants --write-finding            the table with its data in findings/")]
pub struct MutantsArgs {
    /// Only these faults
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Print the faults and what they do, and plant none
    #[arg(long)]
    pub list: bool,
    /// Decides everything random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Leave out what needs a guest
    #[arg(long)]
    pub host_only: bool,
    /// States of honest ext4, xfs and btrfs that must hold; some of ZFS come beside them
    #[arg(long, value_name = "N", default_value_t = 2000)]
    pub controls: u32,
    /// Which Debian a guest is made of
    #[arg(long, value_enum, default_value_t = SuiteArg::Trixie)]
    pub suite: SuiteArg,
    /// How a guest's CPU is run; without it what works here is found out once
    #[arg(long, value_enum)]
    pub accel: Option<AccelArg>,
    /// The folder in which the state of an alarm is kept
    #[arg(long, default_value = "runs", value_name = "DIR")]
    pub runs: PathBuf,
    /// Write the table and its data as a finding under DIR
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = "findings")]
    pub write_finding: Option<PathBuf>,
    /// Print one JSON document on standard output instead of the table
    #[arg(long)]
    pub json: bool,
}

/// `--in`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum InArg {
    /// A guest's kernel.
    Guest,
    /// This machine's own.
    Host,
}

/// `--cut`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum CutArg {
    /// Just before a commit becomes durable.
    Worst,
    /// At an instant drawn from the seed.
    Uniform,
}

/// `--suite`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum SuiteArg {
    /// Debian 12.
    Bookworm,
    /// Debian 13.
    Trixie,
    /// Debian 13 with kernel and OpenZFS from its backports.
    TrixieBackports,
}

impl From<SuiteArg> for Suite {
    fn from(arg: SuiteArg) -> Suite {
        match arg {
            SuiteArg::Bookworm => Suite::Bookworm,
            SuiteArg::Trixie => Suite::Trixie,
            SuiteArg::TrixieBackports => Suite::TrixieBackports,
        }
    }
}

/// `--accel`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum AccelArg {
    /// The host's own CPU.
    Kvm,
    /// Software emulation.
    Tcg,
}

impl From<AccelArg> for Accel {
    fn from(arg: AccelArg) -> Accel {
        match arg {
            AccelArg::Kvm => Accel::Kvm,
            AccelArg::Tcg => Accel::Tcg,
        }
    }
}
