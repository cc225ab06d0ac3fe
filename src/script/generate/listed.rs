//! Operations that a scenario lists.

use crate::script::op::{Op, Paths};
use crate::script::spec::Generator;
use crate::script::text;

/// A script that was written down. One that cannot be read has no operation: scenarios and plans
/// refuse it beforehand, with its line.
#[derive(Debug)]
pub struct Listed {
    paths: Paths,
    ops: std::vec::IntoIter<Op>,
    fill: u64,
}

impl Listed {
    /// These lines, of which the first `fill` belong to the set-up.
    pub fn new(lines: &[String], fill: u64) -> Listed {
        let mut paths = Paths::default();
        let ops = text::parse(lines, &mut paths).unwrap_or_default();
        Listed { paths, ops: ops.into_iter(), fill }
    }
}

impl Generator for Listed {
    fn next_op(&mut self) -> Option<Op> {
        self.ops.next()
    }

    fn paths(&self) -> &Paths {
        &self.paths
    }

    fn fill(&self) -> u64 {
        self.fill
    }
}
