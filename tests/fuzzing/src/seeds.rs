//! Typical inputs of each target, and inputs that are deeply nested or very long.

mod access;
mod webhooks;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use machinery::media::PatchType;
use schema::decode::{self, FieldValidation, MediaType};
use schema::facts::Types;
use schema::{kinds, protobuf};

use access::{AUDIT_POLICIES, AUTHENTICATION_FILES, AUTHORIZATION_FILES, HEADERS, JSON_TOKENS};
use webhooks::ANSWERS;

use crate::bodies::{body_input, patch_input};

/// Objects with many of the fields of their kinds. Each is valid: patches are applied to them.
pub const OBJECTS: [(&str, &str); 9] = [
    (
        "ConfigMap",
        r#"{"metadata":{"name":"a","namespace":"d","labels":{"app":"web"},"annotations":{"e.io/k":"v"},"finalizers":["e.io/f"],"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u","controller":true}]},"data":{"k":"v"},"binaryData":{"b":"AAEC"}}"#,
    ),
    (
        "Secret",
        r#"{"metadata":{"name":"a","namespace":"d"},"type":"Opaque","stringData":{"k":"v"},"data":{"b":"AAEC"}}"#,
    ),
    ("Namespace", r#"{"metadata":{"name":"a","labels":{"x":"y"}},"spec":{"finalizers":["kubernetes"]}}"#),
    (
        "Pod",
        r#"{"metadata":{"name":"p","namespace":"d"},"spec":{"nodeSelector":{"a":"b"},"tolerations":[{"key":"k","operator":"Exists","effect":"NoExecute","tolerationSeconds":5}],"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}]}}},"volumes":[{"name":"v","emptyDir":{"sizeLimit":"1Gi"}},{"name":"c","configMap":{"name":"x","items":[{"key":"k","path":"p"}]}}],"initContainers":[{"name":"i","image":"i"}],"containers":[{"name":"app","image":"app:1","command":["a"],"args":["b"],"env":[{"name":"A","value":"1"},{"name":"B","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],"ports":[{"containerPort":80,"protocol":"TCP"}],"resources":{"requests":{"cpu":"100m","memory":"64Mi"},"limits":{"cpu":"1","memory":"128Mi"}},"volumeMounts":[{"name":"v","mountPath":"/v"}],"livenessProbe":{"httpGet":{"path":"/","port":"http"},"periodSeconds":5},"securityContext":{"runAsUser":1,"capabilities":{"add":["X"]}}}]}}"#,
    ),
    (
        "Service",
        r#"{"metadata":{"name":"s","namespace":"d"},"spec":{"type":"ClusterIP","clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","selector":{"a":"b"},"ports":[{"name":"http","port":80,"targetPort":"http"},{"name":"dns","port":53,"protocol":"UDP","targetPort":53}]}}"#,
    ),
    (
        "Deployment",
        r#"{"metadata":{"name":"d","namespace":"d"},"spec":{"replicas":3,"selector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"a","operator":"Exists"}]},"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"25%","maxUnavailable":1}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"app","image":"app"},{"name":"log","image":"log","env":[{"name":"A","value":"1"}]}]}}}}"#,
    ),
    (
        "Job",
        r#"{"metadata":{"name":"j","namespace":"d","uid":"u"},"spec":{"suspend":true,"completions":3,"parallelism":2,"completionMode":"Indexed","template":{"spec":{"restartPolicy":"Never","containers":[{"name":"app","image":"app"}]}}}}"#,
    ),
    (
        "Ingress",
        r#"{"metadata":{"name":"i","namespace":"d"},"spec":{"ingressClassName":"c","tls":[{"hosts":["a.b"],"secretName":"s"}],"rules":[{"host":"a.b","http":{"paths":[{"path":"/","pathType":"Prefix","backend":{"service":{"name":"s","port":{"number":80}}}}]}}]}}"#,
    ),
    (
        "CronJob",
        r#"{"metadata":{"name":"c","namespace":"d"},"spec":{"schedule":"*/5 * * * *","timeZone":"Etc/UTC","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"OnFailure","containers":[{"name":"app","image":"app"}]}}}}}}"#,
    ),
];

/// Objects that need not be valid.
const MORE: [(&str, &str); 9] = [
    (
        "Event",
        r#"{"metadata":{"name":"e","namespace":"d"},"involvedObject":{"kind":"Pod","name":"p","namespace":"d"},"reason":"R","type":"Normal","firstTimestamp":"2026-01-02T03:04:05Z","eventTime":"2026-01-02T03:04:05.000006Z"}"#,
    ),
    (
        "Node",
        r#"{"metadata":{"name":"n"},"spec":{"podCIDRs":["10.0.0.0/24"],"taints":[{"key":"k","effect":"NoSchedule"}]},"status":{"capacity":{"cpu":"4"}}}"#,
    ),
    (
        "Lease",
        r#"{"metadata":{"name":"l","namespace":"d"},"spec":{"holderIdentity":"h","leaseDurationSeconds":15,"renewTime":"2026-01-02T03:04:05.000006Z"}}"#,
    ),
    (
        "NetworkPolicy",
        r#"{"metadata":{"name":"n","namespace":"d"},"spec":{"podSelector":{},"ingress":[{"from":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]}}],"ports":[{"port":80,"endPort":90}]}],"policyTypes":["Ingress"]}}"#,
    ),
    (
        "PersistentVolumeClaim",
        r#"{"metadata":{"name":"p","namespace":"d"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},"dataSource":{"apiGroup":"x.io","kind":"K","name":"n"}}}"#,
    ),
    (
        "HorizontalPodAutoscaler",
        r#"{"metadata":{"name":"h","namespace":"d"},"spec":{"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"},"minReplicas":1,"maxReplicas":5,"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":80}}}]}}"#,
    ),
    (
        "CustomResourceDefinition",
        r#"{"metadata":{"name":"ts.x.io"},"spec":{"group":"x.io","scope":"Namespaced","names":{"plural":"ts","singular":"t","kind":"T"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"n":{"type":"integer","default":1,"minimum":0},"l":{"type":"array","items":{"type":"string"}}},"x-kubernetes-validations":[{"rule":"self.n > 0"}]}}}}}]}}"#,
    ),
    (
        "Role",
        r#"{"metadata":{"name":"r","namespace":"d"},"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"],"resourceNames":["a"]}]}"#,
    ),
    (
        "StatefulSet",
        r#"{"metadata":{"name":"s","namespace":"d"},"spec":{"serviceName":"s","selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}},"volumeClaimTemplates":[{"metadata":{"name":"v"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}]}}"#,
    ),
];

const YAML: [&str; 4] = [
    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  labels: {app: web, \"tier\": 'db'}\ndata:\n  text: |\n    one\n    two\n  folded: >-\n    one\n    two\n  number: \"1\"\n",
    "metadata: &m {name: a}\ndata: {a: &x y, b: *x}\n",
    "---\nmetadata:\n  name: a\n  annotations:\n    ? k\n    : !!str 1\n# comment\ndata:\n- 1\n- ~\n...\n",
    "{metadata: {name: a, name: b}, data: {k: 0x1F, l: 1e3, m: yes, n: 2001-01-01, o: .inf}}\n",
];

const PATCHES: [(&str, PatchType, &str); 20] = [
    (
        "ConfigMap",
        PatchType::Json,
        r#"[{"op":"add","path":"/data/x~1y","value":"v"},{"op":"remove","path":"/metadata/labels/app"}]"#,
    ),
    (
        "ConfigMap",
        PatchType::Json,
        r#"[{"op":"test","path":"/data/k","value":"v"},{"op":"copy","from":"/data/k","path":"/data/l"},{"op":"move","from":"/data/l","path":"/data/m"}]"#,
    ),
    (
        "Deployment",
        PatchType::Json,
        r#"[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"x"},{"op":"add","path":"/spec/template/spec/containers/-","value":{"name":"n","image":"i"}}]"#,
    ),
    (
        "Pod",
        PatchType::Json,
        r#"[{"op":"add","path":"/metadata/finalizers","value":["x/y"]},{"op":"remove","path":"/spec/tolerations/0"}]"#,
    ),
    ("ConfigMap", PatchType::Merge, r#"{"data":{"k":null,"n":"m"},"metadata":{"resourceVersion":"1","labels":null}}"#),
    (
        "Deployment",
        PatchType::Merge,
        r#"{"spec":{"replicas":5,"template":{"spec":{"containers":[{"name":"x","image":"y"}]}}}}"#,
    ),
    (
        "Pod",
        PatchType::Merge,
        r#"{"spec":{"activeDeadlineSeconds":5},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}"#,
    ),
    ("Service", PatchType::Merge, r#"{"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":30000}]}}"#),
    (
        "Deployment",
        PatchType::Strategic,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"x","env":[{"name":"A","value":"2"}]},{"name":"log","$patch":"delete"}],"$setElementOrder/containers":[{"name":"new"},{"name":"app"}]}}}}"#,
    ),
    ("Deployment", PatchType::Strategic, r#"{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}"#),
    (
        "ConfigMap",
        PatchType::Strategic,
        r#"{"metadata":{"finalizers":["x/y"],"$deleteFromPrimitiveList/finalizers":["e.io/f"],"$setElementOrder/finalizers":["x/y"]}}"#,
    ),
    ("ConfigMap", PatchType::Strategic, r#"{"data":{"$patch":"replace","a":"b"}}"#),
    (
        "Service",
        PatchType::Strategic,
        r#"{"spec":{"ports":[{"port":80,"name":"web"},{"port":443,"protocol":"TCP","name":"tls"}],"$setElementOrder/ports":[{"port":443},{"port":80}]}}"#,
    ),
    (
        "Pod",
        PatchType::Strategic,
        r#"{"spec":{"volumes":[{"name":"v","$retainKeys":["name","hostPath"],"hostPath":{"path":"/x"}}],"containers":[{"$patch":"replace"},{"name":"app","image":"z"}]}}"#,
    ),
    (
        "ConfigMap",
        PatchType::Apply,
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"w"}}"#,
    ),
    (
        "Deployment",
        PatchType::Apply,
        r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"replicas":1,"template":{"spec":{"containers":[{"name":"app","image":"x","ports":[{"containerPort":80}]}]}}}}"#,
    ),
    (
        "Service",
        PatchType::Apply,
        r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"s","finalizers":["a/b"]},"spec":{"ports":[{"port":80,"protocol":"TCP"}]}}"#,
    ),
    (
        "Pod",
        PatchType::Apply,
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"tolerations":[{"key":"x"}],"containers":[{"name":"app","image":"i","resources":{"limits":{"cpu":"2"}}}]}}"#,
    ),
    (
        "Job",
        PatchType::Merge,
        r#"{"spec":{"suspend":false,"parallelism":5},"status":{"succeeded":1,"completedIndexes":"0-2","conditions":[{"type":"Complete","status":"True"}]}}"#,
    ),
    (
        "ConfigMap",
        PatchType::Merge,
        r#"{"metadata":{"managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:k":{}},"f:metadata":{"f:finalizers":{"v:\"x\"":{}}}}}]}}"#,
    ),
];

