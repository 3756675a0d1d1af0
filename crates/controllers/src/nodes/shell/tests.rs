//! Scripts as containers have them.

use std::time::Duration;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn sh(text: &str) -> Vec<String> {
    vec!["/bin/sh".to_owned(), "-c".to_owned(), text.to_owned()]
}

fn with(name: &str, value: &str) -> Environment {
    let mut environment = Environment::default();
    environment.variables.insert(name.to_owned(), value.to_owned());
    environment.hostname = "pod-1".to_owned();
    environment
}

/// Exit code, output, and the seconds that it takes.
fn outcome(text: &str, files: &Files) -> (Option<i32>, String, i64) {
    let ran =
        run(&sh(text), &with("HOSTNAME", "pod-1"), files, b"", at(0)).unwrap_or_else(|why| panic!("{text}: {why}"));
    let bytes: Vec<u8> = ran.chunks.iter().flat_map(|chunk| chunk.bytes.clone()).collect();
    (ran.status, String::from_utf8(bytes).unwrap(), ran.ends_at.duration_since(at(0)).as_secs())
}

#[test]
fn cmd_1_a_script_exits_with_its_code_after_its_time() {
    for (text, status, output, seconds) in [
        ("exit 3", Some(3), "", 0),
        ("true", Some(0), "", 0),
        ("false", Some(1), "", 0),
        ("sleep 5; exit 1", Some(1), "", 5),
        ("sleep 1m 30s", Some(0), "", 90),
        ("sleep infinity", None, "", 0),
        ("echo a && echo b || echo c; echo $?", Some(0), "a\nb\n0\n", 0),
        ("false || echo no; ! true; echo $?", Some(0), "no\n1\n", 0),
        ("if [ 1 -gt 2 ]; then echo x; elif test -d /tmp; then echo y; else echo z; fi", Some(0), "y\n", 0),
        ("for i in 1 2 3; do echo -n $i; [ $i = 2 ] && break; done", Some(0), "12", 0),
        ("i=0; while [ $i -lt 3 ]; do i=$((i+1)); sleep 1; done; echo $i", Some(0), "3\n", 3),
        ("until [ -f /tmp/x ]; do touch /tmp/x; done; echo there", Some(0), "there\n", 0),
        ("echo $HOSTNAME ${NONE:-default} \"${HOSTNAME}\" '$HOSTNAME'", Some(0), "pod-1 default pod-1 $HOSTNAME\n", 0),
        ("printf '%s-%d\\n' a 1 b 2", Some(0), "a-1\nb-2\n", 0),
        (
            "echo hi > /tmp/f; cat /tmp/f /tmp/none; echo $?",
            Some(0),
            "hi\ncat: can't open '/tmp/none': No such file or directory\n1\n",
            0,
        ),
        ("cat <<EOF", None, "", -1),
        ("f() { echo f $1; return 4; }; f x; echo $?", Some(0), "f x\n4\n", 0),
        ("(exit 5); echo $?", Some(0), "5\n", 0),
        ("set -e; false; echo never", Some(1), "", 0),
        ("set -e; false || true; if false; then :; fi; echo here", Some(0), "here\n", 0),
        ("trap 'echo bye' EXIT; echo hi; exit 2", Some(2), "hi\nbye\n", 0),
        ("env | grep HOSTNAME | sort", Some(0), "HOSTNAME=pod-1\n", 0),
        ("sleep 3 & sleep 1; wait; echo done", Some(0), "done\n", 3),
        ("sleep 9 & kill $!; wait $!; echo $?", Some(0), "143\n", 0),
        ("case abc in x) echo 1;; a*) echo 2;; *) echo 3;; esac", Some(0), "2\n", 0),
        ("x=$(echo a b); echo \"$x\" $(( 2 * 3 ))", Some(0), "a b 6\n", 0),
        ("echo one two | while read a b; do echo $b; done", Some(0), "two\n", 0),
        ("echo error >&2; echo x 2>/dev/null >/dev/null", Some(0), "error\n", 0),
        ("echo test > /none/file; echo $?", Some(0), "sh: can't create /none/file: nonexistent directory\n1\n", 0),
        ("exec sleep 2; echo never", Some(0), "", 2),
        ("sh -c 'exit 7'; echo $?", Some(0), "7\n", 0),
        ("A=1 env | grep ^A; echo [$A]", Some(0), "A=1\n[]\n", 0),
        ("while :; do :; done", None, "", 0),
    ] {
        if seconds < 0 {
            assert!(Script::of(&sh(text)).is_err(), "{text}");
            continue;
        }
        assert_eq!(outcome(text, &Files::default()), (status, output.to_owned(), seconds), "{text}");
    }
}

