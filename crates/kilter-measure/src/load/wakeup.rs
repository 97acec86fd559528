//! Wake-ups and short requests, in the pattern of schbench (Chris Mason).
//!
//! Each message thread owns some workers. A worker asks its message thread to be woken, sleeps on a
//! futex, and once awake serves one request: a short sleep for the network, then some matrix
//! multiplications. The wake-up latency runs from just before the message thread wakes its waiting
//! workers until the worker runs; the request latency from there to the end of the request.
//!
//! By default the multiplications happen under one lock per CPU, so that a worker that is preempted
//! in a request delays others: what makes the tail sensitive to the scheduler.

use super::histogram::{Histogram, Percentiles};
use super::{LoadError, check};
use rustix::thread::futex;
use serde::Serialize;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// How long and how hard. The defaults are schbench's, with a shorter run and a warm-up.
#[derive(Clone, Debug, PartialEq)]
pub struct WakeupOptions {
    /// Message threads, 1 to 256.
    pub message_threads: u32,
    /// Workers per message thread, 1 to 1024; as many as CPUs are online when absent.
    pub workers: Option<u32>,
    /// Seconds of measurement, 0.1 to 3600.
    pub runtime_s: f64,
    /// Seconds before it that do not count, 0 to 600.
    pub warmup_s: f64,
    /// Microseconds that a request sleeps first, 0 to 1,000,000.
    pub sleep_us: u32,
    /// Multiplications per request, 1 to 10,000.
    pub operations: u32,
    /// KiB that the three matrices of a worker take, 4 to 65,536.
    pub cache_kib: u32,
    /// Whether the multiplications happen under the CPU's lock.
    pub locking: bool,
}

impl Default for WakeupOptions {
    fn default() -> Self {
        Self {
            message_threads: 1,
            workers: None,
            runtime_s: 10.0,
            warmup_s: 1.0,
            sleep_us: 100,
            operations: 5,
            cache_kib: 256,
            locking: true,
        }
    }
}

/// What was measured after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WakeupResult {
    /// Wake-up latencies.
    pub wakeup_us: Percentiles,
    /// Request latencies.
    pub request_us: Percentiles,
    /// Requests completed per second.
    pub requests_per_s: f64,
    /// Seconds that were measured.
    pub seconds: f64,
}

/// Threads at most: each worker has two histograms and three matrices.
const MOST_THREADS: u32 = 8192;

const STACK: usize = 128 << 10;

impl WakeupOptions {
    /// Runs the load; all threads have ended when it returns.
    ///
    /// # Errors
    /// An option outside its range; threads that cannot be started; no request that ended in time.
    pub fn run(&self) -> Result<WakeupResult, LoadError> {
        let workers = self.check()?;
        let shared = &Shared::new(self, workers);
        let (measured, seconds) = std::thread::scope(|scope| {
            let _stop = StopOnDrop(shared);
            let mut handles = Vec::new();
            for index in 0..shared.workers.len() {
                handles.push(start(scope, move || shared.serve(index))?);
            }
            for group in 0..shared.messengers.len() {
                start(scope, move || shared.wake_workers(group))?;
            }
            std::thread::sleep(Duration::from_secs_f64(self.warmup_s));
            let began = Instant::now();
            shared.recording.store(true, Ordering::Relaxed);
            std::thread::sleep(Duration::from_secs_f64(self.runtime_s));
            shared.recording.store(false, Ordering::Relaxed);
            let seconds = began.elapsed().as_secs_f64();
            shared.stop();
            Ok((collect(handles)?, seconds))
        })?;
        let percentiles = |histogram: &Histogram| histogram.percentiles_us();
        Ok(WakeupResult {
            wakeup_us: percentiles(&measured.wakeup).ok_or(LoadError::Nothing("wake-up"))?,
            request_us: percentiles(&measured.request).ok_or(LoadError::Nothing("request"))?,
            requests_per_s: measured.request.count() as f64 / seconds,
            seconds,
        })
    }

    /// The number of workers per message thread.
    fn check(&self) -> Result<u32, LoadError> {
        let workers = self.workers.unwrap_or_else(cpus_online);
        check("message-threads", self.message_threads, 1..=256)?;
        check("workers", workers, 1..=1024)?;
        check("runtime", self.runtime_s, 0.1..=3600.0)?;
        check("warmup", self.warmup_s, 0.0..=600.0)?;
        check("sleep", self.sleep_us, 0..=1_000_000)?;
        check("operations", self.operations, 1..=10_000)?;
        check("cache", self.cache_kib, 4..=65_536)?;
        check(
            "message-threads x workers",
            self.message_threads * workers,
            1..=MOST_THREADS,
        )?;
        Ok(workers)
    }
}

