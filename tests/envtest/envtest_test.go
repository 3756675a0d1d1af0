// The contract of envtest, unchanged: KUBEBUILDER_ASSETS=$(dogwatch assets) go test ./...
package envtest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

var widgets = &apiextensionsv1.CustomResourceDefinition{
	ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
	Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "example.com",
		Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1", Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object",
				Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"spec":   {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"size": {Type: "integer"}}},
					"status": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"seen": {Type: "integer"}}},
				},
			}},
			Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
		}},
	},
}

func widget(name string, size int64) *unstructured.Unstructured {
	w := &unstructured.Unstructured{}
	w.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"})
	w.SetNamespace("default")
	w.SetName(name)
	_ = unstructured.SetNestedField(w.Object, size, "spec", "size")
	return w
}

// start runs a control plane for one test and prints how long it took to start and stop.
func start(t *testing.T, env *envtest.Environment) *envtest.Environment {
	t.Helper()
	began := time.Now()
	if _, err := env.Start(); err != nil {
		t.Fatalf("start: %v", err)
	}
	fmt.Printf("start %d ms\n", time.Since(began).Milliseconds())
	t.Cleanup(func() {
		began := time.Now()
		if err := env.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
		fmt.Printf("stop %d ms\n", time.Since(began).Milliseconds())
	})
	return env
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// A manager with a reconciler and webhooks, as a project of kubebuilder has them.
func TestManagerWithWebhooks(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	sideEffects, path := admissionv1.SideEffectClassNone, "/validate"
	mutatePath := "/mutate"
	rules := []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
		Rule:       admissionv1.Rule{APIGroups: []string{"example.com"}, APIVersions: []string{"v1"}, Resources: []string{"widgets"}},
	}}
	service := func(path *string) admissionv1.WebhookClientConfig {
		return admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "default", Name: "webhook", Path: path}}
	}
	env := start(t, &envtest.Environment{
		CRDs: []*apiextensionsv1.CustomResourceDefinition{widgets.DeepCopy()},
		WebhookInstallOptions: envtest.WebhookInstallOptions{
			MutatingWebhooks: []*admissionv1.MutatingWebhookConfiguration{{
				ObjectMeta: metav1.ObjectMeta{Name: "widgets"},
				Webhooks: []admissionv1.MutatingWebhook{{
					Name: "mutate.example.com", ClientConfig: service(&mutatePath), Rules: rules,
					SideEffects: &sideEffects, AdmissionReviewVersions: []string{"v1"},
				}},
			}},
			ValidatingWebhooks: []*admissionv1.ValidatingWebhookConfiguration{{
				ObjectMeta: metav1.ObjectMeta{Name: "widgets"},
				Webhooks: []admissionv1.ValidatingWebhook{{
					Name: "validate.example.com", ClientConfig: service(&path), Rules: rules,
					SideEffects: &sideEffects, AdmissionReviewVersions: []string{"v1"},
				}},
			}},
		},
	})
	options := env.WebhookInstallOptions
	mgr, err := ctrl.NewManager(env.Config, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: options.LocalServingHost, Port: options.LocalServingPort, CertDir: options.LocalServingCertDir,
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	mgr.GetWebhookServer().Register("/mutate", &webhook.Admission{Handler: admission.HandlerFunc(
		func(_ context.Context, _ admission.Request) admission.Response {
			return admission.Patched("labelled", webhook.JSONPatchOp{Operation: "add", Path: "/metadata/labels", Value: map[string]string{"hooked": "yes"}})
		})})
	mgr.GetWebhookServer().Register("/validate", &webhook.Admission{Handler: admission.HandlerFunc(
		func(_ context.Context, req admission.Request) admission.Response {
			if strings.HasPrefix(req.Name, "bad") {
				return admission.Denied("bad name")
			}
			return admission.Allowed("")
		})})
	err = ctrl.NewControllerManagedBy(mgr).For(widget("", 0)).Complete(reconcile.Func(
		func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
			w := widget(request.Name, 0)
			if err := mgr.GetClient().Get(ctx, request.NamespacedName, w); err != nil {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			size, _, _ := unstructured.NestedInt64(w.Object, "spec", "size")
			if seen, _, _ := unstructured.NestedInt64(w.Object, "status", "seen"); seen == size {
				return reconcile.Result{}, nil
			}
			_ = unstructured.SetNestedField(w.Object, size, "status", "seen")
			return reconcile.Result{}, mgr.GetClient().Status().Update(ctx, w)
		}))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := mgr.Start(ctx); err != nil {
			t.Errorf("manager: %v", err)
		}
	}()
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the cache does not fill")
	}
	check := mgr.GetWebhookServer().StartedChecker()
	eventually(t, "the webhook server listens", func() error { return check((&http.Request{}).WithContext(ctx)) })
	c, err := client.New(env.Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(ctx, widget("bad-one", 1)); err == nil || !strings.Contains(err.Error(), "admission webhook \"validate.example.com\" denied the request: bad name") {
		t.Fatalf("the validating webhook refuses: %v", err)
	}
	w := widget("one", 7)
	if err := c.Create(ctx, w); err != nil {
		t.Fatal(err)
	}
	if w.GetLabels()["hooked"] != "yes" {
		t.Fatalf("the mutating webhook adds a label: %v", w.GetLabels())
	}
	eventually(t, "the reconciler writes the status", func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(w), w); err != nil {
			return err
		}
		if seen, _, _ := unstructured.NestedInt64(w.Object, "status", "seen"); seen != 7 {
			return fmt.Errorf("seen %d", seen)
		}
		return nil
	})
}