#[test]
fn cmd_2_the_scripts_of_the_conformance_tests_do_what_they_say() {
    let once = "\n if [[ -r /data/foo-$JOB_COMPLETION_INDEX ]]\n then\n exit 0\n else\n touch /data/foo-$JOB_COMPLETION_INDEX\n exit 42\n fi\n";
    let odd = "\n if [ $(expr ${JOB_COMPLETION_INDEX} % 2) -ne 0 ]; then\n exit 1\n else\n exit 0\n fi\n";
    let volume = files::SharedTree::default();
    let code = |text: &str, index: &str| {
        let mut files = Files::default();
        files.mount("/data", volume.clone(), "", false);
        run(&sh(text), &with("JOB_COMPLETION_INDEX", index), &files, b"", at(0)).unwrap().status
    };
    assert_eq!(
        (code(once, "1"), code(once, "1"), code(once, "2")),
        (Some(42), Some(0), Some(42)),
        "fails once per index"
    );
    assert_eq!((code(odd, "3"), code(odd, "4")), (Some(1), Some(0)));
    assert_eq!(code("cat /data/foo-$JOB_COMPLETION_INDEX", "1"), Some(0));
    let drawn: std::collections::BTreeSet<_> = (0..20)
        .map(|seed| {
            let environment = Environment { seed, ..Environment::default() };
            run(&sh("exit $(( $RANDOM / 16384 ))"), &environment, &Files::default(), b"", at(0)).unwrap().status
        })
        .collect();
    assert_eq!(drawn, [Some(0), Some(1)].into(), "both happen");
    let ready = "touch /var/tmp/ready; [[ \"$( cat /var/tmp/ready )\" == \"\" ]]";
    let files = Files::default();
    let probe =
        || run(&["/bin/sh".into(), "-ec".into(), ready.into()], &with("A", ""), &files, b"", at(0)).unwrap().status;
    assert_eq!(probe(), Some(0));
    assert_eq!(outcome("echo 0 > /var/tmp/ready", &files).0, Some(0));
    assert_eq!(probe(), Some(1));
    let hosts =
        r#"[[ "${HOST_IP:?}" == "${POD_IP:?}" ]] && echo 'OK' || echo "HOST_IP: '${HOST_IP}' != POD_IP: '${POD_IP}'""#;
    let mut environment = with("HOST_IP", "1.2.3.4");
    environment.variables.insert("POD_IP".into(), "1.2.3.4".into());
    assert_eq!(run(&sh(hosts), &environment, &Files::default(), b"", at(0)).unwrap().chunks[0].bytes, b"OK\n");
}

fn started(text: &str) -> Process {
    let mut process = Script::of(&sh(text)).unwrap().start(&Environment::default(), &Files::default(), at(0));
    process.advance(at(0));
    process
}

#[test]
fn cmd_3_a_process_stops_on_term_only_if_it_handles_it() {
    let mut ignores = started("sleep 3600");
    ignores.terminate(at(1));
    ignores.advance(at(100));
    assert_eq!(ignores.ended(), None, "the first process of a container ignores what it does not handle");
    let term = "_term(){\n\tsleep 5\n\texit 143\n}\ntrap _term SIGTERM\nwhile true; do\n\tsleep 1\ndone";
    let mut handles = started(term);
    handles.advance(at(10));
    handles.terminate(at(10));
    handles.advance(at(60));
    assert_eq!(handles.ended(), Some((143, at(16))), "after the current command, five seconds of the handler");
    let mut waits = started("trap 'exit 0' TERM; sleep infinity & wait");
    waits.terminate(at(2));
    waits.advance(at(2));
    assert_eq!(waits.ended(), Some((0, at(2))), "`wait` ends at once");
    let mut blocked = started("trap 'exit 0' TERM; sleep infinity");
    blocked.terminate(at(2));
    blocked.advance(at(600));
    assert_eq!(blocked.ended(), None, "a shell waits for its foreground command");
    let mut careless = started("trap '' TERM; sleep 5");
    careless.terminate(at(1));
    careless.advance(at(5));
    assert_eq!(careless.ended(), Some((0, at(5))));
}

#[test]
fn cmd_4_a_process_is_driven_by_the_clock_and_bounded() {
    let mut loops = started("while true; do echo tick; sleep 2; done");
    assert_eq!(loops.wakes_at(), Some(at(2)));
    loops.advance(at(5));
    let times: Vec<_> = loops.take_lines().into_iter().map(|line| (line.at, line.text)).collect();
    assert_eq!(times, [(at(0), "tick".into()), (at(2), "tick".into()), (at(4), "tick".into())]);
    let mut busy = started("while true; do echo x; done");
    let wake = busy.wakes_at().unwrap();
    assert_eq!(wake, at(0) + process::PAUSE);
    assert!(busy.take_lines().len() < process::STEPS_MAX as usize);
    let mut long_ago = Script::of(&sh("while true; do sleep 1; done")).unwrap().start(
        &Environment::default(),
        &Files::default(),
        at(-86_400 * 30),
    );
    long_ago.advance(at(0));
    assert!(long_ago.wakes_at().unwrap() > at(0), "it does not catch up with a month");
    for text in
        ["f(){ f; }; f", "f(){ echo $(f); }; f", "while true; do sleep 9 & done", "x=a; while true; do x=$x$x; done"]
    {
        let mut process = started(text);
        for second in 0..50 {
            process.advance(at(second));
        }
        assert!(process.take_lines().iter().map(|line| line.text.len()).sum::<usize>() < 1_000_000, "{text}");
    }
    let flood = run(
        &sh("while true; do echo 0123456789012345678901234567890123456789; done"),
        &Environment::default(),
        &Files::default(),
        b"",
        at(0),
    )
    .unwrap();
    assert!(flood.chunks.iter().map(|chunk| chunk.bytes.len()).sum::<usize>() <= output::OUTPUT_BYTES_MAX);
    assert_eq!(flood.status, None);
}

