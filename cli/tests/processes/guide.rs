//! The commands of the guide, page by page, in the order in which they are there, as a person types
//! them: with smaller databases, for shorter times, and in pools of other names. A command of the
//! guide that is not run is left out below, with the reason.

use std::net::TcpListener;
use std::path::Path;

use crate::harness::{succeeds, text};
use crate::readme::{page, runs, with};

/// What a page of the guide is run with.
#[derive(Default)]
struct Page<'a> {
    file: &'a str,
    /// Pools that the page names: here they have other names.
    pools: &'a [&'a str],
    /// What a person has at hand who comes to this page.
    before: &'a str,
    /// Replaced in the commands: what is there, and by what.
    smaller: &'a [(&'a str, &'a str)],
    /// Lines that are not run, by how they begin, and why.
    left_out: &'a [(&'a str, &'a str)],
}

/// What options are where the command does not say. Pools are made as a reader makes them.
const SMALL: &str = r#"
[tpcc]
warehouses = 1
scale = 100
threads = 2
duration = 1
[smallbank]
accounts = 1000
threads = 2
"#;

/// What memory nodes lend here, and on the pages.
const LENT: (&str, &str) = ("--memory 1G", "--memory 240M");

/// Commands in fenced blocks: where, and how they begin. `capi/tests/c.rs` compiles and runs what
/// they do.
const FENCED: [(&str, &str); 2] = [
    ("embedding.md", "cargo build --release -p selkie-capi"),
    ("embedding.md", "cc -I capi/include"),
];

/// The commands that make the pool `demo`, of four memory nodes, as the first page has them.
fn demo() -> String {
    let first = page("docs/guide/README.md");
    let made = typed(&first).into_iter().filter(|line| line.contains("demo"));
    let made: String = made.map(|line| format!("{line}\n")).collect();
    with(made, LENT.0, LENT.1)
}

/// The lines of a page that are to be typed.
fn typed(text: &str) -> Vec<&str> {
    let mut is_fenced = false;
    let lines = text.lines().filter(|line| {
        is_fenced ^= line.starts_with("```");
        !is_fenced
    });
    lines.filter_map(|line| line.strip_prefix("    ")).collect()
}

/// The commands of a page that are in fenced blocks, and so are not typed. Files and other
/// languages have none.
fn fenced(text: &str) -> impl Iterator<Item = &str> {
    let blocks = text.split("```").skip(1).step_by(2);
    let blocks = blocks.filter(|block| matches!(block.lines().next(), Some("" | "sh")));
    let lines = blocks.flat_map(str::lines).map(str::trim_start);
    lines.filter(|line| {
        ["selkie ", "cargo ", "psql ", "cc "].iter().any(|program| line.starts_with(program))
    })
}

/// Names pools of a test in a line: where a word, or the rest of a URL, is the name.
fn renamed(line: &str, pools: &[&str], suffix: &str) -> String {
    let mut before = "";
    let words = line.split(' ').map(|word| {
        let name = word.strip_prefix("shm:").unwrap_or(word);
        let bare = name.trim_end_matches(';');
        // `selkie demo` is a command.
        let is_pool = pools.contains(&bare) && before != "selkie";
        before = word;
        if is_pool { word.replacen(bare, &format!("{bare}-{suffix}"), 1) } else { word.to_owned() }
    });
    words.collect::<Vec<_>>().join(" ")
}

impl Page<'_> {
    /// Runs the commands of the page in an empty directory; what they say.
    #[track_caller]
    fn is_run(&self, place: &Path) -> String {
        let Page { file, pools, before, smaller, left_out } = self;
        let text = page(&format!("docs/guide/{file}"));
        let typed = typed(&text);
        for (start, reason) in *left_out {
            assert!(typed.iter().any(|line| line.starts_with(start)), "{file}: no {start:?}");
            names_tests(reason);
        }
        let run =
            typed.iter().filter(|line| !left_out.iter().any(|(start, _)| line.starts_with(start)));
        let mut script: String = run.map(|line| format!("{line}\n")).collect();
        for (from, to) in *smaller {
            script = with(script, from, to);
        }
        let suffix = format!("test-guide-{}-{}", file.trim_end_matches(".md"), std::process::id());
        let script = format!("{before}{script}");
        let script: Vec<_> = script.lines().map(|line| renamed(line, pools, &suffix)).collect();
        let names: Vec<_> = pools.iter().map(|pool| format!("{pool}-{suffix}")).collect();
        let binary = place.join("bin");
        std::fs::create_dir(&binary).unwrap();
        let small = place.join("small.toml");
        std::fs::write(&small, SMALL).unwrap();
        // So that the number of a process in the background is that of the program.
        let wrapper = format!(
            "#!/bin/sh\nexec {} --config {} \"$@\"\n",
            env!("CARGO_BIN_EXE_selkie"),
            small.display()
        );
        std::fs::write(binary.join("selkie"), wrapper).unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(binary.join("selkie"), executable).unwrap();
        runs(&script.join("\n"), &names, (&binary, place))
    }
}

