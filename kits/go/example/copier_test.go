package example

import (
	"context"
	"os"
	"testing"
	"time"

	dogwatch "dogwatch.dev/kits/go"
	"github.com/go-logr/logr"
	core "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	namespace = "default"
	userAgent = "copier"
	// quiet is long enough for an operator on a busy machine to act on an event.
	quiet = time.Second
)

// prepared is made once; each test gets a fork of it.
var prepared *dogwatch.Server

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx := context.Background()
	var err error
	if prepared, err = dogwatch.Start(ctx, dogwatch.Options{}); err != nil {
		panic(err)
	}
	if err := create(ctx, configMaps(&prepared.Lab, "test"), "settings", "red"); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := prepared.Stop(); err != nil {
		panic(err)
	}
	return code
}

func configMaps(lab *dogwatch.Lab, userAgent string) corev1.ConfigMapInterface {
	return kubernetes.NewForConfigOrDie(lab.ConfigFor(userAgent)).CoreV1().ConfigMaps(namespace)
}

func create(ctx context.Context, maps corev1.ConfigMapInterface, name, colour string) error {
	source := &core.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"copy": "yes"}},
		Data:       map[string]string{"colour": colour},
	}
	_, err := maps.Create(ctx, source, metav1.CreateOptions{})
	return err
}

func paint(t *testing.T, maps corev1.ConfigMapInterface, colour string) {
	t.Helper()
	source := must(maps.Get(t.Context(), "settings", metav1.GetOptions{}))(t)
	source.Data["colour"] = colour
	must(maps.Update(t.Context(), source, metav1.UpdateOptions{}))(t)
}

func colour(t *testing.T, maps corev1.ConfigMapInterface, name string) string {
	t.Helper()
	found, err := maps.Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	return must(found, err)(t).Data["colour"]
}

func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the operator did not act in time")
		}
	}
}

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func equal[T comparable](t *testing.T, what string, found, wanted T) {
	t.Helper()
	if found != wanted {
		t.Fatalf("%s: %v, not %v", what, found, wanted)
	}
}

// start forks a world and runs the operator in it until the test ends.
func start(t *testing.T) (*dogwatch.World, corev1.ConfigMapInterface) {
	t.Helper()
	world := prepared.World(t)
	maps := configMaps(&world.Lab, "test")
	isNameFree := true
	manager := must(ctrl.NewManager(world.ConfigFor(userAgent), ctrl.Options{
		Metrics:    server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &isNameFree},
	}))(t)
	copier := &Copier{Client: manager.GetClient(), Reader: manager.GetAPIReader()}
	if err := copier.SetupWithManager(manager); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	// Runs before the world is deleted.
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	// Nothing is written until the operator has read, so a settlement would be answered too early here.
	eventually(t, func() bool { return colour(t, maps, "settings-copy") == "red" })
	return world, maps
}

func TestAConflictIsTriedAgain(t *testing.T) {
	world, maps := start(t)
	conflict := must(world.Fault(t.Context(), dogwatch.FaultSpec{
		Match:  dogwatch.Match{Verbs: []string{"update"}, Resources: []string{"configmaps"}, UserAgents: []string{userAgent}},
		Effect: dogwatch.Effect{ConflictOnce: &dogwatch.ConflictOnce{}},
		Expect: &dogwatch.Expect{Hits: 1},
	}))(t)
	paint(t, maps, "green")
	must(world.Settle(t.Context(), dogwatch.SettlementSpec{Quiet: quiet}))(t)
	equal(t, "the copy", colour(t, maps, "settings-copy"), "green")
	equal(t, "hits", must(conflict.Hits(t.Context()))(t), 1)
	refused := must(world.Requests(t.Context(), dogwatch.Fields{"userAgent": userAgent, "code": "409"}))(t)
	equal(t, "refused requests", len(refused), 1)
	equal(t, "the refused request", refused[0].Verb+" "+refused[0].Name, "update settings-copy")
	var writers []string
	for _, change := range must(world.Changes(t.Context(), dogwatch.Fields{"kind": "ConfigMap", "name": "settings-copy"}))(t) {
		if change.Type == "MODIFIED" {
			writers = append(writers, change.UserAgent)
		}
	}
	if len(writers) != 1 || writers[0] != userAgent {
		t.Fatalf("the copy was written by %v", writers)
	}
}

