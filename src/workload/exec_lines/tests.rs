use super::*;
use proptest::prelude::*;

fn fed(bytes: &[u8]) -> Vec<Result<Said, String>> {
    let mut lines = Lines::default();
    lines.feed(bytes);
    let mut all = Vec::new();
    while let Some(line) = lines.next_said() {
        let stop = line.is_err();
        all.push(line);
        if stop {
            break;
        }
    }
    all
}

#[test]
fn each_line_is_what_it_says_and_anything_else_is_shown_as_it_is() {
    let good = fed(b"intent 1\ndone 1\nack 1\nintent 2\n");
    let good: Vec<Said> = good.into_iter().map(|line| line.expect("understood")).collect();
    assert_eq!(good, [Said::Intent(1), Said::Done(1), Said::Ack(1), Said::Intent(2)]);
    let bad: [&[u8]; 9] = [
        b"\n",
        b"ack\n",
        b"ack x\n",
        b"ack 0\n",
        b"ack -1\n",
        b"ack 1 \n",
        b"ack +1\n",
        b"ack 99999999999999999999\n",
        b"\xff 1\n",
    ];
    for line in bad {
        let refused = fed(line).pop().expect("a line").expect_err("refused");
        assert!(refused.contains("intent ID"), "{refused}");
    }
    assert!(fed(b"acknowledged 1\n")[0].is_err());
    assert!(fed(&[b'a'; 300])[0].as_ref().expect_err("too long").contains("256"));
    assert_eq!(fed(b"intent 1"), [], "a line without its end is not said yet");
}

#[test]
fn ids_come_in_order_and_an_ack_covers_all_before_it() {
    let mut progress = Progress::default();
    for id in 1..=3 {
        assert_eq!(progress.take(Said::Intent(id)), Ok(id..=id));
    }
    assert_eq!(progress.take(Said::Done(2)), Ok(1..=2));
    assert_eq!(progress.take(Said::Ack(3)), Ok(1..=3));
    assert_eq!(progress.in_flight(), 0);
    for wrong in [Said::Intent(5), Said::Intent(3), Said::Done(3), Said::Ack(3), Said::Ack(4)] {
        let before = progress;
        assert!(progress.take(wrong).is_err(), "{wrong:?}");
        assert_eq!(progress, before, "what is refused changes nothing");
    }
    for id in 4..4 + IN_FLIGHT_MAX {
        assert!(progress.take(Said::Intent(id)).is_ok(), "{id}");
    }
    let words = progress.take(Said::Intent(4 + IN_FLIGHT_MAX)).expect_err("too many");
    assert!(words.contains("in flight"), "{words}");
}

#[test]
fn survivors_are_joined_whatever_their_order() {
    let found = found(
        "check amcheck ok 12 tables\n\nsurvived 7-9\nsurvived 1\nsurvived 2-3\nsurvived 8\n\
         broken 11 half a row\ncheck start failed no socket\ncheck quiet ok\n",
    );
    assert_eq!(found.survived, [1..=3, 7..=9]);
    assert_eq!(found.broken, [Broken { id: Some(11), words: "half a row".to_owned() }]);
    let checks: Vec<(&str, bool, &str)> =
        found.checks.iter().map(|c| (c.name.as_str(), c.passed, c.words.as_str())).collect();
    let expected =
        [("amcheck", true, "12 tables"), ("start", false, "no socket"), ("quiet", true, "")];
    assert_eq!((checks.as_slice(), found.malformed), (expected.as_slice(), None));
}

#[test]
fn words_that_are_none_are_told_with_their_line() {
    let bad = [
        "survived",
        "survived 0",
        "survived 3-2",
        "survived 1-",
        "survived 1 2",
        "broken x y",
        "check",
        "check x",
        "check x maybe",
        "Survived 1",
        "survived 99999999999999999999",
    ];
    for line in bad {
        let found = found(&format!("survived 1\n{line}\nsurvived 2\n"));
        let words = found.malformed.expect("refused");
        assert!(words.contains("line 2") && words.contains(line), "{words}");
        assert_eq!(found.survived, [1..=1], "nothing behind it counts");
    }
    let many = "survived 1\n".repeat(TOLD_MAX + 1);
    assert!(found(&many).malformed.expect("refused").contains("too many"));
}

/// What lines are made of.
const LETTERS: &[u8] = b"intent done ack 0123456789\n\n";

proptest! {
    #[test]
    fn no_bytes_make_it_panic_and_chunks_do_not_matter(
        bytes in prop::collection::vec(prop::sample::select(LETTERS.to_vec()), 0..400),
        at in any::<prop::sample::Index>(),
    ) {
        let whole = fed(&bytes);
        let (one, two) = bytes.split_at(at.index(bytes.len() + 1));
        let (mut lines, mut parts) = (Lines::default(), Vec::new());
        'all: for part in [one, two] {
            lines.feed(part);
            while let Some(line) = lines.next_said() {
                let stop = line.is_err();
                parts.push(line);
                if stop { break 'all; }
            }
        }
        prop_assert_eq!(whole, parts);
        let _ = found(&String::from_utf8_lossy(&bytes));
    }
}