/// Each test that a reason names, as `module::test`, is there.
#[track_caller]
fn names_tests(reason: &str) {
    for quoted in reason.split('`').skip(1).step_by(2).filter(|quoted| !quoted.contains(' ')) {
        let (module, test) = quoted.split_once("::").unwrap_or_else(|| panic!("{reason}"));
        let file = page(&format!("cli/tests/processes/{module}.rs"));
        let (before, _) = file
            .split_once(&format!("\nfn {test}() {{"))
            .unwrap_or_else(|| panic!("no {quoted}: {reason}"));
        assert!(before.ends_with("#[test]"), "{quoted} is no test that the gate runs: {reason}");
    }
}

/// The first of ten ports that are free, without its last digit. Tests that run at the same time
/// find the same, and each takes others of them.
fn free_ports() -> u32 {
    let is_free = |port: u32| TcpListener::bind(("127.0.0.1", port as u16)).is_ok();
    let first = 2_000 + std::process::id() % 1_000;
    let mut prefixes = first..3_270;
    prefixes.find(|prefix| (0..10).all(|last| is_free(prefix * 10 + last))).unwrap()
}

#[test]
fn the_first_page_of_the_guide_is_run() {
    let place = tempfile::tempdir().unwrap();
    let said = Page {
        file: "README.md",
        before: "HOME=$PWD\n",
        smaller: &[("selkie doctor", "selkie doctor || test $? = 1; complete -p selkie"), LENT],
        left_out: &[
            ("cargo build", "it is built for the tests"),
            ("PATH=", "the tests have a path of their own"),
        ],
        pools: &["demo"],
    }
    .is_run(place.path());
    assert!(place.path().join(".local/share/man/man1/selkie.1").exists(), "{said}");
    assert!(said.contains("shared memory") && said.contains(" -F _selkie selkie"), "{said}");
}

#[test]
fn the_benchmarks_of_the_guide_are_run() {
    let place = tempfile::tempdir().unwrap();
    let said = Page {
        file: "benchmarks.md",
        smaller: &[
            ("cargo run --release -- tpcc", "selkie tpcc"),
            ("--warehouses 4", "--warehouses 2"),
            ("--affinity partitioned", "--affinity partitioned --warehouses 2"),
            ("--affinity warehouse --remote", "--affinity warehouse --warehouses 2 --remote"),
            (
                "--accounts 100000 --hot-accounts 4000",
                "--accounts 1000 --hot-accounts 40 --duration 1",
            ),
            ("--subscribers 100000", "--subscribers 1000 --duration 1"),
            ("--records 1000000", "--records 1000 --duration 1"),
            ("--records 100000", "--records 1000 --duration 1"),
            ("--operations 20000", "--operations 2000 --records 1000"),
            ("--via sql --dist", "--via sql --records 1000 --duration 1 --dist"),
            ("--coherence rpc", "--coherence rpc --records 1000"),
            ("selkie micro --compute-nodes 2", "selkie micro --duration-ms 500 --compute-nodes 2"),
        ],
        left_out: &[("cargo bench", "`cargo test` runs each benchmark once")],
        ..Page::default()
    }
    .is_run(place.path());
    assert_eq!(said.matches("consistency: ok").count(), 16, "{said}");
    assert_eq!(said.matches("\"consistency\":\"ok\"").count(), 3, "{said}");
}

#[test]
fn the_configuration_file_of_the_guide_is_right() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("selkie.toml");
    std::fs::write(&file, typed(&page("docs/guide/configuration.md")).join("\n")).unwrap();
    assert_eq!(succeeds(&["config", "check", file.to_str().unwrap()]), "ok\n");
}

