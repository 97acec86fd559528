//! A polyphonic synthesizer, the load of an audio thread: what a phone's or a desktop's most urgent
//! task really computes.
//!
//! Each voice has two sawtooth oscillators that are slightly out of tune, a low-frequency oscillator
//! that sweeps a resonant low-pass filter, and two envelopes. Every voice costs the same at all times:
//! notes follow each other without a pause, and a decayed one is computed like a loud one.

/// Frames per second.
pub(super) const RATE: f64 = 48_000.0;

/// Frames of one burst: 2 ms, what phones' audio hardware takes at a time.
pub(super) const BURST: usize = 96;

/// Frames that a note lasts at least; each voice's own length is up to twice that.
const NOTE: u32 = 12_000;

/// Keeps decaying numbers away from the denormal ones, which cost a hundred times as much.
const FLOOR: f32 = 1.0e-15;

/// Attack and decay per frame.
const ATTACK: f32 = 1.0 / 480.0;
const DECAY: f32 = 0.999_75;

#[derive(Clone, Debug)]
struct Voice {
    phases: [f32; 2],
    steps: [f32; 2],
    sweep: f32,
    sweep_step: f32,
    low: f32,
    band: f32,
    loudness: f32,
    brightness: f32,
    rising: bool,
    left: u32,
    random: u32,
}

impl Voice {
    fn new(seed: u32) -> Self {
        let mut voice = Voice {
            phases: [0.0; 2],
            steps: [0.0; 2],
            sweep: 0.0,
            sweep_step: 0.0,
            low: 0.0,
            band: 0.0,
            loudness: 0.0,
            brightness: 0.0,
            rising: true,
            left: 0,
            random: seed.wrapping_mul(2_654_435_761) | 1,
        };
        voice.strike();
        voice
    }

    /// The next note, by a generator of its own so that the same voices play the same.
    fn strike(&mut self) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        let key = (self.random % 36) as f32;
        let pitch = 110.0 * (key / 12.0).exp2();
        let per_frame = 2.0 / RATE as f32;
        self.steps = [pitch * per_frame, pitch * 1.005 * per_frame];
        self.sweep_step = (0.5 + (self.random >> 16 & 7) as f32) * per_frame;
        self.left = NOTE + self.random % NOTE;
        self.rising = true;
    }

    fn add_to(&mut self, burst: &mut [f32; BURST]) {
        for frame in burst {
            let mut wave = 0.0;
            for (phase, step) in self.phases.iter_mut().zip(self.steps) {
                *phase += step;
                if *phase >= 1.0 {
                    *phase -= 2.0;
                }
                wave += *phase;
            }
            self.sweep += self.sweep_step;
            if self.sweep >= 1.0 {
                self.sweep -= 2.0;
            }
            self.envelopes();
            // A state-variable filter (Chamberlin), its corner moved by the sweep and an envelope.
            let triangle = 1.0 - 2.0 * self.sweep.abs();
            let corner = (0.15 + 0.1 * triangle + 0.3 * self.brightness).min(0.9);
            let high = wave * 0.5 - self.low - 0.4 * self.band;
            self.band += corner * high + FLOOR;
            self.low += corner * self.band;
            *frame += self.low * self.loudness * 0.1;
        }
    }

    fn envelopes(&mut self) {
        if self.rising {
            self.loudness += ATTACK;
            self.rising = self.loudness < 1.0;
        } else {
            self.loudness = self.loudness * DECAY + FLOOR;
        }
        self.brightness = self.brightness * DECAY + self.loudness * (1.0 - DECAY);
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None => self.strike(),
        }
    }
}

/// Voices and the sound that they make together.
#[derive(Debug)]
pub(super) struct Synth {
    voices: Vec<Voice>,
    /// The loudest frame so far: without a use of the sound no compiler would compute it.
    pub(super) peak: f32,
}

impl Synth {
    pub(super) fn new(most: usize) -> Self {
        let seeds = 1..=u32::try_from(most).unwrap_or(u32::MAX);
        Synth {
            voices: seeds.map(Voice::new).collect(),
            peak: 0.0,
        }
    }

    /// How many voices there are at most.
    pub(super) fn most(&self) -> usize {
        self.voices.len()
    }

    /// Computes one burst of the first `voices`.
    pub(super) fn render(&mut self, voices: usize) {
        let mut burst = [0.0; BURST];
        for voice in self.voices.iter_mut().take(voices) {
            voice.add_to(&mut burst);
        }
        let loudest = burst
            .iter()
            .fold(0.0_f32, |most, frame| most.max(frame.abs()));
        self.peak = std::hint::black_box(self.peak.max(loudest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn voices_make_a_sound_that_stays_in_bounds() {
        let mut synth = Synth::new(4);
        for _ in 0..5_000 {
            synth.render(4);
        }
        assert!(synth.peak > 0.05 && synth.peak < 4.0, "{}", synth.peak);
        assert!(synth.voices.iter().all(|voice| voice.low.is_finite()));
        let mut silent = Synth::new(4);
        silent.render(0);
        assert_eq!(silent.peak, 0.0);
    }

    #[test]
    fn a_decayed_note_has_no_denormal_numbers() {
        let mut voice = Voice::new(7);
        let mut burst = [0.0; BURST];
        for _ in 0..20_000 {
            voice.left = u32::MAX;
            voice.add_to(&mut burst);
        }
        for number in [voice.loudness, voice.band, voice.low, voice.brightness] {
            assert!(number == 0.0 || number.is_normal(), "{number:e}");
        }
    }
}
