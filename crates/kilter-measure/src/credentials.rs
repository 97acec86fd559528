//! Whom the workload runs as.
//!
//! kilter needs root to change settings; the workload seldom does. Under sudo it goes back to the
//! person who called, with all of that person's groups and home, so that a measured build does not
//! leave files of root behind.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A user to become before the command is executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// User id; real, effective and saved.
    pub uid: u32,
    /// Primary group id; real, effective and saved.
    pub gid: u32,
    /// Supplementary groups; replaces those of the caller.
    pub groups: Vec<u32>,
    /// Becomes `USER` and `LOGNAME`.
    pub name: OsString,
    /// Becomes `HOME`.
    pub home: OsString,
}

/// Why a user could not be looked up.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The variable that sudo sets holds something else than an id.
    #[error(
        "{variable} is {value:?}, not a user or group id; run kilter with --as-root, or unset it"
    )]
    NotAnId {
        /// `SUDO_UID` or `SUDO_GID`.
        variable: &'static str,
        /// What it holds.
        value: OsString,
    },
    /// The user database did not answer.
    #[error("cannot look up user {uid}: {source}")]
    Lookup {
        /// The user id.
        uid: u32,
        /// What the C library says.
        source: std::io::Error,
    },
}

impl Credentials {
    /// Everything that the user database knows about `uid`. A user that is not in it gets no
    /// supplementary groups, its number for a name, and `/` for a home.
    ///
    /// # Errors
    /// The user database did not answer.
    pub fn of(uid: u32, gid: u32) -> Result<Self, CredentialsError> {
        let lookup = |source| CredentialsError::Lookup { uid, source };
        let Some(entry) = passwd_entry(uid).map_err(lookup)? else {
            let name = uid.to_string().into();
            return Ok(Self {
                uid,
                gid,
                groups: vec![gid],
                name,
                home: "/".into(),
            });
        };
        Ok(Self {
            uid,
            gid,
            groups: groups_of(&entry.name, gid),
            name: OsString::from_vec(entry.name.into_bytes()),
            home: entry.home,
        })
    }

    /// The environment variables that change with the user.
    pub(crate) fn environment(&self) -> [(&'static OsStr, &OsStr); 3] {
        [
            (OsStr::new("HOME"), &self.home),
            (OsStr::new("USER"), &self.name),
            (OsStr::new("LOGNAME"), &self.name),
        ]
    }
}

/// The person who called sudo, by `SUDO_UID` and `SUDO_GID`; nothing unless this process is root
/// and the caller was not. Anyone can set these variables, so they count only for becoming less.
///
/// # Errors
/// A variable that holds no id, or a user database that does not answer.
pub fn invoking_user() -> Result<Option<Credentials>, CredentialsError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    invoking_user_from(&|name| std::env::var_os(name))
}

