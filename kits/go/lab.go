package dogwatch

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// mainWorld is the name of the world that the server itself is.
const mainWorld = "main"

// Lab is a world and the powers over it: main, which is the server itself, or a World beside it.
type Lab struct {
	// Name is the name of the world.
	Name string
	// Config has the address and the credentials of an administrator.
	Config *rest.Config
	// Kubeconfig is the path of a file with the same, for other programs.
	Kubeconfig string

	own *client
	// main is where worlds and checkpoints are; everything else is in the world that it is about.
	main *client
}

func newLab(name, kubeconfig string, main *client) (Lab, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return Lab{}, err
	}
	// The server is local and has its own limits: the client needs none.
	config.QPS = -1
	own, err := newClient(config)
	if err != nil {
		return Lab{}, err
	}
	if main == nil {
		main = own
	}
	return Lab{Name: name, Config: config, Kubeconfig: kubeconfig, own: own, main: main}, nil
}

// ConfigFor is the configuration of a client with this user agent, so that faults can name it.
func (l *Lab) ConfigFor(userAgent string) *rest.Config {
	config := rest.CopyConfig(l.Config)
	config.UserAgent = userAgent
	return config
}

// World is a control plane of its own beside the server.
type World struct {
	Lab
}

// ForkOptions are the settings of a world. The zero value is a fork of now without controllers.
type ForkOptions struct {
	// Name of the world; the default is a generated one.
	Name string
	// Revision forks the past.
	Revision int64
	// Controllers runs the built-in controllers in the world.
	Controllers bool
}

// World forks this world for a test and deletes the fork when the test ends. The test fails if an expectation of a fault was not met.
func (l *Lab) World(t testing.TB) *World {
	t.Helper()
	world, err := l.Fork(t.Context(), ForkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The context of the test has ended.
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		unmet, err := world.Unmet(ctx)
		for _, each := range unmet {
			t.Error(each)
		}
		if err != nil {
			t.Error(err)
		}
		if err := world.Delete(ctx); err != nil {
			t.Error(err)
		}
	})
	return world
}

// Fork makes a world that begins as this one is now.
func (l *Lab) Fork(ctx context.Context, options ForkOptions) (*World, error) {
	from := map[string]any{"world": l.Name}
	if options.Revision > 0 {
		from["revision"] = options.Revision
	}
	spec := map[string]any{"from": from, "controllers": options.Controllers}
	var made object[struct {
		Kubeconfig string `json:"kubeconfig"`
	}]
	if err := l.main.create(ctx, "worlds", "World", options.Name, spec, &made); err != nil {
		return nil, err
	}
	file := filepath.Join(filepath.Dir(l.Kubeconfig), made.Metadata.Name+".kubeconfig")
	if err := os.WriteFile(file, []byte(made.Status.Kubeconfig), 0o600); err != nil {
		return nil, err
	}
	lab, err := newLab(made.Metadata.Name, file, l.main)
	return &World{lab}, err
}

