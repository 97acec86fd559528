//! Loading the scheduler into the kernel, and what can be done with it there.

use crate::ended::{self, Ended};
use crate::layout::{self, BUCKETS, MAX_CPUS};
use crate::options::Options;
use crate::refusal::Refusal;
use crate::stats::Stats;
use crate::support::Kernel;
use crate::topology;
use kilter_kernel::Parameters;
use libbpf_rs::{
    AsRawLibbpf, Link, MapCore, MapFlags, MapMut, Object, ObjectBuilder, OpenObject, PrintLevel,
};
use std::sync::Mutex;

/// The compiled scheduler, aligned as an ELF file must be.
static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/hrrn.bpf.o"));

/// What libbpf said while it loaded: the verifier's reasons.
static LOG: Mutex<String> = Mutex::new(String::new());

/// Why the scheduler could not be started. The kernel has its own scheduler.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// This kernel or this caller cannot.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The kernel did not take the program.
    #[error("{step}: {source}{}", told(.log))]
    Load {
        /// What was being done.
        step: &'static str,
        /// libbpf's reason.
        source: libbpf_rs::Error,
        /// What libbpf and the kernel's verifier said.
        log: String,
    },
    /// The kernel ended the scheduler before it was in force.
    #[error("the kernel ended the scheduler while it started: {}", .0.line())]
    Ended(Box<Ended>),
}

fn told(log: &str) -> String {
    match log.trim_end() {
        "" => String::new(),
        log => format!("\n{log}"),
    }
}

/// A scheduler in force. Dropping it, or the end of the process, gives the machine back to the
/// kernel's own.
pub struct Scheduler {
    /// Dropped before the object whose programs it holds.
    link: Option<Link>,
    object: Object,
    kinds: Vec<(String, u64)>,
    restart: u64,
    generation: u64,
    /// Whether a woken task's CPU is interrupted by the kernel's own call.
    kick: bool,
}

impl Scheduler {
    /// Loads the scheduler and puts every task under it.
    pub fn start(options: &Options) -> Result<Self, StartError> {
        let kernel = Kernel::check()?;
        LOG.lock().unwrap_or_else(|log| log.into_inner()).clear();
        libbpf_rs::set_print(Some((PrintLevel::Warn, |_, line| {
            LOG.lock()
                .unwrap_or_else(|log| log.into_inner())
                .push_str(&line);
        })));
        let mut open = ObjectBuilder::default()
            .open_memory(PROGRAM)
            .map_err(failed("the scheduler's program is broken"))?;
        configure(&mut open, options, &kernel)?;
        let mut object = open
            .load()
            .map_err(failed("the kernel does not take the scheduler"))?;
        let link = find(object.maps_mut(), "hrrn")
            .attach_struct_ops()
            .map_err(failed("the kernel does not start the scheduler"));
        let mut scheduler = Scheduler {
            link: None,
            object,
            kinds: kernel.enumerators("scx_exit_kind"),
            restart: kernel
                .enumerator("scx_exit_code", "SCX_ECODE_ACT_RESTART")
                .unwrap_or(0),
            generation: 0,
            kick: kernel.has("scx_bpf_kick_cpu", 2),
        };
        match link {
            // An ejection so soon is one like any other: who runs it asks for its end.
            Ok(link) => {
                scheduler.link = Some(link);
                Ok(scheduler)
            }
            Err(error) => Err(scheduler
                .ended()
                .map_or(error, |ended| StartError::Ended(Box::new(ended)))),
        }
    }

    /// Changes the parameters. Every CPU takes them up at its next tick or pick; returns the
    /// number that [`Stats::generation`] shows from then on.
    pub fn set_params(&mut self, params: &Parameters) -> u64 {
        self.generation += 1;
        let pointer = self.memory::<layout::Params>(".data.params");
        // SAFETY: the map is mapped writable for as long as the object lives, and has this layout.
        // The kernel reads single fields, each of which is written in one piece.
        unsafe {
            pointer.write_volatile(crate::params::layout(params, self.generation - 1));
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
            (&raw mut (*pointer).generation).write_volatile(self.generation);
        }
        self.generation
    }

