//! Which group a uid belongs to, and what that group gets. Pure: nothing here asks the kernel.

use crate::config::{Config, Share};
use std::ops::RangeInclusive;

/// What the configuration, `--only` and `/etc/subuid` together say.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The configuration.
    pub config: Config,
    only: Vec<RangeInclusive<u32>>,
    folds: Vec<Fold>,
}

/// Subordinate uids and whose they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fold {
    /// The subordinate uids.
    pub uids: RangeInclusive<u32>,
    /// The uid that they count as.
    pub owner: u32,
}

impl Policy {
    /// A policy for all users, or for those of `only` where it names any. `--only` means the uid
    /// that a process counts as, its subordinate uids included.
    pub fn new(config: Config, only: Vec<RangeInclusive<u32>>, folds: Vec<Fold>) -> Self {
        Policy {
            config,
            only,
            folds,
        }
    }

    /// The uid that a process of this uid counts as; none if it is left alone.
    pub fn owner(&self, uid: u32) -> Option<u32> {
        let fold = self.folds.iter().find(|fold| fold.uids.contains(&uid));
        let owner = fold.map_or(uid, |fold| fold.owner);
        let wanted = self.only.is_empty() || self.only.iter().any(|range| range.contains(&owner));
        let rule = self
            .config
            .rules
            .iter()
            .find(|rule| rule.uids.contains(&owner));
        (wanted && !rule.is_some_and(|rule| rule.leave)).then_some(owner)
    }

    /// What the group of an owner gets.
    pub fn share(&self, owner: u32) -> Share {
        let mut rules = self.config.rules.iter();
        let rule = rules.find(|rule| rule.uids.contains(&owner));
        rule.map_or(self.usual_share(), |rule| rule.share)
    }

    /// What a group gets that no rule is about.
    pub fn usual_share(&self) -> Share {
        Share {
            weight: self.config.weight,
            idle: false,
            max_percent: None,
        }
    }
}

/// The ranges of `/etc/subuid` (subuid(5)); `uid_of` looks a name up. Lines that are not whole, or
/// name nobody, are passed over: the tools that use the file do so too.
pub fn folds(subuid: &str, uid_of: impl Fn(&str) -> Option<u32>) -> Vec<Fold> {
    let fold = |line: &str| {
        let mut fields = line.split(':');
        let (owner, first, count) = (fields.next()?, fields.next()?, fields.next()?);
        let owner = owner.parse().ok().or_else(|| uid_of(owner))?;
        let (first, count): (u32, u32) = (first.trim().parse().ok()?, count.trim().parse().ok()?);
        let last = first.checked_add(count.checked_sub(1)?)?;
        // A range over its owner would count somebody as nobody.
        (!(first..=last).contains(&owner)).then_some(Fold {
            uids: first..=last,
            owner,
        })
    };
    subuid.lines().filter_map(fold).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Rule;
    use proptest::prelude::*;

    fn rule(uids: RangeInclusive<u32>, weight: u32, leave: bool) -> Rule {
        let share = Share {
            weight,
            idle: false,
            max_percent: None,
        };
        Rule { uids, share, leave }
    }

    fn policy(rules: Vec<Rule>, only: Vec<RangeInclusive<u32>>, folds: Vec<Fold>) -> Policy {
        let config = Config {
            rules,
            ..Config::default()
        };
        Policy::new(config, only, folds)
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let rules = vec![
            rule(1005..=1005, 300, false),
            rule(1000..=1999, 50, false),
            rule(0..=999, 1, true),
        ];
        let policy = policy(rules, vec![], vec![]);
        assert_eq!(policy.share(1005).weight, 300);
        assert_eq!(policy.share(1006).weight, 50);
        assert_eq!(policy.share(2000).weight, 100);
        assert_eq!(policy.owner(33), None);
        assert_eq!(policy.owner(2000), Some(2000));
    }

    #[test]
    fn subordinate_uids_count_as_their_owner() {
        let names = |name: &str| (name == "alice").then_some(1000);
        let text = "alice:100000:65536\n1001:165536:10\nbob:1:2\nodd\nalice:x:1\n\
            1002:5:0\n7:0:100\n9:4294967295:2\n";
        let folds = folds(text, names);
        let fold = |uids, owner| Fold { uids, owner };
        assert_eq!(
            folds,
            [fold(100_000..=165_535, 1000), fold(165_536..=165_545, 1001)]
        );
        let rules = vec![rule(1001..=1001, 1, true)];
        let policy = policy(rules, vec![1000..=1001], folds);
        assert_eq!(policy.owner(100_000), Some(1000));
        assert_eq!(policy.owner(165_540), None, "its owner is left alone");
        assert_eq!(policy.owner(999), None, "not asked for");
    }

    proptest! {
        #[test]
        fn any_subuid_file_folds_onto_others(text in "([a-z0-9:]{0,30}\n){0,8}") {
            for fold in folds(&text, |_| Some(5)) {
                prop_assert!(!fold.uids.contains(&fold.owner));
            }
        }

        #[test]
        fn an_owner_is_always_its_own(uid in any::<u32>()) {
            let policy = policy(vec![], vec![], vec![]);
            prop_assert_eq!(policy.owner(uid), Some(uid));
        }
    }
}
