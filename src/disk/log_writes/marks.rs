//! What is not a disk request, as the text of marks.
//!
//! A named instant is a mark of its name. All else is `plugpull:KIND WORDS:BODY`; the words are for
//! people and are not read. What is longer than a mark may be goes on in the next one: all but the
//! last then have `KIND+`.
//!
//! | kind | body |
//! | --- | --- |
//! | `disk` | bytes of the disk and the run's id; only as the first entry |
//! | `message` | a frame of the guest, as hexadecimal digits |
//! | `note`, `cut`, `mark` | the text of a note, of the cut, of a mark that needs escaping |
//! | `unflushed` | nothing: what follows was never durable |

use super::layout::MARK_BYTES_MAX;
use crate::history::message::{Frames, Message};
use crate::units::RunId;
use std::fmt::Write;

const PREFIX: &str = "plugpull:";
/// No entry of a trace has a longer text.
const TEXT_BYTES_MAX: usize = 16 << 20;

/// Why a mark that is named like one of ours is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MarkError {
    /// Not text.
    #[error("the mark's text is not UTF-8")]
    Text,
    /// A body that its kind does not have.
    #[error("the body of the mark {0:?} is not one that this tool writes")]
    Body(String),
    /// Parts of different entries, or an end without the rest.
    #[error("a mark of kind {0:?} is continued, but its rest does not follow")]
    Continued(String),
    /// Longer than any entry of a trace.
    #[error("the parts of a mark of kind {0:?} are longer than {TEXT_BYTES_MAX} bytes together")]
    TooLong(String),
    /// The disk is described behind the first entry.
    #[error("a mark that tells the disk's size stands behind the first entry")]
    LateDisk,
}

/// What marks say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    Disk { bytes: u64, run: RunId },
    Message(Vec<u8>),
    Note(String),
    Mark(String),
    Cut(String),
    Unflushed,
}

impl Said {
    /// The texts of its marks, in order.
    pub fn texts(&self) -> Vec<String> {
        match self {
            Said::Disk { bytes, run } => parts("disk", "", &format!("{bytes} {run}")),
            Said::Message(frame) => parts("message", &words(frame), &hex(frame)),
            Said::Note(text) => parts("note", "", text),
            Said::Mark(text) if text.len() <= MARK_BYTES_MAX && !text.starts_with(PREFIX) => {
                vec![text.clone()]
            }
            Said::Mark(text) => parts("mark", "", text),
            Said::Cut(text) => parts("cut", "", text),
            Said::Unflushed => parts("unflushed", "", ""),
        }
    }

    fn from_body(kind: &str, body: String) -> Option<Said> {
        Some(match kind {
            "disk" => {
                let (bytes, run) = body.split_once(' ')?;
                Said::Disk { bytes: bytes.parse().ok()?, run: run.to_owned().try_into().ok()? }
            }
            "message" => Said::Message(unhex(&body)?),
            "note" => Said::Note(body),
            "mark" => Said::Mark(body),
            "cut" => Said::Cut(body),
            "unflushed" if body.is_empty() => Said::Unflushed,
            _ => return None,
        })
    }
}

const KINDS: [&str; 6] = ["disk", "message", "note", "mark", "cut", "unflushed"];

/// Splits a body into marks, at the bounds of its characters.
fn parts(kind: &str, words: &str, body: &str) -> Vec<String> {
    let space = if words.is_empty() { "" } else { " " };
    let room = MARK_BYTES_MAX - (PREFIX.len() + kind.len() + space.len() + words.len() + 2);
    let mut texts = Vec::new();
    let mut rest = body;
    loop {
        let mut cut = rest.len().min(room);
        while !rest.is_char_boundary(cut) {
            cut -= 1;
        }
        let (now, later) = rest.split_at(cut);
        let more = if later.is_empty() { "" } else { "+" };
        texts.push(format!("{PREFIX}{kind}{more}{space}{words}:{now}"));
        if later.is_empty() {
            return texts;
        }
        rest = later;
    }
}

/// Puts marks together as they come.
#[derive(Debug, Default)]
pub(super) struct Marks {
    begun: Option<(String, String)>,
}

