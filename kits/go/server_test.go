package dogwatch

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
)

func TestAServerAnswersAndEndsWithItsTest(t *testing.T) {
	var url, data string
	t.Run("running", func(t *testing.T) {
		server := Run(t, Options{})
		url, data = server.Config.Host, server.Kubeconfig
		client := kubernetes.NewForConfigOrDie(server.Config)
		namespace := &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kit"}}
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	if url == "" {
		t.Fatal("the server has no address")
	}
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Fatalf("the temporary data is still there: %v", err)
	}
}

func TestServersRunAtTheSameTime(t *testing.T) {
	one, two := Run(t, Options{}), Run(t, Options{})
	if one.Config.Host == two.Config.Host {
		t.Fatalf("both have the address %s", one.Config.Host)
	}
}

func TestControllersRunADeployment(t *testing.T) {
	server := Run(t, Options{Controllers: true, Flags: []string{"--nodes", "1"}})
	deployments := kubernetes.NewForConfigOrDie(server.Config).AppsV1().Deployments("default")
	createDeployment(t, deployments)
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		deployment, err := deployments.Get(ctx, "web", metav1.GetOptions{})
		return err == nil && deployment.Status.ReadyReplicas == 2, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func createDeployment(t *testing.T, deployments appsv1.DeploymentInterface) {
	t.Helper()
	replicas := int32(2)
	labels := map[string]string{"app": "web"}
	deployment := &apps.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: apps.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: core.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       core.PodSpec{Containers: []core.Container{{Name: "web", Image: "web"}}},
			},
		},
	}
	if _, err := deployments.Create(t.Context(), deployment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestAFailedStartHasTheMessageOfTheProgram(t *testing.T) {
	_, err := Start(t.Context(), Options{Flags: []string{"--controllers", "coffee"}, Controllers: true})
	if err == nil || !strings.Contains(err.Error(), "coffee") {
		t.Fatalf("the error is %v", err)
	}
}

func TestObjectsSurviveAStopInADataDirectory(t *testing.T) {
	data := t.TempDir() + "/data"
	for attempt := range 2 {
		server, err := Start(t.Context(), Options{DataDir: data})
		if err != nil {
			t.Fatal(err)
		}
		namespaces := kubernetes.NewForConfigOrDie(server.Config).CoreV1().Namespaces()
		if attempt == 0 {
			namespace := &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
			_, err = namespaces.Create(t.Context(), namespace, metav1.CreateOptions{})
		} else {
			_, err = namespaces.Get(t.Context(), "kept", metav1.GetOptions{})
		}
		if err != nil {
			t.Error(err)
		}
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}
