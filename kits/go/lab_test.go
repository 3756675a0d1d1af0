package dogwatch

import (
	"os"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	core "k8s.io/api/core/v1"
)

// must returns a function that fails the test if there was an error.
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func mapsOf(lab *Lab, userAgent string) corev1.ConfigMapInterface {
	return kubernetes.NewForConfigOrDie(lab.ConfigFor(userAgent)).CoreV1().ConfigMaps("default")
}

func createMap(t *testing.T, maps corev1.ConfigMapInterface, name string) {
	t.Helper()
	wanted := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	must(maps.Create(t.Context(), wanted, metav1.CreateOptions{}))(t)
}

func TestWorldsDoNotSeeEachOther(t *testing.T) {
	server := Run(t, Options{})
	createMap(t, mapsOf(&server.Lab, "test"), "prepared")
	var kubeconfig string
	t.Run("in a world", func(t *testing.T) {
		one, two := server.World(t), server.World(t)
		kubeconfig = two.Kubeconfig
		createMap(t, mapsOf(&two.Lab, "test"), "only-in-two")
		must(two.Fault(t.Context(), FaultSpec{Effect: Effect{Error: &Error{Code: 503}}}))(t)
		must(two.Clock().Stop(t.Context()))(t)
		maps := must(mapsOf(&one.Lab, "test").List(t.Context(), metav1.ListOptions{}))(t)
		if len(maps.Items) != 1 || maps.Items[0].Name != "prepared" {
			t.Fatalf("the other world has %v", maps.Items)
		}
		if _, err := one.Clock().Advance(t.Context(), time.Minute); err == nil || !strings.Contains(err.Error(), "Stopped") {
			t.Fatalf("the clock of the other world: %v", err)
		}
	})
	if _, err := os.Stat(kubeconfig); !os.IsNotExist(err) {
		t.Fatalf("the kubeconfig is still there: %v", err)
	}
	createMap(t, mapsOf(&server.Lab, "test"), "only-in-two")
}

func TestACheckpointIsReturnedTo(t *testing.T) {
	world := Run(t, Options{}).World(t)
	maps := mapsOf(&world.Lab, "test")
	createMap(t, maps, "one")
	checkpoint := must(world.Checkpoint(t.Context()))(t)
	createMap(t, maps, "two")
	if rewound := must(world.Rewind(t.Context(), checkpoint))(t); rewound.Deleted != 1 || rewound.Added+rewound.Modified != 0 {
		t.Fatalf("the rewind changed %+v", rewound)
	}
	if _, err := maps.Get(t.Context(), "two", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("the second object: %v", err)
	}
	if err := checkpoint.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	changes := must(world.Timeline(t.Context(), "ConfigMap", "default", "two"))(t)
	if len(changes) != 2 || changes[0].UserAgent != "test" || changes[1].Type != "DELETED" {
		t.Fatalf("the timeline is %+v", changes)
	}
}

func TestABusyWorldIsNotSettled(t *testing.T) {
	world := Run(t, Options{}).World(t)
	createMap(t, mapsOf(&world.Lab, "busy"), "one")
	_, err := world.Settle(t.Context(), SettlementSpec{Quiet: 10 * time.Second, Timeout: 100 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "not settled") {
		t.Fatalf("the error is %v", err)
	}
	if settlement := must(world.Settle(t.Context(), SettlementSpec{}))(t); !settlement.Settled {
		t.Fatalf("the settlement is %+v", settlement)
	}
}

func TestWatchersAndRequestsAreShown(t *testing.T) {
	world := Run(t, Options{}).World(t)
	watch := must(mapsOf(&world.Lab, "looker").Watch(t.Context(), metav1.ListOptions{}))(t)
	defer watch.Stop()
	watchers := must(world.Watchers(t.Context(), Fields{"userAgent": "looker"}))(t)
	if len(watchers) != 1 || watchers[0].Resource != "configmaps" {
		t.Fatalf("the watchers are %+v", watchers)
	}
	requests := must(world.Requests(t.Context(), Fields{"userAgent": "looker", "verb": "watch"}))(t)
	if len(requests) != 1 || requests[0].Code != 200 {
		t.Fatalf("the requests are %+v", requests)
	}
}

func TestAFaultWithAWrongSpecNamesTheField(t *testing.T) {
	world := Run(t, Options{}).World(t)
	_, err := world.Fault(t.Context(), FaultSpec{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.effect") {
		t.Fatalf("the error is %v", err)
	}
}

func TestAnExpectationThatIsNotMetIsAnError(t *testing.T) {
	server := must(Start(t.Context(), Options{}))(t)
	// Its error is the subject of the test; this ends the server if the test fails before.
	t.Cleanup(func() { _ = server.Stop() })
	spec := FaultSpec{
		Match:  Match{Verbs: []string{"delete"}},
		Effect: Effect{Delay: &metav1.Duration{Duration: time.Millisecond}},
		Expect: &Expect{Hits: 1},
	}
	must(server.NamedFault(t.Context(), "never-hit", spec))(t)
	unmet := must(server.Unmet(t.Context()))(t)
	if len(unmet) != 1 || unmet[0] != "fault never-hit expects 1 hits and has 0" {
		t.Fatalf("unmet are %q", unmet)
	}
	if err := server.Stop(); err == nil || !strings.Contains(err.Error(), "never-hit") {
		t.Fatalf("the error of the stop is %v", err)
	}
}
