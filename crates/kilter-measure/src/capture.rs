//! Output of a command, kept in bounded memory.
//!
//! Numbers stand at the end of an output, sometimes at its start (`hackbench` prints before, `fio`
//! after), hardly ever in the middle of megabytes. So the first and the last part are kept.

use std::borrow::Cow;

/// Bytes of one stream that are kept: half from its start, half from its end.
pub const CAPTURE_LIMIT: usize = 8 << 20;

/// Bytes of a stream's end that go into a record.
pub const TAIL_LIMIT: usize = 4096;

/// What one stream of a command has yielded.
#[derive(Clone, Debug)]
pub struct Captured {
    head: Vec<u8>,
    /// A ring once it has grown to `half`.
    tail: Vec<u8>,
    /// Where the ring's oldest byte is.
    oldest: usize,
    half: usize,
    total: u64,
}

impl Default for Captured {
    fn default() -> Self {
        Self::with_limit(CAPTURE_LIMIT)
    }
}

impl Captured {
    fn with_limit(limit: usize) -> Self {
        Self {
            head: Vec::new(),
            tail: Vec::new(),
            oldest: 0,
            half: limit / 2,
            total: 0,
        }
    }

    /// Appends output, dropping from the middle what exceeds the limit.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (first, bytes) = bytes.split_at(bytes.len().min(self.half - self.head.len()));
        self.head.extend_from_slice(first);
        let (grow, mut bytes) = bytes.split_at(bytes.len().min(self.half - self.tail.len()));
        self.tail.extend_from_slice(grow);
        // Of more than a whole ring, only the last ring's worth would survive.
        bytes = &bytes[bytes.len().saturating_sub(self.half)..];
        while !bytes.is_empty() {
            let room = self.half - self.oldest;
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.tail[self.oldest..self.oldest + now.len()].copy_from_slice(now);
            self.oldest = (self.oldest + now.len()) % self.half;
            bytes = later;
        }
    }

    /// Bytes that the command wrote, kept or not.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Whether some of the output was dropped.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.total > (self.head.len() + self.tail.len()) as u64
    }

    /// What was kept. Where the middle was dropped, both parts are trimmed to whole lines, so that
    /// no number is read that the cut has shortened.
    #[must_use]
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        if self.tail.is_empty() {
            return Cow::Borrowed(&self.head);
        }
        let mut kept = Vec::with_capacity(self.head.len() + self.tail.len());
        kept.extend_from_slice(if self.is_cut() {
            whole_lines_before(&self.head)
        } else {
            &self.head
        });
        let seam = kept.len();
        kept.extend_from_slice(&self.tail[self.oldest..]);
        kept.extend_from_slice(&self.tail[..self.oldest]);
        if self.is_cut() {
            let partial = kept[seam..].iter().position(|&byte| byte == b'\n');
            let partial = partial.map_or(kept.len(), |newline| seam + newline + 1);
            kept.drain(seam..partial);
        }
        Cow::Owned(kept)
    }

    /// The last bytes as text, at most `limit`, cut at a character; bytes that are no UTF-8 are replaced.
    #[must_use]
    pub fn tail(&self, limit: usize) -> String {
        let (newest, older) = self.tail.split_at(self.oldest);
        // What was dropped lies between the two halves.
        let before = if self.is_cut() { &[][..] } else { &self.head };
        let mut missing = limit;
        let mut parts = Vec::new();
        for part in [newest, older, before] {
            let part = &part[part.len().saturating_sub(missing)..];
            missing -= part.len();
            parts.push(part);
        }
        parts.reverse();
        let mut bytes = parts.concat();
        if self.total > bytes.len() as u64 {
            let inside = bytes
                .iter()
                .take(3)
                .take_while(|&&byte| byte & 0xC0 == 0x80)
                .count();
            bytes.drain(..inside);
        }
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        // A replacement character takes three bytes where a wrong byte took one.
        if text.len() > limit {
            let start = (text.len() - limit..)
                .find(|&at| text.is_char_boundary(at))
                .unwrap_or(0);
            text.drain(..start);
        }
        text
    }
}

fn whole_lines_before(bytes: &[u8]) -> &[u8] {
    let end = bytes
        .iter()
        .rposition(|&byte| byte == b'\n')
        .map_or(0, |newline| newline + 1);
    &bytes[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn short_output_is_kept_as_it_is() {
        let mut captured = Captured::default();
        captured.push(b"one\n");
        captured.push(b"two");
        assert_eq!(&*captured.bytes(), b"one\ntwo");
        assert_eq!(captured.tail(5), "e\ntwo");
        assert!(!captured.is_cut());
    }

    #[test]
    fn a_cut_leaves_whole_lines() {
        let mut captured = Captured::with_limit(16);
        captured.push(b"first 1\nmiddle 123456\nlast 9\n");
        assert!(captured.is_cut());
        assert_eq!(&*captured.bytes(), b"first 1\nlast 9\n");
    }

    #[test]
    fn a_cut_in_one_long_line_keeps_no_part_of_it() {
        let mut captured = Captured::with_limit(8);
        captured.push(&[b'1'; 100]);
        assert_eq!(&*captured.bytes(), b"");
        assert_eq!(captured.tail(3), "111");
    }

    #[test]
    fn a_tail_never_exceeds_its_limit_and_starts_at_a_character() {
        let mut captured = Captured::default();
        captured.push("ääääää".as_bytes());
        assert_eq!(captured.tail(5), "ää");
        let mut wrong = Captured::default();
        wrong.push(&[0xFF; 100]);
        assert!(wrong.tail(10).len() <= 10);
    }

    proptest! {
        #[test]
        fn keeps_the_start_and_the_end(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..20),
            half in 1_usize..40,
        ) {
            let mut captured = Captured::with_limit(half * 2);
            for chunk in &chunks {
                captured.push(chunk);
            }
            let all = chunks.concat();
            prop_assert_eq!(captured.total(), all.len() as u64);
            prop_assert_eq!(captured.is_cut(), all.len() > half * 2);
            prop_assert!(captured.head.len() <= half && captured.tail.len() <= half);
            let kept = captured.bytes();
            if captured.is_cut() {
                let head = whole_lines_before(&all[..half]);
                let tail = &all[all.len() - half..];
                prop_assert!(kept.starts_with(head));
                prop_assert!(tail.ends_with(&kept[head.len()..]));
            } else {
                prop_assert_eq!(&*kept, &all[..]);
            }
        }

        #[test]
        fn a_tail_is_the_end_of_the_text(text in "\\PC{0,60}", limit in 0_usize..80, half in 40_usize..90) {
            let mut captured = Captured::with_limit(half * 2);
            for byte in text.as_bytes() {
                captured.push(&[*byte]);
            }
            let tail = captured.tail(limit);
            prop_assert!(text.ends_with(&tail));
            prop_assert!(tail.len() <= limit && tail.len() + 3 >= limit.min(text.len().min(half)));
        }
    }
}
