package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

var things = schema.GroupVersionResource{Group: "go.example.com", Version: "v1", Resource: "things"}

// installThings creates the definition as the tests of an operator do, and returns once it is in discovery.
func installThings(config *rest.Config) error {
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	object := func(properties map[string]apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties}
	}
	color := text
	color.Default = &apiextensionsv1.JSON{Raw: []byte(`"blue"`)}
	root := object(map[string]apiextensionsv1.JSONSchemaProps{
		"spec":   object(map[string]apiextensionsv1.JSONSchemaProps{"color": color}),
		"status": object(map[string]apiextensionsv1.JSONSchemaProps{"phase": text}),
	})
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "things.go.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: things.Group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Kind: "Thing"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema:           &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &root},
				Subresources:     &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				SelectableFields: []apiextensionsv1.SelectableField{{JSONPath: ".spec.color"}},
			}},
		},
	}
	_, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{definition}})
	return err
}

// customClients creates, changes and deletes a custom resource without types, and reads its metadata alone.
func customClients(ctx context.Context, config *rest.Config) error {
	if err := installThings(config); err != nil {
		return fmt.Errorf("install: %w", err)
	}
	dynamics, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	client := dynamics.Resource(things).Namespace("default")
	watch, err := client.Watch(ctx, metav1.ListOptions{FieldSelector: "spec.color=red"})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	for _, name := range []string{"a", "b"} {
		made, err := client.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "go.example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"unknown": int64(1)},
		}}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create: %w", err)
		}
		fmt.Println("created", made.GetName(), made.Object["spec"])
	}
	applied, err := client.Apply(ctx, "a", &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "go.example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "a"},
		"spec": map[string]any{"color": "red"},
	}}, metav1.ApplyOptions{FieldManager: "painter", Force: true})
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	fmt.Println("applied", applied.Object["spec"], applied.GetGeneration())
	event := <-watch.ResultChan()
	fmt.Println("watch", event.Type, event.Object.(*unstructured.Unstructured).GetName())
	watch.Stop()
	applied.Object["status"] = map[string]any{"phase": "Done"}
	if applied, err = client.UpdateStatus(ctx, applied, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("status: %w", err)
	}
	fmt.Println("status", applied.Object["status"], applied.GetGeneration())
	metas, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	only, err := metas.Resource(things).Namespace("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	fmt.Printf("metadata of %d, first %s\n", len(only.Items), only.Items[0].Name)
	if err := client.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "spec.color=blue"}); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	fmt.Println("left", len(list.Items))
	return nil
}

// Thing is a custom resource as an operator's author writes it.
type Thing struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Color string `json:"color,omitempty"`
	} `json:"spec,omitempty"`
	Status struct {
		Phase string `json:"phase,omitempty"`
	} `json:"status,omitempty"`
}

func (t *Thing) DeepCopyObject() runtime.Object {
	copied := *t
	copied.ObjectMeta = *t.ObjectMeta.DeepCopy()
	return &copied
}

// ThingList is a list of them.
type ThingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Thing `json:"items"`
}

func (l *ThingList) DeepCopyObject() runtime.Object {
	copied := ThingList{TypeMeta: l.TypeMeta, ListMeta: l.ListMeta}
	for i := range l.Items {
		copied.Items = append(copied.Items, *l.Items[i].DeepCopyObject().(*Thing))
	}
	return &copied
}

type painter struct{ client client.Client }

// Reconcile writes the color into the status, and prints how many objects of the color the index has.
func (p painter) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var thing Thing
	if err := p.client.Get(ctx, request.NamespacedName, &thing); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	wanted := strings.ToUpper(thing.Spec.Color)
	if thing.Status.Phase == wanted {
		var same ThingList
		if err := p.client.List(ctx, &same, client.MatchingFields{"color": thing.Spec.Color}); err != nil {
			return ctrl.Result{}, err
		}
		fmt.Println("settled", thing.Name, thing.Status.Phase, len(same.Items))
		return ctrl.Result{}, nil
	}
	thing.Status.Phase = wanted
	return ctrl.Result{}, p.client.Status().Update(ctx, &thing)
}

// manager runs an operator: its types, a cache with an index, a reconciler.
func manager(ctx context.Context, config *rest.Config) error {
	log.SetLogger(logr.Discard())
	if err := installThings(config); err != nil {
		return fmt.Errorf("install: %w", err)
	}
	scheme := runtime.NewScheme()
	version := schema.GroupVersion{Group: things.Group, Version: things.Version}
	scheme.AddKnownTypes(version, &Thing{}, &ThingList{})
	metav1.AddToGroupVersion(scheme, version)
	manager, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		return fmt.Errorf("manager: %w", err)
	}
	byColor := func(object client.Object) []string { return []string{object.(*Thing).Spec.Color} }
	if err := manager.GetFieldIndexer().IndexField(ctx, &Thing{}, "color", byColor); err != nil {
		return fmt.Errorf("index: %w", err)
	}
	if err := ctrl.NewControllerManagedBy(manager).For(&Thing{}).Complete(painter{manager.GetClient()}); err != nil {
		return fmt.Errorf("controller: %w", err)
	}
	fmt.Println("starting")
	return manager.Start(ctx)
}