fn cpus_online() -> u32 {
    // SAFETY: asks for a number.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u32::try_from(online).unwrap_or(1).clamp(1, 1024)
}

fn start<'scope, T: Send + 'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, LoadError> {
    Builder::new()
        .stack_size(STACK)
        .spawn_scoped(scope, body)
        .map_err(LoadError::system("start a thread"))
}

fn collect(handles: Vec<ScopedJoinHandle<io::Result<Measured>>>) -> Result<Measured, LoadError> {
    let mut all = Measured::default();
    for handle in handles {
        let failed = |problem: String| LoadError::Worker {
            worker: "worker",
            problem,
        };
        let result = handle.join().map_err(|_| failed("panicked".to_owned()))?;
        let measured = result.map_err(|error| failed(format!("failed: {error}")))?;
        all.wakeup.merge(&measured.wakeup);
        all.request.merge(&measured.request);
    }
    Ok(all)
}

#[derive(Default)]
struct Measured {
    wakeup: Histogram,
    request: Histogram,
}

/// A flag that a thread can sleep on until it is set.
#[derive(Default)]
struct Wakeable(AtomicU32);

impl Wakeable {
    fn clear(&self) {
        self.0.store(0, Ordering::SeqCst);
    }

    fn set(&self) {
        if self.0.swap(1, Ordering::SeqCst) == 0 {
            // Fails only for a bad address.
            let _ = futex::wake(&self.0, futex::Flags::PRIVATE, 1);
        }
    }

    fn wait(&self) {
        while self.0.load(Ordering::SeqCst) == 0 {
            // Any other return (set meanwhile, a signal) is a reason to look again.
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, 0, None);
        }
    }
}

/// A worker as others see it. Each in its own cache line, as schbench's thread data are.
#[derive(Default)]
#[repr(align(128))]
struct Worker {
    awake: Wakeable,
    /// When it was woken last, in nanoseconds since the start.
    woken_at: AtomicU64,
    /// The next worker in the list of waiting ones; `NOBODY` at its end.
    next: AtomicUsize,
}

/// A message thread as others see it.
#[repr(align(128))]
struct Messenger {
    awake: Wakeable,
    /// The last worker that asked to be woken. Workers push themselves, the message thread takes
    /// the whole list, so that no entry can be mistaken for an earlier one.
    waiting: AtomicUsize,
}

const NOBODY: usize = usize::MAX;

struct Shared<'a> {
    options: &'a WakeupOptions,
    workers: Vec<Worker>,
    messengers: Vec<Messenger>,
    cpu_locks: Vec<Mutex<()>>,
    start: Instant,
    recording: AtomicBool,
    stopping: AtomicBool,
}

