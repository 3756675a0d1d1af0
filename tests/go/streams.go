package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
)

// streams reads a log, runs commands and forwards a port, over SPDY as older clients do and over WebSocket as newer ones.
func streams(ctx context.Context, config *rest.Config) error {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	log, err := clients.CoreV1().Pods("default").GetLogs("web", &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		return err
	}
	fmt.Println("log", strings.Join(strings.Fields(string(log)), " "))
	address := func(subresource string) *rest.Request {
		return clients.CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name("web").SubResource(subresource)
	}
	executors := []struct {
		name string
		make func(*url.URL) (remotecommand.Executor, error)
	}{
		{"spdy", func(to *url.URL) (remotecommand.Executor, error) {
			return remotecommand.NewSPDYExecutor(config, "POST", to)
		}},
		{"websocket", func(to *url.URL) (remotecommand.Executor, error) {
			return remotecommand.NewWebSocketExecutor(config, "GET", to.String())
		}},
	}
	for _, executor := range executors {
		run := func(stdin io.Reader, command ...string) (string, string, error) {
			options := &corev1.PodExecOptions{Command: command, Stdin: stdin != nil, Stdout: true, Stderr: true}
			running, err := executor.make(address("exec").VersionedParams(options, scheme.ParameterCodec).URL())
			if err != nil {
				return "", "", err
			}
			var stdout, stderr bytes.Buffer
			err = running.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: &stdout, Stderr: &stderr})
			return strings.TrimSpace(stdout.String()), strings.TrimSpace(stderr.String()), err
		}
		out, errs, err := run(nil, "sh", "-c", "echo out; echo err >&2; exit 3")
		var exited exec.CodeExitError
		if !errors.As(err, &exited) {
			return fmt.Errorf("%s: no exit code: %w", executor.name, err)
		}
		fmt.Println(executor.name, out, errs, exited.Code)
		out, _, err = run(strings.NewReader("typed\n"), "cat")
		if err != nil {
			return err
		}
		fmt.Println(executor.name, "cat", out)
	}
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return err
	}
	to := address("portforward").URL()
	tunnel, err := portforward.NewSPDYOverWebsocketDialer(to, config)
	if err != nil {
		return err
	}
	dialers := []struct {
		name   string
		dialer httpstream.Dialer
	}{
		{"spdy", spdy.NewDialer(upgrader, &http.Client{Transport: transport}, "POST", to)},
		{"websocket", tunnel},
	}
	for _, dialer := range dialers {
		answer, err := forwarded(dialer.dialer)
		if err != nil {
			return fmt.Errorf("%s: %w", dialer.name, err)
		}
		fmt.Println(dialer.name, "forwarded", answer)
	}
	return nil
}

// forwarded returns the first line of what port 8080 answers.
func forwarded(dialer httpstream.Dialer) (string, error) {
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{":8080"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	defer close(stop)
	select {
	case <-ready:
	case err := <-ended:
		return "", err
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return "", err
	}
	connection, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
	if err != nil {
		return "", err
	}
	defer connection.Close()
	if _, err := connection.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(connection)
	line, _, _ := strings.Cut(string(answer), "\r\n")
	return line, err
}