// A user that the harness makes has the rights of its bindings and no others, at once.
func TestUserWithARole(t *testing.T) {
	ctx := context.Background()
	env := start(t, &envtest.Environment{})
	admin, err := client.New(env.Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	user, err := env.AddUser(envtest.User{Name: "alice", Groups: []string{"devs"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	alice, err := client.New(user.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	list := &corev1.ConfigMapList{}
	if err := alice.List(ctx, list, client.InNamespace("default")); !apierrors.IsForbidden(err) {
		t.Fatalf("without a role: %v", err)
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "reader", Namespace: "default"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}}}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "reader", Namespace: "default"},
		Subjects: []rbacv1.Subject{{Kind: "Group", APIGroup: "rbac.authorization.k8s.io", Name: "devs"}},
		RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "reader"}}
	if err := errors.Join(admin.Create(ctx, role), admin.Create(ctx, binding)); err != nil {
		t.Fatal(err)
	}
	if err := alice.List(ctx, list, client.InNamespace("default")); err != nil {
		t.Fatalf("with a role, without waiting: %v", err)
	}
	if err := alice.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "default"}}); !apierrors.IsForbidden(err) {
		t.Fatalf("what the role does not have: %v", err)
	}
}

// Without controllers a suite sees what it saw before: a namespace stays Terminating, and nothing is collected.
func TestNoControllersByDefault(t *testing.T) {
	if os.Getenv("DOGWATCH_CONTROLLERS") != "" {
		t.Skip("controllers were asked for")
	}
	ctx := context.Background()
	env := start(t, &envtest.Environment{})
	c, err := client.New(env.Config, client.Options{Scheme: runtimeScheme()})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if err := c.Create(ctx, pod); err != nil {
		t.Fatalf("no service account is needed: %v", err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "short"}}
	if err := errors.Join(c.Create(ctx, ns), c.Delete(ctx, ns)); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(ns), ns); err != nil || ns.Status.Phase != corev1.NamespaceTerminating {
		t.Fatalf("the namespace stays: %v %v", err, ns.Status.Phase)
	}
}

func runtimeScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	_ = corev1.AddToScheme(scheme)
	return scheme
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

// With DOGWATCH_CONTROLLERS=gc,namespace a namespace ends and an owned object goes with its owner.
func TestNamespacesEndWithControllers(t *testing.T) {
	if os.Getenv("DOGWATCH_CONTROLLERS") == "" {
		t.Skip("no controllers were asked for")
	}
	ctx := context.Background()
	env := start(t, &envtest.Environment{})
	c, err := client.New(env.Config, client.Options{Scheme: runtimeScheme()})
	if err != nil {
		t.Fatal(err)
	}
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner", Namespace: "default"}}
	if err := c.Create(ctx, owner); err != nil {
		t.Fatal(err)
	}
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned", Namespace: "default",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID}}}}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "short"}}
	if err := errors.Join(c.Create(ctx, owned), c.Delete(ctx, owner), c.Create(ctx, ns), c.Delete(ctx, ns)); err != nil {
		t.Fatal(err)
	}
	for _, object := range []client.Object{owned, ns} {
		eventually(t, object.GetName()+" goes", func() error {
			if err := c.Get(ctx, client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
				return fmt.Errorf("still there: %v", err)
			}
			return nil
		})
	}
}
