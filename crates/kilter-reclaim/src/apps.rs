//! The apps that are followed: found by sweeps over all processes, looked at in between.

use crate::account::Account;
use crate::cgroup::Cgroup;
use crate::config::Config;
use crate::params::Tuning;
use crate::policy::Seen;
use crate::processes::{Look, Member, Proc, is_frozen};
use crate::standing::{Signs, Standing, judge};
use crate::usage::Stat;
use kilter_api::{DecisionStep, MemoryUse};
use kilter_kernel::Kernel;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Clock ticks in a second (`USER_HZ`, fixed for userspace on every architecture but alpha).
const TICKS_PER_S: f64 = 100.0;

/// Part of a CPU that still counts as none: programs in the background wake up now and then.
const IDLE_PART: f64 = 0.005;

/// Sweeps between two that ask known apps for their cgroups again.
const MOVED: u64 = 8;

/// What tells one app from another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A process, or the tree below it, with its start.
    Process(i32, u64),
    /// A cgroup.
    Cgroup(String),
}

/// An app.
#[derive(Clone, Debug)]
pub struct App {
    /// Its name.
    pub name: String,
    /// Its user.
    pub uid: u32,
    /// Its cgroup; that of its first process where it is no app itself.
    pub cgroup: String,
    /// Its processes, the first one first.
    pub members: Vec<Member>,
    /// Its memory.
    pub memory: MemoryUse,
    /// What was seen that tells whether it is used.
    pub signs: Signs,
    /// How it stands.
    pub standing: Standing,
    /// What was done to it.
    pub account: Account,
    /// Major faults so far.
    pub major_faults: u64,
    frozen_file: Option<PathBuf>,
    ticks: u64,
    busy_at: f64,
    seen_at: f64,
    /// Until when it is left out for a reason that is looked at again then.
    pub left_out_until: Option<(f64, &'static str)>,
}

/// All apps.
#[derive(Debug)]
pub struct Apps {
    proc: Proc,
    within: Option<Cgroup>,
    /// By key.
    pub apps: BTreeMap<Key, Box<App>>,
    /// Processes at the last sweep.
    pub processes: usize,
    sweeps: u64,
}

impl Apps {
    /// None yet.
    ///
    /// # Errors
    /// There is no process directory.
    pub fn new(kernel: &Kernel, within: Option<Cgroup>) -> std::io::Result<Self> {
        Ok(Apps {
            proc: Proc::open(kernel)?,
            within,
            apps: BTreeMap::new(),
            processes: 0,
            sweeps: 0,
        })
    }

    /// Looks at every process: finds new apps, forgets those that are gone.
    pub fn sweep(&mut self, kernel: &Kernel, config: &Config, tuning: &Tuning) {
        let pids = match &self.within {
            Some(group) => group.processes(),
            None => self.proc.pids(),
        };
        self.processes = pids.len();
        self.sweeps += 1;
        let known: BTreeSet<Member> = self.members().collect();
        let mut found: BTreeMap<Key, Found> = BTreeMap::new();
        // Apps of one process that are known: whether they are the same is seen when they are looked
        // at, and where they were moved to, now and then.
        let mut lone = self.lone(config);
        let mut kept: BTreeSet<i32> = BTreeSet::new();
        // Processes whose children count with them, and their app.
        let mut trees: BTreeMap<i32, Key> = BTreeMap::new();
        for pid in pids {
            if lone.remove(&pid) && !self.sweeps.is_multiple_of(MOVED) {
                kept.insert(pid);
                continue;
            }
            let Some((member, stat)) = self.candidate(pid) else {
                continue;
            };
            if let Some(key) = trees.get(&stat.parent).cloned() {
                trees.insert(pid, key.clone());
                found.entry(key).or_default().members.push(member);
                continue;
            }
            // Most processes are small: nothing more is asked about them.
            let page = rustix::param::page_size() as u64;
            let is_small = stat.resident_pages * page < tuning.min_app / 4;
            if is_small && !known.contains(&member) && !config.has_trees() {
                continue;
            }
            let Some((key, one)) = self.find(kernel, config, &stat, member) else {
                continue;
            };
            if one.tree {
                trees.insert(pid, key.clone());
            }
            if let (Key::Process(..), false, Some(app)) = (&key, one.tree, self.apps.get_mut(&key))
            {
                app.found(one, vec![member]);
                kept.insert(pid);
                continue;
            }
            let entry = found.entry(key).or_insert(Found {
                members: Vec::new(),
                ..one
            });
            entry.members.push(member);
        }
        self.apps.retain(|key, _| match key {
            Key::Process(pid, _) if kept.contains(pid) => true,
            key => found.contains_key(key),
        });
        for (key, mut found) in found {
            let mut members = std::mem::take(&mut found.members);
            members.shrink_to_fit();
            let app = self.apps.entry(key).or_insert_with(|| Box::new(App::new()));
            app.found(found, members);
        }
    }