/// Lets the threads end whichever way the scope is left.
struct StopOnDrop<'a>(&'a Shared<'a>);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl<'a> Shared<'a> {
    fn new(options: &'a WakeupOptions, workers: u32) -> Self {
        let messenger = || Messenger {
            awake: Wakeable::default(),
            waiting: AtomicUsize::new(NOBODY),
        };
        // SAFETY: asks for a number.
        let cpus =
            usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }).unwrap_or(1);
        Self {
            options,
            workers: (0..options.message_threads * workers)
                .map(|_| Worker::default())
                .collect(),
            messengers: (0..options.message_threads).map(|_| messenger()).collect(),
            cpu_locks: (0..cpus.max(1)).map(|_| Mutex::new(())).collect(),
            start: Instant::now(),
            recording: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        }
    }

    /// Makes every thread end after what it is doing. A thread clears its flag before it looks for
    /// `stopping`, so it either sees that, or is woken by this.
    fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.workers.iter().for_each(|worker| worker.awake.set());
        self.messengers
            .iter()
            .for_each(|messenger| messenger.awake.set());
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn nanos(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// A worker's life.
    fn serve(&self, index: usize) -> io::Result<Measured> {
        let mut measured = Measured::default();
        let mut matrices = Matrices::new(self.options.cache_kib);
        let worker = &self.workers[index];
        loop {
            worker.awake.clear();
            if self.is_stopping() {
                return Ok(measured);
            }
            self.ask_to_be_woken(index);
            worker.awake.wait();
            let awake = self.nanos();
            if self.is_stopping() {
                return Ok(measured);
            }
            let recording = self.recording.load(Ordering::Relaxed);
            if recording {
                measured
                    .wakeup
                    .record(awake.saturating_sub(worker.woken_at.load(Ordering::Relaxed)));
            }
            self.serve_request(&mut matrices)?;
            if recording && self.recording.load(Ordering::Relaxed) {
                measured.request.record(self.nanos() - awake);
            }
        }
    }

    fn ask_to_be_woken(&self, index: usize) {
        let messenger = &self.messengers[index % self.messengers.len()];
        let worker = &self.workers[index];
        let mut first = messenger.waiting.load(Ordering::Relaxed);
        loop {
            worker.next.store(first, Ordering::Relaxed);
            let waiting = &messenger.waiting;
            match waiting.compare_exchange_weak(first, index, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => first = now,
            }
        }
        messenger.awake.set();
    }

    /// A message thread's life.
    fn wake_workers(&self, group: usize) {
        let messenger = &self.messengers[group];
        loop {
            messenger.awake.clear();
            if self.is_stopping() {
                return;
            }
            let mut next = messenger.waiting.swap(NOBODY, Ordering::Acquire);
            let now = self.nanos();
            while let Some(worker) = self.workers.get(next) {
                // Once awake it may push itself again and change its link.
                next = worker.next.load(Ordering::Relaxed);
                worker.woken_at.store(now, Ordering::Relaxed);
                worker.awake.set();
            }
            messenger.awake.wait();
        }
    }

    fn serve_request(&self, matrices: &mut Matrices) -> io::Result<()> {
        if self.options.sleep_us > 0 {
            std::thread::sleep(Duration::from_micros(self.options.sleep_us.into()));
        }
        let lock = if self.options.locking {
            Some(self.lock_this_cpu()?)
        } else {
            None
        };
        for _ in 0..self.options.operations {
            matrices.multiply();
        }
        drop(lock);
        Ok(())
    }

    /// The lock of the CPU that the thread runs on once it has it.
    fn lock_this_cpu(&self) -> io::Result<std::sync::MutexGuard<'_, ()>> {
        loop {
            let cpu = this_cpu()?;
            let lock = &self.cpu_locks[cpu % self.cpu_locks.len()];
            let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
            if this_cpu()? == cpu {
                return Ok(guard);
            }
        }
    }
}

fn this_cpu() -> io::Result<usize> {
    // SAFETY: asks for a number.
    let cpu = unsafe { libc::sched_getcpu() };
    usize::try_from(cpu).map_err(|_| io::Error::last_os_error())
}

/// Two factors and a product, square, of 64-bit integers.
struct Matrices {
    size: usize,
    left: Vec<u64>,
    right: Vec<u64>,
    product: Vec<u64>,
}

impl Matrices {
    fn new(cache_kib: u32) -> Self {
        let elements = cache_kib as usize * 1024 / 3 / size_of::<u64>();
        let size = elements.isqrt().max(2);
        let filled = |seed: u64| (0..size as u64 * size as u64).map(|i| i ^ seed).collect();
        Self {
            size,
            left: filled(1),
            right: filled(2),
            product: vec![0; size * size],
        }
    }

    fn multiply(&mut self) {
        let Self {
            size,
            left,
            right,
            product,
        } = self;
        for (row, results) in left
            .chunks_exact(*size)
            .zip(product.chunks_exact_mut(*size))
        {
            for (column, result) in results.iter_mut().enumerate() {
                let factors = right[column..].iter().step_by(*size);
                let products = row.iter().zip(factors).map(|(a, b)| a.wrapping_mul(*b));
                *result = products.fold(0, u64::wrapping_add);
            }
        }
        std::hint::black_box(product);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiplies_matrices() {
        let mut matrices = Matrices {
            size: 2,
            left: vec![1, 2, 3, 4],
            right: vec![5, 6, 7, 8],
            product: vec![0; 4],
        };
        matrices.multiply();
        assert_eq!(matrices.product, [19, 22, 43, 50]);
    }

    #[test]
    fn the_matrices_fill_the_cache_asked_for() {
        let matrices = Matrices::new(256);
        let bytes = 3 * matrices.size * matrices.size * 8;
        assert!(bytes <= 256 << 10 && bytes > 250 << 10, "{bytes}");
    }

    #[test]
    fn a_flag_set_before_the_wait_is_not_lost() {
        let flag = Wakeable::default();
        flag.set();
        flag.set();
        flag.wait();
        flag.clear();
        std::thread::scope(|scope| {
            scope.spawn(|| flag.wait());
            flag.set();
        });
    }
}
