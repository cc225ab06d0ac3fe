//! Any bytes as what a guest sends: whole messages come out, each of which is its frame again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use plugpull::history::message::Frames;

fuzz_target!(|bytes: &[u8]| {
    let mut frames = Frames::default();
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    for part in [first, rest] {
        frames.feed(part);
        while let Ok(Some((frame, message))) = frames.next_frame() {
            let mut again = Vec::new();
            message.encode(&mut again);
            assert_eq!(frame, again);
        }
    }
});
