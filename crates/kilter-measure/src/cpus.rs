//! Sets of CPUs in the kernel's list format.

use crate::read_below;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// The largest number that is taken for a CPU's. The kernel's own ceiling is 8,192 CPUs
/// (`NR_CPUS`); the bound keeps a typo from asking for gigabytes of mask.
const HIGHEST: u32 = 65_535;

/// CPUs in the kernel's list format: `0,2-3`. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(BTreeSet<u32>);

/// Why a list of CPUs was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuListError {
    /// It names nothing.
    #[error("the list of CPUs is empty; write numbers and ranges, such as 0,2-3")]
    Empty,
    /// A part of it is neither a number nor a range.
    #[error("{part:?} is not a CPU or a range of CPUs; write numbers and ranges, such as 0,2-3")]
    Malformed {
        /// The part.
        part: String,
    },
    /// A range runs downwards.
    #[error("the range {part} ends below its start")]
    Reversed {
        /// The range.
        part: String,
    },
    /// A number is no CPU of this machine that could be used.
    #[error("CPU {cpu} is not online; online are {online}")]
    Offline {
        /// The CPU.
        cpu: u32,
        /// Those that may be named.
        online: String,
    },
}

impl CpuList {
    /// The CPUs that are online, from `sys/devices/system/cpu/online` below `root`; nothing where
    /// the file is missing or holds something else.
    #[must_use]
    pub fn online(root: &Path) -> Option<Self> {
        read_below(root, "sys/devices/system/cpu/online")?
            .trim()
            .parse()
            .ok()
    }

    /// Parses a list and refuses CPUs that are not in `online`.
    ///
    /// # Errors
    /// What is wrong with `text`, and what is allowed.
    pub fn parse_within(text: &str, online: &Self) -> Result<Self, CpuListError> {
        let list: Self = text.parse()?;
        match list.0.difference(&online.0).next() {
            Some(&cpu) => Err(CpuListError::Offline {
                cpu,
                online: online.to_string(),
            }),
            None => Ok(list),
        }
    }

    /// The CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// How many CPUs it names, at least 1.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// As the bit mask of `sched_setaffinity(2)`.
    pub(crate) fn mask(&self) -> Vec<u64> {
        let highest = self.0.last().copied().unwrap_or(0) as usize;
        let mut mask = vec![0_u64; highest / 64 + 1];
        for cpu in self.iter() {
            mask[cpu as usize / 64] |= 1 << (cpu % 64);
        }
        mask
    }
}

impl FromStr for CpuList {
    type Err = CpuListError;

    fn from_str(text: &str) -> Result<Self, CpuListError> {
        let mut cpus = BTreeSet::new();
        if text.trim().is_empty() {
            return Err(CpuListError::Empty);
        }
        for part in text.split(',') {
            let part = part.trim();
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first, part)?, number(last, part)?);
            if last < first {
                return Err(CpuListError::Reversed {
                    part: part.to_owned(),
                });
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

fn number(text: &str, part: &str) -> Result<u32, CpuListError> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let value = digits.then(|| text.parse().ok()).flatten();
    value
        .filter(|&cpu| cpu <= HIGHEST)
        .ok_or_else(|| CpuListError::Malformed {
            part: part.to_owned(),
        })
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if_eq(&(last + 1)) {
                last = next;
            }
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        let list: CpuList = "0,2-3,70".parse().unwrap();
        assert_eq!(list.iter().collect::<Vec<_>>(), [0, 2, 3, 70]);
        assert_eq!(list.count(), 4);
        assert_eq!(list.mask(), [0b1101, 1 << 6]);
    }

    #[test]
    fn refuses_the_rest_and_says_why() {
        for text in [
            "a",
            "1,",
            ",",
            "1-",
            "-1",
            "1-2-3",
            "+1",
            "1 2",
            "99999999999",
            "0-4000000000",
        ] {
            let error = text.parse::<CpuList>().unwrap_err();
            assert!(
                matches!(error, CpuListError::Malformed { .. }),
                "{text}: {error}"
            );
        }
        assert_eq!("".parse::<CpuList>(), Err(CpuListError::Empty));
        assert_eq!(
            "3-1".parse::<CpuList>(),
            Err(CpuListError::Reversed { part: "3-1".into() })
        );
    }

    #[test]
    fn refuses_cpus_that_are_not_online() {
        let online = "0-3,6".parse().unwrap();
        assert!(CpuList::parse_within("0,2-3", &online).is_ok());
        let error = CpuList::parse_within("0,4", &online).unwrap_err();
        assert_eq!(error.to_string(), "CPU 4 is not online; online are 0-3,6");
    }

    proptest! {
        #[test]
        fn text_and_back(cpus in prop::collection::btree_set(0_u32..300, 1..40)) {
            let list = CpuList(cpus);
            prop_assert_eq!(&list.to_string().parse::<CpuList>().unwrap(), &list);
            let bits: u32 = list.mask().iter().map(|word| word.count_ones()).sum();
            prop_assert_eq!(bits as usize, list.count());
        }

        #[test]
        fn never_panics(text in "[0-9,\\- x]{0,12}") {
            let _ = text.parse::<CpuList>();
        }
    }
}