func TestAStaleViewIsCaughtUpWith(t *testing.T) {
	world, maps := start(t)
	seenByCopier := configMaps(&world.Lab, userAgent)
	frozen := must(world.Fault(t.Context(), dogwatch.FaultSpec{
		Match:  dogwatch.Match{UserAgents: []string{userAgent}},
		Effect: dogwatch.Effect{Stale: &dogwatch.Stale{Hold: true}},
	}))(t)
	paint(t, maps, "green")
	// The watch of the operator is behind on purpose, so only the test's own are waited for.
	must(world.Settle(t.Context(), dogwatch.SettlementSpec{Quiet: quiet, Clients: []string{"test"}}))(t)
	equal(t, "the source", colour(t, maps, "settings"), "green")
	equal(t, "the source as the operator sees it", colour(t, seenByCopier, "settings"), "red")
	equal(t, "the copy", colour(t, maps, "settings-copy"), "red")
	if hits := must(frozen.Hits(t.Context()))(t); hits < 1 {
		t.Fatalf("%d hits", hits)
	}
	if err := frozen.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	// What was missed is delivered now, and the end of a fault is no write that a settlement waits for.
	eventually(t, func() bool { return colour(t, maps, "settings-copy") == "green" })
	equal(t, "the source as the operator sees it", colour(t, seenByCopier, "settings"), "green")
}

func TestTimeMovesWhenTheTestMovesIt(t *testing.T) {
	world, maps := start(t)
	before := must(world.Clock().Stop(t.Context()))(t)
	now := must(world.Clock().Advance(t.Context(), 10*time.Minute))(t)
	equal(t, "complete", now.Advanced.Complete, true)
	equal(t, "the advance", now.Now.Sub(before.Now), 10*time.Minute)
	if err := create(t.Context(), maps, "late", "blue"); err != nil {
		t.Fatal(err)
	}
	must(world.Settle(t.Context(), dogwatch.SettlementSpec{Quiet: quiet}))(t)
	made := must(maps.Get(t.Context(), "late-copy", metav1.GetOptions{}))(t).CreationTimestamp
	equal(t, "the creation of the copy", made.Unix(), now.Now.Unix())
}

func TestARewindUndoesWhatTheOperatorDid(t *testing.T) {
	world, maps := start(t)
	before := must(world.Checkpoint(t.Context()))(t)
	paint(t, maps, "green")
	must(world.Settle(t.Context(), dogwatch.SettlementSpec{Quiet: quiet}))(t)
	equal(t, "the copy", colour(t, maps, "settings-copy"), "green")
	equal(t, "modified objects", must(world.Rewind(t.Context(), before))(t).Modified, 2)
	must(world.Settle(t.Context(), dogwatch.SettlementSpec{Quiet: quiet}))(t)
	equal(t, "the source", colour(t, maps, "settings"), "red")
	equal(t, "the copy", colour(t, maps, "settings-copy"), "red")
}

// A suite that uses envtest keeps it: the world is the existing cluster, and envtest installs the definitions.
func TestEnvtestUsesAWorld(t *testing.T) {
	world := prepared.World(t)
	isExisting := true
	environment := &envtest.Environment{
		UseExistingCluster: &isExisting,
		Config:             world.Config,
		CRDs:               []*apiextensions.CustomResourceDefinition{shipDefinition()},
	}
	config := must(environment.Start())(t)
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	ship := &unstructured.Unstructured{}
	ship.SetAPIVersion("example.dev/v1")
	ship.SetKind("Ship")
	ship.SetNamespace(namespace)
	ship.SetName("one")
	writer := must(client.New(config, client.Options{}))(t)
	if err := writer.Create(t.Context(), ship); err != nil {
		t.Fatal(err)
	}
	changes := must(world.Changes(t.Context(), dogwatch.Fields{"kind": "Ship"}))(t)
	equal(t, "changes of ships", len(changes), 1)
	// The definition is in this world only.
	if _, err := kubernetes.NewForConfigOrDie(prepared.Config).Discovery().ServerResourcesForGroupVersion("example.dev/v1"); err == nil {
		t.Fatal("the definition is in main")
	}
}

func shipDefinition() *apiextensions.CustomResourceDefinition {
	isKept := true
	schema := &apiextensions.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &isKept}
	return &apiextensions.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "ships.example.dev"},
		Spec: apiextensions.CustomResourceDefinitionSpec{
			Group: "example.dev",
			Scope: apiextensions.NamespaceScoped,
			Names: apiextensions.CustomResourceDefinitionNames{Plural: "ships", Singular: "ship", Kind: "Ship", ListKind: "ShipList"},
			Versions: []apiextensions.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: schema},
			}},
		},
	}
}
