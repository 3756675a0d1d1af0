package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// dynamicClient finds a kind by discovery, writes it without types, pages through it, and reads its metadata alone.
func dynamicClient(ctx context.Context, config *rest.Config) error {
	discover, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discover))
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "apps", Kind: "Deployment"})
	if err != nil {
		return fmt.Errorf("mapping: %w", err)
	}
	fmt.Println("mapped to", mapping.Resource.String())

	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	maps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
	for _, name := range []string{"a", "b", "c"} {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name},
		}}
		if _, err := maps.Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create: %w", err)
		}
	}
	options := metav1.ListOptions{Limit: 2}
	for {
		page, err := maps.List(ctx, options)
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		for _, item := range page.Items {
			fmt.Println("item", item.GetKind(), item.GetName())
		}
		fmt.Println("page of", len(page.Items))
		if options.Continue = page.GetContinue(); options.Continue == "" {
			break
		}
	}

	metas, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	only, err := metas.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).
		Namespace("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	fmt.Printf("metadata of %d, first %s\n", len(only.Items), only.Items[0].Name)
	return nil
}
