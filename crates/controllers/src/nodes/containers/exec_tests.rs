//! Tests of commands in containers.

use std::sync::Arc;

use super::*;
use serde_json::{Value, json};

fn pod(annotations: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "d", "uid": "u", "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "busybox"}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": true,
            "restartCount": 0, "state": {"running": {}}}]},
    }))
    .unwrap()
}

/// Runs a command: its result, and what it wrote to both outputs.
async fn exec(
    containers: &Containers,
    pod: &Pod,
    command: &[&str],
    stdin: &'static [u8],
    is_terminal: bool,
) -> (Result<i32, String>, String, String) {
    let words: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
    let (mut stdout_reader, stdout) = tokio::io::duplex(64 * 1024);
    let (mut stderr_reader, stderr) = tokio::io::duplex(64 * 1024);
    let streams = Streams {
        stdin: Some(Box::new(stdin)),
        stdout: Some(Box::new(stdout)),
        stderr: (!is_terminal).then(|| Box::new(stderr) as Writer),
        is_terminal,
        resizes: mpsc::channel(1).1,
    };
    let result = containers.exec(pod, "c", &words, streams, WorldClock::system()).await;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    stdout_reader.read_to_end(&mut out).await.unwrap();
    stderr_reader.read_to_end(&mut err).await.unwrap();
    (result, String::from_utf8_lossy(&out).into_owned(), String::from_utf8_lossy(&err).into_owned())
}

#[tokio::test]
async fn cs_2_annotations_prescribe_results() {
    let rules = "[{command: [nginx, -v], stderr: \"nginx/1.27\\n\"}, {command: 'rm *', stdout: gone, exit: 3}]";
    let (containers, pod) = (Containers::default(), pod(json!({"nodes.dogwatch/exec": rules})));
    let ran = exec(&containers, &pod, &["nginx", "-v"], b"", false).await;
    assert_eq!(ran, (Ok(0), String::new(), "nginx/1.27\n".to_owned()));
    let ran = exec(&containers, &pod, &["rm", "-rf", "/"], b"", false).await;
    assert_eq!(ran, (Ok(3), "gone".to_owned(), String::new()));
    let ran = exec(&containers, &pod, &["echo", "hi"], b"", false).await;
    assert_eq!(ran, (Ok(0), "hi\n".to_owned(), String::new()));
}

#[tokio::test]
async fn cs_3_other_commands_run_in_the_simulated_shell() {
    let (containers, pod) = (Containers::default(), pod(json!({})));
    let ran = exec(&containers, &pod, &["sh", "-c", "echo a && echo b >&2; exit 4"], b"", false).await;
    assert_eq!(ran, (Ok(4), "a\n".to_owned(), "b\n".to_owned()));
    let ran = exec(&containers, &pod, &["cat"], b"copied", false).await;
    assert_eq!(ran, (Ok(0), "copied".to_owned(), String::new()));
    let (result, out, err) = exec(&containers, &pod, &["unheard-of", "x"], b"", false).await;
    assert_eq!((result, out.as_str()), (Ok(127), ""));
    assert!(err.contains("simulated") && err.contains("unheard-of"), "{err}");
}

#[tokio::test]
async fn cs_4_a_shell_reads_lines() {
    let (containers, pod) = (Containers::default(), pod(json!({})));
    let script = b"cd /tmp\npwd\nexport A=1\necho $A\nexit 7\necho never\n";
    let ran = exec(&containers, &pod, &["sh"], script, false).await;
    assert_eq!(ran, (Ok(7), "/tmp\n1\n".to_owned(), String::new()));
    let (result, out, _) = exec(&containers, &pod, &["sh"], b"echo hi\r\x04", true).await;
    assert_eq!(result, Ok(0));
    assert!(out.contains("simulated") && out.contains("/ # echo hi\r\nhi\r\n/ # "), "{out:?}");
}

#[tokio::test]
async fn cp_1_files_are_copied_by_tar() {
    let (containers, pod) = (Containers::default(), pod(json!({})));
    let archive = tar::write(&[("x.txt".to_owned(), Some(Arc::from(&b"text"[..])))]);
    let archive: &'static [u8] = Box::leak(archive.into_boxed_slice());
    assert_eq!(exec(&containers, &pod, &["tar", "-xmf", "-", "-C", "/tmp"], archive, false).await.0, Ok(0));
    assert_eq!(exec(&containers, &pod, &["cat", "/tmp/x.txt"], b"", false).await.1, "text");
    assert_eq!(exec(&containers, &pod, &["test", "-d", "/tmp"], b"", false).await.0, Ok(0));
    assert_eq!(exec(&containers, &pod, &["test", "-d", "/tmp/x.txt"], b"", false).await.0, Ok(1));
    let (result, out, _) = exec(&containers, &pod, &["tar", "cf", "-", "/tmp/x.txt"], b"", false).await;
    assert_eq!(result, Ok(0));
    assert!(out.starts_with("tmp/x.txt\0") && out.contains("text"));
    let (result, _, err) = exec(&containers, &pod, &["tar", "cf", "-", "/none"], b"", false).await;
    assert_eq!(result, Ok(2));
    assert!(err.contains("No such file or directory"), "{err}");
}