const LABEL_SELECTORS: [&str; 12] = [
    "",
    "a=b",
    "a==b,c!=d",
    "a in (b,c),d notin (e)",
    "a,!b",
    "x.io/a=b",
    "a>5,b<-3",
    "in in (in,notin)",
    "a in ()",
    "a in (,x,)",
    " a  =  b ,\tc ",
    "a=,b",
];

const FIELD_SELECTORS: [&str; 10] = [
    "",
    "metadata.name=a",
    "metadata.name==a,metadata.namespace!=b",
    "spec.nodeName=",
    "a=x\\,y",
    "a=x\\=y\\\\",
    ",,a=b,,",
    "status.phase!=Running,spec.nodeName=n",
    "a=b=c",
    "a\\",
];

const QUERIES: [&str; 14] = [
    "watch=1&resourceVersion=0&timeoutSeconds=300&allowWatchBookmarks=true",
    "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeoutSeconds=407&watch=true",
    "limit=500&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiJkL2FcdTAwMDAifQ",
    "labelSelector=app%3Dweb%2Ctier%20in%20%28a%2Cb%29&fieldSelector=spec.nodeName%3Dn1",
    "resourceVersion=18446744073709551615&resourceVersionMatch=Exact&limit=-1",
    "fieldManager=kubectl-client-side-apply&fieldValidation=Strict&dryRun=All",
    "fieldManager=a&force=true",
    "gracePeriodSeconds=0&propagationPolicy=Background&uid=u&resourceVersion=5",
    "orphanDependents=false&dryRun=All&dryRun=All",
    "timeout=1h15m30.5s&pretty=true",
    "timeout=-1us",
    "watch",
    "a=%zz&b=%",
    "=&&=&a",
];