    /// Counters of each CPU, by number.
    pub fn stats(&self) -> Vec<Stats> {
        let map = self.object.maps().find(|map| map.name() == "stats");
        let map = map.expect("the program has this map");
        let found = map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
        let cpus = found.ok().flatten().unwrap_or_default();
        cpus.iter()
            .filter_map(|bytes| layout::value::<layout::Stats>(bytes))
            .map(|raw| Stats::from(&raw))
            .collect()
    }

    /// Why the kernel has ended the scheduler; none while it is in force.
    pub fn ended(&self) -> Option<Ended> {
        let pointer = self.memory::<layout::Exit>(".data.ended");
        // SAFETY: the map is mapped readable for as long as the object lives, and has this layout.
        let kind = unsafe { (&raw const (*pointer).kind).read_volatile() };
        if kind == 0 {
            return None;
        }
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        // SAFETY: as above; nothing is written any more after the kind.
        let raw = unsafe { pointer.read_volatile() };
        let name = self.kinds.iter().find(|(_, value)| *value == kind);
        let kind = name.map_or_else(|| format!("kind {kind}"), |(name, _)| name.clone());
        Some(Ended {
            how: ended::how(&kind),
            code: raw.code,
            reason: ended::text(&raw.reason),
            message: ended::text(&raw.message),
            dump: ended::text(&raw.dump),
            restart: raw.code as u64 & self.restart != 0,
            kind,
        })
    }

    /// Gives the machine back, and tells how the kernel saw it.
    pub fn stop(mut self) -> Option<Ended> {
        drop(self.link.take());
        self.ended()
    }

    /// Whether this kernel's function to interrupt a CPU can be called. Where its type information
    /// is defective, a woken task that preempts is put first on its CPU instead.
    pub fn can_kick(&self) -> bool {
        self.kick
    }

    /// The memory of a section of the program's data.
    fn memory<T>(&self, section: &str) -> *mut T {
        let map = self.object.maps().find(|map| map.name() == section);
        let map = map.expect("the program has this section");
        let mut size = 0;
        // SAFETY: the map belongs to the loaded object; libbpf returns where it mapped its values.
        let memory = unsafe {
            libbpf_sys::bpf_map__initial_value(map.as_libbpf_object().as_ptr(), &mut size)
        };
        assert!(
            !memory.is_null() && size as usize >= size_of::<T>(),
            "{section} is not mapped"
        );
        memory.cast()
    }
}

fn failed(step: &'static str) -> impl FnOnce(libbpf_rs::Error) -> StartError {
    move |source| StartError::Load {
        step,
        source,
        log: std::mem::take(&mut *LOG.lock().unwrap_or_else(|log| log.into_inner())),
    }
}

fn find<'o>(mut maps: impl Iterator<Item = MapMut<'o>>, name: &str) -> MapMut<'o> {
    maps.find(|map| map.name() == name)
        .expect("the program has this map")
}

/// Fills in what is fixed before loading.
fn configure(open: &mut OpenObject, options: &Options, kernel: &Kernel) -> Result<(), StartError> {
    let cpus = topology::cpus();
    if cpus > MAX_CPUS {
        return Err(Refusal::Missing(vec![format!("fewer than {MAX_CPUS} CPUs")]).into());
    }
    // A task that may not change its CPU for a while is queued like every other.
    let pinned = kernel.enumerator("scx_ops_flags", "SCX_OPS_ENQ_MIGRATION_DISABLED");
    let ops = layout::OpsSettings {
        flags: pinned.unwrap_or(0),
        hotplug_seq: kernel.hotplug_seq,
        timeout_ms: options.timeout_ms,
        exit_dump_len: 0,
    };
    let caches: Vec<u8> = topology::caches(cpus)
        .into_iter()
        .flat_map(u32::to_ne_bytes)
        .collect();
    for (name, bytes) in [
        (".rodata.config", layout::bytes(&options.layout(cpus))),
        (
            ".data.params",
            layout::bytes(&crate::params::layout(&options.params, 0)),
        ),
        (".rodata.caches", caches.as_slice()),
        ("hrrn", layout::bytes(&ops)),
    ] {
        let mut map = open
            .maps_mut()
            .find(|map| map.name() == name)
            .expect("the program has this map");
        let value = map.initial_value_mut().expect("the map has a value");
        value[..bytes.len()].copy_from_slice(bytes);
    }
    Ok(())
}

const _: () = assert!(BUCKETS == 64, "bucket() in state.h");
