//! The Magisk or KernelSU module: a zip of a few stored files.

use kilter_api::Profile;
use std::io::{Cursor, Write};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

/// What Magisk's own installer and recoveries look for; the installer proper is Magisk's.
const UPDATE_BINARY: &str = r#"#!/sbin/sh
# Hands over to the installer that Magisk brings.
umask 022
OUTFD=$2
ZIPFILE=$3
if [ ! -f /data/adb/magisk/util_functions.sh ]; then
  echo "ui_print Magisk 20.4 or later is needed" >"/proc/self/fd/$OUTFD"
  exit 1
fi
. /data/adb/magisk/util_functions.sh
install_module
exit 0
"#;

/// The module of an exported script.
pub fn magisk_module(profile: &Profile, script: &str) -> Vec<u8> {
    let id = format!("kilter_{}", profile.name.replace(['-', '.'], "_"));
    let summary: Vec<&str> = profile.summary.split_whitespace().collect();
    let properties = format!(
        "id={id}\nname=kilter {}\nversion={}\nversionCode=1\nauthor=kilter\ndescription={}\n",
        profile.name,
        env!("CARGO_PKG_VERSION"),
        summary.join(" "),
    );
    let uninstall = "#!/system/bin/sh\nsh \"${0%/*}/service.sh\" --revert\n";
    archive(&[
        ("META-INF/com/google/android/update-binary", UPDATE_BINARY),
        ("META-INF/com/google/android/updater-script", "#MAGISK\n"),
        ("module.prop", &properties),
        ("service.sh", script),
        ("uninstall.sh", uninstall),
    ])
    .expect("a few small files in memory make a zip")
}

/// Stored as they are, all executable, of 1 January 1980: the same profile gives the same bytes.
fn archive(files: &[(&str, &str)]) -> zip::result::ZipResult<Vec<u8>> {
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .last_modified_time(DateTime::default())
        .unix_permissions(0o755);
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, text) in files {
        archive.start_file(*name, options)?;
        archive.write_all(text.as_bytes())?;
    }
    Ok(archive.finish()?.into_inner())
}
