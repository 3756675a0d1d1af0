//! Credentials, headers about users, and files that decide about them.

pub(super) const HEADERS: [&str; 8] = [
    "authorization: Bearer abc.def.ghi",
    "authorization: bearer  two-blanks",
    "authorization: Basic YWxpY2U6c2VzYW1l",
    "upgrade: websocket\nconnection: Upgrade\nsec-websocket-protocol: v4.channel.k8s.io, \
     base64url.bearer.authorization.k8s.io.c2VzYW1l",
    "upgrade: websocket\nconnection: keep-alive, Upgrade\nsec-websocket-protocol: \
     base64url.bearer.authorization.k8s.io.!,base64url.bearer.authorization.k8s.io.eA",
    "impersonate-user: system:serviceaccount:default:robot\nimpersonate-group: a\nimpersonate-group: b",
    "impersonate-user: jane\nimpersonate-uid: 7\nimpersonate-extra-acme.org%2fscope: x\nimpersonate-extra-%zz: y",
    "impersonate-group: nobody\nimpersonate-extra-: z",
];

/// Claims, which are signed, and tokens, which are not.
pub(super) const JSON_TOKENS: [&str; 8] = [
    r#"{"iss":"https://kubernetes.default.svc.cluster.local","sub":"system:serviceaccount:n:a","aud":["x"],"exp":1900000000,"iat":1800000000,"nbf":1800000000,"kubernetes.io":{"namespace":"n","serviceaccount":{"name":"a","uid":"u"},"pod":{"name":"p","uid":"v"},"warnafter":1800003607}}"#,
    r#"{"iss":"kubernetes/serviceaccount","kubernetes.io/serviceaccount/namespace":"n","kubernetes.io/serviceaccount/secret.name":"s","kubernetes.io/serviceaccount/service-account.name":"a","sub":"system:serviceaccount:n:a"}"#,
    r#"{"aud":"one","exp":1.5e9,"nbf":-1,"iat":null}"#,
    r#"{}"#,
    "eyJhbGciOiJSUzI1NiIsImtpZCI6ImEifQ.eyJpc3MiOiJhIiwic3ViIjoiYiJ9.AAAA",
    "eyJhbGciOiJub25lIn0.eyJpc3MiOiJhIn0.",
    "eyJhbGciOiJIUzI1NiJ9.e30.AAAA",
    "..",
];

pub(super) const AUDIT_POLICIES: [&str; 6] = [
    "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: None\n  users: \
     ['system:kube-proxy']\n  verbs: [watch]\n  resources:\n  - group: ''\n    resources: [endpoints, 'pods/*']\n- \
     level: RequestResponse\n  namespaces: [shop]\n  omitManagedFields: true\n",
    "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- {level: Metadata, nonResourceURLs: ['/healthz*', '*']}\n",
    r#"{"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[{"level":"Request","userGroups":["a"],"resources":[{"group":"apps","resources":["deployments"],"resourceNames":["web"]}],"omitStages":["Panic"]}]}"#,
    "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: All\n- users: x\n- {resources: [1]}\n",
    "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: &a\n- level: None\n  users: *a\n",
    "kind: Policy\n",
];

pub(super) const AUTHORIZATION_FILES: [&str; 6] = [
    "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- type: Webhook\n  name: \
     a.example.com\n  webhook:\n    authorizedTTL: 1m30s\n    timeout: 3s\n    subjectAccessReviewVersion: v1\n    \
     matchConditionSubjectAccessReviewVersion: v1\n    failurePolicy: Deny\n    connectionInfo: {type: KubeConfigFile, \
     kubeConfigFile: /etc/hook.yaml}\n    matchConditions:\n    - expression: has(request.resourceAttributes)\n- type: \
     RBAC\n  name: rbac\n",
    "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthorizationConfiguration\nauthorizers: [{type: Node, name: \
     node}, {type: RBAC, name: rbac}]\n",
    r#"{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AuthorizationConfiguration","authorizers":[{"type":"AlwaysAllow","name":"a"}]}"#,
    "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: []\n",
    "authorizers: [[], {}, 7]\n",
    "kind: AuthorizationConfiguration\nkind: x\n",
];

/// The file of issuers, and lines of a token file.
pub(super) const AUTHENTICATION_FILES: [&str; 6] = [
    "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer:\n    url: \
     https://issuer.example.com\n    audiences: [a, b]\n    audienceMatchPolicy: MatchAny\n  claimValidationRules:\n  - \
     {claim: hd, requiredValue: example.com}\n  - {expression: 'claims.email_verified == true', message: no}\n  \
     claimMappings:\n    username: {expression: claims.email}\n    groups: {claim: groups, prefix: 'x:'}\n    uid: \
     {claim: sub}\n    extra: [{key: acme.io/a, valueExpression: claims.a}]\n  userValidationRules:\n  - {expression: \
     '!user.username.startsWith(\"system:\")'}\nanonymous:\n  enabled: true\n  conditions: [{path: /livez}]\n",
    "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous: {enabled: false}\n",
    r#"{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AuthenticationConfiguration","jwt":[{"issuer":{"url":"https://a","discoveryURL":"https://b/c","certificateAuthority":"x","audiences":["a"]},"claimMappings":{"username":{"claim":"sub","prefix":""}}}]}"#,
    "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt: [{issuer: {url: 'http://a?b#c@d'}}]\n",
    "sesame,alice,1,\"devs,ops\"\n\"a\"\"b\",bob,2\n",
    "token,user\n,,\n\"",
];
