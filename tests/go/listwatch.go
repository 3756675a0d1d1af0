package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// listWatch is the program of every tutorial: list the names, then print the type and name of each event.
func listWatch(ctx context.Context, config *rest.Config) error {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	pods := cache.NewListWatchFromClient(clientset.CoreV1().RESTClient(), "pods", "default", fields.Everything())
	list, err := pods.List(metav1.ListOptions{})
	if err != nil {
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	for _, item := range items {
		pod, err := meta.Accessor(item)
		if err != nil {
			return err
		}
		fmt.Println(pod.GetName())
	}
	at, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	watcher, err := pods.Watch(metav1.ListOptions{ResourceVersion: at.GetResourceVersion()})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	fmt.Println("watching")
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, open := <-watcher.ResultChan():
			if !open {
				return fmt.Errorf("the watch ended")
			}
			pod, err := meta.Accessor(event.Object)
			if err != nil {
				return fmt.Errorf("event %s: %#v", event.Type, event.Object)
			}
			fmt.Printf("%s : %s\n", event.Type, pod.GetName())
		}
	}
}
