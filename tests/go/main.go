// Programs as users of client-go write them. Each talks to the server its KUBECONFIG names and prints what it sees,
// one line each; the driver (tests/blackbox) changes objects meanwhile and reads the lines.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	programs := map[string]func(context.Context, *rest.Config) error{
		"listwatch": listWatch,
		"informer":  informer,
		"typed":     typed,
		"typedjson": typedJSON,
		"dynamic":   dynamicClient,
		"apply":     apply,
		"openapi":   openAPI,
		"measure":   measure,
		"custom":    customClients,
		"manager":   manager,
		"streams":   streams,
		"rewinds":   rewinds,
	}
	if len(os.Args) != 2 || programs[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: go-clients listwatch|informer|typed|typedjson|dynamic|apply|openapi|measure|custom|manager|streams|rewinds")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err == nil {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return loggedRequests{next} })
		err = programs[os.Args[1]](ctx, config)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// loggedRequests writes each request to stderr, so that the driver sees a relist or a fallback.
type loggedRequests struct{ next http.RoundTripper }

func (l loggedRequests) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(request)
	if err != nil {
		fmt.Fprintf(os.Stderr, "request %s %s: %v\n", request.Method, request.URL.RequestURI(), err)
	} else {
		fmt.Fprintf(os.Stderr, "request %s %s: %d\n", request.Method, request.URL.RequestURI(), response.StatusCode)
	}
	return response, err
}
