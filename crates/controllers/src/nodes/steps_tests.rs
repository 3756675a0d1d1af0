//! Steps, one after the other, as the status requires them.

use serde_json::{Value, json};

use super::super::status::{StepInputs, write};
use super::*;

const NOW: i64 = 1_800_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(NOW + seconds).unwrap()
}

fn bound(change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "d", "uid": "u", "generation": 1},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "nginx"}], "restartPolicy": "Always"},
        "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2027-01-15T08:00:00Z"}]},
    });
    change(&mut pod);
    pod
}

fn parsed(pod: &Value) -> Pod {
    serde_json::from_value(pod.clone()).unwrap()
}

fn behaviour(pod: &Value) -> Behaviour {
    Stages::default().behaviour(&parsed(pod))
}

fn step(pod: &Value, stages: &Stages, now: i64) -> Option<Plan> {
    next(&parsed(pod), &stages.behaviour(&parsed(pod)), stages, &Known::default(), at(now))
}

/// Applies a step: the patch to the status of the pod (lists are replaced whole here).
fn done(pod: &mut Value, step: &Step, now: i64) -> Vec<String> {
    let behaviour = behaviour(pod);
    let with = StepInputs {
        behaviour: &behaviour,
        sight: &Sight::new(),
        node_address: "172.16.0.1".parse().unwrap(),
        address: "10.0.0.7".parse().ok(),
        first_backoff: Duration::from_secs(10),
        now: at(now),
    };
    let (patch, events) = write(&parsed(pod), step, &with).expect("a status step");
    assert_eq!(patch["metadata"]["uid"], "u", "NA-10");
    for (name, value) in patch["status"].as_object().unwrap() {
        if !name.starts_with('$') {
            pod["status"][name] = value.clone();
        }
    }
    events.into_iter().map(|event| event.reason.into_owned()).collect()
}

fn conditions(pod: &Value) -> Vec<String> {
    let text = |c: &Value| {
        let reason = c["reason"].as_str().map(|reason| format!("/{reason}")).unwrap_or_default();
        format!("{}={}{reason}", c["type"].as_str().unwrap(), c["status"].as_str().unwrap())
    };
    pod["status"]["conditions"].as_array().unwrap().iter().map(text).collect()
}

fn state(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]["state"]
}

fn exit(code: i32, second: i64) -> Step {
    Step::Containers(vec![("c".into(), Change::Exit(Ended { code, at: at(second), message: None }))])
}

fn restart() -> Step {
    Step::Containers(vec![("c".into(), Change::Restart)])
}

fn back_off() -> Step {
    Step::Containers(vec![("c".into(), Change::BackOff)])
}

fn stop(code: i32) -> Step {
    Step::Stop(code, BTreeMap::new())
}

fn next_step(pod: &Value, now: i64) -> Option<Step> {
    step(pod, &Stages::default(), now).map(|plan| plan.step)
}

#[test]
fn na_stages_from_bound_to_running() {
    let mut pod = bound(|_| {});
    assert_eq!(next_step(&pod, 0), Some(Step::Accept));
    assert_eq!(done(&mut pod, &Step::Accept, 0), ["Pulling"]);
    assert_eq!(
        conditions(&pod),
        [
            "PodReadyToStartContainers=False",
            "Initialized=True",
            "Ready=False/ContainersNotReady",
            "ContainersReady=False/ContainersNotReady",
            "PodScheduled=True"
        ]
    );
    assert_eq!(pod["status"]["hostIP"], "172.16.0.1");
    assert_eq!(pod["status"]["startTime"], "2027-01-15T08:00:00Z");
    assert_eq!(pod["status"]["observedGeneration"], 1);
    assert_eq!(state(&pod)["waiting"]["reason"], "ContainerCreating");
    assert!(pod["status"].get("podIP").is_none());
    assert_eq!(next_step(&pod, 1), Some(Step::Run));
    assert_eq!(done(&mut pod, &Step::Run, 1), ["Pulled", "Created", "Started"]);
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!((&pod["status"]["podIP"], &pod["status"]["podIPs"][0]["ip"]), (&json!("10.0.0.7"), &json!("10.0.0.7")));
    assert!(conditions(&pod).iter().all(|condition| condition.ends_with("=True")), "{:?}", conditions(&pod));
    assert_eq!(next_step(&pod, 2), None);
}

