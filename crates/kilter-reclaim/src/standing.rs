//! Whether an app is cached, and since when. Pure: nothing here asks the kernel.

use crate::config::{Cached, Rule};
use crate::params::Tuning;
use kilter_api::DecisionStep;
use std::borrow::Cow;

/// What was seen of an app that tells whether anybody uses it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signs {
    /// All its tasks are frozen.
    pub frozen: bool,
    /// Seconds for which it has not had the focus, where somebody tells (`user.inactive-since`).
    pub unfocused_s: Option<f64>,
    /// The highest oom_score_adj that all its processes have at least.
    pub oom_score_adj: i32,
    /// Seconds for which it has used no CPU time to speak of.
    pub idle_s: f64,
    /// Why it is left out, whatever else holds: audio, locked memory.
    pub left_out: Option<&'static str>,
    /// Memory, resident and swapped.
    pub bytes: u64,
}

/// How an app stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// It is not reclaimed from, whatever happens.
    LeftOut(Why),
    /// Somebody uses it.
    Active(Why),
    /// Nobody does.
    Cached(By, Why),
}

/// A reason; most are the same for thousands of apps.
pub type Why = Cow<'static, str>;

/// What says that nobody uses an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A rule of the configuration.
    Rule,
    /// It is frozen.
    Frozen,
    /// It does not have the focus.
    Focus,
    /// Its oom_score_adj.
    Score,
    /// It has used no CPU time.
    Idle,
}

impl Standing {
    /// Why.
    pub fn why(&self) -> &str {
        match self {
            Standing::LeftOut(why) | Standing::Active(why) | Standing::Cached(_, why) => why,
        }
    }

    /// Whether nobody uses it.
    pub fn is_cached(&self) -> bool {
        matches!(self, Standing::Cached(..))
    }
}

/// The questions in their order; the first that has an answer decides.
pub fn judge(signs: &Signs, rule: Option<&Rule>, tuning: &Tuning) -> (Standing, Vec<DecisionStep>) {
    let mut chain = Chain(Vec::new());
    let standing = chain.judge(signs, rule, tuning);
    (standing, chain.0)
}

struct Chain(Vec<DecisionStep>);

impl Chain {
    fn ask(&mut self, question: &str, answer: String, decides: bool) {
        self.0.push(step(question, answer, decides));
    }

    fn judge(&mut self, signs: &Signs, rule: Option<&Rule>, tuning: &Tuning) -> Standing {
        if let Some(standing) = self.left_out(signs, rule, tuning) {
            return standing;
        }
        let cached_after = match rule.map(|rule| rule.cached) {
            Some(Cached::Always) => {
                return Standing::Cached(By::Rule, "a rule says so".into());
            }
            Some(Cached::After(seconds)) => Some(seconds),
            _ => None,
        };
        self.ask("frozen?", yes(signs.frozen), signs.frozen);
        if signs.frozen {
            return Standing::Cached(By::Frozen, "it is frozen".into());
        }
        if cached_after.is_none()
            && let Some(standing) = self.by_others(signs, tuning)
        {
            return standing;
        }
        let after = cached_after.or(tuning.idle_s);
        let idle = after.is_some_and(|after| signs.idle_s >= after);
        let answer = match after {
            Some(after) => format!("for {:.0} s; {after:.0} s count", signs.idle_s),
            None => "not asked (idle_s is 0)".to_owned(),
        };
        self.ask("without CPU time?", answer.clone(), true);
        match idle {
            true => Standing::Cached(By::Idle, format!("no CPU time {answer}").into()),
            false => Standing::Active("nothing says that it is in the background".into()),
        }
    }

    fn left_out(
        &mut self,
        signs: &Signs,
        rule: Option<&Rule>,
        tuning: &Tuning,
    ) -> Option<Standing> {
        let (answer, decides) = match rule {
            Some(rule) => {
                let wanted = match rule.cached {
                    Cached::Usual => "says nothing about it".to_owned(),
                    Cached::Always => "always cached".to_owned(),
                    Cached::Never => "never cached".to_owned(),
                    Cached::After(seconds) => {
                        format!("cached after {seconds:.0} s without CPU time")
                    }
                };
                (
                    format!("{}: {wanted}", rule.text),
                    matches!(rule.cached, Cached::Never | Cached::Always),
                )
            }
            None => ("none fits".to_owned(), false),
        };
        self.ask("a rule?", answer, decides);
        if rule.is_some_and(|rule| rule.cached == Cached::Never) {
            return Some(Standing::LeftOut("a rule says so".into()));
        }
        self.ask(
            "audio or locked memory?",
            signs.left_out.unwrap_or("no").to_owned(),
            signs.left_out.is_some(),
        );
        if let Some(reason) = signs.left_out {
            return Some(Standing::LeftOut(reason.into()));
        }
        let small = signs.bytes < tuning.min_app;
        let answer = format!("{} MiB; {} count", signs.bytes >> 20, tuning.min_app >> 20);
        self.ask("large enough?", answer, small);
        small.then(|| {
            Standing::LeftOut(format!("it is smaller than {} MiB", tuning.min_app >> 20).into())
        })
    }