#[test]
fn logs_recovery_and_backup_of_the_guide_are_run() {
    let place = tempfile::tempdir().unwrap();
    let backups = format!("file://{}", place.path().join("backups").display());
    let objects = format!("file://{}", place.path().join("objects").display());
    let said = Page {
        file: "durability.md",
        pools: &["demo", "small", "large", "fleeting", "other", "again"],
        before: &demo(),
        smaller: &[
            ("file:///tmp/logs", &objects),
            ("file:///backups", &backups),
            LENT,
            ("--durability disk", "--durability disk --log-mb 64"),
        ],
        ..Page::default()
    }
    .is_run(place.path());
    assert_eq!(said.matches("consistency: ok").count(), 4, "{said}");
}

#[test]
fn what_the_guide_says_of_failures_is_run() {
    let place = tempfile::tempdir().unwrap();
    let made = format!("{}selkie tpcc --pool shm:demo\n", demo());
    let said = Page {
        file: "failures.md",
        pools: &["demo"],
        before: &made,
        left_out: &[(
            "selkie pool forgive",
            "`decisions::a_silent_memory_node_of_a_plain_pool_is_waited_for_until_it_is_given_up` has a pool that lacks \
             something",
        )],
        ..Page::default()
    }
    .is_run(place.path());
    assert!(said.contains("consistency: ok"), "{said}");
}

#[test]
fn the_sql_of_the_guide_is_run() {
    let place = tempfile::tempdir().unwrap();
    let ports = free_ports();
    let [kept, first, second] = [4, 5, 6].map(|last| (ports * 10 + last).to_string());
    // A person types slower than a server starts.
    let answers = |port: &str| {
        format!("until (: < /dev/tcp/127.0.0.1/{port}) 2> /dev/null; do sleep 0.05; done\n")
    };
    let kept = format!(
        "selkie server --pool embedded:data --listen 127.0.0.1:{kept} & server=$!\n\
         {}kill $server; wait $server\n",
        answers(&kept)
    );
    let said = Page {
        file: "sql.md",
        pools: &["demo"],
        smaller: &[
            // What runs in the background has ended before the sum is asked for.
            ("commit\" &", "commit\""),
            ("selkie server --pool embedded:data\n", &kept),
            ("127.0.0.1:5432 &\n", &format!("127.0.0.1:{first} &\n")),
            ("127.0.0.1:5433 &\n", &format!("127.0.0.1:{second} &\n{}", answers(&second))),
            ("psql -h 127.0.0.1 -p 5433", &format!("psql -h 127.0.0.1 -p {second}")),
            ("selkie sql 127.0.0.1:5433", &format!("selkie sql 127.0.0.1:{second}")),
        ],
        left_out: &[
            (
                "selkie server --pool shm:demo --listen 0.0.0.0",
                "`roles::a_server_listens_beyond_loopback_only_with_passwords_and_tls` has such servers",
            ),
            (
                "psql \"host=db.example",
                "`roles::connections_are_secured_and_clients_can_tell_by_whom` connects so",
            ),
        ],
        ..Page::default()
    }
    .is_run(place.path());
    assert!(said.contains("count,sum\n1000,1000000\n"), "{said}");
    let shown = said.matches(" 1000\n(1 row)").count();
    assert_eq!(shown, 2, "psql and the shell show the rows: {said}");
}

#[test]
fn what_the_guide_says_of_observation_is_run() {
    let place = tempfile::tempdir().unwrap();
    let port = format!("127.0.0.1:{}", free_ports() * 10 + 9);
    // As soon as there is something to be seen: the run is short.
    let scrape = format!(
        "until curl --silent http://{port}/metrics | grep '# TYPE selkie_'; do sleep 0.1; done"
    );
    let said = Page {
        file: "observe.md",
        pools: &["demo"],
        before: &demo(),
        // The live view takes a terminal: `observation` has one.
        smaller: &[
            ("sleep 5; curl http://127.0.0.1:9100/metrics", &scrape),
            ("127.0.0.1:9100", &port),
            ("selkie top demo\n", ""),
        ],
        ..Page::default()
    }
    .is_run(place.path());
    assert!(said.contains(": healthy: 1 memory node can be lost"), "{said}");
    assert!(said.contains("# TYPE selkie_"), "{said}");
}

#[test]
fn what_the_guide_says_of_redundancy_is_run() {
    let place = tempfile::tempdir().unwrap();
    let works = "selkie tpcc --pool shm:demo --think --duration 600 & driver=$!\n";
    let made = format!("{}{works}", demo());
    let said = Page {
        file: "redundancy.md",
        pools: &["demo", "safe"],
        before: &made,
        smaller: &[("mem2", "mem2; selkie pool status demo; kill $driver; wait $driver")],
        left_out: &[(
            "selkie scenario run",
            "`scenarios::memory_of_a_coded_pool_is_killed_over_shm` runs it, shorter",
        )],
    }
    .is_run(place.path());
    assert!(said.contains("in use no more: mem2 (has left)"), "{said}");
    assert_eq!(said.matches("consistency: ok").count(), 2, "{said}");
}