    /// Apps of one process, none of which may be the top of a tree.
    fn lone(&self, config: &Config) -> BTreeSet<i32> {
        if config.has_trees() {
            return BTreeSet::new();
        }
        let apps = self.apps.iter();
        apps.filter(|(_, app)| app.members.len() == 1)
            .filter_map(|(key, _)| match key {
                Key::Process(pid, _) => Some(*pid),
                Key::Cgroup(_) => None,
            })
            .collect()
    }

    /// The processes of all apps.
    fn members(&self) -> impl Iterator<Item = Member> + '_ {
        self.apps
            .values()
            .flat_map(|app| app.members.iter().copied())
    }

    /// A process that may belong to an app: the first one and this one do not, nor do those of the
    /// kernel.
    fn candidate(&mut self, pid: i32) -> Option<(Member, Stat)> {
        if pid == 1 || pid == std::process::id() as i32 {
            return None;
        }
        let stat = self.proc.stat(pid)?;
        let is_one = !stat.is_kernel && !stat.is_zombie;
        let member = Member {
            pid,
            start_ticks: stat.start_ticks,
        };
        is_one.then_some((member, stat))
    }

    /// The app that a process is, or belongs to.
    fn find(
        &mut self,
        kernel: &Kernel,
        config: &Config,
        stat: &Stat,
        member: Member,
    ) -> Option<(Key, Found)> {
        let groups = self.proc.groups(member.pid)?;
        let mut found = Found {
            frozen_file: groups.frozen_file(kernel),
            cgroup: groups.name,
            ..Found::default()
        };
        if config.is_app(&found.cgroup) {
            found.name = found
                .cgroup
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_owned();
            return Some((Key::Cgroup(found.cgroup.clone()), found));
        }
        if config.has_trees() {
            let uid = self.proc.status(member.pid)?.uid;
            let rule = config.rule(&stat.name, &found.cgroup, uid);
            found.tree = rule.is_some_and(|rule| rule.tree);
        }
        found.name = stat.name.clone();
        Some((Key::Process(member.pid, member.start_ticks), found))
    }

    /// Looks at the apps that are known. Returns those that have come back, so that they may be read
    /// ahead.
    pub fn look(
        &mut self,
        kernel: &Kernel,
        config: &Config,
        tuning: &Tuning,
        now: f64,
    ) -> Vec<Key> {
        let mut back = Vec::new();
        let proc = &mut self.proc;
        self.apps.retain(|key, app| {
            let Some(look) = proc.look(&app.members) else {
                return false;
            };
            app.take(look, kernel, key, now);
            app.standing = app.judge(config, tuning).0;
            let App {
                account,
                standing,
                memory,
                major_faults,
                ..
            } = app.as_mut();
            if account.see(now, standing, *memory, *major_faults, tuning) {
                back.push(key.clone());
            }
            true
        });
        back
    }
}

/// What a sweep finds of an app.
#[derive(Default)]
struct Found {
    name: String,
    cgroup: String,
    frozen_file: Option<PathBuf>,
    members: Vec<Member>,
    tree: bool,
}

impl App {
    fn new() -> Self {
        App {
            name: String::new(),
            uid: 0,
            cgroup: String::new(),
            members: Vec::new(),
            frozen_file: None,
            memory: MemoryUse::default(),
            signs: Signs::default(),
            standing: Standing::Active("not looked at yet".into()),
            account: Account::default(),
            major_faults: 0,
            ticks: 0,
            busy_at: f64::NEG_INFINITY,
            seen_at: 0.0,
            left_out_until: None,
        }
    }

