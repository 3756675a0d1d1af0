"""Webhooks and policies of well-known projects, as their published modules have them, on a running server.

`policies.py PROJECT FOLDER [CERTIFICATE KEY]`: FOLDER is that of the project's Go module. Each project is shown to admit what it should
and to refuse what it should; the program prints one line for each and fails at the first that differs. Webhooks are answered by a
server in this program, which has the certificate. What a manifest leaves to its installer (a version, an action that is required)
is filled in where it is read, with the reason."""

import base64
import http.server
import json
import pathlib
import re
import ssl
import sys
import threading
import urllib.parse

import yaml
from kubernetes import client, config

ADMISSION = "admissionregistration.k8s.io"

# The path of a collection by kind; those with a namespace are below it.
COLLECTIONS = {
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "MutatingAdmissionPolicy": f"/apis/{ADMISSION}/v1/mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": f"/apis/{ADMISSION}/v1/mutatingadmissionpolicybindings",
    "MutatingWebhookConfiguration": f"/apis/{ADMISSION}/v1/mutatingwebhookconfigurations",
    "Namespace": "/api/v1/namespaces",
    "ResourceSlice": "/apis/resource.k8s.io/v1/resourceslices",
    "ValidatingAdmissionPolicy": f"/apis/{ADMISSION}/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"/apis/{ADMISSION}/v1/validatingadmissionpolicybindings",
    "ValidatingWebhookConfiguration": f"/apis/{ADMISSION}/v1/validatingwebhookconfigurations",
    "CertificateRequest": "/apis/cert-manager.io/v1/namespaces/{}/certificaterequests",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "Issuer": "/apis/cert-manager.io/v1/namespaces/{}/issuers",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Service": "/api/v1/namespaces/{}/services",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
}


class Server:
    """The server under test, by paths and JSON."""

    def __init__(self):
        config.load_kube_config()
        self.api = client.ApiClient()

    def ask(self, method, path, body=None, headers=None):
        """Returns the status and the object of an answer."""
        sent = {"Content-Type": "application/json", "Accept": "application/json", **(headers or {})}
        url = self.api.configuration.host + path
        answer = self.api.rest_client.request(method, url, headers=sent, body=body)
        return answer.status, json.loads(answer.read() or "{}")

    def path(self, thing):
        return COLLECTIONS[thing["kind"]].format(thing["metadata"].get("namespace", "default"))

    def create(self, thing, dry_run=False, user=None):
        """Sends an object, in place of the user that is named; a dry run meets policies and webhooks too."""
        path = self.path(thing) + ("?dryRun=All" if dry_run else "")
        return self.ask("POST", path, thing, user and impersonation(user))

    def must_create(self, thing):
        status, answer = self.create(thing)
        assert status == 201, (thing, answer)
        return answer

    def ensure_namespace(self, name, labels=None):
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels or {}}}
        status, answer = self.create(namespace)
        assert status in (201, 409), answer
        if status == 409 and labels:
            change = {"metadata": {"labels": labels}}
            headers = {"Content-Type": "application/merge-patch+json"}
            status, answer = self.ask("PATCH", f"/api/v1/namespaces/{name}", change, headers)
            assert status == 200, answer

    def delete(self, thing):
        status, answer = self.ask("DELETE", self.path(thing) + "/" + thing["metadata"]["name"])
        assert status == 200, answer


def impersonation(user):
    headers = {"Impersonate-User": user["username"]}
    if user.get("groups"):
        headers["Impersonate-Group"] = user["groups"][0]
    for key, value in user.get("extra", {}).items():
        headers["Impersonate-Extra-" + urllib.parse.quote(key, safe="")] = value
    return headers


def load(file):
    return [thing for thing in yaml.safe_load_all(file.read_text()) if thing]


def said(project, what, verdict):
    print(f"{project}: {what} {verdict}", flush=True)


