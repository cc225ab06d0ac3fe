//! plugpull cuts the power under a real file system and judges what came back.
//!
//! The way of the data: a [`workload`] runs in a [`guest`] on a [`stack`] whose block device is the
//! lab's [`disk`]; every disk request and every message goes to one [`trace`]. At the [`cut`] the
//! trace says, under a crash model, what the medium holds; a second guest observes it; [`verify`]
//! holds the observation against the [`history`] and the claims. [`trial`] runs that once; [`explore`]
//! looks at every other cut of the same recording; [`agree`] holds recordings against real losses;
//! [`mutants`] plants faults and shows what catches them; [`audit`] asks a live pool whether it is set as
//! its owner wants.

pub mod agent;
pub mod agree;
pub mod audit;
pub mod bench;
pub mod chart;
pub mod cli;
pub mod cut;
pub mod disk;
pub mod explore;
pub mod guest;
pub mod history;
pub mod host;
pub mod mutants;
pub mod record;
pub mod script;
pub mod shrink;
pub mod stack;
pub mod trace;
pub mod trial;
pub mod tried;
pub mod units;
pub mod verify;
pub mod workload;
