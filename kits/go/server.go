// Package dogwatch starts a Kubernetes API server for a Go test.
//
// It finds the program dogwatch, or installs it from a package that is pinned by its checksum, starts it with a data directory of its
// own on a free port, and returns a configuration for client-go.
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

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// defaultStartTimeout is far longer than a start takes, so that only a hang reaches it.
	defaultStartTimeout = time.Minute
	// stopTimeout is the time for a clean stop, after which the process is killed.
	stopTimeout = 10 * time.Second
)

// Options are the settings of a server. The zero value is good for most tests.
type Options struct {
	// Controllers starts the controllers, the scheduler and simulated nodes. Without them only clients change objects, as with envtest.
	Controllers bool
	// Flags are more flags of "dogwatch up".
	Flags []string
	// Package is installed if DOGWATCH is not set and the program is not on PATH.
	Package Package
	// DataDir keeps the objects after a stop. The default is a temporary directory, which Stop removes.
	DataDir string
	// StartTimeout is the longest time to wait for the server to be ready. The default is a minute.
	StartTimeout time.Duration
}

// Server is a running server.
type Server struct {
	// Config has the address and the credentials of an administrator.
	Config *rest.Config
	// Kubeconfig is the path of a file with the same, for other programs.
	Kubeconfig string

	process   *exec.Cmd
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
	data := options.DataDir
	if data == "" {
		if server.temporary, err = os.MkdirTemp("", "dogwatch-"); err != nil {
			return nil, err
		}
		data = filepath.Join(server.temporary, "data")
	}
	args := []string{"up", "--listen", "127.0.0.1:0", "--data-dir", data}
	if !options.Controllers {
		args = append(args, "--no-controllers")
	}
	if err := server.start(ctx, program, append(args, options.Flags...), options.StartTimeout); err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	server.Kubeconfig = filepath.Join(data, "kubeconfig")
	server.Config, err = clientcmd.BuildConfigFromFlags("", server.Kubeconfig)
	if err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	// The server is local and has its own limits: the client needs none.
	server.Config.QPS = -1
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
	var messages tail
	process.Stdout, process.Stderr = writer, &messages
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
		return fmt.Errorf("%s ended during its start: %s", program, messages.String())
	case <-ctx.Done():
		return fmt.Errorf("%s is not ready: %w; it printed: %s", program, ctx.Err(), messages.String())
	}
}

// Stop ends the server and removes its temporary data. Further calls return the same.
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
