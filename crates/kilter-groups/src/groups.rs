//! The groups themselves: made when somebody belongs in one, filled, removed when empty.

use crate::config::Share;
use crate::policy::Policy;
use crate::process::Proc;
use kilter_kernel::{CgroupVersion, FileError, HeldTree, PREFIX, Refusal};
use std::collections::{BTreeMap, BTreeSet};

/// Errors of the kernel for a process or a group (errno-base.h).
const EINVAL: i32 = 22;
const ENODEV: i32 = 19;

/// Group of the users beyond the cap.
pub const OVERFLOW: &str = "kilter-overflow";

/// Descending into children ends here; deeper ones are left to the sweep.
const DEPTH: usize = 64;

/// What a process's fate was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is where it belongs already.
    Right,
    /// It was moved.
    Moved,
    /// It ended meanwhile.
    Gone,
    /// It is left alone: a kernel thread, real-time, in somebody else's group, or not asked for.
    LeftAlone,
}

/// kilter's groups in a hierarchy, and who belongs where.
#[derive(Debug)]
pub struct Groups {
    tree: HeldTree,
    proc: Proc,
    policy: Policy,
    /// Users that have a group of their own now.
    known: BTreeSet<u32>,
    overflow: bool,
    /// Troubles not yet told, each once.
    pub troubles: Vec<String>,
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Processes looked at.
    pub seen: usize,
    /// Processes moved.
    pub moved: usize,
}

/// The name of a user's group.
pub fn name(owner: u32) -> String {
    format!("{PREFIX}{owner}")
}

/// Whose group it is; none for the overflow group.
pub fn owner(group: &str) -> Option<u32> {
    group.strip_prefix(PREFIX)?.parse().ok()
}

