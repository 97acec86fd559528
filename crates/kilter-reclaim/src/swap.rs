//! Where swapped pages go: swap devices, compressed memory among them, and how much of it is left.

use crate::usage::kib;
use kilter_kernel::Kernel;
use std::fs;

/// Swap as it stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Swap {
    /// Bytes in all.
    pub total: u64,
    /// Bytes free.
    pub free: u64,
    /// Bytes of pages that are in memory and have a place in swap (`SwapCached`).
    pub cached: u64,
    /// Memory of the machine.
    pub memory: u64,
    /// Memory available without swapping (`MemAvailable`).
    pub available: u64,
}

/// What `/proc/meminfo` says.
pub fn swap(kernel: &Kernel) -> Swap {
    let text = fs::read_to_string(kernel.below("/proc/meminfo")).unwrap_or_default();
    let of = |name| kib(&text, name).unwrap_or(0);
    Swap {
        total: of("SwapTotal:"),
        free: of("SwapFree:"),
        cached: of("SwapCached:"),
        memory: of("MemTotal:"),
        available: of("MemAvailable:"),
    }
}

/// Compressed swap in memory, of all zram devices in use as swap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zram {
    /// Bytes stored.
    pub stored: u64,
    /// Bytes after compression.
    pub compressed: u64,
    /// Memory that it takes.
    pub used: u64,
    /// The most memory that it may take; none: no limit.
    pub limit: Option<u64>,
}

impl Zram {
    /// Bytes stored for each byte of memory taken; none while there is too little to tell (1 MiB).
    pub fn ratio(&self) -> Option<f64> {
        (self.stored >= 1 << 20 && self.used > 0).then(|| self.stored as f64 / self.used as f64)
    }

    /// Whether it takes no more pages.
    pub fn is_full(&self) -> bool {
        self.limit
            .is_some_and(|limit| self.used + (1 << 20) >= limit)
    }
}

/// The zram devices that swap is on; none where there is none.
pub fn zram(kernel: &Kernel) -> Option<Zram> {
    let swaps = fs::read_to_string(kernel.below("/proc/swaps")).ok()?;
    let mut sum: Option<Zram> = None;
    for name in devices(&swaps) {
        let path = kernel.below(&format!("/sys/block/{name}/mm_stat"));
        if let Some(one) = fs::read_to_string(path)
            .ok()
            .and_then(|text| mm_stat(&text))
        {
            let all = sum.unwrap_or_default();
            sum = Some(Zram {
                stored: all.stored + one.stored,
                compressed: all.compressed + one.compressed,
                used: all.used + one.used,
                limit: all.limit.into_iter().chain(one.limit).reduce(|a, b| a + b),
            });
        }
    }
    sum
}

/// Names of the zram devices in `/proc/swaps`.
fn devices(swaps: &str) -> impl Iterator<Item = &str> {
    swaps.lines().skip(1).filter_map(|line| {
        let device = line.split_ascii_whitespace().next()?;
        let name = device.rsplit('/').next()?;
        name.starts_with("zram").then_some(name)
    })
}

/// `mm_stat` (Documentation/admin-guide/blockdev/zram.rst).
fn mm_stat(text: &str) -> Option<Zram> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
    let mut next = || numbers.next()?.ok();
    let (stored, compressed, used, limit) = (next()?, next()?, next()?, next()?);
    Some(Zram {
        stored,
        compressed,
        used,
        limit: (limit > 0).then_some(limit),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_compressed_swap_counts() {
        let swaps = "Filename\tType\tSize\tUsed\tPriority\n/dev/zram0 partition 1 2 3\n/dev/vda2 partition 1 2 3\n/dev/zram12 partition 1 2 3\n";
        assert_eq!(devices(swaps).collect::<Vec<_>>(), ["zram0", "zram12"]);
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let kernel = Kernel::new(dir.path());
        assert_eq!(zram(&kernel), None);
        write("proc/swaps", swaps);
        write(
            "sys/block/zram0/mm_stat",
            " 3145728 1000000 1048576 0 1048576 0 0 0 0\n",
        );
        write("sys/block/zram12/mm_stat", " 0 0 0 8388608 0 0 0 0 0\n");
        let found = zram(&kernel).unwrap();
        assert_eq!(found.ratio(), Some(3.0));
        assert_eq!(found.limit, Some(8 << 20));
        assert!(
            !found.is_full()
                && Zram {
                    used: 8 << 20,
                    ..found
                }
                .is_full()
        );
        write(
            "proc/meminfo",
            "MemTotal: 8 kB\nMemAvailable:  4 kB\nSwapCached: 3 kB\nSwapTotal: 2 kB\nSwapFree: 1 kB\n",
        );
        assert_eq!(
            swap(&kernel),
            Swap {
                total: 2048,
                free: 1024,
                cached: 3072,
                memory: 8192,
                available: 4096
            }
        );
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_not(text in ".{0,200}") {
            let _ = (mm_stat(&text), devices(&text).count());
        }
    }
}