def expect(project, what, answer, refusal):
    """Compares an answer with the text of the expected refusal; none if the request is admitted."""
    status, thing = answer
    if refusal is None:
        assert status in (200, 201), (project, what, status, thing)
        return said(project, what, "admitted")
    assert status >= 400 and refusal in thing["message"], (project, what, status, thing, refusal)
    return said(project, what, "refused")


# Kyverno: the tests of its command line, each a policy with the results that it must have.


def bound(policies):
    """Policies with their bindings, written for a server of this version."""
    named = {thing["spec"]["policyName"] for thing in policies if thing["kind"].endswith("Binding")}
    for thing in policies:
        # Mutating policies are written in a version that is no longer served.
        thing["apiVersion"] = f"{ADMISSION}/v1"
        if thing["kind"].endswith("Binding"):
            # What the command line does without and the server requires.
            if thing["kind"].startswith("Validating"):
                thing["spec"].setdefault("validationActions", ["Deny"])
            if "paramRef" in thing["spec"]:
                thing["spec"]["paramRef"].setdefault("parameterNotFoundAction", "Deny")
        else:
            for rule in thing["spec"]["matchConstraints"]["resourceRules"]:
                rule.setdefault("operations", ["CREATE", "UPDATE"])
        yield thing
        # The command line applies a policy without a binding to everything.
        if not thing["kind"].endswith("Binding") and thing["metadata"]["name"] not in named:
            spec = {"policyName": thing["metadata"]["name"]}
            if thing["kind"].startswith("Validating"):
                spec["validationActions"] = ["Deny"]
            yield {
                "apiVersion": thing["apiVersion"],
                "kind": thing["kind"] + "Binding",
                "metadata": {"name": thing["metadata"]["name"]},
                "spec": spec,
            }