fn invoking_user_from(
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Option<Credentials>, CredentialsError> {
    let Some(uid) = id_from("SUDO_UID", variable)? else {
        return Ok(None);
    };
    if uid == 0 {
        return Ok(None);
    }
    let gid = id_from("SUDO_GID", variable)?.unwrap_or(uid);
    Credentials::of(uid, gid).map(Some)
}

fn id_from(
    name: &'static str,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Option<u32>, CredentialsError> {
    let Some(value) = variable(name) else {
        return Ok(None);
    };
    // The all-ones id means "leave unchanged" to setresuid(2): with it nothing would be dropped.
    let id = value
        .to_str()
        .and_then(|text| text.parse().ok())
        .filter(|&id| id != u32::MAX);
    match id {
        Some(id) => Ok(Some(id)),
        None => Err(CredentialsError::NotAnId {
            variable: name,
            value,
        }),
    }
}

struct PasswdEntry {
    name: CString,
    home: OsString,
}

fn passwd_entry(uid: u32) -> std::io::Result<Option<PasswdEntry>> {
    let mut buffer = vec![0_u8; 1024];
    loop {
        let mut found = std::ptr::null_mut();
        // SAFETY: `entry` is plain data that the call fills; the buffer lives as long as what is
        // read from the entry below, and its length is passed.
        let (code, mut entry) = unsafe {
            let mut entry: libc::passwd = std::mem::zeroed();
            let text = buffer.as_mut_ptr().cast();
            (
                libc::getpwuid_r(uid, &mut entry, text, buffer.len(), &mut found),
                entry,
            )
        };
        if code == libc::ERANGE && buffer.len() < 1 << 20 {
            buffer.resize(buffer.len() * 2, 0);
            continue;
        }
        if code == libc::EINTR {
            continue;
        }
        // These say "no such user", in the words of the manual page of getpwnam(3).
        let absent = [0, libc::ENOENT, libc::ESRCH, libc::EBADF, libc::EPERM].contains(&code);
        if found.is_null() {
            return if absent {
                Ok(None)
            } else {
                Err(std::io::Error::from_raw_os_error(code))
            };
        }
        let empty = c"".as_ptr().cast_mut();
        for field in [&mut entry.pw_name, &mut entry.pw_dir] {
            if field.is_null() {
                *field = empty;
            }
        }
        // SAFETY: the call succeeded, so both fields point to strings inside `buffer`, or are the
        // empty string set just above.
        let (name, home) = unsafe { (CStr::from_ptr(entry.pw_name), CStr::from_ptr(entry.pw_dir)) };
        let home = OsStr::from_bytes(home.to_bytes()).to_owned();
        return Ok(Some(PasswdEntry {
            name: name.to_owned(),
            home,
        }));
    }
}

fn groups_of(name: &CStr, gid: u32) -> Vec<u32> {
    let mut groups = vec![0_u32; 32];
    loop {
        let mut count = i32::try_from(groups.len()).unwrap_or(i32::MAX);
        // SAFETY: `groups` holds `count` elements, and the name is a C string.
        let got =
            unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &mut count) };
        let needed = usize::try_from(count).unwrap_or(0);
        if got >= 0 || groups.len() >= 65_536 {
            groups.truncate(needed);
            return groups;
        }
        let larger = needed.max(groups.len() * 2);
        groups.resize(larger, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(pairs: &[(&str, &str)]) -> Result<Option<Credentials>, CredentialsError> {
        let find = |name: &str| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| OsString::from(*value))
        };
        invoking_user_from(&find)
    }

    #[test]
    fn no_sudo_and_root_by_sudo_change_nobody() {
        assert_eq!(from(&[]).unwrap(), None);
        assert_eq!(from(&[("SUDO_UID", "0"), ("SUDO_GID", "0")]).unwrap(), None);
    }

    #[test]
    fn a_user_without_an_entry_has_its_own_group_only() {
        let user = from(&[("SUDO_UID", "3999999999"), ("SUDO_GID", "3999999998")])
            .unwrap()
            .unwrap();
        assert_eq!((user.uid, user.gid), (3_999_999_999, 3_999_999_998));
        assert_eq!(user.groups, [3_999_999_998]);
        assert_eq!((user.name, user.home), ("3999999999".into(), "/".into()));
    }

    #[test]
    fn a_known_user_comes_with_name_home_and_groups() {
        // Root is the one user that every machine has.
        let user = Credentials::of(0, 0).unwrap();
        assert_eq!(user.name, "root");
        assert!(user.groups.contains(&0));
        assert!(user.home.as_bytes().starts_with(b"/"));
    }

    #[test]
    fn what_is_no_id_is_an_error_and_never_root() {
        for value in ["", "x", "-1", "4294967295", "4294967296", "1000 "] {
            let error = from(&[("SUDO_UID", value)]).unwrap_err();
            assert!(error.to_string().contains("SUDO_UID"), "{error}");
        }
        assert!(from(&[("SUDO_UID", "1000"), ("SUDO_GID", "x")]).is_err());
    }
}