const TOKENS: [&str; 7] = [
    r#"{"v":"meta.k8s.io/v1","rv":5,"start":"d/a\u0000"}"#,
    r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"a\u0000"}"#,
    r#"{"v":"meta.k8s.io/v1","rv":9223372036854775807,"start":"../a"}"#,
    r#"{"v":"v2","rv":0,"start":""}"#,
    r#"{"v":"meta.k8s.io/v1","rv":1.5,"start":7}"#,
    "null",
    "[]",
];

const ACCEPTS: [&str; 10] = [
    "*/*",
    "application/json",
    "application/json, */*",
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
    "application/vnd.kubernetes.protobuf;stream=watch,application/json;q=0.5",
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "application/yaml;q=0.9,text/*;q=1.000;level=\"1\"",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    "application/merge-patch+json; charset=utf-8",
    "application/apply-patch+yaml",
];

const PATHS: [&str; 12] = [
    "/api/v1/namespaces/default/pods/a?watch=1",
    "/api/v1/pods?watch=true&fieldSelector=metadata.name%3Da",
    "/apis/apps/v1/namespaces/d/deployments/a/scale",
    "/api/v1/watch/namespaces/d/pods/a",
    "/api/v1/namespaces/d/finalize",
    "/apis",
    "/apis/apps",
    "/api/v1/namespaces/d/pods/a/log",
    "/api/v1/nodes/n/proxy/a//b",
    "/openapi/v3/apis/apps/v1",
    "/readyz/ping",
    "/api/v1/namespaces/%2e%2e/pods/%00",
];

