package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// informer is a shared informer with its lister. WatchList is client-go's default; the driver turns it off with
// KUBE_FEATURE_WatchListClient=false.
func informer(ctx context.Context, config *rest.Config) error {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(clientset, 0, informers.WithNamespace("default"))
	pods := factory.Core().V1().Pods()
	lister := pods.Lister().Pods("default")
	_, err = pods.Informer().AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, initial bool) {
			word := "ADDED"
			if initial {
				word = "INITIAL"
			}
			fmt.Printf("%s : %s\n", word, object.(*corev1.Pod).Name)
		},
		UpdateFunc: func(_, object any) {
			pod := object.(*corev1.Pod)
			fmt.Printf("MODIFIED : %s %s\n", pod.Name, labels.Set(pod.Labels))
		},
		DeleteFunc: func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			all, err := lister.List(labels.Everything())
			fmt.Printf("DELETED : %s, %d left, %v\n", object.(*corev1.Pod).Name, len(all), err)
		},
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("%v did not sync", kind)
		}
	}
	all, err := lister.List(labels.Everything())
	if err != nil {
		return err
	}
	fmt.Printf("synced with %d\n", len(all))
	<-ctx.Done()
	factory.Shutdown()
	return nil
}
