package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	openapiv2 "github.com/google/gnostic-models/openapiv2"
	openapiv3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/spec3"
	models "k8s.io/kube-openapi/pkg/util/proto"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"
)

// openAPI reads every document in both of its forms with the libraries that clients use, and compares them: the message
// must be what the reference's own conversion makes of the JSON.
func openAPI(ctx context.Context, config *rest.Config) error {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	if err := install(ctx, config, client); err != nil {
		return err
	}
	if err := secondVersion(client); err != nil {
		return err
	}
	return thirdVersion(client)
}

// definition has a schema with everything that the forms and versions treat differently.
const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ships.sea.example.com}
spec:
  group: sea.example.com
  scope: Namespaced
  names: {plural: ships, singular: ship, kind: Ship}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}
    schema:
      openAPIV3Schema:
        type: object
        description: A ship.
        required: [spec]
        properties:
          spec:
            type: object
            x-kubernetes-validations: [{rule: self.size > 0, message: too small}]
            properties:
              size: {type: integer, format: int32, minimum: 1, maximum: 9, exclusiveMaximum: true, default: 3}
              load: {type: number, multipleOf: 0.5, default: 1.5}
              color: {type: string, enum: [red, blue], pattern: "^[a-z]+$", minLength: 1, maxLength: 9}
              note: {type: string, nullable: true}
              port: {x-kubernetes-int-or-string: true}
              any: {x-kubernetes-preserve-unknown-fields: true}
              template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
              names: {type: object, additionalProperties: {type: string}, maxProperties: 3}
              crew:
                type: array
                maxItems: 3
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}}}
              flag:
                type: object
                properties: {a: {type: boolean, default: true}, b: {type: string}}
                oneOf: [{required: [a]}, {required: [b]}]
                not: {required: [a, b]}
          status: {type: object, properties: {size: {type: integer}}}
`

// install creates the definition and waits for its document.
func install(ctx context.Context, config *rest.Config, client *discovery.DiscoveryClient) error {
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(definition), &object.Object); err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if _, err := objects.Resource(definitions).Create(ctx, object, meta.CreateOptions{}); err != nil {
		return err
	}
	for {
		paths, err := client.OpenAPIV3().Paths()
		if err != nil || paths["apis/sea.example.com/v1"] != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func secondVersion(client *discovery.DiscoveryClient) error {
	document, err := client.OpenAPISchema()
	if err != nil {
		return err
	}
	text, err := client.RESTClient().Get().AbsPath("/openapi/v2").SetHeader("Accept", "application/json").Do(context.Background()).Raw()
	if err != nil {
		return err
	}
	expected, err := openapiv2.ParseDocument(text)
	if err != nil {
		return err
	}
	if err := equal(expected, document); err != nil {
		return fmt.Errorf("version 2: %w", err)
	}
	parsed, err := models.NewOpenAPIData(document)
	if err != nil {
		return err
	}
	ship := parsed.LookupModel("com.example.sea.v1.Ship")
	fmt.Printf("version 2: %d models, %d paths, %t\n", len(parsed.ListModels()), len(document.Paths.Path), ship != nil)
	return nil
}

func thirdVersion(client *discovery.DiscoveryClient) error {
	paths, err := client.OpenAPIV3().Paths()
	if err != nil {
		return err
	}
	root := openapi3.NewRoot(client.OpenAPIV3())
	all := map[string]*spec.Schema{}
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		text, err := paths[path].Schema(openapi.ContentTypeOpenAPIV3PB)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		document := &openapiv3.Document{}
		if err := proto.Unmarshal(text, document); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		text, err = paths[path].Schema("application/json")
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		expected, err := openapiv3.ParseDocument(text)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := equal(expected, document); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		parsed := &spec3.OpenAPI{}
		if err := json.Unmarshal(text, parsed); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		maps.Copy(all, parsed.Components.Schemas)
	}
	if _, err := managedfields.NewTypeConverter(all, false); err != nil {
		return err
	}
	versions, err := root.GroupVersions()
	if err != nil {
		return err
	}
	for _, version := range versions {
		if _, err := root.GVSpec(version); err != nil {
			return fmt.Errorf("%s: %w", version, err)
		}
	}
	apps, err := root.GVSpec(schema.GroupVersion{Group: "apps", Version: "v1"})
	if err != nil {
		return err
	}
	fmt.Printf("version 3: %d documents, %d group versions, %d schemas, %d in apps/v1\n", len(paths), len(versions), len(all), len(apps.Components.Schemas))
	return nil
}

// equal compares messages; values of any form, which are sent as text, are compared by their meaning.
func equal(expected, found proto.Message) error {
	plain(expected.ProtoReflect())
	plain(found.ProtoReflect())
	if proto.Equal(expected, found) {
		return nil
	}
	first, second := prototext.Format(expected), prototext.Format(found)
	at := 0
	for at < len(first) && at < len(second) && first[at] == second[at] {
		at++
	}
	near := func(text string) string { return text[max(0, min(at, len(text))-200):min(len(text), at+100)] }
	return fmt.Errorf("the message differs from the JSON: expected\n%s\nfound\n%s", near(first), near(second))
}

func plain(message protoreflect.Message) {
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Name() == "yaml":
			if text, err := yaml.YAMLToJSON([]byte(value.String())); err == nil {
				message.Set(field, protoreflect.ValueOfString(string(text)))
			}
		case field.IsList() && field.Message() != nil:
			for i := range value.List().Len() {
				plain(value.List().Get(i).Message())
			}
		case field.Message() != nil:
			plain(value.Message())
		}
		return true
	})
}