const DELETES: [&str; 6] = [
    r#"{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"propagationPolicy":"Foreground"}"#,
    r#"{"preconditions":{"uid":"u","resourceVersion":"5"},"dryRun":["All"]}"#,
    r#"{"apiVersion":"meta.k8s.io/v1","kind":"DeleteOptions","orphanDependents":true}"#,
    r#"{"gracePeriodSeconds":-9223372036854775808,"ignoreStoreReadErrorWithClusterBreakingPotential":true}"#,
    "kind: DeleteOptions\napiVersion: v1\npropagationPolicy: Orphan\n",
    "null",
];

const RULES: [&str; 32] = [
    "Object{spec: Object.spec{l: object.l.map(x, Object.spec.l{name: x, ?n: object.?i}), m: object.m}, ?none: optional.none()}",
    "[JSONPatch{op: 'add', path: '/m/' + jsonpatch.escapeKey('a/~b'), value: Object.m{x: object.k}}, JSONPatch{op: 'test', path: '/s', value: object.s}]",
    "authorizer.group('apps').resource('pods').subresource('x').namespace('n').name(object.s).check('get').allowed() || authorizer.serviceAccount('n', 's').path('/a').check('x').reason() == request.name",
    "[object, oldObject].exists(o, o != null && has(o.s)) && params.k.all(e, e.name != '') && namespaceObject == null && request.kind == request.requestKind",
    "self.s.size() > 3 && self.i in [1, 2, 3] || !has(self.d)",
    "self.l.all(x, x.matches('^[a-z]+$') && x.startsWith('a')) ? self.i > 1 : self.d < 2.5e3",
    "self.l.exists_one(x, self.l.filter(y, y == x).size() == 1)",
    "self.m.transformMap(k, v, v > 0, v * 2) == {'x': 2} || self.m.all(k, v, v < 3)",
    "self.k.map(e, e.?n.orValue(0)).sum() + self.k[0].n == 2",
    "self.k.sortBy(e, e.name)[?1].optMap(e, e.name).orValue('') == \"b\"",
    "self.t + duration('1h') > timestamp('2020-01-01T00:00:00Z') && self.t.getHours('+02:00') == 15",
    "self.u.getMinutes() == 90 && string(self.u) == '5400s'",
    "type(self.p) == string ? self.p.endsWith('%') : self.p > 5",
    "'%s %d %.2f %x %e'.format([self.l, self.i, self.d, self.b, self.d]) == ''",
    "self.s.replace('l', 'L', 1).split('').join('-').substring(1, 3).indexOf('e', 0) == -1",
    r"self.s.findAll('[a-z]', 2) == ['h'] || self.s.find(self.l[0]) == r'\d'",
    "quantity('1.5Gi').isGreaterThan(quantity('500m')) && sign(quantity('-1')) == -1",
    "cidr('10.0.0.0/8').containsIP(ip('10.1.2.3')) && ip('::1').isLoopback()",
    "url('https://u@h:80/p?q=1#f').getQuery()['q'] == ['1'] && isURL(self.s)",
    "semver('1.2.3-rc.1').isLessThan(semver('v1.3', true))",
    "!format.dns1123Label().validate(self.s).hasValue() && format.named('uuid').hasValue()",
    "sets.contains(self.l, ['a']) && [3, 1].sort() == [1, 3] && lists.range(3).reverse() == [2, 1, 0]",
    "[[1, 2], [3]].flatten().distinct().slice(0, 2).isSorted() && {'a': 1}.a == 1",
    "[?self.?s, 'x'] == ['x'] || {?'a': optional.none()} == {} || 0x1F == 31 && 5u / 2u == 2u",
    "dyn(1) == 1.0 && [1, 2].map(x, x % 2 == 0, x) == [2] && -self.i > 6 && --self.i < 0",
    r#"b'\xff' < bytes(self.s) && '\u00e9' + "\n" != '''a"b''' // comment"#,
    "'message ' + string(self.i) + self.s.lowerAscii().trim()",
    "self.i / 0 == 1 && false || int('x') == 1 || uint(-1) == 1u || self.l[9] == ''",
    "self.x == 1 && nope(2) + 'a' == self.s.foo() ? 1 : true && self.l.all(1, 2)",
    r#"{"type":"object","properties":{"i":{"type":"integer","x-kubernetes-validations":[{"rule":"self > oldSelf","messageExpression":"'no ' + string(self)","reason":"FieldValueForbidden"}]}},"x-kubernetes-validations":[{"rule":"self.i > 5","fieldPath":".i","message":"m"}]}"#,
    r#"{"type":"object","properties":{"l":{"type":"array","maxItems":5,"items":{"type":"string","maxLength":5,"x-kubernetes-validations":[{"rule":"self != ''"}]}}}}"#,
    r#"{"type":"object","properties":{"m":{"type":"object","additionalProperties":{"type":"integer","x-kubernetes-validations":[{"rule":"oldSelf.hasValue()","optionalOldSelf":true}]}}}}"#,
];

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

