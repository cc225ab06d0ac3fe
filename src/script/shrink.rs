//! The smallest part of a failing script that still fails.
//!
//! Delta debugging (Zeller and Hildebrandt, 2002): larger and larger halves are left out as long as the
//! rest still fails, then single operations. What is left is minimal in this sense: leaving any one
//! operation out, with what cannot be carried out without it, makes it pass.

use super::generate::names::Names;
use super::op::{Op, Paths};

/// An operation of a script, and whether it belongs to the set-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The operation.
    pub op: Op,
    /// Whether it is carried out and made durable before the load.
    pub is_set_up: bool,
}

/// Shrinks a failing list of steps. `fails` is asked of lists of which every operation can be carried
/// out, none of them twice in a row; an error of it ends the search.
pub fn minimal<E>(
    steps: Vec<Step>,
    paths: &Paths,
    mut fails: impl FnMut(&[Step]) -> Result<bool, E>,
) -> Result<Vec<Step>, E> {
    let mut left = steps;
    let mut parts = 2;
    while left.len() > 1 {
        let size = left.len().div_ceil(parts);
        let starts = (0..left.len()).step_by(size);
        let mut smaller = None;
        for start in starts {
            let end = (start + size).min(left.len());
            let rest: Vec<Step> = left[..start].iter().chain(&left[end..]).copied().collect();
            let rest = possible(&rest, paths);
            if !rest.is_empty() && fails(&rest)? {
                smaller = Some(rest);
                break;
            }
        }
        match smaller {
            Some(rest) => {
                left = rest;
                parts = (parts - 1).max(2);
            }
            None if size == 1 => break,
            None => parts = (parts * 2).min(left.len()),
        }
    }
    Ok(left)
}

/// The steps without those that could not be carried out after what is left before them.
pub fn possible(steps: &[Step], paths: &Paths) -> Vec<Step> {
    let mut names = Names::default();
    let mut left = Vec::with_capacity(steps.len());
    for step in steps {
        if names.check(&step.op, paths).is_ok() {
            names.apply(&step.op, paths);
            left.push(*step);
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::spec::ScriptSpec;
    use crate::script::text;
    use crate::units::StreamId;

    fn steps(lines: &[&str]) -> (Vec<Step>, Paths) {
        let mut paths = Paths::default();
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let ops = text::parse(&lines, &mut paths).expect("a script");
        (ops.into_iter().map(|op| Step { op, is_set_up: false }).collect(), paths)
    }

    fn words(steps: &[Step], paths: &Paths) -> Vec<String> {
        steps.iter().map(|step| text::text(&step.op, paths)).collect()
    }

    #[test]
    fn a_fault_that_needs_three_operations_is_left_with_these_three() {
        let script = ScriptSpec::Random { names: 4, file_bytes: 16_384, sync_every: 4 }.script(
            3,
            StreamId(1),
            300,
        );
        let mut all: Vec<Step> =
            script.ops.iter().map(|op| Step { op: *op, is_set_up: false }).collect();
        let mut paths = script.paths.clone();
        let (begin, link) = (paths.intern("begin"), paths.intern("link"));
        for (at, op) in [
            (20, Op::Create(begin)),
            (120, Op::Link { from: begin, to: link }),
            (280, Op::Unlink(begin)),
        ] {
            all.insert(at, Step { op, is_set_up: false });
        }
        let mut asked = 0;
        let fails = |steps: &[Step]| -> Result<bool, ()> {
            asked += 1;
            assert_eq!(possible(steps, &paths), steps, "only what can be carried out is tried");
            let at = |wanted: Op| steps.iter().position(|step| step.op == wanted);
            let linked = at(Op::Link { from: begin, to: link });
            Ok(linked.is_some() && at(Op::Unlink(begin)) > linked)
        };
        let left = minimal(all, &paths, fails).expect("no error");
        assert!(left.len() <= 3, "{:?}", words(&left, &paths));
        assert!(asked < 200, "{asked}");
        assert!(left.iter().any(|step| step.op == Op::Unlink(begin)));
    }

    #[test]
    fn what_depends_on_an_operation_goes_with_it() {
        let (all, paths) = steps(&["create a", "write a 0 8", "rename a b", "fsync b", "create c"]);
        let without_first = possible(&all[1..], &paths);
        assert_eq!(words(&without_first, &paths), ["create c"]);
        assert_eq!(possible(&all, &paths), all, "control");
    }

    #[test]
    fn an_error_ends_the_search() {
        let (all, paths) = steps(&["create a", "create b"]);
        assert_eq!(minimal(all, &paths, |_| Err("no room")), Err("no room"));
    }
}
