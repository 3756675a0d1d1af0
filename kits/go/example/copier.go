// Package example is a small operator: it keeps a copy of every ConfigMap with the label copy=yes.
package example

import (
	"context"
	"maps"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// Copier reconciles ConfigMaps.
type Copier struct {
	client.Client
	// Reader reads from the server, so that a retry does not work on an old copy.
	Reader client.Reader
}

// Reconcile makes the data of the copy equal to that of the source.
func (c *Copier) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var source core.ConfigMap
	if err := c.Get(ctx, request.NamespacedName, &source); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	key := client.ObjectKey{Namespace: source.Namespace, Name: source.Name + "-copy"}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var copied core.ConfigMap
		err := c.Reader.Get(ctx, key, &copied)
		if apierrors.IsNotFound(err) {
			copied.ObjectMeta = metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
			copied.Data = source.Data
			return c.Create(ctx, &copied)
		}
		if err != nil || maps.Equal(copied.Data, source.Data) {
			return err
		}
		copied.Data = source.Data
		return c.Update(ctx, &copied)
	})
	return ctrl.Result{}, err
}

// SetupWithManager registers the reconciler.
func (c *Copier) SetupWithManager(manager ctrl.Manager) error {
	selected := predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetLabels()["copy"] == "yes" })
	return ctrl.NewControllerManagedBy(manager).For(&core.ConfigMap{}).WithEventFilter(selected).Complete(c)
}