impl Groups {
    /// No groups yet.
    pub fn new(tree: HeldTree, proc: Proc, policy: Policy) -> Self {
        Groups {
            tree,
            proc,
            policy,
            known: BTreeSet::new(),
            overflow: false,
            troubles: Vec::new(),
        }
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Groups that exist now.
    pub fn count(&self) -> usize {
        self.known.len() + usize::from(self.overflow)
    }

    /// Puts a process where its real uid belongs, and children that were born meanwhile.
    ///
    /// # Errors
    /// The hierarchy cannot be used any more.
    pub fn place(&mut self, pid: i32, real_uid: u32) -> Result<Fate, FileError> {
        self.place_to_depth(pid, real_uid, DEPTH)
    }

    fn place_to_depth(&mut self, pid: i32, uid: u32, depth: usize) -> Result<Fate, FileError> {
        let Some(source) = self.proc.group(pid, self.tree.version()) else {
            return Ok(Fate::Gone);
        };
        let source = source.trim_start_matches('/');
        if !source.is_empty() && !source.starts_with(PREFIX) {
            return Ok(Fate::LeftAlone);
        }
        let target = match self.policy.owner(uid) {
            Some(owner) => self.group_for(owner)?,
            None if source.is_empty() => return Ok(Fate::LeftAlone),
            None => String::new(),
        };
        if source == target {
            return Ok(Fate::Right);
        }
        match self.proc.is_movable(pid) {
            None => return Ok(Fate::Gone),
            Some(false) => return Ok(Fate::LeftAlone),
            Some(true) => {}
        }
        let fate = match self.move_all(&target, &[pid])? {
            0 => Fate::Gone,
            _ => Fate::Moved,
        };
        // From now on it forks into the right group; those born before stayed behind.
        if depth > 0 {
            for child in self.proc.children(pid) {
                if let Some(uid) = self.proc.real_uid(child) {
                    self.place_to_depth(child, uid, depth - 1)?;
                }
            }
        }
        Ok(fate)
    }

    /// Looks at every process in the root group and in kilter's, until nobody new is found in a
    /// wrong one; then removes empty groups.
    ///
    /// # Errors
    /// The hierarchy cannot be used any more.
    pub fn sweep(&mut self) -> Result<Swept, FileError> {
        let mut swept = Swept::default();
        let mut seen = BTreeSet::new();
        self.find_lost_groups()?;
        let mut sources = self.tree.groups()?;
        sources.push(String::new());
        // A process that forks while it waits to be moved leaves children in the root group.
        for _ in 0..8 {
            let mut astray: BTreeMap<String, Vec<i32>> = BTreeMap::new();
            for source in &sources {
                for pid in self.members(source)? {
                    if seen.insert(pid) {
                        self.sort(pid, source, &mut astray)?;
                    }
                }
            }
            if astray.is_empty() {
                break;
            }
            for (target, pids) in astray {
                swept.moved += self.move_all(&target, &pids)?;
            }
            sources = vec![String::new()];
        }
        self.remove_empty()?;
        swept.seen = seen.len();
        Ok(swept)
    }

    fn members(&self, group: &str) -> Result<Vec<i32>, FileError> {
        match self.tree.processes(group) {
            // Somebody removed it.
            Err(error) if error.refusal == Refusal::Absent && !group.is_empty() => Ok(Vec::new()),
            members => members,
        }
    }

    /// Notes a process under the group that it belongs in, unless it is there.
    fn sort(
        &mut self,
        pid: i32,
        source: &str,
        astray: &mut BTreeMap<String, Vec<i32>>,
    ) -> Result<(), FileError> {
        let Some(uid) = self.proc.real_uid(pid) else {
            return Ok(());
        };
        let target = match self.policy.owner(uid) {
            // Before a group is made for it: most of root's processes are kernel threads.
            Some(owner) if source != name(owner) && self.proc.is_movable(pid) == Some(true) => {
                self.group_for(owner)?
            }
            None if !source.is_empty() && self.proc.is_movable(pid) == Some(true) => String::new(),
            _ => return Ok(()),
        };
        if target != source {
            astray.entry(target).or_default().push(pid);
        }
        Ok(())
    }

    /// Moves processes; returns how many. A group that was removed is made again.
    fn move_all(&mut self, target: &str, pids: &[i32]) -> Result<usize, FileError> {
        let mut door = self.door(target)?;
        let mut moved = 0;
        for &pid in pids {
            let mut taken = door.take(pid);
            if taken == Err(ENODEV) {
                door = self.door(target)?;
                taken = door.take(pid);
            }
            match taken {
                Ok(true) => moved += 1,
                // It became real-time meanwhile, where groups have no real-time budget.
                Ok(false) | Err(EINVAL) => {}
                Err(errno) => {
                    let reason = std::io::Error::from_raw_os_error(errno);
                    self.trouble(format!("a process cannot be moved into {target}: {reason}"));
                }
            }
        }
        Ok(moved)
    }

    fn door(&mut self, target: &str) -> Result<kilter_kernel::Door, FileError> {
        match self.tree.door(target) {
            Err(error) if error.refusal == Refusal::Absent && !target.is_empty() => {
                self.tree.make(target)?;
                self.dress(target)?;
                self.tree.door(target)
            }
            door => door,
        }
    }

    /// The group of an owner, made if need be; the overflow group beyond the cap.
    fn group_for(&mut self, owner: u32) -> Result<String, FileError> {
        let group = name(owner);
        if self.known.contains(&owner) {
            return Ok(group);
        }
        if self.known.len() < self.policy.config.max_groups {
            match self.tree.make(&group) {
                Ok(_) => {
                    self.known.insert(owner);
                    self.dress(&group)?;
                    return Ok(group);
                }
                // cgroup.max.descendants, or no memory for one more.
                Err(error) if error.refusal == Refusal::Busy => self.trouble(format!(
                    "the kernel allows no more groups ({error}); further users share {OVERFLOW}"
                )),
                Err(error) => return Err(error),
            }
        }
        if !self.overflow {
            self.tree.make(OVERFLOW)?;
            self.overflow = true;
            self.dress(OVERFLOW)?;
        }
        Ok(OVERFLOW.to_owned())
    }

    /// Gives a group its share. What this kernel lacks is told once; the group works without.
    fn dress(&mut self, group: &str) -> Result<(), FileError> {
        let share = match owner(group) {
            Some(owner) => self.policy.share(owner),
            None => self.policy.usual_share(),
        };
        for (file, text) in files(self.tree.version(), share) {
            match self.tree.set(group, file, &text) {
                Err(error) if error.refusal == Refusal::Absent => {
                    self.trouble(format!("this kernel has no {file}, so it is not set"));
                }
                set => set?,
            }
        }
        Ok(())
    }

    /// Makes groups again that somebody removed: their processes are elsewhere by now.
    fn find_lost_groups(&mut self) -> Result<(), FileError> {
        let here: BTreeSet<String> = self.tree.groups()?.into_iter().collect();
        self.known.retain(|&owner| here.contains(&name(owner)));
        self.overflow &= here.contains(OVERFLOW);
        Ok(())
    }

    fn remove_empty(&mut self) -> Result<(), FileError> {
        for owner in self.known.clone() {
            if self.tree.remove(&name(owner))? {
                self.known.remove(&owner);
            }
        }
        if self.overflow && self.tree.remove(OVERFLOW)? {
            self.overflow = false;
        }
        Ok(())
    }

    fn trouble(&mut self, text: String) {
        if !self.troubles.contains(&text) {
            self.troubles.push(text);
        }
    }
}

/// The files that give a group its share. The scale of `cpu.shares` is 1024 where that of
/// `cpu.weight` is 100.
pub(crate) fn files(version: CgroupVersion, share: Share) -> Vec<(&'static str, String)> {
    const PERIOD_US: u64 = 100_000;
    let quota = share
        .max_percent
        .map(|percent| u64::from(percent) * PERIOD_US / 100);
    let mut files = match version {
        CgroupVersion::V1 => vec![("cpu.shares", format!("{}\n", shares(share.weight)))],
        CgroupVersion::V2 => vec![("cpu.weight", format!("{}\n", share.weight))],
    };
    if let Some(quota) = quota {
        files.push(match version {
            CgroupVersion::V1 => ("cpu.cfs_quota_us", format!("{quota}\n")),
            CgroupVersion::V2 => ("cpu.max", format!("{quota} {PERIOD_US}\n")),
        });
    }
    if share.idle {
        // After the weight: an idle group refuses one.
        files.push(("cpu.idle", "1\n".to_owned()));
    }
    files
}

/// `cpu.shares` of a weight.
pub(crate) fn shares(weight: u32) -> u32 {
    ((u64::from(weight) * 1024 + 50) / 100).clamp(2, 262_144) as u32
}

/// The weight of `cpu.shares`.
pub(crate) fn weight(shares: u32) -> u32 {
    ((u64::from(shares) * 100 + 512) / 1024).clamp(1, 10_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_share_is_written_as_the_hierarchy_wants_it() {
        let share = Share {
            weight: 300,
            idle: true,
            max_percent: Some(150),
        };
        let v1 = files(CgroupVersion::V1, share);
        let texts = |files: Vec<(&'static str, String)>| {
            let line = |(file, text): (&str, String)| format!("{file}={}", text.trim());
            files.into_iter().map(line).collect::<Vec<_>>()
        };
        assert_eq!(
            texts(v1),
            ["cpu.shares=3072", "cpu.cfs_quota_us=150000", "cpu.idle=1"]
        );
        let v2 = files(CgroupVersion::V2, share);
        assert_eq!(
            texts(v2),
            ["cpu.weight=300", "cpu.max=150000 100000", "cpu.idle=1"]
        );
    }

    #[test]
    fn groups_are_named_after_their_owner() {
        assert_eq!(name(1000), "kilter-1000");
        assert_eq!(owner("kilter-1000"), Some(1000));
        assert_eq!(owner(OVERFLOW), None);
        assert_eq!(owner("docker"), None);
    }

    proptest! {
        #[test]
        fn weights_survive_the_scale_of_v1(value in 1_u32..=10_000) {
            prop_assert_eq!(weight(shares(value)), value);
            prop_assert!((2..=262_144).contains(&shares(value)));
        }
    }
}
