//! What a guest is asked to be.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How the guest's CPU is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Accel {
    /// The host's own CPU.
    Kvm,
    /// Software emulation.
    Tcg,
}

impl fmt::Display for Accel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Accel::Kvm => "kvm",
            Accel::Tcg => "tcg",
        })
    }
}

/// Which Debian the guest is made of, and with it which kernel and OpenZFS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Suite {
    /// Debian 12.
    Bookworm,
    /// Debian 13.
    #[default]
    Trixie,
    /// Debian 13 with the kernel and OpenZFS of its backports.
    TrixieBackports,
}

impl Suite {
    /// Its name, as Debian and the build script write it.
    pub fn name(self) -> &'static str {
        match self {
            Suite::Bookworm => "bookworm",
            Suite::Trixie => "trixie",
            Suite::TrixieBackports => "trixie-backports",
        }
    }
}

/// What a guest is asked to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestConfig {
    /// Its memory. It decides ZFS's dirty-data limit, and with it when txgs close.
    pub memory_mib: u32,
    /// Its CPUs.
    pub cpus: u32,
    /// What it is made of.
    pub suite: Suite,
    /// Whether the benchmark tools are in it.
    pub bench: bool,
    /// How its CPU is run; `None` lets the lab find out what works here.
    pub accel: Option<Accel>,
}

impl Default for GuestConfig {
    fn default() -> GuestConfig {
        GuestConfig {
            memory_mib: 1024,
            cpus: 2,
            suite: Suite::default(),
            bench: false,
            accel: None,
        }
    }
}
