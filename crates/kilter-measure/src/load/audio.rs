//! An audio thread with real deadlines, in the manner of SynthMark: how many voices a CPU sustains,
//! and the smallest buffer that plays without a gap.
//!
//! The sink stands for audio hardware: it takes a burst every 2 ms, whatever happens. The thread may
//! be ahead of it by its buffer; a burst that is not there in time is an underrun, which a person
//! hears. All waiting is for absolute times, so that no error adds up.

use super::cores::{Cores, cpus_of};
use super::histogram::{Histogram, Percentiles};
use super::synth::{BURST, RATE, Synth};
use super::{LoadError, check};
use serde::Serialize;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// No machine plays more.
const MOST_VOICES: usize = 4096;

/// Voices of the first burst.
const FIRST_VOICES: usize = 8;

/// The largest buffer that is tried: 256 ms.
const MOST_BURSTS: u32 = 128;

/// Bursts after which the number of voices is adapted: 0.1 s.
const ADAPT: u32 = 50;

/// Time between two bursts.
const PERIOD: Duration = Duration::from_micros(2_000);

/// What both loads share.
#[derive(Clone, Debug, PartialEq)]
pub struct AudioOptions {
    /// Seconds of measurement, 0.2 to 600.
    pub runtime_s: f64,
    /// Seconds before it that do not count, 0 to 60.
    pub warmup_s: f64,
    /// Share of a CPU's time that the voices take, 0.05 to 0.95.
    pub load: f64,
    /// On which cores.
    pub cores: Cores,
    /// Priority under `SCHED_FIFO`, 1 to 99; an ordinary thread when absent.
    pub fifo: Option<u32>,
}

impl Default for AudioOptions {
    /// Three seconds at half of a CPU's time, as an ordinary thread wherever the kernel puts it.
    fn default() -> Self {
        Self {
            runtime_s: 3.0,
            warmup_s: 0.5,
            load: 0.5,
            cores: Cores::Any,
            fifo: None,
        }
    }
}

/// How many voices the CPU sustains.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VoicemarkResult {
    /// Voices at the chosen share of the CPU's time.
    pub voices: f64,
    /// Share of the time that rendering took.
    pub load: f64,
    /// How late the thread woke for its bursts.
    pub wakeup_us: Percentiles,
    /// Bursts that were not there in time, with a buffer of 8 bursts (16 ms).
    pub underruns: u64,
    /// The CPUs it was kept to; empty for all.
    pub cpus: String,
    /// Whether the machine has more than one kind of cores.
    pub kinds_differ: bool,
    /// Seconds that were measured.
    pub seconds: f64,
}

/// The smallest buffer that played without a gap.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencymarkResult {
    /// The buffer in bursts.
    pub bursts: u32,
    /// The same in milliseconds: what a person waits between a touch and its sound.
    pub latency_ms: f64,
    /// How late bursts were finished, counted from when each could first have been begun.
    pub late_us: Percentiles,
    /// Bursts that were not there in time while the buffer was still smaller.
    pub underruns: u64,
    /// Voices of a heavy stretch.
    pub voices: usize,
    /// The CPUs it was kept to; empty for all.
    pub cpus: String,
    /// Whether the machine has more than one kind of cores.
    pub kinds_differ: bool,
    /// Seconds that were measured.
    pub seconds: f64,
}

impl AudioOptions {
    fn check(&self) -> Result<(), LoadError> {
        check("runtime", self.runtime_s, 0.2..=600.0)?;
        check("warmup", self.warmup_s, 0.0..=60.0)?;
        check("load", self.load, 0.05..=0.95)?;
        self.fifo.map_or(Ok(()), |fifo| check("fifo", fifo, 1..=99))
    }

