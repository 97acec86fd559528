//! The Magisk or KernelSU module: a zip of a few stored files.

use kilter_api::Profile;

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
}

/// A zip with its files stored as they are.
fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (name, text) in files {
        let start = bytes.len() as u32;
        // Version 1.0, no flags, stored, 1 January 1980: the same profile gives the same bytes.
        let mut common = Vec::new();
        for half in [10u16, 0, 0, 0, 0x21] {
            common.extend(half.to_le_bytes());
        }
        for word in [crc32(text.as_bytes()), text.len() as u32, text.len() as u32] {
            common.extend(word.to_le_bytes());
        }
        common.extend((name.len() as u16).to_le_bytes());
        common.extend(0u16.to_le_bytes());
        bytes.extend(b"PK\x03\x04");
        bytes.extend(&common);
        bytes.extend(name.as_bytes());
        bytes.extend(text.as_bytes());
        // Made on Unix, which gives the attributes their meaning: a file that all may execute.
        directory.extend(b"PK\x01\x02");
        directory.extend(0x031eu16.to_le_bytes());
        directory.extend(&common);
        for half in [0u16, 0, 0] {
            directory.extend(half.to_le_bytes());
        }
        directory.extend((0o100_755u32 << 16).to_le_bytes());
        directory.extend(start.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let (start, size, count) = (
        bytes.len() as u32,
        directory.len() as u32,
        files.len() as u16,
    );
    bytes.extend(directory);
    bytes.extend(b"PK\x05\x06");
    for half in [0, 0, count, count] {
        bytes.extend(half.to_le_bytes());
    }
    bytes.extend(size.to_le_bytes());
    bytes.extend(start.to_le_bytes());
    bytes.extend(0u16.to_le_bytes());
    bytes
}

/// The checksum of zip files (CRC-32, reflected polynomial 0xEDB88320).
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |mut crc, &byte| {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg());
        }
        crc
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_zip() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(crc32(b""), 0);
    }
}
