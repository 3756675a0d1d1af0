//! What users write for simulated nodes: commands of containers, and stages with templates and expressions.

use controllers::Stages;
use controllers::nodes::shell::{self, Environment, Files};

/// A script of `sh -c`, from its text to its end.
pub fn script(data: &[u8]) {
    let words = ["sh", "-c", &String::from_utf8_lossy(data)].map(str::to_owned);
    let _ = shell::run(&words, &Environment::default(), &Files::default(), b"one\ntwo\n", Default::default());
}

/// A file of `--stages`.
pub fn stages(data: &[u8]) {
    let _ = Stages::from_text(&String::from_utf8_lossy(data));
}

pub(crate) const SCRIPTS: [&str; 9] = [
    "i=0; while [ $i -lt 5 ]; do i=$((i+1)); echo -n \"$i \"; sleep 1; done; exit 3",
    "for f in a b 'c d'; do printf '%-5s|%03d\\n' \"$f\" 7 > /tmp/$f; done; cat /tmp/* | sort | uniq | wc -l",
    "f() { case $1 in a*) return 4;; [b-d]?) echo ${1#b} ${1%%d} ${1:-x};; esac; }; f abc; f b1 || f c2",
    "trap 'echo bye; exit 0' TERM INT EXIT; sleep 3 & wait; echo $? $! $$ $# $@",
    "set -e; test -f /etc/hosts && grep -v local /etc/hosts | cut -d. -f1 | tr a-z A-Z || true",
    "until [ -e /tmp/x ]; do touch /tmp/x; done; (cd /tmp; ls -l; echo $(basename $(pwd)) `date`)",
    "while true; do echo x; done",
    "x=aaaa; x=$x$x$x$x; x=$x$x$x$x; echo ${#x} ${x/a/b}; seq 1 3 | head -n 1 | tee /tmp/t | rev",
    "echo $((1 + 2 * (3 - 4) / 1 % 5)) $((1<2 && 3>=3 || !0)); exec sleep infinity",
];

pub(crate) const STAGES: [&str; 6] = [
    "profile: fast\nseed: 1\naccept: 1s\nrun: 1s-2s\nnodes: {cpu: \"4\"}\n",
    "rules:\n- {name: a, namespace: b, labels: {app: x}, run: 2s, fail: 0.5}\n",
    "apiVersion: kwok.x-k8s.io/v1alpha1\nkind: Stage\nmetadata: {name: ready}\nspec:\n  resourceRef: {apiGroup: v1, kind: Pod}\n  selector:\n    matchExpressions:\n    - {key: '.metadata.deletionTimestamp', operator: DoesNotExist}\n    - {key: '.status.conditions.[] | select(.type == \"Ready\") | .status', operator: In, values: [x]}\n  delay: {durationMilliseconds: 10, durationFrom: {expressionFrom: '.metadata.annotations[\"d\"]'}}\n  next:\n    statusTemplate: |\n      {{ $now := Now }}\n      phase: {{ if eq .a \"b\" }}Failed{{ else }}{{ .spec.x | Quote }}{{ end }}\n      {{ range $i, $item := .spec.containers }}{{ with $item.name }}{{ . }}{{ end }}{{ end }}\n",
    "apiVersion: kwok.x-k8s.io/v1alpha1\nkind: Stage\nmetadata: {name: gone}\nspec:\n  resourceRef: {apiGroup: v1, kind: Pod}\n  selector: {matchLabels: {a: b}}\n  weight: 2\n  next: {delete: true, finalizers: {empty: true}, event: {type: Normal, reason: R, message: m}}\n",
    "apiVersion: kwok.x-k8s.io/v1alpha1\nkind: ClusterLogs\nmetadata: {name: l}\nspec: {logs: [{logsFile: /tmp/x, follow: true}]}\n",
    "seed: 1\n---\n---\nprofile: kubelet\n",
];