// Delete ends the watches of the world and frees its memory.
func (w *World) Delete(ctx context.Context) error {
	err := w.main.delete(ctx, "worlds", w.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err := os.Remove(w.Kubeconfig); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// Checkpoint is a state of a world that can be returned to.
type Checkpoint struct {
	Name     string
	Revision string

	main *client
}

// Checkpoint keeps the state of the world as it is now.
func (l *Lab) Checkpoint(ctx context.Context) (*Checkpoint, error) {
	var made object[struct {
		Revision string `json:"revision"`
	}]
	if err := l.main.create(ctx, "checkpoints", "Checkpoint", "", map[string]string{"world": l.Name}, &made); err != nil {
		return nil, err
	}
	return &Checkpoint{Name: made.Metadata.Name, Revision: made.Status.Revision, main: l.main}, nil
}

// Rewound counts the objects that a rewind has changed.
type Rewound struct {
	Revision string `json:"revision"`
	Deleted  int    `json:"deleted"`
	Modified int    `json:"modified"`
	Added    int    `json:"added"`
}

// Rewind makes the objects of the world equal to those of a checkpoint.
func (l *Lab) Rewind(ctx context.Context, checkpoint *Checkpoint) (Rewound, error) {
	var answer object[struct {
		LastRewind Rewound `json:"lastRewind"`
	}]
	request := l.main.rest.Post().Resource("checkpoints").Name(checkpoint.Name).SubResource("rewind")
	err := send(ctx, request, "application/json", struct{}{}, &answer)
	return answer.Status.LastRewind, err
}

// Delete lets the server forget the state.
func (c *Checkpoint) Delete(ctx context.Context) error {
	return c.main.delete(ctx, "checkpoints", c.Name)
}

// SettlementSpec says what to wait for. The zero value waits for 200 ms without a write, and at most 30 s.
type SettlementSpec struct {
	Quiet   time.Duration
	Timeout time.Duration
	// Clients are user agents whose watches are waited for. The default is all.
	Clients []string
	// IgnoreResources and IgnoreUserAgents may be written meanwhile. By default leases and events are.
	IgnoreResources  []string
	IgnoreUserAgents []string
}

func (s SettlementSpec) wire() map[string]any {
	spec := map[string]any{}
	if s.Quiet > 0 {
		spec["quiet"] = s.Quiet.String()
	}
	if s.Timeout > 0 {
		spec["timeout"] = s.Timeout.String()
	}
	if len(s.Clients) > 0 {
		spec["clients"] = s.Clients
	}
	if len(s.IgnoreResources)+len(s.IgnoreUserAgents) > 0 {
		spec["ignore"] = map[string]any{"resources": s.IgnoreResources, "userAgents": s.IgnoreUserAgents}
	}
	return spec
}

// Settlement is the answer to the question whether the world is quiet.
type Settlement struct {
	Settled  bool            `json:"settled"`
	Revision int64           `json:"revision"`
	Waited   string          `json:"waited"`
	Changes  int             `json:"changes"`
	Busy     json.RawMessage `json:"busy,omitempty"`
}

// Settle waits until nothing is written any more and every watch was sent what concerns it. It is an error if the time is up before.
func (l *Lab) Settle(ctx context.Context, spec SettlementSpec) (Settlement, error) {
	var answer object[Settlement]
	if err := l.own.create(ctx, "settlements", "Settlement", "", spec.wire(), &answer); err != nil {
		return Settlement{}, err
	}
	if !answer.Status.Settled {
		return answer.Status, fmt.Errorf("the world is not settled after %s: %s", answer.Status.Waited, answer.Status.Busy)
	}
	return answer.Status, nil
}

// Change is one revision of one object.
type Change struct {
	Time      time.Time `json:"time"`
	Revision  int64     `json:"revision"`
	Type      string    `json:"type"`
	Group     string    `json:"group"`
	Resource  string    `json:"resource"`
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       string    `json:"uid"`
	Owners    []string  `json:"owners"`
	User      string    `json:"user"`
	UserAgent string    `json:"userAgent"`
	Manager   string    `json:"manager"`
	// After is the last revision that a watch had sent to the writer before it wrote.
	After  int64           `json:"after"`
	Fields json.RawMessage `json:"fields"`
}

// Fields are values of selectable fields, for instance {"userAgent": "my-operator", "code": "409"}.
type Fields map[string]string

// Changes lists the changes of objects, oldest first.
func (l *Lab) Changes(ctx context.Context, fields Fields) ([]Change, error) {
	return list[Change](ctx, l.own, "changes", fields)
}

// Timeline lists the changes of an object and of all that it owns, oldest first. The namespace may be empty.
func (l *Lab) Timeline(ctx context.Context, kind, namespace, name string) ([]Change, error) {
	changes, err := l.Changes(ctx, nil)
	known := map[string]bool{}
	for _, change := range changes {
		if change.Kind == kind && change.Name == name && (namespace == "" || change.Namespace == namespace) {
			known[change.UID] = true
		}
	}
	// Until no more are found: an owner may be written after what it owns.
	for size := -1; size != len(known); {
		size = len(known)
		for _, change := range changes {
			if slices.ContainsFunc(change.Owners, func(owner string) bool { return known[owner] }) {
				known[change.UID] = true
			}
		}
	}
	return slices.DeleteFunc(changes, func(change Change) bool { return !known[change.UID] }), err
}

// Request is one request of the recent past.
type Request struct {
	Time                time.Time `json:"time"`
	Verb                string    `json:"verb"`
	Code                int       `json:"code"`
	Group               string    `json:"group"`
	Resource            string    `json:"resource"`
	Namespace           string    `json:"namespace"`
	Name                string    `json:"name"`
	User                string    `json:"user"`
	UserAgent           string    `json:"userAgent"`
	LatencyMicroseconds int64     `json:"latencyMicroseconds"`
}

// Requests lists the requests of the recent past.
func (l *Lab) Requests(ctx context.Context, fields Fields) ([]Request, error) {
	return list[Request](ctx, l.own, "requests", fields)
}

// Watcher is a running watch, and how far behind it is.
type Watcher struct {
	Group           string `json:"group"`
	Resource        string `json:"resource"`
	User            string `json:"user"`
	UserAgent       string `json:"userAgent"`
	LastRevision    int64  `json:"lastRevision"`
	RevisionsBehind int64  `json:"revisionsBehind"`
	LagMs           int64  `json:"lagMs"`
	EventsSent      int64  `json:"eventsSent"`
}

// Watchers lists the watches that run now.
func (l *Lab) Watchers(ctx context.Context, fields Fields) ([]Watcher, error) {
	return list[Watcher](ctx, l.own, "watchers", fields)
}

// selector writes fields as a field selector.
func (f Fields) selector() string {
	terms := make([]string, 0, len(f))
	for field, value := range f {
		terms = append(terms, field+"="+value)
	}
	slices.Sort(terms)
	return strings.Join(terms, ",")
}

func list[S any](ctx context.Context, c *client, plural string, fields Fields) ([]S, error) {
	request := c.rest.Get().Resource(plural)
	if selector := fields.selector(); selector != "" {
		request = request.Param("fieldSelector", selector)
	}
	var found struct {
		Items []object[S] `json:"items"`
	}
	if err := send(ctx, request, "", nil, &found); err != nil {
		return nil, err
	}
	statuses := make([]S, len(found.Items))
	for at, item := range found.Items {
		statuses[at] = item.Status
	}
	return statuses, nil
}