#[test]
fn cmd_5_what_is_not_understood_is_named() {
    for (words, word) in [
        (sh("python app.py"), "python"),
        (sh("echo a; awk x"), "awk"),
        (sh("cat <<EOF\nx\nEOF"), "<<"),
        (sh("if true; then echo"), "fi"),
        (sh("echo 'open"), "'"),
        (sh("trap 'nginx -s quit' TERM; sleep 1"), "nginx"),
        (sh("x=$(java -version)"), "java"),
        (sh("echo )"), ")"),
        (vec!["perl".into(), "-e".into(), "1".into()], "perl"),
        (vec!["sh".into(), "/script.sh".into()], "/script.sh"),
        (sh(&"(".repeat(100_000)), "64 KiB"),
        (sh(&"(".repeat(1_000)), "nested"),
        (sh(&"$(".repeat(1_000)), "missing"),
    ] {
        let why = Script::of(&words).unwrap_err();
        assert!(why.contains(word), "{words:?}: {why}");
    }
    let quiet = Script::of(&["sleep".into(), "1000000".into()]).unwrap();
    let mut process = quiet.start(&Environment::default(), &Files::default(), at(0));
    process.advance(at(0));
    assert_eq!(process.wakes_at(), at(0).checked_add(Duration::from_secs(1_000_000)).ok());
}

#[test]
fn cmd_4_no_script_is_nested_too_deeply() {
    let deep = ["! ".repeat(20_000) + "true", "a()".repeat(20_000) + ":", "(".repeat(30_000), "$(".repeat(30_000)];
    for text in deep {
        assert!(Script::of(&sh(&text)).is_err());
    }
    let (status, ..) = outcome(&format!(":{}", "&&:".repeat(20_000)), &Files::default());
    assert_eq!(status, Some(0), "a long chain is no depth");
    assert_eq!(outcome("set -e; true && false || echo x && false; echo y", &Files::default()).1, "x\n");
    let (status, output, _) = outcome("x='! ! ! ! ! '; x=$x$x$x$x; x=$x$x$x$x; eval $x$x true", &Files::default());
    assert_eq!((status, output.contains("nested too deeply")), (Some(2), true), "{output}");
}

#[test]
fn cmd_4_one_command_is_bounded() {
    let started = std::time::Instant::now();
    let files = Files::default();
    let double = "x=aaaaaaaaaaaaaaaa; for i in 1 2 3 4 5 6 7 8; do x=$x$x; done; ";
    for text in [
        "x=a; while :; do x=$x$x; done",
        "i=0; while :; do i=$((i+1)); eval v$i=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done",
        "f() { (f); }; f",
        "trap 'kill 1' TERM; kill 1; while :; do :; done",
        &format!("{double} echo ${{x%%*aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab}}"),
        &format!("{double} printf $x%s {}", "a ".repeat(5_000)),
        &format!("{double} echo $x > /tmp/f; cat {}", "/tmp/f ".repeat(5_000)),
        &format!("{double} echo {}", "$x".repeat(10_000)),
        &format!("echo {}", "*b ".repeat(10_000)),
    ] {
        let (_, output, _) = outcome(text, &files);
        assert!(output.len() <= output::OUTPUT_BYTES_MAX);
    }
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    let (status, output, _) = outcome("x=a; while :; do x=$x$x; done", &files);
    assert!(status == Some(2) && output.starts_with("sh: "), "{status:?} {output}");
}

#[test]
fn probes_and_hooks_have_fewer_operations_than_commands_of_their_own() {
    let counts = |to: usize| sh(&format!("i=0; while [ $i -lt {to} ]; do i=$((i+1)); done"));
    let (environment, files) = (Environment::default(), Files::default());
    let status = |ran: Result<Ran, String>| ran.unwrap().status;
    assert_eq!(status(run_briefly(&counts(100), &environment, &files, at(0))), Some(0));
    assert_eq!(status(run_briefly(&counts(5_000), &environment, &files, at(0))), None);
    assert_eq!(status(run(&counts(5_000), &environment, &files, b"", at(0))), Some(0));
}

#[test]
fn cmd_4_functions_that_eval_defines_are_counted() {
    let script = "i=0; while [ $i -lt 200 ]; do eval \"f$i() { true; }\"; i=$((i+1)); done; echo all";
    let (status, output, _) = outcome(script, &Files::default());
    assert_eq!(status, Some(2), "{output}");
    assert!(output.contains("too many functions"), "{output}");
}
