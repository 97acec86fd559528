//! Files that a person asked for: written whole or not at all, and never through a link that
//! somebody else laid.

use crate::fail::Failure;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes a file in one step. A link at `path` is replaced and not followed; what is no file (a
/// directory, a device) is refused.
pub fn write_whole(option: &str, path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let fail = |problem: String| Failure::new(format!("{option} {}: {problem}", path.display()));
    let Some(name) = path.file_name() else {
        return Err(fail("this is no name of a file".to_owned()));
    };
    let plain = |kind: fs::FileType| kind.is_file() || kind.is_symlink();
    match fs::symlink_metadata(path) {
        Ok(found) if !plain(found.file_type()) => {
            return Err(fail("this is not a file".to_owned()));
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(plainly(&error))),
        _ => {}
    }
    let mut part = std::ffi::OsString::from(".");
    part.push(name);
    part.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(part);
    // `create_new` refuses whatever is there, a link too.
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(&part)
        .map_err(|error| fail(plainly(&error)))?;
    let written = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&part, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&part);
        fail(plainly(&error))
    })
}

/// The system's reason without its number.
fn plainly(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_replaced_and_a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (victim, path) = (dir.path().join("victim"), dir.path().join("out.json"));
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, &path).unwrap();
        write_whole("--output", &path, b"new").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        write_whole("--output", &path, b"newer").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "newer");
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            2,
            "no part is left"
        );
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for path in [
            dir.path(),
            Path::new("/dev/null"),
            Path::new("/"),
            Path::new("/no/such/directory/x"),
            &dir.path().join(".."),
        ] {
            let failure = write_whole("--output", path, b"x").unwrap_err();
            assert!(failure.message().starts_with("--output /"), "{path:?}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
