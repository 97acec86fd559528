//! Advice about another process's memory: `process_madvise(2)`, and `PAGEMAP_SCAN` to find what the
//! advice is worth giving for.
//!
//! Advice never changes what a process reads from its memory; at worst it waits for pages to come
//! back. So nothing here needs the journal.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use std::io;
use std::ops::Range;

/// Ranges in one call at most (`UIO_MAXIOV`).
pub const RANGES_AT_MOST: usize = 1024;

/// What the kernel is told about a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// `MADV_COLD` (Linux 5.10 for other processes): among the first to be reclaimed under pressure.
    Cold,
    /// `MADV_PAGEOUT` (Linux 5.10 for other processes): reclaimed now.
    PageOut,
    /// `MADV_WILLNEED` (Linux 5.13 for other processes): read back now.
    WillNeed,
}

/// Gives advice about ranges of the process behind a pidfd. Returns the bytes that the kernel walked,
/// which says nothing about what it reclaimed: pages that are shared copy-on-write count in full.
/// The ranges before the first one that the kernel refuses are done.
///
/// # Errors
/// What process_madvise(2) says of the first range. `EINVAL`: it is locked, of huge pages, or special.
/// `ENOMEM`: a part of it is not mapped (the rest was done). `ESRCH`: the process has ended. `EPERM`
/// or `EACCES`: the right is missing (`CAP_SYS_NICE`, and that of ptrace(2) to read).
pub fn advise(
    process: BorrowedFd<'_>,
    ranges: &[Range<usize>],
    advice: Advice,
) -> io::Result<usize> {
    let vectors: Vec<libc::iovec> = ranges
        .iter()
        .map(|range| libc::iovec {
            iov_base: std::ptr::without_provenance_mut(range.start),
            iov_len: range.len(),
        })
        .collect();
    let advice = match advice {
        Advice::Cold => libc::MADV_COLD,
        Advice::PageOut => libc::MADV_PAGEOUT,
        Advice::WillNeed => libc::MADV_WILLNEED,
    };
    // SAFETY: the vectors outlive the call, and the addresses in them are another process's (or are
    // treated as such): the kernel only looks them up, and these three kinds of advice change no
    // contents of memory.
    let walked = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            process.as_raw_fd(),
            vectors.as_ptr(),
            vectors.len(),
            advice,
            0,
        )
    };
    usize::try_from(walked).map_err(|_| io::Error::last_os_error())
}

/// `struct page_region` (linux/fs.h).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg` (linux/fs.h).
#[repr(C)]
#[derive(Debug, Default)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `PAGEMAP_SCAN`: `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::Ioctl = 0xc060_6610_u32 as libc::Ioctl;

/// Categories of pages (linux/fs.h).
const IS_FILE: u64 = 1 << 2;
const IS_PRESENT: u64 = 1 << 3;
const IS_SWAPPED: u64 = 1 << 4;
const IS_PFNZERO: u64 = 1 << 5;

/// Which pages a scan finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Resident pages of anonymous and shared memory, that of the zero page left out.
    Anonymous,
    /// Resident pages of files.
    File,
    /// Resident pages of either kind.
    Resident,
    /// Pages that are in swap.
    Swapped,
}

/// The ranges within `within` that hold such pages, merged across mappings, by `PAGEMAP_SCAN`
/// (Linux 6.7) on an open `/proc/PID/pagemap`.
///
/// # Errors
/// `ENOTTY`: this kernel has no such call. `ESRCH` where the process has ended or executed another
/// program since the file was opened.
pub fn scan_pages(
    pagemap: impl AsFd,
    within: Range<usize>,
    pages: Pages,
) -> io::Result<Vec<Range<usize>>> {
    const REGIONS: usize = 512;
    let (inverted, mask) = match pages {
        // Inverted categories are wanted to be absent.
        Pages::Anonymous => (IS_FILE | IS_PFNZERO, IS_PRESENT | IS_FILE | IS_PFNZERO),
        Pages::File => (0, IS_PRESENT | IS_FILE),
        Pages::Resident => (IS_PFNZERO, IS_PRESENT | IS_PFNZERO),
        Pages::Swapped => (0, IS_SWAPPED),
    };
    let mut regions = [Region::default(); REGIONS];
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut start = within.start as u64;
    while start < within.end as u64 {
        let mut arguments = ScanArguments {
            size: size_of::<ScanArguments>() as u64,
            start,
            end: within.end as u64,
            vec: regions.as_mut_ptr().expose_provenance() as u64,
            vec_len: REGIONS as u64,
            category_inverted: inverted,
            category_mask: mask,
            ..ScanArguments::default()
        };
        // SAFETY: the descriptor outlives the call; the kernel writes at most `vec_len` regions to
        // `vec`, an array of as many of its own layout, and `walk_end` of the argument.
        let count =
            unsafe { libc::ioctl(pagemap.as_fd().as_raw_fd(), PAGEMAP_SCAN, &mut arguments) };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        for region in &regions[..count.min(REGIONS)] {
            let range = region.start as usize..region.end as usize;
            match found.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => found.push(range),
            }
        }
        if arguments.walk_end <= start {
            return Err(rustix::io::Errno::SRCH.into());
        }
        start = arguments.walk_end;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{PidfdFlags, getpid, pidfd_open};

    /// Memory of this process, every page written to.
    fn memory(pages: usize) -> (Vec<u8>, Range<usize>) {
        let page = rustix::param::page_size();
        let bytes = vec![7_u8; (pages + 1) * page];
        let start = bytes.as_ptr().addr().next_multiple_of(page);
        (bytes, start..start + pages * page)
    }

    #[test]
    fn advice_leaves_contents_alone() {
        let process = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        let (bytes, range) = memory(64);
        for advice in [Advice::Cold, Advice::PageOut, Advice::WillNeed] {
            let walked = advise(process.as_fd(), std::slice::from_ref(&range), advice);
            match walked {
                Ok(walked) => assert_eq!(walked, range.len()),
                // Kernels before 5.10.
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOSYS), "{error}"),
            }
        }
        assert!(bytes.iter().all(|&byte| byte == 7));
    }

    #[test]
    fn a_dead_process_is_told() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        child.wait().unwrap();
        let (_bytes, range) = memory(1);
        let error = advise(process.as_fd(), &[range], Advice::Cold).unwrap_err();
        assert!(
            matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOSYS)),
            "{error}"
        );
    }

    #[test]
    fn a_scan_finds_what_was_written_to() {
        let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
        let (_bytes, range) = memory(64);
        match scan_pages(&pagemap, range.clone(), Pages::Anonymous) {
            Ok(found) => {
                let bytes: usize = found.iter().map(Range::len).sum();
                assert_eq!(bytes, range.len(), "{found:?}");
            }
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOTTY), "{error}"),
        }
        let files = scan_pages(&pagemap, range, Pages::File).unwrap_or_default();
        assert_eq!(files, []);
    }
}