    /// Adapts the number of voices until they take the chosen share of the time, and goes on so.
    ///
    /// # Errors
    /// An option outside its range; a priority or CPUs that the kernel refuses.
    pub fn voicemark(&self) -> Result<VoicemarkResult, LoadError> {
        self.check()?;
        let place = self.take_place()?;
        let mut synth = Synth::new(MOST_VOICES);
        let mut voices = FIRST_VOICES;
        for _ in 0..count(self.warmup_s).div_ceil(ADAPT) {
            voices = self.adapted(voices, self.stretch(&mut synth, voices, ADAPT, 8));
        }
        let mut total = Stretch::default();
        let mut worth = 0.0;
        let stretches = count(self.runtime_s).div_ceil(ADAPT);
        for _ in 0..stretches {
            let stretch = self.stretch(&mut synth, voices, ADAPT, 8);
            // Voices that this much time would do for.
            worth += voices as f64 * self.load / stretch.share().max(1e-6);
            voices = self.adapted(voices, stretch.clone());
            total.add(&stretch);
        }
        let nothing = || LoadError::Nothing("burst");
        Ok(VoicemarkResult {
            voices: worth / f64::from(stretches),
            load: total.share(),
            wakeup_us: total.wakeup.percentiles_us().ok_or_else(nothing)?,
            underruns: total.underruns,
            cpus: place.cpus,
            kinds_differ: place.kinds_differ,
            seconds: total.wall.as_secs_f64(),
        })
    }

    /// Plays stretches of few and of many voices in turn; every gap makes the buffer a burst larger.
    ///
    /// # Errors
    /// As [`AudioOptions::voicemark`].
    pub fn latencymark(&self) -> Result<LatencymarkResult, LoadError> {
        self.check()?;
        let place = self.take_place()?;
        let mut synth = Synth::new(MOST_VOICES);
        let mut heavy = FIRST_VOICES;
        for _ in 0..count(self.warmup_s.max(0.3)).div_ceil(ADAPT) {
            heavy = self.adapted(heavy, self.stretch(&mut synth, heavy, ADAPT, 8));
        }
        let light = (heavy / 10).max(1);
        let mut bursts = 1;
        let mut total = Stretch::default();
        let stretches = count(self.runtime_s).div_ceil(ADAPT);
        for number in 0..stretches {
            // Governors and load balancers see a task that sleeps most of the time, then does not.
            let voices = if number % 2 == 0 { light } else { heavy };
            let stretch = self.stretch_until_gapless(&mut synth, voices, ADAPT, &mut bursts);
            total.add(&stretch);
        }
        Ok(LatencymarkResult {
            bursts,
            latency_ms: f64::from(bursts) * PERIOD.as_secs_f64() * 1e3,
            late_us: total
                .late
                .percentiles_us()
                .ok_or(LoadError::Nothing("burst"))?,
            underruns: total.underruns,
            voices: heavy,
            cpus: place.cpus,
            kinds_differ: place.kinds_differ,
            seconds: total.wall.as_secs_f64(),
        })
    }

    /// The number of voices that come nearer to the chosen share, a factor of two at most.
    fn adapted(&self, voices: usize, stretch: Stretch) -> usize {
        let factor = (self.load / stretch.share().max(1e-6)).clamp(0.5, 2.0);
        let wanted = (voices as f64 * factor).round() as usize;
        wanted.clamp(1, MOST_VOICES)
    }

    fn stretch(&self, synth: &mut Synth, voices: usize, number: u32, bursts: u32) -> Stretch {
        let mut bursts = bursts;
        play(synth, voices, number, &mut bursts, false)
    }

    fn stretch_until_gapless(
        &self,
        synth: &mut Synth,
        voices: usize,
        number: u32,
        bursts: &mut u32,
    ) -> Stretch {
        play(synth, voices, number, bursts, true)
    }

