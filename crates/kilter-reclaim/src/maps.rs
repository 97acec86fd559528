//! `/proc/PID/maps`: which mappings there are, and which of them advice can be about.

use std::ops::Range;

/// What backs a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Anonymous memory, and shared memory: both go to swap.
    Swap,
    /// A file.
    File,
    /// A page of the kernel's own (`[vvar]`, `[vsyscall]`): advice is refused.
    Special,
    /// A device, or huge pages of their own file system: advice is refused.
    Device,
}

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its addresses.
    pub range: Range<usize>,
    /// What backs it.
    pub backing: Backing,
}

/// The mappings in a text of `/proc/PID/maps` (proc_pid_maps(5)), in ascending order. Lines that are
/// not whole are passed over.
pub fn parse(text: &[u8]) -> impl Iterator<Item = Mapping> + '_ {
    text.split(|&byte| byte == b'\n').filter_map(mapping)
}

/// `START-END RIGHTS OFFSET MAJOR:MINOR INODE   NAME`; the name may hold any bytes, even none.
fn mapping(line: &[u8]) -> Option<Mapping> {
    let (start, rest) = hexadecimal(line)?;
    let (end, rest) = hexadecimal(rest.strip_prefix(b"-")?)?;
    let rest = rest.strip_prefix(b" ")?;
    // Rights, offset, device, inode: none of them holds a space.
    let mut fields = rest.splitn(5, |&byte| byte == b' ');
    let (_rights, _offset) = (fields.next()?, fields.next()?);
    let (device, inode) = (fields.next()?, fields.next()?);
    let name = fields.next().unwrap_or_default().trim_ascii_start();
    (start < end).then(|| Mapping {
        range: start..end,
        backing: backing(device, inode, name),
    })
}

fn backing(device: &[u8], inode: &[u8], name: &[u8]) -> Backing {
    let is_shared_memory = |name: &[u8]| {
        [
            &b"/dev/zero (deleted)"[..],
            b"/SYSV",
            b"/memfd:",
            b"/dev/shm/",
            b"/dev/ashmem",
        ]
        .iter()
        .any(|start| name.starts_with(start))
    };
    match name {
        b"[vvar]" | b"[vvar_vclock]" | b"[vsyscall]" | b"[vdso]" | b"[uprobes]" => Backing::Special,
        _ if inode == b"0" && device == b"00:00" => Backing::Swap,
        _ if name.starts_with(b"/anon_hugepage") => Backing::Device,
        _ if is_shared_memory(name) => Backing::Swap,
        _ if name.starts_with(b"/dev/") => Backing::Device,
        _ => Backing::File,
    }
}

fn hexadecimal(text: &[u8]) -> Option<(usize, &[u8])> {
    let digits = text
        .iter()
        .take_while(|byte| byte.is_ascii_hexdigit())
        .count();
    // More digits than an address has would not fit.
    if digits == 0 || digits > 2 * size_of::<usize>() {
        return None;
    }
    let value = text[..digits].iter().fold(0, |value, &digit| {
        value << 4 | (digit as char).to_digit(16).unwrap_or(0) as usize
    });
    Some((value, &text[digits..]))
}

/// Names and flags of mappings that the kernel refused, out of `/proc/PID/smaps`: which reason each
/// has. Asked only then, since the kernel walks every page for it.
pub fn reasons(smaps: &str) -> Vec<(Range<usize>, &'static str)> {
    let mut found = Vec::new();
    let mut current = None;
    for line in smaps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let has = |flag| flags.split_ascii_whitespace().any(|found| found == flag);
            let reason = match () {
                () if has("lo") || has("lf") => Some("locked"),
                () if has("ht") => Some("huge pages"),
                () if has("pf") || has("io") || has("mm") => Some("device"),
                () => None,
            };
            if let (Some(range), Some(reason)) = (current.take(), reason) {
                found.push((range, reason));
            }
        } else if let Some(mapping) = mapping(line.as_bytes()) {
            current = Some(mapping.range);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(line: &str) -> Option<Mapping> {
        mapping(line.as_bytes())
    }

    #[test]
    fn each_kind_is_told() {
        for (line, backing) in [
            (
                "5581d000-5581e000 rw-p 00000000 00:00 0                          [heap]",
                Backing::Swap,
            ),
            ("7f00-7f01 rw-p 00000000 00:00 0 ", Backing::Swap),
            ("7f00-7f01 rw-p 00000000 00:00 0", Backing::Swap),
            (
                "7f0000000000-7f0000001000 rw-s 00000000 00:01 1029                       /memfd:x (deleted)",
                Backing::Swap,
            ),
            (
                "7f00-7f01 rw-s 00000000 00:01 3 /dev/zero (deleted)",
                Backing::Swap,
            ),
            (
                "7f00-7f01 r-xp 00000000 fe:00 12 /usr/lib/a b.so",
                Backing::File,
            ),
            (
                "7f00-7f01 r-xp 00000000 fe:00 12 /home/[vvar]",
                Backing::File,
            ),
            (
                "7f00-7f01 rw-s 00000000 00:05 12 /dev/dri/card0",
                Backing::Device,
            ),
            (
                "7f00-7f01 rw-s 00000000 00:0f 12 /anon_hugepage (deleted)",
                Backing::Device,
            ),
            (
                "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]",
                Backing::Special,
            ),
        ] {
            assert_eq!(
                one(line).map(|found| found.backing),
                Some(backing),
                "{line}"
            );
        }
        for wrong in [
            "",
            "7f00",
            "7f00-",
            "7f01-7f00 r--p 0 0:0 0",
            "7f00-7f01 r--p",
            "x-y r--p 0 0:0 0",
        ] {
            assert_eq!(one(wrong), None, "{wrong}");
        }
        assert_eq!(
            one("123456789abcdef01-2 r--p 0 00:00 0 "),
            None,
            "it does not fit"
        );
    }

    #[test]
    fn refusals_have_reasons() {
        let smaps = "1000-2000 rw-p 00000000 00:00 0 \nRss: 4 kB\nVmFlags: rd wr lo sd \n\
            3000-4000 rw-p 00000000 00:00 0 \nVmFlags: rd wr sd \n\
            5000-6000 rw-s 00000000 00:05 7 /dev/mem\nVmFlags: rd wr pf io \n";
        let found = reasons(smaps);
        assert_eq!(
            found,
            [(0x1000..0x2000, "locked"), (0x5000..0x6000, "device")]
        );
    }

    #[test]
    fn this_process_has_mappings_in_order() {
        let text = std::fs::read("/proc/self/maps").unwrap();
        let lines = text.iter().filter(|&&byte| byte == b'\n').count();
        let found: Vec<Mapping> = parse(&text).collect();
        assert_eq!(found.len(), lines);
        assert!(found.is_sorted_by(|a, b| a.range.end <= b.range.start));
        assert!(
            found
                .iter()
                .any(|mapping| mapping.backing == Backing::Special)
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_not(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            for mapping in parse(&text) {
                prop_assert!(mapping.range.start < mapping.range.end);
            }
            let _ = reasons(&String::from_utf8_lossy(&text));
        }

        #[test]
        fn names_do_not_shift_fields(start in 1..1_usize << 47, pages in 1..1000_usize, name in "[^\n]{0,40}") {
            let end = start + pages * 4096;
            let line = format!("{start:x}-{end:x} rw-p 00000000 fe:01 77                  /{name}");
            let found = one(&line).unwrap();
            prop_assert_eq!(found.range, start..end);
        }
    }
}
