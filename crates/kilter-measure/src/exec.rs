//! What is executed: the program's files, its arguments and its environment as C strings.

use crate::job::Job;
use crate::spawn::SpawnError;
use rustix::io::Errno;
use std::ffi::{CString, OsStr, OsString, c_char};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::ptr;

/// The program's candidates, arguments and environment as C strings.
pub(crate) struct Exec {
    candidates: Vec<CString>,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

/// Null-terminated arrays for execve(2).
pub(crate) struct Arrays {
    pub(crate) candidates: Vec<*const c_char>,
    pub(crate) arguments: Vec<*const c_char>,
    /// `/bin/sh`, a slot for the script, the arguments after the first: what execvp(3) does with a
    /// script that names no interpreter.
    pub(crate) by_shell: Vec<*const c_char>,
    pub(crate) environment: Vec<*const c_char>,
}

impl Exec {
    pub(crate) fn new(job: &Job) -> Result<Self, SpawnError> {
        let program = job
            .command
            .first()
            .filter(|word| !word.is_empty())
            .ok_or(SpawnError::Empty)?;
        let arguments = job
            .command
            .iter()
            .map(|word| c_string(word))
            .collect::<Result<_, _>>()?;
        let candidates = candidates(program, job)?;
        if candidates.is_empty() {
            return Err(SpawnError::NotFound(program.clone()));
        }
        Ok(Self {
            candidates,
            arguments,
            environment: environment(job)?,
        })
    }

    pub(crate) fn arrays(&self) -> Arrays {
        let array = |strings: &[CString]| -> Vec<*const c_char> {
            strings
                .iter()
                .map(|string| string.as_ptr())
                .chain([ptr::null()])
                .collect()
        };
        let mut by_shell = array(&self.arguments);
        by_shell.insert(0, c"/bin/sh".as_ptr());
        Arrays {
            candidates: self.candidates.iter().map(|path| path.as_ptr()).collect(),
            arguments: array(&self.arguments),
            by_shell,
            environment: array(&self.environment),
        }
    }
}

/// The files that the name may stand for, in order. What the command cannot reach is left out
/// here, so that the search costs nothing in the measured time, and a closed directory in `PATH` does
/// not turn "not found" into "not permitted".
fn candidates(program: &OsStr, job: &Job) -> Result<Vec<CString>, SpawnError> {
    if program.as_bytes().contains(&b'/') {
        return Ok(vec![c_string(program)?]);
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let may_exist = |path: &CString| match rustix::fs::stat(path) {
        Ok(_) => true,
        // Another user may see more than root does (network and FUSE file systems).
        Err(Errno::ACCESS) => job.user.is_some(),
        Err(_) => false,
    };
    let files =
        std::env::split_paths(&path).map(|folder| c_string(folder.join(program).as_os_str()));
    files
        .filter(|file| file.as_ref().map_or(true, may_exist))
        .collect()
}

fn environment(job: &Job) -> Result<Vec<CString>, SpawnError> {
    let changed = job
        .user
        .as_ref()
        .map(|user| user.environment())
        .into_iter()
        .flatten();
    let changed: Vec<_> = changed.collect();
    let kept =
        std::env::vars_os().filter(|(name, _)| !changed.iter().any(|(other, _)| other == name));
    let entries = kept.chain(
        changed
            .iter()
            .map(|&(name, value)| (name.into(), value.into())),
    );
    let entry = |(name, value): (OsString, OsString)| {
        c_string(&OsString::from_vec(
            [name.as_bytes(), b"=", value.as_bytes()].concat(),
        ))
    };
    entries.map(entry).collect()
}

fn c_string(text: &OsStr) -> Result<CString, SpawnError> {
    CString::new(text.as_bytes()).map_err(|_| SpawnError::ZeroByte(text.to_owned()))
}
