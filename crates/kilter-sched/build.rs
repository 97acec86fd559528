//! Compiles the arithmetic for the host and, with the feature `bpf`, the scheduler for the kernel.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The oldest clang that compiles the scheduler's iterators and 64-bit enumerators.
const OLDEST_CLANG: u32 = 16;

fn main() {
    println!("cargo::rerun-if-changed=src/bpf");
    println!("cargo::rerun-if-changed=src/host.c");
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rustc-check-cfg=cfg(scheduler)");
    cc::Build::new()
        .file("src/host.c")
        .include("src/bpf")
        .std("c11")
        .warnings_into_errors(true)
        .compile("kilter_hrrn");
    if env::var_os("CARGO_FEATURE_BPF").is_none() {
        return;
    }
    match clang() {
        Ok(clang) => {
            compile(&clang);
            println!("cargo::rustc-cfg=scheduler");
        }
        Err(problem) => println!(
            "cargo::warning=kilter is built without the HRRN scheduler: {problem} (Debian: apt-get install clang-16 or newer; CLANG names another)"
        ),
    }
}

fn clang() -> Result<String, String> {
    let names = match env::var("CLANG") {
        Ok(name) => vec![name],
        Err(_) => std::iter::once("clang".to_owned())
            .chain((OLDEST_CLANG..=24).rev().map(|n| format!("clang-{n}")))
            .collect(),
    };
    let mut problem = "clang is missing".to_owned();
    for name in names {
        match version(&name) {
            Some(found) if found >= OLDEST_CLANG => return Ok(name),
            Some(found) => {
                problem = format!("clang {OLDEST_CLANG} is needed and `{name}` is clang {found}");
            }
            None => {}
        }
    }
    Err(problem)
}

fn version(clang: &str) -> Option<u32> {
    let output = Command::new(clang).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, rest) = text.split_once("version ")?;
    rest.split('.').next()?.parse().ok()
}

fn compile(clang: &str) {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap()).join("hrrn.bpf.o");
    // libbpf's own headers, as its crate installs them.
    let headers = env::var("DEP_BPF_INCLUDE").unwrap();
    let status = Command::new(clang)
        .args([
            "-g", "-O2", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3",
        ])
        .arg(format!("-I{headers}"))
        // The object then does not depend on where it was built.
        .arg(format!(
            "-ffile-prefix-map={}=.",
            env::var("CARGO_MANIFEST_DIR").unwrap()
        ))
        .args(["-c", "src/bpf/hrrn.bpf.c", "-o"])
        .arg(&out)
        .status()
        .unwrap_or_else(|error| panic!("{clang}: {error}"));
    assert!(
        status.success(),
        "{clang} could not compile src/bpf/hrrn.bpf.c"
    );
    strip(clang, &out);
}

/// Drops DWARF, which only debuggers read; BTF stays. Without the tool the object is larger.
fn strip(clang: &str, object: &Path) {
    let tool = clang.replacen("clang", "llvm-strip", 1);
    let _ = Command::new(tool).arg("-g").arg(object).status();
    assert!(fs::metadata(object).is_ok_and(|file| file.len() > 0));
}