#[test]
fn na_stages_init_containers_one_after_the_other() {
    let mut pod = bound(|pod| {
        pod["spec"]["initContainers"] = json!([{"name": "i", "image": "x"},
            {"name": "side", "image": "y", "restartPolicy": "Always"}]);
    });
    done(&mut pod, &Step::Accept, 0);
    assert_eq!(state(&pod)["waiting"]["reason"], "PodInitializing");
    assert_eq!(conditions(&pod)[1], "Initialized=False/ContainersNotInitialized");
    assert_eq!(next_step(&pod, 0), Some(Step::Init(0)));
    done(&mut pod, &Step::Init(0), 1);
    assert_eq!(pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["reason"], "Completed");
    assert_eq!(next_step(&pod, 0), Some(Step::Init(1)));
    done(&mut pod, &Step::Init(1), 1);
    assert!(pod["status"]["initContainerStatuses"][1]["state"]["running"].is_object());
    assert_eq!(next_step(&pod, 0), Some(Step::Run));
    done(&mut pod, &Step::Run, 2);
    assert_eq!(next_step(&pod, 3), None);
}

#[test]
fn na_stages_stop_never_after_the_deletion_time() {
    let mut pod = bound(|_| {});
    done(&mut pod, &Step::Accept, 0);
    done(&mut pod, &Step::Run, 1);
    pod["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    let plan = step(&pod, &Stages::default(), 1).unwrap();
    assert_eq!(plan.step, stop(0));
    assert!(plan.after < Duration::from_secs(1));
    pod["metadata"]["annotations"] = json!({"nodes.dogwatch/stop-delay": "60s"});
    let plan = step(&pod, &Stages::default(), 20).unwrap();
    assert_eq!(plan, Plan { step: stop(137), after: Duration::from_secs(10) }, "killed when its time is up");
    assert_eq!(done(&mut pod, &stop(0), 20), ["Killing"]);
    assert_eq!(pod["status"]["phase"], "Succeeded");
    assert_eq!(conditions(&pod)[2..4], ["Ready=False/PodCompleted", "ContainersReady=False/PodCompleted"]);
    assert_eq!(next_step(&pod, 20), Some(Step::Remove));
}

#[test]
fn a_pod_whose_removal_was_interrupted_is_removed_again() {
    let mut pod = bound(|_| {});
    done(&mut pod, &Step::Accept, 0);
    done(&mut pod, &Step::Run, 1);
    pod["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    let plan = step(&pod, &Stages::default(), 1).unwrap();
    assert_eq!(plan, Plan { step: Step::Remove, after: INTERRUPTED });
    pod["metadata"]["finalizers"] = json!(["example.com/hold"]);
    assert_eq!(next_step(&pod, 1), Some(stop(KILLED)), "held");
}

#[test]
fn na_stages_killed_containers_fail_the_pod() {
    let mut pod = bound(|_| {});
    done(&mut pod, &Step::Accept, 0);
    done(&mut pod, &Step::Run, 1);
    done(&mut pod, &stop(137), 5);
    assert_eq!(pod["status"]["phase"], "Failed");
    assert_eq!(state(&pod)["terminated"]["exitCode"], 137);
    assert_eq!(state(&pod)["terminated"]["reason"], "Error");
    assert_eq!(conditions(&pod)[2], "Ready=False/PodFailed");
}

#[test]
fn na_13_a_pod_that_has_ended_is_left_alone() {
    for phase in ["Succeeded", "Failed"] {
        let pod = bound(|pod| pod["status"]["phase"] = json!(phase));
        assert_eq!(next_step(&pod, 0), None, "{phase}");
    }
    let mut pod = bound(|_| {});
    done(&mut pod, &Step::Run, 0);
    pod["status"]["podIP"] = json!("10.9.9.9");
    done(&mut pod, &Step::Run, 1);
    assert_eq!(pod["status"]["podIP"], "10.9.9.9", "an address stays");
}

#[test]
fn na_11_conditions_of_others_stay_in_front() {
    let pod = bound(|pod| {
        pod["status"]["conditions"] = json!([{"type": "DisruptionTarget", "status": "True"},
            {"type": "PodScheduled", "status": "True"}]);
    });
    let behaviour = behaviour(&pod);
    let with = StepInputs {
        behaviour: &behaviour,
        sight: &Sight::new(),
        node_address: "172.16.0.1".parse().unwrap(),
        address: None,
        first_backoff: Duration::ZERO,
        now: at(0),
    };
    let (patch, _) = write(&parsed(&pod), &Step::Accept, &with).unwrap();
    let order = patch["status"]["$setElementOrder/conditions"].as_array().unwrap();
    assert_eq!(order[0]["type"], "DisruptionTarget");
    assert_eq!(order.len(), 6);
    let written = patch["status"]["conditions"].as_array().unwrap();
    assert!(written.iter().all(|condition| condition["type"] != "DisruptionTarget"));
}

#[test]
fn na_11_a_pod_with_readiness_gates_waits_for_others() {
    let mut pod = bound(|pod| pod["spec"]["readinessGates"] = json!([{"conditionType": "example.com/up"}]));
    done(&mut pod, &Step::Accept, 0);
    done(&mut pod, &Step::Run, 1);
    assert_eq!(conditions(&pod)[2], "Ready=False/ReadinessGatesNotReady");
    assert_eq!(next_step(&pod, 2), None);
    let gate = json!({"type": "example.com/up", "status": "True"});
    pod["status"]["conditions"].as_array_mut().unwrap().push(gate);
    assert_eq!(next_step(&pod, 2), Some(Step::Refresh));
}

#[test]
fn na_16_times_of_conditions_change_with_their_status_only() {
    let mut pod = bound(|_| {});
    done(&mut pod, &Step::Accept, 10);
    done(&mut pod, &Step::Run, 20);
    let time = |kind: &str| {
        let all = pod["status"]["conditions"].as_array().unwrap();
        all.iter().find(|c| c["type"] == kind).unwrap()["lastTransitionTime"].clone()
    };
    assert_eq!(time("PodScheduled"), "2027-01-15T08:00:00Z");
    assert_eq!(time("Initialized"), "2027-01-15T08:00:10Z");
    assert_eq!(time("Ready"), "2027-01-15T08:00:20Z");
}

#[test]
fn a_pod_of_a_job_completes_and_others_run_on() {
    let mut pod = bound(|pod| {
        pod["spec"]["restartPolicy"] = json!("Never");
        pod["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true}]);
    });
    done(&mut pod, &Step::Accept, 0);
    done(&mut pod, &Step::Run, 1);
    let plan = step(&pod, &Stages::default(), 1).unwrap();
    assert!(matches!(&plan.step, Step::Containers(changes) if matches!(&changes[0].1, Change::Exit(e) if e.code == 0)));
    assert!(plan.after >= Duration::from_millis(500) && plan.after <= Duration::from_millis(1500));
    done(&mut pod, &plan.step, 2);
    assert_eq!(pod["status"]["phase"], "Succeeded");
    assert_eq!(state(&pod)["terminated"]["reason"], "Completed");
    assert_eq!(conditions(&pod)[1], "Initialized=True/PodCompleted");
}

#[test]
fn crash_loops_wait_longer_and_longer() {
    let mut pod = bound(|pod| {
        pod["metadata"]["annotations"] = json!({"nodes.dogwatch/exit-after": "3s", "nodes.dogwatch/exit-code": "2"});
    });
    done(&mut pod, &Step::Accept, 0);
    done(&mut pod, &Step::Run, 0);
    let plan = step(&pod, &Stages::default(), 1).unwrap();
    assert_eq!(plan, Plan { step: exit(2, 3), after: Duration::from_secs(2) });
    done(&mut pod, &exit(2, 3), 3);
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(state(&pod)["terminated"]["exitCode"], 2);
    assert_eq!(next_step(&pod, 3), Some(restart()), "the first time at once");
    done(&mut pod, &restart(), 3);
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 1);
    assert_eq!(pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 2);
    done(&mut pod, &exit(2, 6), 6);
    assert_eq!(next_step(&pod, 6), Some(back_off()));
    assert_eq!(done(&mut pod, &back_off(), 6), ["BackOff"]);
    assert_eq!(state(&pod)["waiting"]["reason"], "CrashLoopBackOff");
    assert_eq!(state(&pod)["waiting"]["message"], "back-off 10s restarting failed container=c pod=p_d(u)");
    let plan = step(&pod, &Stages::default(), 6).unwrap();
    assert_eq!(plan, Plan { step: restart(), after: Duration::from_secs(10) });
    done(&mut pod, &restart(), 16);
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 2);
    assert_eq!(backoff(Duration::from_secs(10), 9), Duration::from_secs(300));
}

#[test]
fn restart_policies() {
    for (policy, code, phase) in [
        ("Never", 0, "Succeeded"),
        ("Never", 1, "Failed"),
        ("OnFailure", 0, "Succeeded"),
        ("OnFailure", 1, "Running"),
        ("Always", 0, "Running"),
    ] {
        let mut pod = bound(|pod| pod["spec"]["restartPolicy"] = json!(policy));
        done(&mut pod, &Step::Run, 0);
        done(&mut pod, &exit(code, 1), 1);
        assert_eq!(pod["status"]["phase"], phase, "{policy} {code}");
    }
}

#[test]
fn images_that_cannot_be_had() {
    let mut pod = bound(|pod| pod["metadata"]["annotations"] = json!({"nodes.dogwatch/image-pull": "fail"}));
    done(&mut pod, &Step::Accept, 0);
    assert_eq!(next_step(&pod, 0), Some(Step::FailPull));
    done(&mut pod, &Step::FailPull, 1);
    assert_eq!(state(&pod)["waiting"]["reason"], "ErrImagePull");
    assert_eq!(next_step(&pod, 1), Some(Step::BackOffPull));
    done(&mut pod, &Step::BackOffPull, 2);
    assert_eq!(state(&pod)["waiting"]["reason"], "ImagePullBackOff");
    assert_eq!((next_step(&pod, 2), &pod["status"]["phase"]), (None, &json!("Pending")));
}

#[test]
fn readiness_comes_later_or_never() {
    let with = |annotations: Value| {
        let mut pod = bound(|pod| pod["metadata"]["annotations"] = annotations);
        done(&mut pod, &Step::Accept, 0);
        done(&mut pod, &Step::Run, 0);
        pod
    };
    let mut later = with(json!({"nodes.dogwatch/ready-after": "10s"}));
    assert_eq!(conditions(&later)[2], "Ready=False/ContainersNotReady");
    assert_eq!(step(&later, &Stages::default(), 4), Some(Plan { step: Step::Refresh, after: Duration::from_secs(6) }));
    done(&mut later, &Step::Refresh, 10);
    assert_eq!(conditions(&later)[2], "Ready=True");
    let never = with(json!({"nodes.dogwatch/ready": "never"}));
    assert_eq!((next_step(&never, 100), &never["status"]["phase"]), (None, &json!("Running")));
}

#[test]
fn a_pod_marked_as_not_ready_by_others_recovers() {
    let mut pod = bound(|_| {});
    done(&mut pod, &Step::Accept, 0);
    done(&mut pod, &Step::Run, 1);
    pod["status"]["conditions"][2]["status"] = json!("False");
    assert_eq!(next_step(&pod, 2), Some(Step::Refresh));
    done(&mut pod, &Step::Refresh, 3);
    assert_eq!(conditions(&pod)[2], "Ready=True");
}

#[test]
fn fast_nodes_write_as_little_as_possible() {
    let stages = Stages { profile: Profile::Fast, ..Stages::default() };
    let mut pod = bound(|_| {});
    assert_eq!(step(&pod, &stages, 0).unwrap().step, Step::Run);
    done(&mut pod, &Step::Run, 0);
    assert_eq!((&pod["status"]["phase"], &pod["status"]["podIP"]), (&json!("Running"), &json!("10.0.0.7")));
    assert_eq!(step(&pod, &stages, 0), None);
    pod["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    assert_eq!(step(&pod, &stages, 0).unwrap().step, Step::Remove);
}

#[test]
fn a_removed_pod_that_a_finalizer_holds_is_removed_once() {
    let mut pod = bound(|pod| pod["status"]["phase"] = json!("Succeeded"));
    pod["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    pod["metadata"]["finalizers"] = json!(["example.com/hold"]);
    assert_eq!(next_step(&pod, 5), None);
}
