//! What each word of a file holds: which operation's word, or zeros.
//!
//! What always holds: extents do not overlap and none is empty or of zeros; a word that none covers
//! is zeros, and so is every word behind the file's end.

use crate::units::Seq;
use std::collections::BTreeMap;
use std::ops::Range;

/// The value of a word that no operation wrote.
pub const ZEROS: Seq = Seq(0);

/// A file's words, by their place from 0 on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// By first word: the word behind the last, and whose they are.
    extents: BTreeMap<u64, (u64, Seq)>,
    /// Words in the file.
    size: u64,
}

impl Content {
    /// Words in the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Makes it longer, by zeros, or shorter.
    pub fn resize(&mut self, size: u64) {
        if size < self.size {
            self.clear(size..self.size);
        }
        self.size = size;
    }

    /// These words are now `by`'s, or zeros. The size stays.
    pub fn set(&mut self, words: Range<u64>, by: Seq) {
        if words.is_empty() {
            return;
        }
        // The usual case: exactly what was written before, or a place behind all others.
        if let Some(same) = self.extents.get_mut(&words.start)
            && same.0 == words.end
            && by != ZEROS
        {
            same.1 = by;
            return;
        }
        self.clear(words.clone());
        if by != ZEROS {
            self.extents.insert(words.start, (words.end, by));
        }
    }

    fn clear(&mut self, words: Range<u64>) {
        if let Some((&start, &(end, by))) = self.extents.range(..words.start).next_back()
            && end > words.start
        {
            self.extents.insert(start, (words.start, by));
            if end > words.end {
                self.extents.insert(words.end, (end, by));
                return;
            }
        }
        while let Some((&start, &(end, by))) = self.extents.range(words.clone()).next() {
            self.extents.remove(&start);
            if end > words.end {
                self.extents.insert(words.end, (end, by));
                return;
            }
        }
    }

    /// What these words hold, in order and without gaps.
    pub fn pieces(&self, words: Range<u64>) -> impl Iterator<Item = (Range<u64>, Seq)> + '_ {
        let from = self.extents.range(..=words.start).next_back();
        let from = from.map_or(words.start, |(start, _)| *start);
        let mut extents = self.extents.range(from..words.end.max(from)).peekable();
        let mut at = words.start;
        std::iter::from_fn(move || {
            while extents.peek().is_some_and(|(_, (end, _))| *end <= at) {
                extents.next();
            }
            if at >= words.end {
                return None;
            }
            let (end, by) = match extents.peek() {
                Some((start, (end, by))) if **start <= at => (*end, *by),
                Some((start, _)) => (**start, ZEROS),
                None => (words.end, ZEROS),
            };
            let piece = at..end.min(words.end);
            at = piece.end;
            Some((piece, by))
        })
    }

    /// What one word holds.
    pub fn word(&self, place: u64) -> Seq {
        match self.extents.range(..=place).next_back() {
            Some((_, (end, by))) if *end > place => *by,
            _ => ZEROS,
        }
    }

    /// These words are now what `pieces` of another file hold.
    pub fn paste(&mut self, pieces: &[(Range<u64>, Seq)]) {
        pieces.iter().for_each(|(words, by)| self.set(words.clone(), *by));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_agrees_with_a_list_of_words(
            changes in prop::collection::vec((0u64..40, 0u64..20, 0u64..4, any::<bool>()), 0..40),
            from in 0u64..50, len in 0u64..50,
        ) {
            let (mut content, mut words) = (Content::default(), vec![0u64; 0]);
            for (start, len, by, resize) in changes {
                if resize {
                    content.resize(start);
                    words.resize(start as usize, 0);
                } else {
                    let end = (start + len).max(content.size());
                    content.resize(end);
                    words.resize(end as usize, 0);
                    content.set(start..start + len, Seq(by));
                    words[start as usize..(start + len) as usize].fill(by);
                }
            }
            prop_assert_eq!(content.size(), words.len() as u64);
            let mut at = from;
            for (piece, by) in content.pieces(from..from + len) {
                prop_assert_eq!(piece.start, at);
                prop_assert!(piece.end > piece.start);
                at = piece.end;
                for place in piece {
                    let expected = words.get(place as usize).copied().unwrap_or(0);
                    prop_assert_eq!((by, content.word(place)), (Seq(expected), Seq(expected)));
                }
            }
            prop_assert_eq!(at, from + len);
        }
    }
}