impl Marks {
    /// Takes the next mark; tells what it says when it is whole.
    pub fn take(&mut self, text: &[u8]) -> Result<Option<Said>, MarkError> {
        let text = std::str::from_utf8(text).map_err(|_| MarkError::Text)?;
        let Some((kind, more, body)) = split(text) else {
            self.finish()?;
            return Ok(Some(Said::Mark(text.to_owned())));
        };
        let mut whole = match self.begun.take() {
            Some((begun, whole)) if begun == kind => whole,
            Some((begun, _)) => return Err(MarkError::Continued(begun)),
            None => String::new(),
        };
        whole.push_str(body);
        if whole.len() > TEXT_BYTES_MAX {
            return Err(MarkError::TooLong(kind.to_owned()));
        }
        if more {
            self.begun = Some((kind.to_owned(), whole));
            return Ok(None);
        }
        let said = Said::from_body(kind, whole);
        said.map(Some).ok_or_else(|| MarkError::Body(text.chars().take(80).collect()))
    }

    /// Nothing may be left open where something else stands, and at the end.
    pub fn finish(&mut self) -> Result<(), MarkError> {
        self.begun.take().map_or(Ok(()), |(kind, _)| Err(MarkError::Continued(kind)))
    }
}

/// Kind, whether it goes on, and body of a mark of ours.
fn split(text: &str) -> Option<(&str, bool, &str)> {
    let (head, body) = text.strip_prefix(PREFIX)?.split_once(':')?;
    let kind = head.split_once(' ').map_or(head, |(kind, _)| kind);
    let (kind, more) = kind.strip_suffix('+').map_or((kind, false), |kind| (kind, true));
    KINDS.contains(&kind).then_some((kind, more, body))
}

/// What a message says, in a few words.
fn words(frame: &[u8]) -> String {
    let mut frames = Frames::default();
    frames.feed(frame);
    match frames.next_frame() {
        Ok(Some((_, Message::Op(op)))) => {
            let ack = op.ack.map_or(String::new(), |ack| format!(" ack {}", ack.seq));
            let intent = op.intent.map_or(String::new(), |next| format!(" intent {}", next.seq));
            format!("stream {}{ack}{intent}", op.stream)
        }
        Ok(Some((_, Message::Txg(row)))) => format!("txg {} {:?}", row.txg, row.state),
        Ok(Some((_, Message::Stream(note)))) => format!("stream {} {:?}", note.stream, note.what),
        Ok(None) | Err(_) => String::new(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut out, byte| {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pair = |pair: &[u8]| Some((digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?) as u8);
    text.as_bytes().chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(said: &Said) {
        let mut marks = Marks::default();
        let texts = said.texts();
        for (at, text) in texts.iter().enumerate() {
            assert!(text.len() <= MARK_BYTES_MAX, "{}", text.len());
            let back = marks.take(text.as_bytes()).expect("a mark");
            assert_eq!(back.as_ref(), (at + 1 == texts.len()).then_some(said));
        }
        marks.finish().expect("whole");
    }

    proptest! {
        #[test]
        fn whatever_is_said_survives_its_marks(
            text in "\\PC{0,700}", ours in prop::sample::select(vec!["", "plugpull:", "plugpull:cut:"]),
            bytes in prop::collection::vec(any::<u8>(), 0..600), size: u64,
        ) {
            let text = format!("{ours}{text}");
            round_trip(&Said::Mark(text.clone()));
            round_trip(&Said::Note(text.clone()));
            round_trip(&Said::Cut(text));
            round_trip(&Said::Message(bytes));
            round_trip(&Said::Disk { bytes: size, run: RunId([size as u8; 16]) });
            round_trip(&Said::Unflushed);
        }

        #[test]
        fn any_marks_are_read_or_refused(
            texts in prop::collection::vec("(plugpull:)?(disk|message|note|cut)?\\+?( x)?:?[0-9a-f ]{0,40}", 1..6),
        ) {
            let mut marks = Marks::default();
            for text in &texts {
                let _ = marks.take(text.as_bytes());
            }
            let _ = marks.finish();
        }
    }

    #[test]
    fn parts_that_do_not_belong_together_are_refused() {
        let mut marks = Marks::default();
        assert_eq!(marks.take(b"plugpull:note+:{"), Ok(None));
        assert_eq!(marks.take(b"plugpull:cut:x"), Err(MarkError::Continued("note".to_owned())));
        assert_eq!(marks.take(b"plugpull:note+:{"), Ok(None));
        assert_eq!(marks.take(b"load-begins"), Err(MarkError::Continued("note".to_owned())));
        assert!(matches!(marks.take(b"plugpull:message:xyz"), Err(MarkError::Body(_))));
        assert!(matches!(marks.take(b"plugpull:message:abc"), Err(MarkError::Body(_))));
        assert_eq!(marks.take(b"\xff"), Err(MarkError::Text));
        assert_eq!(marks.take(b"plugpull:other:x").map(|said| said.is_some()), Ok(true));
    }
}
