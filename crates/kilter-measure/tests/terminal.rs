//! On a terminal, under a shell with job control: Ctrl-C, Ctrl-Z and `fg`, reading the terminal.
//!
//! Each scenario starts a shell on a pseudo-terminal of its own; the shell runs this program again,
//! which measures a command as kilter would.

mod common;

use kilter_api::Outcome;
use kilter_measure::{Job, Signals, Stdin, Warning};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const MEASURE: &str = "KILTER_TEST_MEASURE";
const PATIENCE: Duration = Duration::from_secs(30);

fn main() {
    if let Ok(script) = std::env::var(MEASURE) {
        return measure(&script);
    }
    let scenarios: [(&str, fn()); 6] = [
        ("ctrl_c_reaches_the_command", ctrl_c_reaches_the_command),
        (
            "ctrl_c_reaches_kilter_without_input",
            ctrl_c_reaches_kilter_without_input,
        ),
        (
            "the_command_reads_the_terminal",
            the_command_reads_the_terminal,
        ),
        ("ctrl_z_and_back", ctrl_z_and_back),
        ("ctrl_z_without_input", ctrl_z_without_input),
        (
            "from_the_background_to_the_foreground",
            from_the_background_to_the_foreground,
        ),
    ];
    for (name, scenario) in scenarios {
        print!("test {name} ... ");
        scenario();
        println!("ok");
    }
}

/// Measures a script, `null:` before it for no input, and says how it went.
fn measure(script: &str) {
    let null = script.strip_prefix("null:");
    let mut job = Job::new(["sh", "-c", null.unwrap_or(script)]);
    if null.is_some() {
        job.stdin = Stdin::Null;
    }
    let signals = Signals::take().unwrap();
    let measured = kilter_measure::run(&job, &signals, |_| ()).unwrap();
    let suspended = measured
        .warnings
        .iter()
        .any(|w| matches!(w, Warning::Suspended { .. }));
    // SAFETY: both only read ids.
    let ours = unsafe { libc::tcgetpgrp(0) == libc::getpgrp() };
    let outcome = match measured.outcome {
        Outcome::Exited { code } => format!("exited {code}"),
        other => format!("{other:?} {:?}", measured.signal),
    };
    println!("result: {outcome}, suspended {suspended}, terminal back {ours}");
}

/// A shell on a terminal.
struct Session {
    shell: Child,
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    seen: String,
}

