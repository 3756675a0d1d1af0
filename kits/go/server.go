// Package dogwatch starts a Kubernetes API server for a Go test and gives each test a world of its own.
//
// It finds the program dogwatch, or installs it from a package that is pinned by its checksum, starts it on a free port, and returns a
// configuration for client-go. A Server and a World have the powers of a Lab: faults, checkpoints, the clock, settlements, and what
// clients did.
package dogwatch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// defaultStartTimeout is far longer than a start takes, so that only a hang reaches it.
	defaultStartTimeout = time.Minute
	// stopTimeout is the time for a clean stop, after which the process is killed.
	stopTimeout = 10 * time.Second
	// exitUnmet is the exit code of a server with faults that did not hit as often as they were expected to.
	exitUnmet = 3
)

// Options are the settings of a server. The zero value is good for most tests.
type Options struct {
	// Controllers starts the controllers, the scheduler and simulated nodes. Without them only clients change objects, as with envtest.
	Controllers bool
	// Flags are more flags of "dogwatch up".
	Flags []string
	// Package is installed if DOGWATCH is not set and the program is not on PATH.
	Package Package
	// DataDir keeps the objects after a stop. By default they are in memory.
	DataDir string
	// StartTimeout is the longest time to wait for the server to be ready. The default is a minute.
	StartTimeout time.Duration
}

// Server is a running server. It has the powers of the lab over the world main.
type Server struct {
	Lab

	process   *exec.Cmd
	messages  tail
	ended     chan struct{}
	temporary string
	stopOnce  sync.Once
	stopError error
}

// Run starts a server for a test and stops it when the test ends.
func Run(t testing.TB, options Options) *Server {
	t.Helper()
	server, err := Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// Start starts a server and waits until it is ready. The context ends the start, not the server: that ends with Stop.
func Start(ctx context.Context, options Options) (*Server, error) {
	program, err := Find(ctx, options.Package)
	if err != nil {
		return nil, err
	}
	server := &Server{ended: make(chan struct{})}
	args := []string{"up", "--listen", "127.0.0.1:0", "--lab"}
	data := options.DataDir
	if data == "" {
		if server.temporary, err = os.MkdirTemp("", "dogwatch-"); err != nil {
			return nil, err
		}
		data = filepath.Join(server.temporary, "data")
		args = append(args, "--memory")
	}
	args = append(args, "--data-dir", data)
	if !options.Controllers {
		args = append(args, "--no-controllers")
	}
	if err := server.start(ctx, program, append(args, options.Flags...), options.StartTimeout); err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	if server.Lab, err = newLab(mainWorld, filepath.Join(data, "kubeconfig"), nil); err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	return server, nil
}

// start runs the program until it prints that it is ready.
func (s *Server) start(ctx context.Context, program string, args []string, timeout time.Duration) error {
	if timeout == 0 {
		timeout = defaultStartTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	process := exec.Command(program, args...)
	// Goes on reading after the start, so that the server never waits for a reader.
	output, writer := io.Pipe()
	process.Stdout, process.Stderr = writer, &s.messages
	process.WaitDelay = stopTimeout
	if err := process.Start(); err != nil {
		return fmt.Errorf("%s does not start: %w", program, err)
	}
	s.process = process
	go func() {
		_ = process.Wait()
		_ = writer.Close()
		close(s.ended)
	}()
	ready := make(chan struct{})
	go func() {
		var once sync.Once
		for lines := bufio.NewScanner(output); lines.Scan(); {
			if strings.Contains(lines.Text(), "ready in ") {
				once.Do(func() { close(ready) })
			}
		}
		_, _ = io.Copy(io.Discard, output)
	}()
	select {
	case <-ready:
		return nil
	case <-s.ended:
		return fmt.Errorf("%s ended during its start: %s", program, s.messages.String())
	case <-ctx.Done():
		return fmt.Errorf("%s is not ready: %w; it printed: %s", program, ctx.Err(), s.messages.String())
	}
}

// Stop ends the server and removes its temporary data. An expectation of a fault in main that was not met is an error. Further calls
// return the same.
func (s *Server) Stop() error {
	s.stopOnce.Do(func() {
		if s.process != nil {
			s.stopError = s.end()
		}
		if s.temporary != "" {
			s.stopError = errors.Join(s.stopError, os.RemoveAll(s.temporary))
		}
	})
	return s.stopError
}

func (s *Server) end() error {
	if err := s.process.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.ended:
		if s.process.ProcessState.ExitCode() == exitUnmet {
			return errors.New(s.messages.String())
		}
		return nil
	case <-time.After(stopTimeout):
		err := s.process.Process.Kill()
		<-s.ended
		return errors.Join(fmt.Errorf("dogwatch did not end within %s and was killed", stopTimeout), err)
	}
}

// tail keeps the last output of a process for the message of a failure.
type tail struct {
	lock sync.Mutex
	text []byte
}

const tailSize = 4096

func (t *tail) Write(text []byte) (int, error) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.text = append(t.text, text...)
	if extra := len(t.text) - tailSize; extra > 0 {
		t.text = t.text[extra:]
	}
	return len(text), nil
}

func (t *tail) String() string {
	t.lock.Lock()
	defer t.lock.Unlock()
	return strings.TrimSpace(string(t.text))
}
