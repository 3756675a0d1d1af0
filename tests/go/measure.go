package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// measure is a shared informer on all pods that reports its cost on request: `mark` and `report` on stdin, as in
// testkit's gauge.
func measure(ctx context.Context, config *rest.Config) error {
	started := time.Now()
	var lock sync.Mutex
	var events, sets int
	var latencies []int64
	var cpuMark int64
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return countedSets{next, func() { lock.Lock(); sets++; lock.Unlock() }}
	})
	config.QPS = -1
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(clientset, 0)
	pods := factory.Core().V1().Pods().Informer()
	seen := func(object any) {
		due, err := strconv.ParseInt(object.(*corev1.Pod).Annotations["gauge/due"], 10, 64)
		lock.Lock()
		defer lock.Unlock()
		events++
		if err == nil {
			latencies = append(latencies, (time.Now().UnixNano()-due)/1000)
		}
	}
	_, err = pods.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, initial bool) {
			if !initial {
				seen(object)
			}
		},
		UpdateFunc: func(_, object any) { seen(object) },
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	fmt.Printf("synced %d\n", time.Since(started).Milliseconds())
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		lock.Lock()
		switch lines.Text() {
		case "mark":
			events, latencies, cpuMark = 0, nil, cpuMicroseconds()
			_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
			fmt.Println("marked")
		case "report":
			slices.Sort(latencies)
			at := func(share float64) *int64 {
				if len(latencies) == 0 {
					return nil
				}
				return &latencies[int(float64(len(latencies))*share)]
			}
			report, _ := json.Marshal(map[string]any{
				"objects": len(pods.GetStore().ListKeys()), "events": events, "sets": sets,
				"cpu_us": cpuMicroseconds() - cpuMark, "rss_kib": statusKiB("VmRSS:"), "peak_kib": statusKiB("VmHWM:"),
				"p50_us": at(0.5), "p99_us": at(0.99),
			})
			fmt.Println(string(report))
		}
		lock.Unlock()
	}
	return nil
}

// countedSets counts requests for the whole set: a list, or a watch with initial events.
type countedSets struct {
	next http.RoundTripper
	set  func()
}

func (c countedSets) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	if query.Get("watch") == "" || query.Get("sendInitialEvents") == "true" {
		c.set()
	}
	return c.next.RoundTrip(request)
}

func statusKiB(field string) int64 {
	status, _ := os.ReadFile("/proc/self/status")
	for _, line := range strings.Split(string(status), "\n") {
		if words := strings.Fields(line); len(words) > 1 && words[0] == field {
			number, _ := strconv.ParseInt(words[1], 10, 64)
			return number
		}
	}
	return 0
}

// cpuMicroseconds is the CPU time of this process, to a clock tick (10 ms).
func cpuMicroseconds() int64 {
	stat, _ := os.ReadFile("/proc/self/stat")
	_, rest, _ := strings.Cut(string(stat), ") ")
	words := strings.Fields(rest)
	user, _ := strconv.ParseInt(words[11], 10, 64)
	system, _ := strconv.ParseInt(words[12], 10, 64)
	return (user + system) * 10_000
}