impl Session {
    /// Starts `shell_script`, in which `MEASURE` measures `script`.
    fn start(shell_script: &str, script: &str) -> Self {
        let (master, slave) = pty();
        let program = std::env::current_exe().unwrap();
        let shell_script = shell_script.replace("MEASURE", program.to_str().unwrap());
        // The shell stays until it is killed: what the terminal still holds when its last user goes
        // after a Ctrl-C (which flushes it) may be lost.
        let shell_script = format!("set -m; {shell_script}; read end");
        let mut command = Command::new("sh");
        command.args(["-c", &shell_script]).env(MEASURE, script);
        let stream = || slave.try_clone().unwrap();
        command.stdin(stream()).stdout(stream()).stderr(stream());
        // SAFETY: two system calls, both allowed between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let shell = command.spawn().unwrap();
        let keyboard = File::from(master);
        let mut reader = keyboard.try_clone().unwrap();
        let (sender, screen) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read) = reader.read(&mut buffer) {
                if read == 0 || sender.send(buffer[..read].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self {
            shell,
            keyboard,
            screen,
            seen: String::new(),
        }
    }

    /// Waits until the screen shows `text` after what was expected before.
    fn expect(&mut self, text: &str) {
        let start = Instant::now();
        loop {
            if let Some(at) = self.seen.find(text) {
                self.seen.drain(..at + text.len());
                return;
            }
            match self.screen.recv_timeout(Duration::from_millis(200)) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) if start.elapsed() < PATIENCE => {}
                Err(error) => panic!(
                    "no {text:?} on the screen, but {:?} ({error}); the shell: {:?}\n{}",
                    self.seen,
                    self.shell.try_wait(),
                    self.processes(),
                ),
            }
        }
    }

    /// Who is there, and who has the terminal.
    fn processes(&self) -> String {
        let session = self.shell.id().to_string();
        let columns = "pid,ppid,pgid,tpgid,stat,wchan,args";
        let output = Command::new("ps")
            .args(["-o", columns, "-s", &session])
            .output();
        output.map_or_else(
            |e| e.to_string(),
            |o| String::from_utf8_lossy(&o.stdout).into_owned(),
        )
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

fn pty() -> (OwnedFd, OwnedFd) {
    let (mut master, mut slave) = (-1, -1);
    let none = std::ptr::null_mut();
    // SAFETY: fills two descriptors; the other arguments may be null.
    let made = unsafe { libc::openpty(&mut master, &mut slave, none, none.cast(), none.cast()) };
    assert_eq!(made, 0, "a pseudo-terminal");
    // SAFETY: both are new and nobody else's.
    let pair = unsafe { (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
    for fd in [&pair.0, &pair.1] {
        // SAFETY: sets a flag of a descriptor.
        unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    pair
}

fn ctrl_c_reaches_the_command() {
    let mut session = Session::start("MEASURE; echo end", "echo ready; exec sleep 300");
    session.expect("ready");
    session.press("\x03");
    session.expect("result: Interrupted Some(2), suspended false, terminal back true");
    session.expect("end");
    // A command that handles Ctrl-C decides itself how it ends.
    let mut session = Session::start(
        "MEASURE; echo end",
        "trap 'exit 9' INT; echo ready; while :; do sleep 0.05; done",
    );
    session.expect("ready");
    session.press("\x03");
    session.expect("result: exited 9, suspended false, terminal back true");
}

fn ctrl_c_reaches_kilter_without_input() {
    let mut session = Session::start("MEASURE; echo end", "null:echo ready; exec sleep 300");
    session.expect("ready");
    session.press("\x03");
    session.expect("result: Interrupted Some(2), suspended false, terminal back true");
    session.expect("end");
}

fn the_command_reads_the_terminal() {
    let mut session = Session::start(
        "MEASURE; echo end",
        "echo ready; read line; echo got-$line; exit 4",
    );
    session.expect("ready");
    session.press("words\n");
    session.expect("got-words");
    session.expect("result: exited 4, suspended false, terminal back true");
}

fn ctrl_z_and_back() {
    let script = "echo ready; read line; echo got-$line";
    let mut session = Session::start("MEASURE; echo stopped-$?; fg; echo end-$?", script);
    session.expect("ready");
    session.press("\x1a");
    session.expect(&format!("stopped-{}", 128 + libc::SIGTSTP));
    // Only the foreground may read: the line arrives because the command has become it again.
    session.press("more\n");
    session.expect("got-more");
    session.expect("result: exited 0, suspended true, terminal back true");
    session.expect("end-0");
}

fn ctrl_z_without_input() {
    let script =
        "null:echo ready; i=0; while [ $i -lt 20 ]; do sleep 0.05; i=$((i+1)); done; echo counted";
    let mut session = Session::start("MEASURE; echo stopped-$?; fg; echo end-$?", script);
    session.expect("ready");
    session.press("\x1a");
    session.expect(&format!("stopped-{}", 128 + libc::SIGTSTP));
    session.expect("counted");
    session.expect("result: exited 0, suspended true, terminal back true");
    session.expect("end-0");
}

fn from_the_background_to_the_foreground() {
    // The read in the background stops the command, and kilter with it, until `fg`.
    let script = "echo ready; read line; echo got-$line";
    let stopped = "until grep -q '^State:.*T' /proc/$!/status; do sleep 0.05; done";
    let shell = format!("MEASURE & {stopped}; echo stopped; fg; echo end-$?");
    let mut session = Session::start(&shell, script);
    session.expect("ready");
    session.expect("stopped");
    session.press("words\n");
    session.expect("got-words");
    session.expect("result: exited 0, suspended true, terminal back true");
    session.expect("end-0");
}
