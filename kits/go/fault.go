package dogwatch

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FaultSpec says what goes wrong, and for which requests.
type FaultSpec struct {
	Match  Match   `json:"match"`
	When   When    `json:"when"`
	Effect Effect  `json:"effect"`
	Expect *Expect `json:"expect,omitempty"`
}

// Match names requests. All parts that are given must match; entries of a list are alternatives.
type Match struct {
	Verbs []string `json:"verbs,omitempty"`
	// Resources such as "pods", "deployments.apps" or "deployments.apps/status".
	Resources  []string `json:"resources,omitempty"`
	Namespaces []string `json:"namespaces,omitempty"`
	Names      []string `json:"names,omitempty"`
	// UserAgents with * for any text.
	UserAgents []string `json:"userAgents,omitempty"`
	Users      []string `json:"users,omitempty"`
}

// When chooses from the requests or events that match.
type When struct {
	// Skip lets so many pass first.
	Skip int `json:"skip,omitempty"`
	// Times hits so many, then no more.
	Times       *int    `json:"times,omitempty"`
	Every       int     `json:"every,omitempty"`
	Probability float64 `json:"probability,omitempty"`
	// Seed and the order of requests decide what Probability hits.
	Seed int64 `json:"seed,omitempty"`
	// Events are those that count, for effects on a watch.
	Events *Events `json:"events,omitempty"`
}

// Events names events of a watch.
type Events struct {
	Types []string `json:"types,omitempty"`
	Names []string `json:"names,omitempty"`
}

// Expect is what must have happened before the test ends.
type Expect struct {
	Hits int `json:"hits"`
}

// Effect is what happens. Exactly one member is set.
type Effect struct {
	Error             *Error           `json:"error,omitempty"`
	Delay             *metav1.Duration `json:"delay,omitempty"`
	LoseAnswer        *struct{}        `json:"loseAnswer,omitempty"`
	ConflictOnce      *ConflictOnce    `json:"conflictOnce,omitempty"`
	Cut               *Cut             `json:"cut,omitempty"`
	Silence           *struct{}        `json:"silence,omitempty"`
	Expire            *Expire          `json:"expire,omitempty"`
	WithholdBookmarks *struct{}        `json:"withholdBookmarks,omitempty"`
	DropEvents        *Events          `json:"dropEvents,omitempty"`
	Stale             *Stale           `json:"stale,omitempty"`
	Slow              *Slow            `json:"slow,omitempty"`
	SkipIntermediate  bool             `json:"skipIntermediate,omitempty"`
}

// Error answers with an error, and nothing is done.
type Error struct {
	Code              int    `json:"code,omitempty"`
	Reason            string `json:"reason,omitempty"`
	Message           string `json:"message,omitempty"`
	RetryAfterSeconds int    `json:"retryAfterSeconds,omitempty"`
}

// ConflictOnce answers the first update of each object with a conflict.
type ConflictOnce struct {
	PerObject *bool `json:"perObject,omitempty"`
}

// Cut ends a watch.
type Cut struct {
	Abruptly bool `json:"abruptly,omitempty"`
}

// Expire answers with 410. Form is "status", or "event" for one in the watch.
type Expire struct {
	Form string `json:"form,omitempty"`
}

// Stale shows the past: that of when the fault was made with Hold, or of so long ago.
type Stale struct {
	Hold bool `json:"hold,omitempty"`
	By   *Age `json:"by,omitempty"`
}

// Age is how far in the past. One member is set.
type Age struct {
	Revisions int              `json:"revisions,omitempty"`
	Duration  *metav1.Duration `json:"duration,omitempty"`
}

// Slow lets answers trickle.
type Slow struct {
	BytesPerSecond int `json:"bytesPerSecond"`
}

// FaultStatus is what a fault has done.
type FaultStatus struct {
	Hits       int                `json:"hits"`
	Effect     string             `json:"effect"`
	Conditions []metav1.Condition `json:"conditions"`
}

// Fault is a fault that was made.
type Fault struct {
	Name string

	own *client
}

// Fault makes a fault with a generated name.
func (l *Lab) Fault(ctx context.Context, spec FaultSpec) (*Fault, error) {
	return l.NamedFault(ctx, "", spec)
}

// NamedFault makes a fault with a name.
func (l *Lab) NamedFault(ctx context.Context, name string, spec FaultSpec) (*Fault, error) {
	var made object[struct{}]
	if err := l.own.create(ctx, "faults", "Fault", name, spec, &made); err != nil {
		return nil, err
	}
	return &Fault{Name: made.Metadata.Name, own: l.own}, nil
}

// Status reads what the fault has done so far.
func (f *Fault) Status(ctx context.Context) (FaultStatus, error) {
	var found object[FaultStatus]
	err := send(ctx, f.own.rest.Get().Resource("faults").Name(f.Name), "", nil, &found)
	return found.Status, err
}

// Hits counts the requests or events that were hit so far.
func (f *Fault) Hits(ctx context.Context) (int, error) {
	status, err := f.Status(ctx)
	return status.Hits, err
}

// Remove ends the fault.
func (f *Fault) Remove(ctx context.Context) error {
	return f.own.delete(ctx, "faults", f.Name)
}

// Unmet lists what faults were expected to do and did not do.
func (l *Lab) Unmet(ctx context.Context) ([]string, error) {
	// The status of a fault is written a moment after a hit; the answer to a settlement counts at once.
	atOnce := map[string]string{"quiet": "0s", "timeout": "0s"}
	var answer object[struct {
		Unmet []string `json:"unmet"`
	}]
	err := l.own.create(ctx, "settlements", "Settlement", "", atOnce, &answer)
	return answer.Status.Unmet, err
}
