//! Knobs, profiles, layers, and what holds them.

use super::*;

#[test]
fn knobs() {
    let present = KnobState::Present {
        value: "60".into(),
        path: "/proc/sys/vm/swappiness".into(),
        writable: true,
    };
    let absent = KnobState::Unavailable(Unavailable {
        reason: UnavailableReason::LockedDown,
        detail: "locked down".into(),
    });
    let details = KnobDetails {
        knob: knob(present.clone()),
        evidence: vec![known()],
    };
    message("knob", &[knob(present), knob(absent)]);
    message("knob-details", &[details]);
}

#[test]
fn profiles() {
    let profile = Profile {
        name: "make".into(),
        summary: "Found by kilter tune".into(),
        include: Vec::new(),
        set: BTreeMap::from([(
            "vm.swappiness".to_owned(),
            ProfileValue {
                value: "10".into(),
                why: "3 % faster".into(),
            },
        )]),
        evidence: Some(ProfileEvidence {
            study: "make".into(),
            command: command(),
            fixed: Settings::new(),
            kernel: "6.12.107-amd64".into(),
            machine: "9f3c2a10".into(),
            when: "2026-01-02T03:04:05Z".into(),
            verdict: verdict(Verdict::Better),
        }),
    };
    message("profile", &[profile]);
    message(
        "imported",
        &[Imported {
            profile: Profile {
                name: "mine".into(),
                ..Profile::default()
            },
            saved: Some("/etc/kilter/profiles/mine.toml".into()),
            left_out: vec![LeftOut {
                from: "mine.conf:3".into(),
                what: "net.ipv4.ip_forward = 1".into(),
                reason: "no knob of the catalog's".into(),
            }],
        }],
    );
}

#[test]
fn plans() {
    let change = Change {
        knob: "vm.swappiness".into(),
        path: "/proc/sys/vm/swappiness".into(),
        old: "60".into(),
        appears_with: String::new(),
        new: "10".into(),
        effective: Some("10".into()),
    };
    let later = Change {
        knob: "block.vda.bfq.slice_idle".into(),
        path: "/sys/block/vda/queue/iosched/slice_idle".into(),
        old: String::new(),
        appears_with: "block.vda.scheduler=bfq".into(),
        new: "0".into(),
        effective: None,
    };
    let skipped = Skipped {
        knob: "mglru.enabled".into(),
        because: Unavailable {
            reason: UnavailableReason::Absent,
            detail: "not here".into(),
        },
    };
    message(
        "plan",
        &[Plan {
            name: "desktop".into(),
            changes: vec![change, later],
            skipped: vec![skipped],
        }],
    );
}

#[test]
fn layers() {
    let value = |now| HeldValue {
        knob: "vm.swappiness".into(),
        path: "/proc/sys/vm/swappiness".into(),
        original: "60".into(),
        held: "10".into(),
        now,
    };
    let layer = LayerInfo {
        id: 1,
        name: "desktop".into(),
        since: "2026-01-02T03:04:05Z".into(),
        owner: Some(Owner {
            pid: 42,
            start_ticks: 1000,
        }),
        alive: true,
        values: vec![
            value(Held::InForce),
            value(Held::Covered),
            value(Held::Drifted { value: "30".into() }),
            value(Held::Gone),
        ],
    };
    message(
        "status",
        &[Status {
            layers: vec![layer],
            experiment: Some(42),
        }],
    );
    let file = |outcome| RestoredFile {
        knob: "vm.swappiness".into(),
        path: "/proc/sys/vm/swappiness".into(),
        was_set: true,
        outcome,
    };
    let outcomes = [
        Restored::Restored { value: "60".into() },
        Restored::Covered,
        Restored::LeftAlone {
            found: "30".into(),
            original: "60".into(),
        },
        Restored::Gone,
        Restored::Vanished,
        Restored::Failed {
            error: "busy".into(),
            original: "60".into(),
        },
    ];
    message(
        "reverted",
        &[Reverted {
            layers: vec!["desktop".into()],
            files: outcomes.map(file).into(),
        }],
    );
}

#[test]
fn holding() {
    let hold = HoldInfo {
        profile: "desktop".into(),
        unit: Some("/etc/systemd/system/kilter-hold-desktop.service".into()),
        pid: Some(812),
        since: "2026-07-01T12:00:00Z".into(),
        policy: HoldPolicy::Yield,
        revert_on_stop: true,
        set_again: 2,
        drifted: vec![HoldDrift {
            knob: "vm.swappiness".into(),
            held: "10".into(),
            value: "60".into(),
            noticed: "2026-07-01T12:30:00Z".into(),
            by: "/etc/sysctl.d/99-mine.conf:3 asks for it".into(),
        }],
        gone: vec!["block.sdb.iostats".into()],
    };
    message("hold-info", &[hold]);
}

#[test]
fn setters() {
    message(
        "why",
        &[Why {
            knob: "vm.swappiness".into(),
            state: KnobState::Present {
                value: "10".into(),
                path: "/proc/sys/vm/swappiness".into(),
                writable: true,
            },
            setters: vec![Setter {
                by: SetterKind::Sysctl,
                place: "/etc/sysctl.d/90-mine.conf".into(),
                line: Some(3),
                value: "10".into(),
                agrees: true,
            }],
            tuners: vec!["tuned".into()],
            default: "60".into(),
        }],
    );
}

#[test]
fn doctor() {
    let checks = [
        CheckState::Works,
        CheckState::Limited,
        CheckState::Impossible,
    ]
    .map(|state| Check {
        name: "vm knobs".into(),
        state,
        detail: "all here".into(),
        hint: String::new(),
    });
    message(
        "doctor",
        &[DoctorReport {
            fingerprint: fingerprint(),
            checks: checks.into(),
        }],
    );
}
