package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	rewindCount  = 100
	writerCount  = 3
	preparedMaps = 20
	inStep       = 30 * time.Second
	checkpoints  = "/apis/lab.dogwatch.dev/v1/checkpoints"
)

// rewinds takes the server back to a checkpoint again and again while others write. After each rewind the writers pause, and the
// store of an informer must have exactly what the server lists.
func rewinds(ctx context.Context, config *rest.Config) error {
	config.QPS = -1
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	maps := clientset.CoreV1().ConfigMaps("default")
	for number := range preparedMaps {
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m%d", number)}}
		if _, err := maps.Create(ctx, made, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	post := func(path, body string) error {
		return clientset.RESTClient().Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(ctx).Error()
	}
	checkpoint := `{"apiVersion": "lab.dogwatch.dev/v1", "kind": "Checkpoint", "metadata": {"name": "prepared"}, "spec": {"world": "main"}}`
	if err := post(checkpoints, checkpoint); err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(clientset, 0, informers.WithNamespace("default"))
	lister := factory.Core().V1().ConfigMaps().Lister().ConfigMaps("default")
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())

	// Held by a writer for each of its turns, and by the comparison for as long as it takes.
	var writing sync.RWMutex
	writers, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	for writer := range writerCount {
		running.Go(func() {
			for turn := 0; writers.Err() == nil; turn++ {
				writing.RLock()
				// A rewind may be faster than each of these.
				made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("w%d-%d", writer, turn)}}
				_, _ = maps.Create(ctx, made, metav1.CreateOptions{})
				patch := fmt.Sprintf(`{"data": {"v": "%d"}}`, turn)
				_, _ = maps.Patch(ctx, fmt.Sprintf("m%d", turn%preparedMaps), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
				_ = maps.Delete(ctx, fmt.Sprintf("m%d", (turn+7)%preparedMaps), metav1.DeleteOptions{})
				writing.RUnlock()
				time.Sleep(time.Millisecond)
			}
		})
	}
	compare := func() error {
		writing.Lock()
		defer writing.Unlock()
		listed, err := maps.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		wanted := map[string]string{}
		for _, one := range listed.Items {
			wanted[one.Name] = string(one.UID) + "@" + one.ResourceVersion
		}
		for deadline := time.Now().Add(inStep); ; time.Sleep(time.Millisecond) {
			held, err := lister.List(labels.Everything())
			if err != nil {
				return err
			}
			wrong := len(held) != len(wanted)
			for _, one := range held {
				wrong = wrong || wanted[one.Name] != string(one.UID)+"@"+one.ResourceVersion
			}
			if !wrong {
				return nil
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("the store has %d maps and the server %d, or other versions", len(held), len(wanted))
			}
		}
	}
	for turn := range rewindCount {
		if err := post(checkpoints+"/prepared/rewind", "{}"); err != nil && !errors.IsConflict(err) {
			return fmt.Errorf("rewind %d: %w", turn, err)
		}
		if err := compare(); err != nil {
			return fmt.Errorf("after rewind %d: %w", turn, err)
		}
	}
	stop()
	running.Wait()
	fmt.Printf("%d rewinds, never wrong\n", rewindCount)
	return nil
}
