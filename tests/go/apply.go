package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsapply "k8s.io/client-go/applyconfigurations/apps/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// apply runs two programs that apply parts of a deployment, and a third that patches it.
func apply(ctx context.Context, config *rest.Config) error {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	deployments := clientset.AppsV1().Deployments("default")
	labels := map[string]string{"app": "web"}
	wanted := appsapply.Deployment("web", "default").WithSpec(appsapply.DeploymentSpec().
		WithReplicas(2).
		WithSelector(metaapply.LabelSelector().WithMatchLabels(labels)).
		WithTemplate(coreapply.PodTemplateSpec().WithLabels(labels).WithSpec(coreapply.PodSpec().WithContainers(
			coreapply.Container().WithName("app").WithImage("app").WithPorts(coreapply.ContainerPort().WithContainerPort(80)),
			coreapply.Container().WithName("side").WithImage("side"),
		))))
	owner := metav1.ApplyOptions{FieldManager: "owner"}
	applied, err := deployments.Apply(ctx, wanted, owner)
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	fmt.Println("applied", *applied.Spec.Replicas, images(applied), managers(applied.ManagedFields))
	again, err := deployments.Apply(ctx, wanted, owner)
	if err != nil {
		return fmt.Errorf("apply again: %w", err)
	}
	fmt.Println("the same again writes nothing", again.ResourceVersion == applied.ResourceVersion)

	scaler := metav1.ApplyOptions{FieldManager: "scaler"}
	more := appsapply.Deployment("web", "default").WithSpec(appsapply.DeploymentSpec().WithReplicas(5))
	_, err = deployments.Apply(ctx, more, scaler)
	fmt.Println("another's field is a conflict", apierrors.IsConflict(err), causes(err))
	scaler.Force = true
	if applied, err = deployments.Apply(ctx, more, scaler); err != nil {
		return fmt.Errorf("forced apply: %w", err)
	}
	fmt.Println("forced", *applied.Spec.Replicas, images(applied), managers(applied.ManagedFields))

	// A program reads what it owns and sends it back with a change: fields that it leaves out are removed.
	owned, err := appsapply.ExtractDeployment(applied, "owner")
	if err != nil {
		return fmt.Errorf("extract: %w", err)
	}
	fmt.Println("extracted replicas", owned.Spec.Replicas != nil, "containers", len(owned.Spec.Template.Spec.Containers))
	owned.Spec.Template.Spec.Containers = owned.Spec.Template.Spec.Containers[:1]
	if applied, err = deployments.Apply(ctx, owned, owner); err != nil {
		return fmt.Errorf("apply of what was extracted: %w", err)
	}
	fmt.Println("left out", *applied.Spec.Replicas, images(applied))

	patch := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"newer"},{"name":"log","image":"log"}]}}}}`)
	patched, err := deployments.Patch(ctx, "web", types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: "hand"})
	if err != nil {
		return fmt.Errorf("strategic patch: %w", err)
	}
	fmt.Println("strategic", images(patched), "port", ports(patched, "app"))
	patch = []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"log","$patch":"delete"}]}}}}`)
	if patched, err = deployments.Patch(ctx, "web", types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("strategic delete: %w", err)
	}
	fmt.Println("strategic delete", images(patched))

	status := appsapply.Deployment("web", "default").WithStatus(appsapply.DeploymentStatus().WithReplicas(3))
	if applied, err = deployments.ApplyStatus(ctx, status, metav1.ApplyOptions{FieldManager: "reporter"}); err != nil {
		return fmt.Errorf("apply of the status: %w", err)
	}
	fmt.Println("status", applied.Status.Replicas, "spec", *applied.Spec.Replicas)
	return nil
}

func images(deployment *appsv1.Deployment) string {
	var all []string
	for _, container := range deployment.Spec.Template.Spec.Containers {
		all = append(all, container.Name+"="+container.Image)
	}
	return strings.Join(all, ",")
}

func ports(deployment *appsv1.Deployment, name string) (all []int32) {
	for _, container := range deployment.Spec.Template.Spec.Containers {
		for _, port := range container.Ports {
			if container.Name == name {
				all = append(all, port.ContainerPort)
			}
		}
	}
	return all
}

// managers returns the owners of the number of replicas, as manager:operation.
func managers(entries []metav1.ManagedFieldsEntry) (all []string) {
	for _, entry := range entries {
		var fields struct {
			Spec map[string]json.RawMessage `json:"f:spec"`
		}
		if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.Raw, &fields) != nil {
			continue
		}
		if _, owns := fields.Spec["f:replicas"]; owns {
			all = append(all, fmt.Sprintf("%s:%s", entry.Manager, entry.Operation))
		}
	}
	return all
}

// causes returns the fields that a conflict names.
func causes(err error) (all []string) {
	if status, ok := err.(apierrors.APIStatus); ok && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			all = append(all, fmt.Sprintf("%s %s", cause.Field, cause.Message))
		}
	}
	return all
}