const DEFINITIONS: [&str; 7] = [
    r#"{"schema":{"type":"object","properties":{"spec":{"type":"object","required":["a"],"properties":{"a":{"type":"string","default":"x","maxLength":5,"pattern":"^[a-z]+$"},"n":{"type":"integer","minimum":1,"maximum":9,"multipleOf":2}}}}},"object":{"metadata":{"name":"x"},"spec":{"a":"abc","n":4}}}"#,
    r#"{"schema":{"type":"object","properties":{"l":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"},"v":{"x-kubernetes-int-or-string":true}}}},"s":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}}}},"object":{"l":[{"k":"a","v":1},{"k":"b","v":"2"}],"s":["a","b","a"]}}"#,
    r#"{"schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"r":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}},"object":{"free":{"x":[1.5,1e3]},"r":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"a":"b"}}}}}"#,
    r#"{"schema":{"type":"object","properties":{"a":{"type":"object","oneOf":[{"required":["x"]},{"required":["y"]}],"anyOf":[{"properties":{"x":{"minLength":1}}}],"not":{"required":["z"]},"properties":{"x":{"type":"string","format":"date-time"},"y":{"type":"number","nullable":true},"z":{"type":"boolean"}}}}},"object":{"a":{"x":"2026-01-01T00:00:00Z","y":null}}}"#,
    r#"{"schema":{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-validations":[{"rule":"self.low <= self.high","messageExpression":"'low is ' + string(self.low)"},{"rule":"self.low >= oldSelf.low"}],"properties":{"low":{"type":"integer"},"high":{"type":"integer"}}}}},"object":{"spec":{"low":1,"high":2}}}"#,
    r#"{"schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"replicas":{"type":"integer"},"color":{"type":"string","enum":["red","blue"]}}},"status":{"type":"object","properties":{"replicas":{"type":"integer"}}}}},"columns":[{"name":"C","type":"string","jsonPath":".spec.color"},{"name":"N","type":"date","jsonPath":".spec.l[?(@.a==\"b\")].c"}],"fields":[{"jsonPath":".spec.color"}],"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}},"object":{"spec":{"replicas":1,"color":"red"},"status":{"replicas":0}}}"#,
    r#"{"schema":{"type":"object","properties":{"m":{"type":"object","maxProperties":3,"additionalProperties":{"type":"object","default":{"a":"b"},"properties":{"a":{"type":"string"}}}},"metadata":{"type":"object","properties":{"name":{"type":"string","maxLength":9}}}}},"object":{"m":{"k":null,"j":{"a":"c","u":1}}}}"#,
];