def includes(whole, part):
    """Whether a value has all members of another."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and includes(whole[key], part[key]) for key in part)
    if isinstance(part, list):
        return isinstance(whole, list) and len(whole) == len(part) and all(map(includes, whole, part))
    return whole == part


def kyverno_case(server, folder):
    """Runs one test of the command line; returns how often each result was met."""
    test = load(folder / "kyverno-test.yaml")[0]
    user = load(folder / test["userinfo"])[0]["userInfo"] if "userinfo" in test else None
    values = load(folder / test["variables"])[0] if "variables" in test else {}
    for namespace in values.get("namespaceSelector", []):
        server.ensure_namespace(namespace["name"], namespace["labels"])
    params = [thing for file in test.get("paramResources", []) for thing in load(folder / file)]
    for thing in params:
        # The command line reads numbers there; a server has texts only.
        thing["data"] = {key: str(value) for key, value in thing["data"].items()}
    policies = [thing for file in test["policies"] for thing in bound(load(folder / file))]
    made = params + policies
    for thing in made:
        server.must_create(thing)
    resources = [thing for file in test["resources"] for thing in load(folder / file)]
    met = {}
    for result in test["results"]:
        names = result.get("resources") or [thing["metadata"]["name"] for thing in resources]
        patched = load(folder / result["patchedResources"]) if "patchedResources" in result else []
        for thing in resources:
            if thing["metadata"]["name"] not in names or thing["kind"] != result["kind"]:
                continue
            if thing["kind"] != "Namespace":
                server.ensure_namespace(thing["metadata"].get("namespace", "default"))
            what = f"{folder.name}/{thing['metadata']['name']}"
            answer = server.create(thing, dry_run=True, user=user)
            refusal = f"ValidatingAdmissionPolicy '{result['policy']}'" if result["result"] == "fail" else None
            expect("kyverno", what, answer, refusal)
            for wanted in patched:
                if wanted["metadata"]["name"] == thing["metadata"]["name"]:
                    assert includes(answer[1], wanted), (what, wanted, answer[1])
            met[result["result"]] = met.get(result["result"], 0) + 1
    for thing in reversed(made):
        server.delete(thing)
    return met


# `params.items` is a list in the command line only: a server evaluates a policy once for each of its params.
KYVERNO_ONLY = {"with-two-params"}


def kyverno(server, module):
    total = {}
    for kind in ["validating", "mutating"]:
        for folder in sorted((module / f"test/cli/test-{kind}-admission-policy").iterdir()):
            if folder.name in KYVERNO_ONLY or not (folder / "kyverno-test.yaml").exists():
                continue
            for result, times in kyverno_case(server, folder).items():
                total[result] = total.get(result, 0) + times
    print("kyverno:", ", ".join(f"{total[result]} {result}" for result in sorted(total)))


# Kubernetes: the policy of its end-to-end tests for agents that run on a node, and that of a driver of devices.


def agent(namespace, name, node):
    """A service account whose token belongs to a pod, which may be on a node."""
    extra = {"authentication.kubernetes.io/pod-name": "agent"}
    if node:
        extra["authentication.kubernetes.io/node-name"] = node
    return {"username": f"system:serviceaccount:{namespace}:{name}", "extra": extra}


def kubernetes(server, module):
    policy = load(module / "test/e2e/auth/e2edata/per_node_validatingadmissionpolicy.yaml")[0]
    # The test puts its namespace there too.
    conditions = policy["spec"]["matchConditions"]
    conditions[0]["expression"] = conditions[0]["expression"].replace("e2e-ns", "default")
    for thing in bound([policy]):
        server.must_create(thing)
    driver = module / "test/e2e/dra/test-driver/deploy/example/plugin-permissions.yaml"
    server.ensure_namespace("dra-kubelet-plugin-namespace")
    for thing in load(driver):
        server.must_create(thing)
    server.must_create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "agents"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        }
    )
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "node-1"}}
    for node, refusal in [
        ("node-1", None),
        ("node-2", "this user running on node 'node-2' may not modify ConfigMap 'node-1'"),
        (None, "no node association found for user"),
    ]:
        answer = server.create(settings, dry_run=True, user=agent("default", "default", node))
        expect("kubernetes", f"settings of node-1 from {node}", answer, refusal)
    devices = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "devices"},
        "spec": {
            "driver": "dra.example.com",
            "nodeName": "node-1",
            "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "one"}],
        },
    }
    plugin = ("dra-kubelet-plugin-namespace", "dra-kubelet-plugin-service-account")
    for node, refusal in [("node-1", None), ("node-2", "may not modify resourceslices on node 'node-1'")]:
        answer = server.create(devices, dry_run=True, user=agent(*plugin, node))
        expect("kubernetes", f"devices of node-1 from {node}", answer, refusal)


# Gateway API: the policy that keeps definitions from being replaced by others.


def gateway_api(server, module):
    crds = module / "config/crd"
    name = "gateway.networking.k8s.io_httproutes.yaml"
    standard, experimental = load(crds / "standard" / name)[0], load(crds / "experimental" / name)[0]
    for thing in load(crds / "standard/gateway.networking.k8s.io_vap_safeupgrades.yaml"):
        server.must_create(thing)
    expect("gateway-api", "the standard definition", server.create(standard), None)
    path = server.path(standard) + "/" + standard["metadata"]["name"]
    headers = {"Content-Type": "application/apply-patch+yaml"}
    query = "?fieldManager=installer&force=true"
    answer = server.ask("PATCH", path + query, experimental, headers)
    expect("gateway-api", "an experimental definition on top", answer, "Installing experimental CRDs on top of standard")
    older = json.loads(json.dumps(standard))
    older["metadata"]["annotations"]["gateway.networking.k8s.io/bundle-version"] = "v1.3.0"
    answer = server.ask("PATCH", path + query, older, headers)
    expect("gateway-api", "an older definition", answer, "Installing CRDs with version before v1.5.0 is prohibited")


# Webhooks: a server that answers reviews by their path.


class Hook:
    """Answers reviews. `answers` maps a path to a function of the request, which returns a refusal, a patch, or nothing."""

    def __init__(self, certificate, key, answers):
        hook = self
        self.seen = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                path = self.path.split("?")[0]
                hook.seen.append((path, review["request"]["resource"]["resource"]))
                answer = answers[path](review["request"])
                response = {"uid": review["request"]["uid"], "allowed": not isinstance(answer, str)}
                if isinstance(answer, str):
                    response["status"] = {"code": 403, "message": answer}
                elif answer:
                    response["patchType"] = "JSONPatch"
                    response["patch"] = base64.b64encode(json.dumps(answer).encode()).decode()
                answer = {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        listener.socket = context.wrap_socket(listener.socket, server_side=True)
        self.address = f"127.0.0.1:{listener.server_port}"
        self.authority = base64.b64encode(pathlib.Path(certificate).read_bytes()).decode()
        threading.Thread(target=listener.serve_forever, daemon=True).start()


def service(server, namespace, name, hook):
    """The service of a webhook, which is where this program listens."""
    server.ensure_namespace(namespace)
    server.must_create(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": namespace, "annotations": {"dogwatch.dev/endpoint": hook.address}},
            "spec": {"ports": [{"port": 443, "targetPort": 8443}]},
        }
    )


def trusted(configuration, hook):
    """What the injector of a project does: the authority that signed the certificate."""
    for webhook in configuration["webhooks"]:
        webhook["clientConfig"]["caBundle"] = hook.authority
    return configuration


def gatekeeper(server, module, certificate, key):
    def admit(request):
        labels = request["object"]["metadata"].get("labels", {})
        return None if "owner" in labels else "[must-have-owner] you must provide labels: {\"owner\"}"

    def admit_label(request):
        labels = request["object"]["metadata"].get("labels", {})
        ignored = "admission.gatekeeper.sh/ignore" in labels
        return "Only exempt namespace can have the admission.gatekeeper.sh/ignore label" if ignored else None

    def mutate(request):
        if request["kind"]["kind"] != "Pod":
            return None
        return [{"op": "add", "path": "/metadata/annotations", "value": {"gatekeeper.sh/seen": "yes"}}]

    hook = Hook(certificate, key, {"/v1/admit": admit, "/v1/admitlabel": admit_label, "/v1/mutate": mutate})
    service(server, "gatekeeper-system", "gatekeeper-webhook-service", hook)
    for thing in load(module / "deploy/gatekeeper.yaml"):
        if thing["kind"].endswith("WebhookConfiguration"):
            server.must_create(trusted(thing, hook))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "labels": {"owner": "me"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    answer = server.create(pod, dry_run=True)
    expect("gatekeeper", "a pod with an owner", answer, None)
    assert answer[1]["metadata"]["annotations"] == {"gatekeeper.sh/seen": "yes"}, answer
    del pod["metadata"]["labels"]
    denied = 'admission webhook "validation.gatekeeper.sh" denied the request: [must-have-owner]'
    expect("gatekeeper", "a pod without", server.create(pod, dry_run=True), denied)
    pod["metadata"]["namespace"] = "gatekeeper-system"
    seen = len(hook.seen)
    expect("gatekeeper", "its own namespace", server.create(pod, dry_run=True), None)
    assert len(hook.seen) == seen, hook.seen
    exempt = {"admission.gatekeeper.sh/ignore": "yes"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "exempt", "labels": exempt}}
    denied = 'admission webhook "check-ignore-label.gatekeeper.sh" denied the request: Only exempt namespace'
    expect("gatekeeper", "a namespace that exempts itself", server.create(namespace, dry_run=True), denied)


# cert-manager: the templates of its chart, with the values of the chart.


def rendered(template, values):
    """Renders the few forms that the two templates use: fields, named templates, conditions and YAML of a value."""

    def value(path):
        found = values
        for name in path.split(".")[2:]:
            found = (found or {}).get(name)
        return found

    names = {"webhook.fullname": "cert-manager-webhook", "webhook.name": "webhook", "cert-manager.namespace": "cert-manager"}
    lines, blocks = [], []
    for line in template.splitlines():
        control = re.fullmatch(r"\s*\{\{-? *(with|if|else|end)(?: (\S+))? *\}\}", line)
        if control and control[1] == "end":
            blocks.pop()
        elif control and control[1] == "else":
            blocks[-1] = (not blocks[-1][0], None)
        elif control:
            blocks.append((bool(value(control[2])), value(control[2])))
        elif all(shown for shown, _ in blocks):
            indented = re.fullmatch(r"\s*\{\{- *toYaml \. \| nindent (\d+) *\}\}", line)
            if indented:
                shown = yaml.safe_dump(blocks[-1][1]).splitlines()
                lines.extend(" " * int(indented[1]) + text for text in shown)
                continue
            if '{{- include "labels"' in line or "{{ printf" in line:
                # Labels and the annotation for the injector: nothing of this program reads them.
                continue
            line = re.sub(r'\{\{ *(?:include|template) "([^"]+)" \. *\}\}', lambda found: names[found[1]], line)
            line = line.replace("{{ .Release.Name }}", "cert-manager")
            line = re.sub(r"\{\{ *(\.Values\S+) *\}\}", lambda found: str(value(found[1])), line)
            lines.append(line)
    text = "\n".join(lines)
    assert "{{" not in text, text
    return yaml.safe_load(text)


def cert_manager(server, module, certificate, key):
    def validate(request):
        spec = request["object"]["spec"]
        return "spec.acme.email: Required value" if "acme" in spec and not spec["acme"].get("email") else None

    def mutate(request):
        return [{"op": "add", "path": "/spec/username", "value": request["userInfo"]["username"]}]

    hook = Hook(certificate, key, {"/validate": validate, "/mutate": mutate})
    service(server, "cert-manager", "cert-manager-webhook", hook)
    for file in sorted((module / "deploy/crds").glob("*.yaml")):
        for thing in load(file):
            if thing["spec"]["names"]["kind"] in ("CertificateRequest", "Issuer"):
                server.must_create(thing)
    chart = module / "deploy/charts/cert-manager"
    values = load(chart / "values.yaml")[0]
    for kind in ["mutating", "validating"]:
        template = (chart / f"templates/webhook-{kind}-webhook.yaml").read_text()
        server.must_create(trusted(rendered(template, values), hook))
    acme = {
        "server": "https://acme.example.com",
        "privateKeySecretRef": {"name": "account"},
        "email": "me@example.com",
        "solvers": [],
    }
    issuer = {"apiVersion": "cert-manager.io/v1", "kind": "Issuer", "metadata": {"name": "acme"}, "spec": {"acme": acme}}
    expect("cert-manager", "an issuer", server.create(issuer), None)
    issuer["metadata"]["name"] = "nobody"
    del acme["email"]
    denied = 'admission webhook "webhook.cert-manager.io" denied the request: spec.acme.email: Required value'
    expect("cert-manager", "an issuer without an address", server.create(issuer), denied)
    request = {
        "apiVersion": "cert-manager.io/v1",
        "kind": "CertificateRequest",
        "metadata": {"name": "one"},
        "spec": {"issuerRef": {"name": "acme"}, "request": base64.b64encode(b"request").decode()},
    }
    answer = server.create(request)
    expect("cert-manager", "a request", answer, None)
    assert answer[1]["spec"]["username"], answer
    issuer["metadata"]["namespace"] = "unchecked"
    server.ensure_namespace("unchecked", {"cert-manager.io/disable-validation": "true"})
    expect("cert-manager", "a namespace that is not validated", server.create(issuer), None)


PROJECTS = {
    "kyverno": kyverno,
    "kubernetes": kubernetes,
    "gateway-api": gateway_api,
    "gatekeeper": gatekeeper,
    "cert-manager": cert_manager,
}

if __name__ == "__main__":
    PROJECTS[sys.argv[1]](Server(), pathlib.Path(sys.argv[2]), *sys.argv[3:])