    /// What others say: the desktop, or whoever sets oom_score_adj.
    fn by_others(&mut self, signs: &Signs, tuning: &Tuning) -> Option<Standing> {
        if let Some(seconds) = signs.unfocused_s {
            let answer = format!("not for {seconds:.0} s");
            self.ask("in focus?", answer.clone(), true);
            return Some(match seconds > 0.0 {
                true => Standing::Cached(By::Focus, format!("in focus: {answer}").into()),
                false => Standing::Active("it has the focus".into()),
            });
        }
        self.ask("in focus?", "nobody tells".to_owned(), false);
        let high = signs.oom_score_adj >= tuning.oom_score_adj;
        let answer = format!("{}; {} counts", signs.oom_score_adj, tuning.oom_score_adj);
        self.ask("oom_score_adj?", answer, high);
        high.then(|| {
            Standing::Cached(
                By::Score,
                format!("its oom_score_adj is {}", signs.oom_score_adj).into(),
            )
        })
    }
}

pub(crate) fn step(question: &str, answer: String, decides: bool) -> DecisionStep {
    DecisionStep {
        question: question.to_owned(),
        answer,
        decides,
    }
}

fn yes(on: bool) -> String {
    if on { "yes" } else { "no" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Glob;
    use crate::params::defaults;
    use proptest::prelude::*;

    fn tuning() -> Tuning {
        Tuning::from(&defaults())
    }

    fn large() -> Signs {
        Signs {
            bytes: 100 << 20,
            ..Signs::default()
        }
    }

    fn rule(cached: Cached) -> Rule {
        Rule {
            name: Some(Glob::new("*")),
            cgroup: None,
            uid: None,
            cached,
            tree: false,
            text: "name *".into(),
        }
    }

    #[test]
    fn the_order_is_rules_then_frozen_then_focus_then_score_then_idleness() {
        let judged = |signs: &Signs, rule: Option<&Rule>| judge(signs, rule, &tuning()).0;
        let active = large();
        assert!(matches!(judged(&active, None), Standing::Active(_)));
        assert!(
            judged(
                &Signs {
                    idle_s: 60.0,
                    ..large()
                },
                None
            )
            .is_cached()
        );
        assert!(
            judged(
                &Signs {
                    oom_score_adj: 850,
                    ..large()
                },
                None
            )
            .is_cached()
        );
        let focused = Signs {
            unfocused_s: Some(0.0),
            oom_score_adj: 900,
            idle_s: 99.0,
            ..large()
        };
        assert!(
            matches!(judged(&focused, None), Standing::Active(_)),
            "focus wins over the score"
        );
        assert!(
            judged(
                &Signs {
                    frozen: true,
                    ..focused.clone()
                },
                None
            )
            .is_cached()
        );
        assert!(
            judged(
                &Signs {
                    unfocused_s: Some(1.0),
                    ..large()
                },
                None
            )
            .is_cached()
        );
        assert!(judged(&active, Some(&rule(Cached::Always))).is_cached());
        let never = judged(
            &Signs {
                frozen: true,
                ..large()
            },
            Some(&rule(Cached::Never)),
        );
        assert!(matches!(never, Standing::LeftOut(_)));
        let after = rule(Cached::After(5.0));
        assert!(
            judged(
                &Signs {
                    idle_s: 6.0,
                    ..large()
                },
                Some(&after)
            )
            .is_cached()
        );
        assert!(
            !judged(
                &Signs {
                    idle_s: 4.0,
                    oom_score_adj: 1000,
                    ..large()
                },
                Some(&after)
            )
            .is_cached()
        );
        let audio = Signs {
            left_out: Some("it plays audio"),
            frozen: true,
            ..large()
        };
        assert_eq!(
            judged(&audio, Some(&rule(Cached::Always))).why(),
            "it plays audio"
        );
        assert!(matches!(
            judged(
                &Signs {
                    bytes: 1 << 20,
                    frozen: true,
                    ..large()
                },
                None
            ),
            Standing::LeftOut(_)
        ));
    }

    proptest! {
        #[test]
        fn the_last_step_alone_decides(frozen: bool, focus in proptest::option::of(0.0..9.0), adj in -1000..=1000, idle in 0.0..200.0, mib in 0..50_u64) {
            let signs = Signs { frozen, unfocused_s: focus, oom_score_adj: adj, idle_s: idle, left_out: None, bytes: mib << 20 };
            let (standing, chain) = judge(&signs, None, &tuning());
            let deciding: Vec<usize> = chain.iter().enumerate().filter(|(_, step)| step.decides).map(|(at, _)| at).collect();
            prop_assert_eq!(deciding, vec![chain.len() - 1]);
            prop_assert!(!standing.why().is_empty());
        }
    }
}
