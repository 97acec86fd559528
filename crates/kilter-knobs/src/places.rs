//! Where kilter's own files lie.

use std::path::{Path, PathBuf};

/// Directories of the catalog and of the state that outlives a boot.
#[derive(Clone, Debug)]
pub struct Places {
    /// Catalog directories, later ones override earlier ones by name.
    pub catalogs: Vec<PathBuf>,
    /// Where profiles are saved (the last catalog).
    pub own_catalog: PathBuf,
    /// Studies and evidence.
    pub state: PathBuf,
}

impl Places {
    /// The places below a root; root's own, or those of a user without root.
    pub fn new(root: &Path, is_root: bool) -> Self {
        let below = |path: &str| root.join(path);
        let mut catalogs = vec![below("usr/share/kilter"), below("etc/kilter")];
        let redirected = root != Path::new("/");
        let state = match (
            is_root || redirected,
            user_dir("XDG_DATA_HOME", ".local/share"),
        ) {
            (false, Some(data)) => data,
            _ => below("var/lib/kilter"),
        };
        if !is_root && !redirected {
            catalogs.extend(user_dir("XDG_CONFIG_HOME", ".config"));
        }
        let own_catalog = catalogs.last().expect("has two at least").clone();
        Places {
            catalogs,
            own_catalog,
            state,
        }
    }

    /// The directory of the studies.
    pub fn studies(&self) -> PathBuf {
        self.state.join("studies")
    }

    /// The file of the evidence.
    pub fn evidence(&self) -> PathBuf {
        self.state.join("evidence.jsonl")
    }
}

fn user_dir(variable: &str, default: &str) -> Option<PathBuf> {
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    let named = std::env::var_os(variable)
        .map(PathBuf::from)
        .and_then(absolute);
    let usual = || {
        std::env::var_os("HOME")
            .map(PathBuf::from)
            .and_then(absolute)
            .map(|home| home.join(default))
    };
    named.or_else(usual).map(|dir| dir.join("kilter"))
}
