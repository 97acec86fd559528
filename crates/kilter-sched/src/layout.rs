//! `bpf/shared.h` and the head of `struct sched_ext_ops`, as Rust sees them.

/// Buckets of a histogram: bucket n counts values from 2ⁿ to 2ⁿ⁺¹ − 1, bucket 0 also 0.
pub(crate) const BUCKETS: usize = 64;
/// CPU numbers lie below this.
pub(crate) const MAX_CPUS: usize = 1024;

/// `struct hrrn_params`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Params {
    pub generation: u64,
    pub max_lifetime_ns: u64,
    pub latency_ns: i64,
    pub wakeup_threshold: u64,
    pub max_wait_ns: u64,
    pub slice_ns: u64,
}

/// `struct hrrn_config`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Config {
    pub cpus: u64,
    pub exact: u64,
    pub reset_at_pick: u64,
    pub classes: u64,
    pub kthreads: u64,
    pub spread: u64,
    pub per_uid: u64,
    pub fault: u64,
}

/// `struct hrrn_stats`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stats {
    pub picks: u64,
    pub scanned: u64,
    pub scanned_max: u64,
    pub kept: u64,
    pub capped: u64,
    pub races: u64,
    pub pulls: u64,
    pub idle_placed: u64,
    pub preempted_tick: u64,
    pub preempted_wakeup: u64,
    pub preempted_kthread: u64,
    pub resets: u64,
    pub queued: u64,
    pub queued_max: u64,
    pub wait_max_ns: u64,
    pub generation: u64,
    pub generation_ns: u64,
    pub waits: [u64; BUCKETS],
    pub ratios: [u64; BUCKETS],
}

/// `struct hrrn_exit`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Exit {
    pub kind: u64,
    pub code: i64,
    pub reason: [u8; 128],
    pub message: [u8; 1024],
    pub dump: [u8; 32768],
}

/// The head of `struct sched_ext_ops` in `bpf/types.h`: what is set before loading.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpsSettings {
    pub flags: u64,
    pub hotplug_seq: u64,
    pub timeout_ms: u32,
    pub exit_dump_len: u32,
}

/// A type of integers and arrays of them alone, for which every pattern of bits is a value.
///
/// # Safety
/// No padding, no pointers, no enumerations, no booleans.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: integers of 8 bytes each (`Exit`: and arrays of bytes, a multiple of 8 in size;
// `OpsSettings`: two of 4 bytes side by side).
unsafe impl Plain for Params {}
// SAFETY: as above.
unsafe impl Plain for Config {}
// SAFETY: as above.
unsafe impl Plain for Stats {}
// SAFETY: as above.
unsafe impl Plain for Exit {}
// SAFETY: as above.
unsafe impl Plain for OpsSettings {}

/// The bytes of a value.
pub(crate) fn bytes<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: `Plain` has no padding, so each byte is initialised; the slice borrows the value.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// A value from its bytes; none if there are too few.
pub(crate) fn value<T: Plain>(bytes: &[u8]) -> Option<T> {
    // SAFETY: there are enough bytes, any bytes are a `Plain`, and the read may be unaligned.
    (bytes.len() >= size_of::<T>()).then(|| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    unsafe extern "C" {
        safe fn kilter_hrrn_layout(layout: &mut [u64; 8]);
    }

    #[test]
    fn both_sides_lay_it_out_alike() {
        let mut c = [0; 8];
        kilter_hrrn_layout(&mut c);
        let rust = [
            size_of::<Params>(),
            offset_of!(Params, slice_ns),
            size_of::<Config>(),
            offset_of!(Config, fault),
            size_of::<Stats>(),
            offset_of!(Stats, ratios),
            size_of::<Exit>(),
            offset_of!(Exit, dump),
        ];
        assert_eq!(c.map(|n| n as usize), rust);
    }

    #[test]
    fn bytes_and_back() {
        let params = Params {
            latency_ns: -7,
            slice_ns: 9,
            ..Params::default()
        };
        assert_eq!(value::<Params>(bytes(&params)), Some(params));
        assert_eq!(value::<Params>(&bytes(&params)[1..]), None);
    }
}
