package dogwatch

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Clock is the time of a world.
type Clock struct {
	own *client
}

// ClockStatus is what the clock showed when it was last written.
type ClockStatus struct {
	Now time.Time `json:"now"`
	// Next is the next moment at which something is due.
	Next *Moment `json:"next"`
	// Advanced has the moments that an advance has gone through. If it is not complete, advance again.
	Advanced *struct {
		Moments  int      `json:"moments"`
		Due      []Moment `json:"due"`
		Complete bool     `json:"complete"`
	} `json:"advanced"`
}

// Moment is a moment at which something is due, and who waits for it.
type Moment struct {
	At  time.Time `json:"at"`
	Who string    `json:"who"`
}

// Clock is the clock of the world.
func (l *Lab) Clock() Clock {
	return Clock{l.own}
}

// Status reads the clock.
func (c Clock) Status(ctx context.Context) (ClockStatus, error) {
	var found object[ClockStatus]
	err := send(ctx, c.own.rest.Get().Resource("clocks").Name("world"), "", nil, &found)
	return found.Status, err
}

// Stop stops the clock.
func (c Clock) Stop(ctx context.Context) (ClockStatus, error) {
	return c.write(ctx, map[string]any{"mode": "Stopped"})
}

// StopAt stops the clock at a later time.
func (c Clock) StopAt(ctx context.Context, later time.Time) (ClockStatus, error) {
	return c.write(ctx, map[string]any{"mode": "Stopped", "now": later.UTC().Format(time.RFC3339Nano)})
}

// Run lets the clock run as the machine's.
func (c Clock) Run(ctx context.Context) (ClockStatus, error) {
	return c.write(ctx, map[string]any{"mode": "Real", "rate": nil, "now": nil})
}

// Scale lets the clock run so many times as fast as the machine's.
func (c Clock) Scale(ctx context.Context, rate float64) (ClockStatus, error) {
	return c.write(ctx, map[string]any{"mode": "Scaled", "rate": rate})
}

// Advance moves a stopped clock and returns when everything that became due has begun.
func (c Clock) Advance(ctx context.Context, by time.Duration) (ClockStatus, error) {
	return c.write(ctx, map[string]any{"advance": by.String()})
}

// AdvanceToNext moves a stopped clock to the next moment at which something is due.
func (c Clock) AdvanceToNext(ctx context.Context) (ClockStatus, error) {
	return c.write(ctx, map[string]any{"advanceToNext": true})
}

func (c Clock) write(ctx context.Context, spec map[string]any) (ClockStatus, error) {
	var written object[ClockStatus]
	request := c.own.rest.Patch(types.MergePatchType).Resource("clocks").Name("world")
	err := send(ctx, request, string(types.MergePatchType), map[string]any{"spec": spec}, &written)
	return written.Status, err
}
