//! `kilter export`: a profile for machines and tools without kilter.

use crate::cli::{Export, Target};
use crate::fail::{Failure, Outcome};
use crate::machine::{Machine, quote};
use crate::output::write_whole;
use crate::say;
use kilter_api::LeftOut;
use kilter_knobs::{
    Consent, export_items, magisk_module, profile_values, shell_script, sysctl_conf, systemd_unit,
    tuned_conf,
};

/// Runs the command.
pub fn run(machine: &Machine, args: &Export) -> Outcome {
    let (profile, values) = profile_values(&machine.places, &args.profile)?;
    let consent = Consent::from(&args.consent);
    let items = export_items(&machine.catalog()?, &values, &consent)?;
    let mut left: Vec<LeftOut> = Vec::new();
    let mut told = |(text, not): (String, Vec<LeftOut>)| {
        left = not;
        text.into_bytes()
    };
    let bytes = match args.to {
        Target::Script => shell_script(&profile, &items, "/bin/sh").into_bytes(),
        Target::Magisk => {
            let script = shell_script(&profile, &items, "/system/bin/sh");
            magisk_module(&profile, &script)
        }
        Target::SysctlD => told(sysctl_conf(&profile, &items)),
        Target::Tuned => told(tuned_conf(&profile, &items)),
        Target::Systemd => {
            let script = format!("/usr/local/sbin/kilter-{}", profile.name);
            systemd_unit(&profile, &script).into_bytes()
        }
    };
    match &args.output {
        Some(path) => {
            write_whole("--output", path, &bytes)?;
            say::note(format!("Wrote {}.", path.display()));
        }
        None if args.to == Target::Magisk => {
            return Err(
                Failure::new("a module is a zip file, which no terminal shows").hint(format!(
                    "kilter export {} --to magisk --output {}.zip",
                    quote(&args.profile),
                    quote(&args.profile)
                )),
            );
        }
        None => {
            use std::io::Write;
            std::io::stdout().write_all(&bytes)?;
        }
    }
    for left in &left {
        say::warning(format!("{} is not in it: {}", left.what, left.reason));
    }
    if args.to == Target::Systemd {
        say::hint(format!(
            "the unit runs a script: kilter export {name} --to script --output /usr/local/sbin/kilter-{name}",
            name = quote(&args.profile)
        ));
    }
    Ok(0)
}
