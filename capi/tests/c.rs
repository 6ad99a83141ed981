//! The header is that of the sources, and programs in C do what they should with it.
#![expect(clippy::unwrap_used, reason = "a test that meets something else has failed")]

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use selkie_capi::call::{SELKIE_ERROR, SELKIE_ROW, call};
use selkie_capi::error::selkie_error;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The sources with functions and types of the header, in the order in which it has them.
const SOURCES: [&str; 7] =
    ["call", "error", "database", "connection", "statement", "bind", "column"];

/// Set to write the header anew.
const UPDATE: &str = "SELKIE_UPDATE_HEADER";

#[test]
fn the_header_is_that_of_the_sources() {
    let root = Path::new(ROOT);
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for name in SOURCES {
        builder = builder.with_src(root.join("src").join(format!("{name}.rs")));
    }
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let (made, place) = (String::from_utf8(made).unwrap(), root.join("include/selkie.h"));
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&place, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&place).unwrap_or_default();
    assert!(kept == made, "capi/include/selkie.h is not that of the sources: run with {UPDATE}=1");
}

#[test]
fn all_functions_are_in_the_header() {
    let header = include_str!("../include/selkie.h");
    let mut functions = 0;
    for entry in std::fs::read_dir(Path::new(ROOT).join("src")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for exported in text.split("#[unsafe(no_mangle)]").skip(1) {
            let name = exported.split("fn ").nth(1).unwrap().split('(').next().unwrap();
            assert!(header.contains(&format!("{name}(")), "{name} is missing");
            functions += 1;
        }
    }
    assert!(functions > 20, "{functions} functions");
}

#[test]
fn a_panic_is_an_error() {
    assert_eq!(call(|| Ok(SELKIE_ROW)), SELKIE_ROW);
    assert_eq!(call(|| panic!("on purpose, {}", 1)), SELKIE_ERROR);
    // SAFETY: the error of this thread is there until its next failure.
    let info = unsafe { &*selkie_error() };
    // SAFETY: its texts are there as long.
    let state = unsafe { CStr::from_ptr(info.state) };
    // SAFETY: as above.
    let message = unsafe { CStr::from_ptr(info.message) };
    assert_eq!(state.to_str().unwrap(), "XX000");
    assert_eq!(message.to_str().unwrap(), "the library has failed: on purpose, 1");
}

/// Where cargo has put the libraries: beside this test.
fn libraries() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_path_buf()
}

/// A program in C, compiled with all warnings.
struct Program {
    _place: tempfile::TempDir,
    path: PathBuf,
}

impl Program {
    fn compile(source: &str, link: &[&str]) -> Self {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("program");
        let mut compiler = Command::new("cc");
        compiler.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"]);
        compiler.arg(Path::new(ROOT).join("include")).arg(Path::new(ROOT).join(source));
        compiler.arg("-o").arg(&path).arg("-L").arg(libraries()).args(link);
        let compiled = compiler.output().unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        Self { _place: place, path }
    }

    /// Runs it. What it printed.
    fn run(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(&self.path);
        let ran = command.args(arguments).env("LD_LIBRARY_PATH", libraries()).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "it has ended with {}: {said}", ran.status);
        String::from_utf8(ran.stdout).unwrap()
    }
}

#[test]
fn the_example_runs_on_the_static_library() {
    let link = ["-l:libselkie_capi.a", "-lpthread", "-ldl", "-lm"];
    let expected = "1\n0\n1 Ann 750\n2 Bob 1250\n3 nobody 1000\n";
    let place = tempfile::tempdir().unwrap();
    let url = format!("embedded:{}", place.path().join("bank").display());
    let bank = Program::compile("examples/bank.c", &link);
    assert_eq!(bank.run(&[&url]), expected);
    // It finds what it has kept.
    assert_eq!(bank.run(&[&url]), expected);
}

#[test]
fn what_is_wrong_is_an_error_of_the_shared_library() {
    Program::compile("tests/misuse.c", &["-lselkie_capi", "-lpthread"]).run(&[]);
}
