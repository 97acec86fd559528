//! What was written to the copies, in order, by the kernel's own news of it.

use super::originals::{Original, Originals};
use super::{Recording, Written};
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// No value is longer.
const MOST_TEXT: u64 = 16 << 10;

/// No script that means well writes more often.
const MOST_WRITES: usize = 20_000;

/// Events that are read at a time: those who write faster than they are read must not keep the
/// reader from looking at the clock.
const MOST_EVENTS: usize = 1 << 16;

/// No script that means well leaves more files.
const MOST_FILES: usize = 100;

/// Files made there are nobody's settings.
const TEMPORARY: [&str; 8] = [
    "/tmp",
    "/run",
    "/var/tmp",
    "/var/log",
    "/var/run",
    "/dev",
    "/proc",
    "/data/local/tmp",
];

/// Follows the copies.
pub(super) struct Recorder {
    news: OwnedFd,
    /// Directory by the number of its watch.
    watched: HashMap<i32, String>,
    files: BTreeMap<String, Vec<u8>>,
    last: HashMap<String, Vec<u8>>,
    writes: Vec<Written>,
    before: BTreeSet<String>,
}

impl Recorder {
    /// Begins to follow; the view must have been entered.
    pub(super) fn begin(originals: &Originals) -> io::Result<Self> {
        let news = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let mut recorder = Recorder {
            news,
            watched: HashMap::new(),
            files: BTreeMap::new(),
            last: HashMap::new(),
            writes: Vec::new(),
            before: BTreeSet::new(),
        };
        for (path, original) in originals.iter() {
            if let Original::File { text, .. } = original {
                recorder.files.insert(path.to_owned(), text.clone());
                recorder.watch(Path::new(path).parent())?;
            }
        }
        recorder.before = other_files(&recorder.files);
        Ok(recorder)
    }

    fn watch(&mut self, dir: Option<&Path>) -> io::Result<()> {
        let dir = dir.and_then(Path::to_str).unwrap_or("/");
        let flags = WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE | WatchFlags::ONLYDIR;
        let number = add_watch(&self.news, dir, flags)?;
        self.watched.insert(number, dir.to_owned());
        Ok(())
    }

    /// Takes down what has been written since the last time.
    pub(super) fn note(&mut self) {
        let mut touched: Vec<String> = Vec::new();
        let mut space = [MaybeUninit::uninit(); 8 << 10];
        let mut reader = Reader::new(&self.news, &mut space);
        for _ in 0..MOST_EVENTS {
            let Ok(event) = reader.next() else { break };
            let name = event.file_name().map(|name| name.to_string_lossy());
            let (Some(dir), Some(name)) = (self.watched.get(&event.wd()), name) else {
                continue;
            };
            let path = format!("{dir}/{name}");
            let written = event.events().contains(ReadFlags::MODIFY);
            if written && touched.last() != Some(&path) {
                touched.push(path);
            }
        }
        let mut seen = BTreeSet::new();
        let again: Vec<String> = touched
            .into_iter()
            .rev()
            .filter(|path| seen.insert(path.clone()))
            .collect();
        for path in again.into_iter().rev() {
            self.take(path);
        }
    }

    /// Takes down what a copy holds after a write. It may have been emptied, to be written next.
    fn take(&mut self, path: String) {
        if !self.files.contains_key(&path) || self.writes.len() >= MOST_WRITES {
            return;
        }
        let Some(text) = text_of(&path) else {
            return;
        };
        let known = self.last.get(&path);
        // What is appended to an open file is a write of its own.
        let fresh = match known {
            Some(known) if text.starts_with(known) && text.len() > known.len() => {
                text[known.len()..].to_vec()
            }
            _ => text.clone(),
        };
        self.last.insert(path.clone(), text);
        for line in String::from_utf8_lossy(&fresh).lines() {
            let text = line.trim().to_owned();
            if !text.is_empty() {
                let path = path.clone();
                self.writes.push(Written { path, text });
            }
        }
    }

    /// What was written, once every process is dead.
    pub(super) fn finish(mut self) -> Recording {
        self.note();
        let missed: Vec<String> = self
            .files
            .iter()
            .filter(|(path, original)| {
                !self.last.contains_key(*path)
                    && text_of(path).is_some_and(|text| text != **original && !text.is_empty())
            })
            .map(|(path, _)| path.clone())
            .collect();
        for path in missed {
            self.take(path);
        }
        let after = other_files(&self.files);
        let made = after.difference(&self.before).take(MOST_FILES);
        Recording {
            files: made.cloned().collect(),
            writes: self.writes,
            ..Recording::default()
        }
    }
}

/// The text of a copy, if it is still a plain file at its place.
fn text_of(path: &str) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let root = openat(CWD, "/", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let inside = path.trim_start_matches('/');
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let file = File::from(openat2(&root, inside, flags, Mode::empty(), resolve).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    file.take(MOST_TEXT).read_to_end(&mut text).ok()?;
    Some(text)
}

/// Files in the view's memory that are no copies and not temporary.
fn other_files(copies: &BTreeMap<String, Vec<u8>>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut dirs = vec![(Path::new("/").to_owned(), 0)];
    let device = |path: &Path| {
        use std::os::unix::fs::MetadataExt;
        fs::symlink_metadata(path).ok().map(|found| found.dev())
    };
    let memory = device(Path::new("/"));
    while let Some((dir, depth)) = dirs.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let shown = path.to_string_lossy().into_owned();
            if copies.contains_key(&shown)
                || TEMPORARY.contains(&shown.as_str())
                || device(&path) != memory
            {
                continue;
            }
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            match is_dir {
                true if depth < 16 => dirs.push((path, depth + 1)),
                true => {}
                false => drop(found.insert(shown)),
            }
            if found.len() > 100_000 {
                return found;
            }
        }
    }
    found
}

/// Whether a name on the disk is a process's number.
pub(super) fn is_number(name: &OsStr) -> bool {
    name.as_bytes().iter().all(u8::is_ascii_digit)
}