#[test]
fn the_shared_pools_of_the_guide_are_worked_on_shown_and_removed() {
    let place = tempfile::tempdir().unwrap();
    let ports = free_ports().to_string();
    let port = |last: &str| (format!("127.0.0.1:700{last}"), format!("127.0.0.1:{ports}{last}"));
    let [first, second, any] = ["0", "1", "$i"].map(port);
    let said = Page {
        file: "shared-pools.md",
        pools: &["demo", "net"],
        smaller: &[
            LENT,
            ("--duration 30", "--duration 1"),
            (&first.0, &first.1),
            (&second.0, &second.1),
            (&any.0, &any.1),
        ],
        left_out: &[
            (
                "selkie demo",
                "`demo::the_demo_kills_a_memory_node_heals_the_pool_and_finds_every_commit` runs it, shorter",
            ),
            ("scp ", "there is no other host"),
            (
                "selkie pool status tcp:10.0.0.1",
                "`tokens::who_has_not_the_token_of_a_pool_is_told_how_to_be_let_in` asks so, from this host",
            ),
            (
                "selkie memnode --pool net --memory 1G --listen 10.0.0.1",
                "`tls::drivers_and_memory_share_a_database_over_secured_connections` has such pools",
            ),
            (
                "selkie tpcc --pool tcp:10.0.0.1",
                "`tls::drivers_and_memory_share_a_database_over_secured_connections` has such drivers",
            ),
            (
                "selkie pool drain tcp:10.0.0.1",
                "`tls::roles_say_what_the_holder_of_a_certificate_may_do` drains so",
            ),
            ("cargo test", "the gate runs it"),
        ],
        ..Page::default()
    }
    .is_run(place.path());
    assert_eq!(said.matches("consistency: ok").count(), 3, "{said}");
    assert!(said.contains(": healthy: 1 memory node can be lost"), "{said}");
    assert!(said.contains("operator"), "the certificates are shown: {said}");
}

/// The tests of `tests/rdma-guest` have a device, and run such commands.
#[test]
fn what_the_guide_says_of_rdma_takes_a_device() {
    let place = tempfile::tempdir().unwrap();
    let takes = "it takes an RDMA device";
    let _said = Page {
        file: "rdma.md",
        left_out: &[
            ("cargo build", "it is built"),
            ("selkie ", takes),
            ("for i", takes),
            ("tests/", takes),
        ],
        ..Page::default()
    }
    .is_run(place.path());
}

#[test]
fn the_simulations_of_the_guide_are_run() {
    let place = tempfile::tempdir().unwrap();
    let _said = Page {
        file: "testing.md",
        smaller: &[("--seeds 0..1000", "--seeds 0..3")],
        left_out: &[
            ("selkie scenario run", "`scenarios::a_driver_is_killed_over_shm` runs it, shorter"),
            (
                "selkie scenario random",
                "`scenarios::rounds_that_were_drawn_at_random_go_as_they_must` draws two, and keeps the output of one",
            ),
            (
                "selkie figures locality",
                "`virtual_time::figures_are_files_and_a_page` draws one of them, shorter, and \
                 `virtual_time::figures_keep_the_runs_that_a_signal_finds_finished` begins with both",
            ),
            ("selkie figures tpcc", "it takes many minutes: its points have tests of their own"),
        ],
        ..Page::default()
    }
    .is_run(place.path());
}

/// The page of embedding has its commands in a table: `tests/examples.rs` runs the examples. What
/// is in a fenced block is not typed, so a command there is one of those that are named.
#[test]
fn no_page_of_the_guide_is_forgotten() {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide");
    let own = text(include_bytes!("guide.rs"));
    for entry in std::fs::read_dir(pages).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let has_commands = !typed(&page(&format!("docs/guide/{name}"))).is_empty();
        let is_run = own.contains(&format!("file: \"{name}\"")) || name == "configuration.md";
        assert_eq!(has_commands, is_run, "{name}");
        let text = page(&format!("docs/guide/{name}"));
        for command in fenced(&text) {
            let mut known = FENCED.iter();
            let is_known = known.any(|(file, start)| *file == name && command.starts_with(start));
            assert!(is_known, "{name}: nobody runs {command:?}: indent it, without a fence");
        }
    }
}
