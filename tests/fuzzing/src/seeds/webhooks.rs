//! Answers of admission webhooks: allowed, refused, with a patch, and wrong ones. The patches are in base64.

pub(super) const ANSWERS: [&str; 9] = [
    r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","allowed":true}}"#,
    r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","allowed":true,"patchType":"JSONPatch","patch":"W3sib3AiOiJhZGQiLCJwYXRoIjoiL21ldGFkYXRhL2xhYmVscy9hIiwidmFsdWUiOiJiIn1d"}}"#,
    r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","allowed":true,"patchType":"JSONPatch","patch":"W3sib3AiOiJtb3ZlIiwiZnJvbSI6Ii9kYXRhIiwicGF0aCI6Ii9tZXRhZGF0YS8tMSJ9XQ=="}}"#,
    r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","allowed":false,"status":{"code":418,"message":"no","reason":"Teapot","details":{"name":"a","kind":"b","causes":[{"message":"m","field":"f"}],"retryAfterSeconds":3}},"warnings":["w"],"auditAnnotations":{"k":"v"}}}"#,
    r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","response":{"allowed":true,"patch":"W10="}}"#,
    r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","response":{"allowed":false}}"#,
    r#"{"response":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","allowed":true,"patchType":null,"patch":null}}"#,
    r#"{"kind":"Status","apiVersion":"v1","message":"not a review"}"#,
    r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":7,"allowed":"yes","warnings":{}}}"#,
];