    /// Takes the calling thread to its cores and its priority.
    fn take_place(&self) -> Result<Place, LoadError> {
        let mut place = Place::default();
        if let Some((cpus, kinds_differ)) = cpus_of(Path::new("/"), self.cores) {
            let mask = cpus.mask();
            // SAFETY: 0 is the calling thread; the mask is passed with its size in bytes.
            let set =
                unsafe { libc::sched_setaffinity(0, size_of_val(&mask[..]), mask.as_ptr().cast()) };
            if set != 0 {
                return Err(LoadError::system("keep to these cores")(
                    io::Error::last_os_error(),
                ));
            }
            place = Place {
                cpus: cpus.to_string(),
                kinds_differ,
            };
        }
        if let Some(priority) = self.fifo {
            let parameter = libc::sched_param {
                sched_priority: priority.cast_signed(),
            };
            // SAFETY: 0 is the calling thread, and the parameter is a local that outlives the call.
            if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameter) } != 0 {
                return Err(LoadError::system("become a real-time thread")(
                    io::Error::last_os_error(),
                ));
            }
        }
        Ok(place)
    }
}

#[derive(Debug, Default)]
struct Place {
    cpus: String,
    kinds_differ: bool,
}

/// Bursts in this many seconds.
fn count(seconds: f64) -> u32 {
    (seconds * RATE / BURST as f64).ceil() as u32
}

/// What a stretch of bursts came to.
#[derive(Clone, Debug, Default)]
struct Stretch {
    rendering: Duration,
    wall: Duration,
    wakeup: Histogram,
    late: Histogram,
    underruns: u64,
}

impl Stretch {
    fn share(&self) -> f64 {
        self.rendering.as_secs_f64() / self.wall.as_secs_f64().max(1e-9)
    }

    fn add(&mut self, more: &Stretch) {
        self.rendering += more.rendering;
        self.wall += more.wall;
        self.wakeup.merge(&more.wakeup);
        self.late.merge(&more.late);
        self.underruns += more.underruns;
    }
}

/// Plays bursts against the sink; `grow` makes the buffer larger after a gap.
fn play(synth: &mut Synth, voices: usize, number: u32, bursts: &mut u32, grow: bool) -> Stretch {
    let voices = voices.min(synth.most());
    let mut stretch = Stretch::default();
    let begun = Instant::now();
    // When the sink takes the next burst. A full buffer is played before it.
    let mut taken = begun + PERIOD * *bursts;
    for _ in 0..number {
        // There is room once the sink has taken the burst that lies a whole buffer back.
        let room = taken - PERIOD * *bursts;
        let waited = sleep_until(room);
        let awake = Instant::now();
        if waited {
            stretch.wakeup.record(nanos(awake - room));
        }
        synth.render(voices);
        let done = Instant::now();
        stretch.rendering += done - awake;
        stretch
            .late
            .record(nanos(done.saturating_duration_since(room)));
        if done > taken {
            stretch.underruns += 1;
            if grow {
                *bursts = (*bursts + 1).min(MOST_BURSTS);
            }
            // The sink has played silence meanwhile, and the buffer fills anew.
            taken = done + PERIOD * *bursts;
        }
        taken += PERIOD;
    }
    stretch.wall = begun.elapsed();
    stretch
}

/// Sleeps until a moment; whether there was anything to wait for.
fn sleep_until(moment: Instant) -> bool {
    let left = moment.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return false;
    }
    std::thread::sleep(left);
    true
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_takes_two_milliseconds_to_play() {
        assert_eq!(BURST as f64 / RATE, PERIOD.as_secs_f64());
        assert_eq!(count(1.0), 500);
    }

    #[test]
    fn a_gap_makes_the_buffer_larger() {
        // So many voices that no burst is ever there in time.
        let mut synth = Synth::new(MOST_VOICES);
        let mut bursts = 1;
        let stretch = play(&mut synth, MOST_VOICES, 5, &mut bursts, true);
        assert_eq!((stretch.underruns, bursts), (5, 6));
        let mut fixed = 1;
        play(&mut synth, MOST_VOICES, 2, &mut fixed, false);
        assert_eq!(fixed, 1);
    }
}
