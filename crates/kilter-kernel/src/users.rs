//! Names of users: `/etc/passwd` below the root first, then, on this machine, whatever else the C
//! library asks (LDAP, systemd).

use std::ffi::{CStr, CString};
use std::io;
use std::path::Path;

/// Room for one entry of the user database; more than any sane one takes.
const ENTRY_BYTES: usize = 16 << 10;

/// The user id of a name; none if nobody is called so.
///
/// # Errors
/// The user database did not answer.
pub fn uid_of(root: &Path, name: &str) -> io::Result<Option<u32>> {
    let found = lines(root, |entry, uid| (entry == name).then_some(uid));
    match (found, CString::new(name)) {
        (Some(uid), _) => Ok(Some(uid)),
        (None, Ok(name)) if root == Path::new("/") => {
            let found = lookup(|entry, buffer, result| {
                // SAFETY: the name is a C string, and `lookup` gives pointers that are valid.
                unsafe {
                    libc::getpwnam_r(
                        name.as_ptr(),
                        entry,
                        buffer.as_mut_ptr(),
                        ENTRY_BYTES,
                        result,
                    )
                }
            })?;
            Ok(found.map(|(uid, _)| uid))
        }
        _ => Ok(None),
    }
}

/// The user id of somebody who has to exist.
///
/// # Errors
/// Nobody is called so, or the user database did not answer; in words.
pub fn known_uid(root: &Path, name: &str) -> Result<u32, String> {
    uid_of(root, name)
        .map_err(|error| format!("user {name:?} cannot be looked up: {error}"))?
        .ok_or_else(|| format!("there is no user {name:?}"))
}

/// The name of a user id; none if it has none.
pub fn name_of(root: &Path, uid: u32) -> Option<String> {
    let listed = lines(root, |name, found| (found == uid).then(|| name.to_owned()));
    if listed.is_some() || root != Path::new("/") {
        return listed;
    }
    let found = lookup(|entry, buffer, result| {
        // SAFETY: `lookup` gives pointers that are valid.
        unsafe { libc::getpwuid_r(uid, entry, buffer.as_mut_ptr(), ENTRY_BYTES, result) }
    });
    found.ok()?.map(|(_, name)| name)
}

fn lines<T>(root: &Path, fits: impl Fn(&str, u32) -> Option<T>) -> Option<T> {
    let text = std::fs::read(root.join("etc/passwd")).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, uid) = (fields.next()?, fields.nth(1)?);
        fits(name, uid.parse().ok()?)
    })
}

fn lookup(
    ask: impl FnOnce(*mut libc::passwd, &mut [libc::c_char], *mut *mut libc::passwd) -> i32,
) -> io::Result<Option<(u32, String)>> {
    // SAFETY: all zeros is a passwd of null pointers, which is what the call is to fill.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut buffer = vec![0; ENTRY_BYTES];
    let mut result = std::ptr::null_mut();
    match ask(&raw mut entry, &mut buffer, &raw mut result) {
        // Some databases say "not found" with an error (getpwnam(3)).
        0 | libc::ENOENT | libc::ESRCH if result.is_null() => Ok(None),
        0 => {
            // SAFETY: the call succeeded, so the name is a C string within `buffer`.
            let name = unsafe { CStr::from_ptr(entry.pw_name) };
            Ok(Some((entry.pw_uid, name.to_string_lossy().into_owned())))
        }
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_up_below_the_root() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("etc")).unwrap();
        let text = "root:x:0:0::/:/bin/sh\nodd\nalice:x:1000:1000:A:/home/alice:/bin/sh\n";
        std::fs::write(dir.path().join("etc/passwd"), text).unwrap();
        assert_eq!(uid_of(dir.path(), "alice").unwrap(), Some(1000));
        assert_eq!(name_of(dir.path(), 1000).as_deref(), Some("alice"));
        for nobody in ["bob", "", "odd", "a\0b", "nobody"] {
            assert_eq!(uid_of(dir.path(), nobody).unwrap(), None, "{nobody:?}");
        }
        assert_eq!(name_of(dir.path(), 65534), None);
    }

    #[test]
    fn this_machine_knows_root() {
        assert_eq!(uid_of(Path::new("/"), "root").unwrap(), Some(0));
        assert_eq!(name_of(Path::new("/"), 0).as_deref(), Some("root"));
        assert_eq!(uid_of(Path::new("/"), "no such user").unwrap(), None);
        assert_eq!(name_of(Path::new("/"), 4_000_000_000), None);
    }
}