const JSON_PATHS: [&str; 8] =
    [".a[0].b", ".a[*].c", ".a[-1:]", ".a[0,1].b", r#".a[?(@.b==1)].c"#, r#".a[?(@.c=="x")]"#, "..f", r".d['e'].f"];

const RESPONSES: [&str; 14] = [
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n3\r\nabc\r\nA;x=\"y\"\r\n0123456789\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, Chunked\r\n\r\n1\r\na\r\n000\r\nx: y\r\nz: w\r\n\r\n",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2f\r\n{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{}}}\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef",
    "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
    "HTTP/1.0 200 OK\r\n\r\nuntil the connection is closed",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nabc",
    "HTTP/1.1 204 No Content\r\ncontent-length: 3\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\nHTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno",
    "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nWarning: 299 - \"old\"\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
    "SSH-2.0-OpenSSH\r\n",
];

/// A request and a certificate, as PEM; their DER is a seed too.
const CERTIFICATES: [&str; 3] = [
    "-----BEGIN CERTIFICATE REQUEST-----\n\
     MIGcMFACAQAwHTENMAsGA1UEAwwEamFuZTEMMAoGA1UECgwDZGV2MCowBQYDK2Vw\n\
     AyEAXsUj68TPEJgLryDqzFndN6603IwMMIKNxZf+r0urxe+gADAFBgMrZXADQQCz\n\
     pOVets3B2ZnE6QpXgpyKXVG4biR/cXT/1IMOOXCiV/j0WhQrAN1WH/R1FoIOoOQG\n\
     4Kdb9ChkILq/ChPXyUQB\n\
     -----END CERTIFICATE REQUEST-----\n",
    "-----BEGIN CERTIFICATE REQUEST-----\n\
     MIGnMFsCAQAwKDEXMBUGA1UECgwOc3lzdGVtOm1hc3RlcnMxDTALBgNVBAMMBHJv\n\
     b3QwKjAFBgMrZXADIQADw8TmgBn1Z3Ud2yw4iE5OAViACDHNkqOOjheo9aZF+qAA\n\
     MAUGAytlcANBAKg27QH6KTHog/vnDkZpMAE9UIiFnuYIHYwS9n0rSAFKE+nN2Txs\n\
     JgKVgE7XF3x006s7TfKRzKPNKfgo1rRnXQM=\n\
     -----END CERTIFICATE REQUEST-----\n",
    "-----BEGIN CERTIFICATE-----\n\
     MIIBEjCBxaADAgECAgEBMAUGAytlcDAMMQowCAYDVQQDDAFjMB4XDTI2MDEwMTAw\n\
     MDAwMFoXDTI3MDEyMDAwMDAwMFowDDEKMAgGA1UEAwwBYzAqMAUGAytlcAMhAM5E\n\
     PMnkOxMgCK/P7tMBDi75Me/zzs8DSYVaynIe3Ncoo0wwSjAJBgNVHRMEAjAAMB0G\n\
     A1UdDgQWBBRhHGW/K2ZsavKqaOSTrJuEvbRmNzAeBgNVHSMEFzAVoRCkDjAMMQow\n\
     CAYDVQQDDAFjggEBMAUGAytlcANBAMRlq1ycsyxz1H5myn4W5BDdi0AsGqlcQFhA\n\
     IyXpo9XFCgKh5OgPPnZF5JUC36CBxM2cZ2y3kteerxSUucOQAwU=\n\
     -----END CERTIFICATE-----\n",
];

fn certificates() -> Vec<Vec<u8>> {
    let inside = CERTIFICATES.iter().filter_map(|text| certificates::pem::decode(text)).map(|(block, _)| block.content);
    texts(&CERTIFICATES).into_iter().chain(inside).collect()
}

/// The seeds of a target.
///
/// # Panics
/// If there is no such target.
#[must_use]
pub fn for_target(target: &str) -> Vec<Vec<u8>> {
    match target {
        "label_selector" => texts(&LABEL_SELECTORS),
        "field_selector" => texts(&FIELD_SELECTORS),
        "query" => texts(&QUERIES),
        "continue_token" => TOKENS.iter().map(|token| URL_SAFE_NO_PAD.encode(token).into_bytes()).collect(),
        "accept" => texts(&ACCEPTS),
        "path" => texts(&PATHS),
        "body" => bodies(),
        "patch" => PATCHES.iter().map(|(kind, form, body)| patch_input(kind, *form, body.as_bytes())).collect(),
        "delete_options" => texts(&DELETES),
        "certificate_request" => certificates(),
        "cel" => texts(&RULES),
        "definition" => texts(&DEFINITIONS),
        "json_path" => texts(&JSON_PATHS),
        "headers" => texts(&HEADERS),
        "token" => texts(&JSON_TOKENS),
        "audit_policy" => texts(&AUDIT_POLICIES),
        "authorization_file" => texts(&AUTHORIZATION_FILES),
        "authentication_file" => texts(&AUTHENTICATION_FILES),
        "watch_response" => {
            let seeded = (0_u8..).zip(RESPONSES).map(|(seed, text)| [&[seed], text.as_bytes()].concat());
            seeded.collect()
        }
        "spdy" => crate::streams::spdy_seeds(),
        "stream_message" => crate::streams::message_seeds(),
        "script" => texts(&crate::nodes::SCRIPTS),
        "stages" => texts(&crate::nodes::STAGES),
        "webhook_answer" => texts(&ANSWERS),
        other => panic!("no target is called {other}"),
    }
}

