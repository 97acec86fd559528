//! A process that waits for long gives memory back that only its start needed.

use std::fs;

/// Unmaps pages of program files that were never written to: the kernel maps them again, from the
/// page cache, where they are needed. What start-up touched once (argument parsing, help texts) then
/// no longer counts as resident.
pub fn forget_code() {
    let Ok(smaps) = fs::read_to_string("/proc/self/smaps") else {
        return;
    };
    for (start, length) in unwritten(&smaps) {
        let address = std::ptr::without_provenance_mut::<libc::c_void>(start);
        // SAFETY: the range is a private mapping of a file without write permission in which no page
        // was ever written, so that every page that is dropped comes back from the file unchanged.
        unsafe { libc::madvise(address, length, libc::MADV_DONTNEED) };
    }
}

/// Gives the kernel what the heap holds free: glibc keeps what a large answer took for the next one.
pub fn forget_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it only returns free memory of the heap, and may be called at any time.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Start and length of read-only private file mappings without a page of their own (relocated data
/// has such pages).
fn unwritten(smaps: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut current = None;
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        if let Some(range) = head(line) {
            current = range;
            continue;
        }
        match (words.next(), words.next()) {
            (Some("Anonymous:"), count) if count != Some("0") => current = None,
            // Told after it. A page that was written to may be in swap.
            (Some("Swap:"), Some("0")) => found.extend(current.take()),
            _ => {}
        }
    }
    found
}

/// The first line of a mapping: its range if it is one of a file that nobody may write; none within
/// for other mappings, and none at all for other lines.
fn head(line: &str) -> Option<Option<(usize, usize)>> {
    let mut words = line.split_ascii_whitespace();
    let (range, rights) = (words.next()?, words.next()?);
    let (start, end) = range.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    let of_file = words.nth(3).is_some_and(|path| path.starts_with('/'));
    let fits = matches!(rights, "r-xp" | "r--p") && of_file;
    Some(fits.then(|| (start, end.saturating_sub(start))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
1000-3000 r-xp 00000000 fe:00 5 /usr/bin/x
Rss:  8 kB
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex
4000-5000 r--p 00003000 fe:00 5 /usr/bin/x
Anonymous:             4 kB
Swap:                  0 kB
5000-6000 rw-p 00004000 fe:00 5 /usr/bin/x
Anonymous:             0 kB
Swap:                  0 kB
6000-7000 r--p 00000000 00:00 0 [vvar]
Anonymous:             0 kB
Swap:                  0 kB
7000-8000 r-xp 00000000 00:00 0
Anonymous:             0 kB
Swap:                  0 kB
8000-9000 r--p 00004000 fe:00 5 /usr/bin/x
Anonymous:             0 kB
Swap:                  4 kB
";

    fn resident(kind: &str) -> u64 {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with(kind)).unwrap();
        let kib = line.split_ascii_whitespace().nth(1);
        kib.unwrap().parse().unwrap()
    }

    #[test]
    fn only_unwritten_pages_of_files_are_dropped() {
        assert_eq!(unwritten(SMAPS), [(0x1000, 0x2000)]);
    }

    #[test]
    fn a_process_lives_on_without_its_code_pages() {
        let before = resident("RssFile:");
        forget_code();
        assert!(resident("RssFile:") < before, "{before} KiB before");
        assert_eq!(unwritten(SMAPS).len(), 1);
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn free_memory_of_the_heap_goes_back() {
        let kept = |all: &[Vec<u8>]| all.iter().step_by(2).cloned().collect::<Vec<_>>();
        let pieces: Vec<Vec<u8>> = (0..50_000_u32).map(|at| vec![at as u8; 500]).collect();
        // Every second one stays, so that the top of the heap does not sink by itself.
        let rest = kept(&pieces);
        drop(pieces);
        let before = resident("RssAnon:");
        forget_heap();
        let after = resident("RssAnon:");
        assert!(before >= after + 15_000, "{before} and {after} KiB");
        assert_eq!(rest.len(), 25_000);
    }
}