    /// Takes what a sweep found.
    fn found(&mut self, found: Found, members: Vec<Member>) {
        self.members = members;
        self.name = found.name;
        self.cgroup = found.cgroup;
        self.frozen_file = found.frozen_file;
    }

    fn take(&mut self, look: Look, kernel: &Kernel, key: &Key, now: f64) {
        let used = look.ticks.saturating_sub(self.ticks) as f64 / TICKS_PER_S;
        // A single tick says that it ran at all, which waking up once does too.
        let allowed = (now - self.seen_at) * IDLE_PART + 1.0 / TICKS_PER_S;
        let is_first = self.busy_at == f64::NEG_INFINITY;
        if used > allowed || is_first {
            self.busy_at = now;
        }
        self.ticks = look.ticks;
        self.seen_at = now;
        self.members = look.members;
        self.memory = look.memory;
        self.major_faults = look.major_faults;
        self.uid = look.uid;
        let of_group = match key {
            Key::Cgroup(name) => Cgroup::named(kernel, name).ok(),
            Key::Process(..) => None,
        };
        let expired = self.left_out_until.is_some_and(|(until, _)| until <= now);
        if expired {
            self.left_out_until = None;
        }
        self.signs = Signs {
            frozen: self.frozen_file.as_deref().is_some_and(is_frozen),
            unfocused_s: of_group.as_ref().and_then(|group| group.unfocused_s()),
            oom_score_adj: look.oom_score_adj.unwrap_or(0),
            idle_s: now - self.busy_at,
            left_out: match look.locked {
                0 => self.left_out_until.map(|(_, why)| why),
                _ => Some("it has locked memory"),
            },
            bytes: self.memory.resident_bytes + self.memory.swapped_bytes,
        };
    }

    /// How it stands, with every question about it.
    pub fn judge(&self, config: &Config, tuning: &Tuning) -> (Standing, Vec<DecisionStep>) {
        let rule = config.rule(&self.name, &self.cgroup, self.uid);
        judge(&self.signs, rule, tuning)
    }

    /// As the decision sees it.
    pub fn seen(&self) -> Seen<'_> {
        Seen {
            standing: &self.standing,
            memory: self.memory,
            account: &self.account,
            oom_score_adj: self.signs.oom_score_adj,
        }
    }

    /// CPU time so far, in clock ticks.
    pub fn ticks(&self) -> u64 {
        self.ticks
    }

    /// The file that tells whether it is frozen.
    pub fn frozen_file(&self) -> Option<&Path> {
        self.frozen_file.as_deref()
    }

    /// Its first process.
    pub fn first(&self) -> Option<Member> {
        self.members.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_would_be_an_app_of_its_own() {
        let kernel = Kernel::new("/");
        let mut apps = Apps::new(&kernel, None).unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("30")
            .spawn()
            .unwrap();
        let config = Config {
            params: {
                let mut params = crate::params::defaults();
                params.set("min_app_mb", "1").unwrap();
                params
            },
            ..Config::default()
        };
        let tuning = Tuning {
            min_app: 1,
            ..Tuning::from(&config.params)
        };
        apps.sweep(&kernel, &config, &tuning);
        apps.look(&kernel, &config, &tuning, 1.0);
        let pid = child.id() as i32;
        let app = apps
            .apps
            .values()
            .find(|app| app.members[0].pid == pid)
            .unwrap();
        assert_eq!(app.name, "sleep");
        assert!(app.memory.resident_bytes > 0 && matches!(app.standing, Standing::Active(_)));
        assert!(
            !apps
                .members()
                .any(|member| member.pid == std::process::id() as i32)
        );
        apps.look(&kernel, &config, &tuning, 100.0);
        let app = apps
            .apps
            .values()
            .find(|app| app.members[0].pid == pid)
            .unwrap();
        assert!(app.standing.is_cached(), "it sleeps: {:?}", app.standing);
        child.kill().unwrap();
        child.wait().unwrap();
        apps.look(&kernel, &config, &tuning, 101.0);
        assert!(!apps.members().any(|member| member.pid == pid));
    }
}
