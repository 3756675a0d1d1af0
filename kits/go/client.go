package dogwatch

import (
	"context"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// requestTimeout is longer than a settlement or an advance of the clock takes.
const requestTimeout = 90 * time.Second

var group = schema.GroupVersion{Group: "lab.dogwatch.dev", Version: "v1"}

// client reads and writes the objects of the lab.
type client struct {
	rest *rest.RESTClient
}

// object is an object of the lab with its status.
type object[S any] struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Status S `json:"status"`
}

func newClient(config *rest.Config) (*client, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = "dogwatch-kit-go"
	config.APIPath = "/apis"
	config.GroupVersion = &group
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.Timeout = requestTimeout
	made, err := rest.RESTClientFor(config)
	return &client{made}, err
}

func (c *client) create(ctx context.Context, plural, kind, name string, spec, answer any) error {
	metadata := map[string]string{"generateName": "kit-"}
	if name != "" {
		metadata = map[string]string{"name": name}
	}
	body := map[string]any{"apiVersion": group.String(), "kind": kind, "metadata": metadata, "spec": spec}
	return send(ctx, c.rest.Post().Resource(plural), "application/json", body, answer)
}

func (c *client) delete(ctx context.Context, plural, name string) error {
	return c.rest.Delete().Resource(plural).Name(name).Do(ctx).Error()
}

// send sends a request with a body, if there is one, and reads the answer.
func send(ctx context.Context, request *rest.Request, media string, body, answer any) error {
	if body != nil {
		content, err := json.Marshal(body)
		if err != nil {
			return err
		}
		request = request.SetHeader("Content-Type", media).Body(content)
	}
	result := request.Do(ctx)
	// Unlike that of Raw, this error has the message of the server.
	if err := result.Error(); err != nil {
		return err
	}
	content, err := result.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(content, answer)
}
