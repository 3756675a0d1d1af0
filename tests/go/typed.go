package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// typedJSON is typed with JSON chosen.
func typedJSON(ctx context.Context, config *rest.Config) error {
	config.ContentType = "application/json"
	return typed(ctx, config)
}

// typed creates, changes and deletes an object through the typed client, and checks the errors that a program distinguishes. By
// default it sends bodies of built-in kinds as protobuf, and prefers answers in it.
func typed(ctx context.Context, config *rest.Config) error {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	maps := clientset.CoreV1().ConfigMaps("default")
	created, err := maps.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "settings-"},
		Data:       map[string]string{"colour": "red"},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	name := created.Name
	stream, err := maps.Watch(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + name, ResourceVersion: created.ResourceVersion,
	})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer stream.Stop()
	fmt.Println("created", len(name) > len("settings-"), created.UID != "", created.Data["colour"])

	stale := created.DeepCopy()
	created.Data["colour"] = "green"
	updated, err := maps.Update(ctx, created, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("update: %w", err)
	}
	fmt.Println("updated", updated.Data["colour"], updated.ResourceVersion != stale.ResourceVersion)

	_, err = maps.Update(ctx, stale, metav1.UpdateOptions{})
	fmt.Println("stale update is a conflict", apierrors.IsConflict(err))

	patched, err := maps.Patch(ctx, name, types.MergePatchType, []byte(`{"data":{"size":"big"}}`), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("patch: %w", err)
	}
	fmt.Println("patched", patched.Data["colour"], patched.Data["size"])

	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	fmt.Println("second create already exists", apierrors.IsAlreadyExists(err))

	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "Not_A_Name"}}, metav1.CreateOptions{})
	fmt.Println("bad name is invalid", apierrors.IsInvalid(err))

	list, err := maps.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	fmt.Println("listed", len(list.Items))

	if err := maps.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	for event := range stream.ResultChan() {
		seen, ok := event.Object.(*corev1.ConfigMap)
		if !ok {
			return fmt.Errorf("watch: %T", event.Object)
		}
		fmt.Println("saw", event.Type, seen.Data["colour"], seen.Data["size"])
		if event.Type == watch.Deleted {
			break
		}
	}
	_, err = maps.Get(ctx, name, metav1.GetOptions{})
	fmt.Println("deleted is not found", apierrors.IsNotFound(err))

	version, err := clientset.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("version: %w", err)
	}
	fmt.Printf("server %s.%s\n", version.Major, version.Minor)
	return nil
}