fn bodies() -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    for (kind, text) in OBJECTS.iter().chain(&MORE) {
        bodies.push(body_input(kind, MediaType::Json, text.as_bytes()));
        bodies.push(body_input(kind, MediaType::Protobuf, &sealed(kind, text)));
    }
    bodies.extend(YAML.iter().map(|text| body_input("ConfigMap", MediaType::Yaml, text.as_bytes())));
    bodies
}

/// A seed as protobuf.
fn sealed(kind: &str, text: &str) -> Vec<u8> {
    let kind = kinds::builtin().iter().find(|known| known.gvk.kind == kind).expect("a built-in kind");
    let ty = Types::get().kind(&kind.gvk).expect("a built-in kind has a type");
    let decoded = decode::decode(&ty, &kind.gvk, text.as_bytes(), MediaType::Json, FieldValidation::Strict, None);
    let object = decoded.unwrap_or_else(|error| panic!("the seed {}: {error:?}", kind.gvk.kind)).value;
    let message = protobuf::write(&ty, &object).expect("a seed can be written");
    protobuf::envelope::seal(&kind.gvk.group_version().to_string(), &kind.gvk.kind, &message)
}

/// Inputs that are deeply nested or very long: a parser that recurses or allocates without a limit does not survive them.
#[must_use]
pub fn deep(target: &str) -> Vec<Vec<u8>> {
    const DEPTH: usize = 100_000;
    let nested = |open: &str, close: &str| format!("{}{}", open.repeat(DEPTH), close.repeat(DEPTH));
    match target {
        "label_selector" => texts(&[&nested("(", ")"), &"a,".repeat(DEPTH), &"!".repeat(DEPTH), &"a".repeat(DEPTH)]),
        "field_selector" => texts(&[&"\\".repeat(DEPTH), &"a=b,".repeat(1000)]),
        "query" => texts(&[&"a&".repeat(DEPTH), &format!("timeout={}s", "9".repeat(DEPTH))]),
        "continue_token" => vec![URL_SAFE_NO_PAD.encode(nested("[", "]")).into_bytes()],
        "accept" => texts(&[&"a/b;".repeat(1000), &"*/*,".repeat(1000)]),
        "cel" => texts(&[
            &nested("(", ")"),
            &nested("[", "]"),
            &"-".repeat(DEPTH),
            &"!".repeat(99_000),
            &"a.".repeat(DEPTH / 2),
            &"1+".repeat(49_000),
            &"a?b:".repeat(20_000),
            &"true&&".repeat(16_000),
            &format!("self.?s{}.hasValue()", ".optMap(x, x)".repeat(60)),
            &format!("[1]{}.size() == 1", ".map(a, {a: a})".repeat(80)),
            &format!("self.l{}.size() == 1", ".map(x, self.l)".repeat(40)),
            &format!("[self.l]{}[0].isSorted()", ".map(x, x + x)".repeat(60)),
            &format!("'a'.matches('{}')", "(a{900}){900}".repeat(9)),
        ]),
        "webhook_answer" => texts(&[
            &nested("[", "]"),
            &nested("{\"a\":", "}"),
            &format!("{{\"response\":{{\"patch\":\"{}\"}}}}", "A".repeat(DEPTH)),
        ]),
        "watch_response" => {
            let chunked = "\u{1}HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            let long = "a".repeat(3 * DEPTH);
            texts(&[
                &format!("\u{1}{}", "HTTP/1.1 100 Continue\r\n\r\n".repeat(5000)),
                &format!("\u{1}HTTP/1.1 200 {long}"),
                &format!("\u{1}HTTP/1.1 200 OK\r\nx: {long}"),
                &format!("\u{1}HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(DEPTH)),
                &format!("{chunked}1;{long}"),
                &format!("{chunked}0\r\nx: {long}"),
                &format!("{chunked}0\r\n{}", "x: y\r\n".repeat(DEPTH)),
                &format!("{chunked}{}", "1\r\na\r\n".repeat(DEPTH)),
                &format!("{chunked}fffffffffffffff\r\n{long}"),
            ])
        }
        "script" => texts(&[
            &nested("(", ")"),
            &nested("$(", ")"),
            &"if ".repeat(10_000),
            &"echo a; ".repeat(8000),
            &"a|".repeat(30_000),
            &format!("x=a; {}echo $x", "x=$x$x; ".repeat(60)),
            &format!("echo {}", "$(( ".repeat(1000)),
            &format!("case {} in {}) echo;; esac", "a".repeat(4000), "*a".repeat(100)),
            "f() { f & f & }; f; while :; do printf x; printf y >&2; done",
        ]),
        "stages" => {
            texts(&[&"---\n".repeat(20_000), &nested("[", "]"), &format!("rules: [{}]", "{name: a},".repeat(20_000))])
        }
        "path" => texts(&[&"/".repeat(DEPTH), &"/a".repeat(DEPTH)]),
        "definition" => {
            let schema = r#"{"type":"object","properties":{"a":"#.repeat(2000);
            let wide: Vec<String> = (0..2000).map(|n| format!(r#""f{n}":{{"type":"string","default":{n}}}"#)).collect();
            let hostile = r#"{"schema":{"type":"object","properties":{"a":{"type":"string","pattern":"((a{1,500}){1,500}){1,500}"}}}}"#;
            texts(&[
                &format!(r#"{{"schema":{schema}"#),
                &format!(r#"{{"schema":{{"type":"object","properties":{{{}}}}},"object":{{}}}}"#, wide.join(",")),
                hostile,
            ])
        }
        "json_path" => texts(&[&"[?(".repeat(DEPTH), &".a".repeat(DEPTH), &"..a".repeat(1000), &"[0,".repeat(1000)]),
        "body" => {
            let nodes = nested(r#"{"metadata":"#, "}");
            let aliases: String = (1..40).map(|n| format!("a{n}: &a{n} [*a{}, *a{}]\n", n - 1, n - 1)).collect();
            let schema = r#"{"properties":{"a":"#.repeat(2000);
            let schema = format!(r#"{{"spec":{{"versions":[{{"schema":{{"openAPIV3Schema":{schema}"#);
            // Length-delimited fields inside each other, as far as lengths of two bytes reach.
            let mut message = Vec::new();
            while message.len() < 16_000 {
                let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
                let head = [0x0a, (length & 0x7f) as u8 | 0x80, (length >> 7) as u8];
                message.splice(0..0, head);
            }
            let sealed = protobuf::envelope::seal("v1", "ConfigMap", &message);
            vec![
                body_input("ConfigMap", MediaType::Json, nested("[", "]").as_bytes()),
                body_input("ConfigMap", MediaType::Json, nodes.as_bytes()),
                body_input("CustomResourceDefinition", MediaType::Json, schema.as_bytes()),
                body_input("ConfigMap", MediaType::Yaml, nested("[", "]").as_bytes()),
                body_input("ConfigMap", MediaType::Yaml, "- ".repeat(DEPTH).as_bytes()),
                body_input("ConfigMap", MediaType::Yaml, "{a: ".repeat(DEPTH).as_bytes()),
                body_input("ConfigMap", MediaType::Yaml, format!("a0: &a0 x\n{aliases}").as_bytes()),
                body_input("ConfigMap", MediaType::Protobuf, &sealed),
            ]
        }
        "patch" => {
            let all = [PatchType::Json, PatchType::Merge, PatchType::Strategic, PatchType::Apply];
            let deep = [nested("[", "]"), r#"{"data":"#.repeat(DEPTH)];
            let inputs = all.into_iter().flat_map(|form| deep.iter().map(move |text| (form, text)));
            let mut inputs: Vec<_> =
                inputs.map(|(form, text)| patch_input("ConfigMap", form, text.as_bytes())).collect();
            // Each copy doubles what the next one copies.
            let grow = format!(
                r#"[{{"op":"add","path":"/data/x","value":"{}"}}{}]"#,
                "x".repeat(1000),
                r#",{"op":"copy","from":"/data","path":"/data/y"}"#.repeat(64)
            );
            inputs.push(patch_input("ConfigMap", PatchType::Json, grow.as_bytes()));
            inputs
        }
        _ => texts(&[&nested("[", "]"), &nested("{\"a\":", "}")]),
    }
}
